"""The assignment of a small program as an integer program, solved by SciPy's HiGHS.

A conversion is a fixed charge: it costs the same for any difference of exponents. The model has a
binary column per conversion, and a big-M that links the column to the difference of two exponents.
The constants come from the intervals of both sides, so that they are as small as possible. A value
that is read at several other exponents pays once for each *different* exponent. The value has as
many *levels*, and each reading is at the exponent of the value or at one of the levels. The
relaxation is weak. Known conflicts (sets of values; at least one has to be converted) tighten it.

    solution = solve(system, conflicts)
    solution.values, solution.bound

Sharp edges: a value has at most `LEVELS` levels. Readings at the last of them need not agree if the
value has more readings. The model may then charge too little: the bound stays proven, and the
caller evaluates the exponents again. Values of unknown magnitude have wide intervals, and so weak
bounds.
HiGHS prints a line in rare solves; no option turns that line off (HiGHS.jl, issue 312).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ._presolve import System

LEVELS = 4  # exponents to which one value may be converted; benchmark rows: Sciences, first calls
NODES = 50  # of branch and bound; promise: hard formulas are proven best, others take 2 s at most


class Solution(NamedTuple):
    values: Int[np.ndarray, " n"]
    uses: Int[np.ndarray, " m"]
    bound: float


class Model:
    """An integer program as columns (bounds, price) and sparse rows."""

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
        """Return a new binary column; if it is 1, columns `a` and `b` agree."""
        up, down = self.high[a] - self.low[b], self.high[b] - self.low[a]
        switch = self.column(0, 1)
        self.row([(1, a), (-1, b), (up, switch)], -np.inf, up)
        self.row([(1, b), (-1, a), (down, switch)], -np.inf, down)
        return switch

    def solve(self) -> tuple[Int[np.ndarray, " count"] | None, float]:
        """Return the columns of the best solution found, and the proven bound."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        scale = max([1.0, *self.price]) / 1e3  # HiGHS's tolerances are absolute
        r, x, c = zip(*self.entries, strict=True) if self.entries else ((), (), ())
        matrix = csr_array((c, (r, x)), shape=(len(self.row_low), len(self.low)))
        result = milp(
            np.array(self.price) / scale,
            integrality=np.ones(len(self.low)),
            bounds=Bounds(np.array(self.low), np.array(self.high)),
            constraints=LinearConstraint(matrix, np.array(self.row_low), np.array(self.row_high)),
            options={"node_limit": NODES, "mip_rel_gap": 0.0},
        )
        bound = result.mip_dual_bound
        bound = float(bound) * scale if bound is not None and np.isfinite(bound) else 0.0
        return None if result.x is None else np.rint(result.x).astype(np.int64), bound


def solve(system: System, conflicts: Collection[Collection[int]] = ()) -> Solution | None:
    """Return the cheapest assignment and the proven bound; None if HiGHS finds no assignment."""
    model, reach = Model(), system.reach
    for low, high in zip(system.low, system.high, strict=True):
        model.column(min(max(low, -reach), high), max(min(high, reach), low))
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
    found, bound = model.solve()
    if found is None:
        return None
    return Solution(found[: system.n], found[system.n : system.size], bound)


def _conversions(model: Model, v: int, uses: list[int], cost: float) -> list[int]:
    """Charge `v` once for each exponent other than its own; return the charged columns."""
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
