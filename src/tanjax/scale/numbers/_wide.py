"""Arrays in a range far beyond that of any floating-point type.

To find a program's values before a cast to float16, tanjax runs the program in a range where
nothing overflows: `3**1000` and `1e-300 * 1e-300` are ordinary numbers here. A `Wide` is a block
floating-point array: a NumPy array of float64 (or complex128) and one integer exponent for all of
it, so that a product costs one NumPy product and one integer addition.

    >>> x = wide(np.array([3e200, 5e200]))
    >>> normalised(Wide(x.array * x.array, 2 * x.exponent)).exponent > 1000
    True

Numbers too far apart for one exponent get one each: then `exponent` is an array, too. `normalised`
changes to that form and back, so that a block's numbers are always within 2^±300 of its exponent
and no product of three of them is lost. `_spread.py` has the operations on such arrays.

    >>> normalised(Wide(np.array([1e-200, 1e200]))).exponent
    array([-664,  665])

Sharp edges: a complex number has one exponent, so that a part more than 2^1000 below the other may
vanish. Integers and booleans keep their own dtype and have exponent 0. A random key is one 64-bit
integer, or as many bytes as its generator has. The array of a `Wide` may be a NumPy scalar or a
read-only view: never write to it.
"""

from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jax.typing import ArrayLike

from ..graph._graph import ZERO, Magnitude, is_floating

INF = math.inf
# Entries are kept within 2^±300, so that a product of three arrays and a sum over 2^100 entries
# stay within float64 before they are settled.
_SMALL, _LARGE = 2.0**-300, 2.0**300
_ROOM = 590  # The most binary orders of magnitude of a block.
_FARTHEST_MOVE = 700  # A block can be moved so far and stay normal in float64.
# Beyond it, numbers are infinite or zero even here: an exponent must stay exact as a float.
_FARTHEST = 2**50
_BIGGEST, _LEAST = float(np.finfo(np.float64).max), 5e-324

Numbers: TypeAlias = np.ndarray  # or a scalar of NumPy's, which has the same methods
Exponent: TypeAlias = int | np.ndarray  # of all numbers, or of each


class _Beyond(threading.local):
    """The count of arrays with numbers too far away for any exponent, in this thread."""

    count = 0


beyond = _Beyond()


class Wide(NamedTuple):
    """The numbers `array * 2**exponent`.

    `exponent`: an integer, or an integer array of the shape of `array` ("spread"); `extent`:
    smallest and largest magnitude of the nonzero finite entries of `array`, or None if not yet
    measured; `(inf, 0.0)` if there are none; of a spread array that is settled, `(0.5, 1.0)`.
    """

    array: Any  # `Numbers`, scalars among them
    exponent: Any = 0  # an `Exponent`: the law for blocks takes it for an integer
    extent: tuple[float, float] | None = None


class Apart(ArithmeticError):
    """Numbers too far apart for one exponent: the rule for blocks does not apply."""

    def __init__(self) -> None:
        super().__init__("numbers too far apart for one exponent")


def wide(x: Wide | ArrayLike) -> Wide:
    """Return a number, NumPy or JAX array as a `Wide`; low-precision floats become float64."""
    if isinstance(x, np.ndarray) and x.ndim == 0 and x.dtype.kind == "f":
        return normalised(Wide(np.float64(x.item())))  # a literal: 1.5 µs instead of 4
    if isinstance(x, Wide):
        return normalised(x)
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        words = np.asarray(jax.random.key_data(x))
        if words.shape[-1] != 2:  # not Threefry
            words = np.ascontiguousarray(words)
            return Wide(words.reshape(-1).view(f"V{4 * words.shape[-1]}").reshape(x.shape))
        words = words.astype(np.uint64)
        return Wide((words[..., 0] << np.uint64(32)) | words[..., 1])
    array = np.asarray(x)
    kind = array.dtype.kind
    if kind in "biu":
        return Wide(array)
    if kind in "fc":
        return normalised(Wide(array.astype(np.complex128 if kind == "c" else np.float64)))
    if is_floating(array):  # bfloat16, float8: NumPy calls them void
        return normalised(Wide(array.astype(np.float64)))
    return Wide(array)


