"""What a dtype can hold, said once for everybody who asks.

Quantities ask for whole bits, a few nanoseconds each time (`range_of`); plans for logarithms of
normal numbers (`normal_range`); runs on what is stored for the very numbers that survive rounding
(`limits`). Of a complex dtype all of this is that of its parts.

    >>> range_of(jnp.dtype(jnp.float32)).lowest, range_of(jnp.dtype(jnp.float32)).highest
    (-126, 128)

Sharp edge. XLA flushes the subnormal numbers of float32 to zero on CPUs, so they count as lost;
with dtypes of a smaller range it computes in float32, and keeps theirs.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax.numpy as jnp


class Range(NamedTuple):
    """What a dtype can hold: normal numbers of `2^lowest <= |x| < 2^highest`, and its precision.

    `inner`: the product of two numbers between `2^-inner` and `2^inner` is normal. `smallest`: sums
    are exact down to here; subnormal numbers of float16 are computed in float32.
    """

    lowest: int
    highest: int
    digits: int
    inner: int
    smallest: int

    def holds(self, low: float, high: float, *_: float) -> bool:
        """Whether all numbers with these bits are normal."""
        return self.lowest <= low and high <= self.highest

    def centre(self, low: float, high: float, *_: float) -> int | None:
        """The exponent to take out of numbers so that they lie around one; None: too far apart.

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
    """The range of a floating dtype, else None: 0.05 us."""
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
    """Binary logarithms of the smallest normal and the largest number of a floating dtype."""
    room = limits(dtype)
    top = math.log2(room.largest)  # of float64 it rounds up to 1024
    return math.log2(room.normal), min(top, math.nextafter(1024.0, 0.0))


class Limits(NamedTuple):
    """The numbers of a floating dtype, and those that become such numbers.

    **Fields:** `largest`, `normal`: the largest number and the smallest normal one; `top`,
    `bottom`: less than half a unit beyond, and rounded to them; `bits` of mantissa; `step`: the
    least subnormal number, 0 if such numbers are flushed.
    """

    largest: float
    normal: float
    top: float
    bottom: float
    bits: int
    step: float


@functools.cache
def limits(dtype: Any) -> Limits:
    """The very numbers at which a dtype ends."""
    info = jnp.finfo(dtype)
    bits, largest, normal = int(info.nmant), float(info.max), float(info.smallest_normal)
    half = 2.0 ** -(bits + 2) if bits < 52 else 0.0  # nothing here is wider than float64
    step = float(info.smallest_subnormal) if normal > 2.0**-120 else 0.0
    return Limits(largest, normal, largest * (1 + half), normal * (1 - half), bits, step)
