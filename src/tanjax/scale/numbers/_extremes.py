"""Magnitudes of numbers that this process holds, and whether they are in a window.

A floating-point number without its sign bit, read as an unsigned integer, grows with its
magnitude: two integer reductions find the smallest and the largest, and the window's ends are
integers too. For an array on another device, two numbers travel instead of the array.

Sharp edges: zeros, infinities and NaN count only if the window asks for it, because any exponent is
right for them. For a complex number the larger part counts in a window, up to half a bit below the
absolute value. Window ends are rounded outwards by a millionth of a bit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tanjax._typing import DType

from ..graph._graph import ZERO, Magnitude
from ._wide import extent


class Window(NamedTuple):
    """Binary logarithms of magnitudes for which a plan stays right.

    `finite`: there must be no inf and no nan; `nonzero`: there must be no zeros. Otherwise these
    entries are ignored. `peak`: the largest must be at least this.
    """

    low: float
    high: float
    finite: bool = False
    nonzero: bool = False
    peak: float = -math.inf


ANYWHERE = Window(-math.inf, math.inf)


# Integers that have the bits of numbers, to compare them.
Unsigned: TypeAlias = np.dtype[np.unsignedinteger]

# The integers that have the width of a dtype (of its parts), by its letter, to compare bits.
# Dtypes of 8 bits have their own formats and take the slow path.
UNSIGNED: dict[str, Unsigned] = {
    "e": np.dtype(np.uint16),
    np.dtype(jnp.bfloat16).char: np.dtype(np.uint16),
    "f": np.dtype(np.uint32),
    "d": np.dtype(np.uint64),
    "F": np.dtype(np.uint32),
    "D": np.dtype(np.uint64),
}

# Numbers that are measured together: their copies stay in the cache, so that a large array is read
# once, 0.35 ms per 1e6 (benchmark: new arrays, proved).
_CHUNK = 1 << 16

_SLACK = 1e-6


def inside_on_host(a: np.ndarray, window: Window) -> bool:
    """Return `inside` of a NumPy array; about 3 us up to 1000 entries."""
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
        return contains(window, measure_on_host(a))
    low, high, infinite, _ = ends_of(window, a.dtype)
    bits = (np.ascontiguousarray(a) if a.dtype.kind == "c" else a).view(unsigned)
    largest, least, has_zeros = _doubled_extremes(bits, a.dtype)
    if has_zeros and window.nonzero:
        return False
    if largest >= infinite:
        return not window.finite and contains(window, measure_on_host(a))
    if largest < peak_of(window, a.dtype):
        return False
    return largest == 0 or (low <= least and largest <= high)


def _doubled_extremes(bits: np.ndarray, dtype: DType) -> tuple[int, int, bool]:
    """Return the largest and the least nonzero of an array's doubled bits, and if zeros occur.

    Doubled bits have no sign. `argmax` with `item` takes 0.3 us, `max` 1 us.
    """
    if bits.size > _CHUNK:
        flat = bits.reshape(-1)
        parts = [flat[i : i + _CHUNK] for i in range(0, flat.size, _CHUNK)]
        largest, least, zeros = zip(*(_doubled_extremes(p, dtype) for p in parts), strict=True)
        return max(largest), min(least), any(zeros)
    doubled = bits + bits
    if dtype.kind == "c":  # the larger part
        doubled = np.maximum(doubled[..., ::2], doubled[..., 1::2])
    top, bottom = doubled.item(doubled.argmax()), doubled.item(doubled.argmin())
    if bottom:
        return top, bottom, False
    doubled -= doubled.dtype.type(1)  # zeros wrap around
    return top, doubled.item(doubled.argmin()) + 1, True


def is_on_host(x: jax.Array) -> bool:
    """True if NumPy can read an array without moving it."""
    # If the backend is a CPU, one device is enough: 0.2 us instead of 0.6 us.
    if type(x.sharding) is jax.sharding.SingleDeviceSharding and _has_only_cpus():
        return True
    devices = x.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


@functools.cache
def _has_only_cpus() -> bool:
    return jax.default_backend() == "cpu"


@functools.lru_cache(maxsize=4096)
def ends_of(window: Window, dtype: DType) -> tuple[int, int, int, int]:
    """Return the window's ends, infinity, and the least ignored number, as doubled bits."""
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
    """Return the least that the largest number may be, as doubled bits; 0 without a peak."""
    return 0 if window.peak == -math.inf else ends_of(Window(window.peak, math.inf), dtype)[0]


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


