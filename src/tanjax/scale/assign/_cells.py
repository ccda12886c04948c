"""One cell by itself: whether its rows can be solved in range, and what it costs if they cannot.

Every operand may be converted, so that a cell that cannot do without exponents out of range cannot
be helped by any other; and the fewest bits out of range of a program are the sum over its cells.
Sums and equalities are most of them, and their fewest bits are had in linear time; the intervals
are widened by just these bits, wherever they may fall, and the cell is then as good as any other.

    bits, others = loosen(system, unsolvable(system))
    solve(rows, low, high, pick)   # {0: 20, 1: 0, 2: 20}

Sharp edges: cells of other forms are left to the integer program. `solve` tries no second choice:
where it gives None, other choices of `pick` might have led to a solution.
"""

from __future__ import annotations

from collections.abc import Callable

from ._presolve import Cell, Row, System

Bound = dict[int, int]  # by variable
LEVEL = 64  # new exponents are multiples of it, where they can: sums then meet, roots are even
PASSES = 200  # bounds that still move then are creeping: as good as a contradiction


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
    """Widen the intervals of cells by as few bits as can be: how many, and cells of other forms.

    Where all variables are equal, their exponent is a median of the ends of all intervals. Where
    the least sum is too large, or the largest too small, somebody has to bear the difference.
    """
    bits, others = 0, []
    for rows, variables in cells:
        given = [system.rows[r] for r in rows]
        free = [x for x in variables if not system.pinned[x]]
        if all_equal(given):
            low, high = common(system, variables)
            bits += sum(max(system.low[x] - low, low - system.high[x], 0) for x in free)
            for x in free:
                system.low[x], system.high[x] = low, high
        elif len(given) == 1 and len(given[0]) == len(variables) and free and _is_unit(given[0]):
            bits += _share(system, given[0])
        else:
            others.append((rows, variables))
    return bits, others


def _is_unit(row: Row) -> bool:
    return all(abs(c) == 1 for c, _ in row)


def _share(system: System, row: Row) -> int:
    """Let each variable of a sum bear all of the bits by which it cannot be 0; how many.

    As the row holds, and as all intervals end where they are left, the bits that all bear add up
    to just these.
    """
    low, high = system.low, system.high
    least = sum(low[x] if c > 0 else -high[x] for c, x in row)
    most = sum(high[x] if c > 0 else -low[x] for c, x in row)
    excess = least if least > 0 else most
    for c, x in row:
        if not system.pinned[x]:
            end = low[x] if (c > 0) == (excess > 0) else high[x]
            low[x], high[x] = min(end, end - c * excess), max(end, end - c * excess)
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
