"""Conversion of numbers between units, without overflow or underflow of their dtype.

The dtype may not hold a conversion factor (light years in float16) or the result, although the
quantity is valid. So a factor is split into a number between 1 and 2, and a power of two. The
number multiplies with one rounding; the power is exact and can be applied in steps. If the label of
a quantity may have a power of two, tanjax chooses one that keeps the numbers in range.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax import units
from tanjax._dtype_range import range_of
from tanjax._errors import UnitError, message
from tanjax.arrays import array_type
from tanjax.units import Unit

from ._range import Bits, shift

ORDINARY = (6.2e-5, 6.5e4)  # factors that every floating dtype holds


# True while a plan will run the trace: the plan then chooses exponents without overflow.
_planned = contextvars.ContextVar("planned", default=False)


@contextlib.contextmanager
def planned() -> Iterator[None]:
    """Return a context in which traced conversions may have any factor."""
    token = _planned.set(True)
    try:
        yield
    finally:
        _planned.reset(token)


def is_planned() -> bool:
    """True if a plan will run the current trace."""
    return _planned.get()


def convert(value: PyTree, a: Unit, b: Unit) -> PyTree:
    """Convert a number in unit `a` to unit `b`. **Raises:** `UnitError`."""
    if a is b:
        return value
    if a.dimension is not b.dimension or not (a.is_linear and b.is_linear):
        return units.convert(value, a, b, jnp)
    if a.scale or b.scale:
        return _staged(value, a, b)
    multiplier, divisor = units.conversion(a, b)
    if multiplier == divisor:  # both are 1
        return value
    if not _is_held(multiplier / divisor, value):
        return _staged(value, a, b)
    value = _inexact(value)
    return value * multiplier if multiplier != 1.0 else value / divisor


def _is_held(factor: float, value: PyTree) -> bool:
    """True if a conversion factor is a normal number of the dtype of `value`."""
    if ORDINARY[0] <= factor <= ORDINARY[1]:
        return True
    if not hasattr(value, "dtype"):  # a Python number
        return True
    span = range_of(value.dtype)
    return span is None or span.lowest <= math.log2(factor) < span.highest


def _inexact(value: PyTree) -> PyTree:
    """Cast integers to floats, which JAX does not do under strict promotion."""
    if array_type(value) is None and hasattr(value, "dtype") and value.dtype.kind in "iub":
        return value.astype(jnp.result_type(float))
    return value


@functools.cache
def factor_of(a: Unit, b: Unit) -> tuple[float, bool, int]:
    """Return a factor between 1 and 2, True if it divides, and a power of two."""
    multiplier, divisor = units.conversion(a.plain, b.plain)
    divides = divisor != 1.0
    mantissa, exponent = math.frexp(divisor if divides else multiplier)
    power = 1 - exponent if divides else exponent - 1
    return 2 * mantissa, divides, power + a.scale - b.scale


def _staged(value: PyTree, a: Unit, b: Unit) -> PyTree:
    """Convert in two steps, factor and power of two, without overflow in between.

    The factor moves the number by less than a binary digit, in the direction of the shift.
    """
    factor, divides, power = factor_of(a, b)
    value = _inexact(value)
    if isinstance(value, jax.core.Tracer):
        _check_traced(value, power, a, b)
    if factor != 1.0 and divides == (power > 0):  # the factor would move it in the other direction
        factor, power = factor / 2, power + (-1 if divides else 1)
    if factor != 1.0:
        value = value / factor if divides else value * factor
    return shift(value, power)


def _check_traced(value: PyTree, power: int, a: Unit, b: Unit) -> None:
    """Raise `UnitError` if traced numbers, which have no values yet, would leave the dtype's range.

    Numbers that vanish beside those of a larger scale are rounded away, as in any sum.
    """
    span = range_of(value.dtype)
    if (
        _planned.get()
        or span is None
        or (power <= span.highest and (a.scale or b.scale or power >= span.lowest))
    ):
        return
    raise UnitError(
        message(
            f"conversion from {a} to {b}: the factor does not fit in {value.dtype}.",
            f"factor: 2^{power}, {value.dtype} holds 2^{span.lowest} to 2^{span.highest}",
            "why: a traced function has no numbers yet, so tanjax cannot choose a power of two.",
            hint="convert before the call, use a wider dtype, `q.astype(jnp.float32)`, or a unit "
            "nearer to the values.",
        )
    )


def bits_in(bits: Bits, a: Unit, b: Unit) -> Bits:
    """Return the bits of numbers after a conversion; one digit wider, for the factor."""
    factor, divides, power = factor_of(a, b)
    low, high = bits[0] + power, bits[1] + power
    if factor == 1.0:
        return low, high
    return (low - 1, high) if divides else (low, high + 1)


def fitting(bits: Bits, dtype: DTypeLike) -> int:
    """Return the exponent to factor out of numbers: 0 if the dtype holds them, or if none helps."""
    span = range_of(dtype)
    if span is None or span.holds(*bits):
        return 0
    return span.centre(*bits) or 0
