"""The assignment as an integer program, solved to proven optimality by SciPy's HiGHS.

A conversion is a fixed charge: it costs the same however far it goes, so that the usual model has a
binary variable per conversion, with a big-M that links it to the difference of two exponents. The
constants here come from the intervals of both sides, so that they are as small as they can be. A
value that is read at several other exponents pays once for each *different* one: of the uses that
agree, the first represents the others.

    solution = solve(system, weight, time_limit=1.0)
    solution.values, solution.bound

Sharp edges: the number of binaries grows with the square of the number of uses of one value, so
that values with more than `SHARED` uses pay per use beyond their nearest neighbours; the bound is
given up (`-inf`) then. Values of unknown size have wide intervals, and so weak bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ._presolve import Cell, System
from ._quiet import quiet

SHARED = 12  # uses of one value that may share conversions in every combination


class Solution(NamedTuple):
    values: Int[np.ndarray, " n"]
    uses: Int[np.ndarray, " m"]
    bound: float


class _Model:
    """Collects columns (bounds, integrality, price) and sparse rows."""

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

    def row(self, terms: list[tuple[float, int]], low: float, high: float) -> None:
        r = len(self.row_low)
        self.entries += [(r, x, c) for c, x in terms]
        self.row_low.append(low)
        self.row_high.append(high)

    def tie(self, a: int, b: int, switch: int) -> None:
        """Columns `a` and `b` agree where the binary `switch` is 1."""
        up, down = self.high[a] - self.low[b], self.high[b] - self.low[a]
        self.row([(1, a), (-1, b), (up, switch)], -np.inf, up)
        self.row([(1, b), (-1, a), (down, switch)], -np.inf, down)

    def outside(self, x: int, low: float, high: float, price: float) -> None:
        """Charge column `x` for each bit outside of `low..high`."""
        over = self.column(0.0, np.inf, price)
        self.row([(1, x), (-1, over)], -np.inf, high)
        self.row([(1, x), (1, over)], low, np.inf)

    def solve(
        self, time_limit: float, count: int
    ) -> tuple[Int[np.ndarray, " count"] | None, float]:
        """The first `count` columns of the best solution found, and the proven bound."""
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
                options={"time_limit": max(time_limit, 1e-3), "mip_rel_gap": 0.0},
            )
        bound = result.mip_dual_bound
        bound = float(bound) * scale if bound is not None and np.isfinite(bound) else 0.0
        found = None if result.x is None else np.rint(result.x[:count]).astype(np.int64)
        return found, bound


def solve(system: System, weight: float, *, time_limit: float) -> Solution | None:
    """The cheapest assignment and the proven bound; None if none was found in time."""
    model, column, exact = _model(system, weight, system.cells)
    found, bound = model.solve(time_limit, len(model.low))
    if found is None:
        return None
    found = found[[column[x] for x in range(system.size)]]
    return Solution(found[: system.n], found[system.n :], bound if exact else -np.inf)


def least_violation(
    system: System, cells: list[Cell], *, time_limit: float
) -> tuple[dict[int, int] | None, float]:
    """How few bits out of range some cells can do with, if every operand may be converted.

    **Returns:** exponents of the cells' variables, if any were found, and the proven bound.
    """
    model, reach = _Model(), system.reach
    column = {}
    for _, variables in cells:
        for x in variables:
            wide = 0 if system.pinned[x] else reach
            a, b = max(system.low[x], -reach) - wide, min(system.high[x], reach) + wide
            column[x] = model.column(a, b)
    for rows, _ in cells:
        for r in rows:
            model.row([(float(c), column[x]) for c, x in system.rows[r]], 0.0, 0.0)
    for x, i in column.items():
        if not system.pinned[x]:
            model.outside(i, system.low[x], system.high[x], 1.0)
    found, bound = model.solve(time_limit, len(column))
    if found is None:
        return None, bound
    return dict(zip(column, found.tolist(), strict=True)), bound


def improve(
    system: System, weight: float, cells: list[Cell], at: list[int], *, time_limit: float
) -> dict[int, int] | None:
    """Better exponents for some cells, where those of all others stay as they are."""
    model, column, _ = _model(system, weight, cells, at)
    found, _ = model.solve(time_limit, len(model.low))
    inside = [x for _, variables in cells for x in variables]
    return None if found is None else {x: int(found[column[x]]) for x in inside}


def _model(
    system: System, weight: float, cells: list[Cell], at: list[int] | None = None
) -> tuple[_Model, dict[int, int], bool]:
    """The integer program of some cells; `at`: exponents of all variables outside."""
    model, reach = _Model(), system.reach
    inside = range(system.size) if at is None else sorted({x for _, xs in cells for x in xs})
    free, column = set(inside), {}
    for x in inside:
        wide = reach if x in system.loose else 0
        low, high = max(system.low[x], -reach) - wide, min(system.high[x], reach) + wide
        column[x] = model.column(min(low, system.high[x]), max(high, system.low[x]))
        if x in system.loose:
            model.outside(column[x], system.low[x], system.high[x], weight)
    for rows, _ in cells:
        for r in rows:
            model.row([(float(c), column[x]) for c, x in system.rows[r]], 0.0, 0.0)
    exact = True
    for v in sorted({system.owner[x] for x in inside}):
        if system.cost[v] > 0 and system.uses_of[v]:
            uses = system.uses_of[v]
            for x in (v, *uses):
                if at is not None and x not in column:
                    column[x] = model.column(at[x], at[x])
            if v not in free and at is not None:  # one of the readings outside for each exponent
                outside = {at[x]: x for x in uses if x not in free}
                uses = [*outside.values(), *(x for x in uses if x in free)]
            exact &= _conversions(model, column[v], [column[x] for x in uses], system.cost[v])
    return model, column, exact


def _conversions(model: _Model, v: int, uses: list[int], cost: float) -> bool:
    """Charge `v` once for each exponent other than its own; whether that is exact."""
    paid: list[int] = []
    for k, use in enumerate(uses):
        own = model.column(0, 1)
        model.tie(use, v, own)
        choices = [own]
        for other, pay in list(zip(uses[:k], paid, strict=True))[-SHARED:]:
            share = model.column(0, 1)
            model.tie(use, other, share)
            model.row([(1, share), (-1, pay)], -np.inf, 0.0)
            choices.append(share)
        paid.append(model.column(0, 1, cost))
        model.row([(1.0, x) for x in [*choices, paid[-1]]], 1.0, 1.0)
    return len(uses) <= SHARED + 1
