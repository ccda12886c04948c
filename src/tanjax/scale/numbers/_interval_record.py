"""A record: the known facts about the numbers of an array that is not computed.

One pair of bounds on the absolute value is not enough: `1 + x²` is at least 1, and `exp(-x²)` at
most 1, because of the signs. So a record bounds positive and negative entries separately, in log2,
and states whether zeros may occur. All bounds stay ordinary floats for numbers of any size.

    >>> x = span(-3.0, 4.0)
    >>> add(ONE, multiply_by_itself(x)).plus_low
    0.0

`grid`: every entry is a multiple of 2^grid. The difference of two numbers with p-bit mantissas is
zero or at least a unit in the last place of the smaller one. So cancellation has a bound too, and
a chain of sums does not lower it again.

Sharp edge: bounds hold for exact arithmetic; rounding may put an entry a few units in the last
place outside.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import NamedTuple

from ..graph._graph import Node

INFINITY = math.inf


class Record(NamedTuple):
    """Bounds on the entries of an array, in log2 of the absolute value.

    **Fields:** `plus_low`, `plus_high`: of the positive entries, `minus_low`, `minus_high`: of the
    negative ones (low > high: there are none); `zero`: there may be zeros; `grid`: entries are
    multiples of 2^grid; `cancelled`: the lower bound is that of a cancellation, which rarely
    comes near it.
    """

    plus_low: float = INFINITY
    plus_high: float = -INFINITY
    minus_low: float = INFINITY
    minus_high: float = -INFINITY
    zero: bool = False
    grid: float = -INFINITY
    cancelled: bool = False

    @property
    def low(self) -> float:
        return min(self.plus_low, self.minus_low)

    @property
    def high(self) -> float:
        return max(self.plus_high, self.minus_high)

    @property
    def has_plus(self) -> bool:
        return self.plus_high > -INFINITY

    @property
    def has_minus(self) -> bool:
        return self.minus_high > -INFINITY

    @property
    def is_positive(self) -> bool:
        return not self.zero and not self.has_minus

    @property
    def is_firm(self) -> bool:
        """True if all numbers at least this large have a lower bound without cancellation."""
        return self.is_positive and self.has_plus and not self.cancelled

    @property
    def is_empty(self) -> bool:
        """True if no entry is finite."""
        return not (self.zero or self.has_plus or self.has_minus)


Records = list[Record | None]

NOTHING = Record(zero=True, grid=INFINITY)
ONE = Record(0.0, 0.0, grid=0.0)
INDICATOR = Record(0.0, 0.0, zero=True, grid=0.0)

# Bits of the mantissa.
MANTISSA = {
    "float16": 11, "bfloat16": 8, "float32": 24, "float64": 53, "complex64": 24, "complex128": 53,
}  # fmt: skip


def span(low: float, high: float, *, zero: bool = True) -> Record:
    """Entries of either sign with `2^low <= |x| <= 2^high`; `zero`: there may be zeros."""
    return Record(low, high, low, high, zero)


def positive(low: float, high: float, *, zero: bool = False, cancelled: bool = False) -> Record:
    return Record(low, high, zero=zero, cancelled=cancelled)


def log_add(a: float, b: float) -> float:
    """Return `log2(2^a + 2^b)`, for exponents of any size."""
    if a < b:
        a, b = b, a
    if b == -INFINITY or a == INFINITY:
        return a
    return a + math.log2(1.0 + 2.0 ** (b - a))


def log_subtract(a: float, b: float) -> float:
    """Return `log2(2^a - 2^b)`, `a > b`; -inf if rounding decides (they agree to six digits)."""
    rest = 1.0 - 2.0 ** (b - a)
    return a + math.log2(rest) if rest > 1e-6 else -INFINITY


def power_of_two(exponent: float) -> float:
    """Return `2^exponent`, or inf if it overflows."""
    return 2.0**exponent if exponent < 1024 else INFINITY


def ends(r: Record) -> tuple[float, float]:
    """Return the least and the largest number of a record, with signs."""
    if r.has_minus:
        least = -power_of_two(r.minus_high)
    else:
        least = 0.0 if r.zero else power_of_two(r.plus_low)
    if r.has_plus:
        largest = power_of_two(r.plus_high)
    else:
        largest = 0.0 if r.zero else -power_of_two(r.minus_low)
    return least, largest


def interval(least: float, largest: float, nearest: float) -> Record:
    """Return the record of the numbers between two ends, at least `2^nearest` away from zero."""
    plus = minus = (INFINITY, -INFINITY)
    through_zero = least <= 0.0 <= largest
    if largest > 0.0:
        plus = math.log2(least) if least > 0.0 else nearest, log2(largest)
    if least < 0.0:
        minus = math.log2(-largest) if largest < 0.0 else nearest, log2(-least)
    return Record(*plus, *minus, through_zero, cancelled=through_zero)


def clipped(r: Record, cap: float) -> Record:
    """Return the record of entries that are cut to at most `2^cap`."""
    plus = (min(r.plus_low, cap), min(r.plus_high, cap)) if r.has_plus else r[:2]
    minus = (min(r.minus_low, cap), min(r.minus_high, cap)) if r.has_minus else r[2:4]
    return Record(*plus, *minus, r.zero, r.grid, r.cancelled)


def raised(r: Record, floor: float) -> Record:
    """Return the record of entries that are raised to at least `2^floor`."""
    plus = (max(r.plus_low, floor), max(r.plus_high, floor)) if r.has_plus else r[:2]
    minus = (max(r.minus_low, floor), max(r.minus_high, floor)) if r.has_minus else r[2:4]
    return Record(*plus, *minus, False, r.grid, r.cancelled)


def log2(x: float) -> float:
    return math.log2(x) if x > 0.0 else -INFINITY


def negate(r: Record) -> Record:
    return Record(r.minus_low, r.minus_high, r.plus_low, r.plus_high, *r[4:])


def shift(r: Record, bits: float) -> Record:
    """Return the record of `x · 2^bits`."""
    return Record(
        r.plus_low + bits,
        r.plus_high + bits,
        r.minus_low + bits,
        r.minus_high + bits,
        r.zero,
        r.grid + bits,
        r.cancelled,
    )


def scale_logs(r: Record, n: float) -> Record:
    """Return the record of a power with a positive exponent that keeps the sign."""
    return Record(
        n * r.plus_low,
        n * r.plus_high,
        n * r.minus_low,
        n * r.minus_high,
        r.zero,
        cancelled=r.cancelled,
    )


def union(a: Record, b: Record) -> Record:
    """Return the record of the entries of both arrays."""
    return Record(
        min(a.plus_low, b.plus_low),
        max(a.plus_high, b.plus_high),
        min(a.minus_low, b.minus_low),
        max(a.minus_high, b.minus_high),
        a.zero or b.zero,
        min(a.grid, b.grid),
        a.cancelled or b.cancelled,
    )


# Ranges that touch up to rounding overlap.
_TOUCH = 1e-9


def _positive_part(a: Record, b: Record, grid: float) -> tuple[float, float, bool]:
    """Return bounds on a sum's positive entries, and whether the lower is a cancellation's."""
    low, high, cancelled = INFINITY, -INFINITY, False
    if a.plus_high > high and b.plus_high > high:
        low, high = log_add(a.plus_low, b.plus_low), log_add(a.plus_high, b.plus_high)
    for x, y in ((a, b), (b, a)):
        if x.plus_high == -INFINITY:
            continue
        if y.zero:
            low, high = min(low, x.plus_low), max(high, x.plus_high)
        if y.minus_high > -INFINITY and x.plus_high > y.minus_low - _TOUCH:
            high = max(high, x.plus_high)
            rest = x.plus_low > y.minus_high and log_subtract(x.plus_low, y.minus_high)
            apart = max(rest or -INFINITY, grid)
            if apart <= low:
                low = apart
                cancelled = not rest or rest < x.plus_low - 1.0
    return low, high, cancelled


def _meet(a: Record, b: Record) -> bool:
    """True if a positive entry may be the opposite of an entry of the other record."""
    high = min(a.plus_high, b.minus_high)
    return high > -INFINITY and max(a.plus_low, b.minus_low) <= high + _TOUCH


def add(a: Record, b: Record) -> Record:
    """Return the record of `x + y`."""
    grid = min(a.grid, b.grid)
    if not (a.has_minus or b.has_minus):  # nonnegative: no cancellation
        low = log_add(a.plus_low, b.plus_low) if a.has_plus and b.has_plus else INFINITY
        low = min(low, a.plus_low if b.zero else low, b.plus_low if a.zero else low)
        high = log_add(a.plus_high, b.plus_high)
        zero = a.zero and b.zero
        soft = (a.cancelled and not b.is_firm) or (b.cancelled and not a.is_firm)
        return Record(low, high, zero=zero, grid=grid, cancelled=soft)
    plus_low, plus_high, plus_soft = _positive_part(a, b, grid)
    minus_low, minus_high, minus_soft = _positive_part(negate(a), negate(b), grid)
    zero = (a.zero and b.zero) or _meet(a, b) or _meet(b, a)
    soft = plus_soft or minus_soft or a.cancelled or b.cancelled
    return Record(plus_low, plus_high, minus_low, minus_high, zero, grid, soft)


def multiply(a: Record, b: Record) -> Record:
    """Return the record of `x · y`."""
    # Unpacked, the most frequent rule takes half the time.
    a_low, a_high, a_minus_low, a_minus_high, a_zero, a_grid, a_soft = a
    b_low, b_high, b_minus_low, b_minus_high, b_zero, b_grid, b_soft = b
    none = -INFINITY
    plus_low = minus_low = INFINITY
    plus_high = minus_high = none
    if a_high > none:
        if b_high > none:
            plus_low, plus_high = a_low + b_low, a_high + b_high
        if b_minus_high > none:
            minus_low, minus_high = a_low + b_minus_low, a_high + b_minus_high
    if a_minus_high > none:
        if b_minus_high > none:
            plus_low = min(plus_low, a_minus_low + b_minus_low)
            plus_high = max(plus_high, a_minus_high + b_minus_high)
        if b_high > none:
            minus_low = min(minus_low, a_minus_low + b_low)
            minus_high = max(minus_high, a_minus_high + b_high)
    grid = a_grid + b_grid if a_grid != INFINITY != b_grid else INFINITY
    zero, soft = a_zero or b_zero, a_soft or b_soft
    return Record(plus_low, plus_high, minus_low, minus_high, zero, grid, soft)


def multiply_by_itself(a: Record) -> Record:
    """Return the record of `x · x`: no entry is negative."""
    return Record(2 * a.low, 2 * a.high, INFINITY, -INFINITY, a.zero, 2 * a.grid, a.cancelled)


def reciprocal(a: Record) -> Record:
    """Return the record of `1 / x`, without the infinities of `1 / 0`."""
    return Record(
        -a.plus_high, -a.plus_low, -a.minus_high, -a.minus_low, False, -INFINITY, a.cancelled
    )


# A sum of k terms with mixed signs grows by this share of log2(k): by the square root of k, as in
# a random walk. 1 would be the worst case.
MIXED_SIGNS = 0.5


class _Mode(threading.local):
    """The choice between bounds that must hold and bounds that are expected."""

    proves = False


_mode = _Mode()


@contextlib.contextmanager
def worst_case() -> Iterator[None]:
    """Compute bounds that hold for any numbers: for proofs, not for estimates."""
    _mode.proves = True
    try:
        yield
    finally:
        _mode.proves = False


def is_worst_case() -> bool:
    return _mode.proves


def growth(r: Record, count: float) -> float:
    """Return by how many bits a sum of `count` entries exceeds the largest."""
    bits = math.log2(max(count, 1))
    mixed = r.has_plus and r.has_minus and not _mode.proves
    return bits * MIXED_SIGNS if mixed else bits


def sum_of(r: Record, count: float) -> Record:
    """Return the record of a sum of `count` entries.

    With one sign the sum of k terms is at most k times the largest. With mixed signs terms cancel:
    the record expects √k times the largest, though a sum may reach k times.
    """
    if count <= 1:
        return r if count == 1 else NOTHING
    bits = growth(r, count)
    if not (r.has_plus and r.has_minus):
        more = 0.0 if r.zero else bits
        high, low = (r.plus_high, r.plus_low) if r.has_plus else (r.minus_high, r.minus_low)
        whole = Record(low + more, high + bits, zero=r.zero, grid=r.grid, cancelled=r.cancelled)
        return whole if r.has_plus else negate(whole)
    return Record(r.grid, r.plus_high + bits, r.grid, r.minus_high + bits, True, r.grid, True)


def precision(node: Node) -> int:
    """Return the bits of the mantissa of a node's results."""
    return MANTISSA.get(str(node.outputs[0].aval.dtype), 53)
