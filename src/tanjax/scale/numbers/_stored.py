"""Numbers as a dtype stores them: infinities, zeros, subnormal numbers, rounding.

tanjax runs a program in a wide range (`_wide.py`), and once more as its dtypes hold its numbers, to
measure the difference. Range and precision are separate: a number in the normal range stays as it
is, and rounding is a run of its own.

    clamp_to(wide(np.array([1e-9, 1e9])), jnp.float16, 0).value.array  # [0, inf]

Sharp edges. Subnormal numbers of float32 and bfloat16 are zero, as in XLA; those of float16 stay,
on their coarse grid. XLA may pass a number on before it rounds it to that grid (`a / x / y` is
`a / (x * y)`). Then two readers of it see different numbers: see `Clamped.apart`.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar

import numpy as np

from tanjax._dtype_range import limits
from tanjax._typing import DType

from ._wide import Exponent, Numbers, Wide, complex_of, normalised, scaled

INF = math.inf
T = TypeVar("T", float, np.ndarray)


def _ldexp(x: float, power: int) -> float:
    try:
        return math.ldexp(x, power)
    except OverflowError:
        return INF


class Clamped(NamedTuple):
    """Counts of numbers that a dtype made infinite, zero or coarse.

    `apart`: the numbers that another reader may see, with subnormal numbers rounded the other way;
    None if there are no subnormal numbers.
    """

    value: Wide
    overflowed: int
    flushed: int
    apart: Wide | None = None


def clamp_to(x: Wide, dtype: DType, exponent: int, wider: bool = False) -> Clamped:
    """Return the numbers as a dtype stores them at an exponent: normal ones keep their precision.

    **Arguments:** `wider`: True to keep numbers that overflow in float16, as float32 does.
    """
    if x.extent is None:
        x = normalised(x)
    room, shift, array = limits(dtype), exponent - x.exponent, x.array
    if type(shift) is int:
        low, high = x.extent  # type: ignore[misc]
        top = room.top if shift == 0 else _ldexp(room.top, shift)
        bottom = room.bottom if shift == 0 else _ldexp(room.bottom, shift)
        if high == 0.0 or (high <= top and low >= bottom and array.dtype.kind != "c"):
            return Clamped(x, 0, 0)
        sizes = np.abs(_real_parts(array))
    else:
        top, bottom = room.top, room.bottom
        sizes = np.abs(_real_parts(scaled(array, -shift)))
    exact = np.abs(_real_parts(array))
    over = (sizes > top) & (exact < INF) & (not (wider and room.step))
    under = (sizes < bottom) & (exact > 0)
    small, other = _subnormal(array, shift, room.step) if under.any() else (array, None)
    under &= _real_parts(small) != _real_parts(array)
    counts = int(np.count_nonzero(over)), int(np.count_nonzero(under))
    if counts == (0, 0):
        return Clamped(x, 0, 0)
    apart = None if other is None else _replaced(x, over, under, other)
    return Clamped(_replaced(x, over, under, small), *counts, apart)


def _replaced(x: Wide, over: np.ndarray, under: np.ndarray, small: Numbers) -> Wide:
    """Replace numbers that overflow by infinities, and numbers that underflow by `small`."""
    array = np.array(x.array, order="C")
    parts = _real_parts(array)  # a view
    parts[over] = np.copysign(INF, parts[over])
    parts[under] = _real_parts(small)[under]
    return normalised(Wide(array, x.exponent))


def _subnormal(array: Numbers, shift: Exponent, step: float) -> tuple[Numbers, Numbers | None]:
    """Round numbers `array * 2**-shift` to whole multiples of `step`, moved back; 0 if it is 0.

    **Returns:** the nearest multiples, and those on the other side, unless one of both is 0.
    """
    if not step:
        return np.zeros_like(array), None
    count = scaled(array, -shift) / step
    nearest = np.rint(count)
    with np.errstate(invalid="ignore"):  # of infinities
        other = nearest + np.sign(count - nearest)
    other = np.where((nearest == 0) | (other == 0), nearest, other)
    return scaled(nearest * step, shift), scaled(other * step, shift)


def _real_parts(array: Numbers) -> np.ndarray:
    """Return the parts of complex numbers side by side; a view of an array that is contiguous."""
    array = np.atleast_1d(array)
    return np.ascontiguousarray(array).view(np.float64) if array.dtype.kind == "c" else array


def saturated(x: Wide, dtype: DType, exponent: int) -> Wide:
    """Replace infinities by the largest number of a dtype, stored at an exponent."""
    infinite = np.isinf(x.array)
    if x.array.dtype.kind != "f" or not np.any(infinite):
        return x
    largest = np.copysign(limits(dtype).largest, x.array)
    # At an exponent of their own: it may be far from that of the other numbers.
    exponents = np.where(infinite, exponent, x.exponent)
    return normalised(Wide(np.where(infinite, largest, x.array), exponents))


def rounded_to(x: Wide, dtype: DType) -> Wide:
    """Round numbers to the mantissa of a dtype, at any range (Veltkamp's splitting)."""
    bits = limits(dtype).bits
    if bits >= 52:
        return x
    array = x.array
    if array.dtype.kind == "c":
        parts = [rounded_to(Wide(p), dtype).array for p in (array.real, array.imag)]
        return Wide(complex_of(*parts), x.exponent)
    rounded = _rounded(array, factor := 2.0 ** (52 - bits) + 1.0)
    if not np.all(np.isfinite(rounded)):
        rounded = np.where(np.isfinite(array), rounded, array)
    if x.extent is None or type(x.exponent) is not int or x.extent[1] == 0.0:
        return Wide(rounded, x.exponent)
    # Rounding keeps the order, so that the ends need no search: a third of the time.
    low, high = x.extent
    return Wide(rounded, x.exponent, (_rounded(low, factor), _rounded(high, factor)))


def _rounded(x: T, factor: float) -> T:
    high = x * factor
    return high - (high - x)
