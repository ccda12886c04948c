"""Solve one cell by itself: exponents in range, or the fewest bits out of range.

Every operand may be converted. So no other cell can help a cell that needs exponents out of range.
The fewest bits out of range of a program are the sum over its cells. These bits have closed forms
for equalities, sums and powers. `loosen` widens the intervals by them, and the cell can then be
solved like any other.

    bits = loosen(system)
    solve(rows, low, high, pick)   # {0: 20, 1: 0, 2: 20}

Sharp edges: no law of tanjax has cells of another form. In a cell of another form no bit counts as
out of range, and no bound is proven. `solve` tries no second choice: if it returns None, other
choices of `pick` might have led to a solution.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ._presolve import ANY, EQUAL, SUM, Row, System

Bound = dict[int, int]  # By variable.
LEVEL = 64  # New exponents are multiples of it. Promise: sums meet at one exponent, roots are even.
FINER, ONE_STEP = 16, 126  # Promise: one multiplication of float32 converts, if one suffices.
PASSES = 200  # Bounds that still move after these converge too slowly. Promise: planning ends.


def loosen(system: System) -> int:
    """Widen the intervals of cells by as few bits as possible; return the number of bits."""
    low, high, bits = system.low, system.high, 0
    for cell in system.cells:
        if all(low[x] <= 0 <= high[x] for x in cell.variables):
            continue
        row = cell.rows[0]
        if cell.form == EQUAL:
            bits += _meet(system, cell.variables)
        elif cell.form == SUM and all(abs(c) == 1 for c, _ in row):
            bits += _share(system, row)
        elif cell.form == SUM and len(row) == 2:
            bits += _balance(system, row)
        else:
            bounds = {x: low[x] for x in cell.variables}, {x: high[x] for x in cell.variables}
            if solve(cell.rows, *bounds, lambda _, a, b: min(max(0, a), b)) is None:
                for x in cell.variables:
                    if not system.pinned[x]:
                        low[x], high[x] = -ANY, ANY
    return bits


def _meet(system: System, variables: list[int]) -> int:
    """Move equal variables to the median of the ends of their intervals; return the bits."""
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
    """Widen the interval of each variable by the excess of the row's sum; return the excess.

    The excess is the least distance of the sum from 0, in bits. If the row holds, the bits of all
    variables out of their old intervals add up to exactly the excess.
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


def _balance(system: System, row: Row) -> int:
    """Move the two variables of a power so that the fewest bits are out of range; return the bits.

    Both are multiples of one integer, and the bits are a convex function of this integer. So the
    minimum is next to an end of an interval.
    """
    (a, x), (b, y) = row
    factors = (b // math.gcd(a, b), x), (-a // math.gcd(a, b), y)
    low, high, pinned = system.low, system.high, system.pinned
    near = {0}
    for c, z in factors:
        near |= {k for e in (low[z], high[z]) for k in (e // c, -(-e // c))}

    def bits(k: int) -> float:
        off = [(max(low[z] - c * k, c * k - high[z], 0), pinned[z]) for c, z in factors]
        return sum(math.inf if is_pinned and e else e for e, is_pinned in off)

    least = min(map(bits, near))
    best = [k for k in near if bits(k) == least]
    for c, z in factors if least else ():
        if not pinned[z]:
            ends = (c * min(best), c * max(best)) if least < math.inf else (-ANY, ANY)
            low[z], high[z] = min(ends), max(ends)
    return int(least) if least < math.inf else 0


def nearest(low: int, high: int) -> int:
    """Return the exponent of an interval nearest to 0, if possible a multiple of `LEVEL`.

    A multiple of `FINER` is preferred if a conversion then needs one multiplication, not two.
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
    """Return exponents of one cell within the given bounds, or None. Overwrites the bounds."""
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
    """Tighten the bounds by each other until they stay; False if they exclude every exponent."""
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
