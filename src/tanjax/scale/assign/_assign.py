"""Exponents for every value and every reading of it, with as few conversions as can be.

Each equation constrains the exponents of its operands and results by rows (`a + b - out = 0` for a
product), each stored number has an interval of exponents at which it stays in range, and whatever
enters or leaves the program has exponent 0. Where a value is read at another exponent than it has,
it is converted, which costs its size; two readings at the same exponent share one conversion.
Constants are converted at planning time, for nothing. The choice is an integer program.

1. All zero is right for most programs: checked first, in microseconds.
2. Equations that nothing holds in range violate as few bits as they can (`_cells.loosen`).
3. Bounds are propagated from the values that cannot stay at 0. Where they contradict each other,
   one of the conversions on the way has to happen: such *conflicts* give a lower bound, and where
   to convert (`_conflicts`, `_cover`).
4. The exponents follow, equation by equation, within these bounds, and are improved back and forth
   (`_moves`). If the cost is that of the bound, they are proven best; if not, small programs get
   one conversion for all readings of a value (`_levels`), and are solved by HiGHS if that does not
   do either, with the conflicts as further rows (`_integer_program`).
5. Programs that wander out of range at random have more conflicts than there is time for. When
   that shows, their equations are walked without bounds, in linear time; if what is found is proven
   good to `GOOD`, that is the answer.

    assign(problem).values  # array([0, 0, 20])

The linear relaxation is no short cut: a fixed charge with a big-M is nearly free in it. For 10,000
equations at random HiGHS took twice the time of all of this (1.4 s and 0.8 s, side by side) and
proved a third of the conversions; of the 6 that time steps cost it proves 0.75, conflicts all 6.
The gap of the whole objective is small in either case where violations count.

Sharp edges: a range violation is worse than all conversions together, but the program stays
solvable; among equally good answers exponents near 0 are preferred, not guaranteed. `gap` is
relative to `objective` and proven: `bound` is never above the best possible one. Where violations
cannot be avoided, they are nearly all of it, and `gap` says little about conversions: `excess`
does, and may be large for such programs.
"""

from __future__ import annotations

import gc
import math
import time
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ._cells import loosen
from ._conflicts import Propagation
from ._cover import exact, greedy, packing
from ._integer_program import least_violation, solve
from ._levels import share
from ._moves import descend
from ._presolve import ANY as ANY, FREE as FREE, AssignmentProblem as AssignmentProblem, System

TINY = 1e-30
GAP = 1e-9  # below this an assignment counts as proven best
ENDS = 500  # rows at which conflicts are looked for first; some tens of steps of a simulation
EFFORT = 1e-5  # seconds per row for a look at bounds, after which conflicts are counted
AT_LEAST = 500  # rows that are worth as many seconds
RARE = 0.06  # conflicts per row, from which on a program wanders out of range at random
GRACE = 8e-5  # seconds per row without which exponents would be chosen blindly
GOOD = 0.01  # a proven gap that is good enough after that
FEW = 50  # conflicts whose cheapest cover takes HiGHS some milliseconds
ROUNDS = 12  # of covers; the first few find nearly all conflicts
SMALL = 400  # variables up to which the whole program goes to HiGHS