def extent(array: Numbers | np.float64) -> tuple[float, float]:
    """Return the smallest and the largest magnitude of the nonzero finite entries."""
    if type(array) is np.float64:  # its attributes are slow: 0.1 µs instead of 0.4
        one = abs(float(array))
        return (one, one) if 0 < one < INF else (INF, 0.0)
    size = array.size
    if size == 1 and array.dtype.kind != "V":
        one = abs(array.item())
        return (one, one) if 0 < one < INF else (INF, 0.0)
    if size == 0 or array.dtype.kind not in "iufc":
        return (INF, 0.0) if size == 0 or not array.any() else (1.0, 1.0)
    sizes = np.abs(array) if array.dtype.kind != "i" else np.abs(array.astype(np.float64))
    low, high = np.minimum.reduce(sizes, None), np.maximum.reduce(sizes, None)
    if low == 0 and high < INF and sizes.dtype.kind == "f":  # by masks ten times as long
        np.putmask(sizes, sizes == 0, INF)
        low = np.minimum.reduce(sizes, None)
        return (float(low), float(high))
    if not (low > 0 and high < INF):  # also when there is a NaN
        sizes = sizes[(sizes > 0) & (sizes < INF)]
        if sizes.size == 0:
            return (INF, 0.0)
        low, high = np.minimum.reduce(sizes), np.maximum.reduce(sizes)
    return (float(low), float(high))


def normalised(x: Wide) -> Wide:
    """Return the same numbers with a measured extent: a block if they fit in one, else spread."""
    array, exponent, span = x
    if type(exponent) is not int:
        return _settle_spread(array, exponent)
    if span is None:
        span = extent(array)
    low, high = span
    if high == 0.0 or array.dtype.kind not in "fc":
        return Wide(array, 0, span)
    if low >= _SMALL and high <= _LARGE and -_FARTHEST <= exponent <= _FARTHEST:
        return Wide(array, exponent, span)
    return _settle_far(array, exponent, low, high)


def _settle_far(array: Numbers, exponent: int, low: float, high: float) -> Wide:
    """Settle a block whose exponent does not suit its numbers."""
    if not -_FARTHEST <= exponent <= _FARTHEST:
        beyond.count += 1
        array = scaled(array, 5000 if exponent > 0 else -5000)
        return Wide(array, 0, extent(array))
    bottom, top = math.frexp(low)[1], math.frexp(high)[1]
    if top - bottom > _ROOM:
        return _settle_spread(array, np.full(np.shape(array), exponent, np.int64))
    move = top if top - bottom < 250 else (top + bottom) // 2
    array, exponent = scaled(array, -move), exponent + move
    return Wide(array, exponent, extent(array))


def _settle_spread(array: Numbers, exponent: Exponent) -> Wide:
    """Settle numbers with an exponent each."""
    if array.dtype.kind not in "fc":
        return Wide(array, 0, extent(array))
    fraction, powers = split(array)
    powers = powers + np.where(is_number(fraction), exponent, 0)
    if powers.size and (np.max(powers) > _FARTHEST or np.min(powers) < -_FARTHEST):
        beyond.count += 1
        far = np.where(np.abs(powers) > _FARTHEST, np.sign(powers) * 5000, 0)
        fraction, powers = scaled(fraction, far), np.where(far, 0, powers)
    counts = is_number(fraction)
    known = powers[counts]
    if known.size == 0:
        return Wide(fraction, 0, (INF, 0.0))
    bottom, top = int(known.min()), int(known.max())
    if top - bottom > _ROOM:
        return Wide(fraction, powers, (0.5, 1.0))
    middle = top if top - bottom < 250 else (top + bottom) // 2
    block = scaled(fraction, np.where(counts, powers - middle, 0))
    return Wide(block, middle, extent(block))


def is_number(array: Numbers) -> np.ndarray:
    """Return a mask of the entries that are neither zero nor infinite nor NaN."""
    return (array != 0) & np.isfinite(array)


def split(array: Numbers) -> tuple[Numbers, np.ndarray]:
    """Return fractions of 0.5 to 1 and powers of two; the power of 0, inf and NaN is 0.

    The larger part of a complex number is scaled to 0.5 to 1.
    """
    array = np.asarray(array)
    if array.dtype.kind == "c":
        size = np.maximum(np.abs(array.real), np.abs(array.imag))
        powers = np.where(is_number(size), np.frexp(size)[1], 0).astype(np.int64)
        return scaled(array, -powers), powers
    fraction, powers = np.frexp(array)
    return fraction, np.where(is_number(fraction), powers, 0).astype(np.int64)


def scaled(array: Numbers, power: Exponent) -> Numbers:
    """Return `array * 2**power` in float64, which may overflow or lose small entries.

    **Arguments:** `power`: an integer, or one for each entry.
    """
    if type(power) is not int:
        return _scaled_each(array, power)
    power = max(-5000, min(5000, power))
    if power == 0:
        return array
    if array.dtype.kind == "c":  # by parts: a complex product would make NaN of an infinity
        parts = np.ascontiguousarray(array).reshape(-1).view(np.float64)
        return scaled(parts, power).view(np.complex128).reshape(array.shape)
    with np.errstate(all="ignore"):
        while abs(power) > 1000:
            step = 1000 if power > 0 else -1000
            array, power = array * 2.0**step, power - step
        return array * 2.0**power


