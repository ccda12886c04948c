"""Exponents for every value and every reading of it, with as few conversions as possible.

Each equation constrains the exponents of its operands and results by rows (`a + b - out = 0` for a
product). Each stored number has an interval of exponents at which it stays in range. Arguments and
results of the program have exponent 0. A value that is read at another exponent than its own is
converted, which costs its size. Two readings at the same exponent share one conversion. Constants
are converted at planning time, at no cost. The choice is an integer program.

1. Exponent 0 everywhere is right for most programs: this is checked first, in microseconds.
2. Equations that no exponents hold in range violate as few bits as possible (`_cells.loosen`).
3. Bounds are propagated from the values that cannot stay at 0. If bounds contradict each other, one
   of the values between them has to be converted. These *conflicts* give a lower bound of the cost.
   A cheap cover of them decides where to convert (`_conflicts`, `_cover`).
4. The exponents follow, equation by equation, within these bounds. Passes back and forth improve
   them (`_moves`). If their cost equals the lower bound, they are proven best. Otherwise HiGHS
   solves programs of up to `SMALL` variables (`_integer_program`), with conflicts as further rows.
5. Programs that leave the range at random have too many conflicts. Their equations are walked
   without bounds, in linear time. The result is the answer if its proven gap is at most `GOOD`.

    assign(problem).values  # array([0, 0, 20])

All limits are counts, of visits, passes and nodes: the same problem has the same answer on every
machine. The linear relaxation is no alternative: a fixed charge with a big-M is nearly free in it.
For 10,000 equations at random HiGHS took twice the time of the whole search and proved a third of
the conversions. Time steps need 6 conversions: the relaxation proves 0.75, conflicts prove all 6.

Sharp edges: a range violation costs more than all conversions together, but the program stays
solvable. Among equally good answers exponents near 0 are preferred, not guaranteed. `gap` is
relative to `objective` and proven: `bound` is never above the best possible objective. If
violations are unavoidable, they are nearly all of the objective, and `gap` says little about
conversions. `excess` measures conversions alone, and may be large for these programs.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ._cells import loosen
from ._conflicts import Propagation
from ._cover import greedy, packing
from ._integer_program import solve
from ._moves import descend
from ._presolve import ANY as ANY, FREE as FREE, AssignmentProblem as AssignmentProblem, System

TINY = 1e-30
GAP = 1e-9  # Below this gap an assignment counts as proven best.
COMMON = 0.05  # Programs with more conflicts per row leave the range at random (row: hostile).
GOOD = 0.01  # The promised gap for 10,000 equations.
SMALL = 225  # HiGHS solves up to so many variables. Promise: conversions of hard formulas.


class Assignment(NamedTuple):
    """Exponents of values and uses, their cost, and a proven bound of the best cost.

    **Fields:** `values`, `uses`: integers, in the order of the problem (`show._exponents` has them
    by name); `objective`: the cost of conversions (elements times computations) and of bits out of
    range; `bound`: the proven least objective; `gap`: `(objective - bound) / objective`; `excess`:
    the same for the cost of conversions alone, without the unavoidable violations; `conversions`,
    `violations`: their numbers; `method`: the origin of the result (`"identity"`, `"presolve"`,
    `"search"`, `"integer program"`); `seconds`.
    """

    values: Any
    uses: Any
    objective: float = 0.0
    bound: float = 0.0
    gap: float = 0.0
    excess: float = 0.0
    conversions: int = 0
    violations: int = 0
    method: str = "identity"
    seconds: float = 0.0


def assign(problem: AssignmentProblem) -> Assignment:
    """Return the cheapest exponents that a limited search finds.

    **Cost:** about 25 µs per equation, or up to 1 s if HiGHS runs.
    """
    start = time.perf_counter()
    if _identity_does(problem):
        zeros = np.zeros(len(problem.low), np.int64), np.zeros(len(problem.use_value), np.int64)
        lost = problem.unavoidable()
        count = int(np.count_nonzero(problem.use_pin != FREE)) if lost else 0
        took = time.perf_counter() - start
        return Assignment(*zeros, lost, lost, violations=count, seconds=took)
    return _Search(problem, start).run()


class _Search:
    """The best assignment and the best bound so far.

    **Fields:** `lost`: the least cost of range violations; `bound`: the proven lower bound of the
    rest, the conversions.
    """

    def __init__(self, problem: AssignmentProblem, start: float) -> None:
        self.problem, self.start = problem, start
        self.system = System(problem)
        self.lost = problem.unavoidable() + problem.weight() * loosen(self.system)
        self.bound = 0.0
        self.best: Assignment | None = None

    def run(self) -> Assignment:
        system = self.system
        is_small = system.size <= SMALL
        bounds = Propagation(system, most=np.inf if is_small else COMMON * len(system.rows))
        self._cover(bounds)
        if bounds.exhausted and not is_small:
            best = self._descend("search")
            if best.gap <= GOOD:
                return best
            bounds.resume()
            self._cover(bounds)
        bounds.resume()
        bounds.share([v for v, cost in enumerate(system.cost) if cost and bounds.freed[v]])
        best = self._descend("presolve", bounds)
        if best.excess > GAP:
            best = self._descend("search")
        if best.excess > GAP and is_small and (found := solve(system, bounds.conflicts)):
            self.bound = max(self.bound, found.bound)
            best = self._offer(found.values, found.uses, "integer program")
        return best

    def _cover(self, bounds: Propagation) -> None:
        """Free a cheap cover of the conflicts until there are no new conflicts."""
        while bounds.propagate():
            self.bound = max(self.bound, packing(bounds.conflicts, self.system.cost))
            bounds.choose(greedy(bounds.conflicts, self.system.cost))

    def _descend(self, method: str, bounds: Propagation | None = None) -> Assignment:
        """Find the cheapest exponents of a short local search, and return the best so far."""
        found = np.array(descend(self.system, bounds), dtype=np.int64)
        return self._offer(found[: self.system.n], found[self.system.n :], method)

    def _offer(
        self, values: Int[np.ndarray, " n"], uses: Int[np.ndarray, " m"], method: str
    ) -> Assignment:
        """Keep the better of the best so far and a new assignment, with the newest bound."""
        cost, conversions, violations = evaluate(self.problem, values, uses)
        if self.best is None or cost < self.best.objective:
            counts = conversions, violations
            self.best = Assignment(values, uses, cost, 0.0, 0.0, 0.0, *counts, method)
        cost = self.best.objective
        bound = float(min(self.lost + self.bound, cost))
        self.best = self.best._replace(
            bound=bound,
            gap=(cost - bound) / max(cost, TINY),
            excess=(cost - bound) / max(cost - self.lost, TINY),
            seconds=time.perf_counter() - self.start,
        )
        return self.best


def _identity_does(problem: AssignmentProblem) -> bool:
    """True if exponent 0 everywhere causes no avoidable violation."""
    for pins in (problem.value_pin, problem.use_pin):
        if not np.all((pins == FREE) | (pins == 0)):
            return False
    low, high = problem.intervals()
    return bool(np.all((low <= 0) & (high >= 0)))


def evaluate(
    problem: AssignmentProblem, values: Int[np.ndarray, " n"], uses: Int[np.ndarray, " m"]
) -> tuple[float, int, int]:
    """Return the objective, and the numbers of conversions and violations of an assignment."""
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
