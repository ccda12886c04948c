"""Exponents for all variables, cell by cell, given where conversions are expected.

The cells (the equations, as a rule) are solved in the order of the program. Each takes its operands
at the exponents that their values have, if that leaves its results within the bounds that what
follows has set; if not, it converts an operand, the cheapest that helps. So every row and every pin
holds at any time, whatever the bounds are like; good bounds save conversions.

    exponents = construct(system, bounds, {})

Sharp edges: a cell whose rows cannot be solved within the intervals gets the exponents that violate
them least of a few tries; if everything fails, exponent 0, at which every row holds (a pin at
another exponent would not, in cells with so odd rows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ._conflicts import SHARED, Bounds
from ._presolve import ANY, Cell, Row, System

Bound = dict[int, int]  # by variable
LEVEL = 64  # new exponents are multiples of it, where they can: sums then meet, roots are even
PASSES = 200  # bounds that still move then are creeping: as good as a contradiction


def construct(system: System, bounds: Bounds, wishes: Bound) -> list[int]:
    """An exponent for each variable; all rows and pins hold.

    **Arguments:** `wishes`: by value, the exponent that all its readings had best share.
    """
    builder = _Builder(system, bounds)
    for v, exponent in wishes.items():
        for x in system.uses_of[v]:
            if bounds.freed[v] == SHARED and not system.pinned[x]:
                bounds.fix({x: exponent}, builder.exponent)
                break
    cells = system.cells
    inside = [False] * system.size
    for _, variables in cells:
        for x in variables:
            inside[x] = True
    for x in range(system.n):
        if not inside[x]:
            builder.set(x, builder.pick(x, bounds.low[x], bounds.high[x]))
    for rows, variables in cells:
        builder.cell(rows, variables)
    for x in range(system.n, system.size):
        if not inside[x]:
            own = builder.of(
                system.owner[x]
            )  # which may be out of range: that is not read as it is
            builder.set(x, min(max(own, system.low[x]), system.high[x]))
    return [builder.of(x) for x in range(system.size)]


def unsolvable(system: System) -> list[Cell]:
    """The cells that violate some interval whatever is converted."""
    low, high = system.low, system.high
    away = [a > 0 or b < 0 for a, b in zip(low, high, strict=True)]
    found = []
    for rows, variables in system.cells:
        if any(away[x] for x in variables) and not _clearly_solvable(system, rows, variables):
            given = [system.rows[r] for r in rows]
            bounds = {x: low[x] for x in variables}, {x: high[x] for x in variables}
            if solve(given, *bounds, lambda x, a, b: min(max(0, a), b)) is None:
                found.append((rows, variables))
    return found


def loosen(system: System, cells: list[Cell]) -> tuple[int, list[Cell]]:
    """Let cells violate intervals by as few bits as can be: how many, and cells of other forms.

    Where all variables are equal, their exponent is a median of the ends of all intervals. Where
    the least sum is too large, or the largest too small, somebody has to bear the difference.
    """
    bits, others = 0, []
    for rows, variables in cells:
        given = [system.rows[r] for r in rows]
        free = [x for x in variables if not system.pinned[x]]
        if all_equal(given):
            low, high = common(system, variables)
            e = nearest(low, high)
            bits += sum(max(system.low[x] - e, e - system.high[x], 0) for x in free)
            system.loose.update((x, (low, high)) for x in free)
            system.widened.update(dict.fromkeys(free, e))
        elif (
            len(rows) == 1
            and len(given[0]) == len(variables)
            and free
            and (all(abs(c) == 1 for c, _ in given[0]))
        ):
            bits += _share(system, given[0], free[-1])
        else:
            others.append((rows, variables))
    return bits, others


def _share(system: System, row: Row, bearer: int) -> int:
    """The exponents of a sum that cannot be 0; one variable bears the bits that are too many."""
    low, high = system.low, system.high
    least = sum(low[x] if c > 0 else -high[x] for c, x in row)
    most = sum(high[x] if c > 0 else -low[x] for c, x in row)
    excess = least if least > 0 else most
    for c, x in row:
        end = low[x] if (c > 0) == (excess > 0) else high[x]
        borne = end - c * excess
        system.widened[x] = borne if x == bearer else end
        if not system.pinned[x]:
            system.loose[x] = min(end, borne), max(end, borne)
    return abs(excess)


def all_equal(rows: list[Row]) -> bool:
    """Whether rows say that all their variables have the same exponent."""
    return all(len(row) == 2 and row[0][0] == -row[1][0] for row in rows)


def common(system: System, variables: list[int]) -> tuple[int, int]:
    """The exponents at which all variables are in range; if there are none, as few bits out."""
    low = max(system.low[x] for x in variables)
    high = min(system.high[x] for x in variables)
    pins = [system.low[x] for x in variables if system.pinned[x]]
    if low <= high or pins:
        return (low, high) if low <= high else (pins[0], pins[0])
    ends = sorted(e for x in variables for e in (system.low[x], system.high[x]))
    return ends[len(variables) - 1], ends[len(variables)]


def nearest(low: int, high: int) -> int:
    """The exponent of an interval that is the nearest to 0, a multiple of `LEVEL` if it can be."""
    if low <= 0 <= high:
        return 0
    e = -(-low // LEVEL) * LEVEL if low > 0 else high // LEVEL * LEVEL
    return e if low <= e <= high else low if low > 0 else high


def _clearly_solvable(system: System, rows: list[int], variables: list[int]) -> bool:
    """Whether one look shows a solution: a single sum, or variables that are all equal."""
    if len(rows) == 1:
        row = system.rows[rows[0]]
        least = sum(c * (system.low[x] if c > 0 else system.high[x]) for c, x in row)
        most = sum(c * (system.high[x] if c > 0 else system.low[x]) for c, x in row)
        return least <= 0 <= most and any(
            abs(c) == 1 and system.high[x] - system.low[x] >= 8 for c, x in row
        )
    if all_equal([system.rows[r] for r in rows]):
        return max(system.low[x] for x in variables) <= min(system.high[x] for x in variables)
    return False


class _Builder:
    """The exponents so far, and to what each value has been converted."""

    def __init__(self, system: System, bounds: Bounds) -> None:
        self.system, self.bounds = system, bounds
        self.low, self.high = list(system.low), list(system.high)
        for x, exponent in system.widened.items():
            self.low[x], self.high[x] = min(self.low[x], exponent), max(self.high[x], exponent)
        self.exponent: list[int | None] = [None] * system.size
        self.converted: dict[int, set[int]] = {}
        self.wanted: dict[int, int] = {}  # by readings that were fixed before their value

    def of(self, x: int) -> int:
        e = self.exponent[x]
        return 0 if e is None else e

    def set(self, x: int, exponent: int) -> None:
        s = self.system
        self.exponent[x] = exponent
        if x >= s.n and not s.pinned[x]:
            v = s.owner[x]
            own = self.exponent[v]
            if own is None:
                self.wanted.setdefault(v, exponent)
            elif own != exponent:
                self.converted.setdefault(v, set()).add(exponent)

    def pick(self, x: int, low: int, high: int) -> int:
        """The best exponent of an interval: free of charge, or near 0."""
        v = self.system.owner[x]
        own = self.wanted.get(v) if x == v else self.exponent[v]
        if own is not None and low <= own <= high:
            return own
        for e in self.converted.get(v, ()) if x != v else ():
            if low <= e <= high:
                return e
        near = min(max(0, self.system.low[x]), self.system.high[x])
        return min(max(near, low), high)

    def cell(self, rows: list[int], variables: list[int]) -> None:
        """Solve one cell, with as few of its operands converted as possible."""
        if self._stays_at_zero(variables):
            for x in variables:
                self.exponent[x] = 0
            return
        given = [self.system.rows[r] for r in rows]
        for low, high in self._tries(variables):
            solution = solve(given, low, high, self.pick)
            if solution is not None:
                break
        else:
            solution = dict.fromkeys(variables, 0)
        for x in sorted(variables):  # values before readings
            self.set(x, solution[x])
        self.bounds.fix(solution, self.exponent)

    def _stays_at_zero(self, variables: list[int]) -> bool:
        s, b, exponent = self.system, self.bounds, self.exponent
        for x in variables:
            v = s.owner[x]
            y = b.representative(x)
            if b.low[y] > 0 or b.high[y] < 0 or self.wanted.get(x):
                return False
            if x != v and exponent[v] and not s.pinned[x]:
                return False
        return True

    def _tries(self, variables: list[int]) -> Iterable[tuple[Bound, Bound]]:
        """Ever weaker demands on a cell."""
        s, b = self.system, self.bounds
        low, high = {}, {}
        for x in variables:
            y = b.representative(x)
            low[x], high[x] = max(b.low[y], self.low[x]), min(b.high[y], self.high[x])
        kept = []
        for x in variables:
            own = self.wanted.get(x) if x < s.n else self.exponent[s.owner[x]]
            shared = x >= s.n and b.freed[s.owner[x]] == SHARED
            if own is not None and not s.pinned[x] and not shared:
                kept.append(x)
                low[x] = high[x] = own
        yield low, high
        if len(kept) > 1:
            for x in sorted(kept, key=self._price):
                a, b_ = dict(low), dict(high)
                a[x], b_[x] = self.low[x], self.high[x]
                yield a, b_
        for x in kept:
            low[x], high[x] = self.low[x], self.high[x]
        yield low, high
        yield {x: self.low[x] for x in variables}, {x: self.high[x] for x in variables}
        far = {x: s.low[x] if s.pinned[x] else -ANY for x in variables}
        yield far, {x: s.high[x] if s.pinned[x] else ANY for x in variables}

    def _price(self, x: int) -> tuple[bool, float]:
        v = self.system.owner[x]
        return not self.bounds.freed[v], self.system.cost[v]


def solve(
    rows: list[Row], low: Bound, high: Bound, pick: Callable[[int, int, int], int]
) -> Bound | None:
    """Exponents of one cell within the given bounds, or None. Overwrites the bounds."""
    if any(low[x] > high[x] for x in low) or not _narrow(rows, low, high):
        return None
    most = dict.fromkeys(low, 1)
    for row in rows:
        for c, x in row:
            most[x] = max(most[x], abs(c))
    for x in sorted(low, key=lambda x: (-most[x], x)):
        if low[x] < high[x]:
            low[x] = high[x] = pick(x, low[x], high[x])
            if not _narrow(rows, low, high):
                return None
    return low


def _narrow(rows: list[Row], low: Bound, high: Bound) -> bool:
    """Tighten the bounds by each other until nothing changes; whether they leave anything."""
    for _ in range(PASSES):
        moved = False
        for row in rows:
            least = sum(c * (low[x] if c > 0 else high[x]) for c, x in row)
            most = sum(c * (high[x] if c > 0 else low[x]) for c, x in row)
            if least > 0 or most < 0:
                return False
            for c, x in row:
                if c > 0:
                    new_low, new_high = high[x] - most // c, low[x] + (-least) // c
                else:
                    new_low, new_high = high[x] - (-least) // -c, low[x] + most // -c
                if new_low > low[x] or new_high < high[x]:
                    low[x], high[x] = max(new_low, low[x]), min(new_high, high[x])
                    moved = True
                    if low[x] > high[x]:
                        return False
                    break  # the sums have changed
        if not moved:
            return True
    return False