def _scaled_each(array: Numbers, power: Exponent) -> Numbers:
    array, power = np.broadcast_arrays(array, np.clip(power, -5000, 5000).astype(np.int32))
    with np.errstate(all="ignore"):
        if array.dtype.kind != "c":
            return np.ldexp(array, power)
        parts = np.ascontiguousarray(array).reshape(-1).view(np.float64)
        out = np.ldexp(parts, np.repeat(power.reshape(-1), 2))
        return out.view(np.complex128).reshape(array.shape)


def as_float(x: Wide) -> Numbers:
    """Return the numbers in float64; those out of its range saturate: nonzero and finite."""
    array, power = x.array, x.exponent
    if type(power) is int and power == 0:
        return array
    return _saturated(array, scaled(array, power))


def in_float64(x: Wide, tiny: bool = False) -> Numbers:
    """Return the numbers in float64, for a function that has no other form.

    **Arguments:** `tiny`: True if numbers that underflow in float64 are like zero to the function.
    **Raises:** `NotImplementedError` if float64 does not hold them.
    """
    moved = scaled(x.array, x.exponent)
    lost = is_number(x.array) & ~is_number(moved)
    if np.any(lost & (moved != 0)) or (not tiny and np.any(lost)):
        raise NotImplementedError("numbers out of the range of float64")
    return _saturated(x.array, moved)


def _saturated(array: Numbers, moved: Numbers) -> Numbers:
    if array.dtype.kind == "c":
        return complex_of(_saturated(array.real, moved.real), _saturated(array.imag, moved.imag))
    lost = (moved == 0) & (array != 0)
    over = np.isinf(moved) & np.isfinite(array)
    if np.any(lost) or np.any(over):
        moved = np.where(lost, np.copysign(_LEAST, array), moved)
        moved = np.where(over, np.copysign(_BIGGEST, array), moved)
    return moved


def complex_of(real: Numbers, imag: Numbers) -> Numbers:
    """Return complex numbers of two parts; a sum would make NaN of an infinite part."""
    out = np.empty(np.shape(real), np.complex128)
    out.real, out.imag = real, imag
    return out


def inverse(x: Wide) -> Wide:
    """Return `1 / x`."""
    with np.errstate(all="ignore"):
        return normalised(Wide(1.0 / x.array, -x.exponent))


def has_numbers(x: Wide) -> bool:
    """True if any entry is nonzero and finite, so that the exponent means anything."""
    span = x.extent or extent(x.array)
    return span[1] > 0.0


def align(xs: list[Wide], saturate: bool = False) -> tuple[list[Numbers], int]:
    """Return the arrays of several blocks at one exponent, the largest.

    **Arguments:** `saturate`: nonzero entries stay nonzero, as comparisons need.
    **Raises:** `Apart` if entries would be lost.
    """
    power = xs[0].exponent
    if type(power) is int and all(type(x.exponent) is int and x.exponent == power for x in xs):
        return [x.array for x in xs], power
    if any(type(x.exponent) is not int for x in xs):
        raise Apart
    known = [x.exponent for x in xs if has_numbers(x)]
    power = max(known) if known else 0
    arrays = []
    for x in xs:
        if not has_numbers(x):
            arrays.append(x.array)
            continue
        if x.exponent < power - _FARTHEST_MOVE and not saturate:
            raise Apart
        moved = scaled(x.array, x.exponent - power)
        arrays.append(_saturated(x.array, moved) if saturate else moved)
    return arrays, power


def magnitude_of(x: Wide) -> Magnitude:
    """Return the bounds in log2 of the magnitudes of a Wide."""
    if type(x.exponent) is not int:
        return _magnitude_of_spread(x)
    low, high = x.extent or extent(x.array)
    if high == 0.0:
        return ZERO
    if low == high:
        one = math.log2(high) + x.exponent
        return Magnitude(one, one, True)
    return Magnitude(math.log2(low) + x.exponent, math.log2(high) + x.exponent, True)


def _magnitude_of_spread(x: Wide) -> Magnitude:
    counts = is_number(x.array)
    sizes = np.log2(np.abs(x.array[counts])) + np.broadcast_to(x.exponent, counts.shape)[counts]
    if sizes.size == 0:
        return ZERO
    return Magnitude(float(sizes.min()), float(sizes.max()), True)
