"""The range of a dtype, in one place.

Quantities need whole bits, which `range_of` returns in a few nanoseconds. Plans need logarithms of
normal numbers (`normal_range`). Scaled runs need the exact numbers that survive rounding
(`limits`). A complex dtype has the range of its parts.

    >>> range_of(jnp.dtype(jnp.float32)).lowest, range_of(jnp.dtype(jnp.float32)).highest
    (-126, 128)

Sharp edge. XLA flushes subnormal numbers of float32 to zero on CPUs, so they count as lost. For
dtypes of a smaller range it computes in float32 and keeps subnormal numbers.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax.numpy as jnp


class Range(NamedTuple):
    """The range `2^lowest <= |x| < 2^highest` of normal numbers of a dtype, and its precision.

    `inner`: the product of two numbers between `2^-inner` and `2^inner` is normal. `smallest`: sums
    are exact down to here; subnormal numbers of float16 are computed in float32.
    """

    lowest: int
    highest: int
    digits: int
    inner: int
    smallest: int

    def holds(self, low: float, high: float, *_: float) -> bool:
        """True if all numbers with these bits are normal."""
        return self.lowest <= low and high <= self.highest

    def centre(self, low: float, high: float, *_: float) -> int | None:
        """Return the exponent that moves numbers near one; `None` if they lie too far apart.

        Zeros have any exponent. The range has more room above one than below.
        """
        if high - low > self.highest - self.lowest:
            return None
        if low > high:
            return 0
        middle = math.floor((low + high) / 2)
        return max(min(middle, int(low) - self.lowest), int(high) - self.highest)


_RANGES: dict[Any, Range | None] = {}


def range_of(dtype: Any) -> Range | None:
    """Return the range of a floating dtype, else `None`: 0.05 us."""
    try:
        return _RANGES[dtype]
    except KeyError:
        pass
    found = None
    if jnp.issubdtype(dtype, jnp.inexact):
        info = jnp.finfo(dtype)
        highest = int(math.frexp(float(info.max))[1])
        lowest = int(math.frexp(float(info.smallest_normal))[1]) - 1
        digits = info.nmant + 1
        smallest = lowest - digits + 1 if info.bits == 16 and digits == 11 else lowest
        found = Range(lowest, highest, digits, highest // 2 - 1, smallest)
    _RANGES[dtype] = found
    return found


@functools.cache
def normal_range(dtype: Any) -> tuple[float, float]:
    """Return log2 of the smallest normal and of the largest number of a floating dtype."""
    room = limits(dtype)
    top = math.log2(room.largest)  # of float64 it rounds up to 1024
    return math.log2(room.normal), min(top, math.nextafter(1024.0, 0.0))


class Limits(NamedTuple):
    """The extreme numbers of a floating dtype, and the numbers that round to them.

    **Fields:** `largest`, `normal`: the largest number and the smallest normal one; `top`,
    `bottom`: numbers less than half a unit beyond these, which round to them; `bits` of mantissa;
    `step`: the least subnormal number, 0 if subnormal numbers are flushed.
    """

    largest: float
    normal: float
    top: float
    bottom: float
    bits: int
    step: float


@functools.cache
def limits(dtype: Any) -> Limits:
    """Return the exact numbers at which the range of a dtype ends."""
    info = jnp.finfo(dtype)
    bits, largest, normal = int(info.nmant), float(info.max), float(info.smallest_normal)
    half = 2.0 ** -(bits + 2) if bits < 52 else 0.0  # nothing here is wider than float64
    step = float(info.smallest_subnormal) if normal > 2.0**-120 else 0.0
    return Limits(largest, normal, largest * (1 + half), normal * (1 - half), bits, step)
