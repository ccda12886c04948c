"""The assignment as an integer program, solved to proven optimality by SciPy's HiGHS.

A conversion is a fixed charge: it costs the same however far it goes, so that the usual model has a
binary variable per conversion, with a big-M that links it to the difference of two exponents. The
constants here come from the intervals of both sides, so that they are as small as they can be. A
value that is read at several other exponents pays once for each *different* one: it has as many
*levels*, and each reading is at the value's own exponent or at one of the levels. Relaxed, such a
program says little about its cost. Known conflicts (sets of values of which one has to be
converted) make it say more.

    solution = solve(system, weight, time_limit=1.0)
    solution.values, solution.bound

Sharp edges: a value has at most `LEVELS` levels. If it has more readings, those at the last level
need not agree, and too little may be charged: the bound stays proven, the exponents are evaluated
anew. Values of unknown size have wide intervals, and so weak bounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ._presolve import Cell, System
from ._quiet import quiet

LEVELS = 4  # exponents to which one value may be converted


class Solution(NamedTuple):
    values: Int[np.ndarray, " n"]
    uses: Int[np.ndarray, " m"]
    bound: float


class Model:
    """Collects integer columns (bounds, price) and sparse rows."""

    def __init__(self) -> None:
        self.low: list[float] = []
        self.high: list[float] = []
        self.price: list[float] = []
        self.entries: list[tuple[int, int, float]] = []
        self.row_low: list[float] = []
        self.row_high: list[float] = []

    def column(self, low: float, high: float, price: float = 0.0) -> int:
        self.low.append(low)
        self.high.append(high)
        self.price.append(price)
        return len(self.low) - 1

    def row(self, terms: Sequence[tuple[float, int]], low: float, high: float) -> None:
        r = len(self.row_low)
        self.entries += [(r, x, c) for c, x in terms]
        self.row_low.append(low)
        self.row_high.append(high)

    def tie(self, a: int, b: int) -> int:
        """A binary column; where it is 1, columns `a` and `b` agree."""
        up, down = self.high[a] - self.low[b], self.high[b] - self.low[a]
        switch = self.column(0, 1)
        self.row([(1, a), (-1, b), (up, switch)], -np.inf, up)
        self.row([(1, b), (-1, a), (down, switch)], -np.inf, down)
        return switch

    def outside(self, x: int, low: float, high: float, price: float) -> None:
        """Charge column `x` for each bit outside of `low..high`."""
        over = self.column(0.0, np.inf, price)
        self.row([(1, x), (-1, over)], -np.inf, high)
        self.row([(1, x), (1, over)], low, np.inf)

    def solve(
        self, time_limit: float, gap: float = 0.0
    ) -> tuple[Int[np.ndarray, " count"] | None, float]:
        """The columns of the best solution found, and the proven bound."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        scale = max([1.0, *self.price]) / 1e3  # HiGHS's tolerances are absolute
        r, x, c = zip(*self.entries, strict=True) if self.entries else ((), (), ())
        matrix = csr_array((c, (r, x)), shape=(len(self.row_low), len(self.low)))
        rows = LinearConstraint(matrix, np.array(self.row_low), np.array(self.row_high))
        with quiet():
            result = milp(
                np.array(self.price) / scale,
                integrality=np.ones(len(self.low)),
                bounds=Bounds(np.array(self.low), np.array(self.high)),
                constraints=rows,
                options={"time_limit": max(time_limit, 1e-3), "mip_rel_gap": gap},
            )
        bound = result.mip_dual_bound
        bound = float(bound) * scale if bound is not None and np.isfinite(bound) else 0.0
        return None if result.x is None else np.rint(result.x).astype(np.int64), bound


def solve(
    system: System,
    weight: float,
    *,
    time_limit: float,
    conflicts: Collection[Collection[int]] = (),
) -> Solution | None:
    """The cheapest assignment and the proven bound; None if none was found in time."""
    model, reach = Model(), system.reach
    for x in range(system.size):
        low, high = system.low[x], system.high[x]
        wide = reach if x in system.given else 0
        model.column(min(max(low, -reach) - wide, high), max(min(high, reach) + wide, low))
    for x, (low, high) in system.given.items():
        model.outside(x, low, high, weight)
    for row in system.rows:
        model.row(row, 0.0, 0.0)
    paid: dict[int, list[int]] = {}
    for v in range(system.n):
        if system.cost[v] > 0 and system.uses_of[v]:
            pins = {system.low[x]: x for x in system.uses_of[v] if system.pinned[x]}
            free = [x for x in system.uses_of[v] if not system.pinned[x]]
            paid[v] = _conversions(model, v, [*pins.values(), *free], system.cost[v])
    for conflict in conflicts:
        model.row([(1.0, pay) for v in conflict for pay in paid[v]], 1.0, np.inf)
    found, bound = model.solve(time_limit)
    if found is None:
        return None
    return Solution(found[: system.n], found[system.n : system.size], bound)


def _conversions(model: Model, v: int, uses: list[int], cost: float) -> list[int]:
    """Charge `v` once for each exponent other than its own; the columns that are charged."""
    count = min(len(uses), LEVELS)
    low, high = min(model.low[x] for x in uses), max(model.high[x] for x in uses)
    levels = [model.column(low, high) for _ in range(count)]
    paid = [model.column(0, 1, cost) for _ in levels]
    for first, second in itertools.pairwise(paid):
        model.row([(1, first), (-1, second)], 0.0, np.inf)
    for k, use in enumerate(uses):
        choices = [model.tie(use, v)]
        for j, level in enumerate(levels[: k + 1]):
            agrees = j < LEVELS - 1 or len(uses) <= LEVELS
            choices.append(model.tie(use, level) if agrees else model.column(0, 1))
            model.row([(1, choices[-1]), (-1, paid[j])], -np.inf, 0.0)
        model.row([(1, x) for x in choices], 1.0, 1.0)
    return paid


def least_violation(
    system: System, cells: list[Cell], *, time_limit: float
) -> tuple[dict[int, int] | None, float]:
    """How few bits out of range some cells can do with, if every operand may be converted.

    **Returns:** exponents of the cells' variables, if any were found, and the proven bound.
    """
    model, reach = Model(), system.reach
    column = {}
    for cell in cells:
        for x in cell.variables:
            wide = 0 if system.pinned[x] else reach
            a, b = max(system.low[x], -reach) - wide, min(system.high[x], reach) + wide
            column[x] = model.column(a, b)
        for row in cell.rows:
            model.row([(c, column[x]) for c, x in row], 0.0, 0.0)
    for x, i in column.items():
        if not system.pinned[x]:
            model.outside(i, system.low[x], system.high[x], 1.0)
    found, bound = model.solve(time_limit)
    if found is None:
        return None, bound
    return {x: int(found[i]) for x, i in column.items()}, bound
