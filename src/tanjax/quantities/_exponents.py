"""Quantities choose the power of two in their label.

A quantity has exponent 0 as long as its dtype holds its numbers, so ordinary values cost nothing
and compile once. A result that the dtype does not hold gets an exponent that puts its numbers into
the middle of the range. It returns to exponent 0 only when its numbers are well inside again
(between `2^-inner` and `2^inner`). So a value at the border does not change its label every step.

    q = jnp.float32(1e30) * kg
    (q * q).scale  # 199

Sharp edge. A traced function has no numbers, so exponents follow the laws of units, and tanjax
chooses none.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Sequence
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax._dtype_range import Range, range_of
from tanjax._errors import ScaleWarning, message, outside
from tanjax._typing import Primal
from tanjax.units import Unit

from ._conversion import bits_in
from ._quantity import Quantity, bits_of, is_quantity, unitful
from ._range import NOTHING, Bits, measure, shift


def settle(stored: PyTree, label: Unit) -> Quantity:
    """Return a result at exponent 0 if its numbers lie well inside, else centred if needed."""
    if not label.scale:
        return unitful(stored, label)
    bits = measure(stored)
    span = range_of(stored.dtype if hasattr(stored, "dtype") else jnp.result_type(stored))
    if bits is None or span is None:
        return unitful(stored, label)
    low, high = bits[0] + label.scale, bits[1] + label.scale
    if -span.inner <= low and high <= span.inner:
        return unitful(shift(stored, label.scale), label.plain, (low, high))
    is_inside = -span.inner <= bits[0] and bits[1] <= span.inner
    middle = None if is_inside else span.centre(*bits)
    if not middle:  # or the numbers are too far apart to move without loss
        return unitful(stored, label, bits)
    moved = bits[0] - middle, bits[1] - middle
    return unitful(shift(stored, -middle), label.scaled(middle), moved)


def labelled(result: PyTree, unit: Unit) -> Quantity:
    """Label a result of `through_graph`."""
    if is_quantity(result):
        return settle(result.stored, unit.scaled(result.label.scale))
    return settle(result, unit) if unit.scale else unitful(result, unit)


def plain_result(result: PyTree) -> PyTree:
    """Return results without a unit, at exponent 0."""
    if is_quantity(result):
        return shift(result.stored, result.label.scale)
    return like(result, map(plain_result, result)) if isinstance(result, list | tuple) else result


def like(result: PyTree, items: Iterable[PyTree]) -> PyTree:
    """Return a sequence of the class of another, also a named tuple; a list by default."""
    if hasattr(result, "_fields"):
        return type(result)(*items)
    return type(result)(items) if isinstance(result, list | tuple) else list(items)


def unscale(result: PyTree) -> PyTree:
    """Return results at exponent 0 wherever their dtype holds them there."""
    if is_quantity(result) and result.label.scale:
        bits, label = bits_of(result), result.label
        span = range_of(result.dtype)
        if bits is None or span is None:
            return result
        if span.holds(bits[0] + label.scale, bits[1] + label.scale):
            return unitful(shift(result.stored, label.scale), label.plain)
        return result
    return like(result, map(unscale, result)) if isinstance(result, list | tuple) else result


def rooted(q: Quantity, power: Fraction) -> tuple[Primal, Unit]:
    """Return number and label with an exponent whose product with `power` is whole.

    The square root needs this for 2^3 x. A dtype also rounds the power (bfloat16 has 0.668 for
    2/3), which gives large errors for numbers far from one. These numbers are moved near one,
    because the power of a power of two is exact.
    """
    stored, label, root = q.stored, q.label, power.denominator
    span = range_of(stored.dtype) if hasattr(stored, "dtype") else None
    known = bits_of(q)
    fits = known and span and span.lowest <= known[0] and known[1] <= span.highest
    if fits and not label.scale % root and not _rounding(power, stored.dtype):
        return stored, label
    bits = measure(stored) if root > 1 else None
    if bits is None or span is None or bits[0] > bits[1]:
        target = label.divisible(root)
    else:
        low, high = bits[0] + label.scale, bits[1] + label.scale
        is_far = _rounding(power, stored.dtype) * max(-bits[0], bits[1]) > 2.0**-span.digits
        wanted = (low + high) // 2 if is_far else label.scale
        target = label.plain.scaled(divisible_exponent(low, high, int(wanted), root, span))
    return shift(stored, label.scale - target.scale), target


@functools.cache
def _rounding(power: Fraction, dtype: DTypeLike) -> float:
    """Return the rounding error of a power in a dtype."""
    return abs(float(np.asarray(float(power), dtype)) - float(power))


def divisible_exponent(low: float, high: float, wanted: int, root: int, span: Range) -> int:
    """Return the exponent nearest to `wanted` that `root` divides and that avoids underflow.

    The largest number never overflows.
    """
    least = -((span.highest - int(high)) // root) * root
    most = (int(low) - span.lowest) // root * root
    nearest = root * -((root - 2 * wanted) // (2 * root))
    return max(least, min(nearest, most))


def joined(known: Sequence[tuple[Bits, Unit]], unit: Unit) -> Bits:
    """Return the bits of numbers of several labels together, in one unit."""
    low, high = NOTHING
    for bits, label in known:
        if bits[0] <= bits[1]:
            part = bits_in(bits, label, unit)
            low, high = min(low, part[0]), max(high, part[1])
    return low, high


def warn_too_wide(operation: str, low: float, high: float, dtype: DTypeLike) -> None:
    """Warn that no exponent brings all numbers of a result into the range of the dtype."""
    warnings.warn(
        message(
            f"{operation}: no power of two brings these numbers into the range of {dtype}.",
            f"magnitudes: 2^{low:.0f} to 2^{high:.0f}",
            "why: an array has one exponent. The other entries overflow or underflow.",
            hint="use a wider dtype, or separate arrays for the large and the small numbers.",
        ),
        ScaleWarning,
        stacklevel=outside(),
    )
