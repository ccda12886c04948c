"""The assignment as an integer program, solved to proven optimality by SciPy's HiGHS.

A conversion is a fixed charge: it costs the same however far it goes, so that the usual model has a
binary variable per conversion, with a big-M that links it to the difference of two exponents. The
constants here come from the intervals of both sides, so that they are as small as they can be. A
value that is read at several other exponents pays once for each *different* one: of the uses that
agree, the first represents the others.

    >>> solution = solve(problem, time_limit=1.0)
    >>> solution.values, solution.bound

Sharp edges: the number of binaries grows with the square of the number of uses of one value, so
that values with more than `SHARED` uses pay per use beyond their nearest neighbours; the bound is
given up (`-inf`) then. Values at exponents that are unknown have wide intervals, and so weak bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ._cells import solvable
from ._presolve import ANY, Problem, System

SHARED = 12  # uses of one value that may share conversions in every combination
REACH = 3  # exponents of values of unknown size go to this multiple of the largest bound


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


def solve(problem: Problem, *, time_limit: float) -> Solution | None:
    """The cheapest assignment and the proven bound; None if none was found in time."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    system = System(problem)
    model, exact = _model(system, problem.weight())
    scale = max([1.0, *model.price]) / 1e3  # HiGHS's tolerances are absolute
    r, x, c = zip(*model.entries, strict=True) if model.entries else ((), (), ())
    matrix = csr_array((c, (r, x)), shape=(len(model.row_low), len(model.low)))
    result = milp(
        np.array(model.price) / scale,
        integrality=np.ones(len(model.low)),
        bounds=Bounds(np.array(model.low), np.array(model.high)),
        constraints=LinearConstraint(matrix, np.array(model.row_low), np.array(model.row_high)),
        options={"time_limit": time_limit, "mip_rel_gap": 0.0},
    )
    if result.x is None:
        return None
    found = np.rint(result.x[: system.size]).astype(np.int64)
    bound = float(result.mip_dual_bound) * scale if exact else -np.inf
    return Solution(found[: system.n], found[system.n :], bound)


def _model(system: System, weight: float) -> tuple[_Model, bool]:
    model = _Model()
    reach = _reach(system)
    loose: set[int] = set()
    for rows, variables in system.cells():
        if not solvable(system, rows, variables):
            loose.update(x for x in variables if not system.pinned[x])
    for x in range(system.size):
        wide = reach if x in loose else 0
        low, high = max(system.low[x], -reach) - wide, min(system.high[x], reach) + wide
        model.column(min(low, system.high[x]), max(high, system.low[x]))
    for row in system.rows:
        model.row([(float(c), x) for c, x in row], 0.0, 0.0)
    for x in sorted(loose):
        over = model.column(0.0, np.inf, weight)
        model.row([(1, x), (-1, over)], -np.inf, system.high[x])
        model.row([(1, x), (1, over)], system.low[x], np.inf)
    exact = True
    for v in range(system.n):
        if system.cost[v] > 0 and system.uses_of[v]:
            exact &= _conversions(model, v, system.uses_of[v], system.cost[v])
    return model, exact


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


def _reach(system: System) -> int:
    """How far exponents can usefully go: some times the largest that any interval asks for."""
    return REACH * max([8, *(abs(e) for e in (*system.low, *system.high) if abs(e) < ANY)])