def measure_on_host(a: np.ndarray) -> Magnitude:
    """Return the magnitude of a NumPy array; `ZERO` if its entries are no numbers."""
    if a.dtype.kind not in "biufc":  # bfloat16, float8
        a = a.astype(np.float64) if jnp.issubdtype(a.dtype, jnp.floating) else np.zeros(0)
    with np.errstate(all="ignore"):  # of complex numbers an absolute value may overflow
        return _magnitude_of(*extent(a))


def _magnitude_of(least: float, largest: float) -> Magnitude:
    if not 0.0 < least <= largest:
        return ZERO
    return Magnitude(math.log2(least), math.log2(largest), True)


# -- where the data is ----------------------------------------------------------------------------


def sizes_of(x: jax.Array) -> jax.Array:
    """Return the bits of the entries without signs; of complex entries those of the larger part.

    The caller compares bits, because XLA treats subnormal numbers as zeros when it compares them.
    """
    bits = np.dtype(f"i{UNSIGNED[x.dtype.char].itemsize}")
    parts = [x.real, x.imag] if x.dtype.kind == "c" else [x]
    sizes = [lax.bitcast_convert_type(p, bits) & bits.type(np.iinfo(bits).max) for p in parts]
    return functools.reduce(jnp.maximum, sizes)


class Seen(NamedTuple):
    """The magnitude of an array, whether it has neither inf nor nan, and whether it has no zero."""

    magnitude: Magnitude
    is_finite: bool
    is_nonzero: bool

    def inside(self, window: Window) -> bool:
        """True if the array lies in a window."""
        can = (self.is_finite or not window.finite) and (self.is_nonzero or not window.nonzero)
        return can and contains(window, self.magnitude)


def seen_on_device(*arrays: jax.Array) -> list[Seen]:
    """Measure arrays by one program; a few words travel instead of the arrays."""
    return look_on_device(*arrays)()


def look_on_device(*arrays: jax.Array) -> Callable[[], list[Seen]]:
    """Start the program of `seen_on_device`. **Returns:** a function that waits for its result."""
    kinds, found = [_compared_in(x.dtype) for x in arrays], _looked(*arrays)

    def seen() -> list[Seen]:
        out, words = [], np.asarray(found)
        for kind in kinds:
            count = 4 if kind.itemsize == 8 else 2  # words for two numbers
            bits, flags, words = words[:count], words[count : count + 2], words[count + 2 :]
            if kind.itemsize == 2:
                bits = bits.astype(np.uint16)
            least, largest = bits.view(kind).astype(np.float64)
            out.append(Seen(_magnitude_of(least, largest), *map(bool, flags)))
        return out

    return seen


def _compared_in(dtype: DType) -> DType:
    """Return the dtype that compares an array's magnitudes; for a complex array, its parts'."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    return dtype if dtype.char in UNSIGNED else np.dtype(np.float32)


@jax.jit
def _looked(*arrays: jax.Array) -> jax.Array:
    """Return the least and the largest finite nonzero size and the flags of `Seen` of each array.

    One array of words holds all, because each result takes a transfer of its own.
    """
    return jnp.concatenate([_words(x) for ends in map(_ends_and_flags, arrays) for x in ends])


def _words(x: jax.Array) -> jax.Array:
    if x.dtype.itemsize == 8:
        return lax.bitcast_convert_type(x, jnp.uint32)
    return x.astype(jnp.uint32)[None]


def _ends_and_flags(x: jax.Array) -> tuple[jax.Array, ...]:
    kind = _compared_in(x.dtype)
    size = sizes_of(abs(x) if x.dtype.kind == "c" else x.astype(kind))
    infinite = size.dtype.type(ends_of(ANYWHERE, kind)[2] // 2)
    counts = (size > 0) & (size < infinite)
    least = jnp.min(jnp.where(counts, size, infinite), initial=infinite)
    largest = jnp.max(jnp.where(counts, size, 0), initial=0)
    return least, largest, jnp.all(size < infinite), jnp.all(size > 0)
