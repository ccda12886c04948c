"""Magnitudes of numbers that this process holds, and whether they are in a window.

A floating-point number without its sign bit, read as an unsigned integer, grows with its
magnitude: two integer reductions find the smallest and the largest, and the window's ends are
integers too. Of an array on another device two numbers travel, not the array.

Sharp edges: zeros, infinities and NaN are looked at only if the window says so: any exponent is
right for them. For a complex number the larger part counts in a window, up to half a bit below the
absolute value. Window ends are rounded outwards by a millionth of a bit.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tanjax._typing import DType

from ..graph._graph import ZERO, Magnitude


class Window(NamedTuple):
    """Binary logarithms of magnitudes for which a plan stays right.

    `finite`: there must be no inf and no nan; `nonzero`: and no zeros. Otherwise they are not
    looked at. `peak`: the largest is at least this, if it is asked for.
    """

    low: float
    high: float
    finite: bool = False
    nonzero: bool = False
    peak: float = -math.inf


ANYWHERE = Window(-math.inf, math.inf)


# Integers of a width, as whose bits numbers are compared.
Unsigned: TypeAlias = np.dtype[np.unsignedinteger]

# By the letter of a dtype the integers of its width (of its parts), so that bits can be compared.
# Dtypes of 8 bits have formats of their own and go the slow way.
UNSIGNED: dict[str, Unsigned] = {
    "e": np.dtype(np.uint16),
    np.dtype(jnp.bfloat16).char: np.dtype(np.uint16),
    "f": np.dtype(np.uint32),
    "d": np.dtype(np.uint64),
    "F": np.dtype(np.uint32),
    "D": np.dtype(np.uint64),
}

# From this size on, four reductions without a temporary array (0.1 ms per 1e6 float32 of one sign,
# 0.2 ms otherwise) are not slower than one doubling and two reductions.
_LARGE = 1 << 16

_SLACK = 1e-6


def inside_on_host(a: np.ndarray, window: Window) -> bool:
    """`inside` of an array of NumPy; about 3 us up to 1000 entries."""
    if a.ndim == 0:
        return _is_number_inside(a.item(), window)
    if a.size == 0:
        return True
    unsigned = UNSIGNED.get(a.dtype.char)
    if unsigned is None:
        if window.finite and not np.isfinite(a.astype(np.float32)).all():
            return False
        if window.nonzero and not np.all(a):
            return False
        return contains(window, magnitude_of(*extremes(a)))
    is_complex = a.dtype.kind == "c"
    bits = (np.ascontiguousarray(a) if is_complex else a).view(unsigned)
    low, high, infinite, _ = ends_of(window, a.dtype)
    if bits.size >= _LARGE and not is_complex:
        largest, least = _doubled_extremes(bits)
        doubled = bits + bits if least == 0 else bits
    else:
        # Doubled, the bits lose their sign. `argmax` with `item` takes 0.3 us, `max` 1 us.
        doubled = bits + bits
        if is_complex:  # the larger part
            doubled = np.maximum(doubled[..., ::2], doubled[..., 1::2])
        largest = doubled.item(doubled.argmax())
        least = doubled.item(doubled.argmin())
    if least == 0:  # one less, zeros turn around
        if window.nonzero:
            return False
        doubled -= unsigned.type(1)
        least = doubled.item(doubled.argmin()) + 1
    if largest >= infinite:
        return not window.finite and contains(window, magnitude_of(*extremes(a)))
    if largest < peak_of(window, a.dtype):
        return False
    return largest == 0 or (low <= least and largest <= high)


def inside_on_device(x: jax.Array, window: Window) -> bool:
    """`inside` of an array of which this process holds all."""
    if window.finite and not bool(jnp.isfinite(x).all()):
        return False
    if window.nonzero and not bool(x.all()):
        return False
    return contains(window, measure_on_device(x))


def measure_on_device(x: jax.Array) -> Magnitude:
    """`measure` of an array of which this process holds all."""
    return magnitude_of(*(float(v) for v in _extremes_on_device(x)))


def is_on_host(x: jax.Array) -> bool:
    """Whether NumPy can read an array without moving it."""
    # Where there is nothing but a CPU, one device is enough: 0.2 us instead of 0.6 us.
    if type(x.sharding) is jax.sharding.SingleDeviceSharding and _has_only_cpus():
        return True
    devices = x.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


@functools.cache
def _has_only_cpus() -> bool:
    return jax.default_backend() == "cpu"


@functools.lru_cache(maxsize=4096)
def ends_of(window: Window, dtype: DType) -> tuple[int, int, int, int]:
    """The window's ends, infinity, and from where on nothing counts, as doubled bits."""
    info = jnp.finfo(dtype)  # of a complex dtype: that of its parts
    unsigned = UNSIGNED[dtype.char]

    def doubled(number: float) -> int:
        return 2 * int(np.full(1, number).astype(info.dtype).view(unsigned)[0])

    top, bottom = float(info.max), float(info.smallest_subnormal)
    low, high = window.low - _SLACK, window.high + _SLACK
    if dtype.kind == "c":
        low -= 0.5
    largest = top if high >= math.log2(top) else 2.0**high if high > -1074 else 0.0
    least = bottom if low <= math.log2(bottom) else 2.0**low if low < 1024 else math.inf
    with np.errstate(over="ignore", under="ignore"):
        infinite = doubled(math.inf)
        ignored = int(np.iinfo(unsigned).max) if window.finite else infinite
        return doubled(least), doubled(largest), infinite, ignored


