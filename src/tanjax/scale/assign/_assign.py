"""Exponents for every value and every reading of it, with as few conversions as can be.

Each equation constrains the exponents of its operands and results by rows (`a + b - out = 0` for a
product), each stored number has an interval of exponents at which it stays in range, and whatever
enters or leaves the program has exponent 0. Where a value is read at another exponent than it has,
it is converted, which costs its size; two readings at the same exponent share one conversion.
Constants are converted at planning time, for nothing. The choice is an integer program.

1. All zero is right for most programs: checked first, in microseconds.
2. Cells that nothing holds together violate as few bits as they can (`_cells.loosen`).
3. Bounds are propagated from the values that cannot stay at 0. Where they contradict each other,
   one of the conversions on the way has to happen: such *conflicts* give a lower bound, and where
   to convert, at once or by a small covering problem for HiGHS (`_conflicts`, `_cover`).
4. The exponents follow, equation by equation (`_cells`). If the cost is that of the bound, they are
   proven best; if not, HiGHS solves the integer program: the whole of small problems, of large ones
   the surroundings of conversions, first of those for which no conflict asks
   (`_integer_program`).
5. Programs that wander out of range at random have more conflicts than there is time for. After
   `EFFORT` a local search takes over, in linear time (`_moves`); if what it finds is proven good to
   `GOOD`, that is the answer.

    assign(problem).values  # array([0, 0, 20])

Sharp edges: a range violation is worse than all conversions together, but the program stays
solvable; among equally good answers exponents near 0 are preferred, not guaranteed. `gap` is
relative to `cost` and proven: `bound` is never above the best possible cost. Where violations
cannot be avoided, they are nearly all of `cost`, and `gap` says little about conversions: `excess`
does, and may be large for such programs.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ._cells import construct, loosen, unsolvable
from ._conflicts import STEPS, Bounds
from ._cover import exact, greedy, packing
from ._integer_program import improve, least_violation, solve
from ._moves import descend
from ._presolve import ANY as ANY, FREE as FREE, Cell, Problem as Problem, System

TINY = 1e-30
GAP = 1e-9  # below this an assignment counts as proven best
ENDS = 500  # rows at which conflicts are looked for first; some tens of steps of a simulation
FEW_ROWS = 800  # up to which time does not matter
EFFORT = 2e-5  # seconds per row for bounds, and for the search
GRACE = 8e-5  # seconds per row without which exponents would be chosen blindly
GOOD = 0.01  # a proven gap that is good enough after that
FEW = 50  # conflicts whose cheapest cover takes HiGHS some milliseconds
ROUNDS = 12  # of covers; the first few find nearly all conflicts
WINDOW = 30  # cells that are solved exactly together
OFTEN = 8  # readings beyond which a value no longer belongs to one place
SMALL = 400  # variables up to which the whole program goes to HiGHS


class Assignment(NamedTuple):
    """Exponents of values and uses, what they cost, and how good that is known to be.

    **Fields:** `cost`: the objective; `bound`: proven lower bound; `gap`: `(cost - bound) / cost`;
    `excess`: the same of what conversions cost, without the violations that nothing can avoid, next
    to which conversions hardly count; `conversions`, `violations`: how many; `method`: what the
    result comes from (`"identity"`, `"presolve"`, `"integer program"`, `"rounding"`, `"search"`,
    `"propagation"`: the time was up before the gap was small); `seconds`.
    """

    values: Int[np.ndarray, " n"]
    uses: Int[np.ndarray, " m"]
    cost: float
    bound: float
    gap: float
    excess: float
    conversions: int
    violations: int
    method: str
    seconds: float


def assign(problem: Problem, *, time_limit: float = 1.0) -> Assignment:
    """The cheapest exponents that could be found in `time_limit` seconds.

    The time is that of this thread's computing, so that a plan does not depend on what else the
    machine does.
    """
    start = time.perf_counter()
    if _identity_does(problem):
        zeros = np.zeros(len(problem.low), np.int64), np.zeros(len(problem.use_value), np.int64)
        lost = problem.unavoidable()
        count = int(np.count_nonzero(problem.use_pin != FREE)) if lost else 0
        return Assignment(
            *zeros, lost, lost, 0.0, 0.0, 0, count, "identity", time.perf_counter() - start
        )
    collecting = gc.isenabled()
    gc.disable()  # many small lists, no cycles: collections would take a third of the time
    try:
        return _Search(problem, start, time.thread_time() + time_limit).run()
    finally:
        if collecting:
            gc.enable()


class _Search:
    """The best assignment and the best bound so far.

    **Fields:** `lost`: the part of the objective that range violations cost at least; `bound`: the
    proven lower bound of the rest, the conversions.
    """

    def __init__(self, problem: Problem, start: float, deadline: float) -> None:
        self.problem, self.start, self.deadline = problem, start, deadline
        self.system = System(problem)
        self.lost, self.bound = problem.unavoidable(), 0.0
        self.best: Assignment | None = None
        self.cover: set[int] = set()

    def run(self) -> Assignment:
        system = self.system
        self._violate()
        bounds = Bounds(system, self._until(0.5))
        if system.size <= SMALL:
            self._covered(bounds)
            best = self._construct(bounds, "presolve")
            best = self._descend() if best.excess > GAP else best
            return self._whole(best) if best.excess > GAP and self.left > 0 else best
        if len(system.rows) > FEW_ROWS:
            bounds.deadline = min(bounds.deadline, time.thread_time() + EFFORT * len(system.rows))
        covered = self._covered(bounds)
        if bounds.exhausted and len(system.rows) > FEW_ROWS:
            best = self._descend()
            if best.gap <= GOOD:
                return best
            if self.left <= 0:
                return self._construct(bounds, "propagation")._replace(method="propagation")
            bounds.resume(self._until(0.5))
            covered = self._covered(bounds)
        if not covered and self.left > 0:
            self._cover_exactly(bounds)
        best = self._construct(bounds, "presolve" if covered else "rounding")
        if best.method == "propagation":
            best = self._descend()
        last = (self._descend,) if len(system.rows) > FEW_ROWS else ()
        for better in (self._agree, self._polish, *last):
            if best.excess > GAP and self.left > 0:
                best = better(best)
        return best

    def _violate(self) -> None:
        """Let variables violate their intervals where some have to, by as little as they can."""
        system = self.system
        hopeless = unsolvable(system)
        bits, others = loosen(system, hopeless) if len(system.rows) > FEW_ROWS else (0, hopeless)
        if others:
            given = [x for _, xs in others for x in xs]
            system.loose.update((x, (-ANY, ANY)) for x in given if not system.pinned[x])
            found, proven = least_violation(system, others, time_limit=self.left / 2)
            system.widened.update(found or {})
            bits += math.ceil(proven - 1e-6)
        self.lost += self.problem.weight() * bits

    def _descend(self, best: Assignment | None = None) -> Assignment:
        """The cheapest exponents that a short local search finds."""
        until = min(self.deadline, time.thread_time() + EFFORT * len(self.system.rows))
        start = best and [*best.values.tolist(), *best.uses.tolist()]
        found = np.array(descend(self.system, until=until, start=start), dtype=np.int64)
        n = self.system.n
        return self._offer(found[:n], found[n:], best.method if best else "search")

    @property
    def left(self) -> float:
        return self.deadline - time.thread_time()

    def _until(self, part: float) -> float:
        """The time at which a part of the rest of the time is over."""
        return time.thread_time() + part * self.left

    def _covered(self, bounds: Bounds) -> bool:
        """Cover the conflicts until there are no new ones; whether at the least possible cost.

        First those at both ends of the program: what has to be converted in each of many equal
        steps, unless it is before the first and after the last, is found there in little time.
        """
        for ends in (ENDS, math.inf):
            for _ in range(ROUNDS):
                new = bounds.settle(ends)
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

    def _cover_exactly(self, bounds: Bounds) -> None:
        """The same with the cheapest cover, whose cost is a better bound."""
        bounds.deadline = self._until(0.6)
        while (left := bounds.deadline - time.thread_time()) > 0:
            values, bound = exact(bounds.conflicts, self.system.cost, time_limit=left)
            self.bound = max(self.bound, bound)
            if values is None:
                return
            self.cover = values
            bounds.choose(values)
            if not bounds.settle() or bounds.exhausted:
                return

    def _whole(self, best: Assignment) -> Assignment:
        """Solve the whole integer program."""
        solution = solve(self.system, self.problem.weight(), time_limit=self.left)
        if solution is None:
            return best
        self.bound = max(self.bound, solution.bound + self.problem.unavoidable() - self.lost)
        return self._offer(solution.values, solution.uses, "integer program")

    def _polish(self, best: Assignment) -> Assignment:
        """Solve exactly around conversions, one by one, until they cost no more than the bound."""
        system = self.system
        cells = system.cells
        cell_of = {x: c for c, (_, variables) in enumerate(cells) for x in variables}
        at = [*best.values.tolist(), *best.uses.tolist()]
        weight, n = self.problem.weight(), system.n
        alone = [x for x in range(n, system.size) if x not in cell_of and not system.pinned[x]]
        for x in self._converted(at):
            if self.left <= 0 or best.excess <= GAP:
                break
            if x in cell_of:
                near = [cells[c] for c in _around(system, cells, cell_of, cell_of[x])]
                found = improve(system, weight, near, at, time_limit=self.left)
                for y, exponent in (found or {}).items():
                    at[y] = exponent
                for y in alone if found else ():
                    at[y] = min(max(at[system.owner[y]], system.low[y]), system.high[y])
                exponents = np.array(at, dtype=np.int64)
                best = self._offer(exponents[:n], exponents[n:], best.method)
        return best

    def _converted(self, at: list[int]) -> Iterator[int]:
        """The readings that are converted while `at` changes, those of no conflict first."""
        for covered in (False, True):
            for x in range(self.system.n, self.system.size):
                v = self.system.owner[x]
                if at[x] != at[v] and self.system.cost[v] > 0:
                    asked = v in self.cover and at[x] in self._first(at, v)
                    if asked is covered:
                        yield x

    def _first(self, at: list[int], v: int) -> list[int]:
        """The first exponent, if any, to which `v` is converted."""
        return [at[x] for x in self.system.uses_of[v] if at[x] != at[v]][:1]

    def _agree(self, best: Assignment) -> Assignment:
        """Once more, where readings of one value ended at several exponents, with one of them."""
        for choice in (max, min):
            several = self._several(best)
            if not several or self.left <= 0 or best.excess <= GAP:
                break
            bounds = Bounds(self.system, self._until(0.5))
            bounds.choose(self.cover)
            bounds.settle()
            wishes = {v: choice(exponents, key=abs) for v, exponents in several.items()}
            best = self._construct(bounds, "rounding", wishes)
        return best

    def _several(self, best: Assignment) -> dict[int, set[int]]:
        """Often read values that are converted to more than one exponent, and these."""
        values, uses = best.values, best.uses
        owner, found = self.problem.use_value, dict[int, set[int]]()
        moved = (uses != values[owner]) & (self.problem.cost[owner] > 0)
        for v, exponent in zip(owner[moved].tolist(), uses[moved].tolist(), strict=True):
            found.setdefault(v, set()).add(exponent)
        often = {v for v in found if len(self.system.uses_of[v]) > OFTEN}  # others: see `_polish`
        return {v: exponents for v, exponents in found.items() if v in often and len(exponents) > 1}

    def _construct(
        self, bounds: Bounds, method: str, wishes: Mapping[int, int] = MappingProxyType({})
    ) -> Assignment:
        if bounds.exhausted:
            method = "propagation"
        rows = len(self.system.rows)
        grace = time.thread_time() + GRACE * rows
        bounds.deadline, bounds.steps = max(self._until(0.5), grace), STEPS * rows
        bounds.share([v for v, cost in enumerate(self.system.cost) if cost and bounds.freed[v]])
        exponents = np.array(construct(self.system, bounds, dict(wishes)), dtype=np.int64)
        return self._offer(exponents[: self.system.n], exponents[self.system.n :], method)

    def _offer(
        self, values: Int[np.ndarray, " n"], uses: Int[np.ndarray, " m"], method: str
    ) -> Assignment:
        """Keep the better of the best so far and a new assignment; with the newest bound."""
        cost, conversions, violations = evaluate(self.problem, values, uses)
        if self.best is None or cost < self.best.cost:
            self.best = Assignment(
                values, uses, cost, 0.0, 0.0, 0.0, conversions, violations, method, 0.0
            )
        cost = self.best.cost
        bound = float(min(self.lost + self.bound, cost))
        self.best = self.best._replace(
            bound=bound,
            gap=(cost - bound) / max(cost, TINY),
            excess=(cost - bound) / max(cost - self.lost, TINY),
            seconds=time.perf_counter() - self.start,
        )
        return self.best


def _around(system: System, cells: list[Cell], cell_of: dict[int, int], start: int) -> list[int]:
    """The cells nearest to one of them, over values that are read and not too often."""
    found = [start]
    seen = {start}
    for c in found:  # grows while it is walked
        for x in cells[c][1]:
            v = system.owner[x]
            if len(system.uses_of[v]) > OFTEN:
                continue
            for y in (v, *system.uses_of[v]):
                other = cell_of.get(y, start)
                if other not in seen and len(found) < WINDOW:
                    seen.add(other)
                    found.append(other)
    return found


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
