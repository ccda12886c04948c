"""One cell by itself: whether its rows can be solved in range, and what it costs if they cannot.

Every operand may be converted, so that a cell that cannot do without exponents out of range cannot
be helped by any other; and the fewest bits out of range of a program are the sum over its cells.
Sums and equalities are most of them, and their fewest bits are had in linear time; the intervals
are widened by just these bits, wherever they may fall, and the cell is then as good as any other.

    bits, others = loosen(system)
    solve(rows, low, high, pick)   # {0: 20, 1: 0, 2: 20}

Sharp edges: cells of other forms are left to the integer program. `solve` tries no second choice:
where it gives None, other choices of `pick` might have led to a solution.
"""

from __future__ import annotations

from collections.abc import Callable

from ._presolve import EQUAL, SUM, Cell, Row, System

Bound = dict[int, int]  # by variable
LEVEL = 64  # new exponents are multiples of it, where they can: sums then meet, roots are even
FINER, ONE_STEP = 16, 126  # the largest power of two by which float32 is multiplied at once
PASSES = 200  # bounds that still move then are creeping: as good as a contradiction


def loosen(system: System) -> tuple[int, list[Cell]]:
    """Widen the intervals of cells by as few bits as can be: how many, and cells of other forms.

    Where all variables are equal, their exponent is a median of the ends of all intervals. Where
    the least sum is too large, or the largest too small, somebody has to bear the difference.
    """
    low, high = system.low, system.high
    bits, others = 0, []
    for cell in system.cells:
        if all(low[x] <= 0 <= high[x] for x in cell.variables):
            continue
        if cell.form == EQUAL:
            bits += _meet(system, cell.variables)
        elif cell.form == SUM and all(abs(c) == 1 for c, _ in cell.rows[0]):
            bits += _share(system, cell.rows[0])
        else:
            bounds = {x: low[x] for x in cell.variables}, {x: high[x] for x in cell.variables}
            if solve(cell.rows, *bounds, lambda _, a, b: min(max(0, a), b)) is None:
                others.append(cell)
    return bits, others


def _meet(system: System, variables: list[int]) -> int:
    """Let equal variables be where the fewest bits are out of range; how many."""
    low = max(system.low[x] for x in variables)
    high = min(system.high[x] for x in variables)
    if low <= high:
        return 0
    free = [x for x in variables if not system.pinned[x]]
    pins = [system.low[x] for x in variables if system.pinned[x]]
    ends = sorted(e for x in variables for e in (system.low[x], system.high[x]))
    low, high = pins[:1] * 2 or ends[len(variables) - 1 : len(variables) + 1]
    bits = sum(max(system.low[x] - low, low - system.high[x], 0) for x in free)
    for x in free:
        system.low[x], system.high[x] = low, high
    return bits


def _share(system: System, row: Row) -> int:
    """Let each variable of a sum bear all of the bits by which it cannot be 0; how many.

    As the row holds, and as all intervals end where they are left, the bits that all bear add up
    to just these.
    """
    low, high = system.low, system.high
    least = sum(low[x] if c > 0 else -high[x] for c, x in row)
    most = sum(high[x] if c > 0 else -low[x] for c, x in row)
    excess = least if least > 0 else min(most, 0)
    for c, x in row if excess else ():
        if not system.pinned[x]:
            end = low[x] if (c > 0) == (excess > 0) else high[x]
            low[x], high[x] = min(end, end - c * excess), max(end, end - c * excess)
    return abs(excess)


def nearest(low: int, high: int) -> int:
    """The exponent of an interval that is the nearest to 0, a multiple of `LEVEL` if it can be.

    Of `FINER`, where that makes one multiplication of a conversion that would take two.
    """
    if low <= 0 <= high:
        return 0
    levels = [-(-low // n) * n if low > 0 else high // n * n for n in (LEVEL, FINER)]
    fitting = [e for e in levels if low <= e <= high]
    short = [e for e in fitting if abs(e) <= ONE_STEP]
    return [*short, *fitting, low if low > 0 else high][0]


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