class Assignment(NamedTuple):
    """Exponents of values and uses, what they cost, and how good that is known to be.

    **Fields:** `values`, `uses`: integers, in the order of the problem (`show._exponents` has them
    by name); `objective`: conversions (elements times how often they are computed) and bits out of
    range; `bound`: what is proven to be needed; `gap`: `(objective - bound) / objective`; `excess`:
    the same of what conversions cost, without the violations that nothing can avoid, next to which
    conversions hardly count; `conversions`, `violations`: how many; `method`: what the result comes
    from (`"identity"`, `"presolve"`, `"rounding"`: the same, not at the cost of the bound,
    `"search"`, `"integer program"`, `"propagation"`: the time was up before the gap was small);
    `seconds`.
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


def assign(problem: AssignmentProblem, *, time_limit: float = 1.0) -> Assignment:
    """The cheapest exponents that could be found in `time_limit` seconds.

    The time is that of this thread's computing, so that a plan does not depend on what else the
    machine does.
    """
    start = time.perf_counter()
    if _identity_does(problem):
        zeros = np.zeros(len(problem.low), np.int64), np.zeros(len(problem.use_value), np.int64)
        lost = problem.unavoidable()
        count = int(np.count_nonzero(problem.use_pin != FREE)) if lost else 0
        took = time.perf_counter() - start
        return Assignment(*zeros, lost, lost, violations=count, seconds=took)
    collecting = gc.isenabled()
    gc.disable()  # many small lists, no cycles: collections would take a third of the time
    try:
        return _Search(problem, start, time.thread_time() + time_limit).run()
    finally:
        if collecting:
            gc.enable()


class _Search:
    """The best assignment and the best bound so far.

    **Fields:** `lost`: the part of the objective that range violations cost at least, `given` of
    which were left to the integer program; `bound`: the proven lower bound of the rest, the
    conversions.
    """

    def __init__(self, problem: AssignmentProblem, start: float, deadline: float) -> None:
        self.problem, self.start, self.deadline = problem, start, deadline
        self.system = System(problem)
        self.lost, self.given, self.bound = problem.unavoidable(), 0.0, 0.0
        self.effort = EFFORT * max(len(problem.rows), AT_LEAST)
        self.best: Assignment | None = None
        self.cover: set[int] = set()

    def run(self) -> Assignment:
        small = self.system.size <= SMALL
        self._violate()
        half = self._until(0.5)
        bounds = Propagation(self.system, min(half, time.thread_time() + self.effort))
        covered = self._covered(bounds)
        while bounds.exhausted and self._few(bounds) and time.thread_time() < half:
            bounds.resume(time.thread_time() + self.effort)
            covered = self._covered(bounds)
        if bounds.exhausted:
            best = self._descend("search")
            if best.gap <= GOOD and not small:
                return best
            if self.left <= 0:
                return self._construct(bounds, "propagation")._replace(method="propagation")
            bounds.resume(self._until(0.5))
            covered = self._covered(bounds)
        best = first = self._construct(bounds, "presolve" if covered else "rounding")
        if best.excess > GAP:
            best = self._descend("search")
        if best.excess > GAP and small and (found := share(self.system, first.values, first.uses)):
            best = self._offer_all(found, "search")
        return self._whole(bounds) if best.excess > GAP and small and self.left > 0 else best

    def _few(self, bounds: Propagation) -> bool:
        """Whether conflicts are so rare among the rows of both ends that they are worth finding."""
        rows = min(len(self.system.rows), 2 * ENDS)
        return len(bounds.conflicts) < RARE * max(rows, AT_LEAST)

    def _violate(self) -> None:
        """Let variables violate their intervals where some have to, by as little as they can."""
        bits, others = loosen(self.system)
        self.lost += self.problem.weight() * bits
        if others:
            found, proven = least_violation(self.system, others, time_limit=self.left / 2)
            self.system.give(found or {x: 0 for cell in others for x in cell.variables})
            self.given = self.problem.weight() * math.ceil(proven - 1e-6)
            self.lost += self.given

    @property
    def left(self) -> float:
        return self.deadline - time.thread_time()

    def _until(self, part: float) -> float:
        """The time at which a part of the rest of the time is over."""
        return time.thread_time() + part * self.left

    def _covered(self, bounds: Propagation) -> bool:
        """Cover the conflicts until there are no new ones; whether at the least possible cost.

        First those at both ends of the program: what has to be converted in each of many equal
        steps, unless it is before the first and after the last, is found there in little time.
        """
        for ends in (ENDS, math.inf):
            for _ in range(ROUNDS):
                new = bounds.propagate(ends)
                if new:
                    self.cover = self._cheapest(bounds.conflicts)
                    bounds.choose(self.cover)
                if not new or bounds.exhausted:
                    break
        return self._price(self.cover) <= self.bound * (1 + GAP)

    def _cheapest(self, conflicts: list[frozenset[int]]) -> set[int]:
        """A cheap cover of some conflicts, the cheapest if they are few."""
        cost = self.system.cost
        cover = greedy(conflicts, cost)
        self.bound = max(self.bound, packing(conflicts, cost))
        if len(conflicts) <= FEW and self._price(cover) > self.bound * (1 + GAP) and self.left > 0:
            found, bound = exact(conflicts, cost, time_limit=self.left)
            self.bound = max(self.bound, bound)
            return cover if found is None else found
        return cover

    def _price(self, values: set[int]) -> float:
        return sum(self.system.cost[v] for v in values)

    def _construct(self, bounds: Propagation, method: str) -> Assignment:
        """The exponents that follow from conversions of the cover, one for all readings at first.

        Bounds that were not propagated to the end are so as far as a little more time allows.
        """
        grace = time.thread_time() + GRACE * len(self.system.rows)
        bounds.resume(max(self._until(0.5), grace))
        bounds.share([v for v, cost in enumerate(self.system.cost) if cost and bounds.freed[v]])
        return self._descend(method, bounds)

    def _descend(self, method: str, bounds: Propagation | None = None) -> Assignment:
        """The cheapest exponents that a short local search finds."""
        return self._offer_all(descend(self.system, until=self.deadline, bounds=bounds), method)

    def _offer_all(self, exponents: list[int], method: str) -> Assignment:
        found = np.array(exponents, dtype=np.int64)
        return self._offer(found[: self.system.n], found[self.system.n :], method)

    def _whole(self, bounds: Propagation) -> Assignment:
        """Solve the whole integer program."""
        weight, conflicts = self.problem.weight(), bounds.conflicts
        solution = solve(self.system, weight, time_limit=self.left, conflicts=conflicts)
        if solution is None:
            assert self.best is not None
            return self.best
        self.bound = max(self.bound, solution.bound - self.given)
        return self._offer(solution.values, solution.uses, "integer program")

    def _offer(
        self, values: Int[np.ndarray, " n"], uses: Int[np.ndarray, " m"], method: str
    ) -> Assignment:
        """Keep the better of the best so far and a new assignment; with the newest bound."""
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
    """Whether exponent 0 everywhere violates nothing that could be avoided."""
    for pins in (problem.value_pin, problem.use_pin):
        if not np.all((pins == FREE) | (pins == 0)):
            return False
    low, high = problem.intervals()
    return bool(np.all((low <= 0) & (high >= 0)))


def evaluate(
    problem: AssignmentProblem, values: Int[np.ndarray, " n"], uses: Int[np.ndarray, " m"]
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
