"""Sums, products and quotients of quantities whose numbers leave the range of their dtype.

Two factors are first moved towards one, each by a power of two that goes into the label of the
product. The numbers of a sum are shifted to an exponent that suits the largest of them. Both steps
are exact. A result that fits goes back to exponent 0 with the bits of plain arithmetic. The result
itself decides: the exponents of two factors are added entry by entry.

    multiply(jnp.multiply, jnp.float32(2e30) * kg, jnp.float32(6e24) * kg)
    # Quantity(1.2e+55, "kg2", scale=182)

Sharp edges. Only for concrete, dense operands; every other call returns `NotImplemented`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax._dtype_range import Range, range_of
from tanjax._typing import Function
from tanjax.arrays import is_structured
from tanjax.units import Unit, add_units, is_step, one, subtract_units

from ._constructors import floating
from ._conversion import bits_in, convert
from ._exponents import labelled, settle, warn_too_wide
from ._losses import checked
from ._quantity import split_unit, unitful
from ._range import Bits, measure, shift


def span_of(a: PyTree, b: PyTree) -> Range | None:
    """Return the range of `a * b` if their dtypes alone determine it; else `None`: 0.2 us.

    Python's numbers take the dtype of their partner, even if they overflow it.
    """
    try:
        dtype = a.dtype
    except AttributeError:
        dtype = None
    try:
        other = b.dtype
    except AttributeError:
        return range_of(dtype) if dtype is not None else None
    return range_of(other) if dtype is None or dtype is other else None


def _operands(x: PyTree, y: PyTree) -> PyTree:
    """Return numbers, labels, measured bits and range; `None` for other operands."""
    (a, la), (b, lb) = split_unit(x), split_unit(y)
    if is_structured(a) or is_structured(b) or not (la.is_linear and lb.is_linear):
        return None
    dtype = jnp.result_type(a, b)
    span = range_of(dtype)
    if span is None:
        return None
    (a, more), (b, yet) = _widened(a, dtype, span), _widened(b, dtype, span)
    la, lb = la * more, lb * yet
    p, q = measure(a), measure(b)
    return None if p is None or q is None else (a, la, p, b, lb, q, span, dtype)


def _widened(x: PyTree, dtype: DTypeLike, span: Range) -> tuple[PyTree, Unit]:
    """Return a number in the dtype of the result, if that is wider, and its power of two.

    Real numbers stay real. Python's numbers may be arrays of a wider dtype, and may overflow the
    dtype of their partner; so may integers.
    """
    own = range_of(x.dtype) if hasattr(x, "dtype") else span
    if own is None:
        return split_unit(floating(x, dtype))
    if own.highest < span.highest:
        x = jnp.asarray(x).astype(dtype if x.dtype.kind == "c" else jnp.finfo(dtype).dtype)
    return x, one


def multiply(raw: Function, x: PyTree, y: PyTree, sign: int = 1) -> PyTree:
    """Return `x · y^sign`, from `raw` of both, in range: see the module."""
    found = _operands(x, y)
    if found is None:
        return NotImplemented
    a, la, p, b, lb, q, span, dtype = found
    if sign > 0:
        label, sure = la * lb, (p[0] + q[0], p[1] + q[1])
    else:
        label, sure = la / lb, (p[0] - q[1], p[1] - q[0])
        if q[0] > q[1]:  # the divisor is all zeros: there is nothing to keep
            return settle(raw(_nearer(a, p, span), b), label)
    fits = span.holds(*p) and span.holds(*q)
    if fits and (sure[0] > sure[1] or span.holds(*sure)):
        return settle(raw(a, b), label)
    low, high = _entrywise(a, b, sign)
    whole = low + label.scale, high + label.scale  # at exponent 0
    if low > high:  # only 0, inf and nan, which no exponent changes
        return settle(raw(_nearer(a, p, span), _nearer(b, q, span)), label)
    if fits and not label.scale and span.holds(low, high):
        return settle(raw(a, b), label)
    split = _split(p, q, low, high, sign, span)
    if split is None:
        warn_too_wide("multiply" if sign > 0 else "divide", *whole, dtype)
        return unitful(raw(a, b), label)
    of_a, of_b = split
    middle = of_a + sign * of_b
    result = raw(shift(a, -of_a), shift(b, -of_b))
    if not label.scale and span.holds(low, high):
        return unitful(shift(result, middle), label, (low, high))
    return settle(result, label.scaled(middle))


divide = functools.partial(multiply, sign=-1)


def _nearer(x: PyTree, bits: Bits, span: Range) -> PyTree:
    """Move numbers outside the dtype's range near one: 1e-23 must not underflow in float16."""
    is_stored = hasattr(x, "dtype") and range_of(x.dtype) == span
    return x if is_stored or span.holds(*bits) else shift(x, -int(bits[1]))


