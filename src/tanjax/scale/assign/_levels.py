"""One conversion for all readings of a value: exponents that have to move together.

Cell by cell (`_moves.py`), the three readings of a mass get three exponents, where only 2x >= 143
stands between them and one for all. So a whole program is taken for one cell: readings that are not
converted are the value, those that are have one exponent, and what rows make equal is one variable.
What is left are few rows over few variables, which bounds solve at once. For some tens of equations
that takes a millisecond, and HiGHS some forty, half of what plain JAX takes to compile them.

    share(system, values, uses)  # the exponents of all variables; None if bounds find none

Sharp edges: which readings are converted is not changed; a value has one level, not several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ._cells import nearest, solve
from ._presolve import EQUAL, System

Integers: TypeAlias = np.ndarray | Sequence[int]


def share(system: System, values: Integers, uses: Integers) -> list[int] | None:
    """Exponents with at most one conversion of each value, where others have several.

    **Arguments:** `values`, `uses`: the others, which say what is converted.
    """
    groups = _Groups(system.size)
    for v, readings in enumerate(system.uses_of):
        if not system.cost[v]:  # a constant: each reading has its own
            continue
        converted = [x for x in readings if uses[x - system.n] != values[v]]
        for x in readings:
            if x not in converted:
                groups.join(v, x)
        for x in converted[1:]:
            groups.join(converted[0], x)
    for cell in system.cells:
        if cell.form == EQUAL:
            for x in cell.variables[1:]:
                groups.join(cell.variables[0], x)
    members = list(map(groups.first, range(system.size)))
    low, high = dict[int, int](), dict[int, int]()
    for x, first in enumerate(members):
        low[first] = max(low.get(first, system.low[x]), system.low[x])
        high[first] = min(high.get(first, system.high[x]), system.high[x])
    rows = []
    for cell in system.cells if all(low[x] <= high[x] for x in low) else ():
        for row in cell.rows if cell.form != EQUAL else ():
            merged: dict[int, int] = {}
            for c, x in row:
                merged[members[x]] = merged.get(members[x], 0) + c
            rows.append(tuple((c, x) for x, c in merged.items() if c))
    found = solve(rows, low, high, lambda _, a, b: nearest(a, b))
    return None if found is None else [found[first] for first in members]


class _Groups:
    """Variables that are one: each group by the first of its members that was met."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))

    def first(self, x: int) -> int:
        while self.parent[x] != x:
            x = self.parent[x]
        return x

    def join(self, x: int, y: int) -> None:
        self.parent[self.first(y)] = self.first(x)
