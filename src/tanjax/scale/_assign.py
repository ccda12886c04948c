"""Exponents for every value and every reading of it, with as few conversions as can be.

Each equation constrains the exponents of its operands and results by rows (`a + b - out = 0` for a
product), each stored number has an interval of exponents at which it stays in range, and whatever
enters or leaves the program has exponent 0. Where a value is read at another exponent than it has,
it is converted, which costs its size; two readings at the same exponent share one conversion.
Constants are converted at planning time, for nothing. The choice is an integer program.

1. All zero is right for most programs: checked first, in microseconds.
2. Otherwise bounds are propagated from the values that cannot stay at 0. Where they contradict each
   other, one of the conversions on the way has to happen: such *conflicts* give a lower bound, and
   where to convert. The exponents follow, cell by cell. If the cost equals the bound, this is it.
3. If not, HiGHS solves the program, as far as the time allows.

    >>> assign(problem).values
    array([0, 0, 20])

Sharp edges: a range violation is worse than all conversions together, but the program stays
solvable; among equally good answers exponents near 0 are preferred, not guaranteed. `gap` is
relative to `cost` and proven: `bound` is never above the best possible cost.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from . import _integer_program
from ._cells import construct
from ._conflicts import Bounds
from ._presolve import ANY as ANY, FREE as FREE, Problem as Problem, System

TINY = 1e-30


class Assignment(NamedTuple):
    """Exponents of values and uses, what they cost, and how good that is known to be.

    **Fields:** `cost`: the objective; `bound`: proven lower bound; `gap`: `(cost - bound) / cost`
    (of `cost` without what readings cost that are pinned out of range);
    `conversions`, `violations`: how many; `method`: what the result comes from (`"identity"`,
    `"presolve"`, `"integer program"`, `"rounding"`, `"propagation"`: the time was up); `seconds`.
    """

    values: Int[np.ndarray, " n"]
    uses: Int[np.ndarray, " m"]
    cost: float
    bound: float
    gap: float
    conversions: int
    violations: int
    method: str
    seconds: float


def assign(problem: Problem, *, time_limit: float = 1.0) -> Assignment:
    """The cheapest exponents that could be found in `time_limit` seconds."""
    start = time.perf_counter()
    if _identity_does(problem):
        zeros = np.zeros(len(problem.low), np.int64), np.zeros(len(problem.use_value), np.int64)
        return _result(problem, *zeros, np.inf, "identity", start)
    system = System(problem)
    bounds = Bounds(system)
    bounds.settle()
    exponents = np.array(construct(system, bounds), dtype=np.int64)
    n = system.n
    found = _result(problem, exponents[:n], exponents[n:], bounds.total, "presolve", start)
    if found.gap <= 1e-9:
        return found
    left = time_limit - (time.perf_counter() - start)
    solution = _integer_program.solve(problem, time_limit=left)
    if solution is None:
        return found
    return _result(problem, *solution, "integer program", start)


def _identity_does(problem: Problem) -> bool:
    """Whether exponent 0 everywhere violates nothing that could be avoided."""
    for pins in (problem.value_pin, problem.use_pin):
        if not np.all((pins == FREE) | (pins == 0)):
            return False
    low, high = problem.intervals()
    return bool(np.all((low <= 0) & (high >= 0)))


def evaluate(
    problem: Problem, values: Int[np.ndarray, " n"], uses: Int[np.ndarray, " m"]
) -> tuple[float, int, int]:
    """Objective, number of conversions and number of violations of an assignment."""
    owner = problem.use_value
    converted = uses != values[owner]
    keys = np.unique(owner[converted].astype(np.int64) * 2**32 + (uses[converted] + 2**31))
    prices = problem.cost[keys >> 32]
    low, high = problem.intervals()
    exponents = np.concatenate([values, uses])
    low, high = np.concatenate([low, low[owner]]), np.concatenate([high, high[owner]])
    bits = np.maximum(low - exponents, 0) + np.maximum(exponents - high, 0)
    cost = float(prices.sum()) + problem.weight() * float(bits.sum())
    return cost, int(np.count_nonzero(prices)), int(np.count_nonzero(bits))


def _result(
    problem: Problem,
    values: Int[np.ndarray, " n"],
    uses: Int[np.ndarray, " m"],
    bound: float,
    method: str,
    start: float,
) -> Assignment:
    cost, conversions, violations = evaluate(problem, values, uses)
    lost = problem.unavoidable()
    bound = max(lost, min(bound + lost, cost))
    gap = (cost - bound) / max(cost - lost, TINY)
    seconds = time.perf_counter() - start
    return Assignment(values, uses, cost, bound, gap, conversions, violations, method, seconds)