def _entrywise(a: PyTree, b: PyTree, sign: int) -> Bits:
    """Return bounds of the entries of a product or quotient, without computing them."""
    (size_a, of_a), (size_b, of_b) = _frexp(a), _frexp(b)
    counts = size_a & size_b
    exponents = np.broadcast_to(of_a + sign * of_b, counts.shape)[counts]
    if not exponents.size:
        return np.inf, -np.inf
    low, high = int(exponents.min()), int(exponents.max())
    return (low - 2, high) if sign > 0 else (low - 1, high + 1)


def _frexp(x: PyTree) -> tuple[PyTree, PyTree]:
    """Return which entries are finite and not zero, and their exponents."""
    with jax.ensure_compile_time_eval():
        size = np.abs(np.asarray(x))
    size = size.astype(np.float64) if size.dtype.kind != "f" or size.dtype.itemsize < 4 else size
    _, exponent = np.frexp(size)
    return np.isfinite(size) & (size > 0), exponent


def _split(
    p: Bits, q: Bits, low: float, high: float, sign: int, span: Range
) -> tuple[int, int] | None:
    """Return the exponents to take out of two factors to put them and their product in range.

    **Arguments:** `low`, `high`: bounds of the product.
    """
    of_a, of_b = _room(p, span), _room(q, span)
    ends = sorted((sign * of_b[0], sign * of_b[1]))
    least = max(of_a[0] + ends[0], high - span.highest)
    most = min(of_a[1] + ends[1], low - span.lowest)
    if least > most:
        return None
    middle = min(max((low + high) // 2, least), most)
    taken = int(max(of_a[0], middle - ends[1]) + min(of_a[1], middle - ends[0])) // 2
    return taken, sign * (int(middle) - taken)


def _room(bits: Bits, span: Range) -> Bits:
    """Return the least and the greatest exponent to take out; 0, 0 with subnormal numbers."""
    low, high = bits[1] - span.highest, bits[0] - span.lowest
    return (low, high) if low <= high else (0, 0)


def add(raw: Function, x: PyTree, y: PyTree) -> PyTree:
    """Return `x + y` or `x - y` in range, from `raw` of both at one exponent: see the module."""
    found = _operands(x, y)
    if found is None:
        return NotImplemented
    a, la, p, b, lb, q, span, _ = found
    if la.dimension is not lb.dimension:
        return NotImplemented
    unit = la.plain
    parts = [bits_in(p, la, unit), bits_in(q, lb, unit)]
    low = min(part[0] for part in parts)
    high = max(part[1] for part in parts)
    if low > high:  # zeros
        return unitful(raw(convert(a, la, unit), convert(b, lb, unit)), unit)
    # Two numbers are equal, or differ by a multiple of the last digit of the smaller one; the
    # differences of float16, which are computed in float32, are exact.
    least = low if span.smallest < span.lowest else low - span.digits + 1
    if not (la.scale or lb.scale) and least >= span.smallest and high < span.highest:
        return unitful(raw(convert(a, la, unit), convert(b, lb, unit)), unit)
    # the largest at the top leaves most room for the others
    exponent = int(high) - span.highest + 2
    label, few = unit.scaled(exponent), low - exponent < span.lowest
    if few and not (la.scale or lb.scale) and span.holds(low, high + 1):
        label, exponent = unit, 0  # plain arithmetic loses less
    left, right = convert(a, la, label), convert(b, lb, label)
    if few:
        result = checked(raw.__name__, raw, [left, right], [(a, la, label), (b, lb, label)], [x, y])
    else:
        result = raw(left, right)
    bits = measure(result)
    if bits is None:
        return unitful(result, label)
    inside = bits[0] + exponent, bits[1] + exponent
    if bits[0] > bits[1] or (not (la.scale or lb.scale) and span.holds(*inside)):
        return unitful(shift(result, exponent), unit, inside)
    return settle(result, label)


def on_scale(raw: Function, x: PyTree, y: PyTree, /) -> PyTree:
    """Return `x + y` or `x - y` if one is a point of an affine or logarithmic scale.

    Point - point is a difference, point ± difference a point; every other combination raises.
    """
    (a, ua), (b, ub) = split_unit(x), split_unit(y)
    combine = add_units if raw.__name__ == "add" else subtract_units
    unit = combine(ua, ub)
    left = right = ua
    if ub.is_linear and is_step(ub, ua):
        right = ua.delta
    elif ua.is_linear and is_step(ua, ub):
        left, right = ub.delta, ub
    return labelled(raw(convert(a, ua, left), convert(b, ub, right)), unit)