def peak_of(window: Window, dtype: DType) -> int:
    """The least that the largest number may be, as doubled bits; 0 where nothing is asked."""
    return 0 if window.peak == -math.inf else ends_of(Window(window.peak, math.inf), dtype)[0]


def _doubled_extremes(bits: np.ndarray) -> tuple[int, int]:
    """The largest and the least of the bits of a large array, doubled; no temporary array."""
    signed = bits.view(f"i{bits.itemsize}")
    greatest, smallest = int(signed.max()), int(signed.min())
    if smallest >= 0:
        return 2 * greatest, 2 * smallest
    sign = 1 << (8 * bits.itemsize - 1)
    # Negative numbers, read as unsigned, lie above all others and grow with their magnitude.
    largest, least = int(bits.max()) - sign, smallest + sign
    if greatest >= 0:
        largest, least = max(largest, greatest), min(least, int(bits.min()))
    return 2 * largest, 2 * least


def _is_number_inside(x: complex, window: Window) -> bool:
    size = abs(x)
    if not 0.0 < size < math.inf:
        refuses_zeros = window.nonzero or window.peak > -math.inf
        return not refuses_zeros if size == 0.0 else not window.finite
    return max(window.low, window.peak) - _SLACK <= math.log2(size) <= window.high + _SLACK


def contains(window: Window, m: Magnitude) -> bool:
    if m.high < window.peak - _SLACK:
        return False
    within = window.low - _SLACK <= m.low and m.high <= window.high + _SLACK
    return m.is_zero or within


def magnitude_of(least: float, largest: float) -> Magnitude:
    if not 0.0 < least <= largest:
        return ZERO
    return Magnitude(math.log2(least), math.log2(largest), True)


def extremes(a: np.ndarray) -> tuple[float, float]:
    """The least and the largest absolute value of the finite nonzero entries; (0, 0) if none."""
    if a.dtype.kind == "c":
        with np.errstate(all="ignore"):
            a = np.abs(a)
    a = a.reshape(-1)
    unsigned = UNSIGNED.get(a.dtype.char)
    if unsigned is None:
        if a.dtype.kind not in "biu" and not jnp.issubdtype(a.dtype, jnp.floating):
            return 0.0, 0.0
        a, unsigned = a.astype(np.float64), UNSIGNED["d"]
    doubled = a.view(unsigned) + a.view(unsigned)
    infinite = ends_of(ANYWHERE, a.dtype)[2]
    if doubled.size == 0:
        return 0.0, 0.0
    if doubled.max() >= infinite:
        doubled = doubled[doubled < infinite]
    if doubled.size == 0 or doubled.max() == 0:
        return 0.0, 0.0
    # One less, zeros turn around and are the largest.
    least, largest = (doubled - unsigned.type(1)).min() + unsigned.type(1), doubled.max()
    ends = (np.array([least, largest], unsigned) >> unsigned.type(1)).view(a.dtype)
    return float(ends[0]), float(ends[1])


@jax.jit
def _extremes_on_device(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """As `extremes`, where the data is: two numbers travel, not the array."""
    size = abs(x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32))
    counts = (size > 0) & (size < jnp.inf)
    zero, infinity = jnp.zeros((), size.dtype), jnp.asarray(jnp.inf, size.dtype)
    least = jnp.min(jnp.where(counts, size, infinity), initial=jnp.inf)
    largest = jnp.max(jnp.where(counts, size, zero), initial=0)
    return jnp.where(largest > 0, least, zero), largest
