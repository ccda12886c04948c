"""Functions with an exact law for powers of two: exponentials, logarithms, powers.

`exp(x)` can be stored at any exponent: `x = n·log 2 + r` with an integer `n` and a small `r`, so
that `exp(x)·2^-s = exp(r)·2^(n-s)`. `log(v·2^t) = log v + t·log 2`. `(v·2^t)^n` is a chain of
products whose exponents are chosen anew after every one. They are used only where a plan needs
them, because they cost several operations; everywhere else the primitive itself runs.

Numbers of 16 bits are computed in float32 and rounded once. A chain of products doubles the
relative error with each squaring (33 units in the last place for `1.2^100`); it is carried along
with its rounding errors as a second number, which leaves one unit.

**References:** Cody and Waite 1980 for the reduction by a logarithm of two in two parts; Dekker
1971 for the product of numbers of double length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tanjax import _compat

from ._graph import Node

# log 2 in two parts: the first has so few digits that its product with an integer is exact.
_LOG2_PARTS = {
    np.dtype(np.float32): (0.693359375, -2.1219444005469057e-04),
    np.dtype(np.float64): (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}


def _wider(x: Any) -> Any:
    return x.astype(jnp.float32) if x.dtype.itemsize == 2 else x


def _power_of_two(n: Any, dtype: Any) -> Any:
    """`2^n` for integers in a floating dtype, exact; beyond its normal numbers 0 or inf."""
    info = jnp.finfo(dtype)
    bias, digits = info.maxexp - 1, info.nmant
    integer = np.dtype(f"int{info.bits}")
    field = jnp.clip(n, -bias, bias + 1).astype(integer) + np.asarray(bias, integer)
    return lax.bitcast_convert_type(field << np.asarray(digits, integer), dtype)


def _times_power(x: Any, n: Any) -> Any:
    """`x · 2^n` for an array of integers: in two steps, because `2^n` alone may not fit."""
    half = n // 2
    return x * _power_of_two(half, x.dtype) * _power_of_two(n - half, x.dtype)


def _exp(node: Node, operands: list[Any]) -> list[Any]:
    out = node.outputs[0]
    if not out.exponent:
        return _compat.bind(node.equation, operands)
    x = _wider(operands[0])
    high, low = _LOG2_PARTS[np.dtype(x.dtype)]
    lift = lambda v: jnp.asarray(v, x.dtype)
    limit = 4.0 * jnp.finfo(x.dtype).maxexp + abs(out.exponent)
    n = jnp.clip(jnp.round(x * lift(1 / math.log(2))), lift(-limit), lift(limit))
    r = (x - n * lift(high)) - n * lift(low)
    whole = jnp.where(jnp.isfinite(n), n, 0).astype(np.int32) - np.int32(out.exponent)
    return [_times_power(jnp.exp(r), whole).astype(out.aval.dtype)]


def _exp2(node: Node, operands: list[Any]) -> list[Any]:
    out = node.outputs[0]
    if not out.exponent:
        return _compat.bind(node.equation, operands)
    x = _wider(operands[0])
    limit = 4.0 * jnp.finfo(x.dtype).maxexp + abs(out.exponent)
    n = jnp.clip(jnp.round(x), jnp.asarray(-limit, x.dtype), jnp.asarray(limit, x.dtype))
    whole = jnp.where(jnp.isfinite(n), n, 0).astype(np.int32) - np.int32(out.exponent)
    return [_times_power(jnp.exp2(x - n), whole).astype(out.aval.dtype)]


def _log(node: Node, operands: list[Any]) -> list[Any]:
    from ._replay import convert

    exponent, dtype = node.uses[0].exponent, node.outputs[0].aval.dtype
    if not exponent:
        return _compat.bind(node.equation, operands)
    stored = _wider(operands[0])
    plain = convert(stored, exponent)
    info = jnp.finfo(dtype if stored.dtype.itemsize == 2 else stored.dtype)
    # Near 1 the two terms would cancel; there the number itself fits.
    fits = jnp.isfinite(plain) & (jnp.abs(plain) >= jnp.asarray(info.smallest_normal, plain.dtype))
    binary = node.primitive == "log2"
    log, unit = (jnp.log2, 1.0) if binary else (jnp.log, math.log(2))
    shifted = log(stored) + jnp.asarray(exponent * unit, stored.dtype)
    return [jnp.where(fits, log(plain), shifted).astype(dtype)]


class _Scaled:
    """A number stored at an exponent, while a power is computed: `(array + rest) · 2^exponent`."""

    def __init__(self, array: Any, rest: Any, exponent: int) -> None:
        self.array, self.rest, self.exponent = array, rest, exponent

    def at(self, exponent: int) -> _Scaled:
        from ._replay import convert

        shift = self.exponent - exponent
        return _Scaled(convert(self.array, shift), convert(self.rest, shift), exponent)

    def times(self, other: _Scaled, exponent: int) -> _Scaled:
        product = self.array * other.array
        error = _product_error(self.array, other.array, product)
        error += self.array * other.rest + self.rest * other.array
        total = product + error
        rest = error - (total - product)
        return _Scaled(total, rest, self.exponent + other.exponent).at(exponent)

    def inverse(self) -> _Scaled:
        quotient = 1 / self.array
        error = (1 - quotient * self.array) - _product_error(
            quotient, self.array, quotient * self.array
        )
        return _Scaled(quotient, (error - quotient * self.rest) * quotient, -self.exponent)


def _halves(x: Any) -> tuple[Any, Any]:
    """A number as the sum of two of half its length, whose products are exact."""
    integer = np.dtype(f"uint{x.dtype.itemsize * 8}")
    short = (jnp.finfo(x.dtype).nmant + 2) // 2
    mask = np.asarray(np.iinfo(integer).max << short & np.iinfo(integer).max, integer)
    upper = lax.bitcast_convert_type(lax.bitcast_convert_type(x, integer) & mask, x.dtype)
    return upper, x - upper


def _product_error(x: Any, y: Any, product: Any) -> Any:
    """What rounding took from a product."""
    (a, b), (c, d) = _halves(x), _halves(y)
    return ((a * c - product) + a * d + b * c) + b * d


def _integer_pow(node: Node, operands: list[Any]) -> list[Any]:
    """By repeated squaring, every product brought back to the middle of its range."""
    n, out, use = node.params["y"], node.outputs[0], node.uses[0]
    if out.exponent == n * use.exponent and abs(n) <= 3:
        return _compat.bind(node.equation, operands)
    magnitude = use.value.magnitude
    known = magnitude is not None and not magnitude.is_zero
    low = magnitude.low if known else float(use.exponent)  # type: ignore[union-attr]
    high = magnitude.high if known else float(use.exponent)  # type: ignore[union-attr]
    middle = (max(low, high - 60.0) + high) / 2
    stored = _wider(operands[0])
    base = _Scaled(stored, jnp.zeros_like(stored), use.exponent).at(round(middle))
    total, done, step = None, 0, 1
    left = abs(n)
    while left:
        if left & 1:
            done += step
            total = base if total is None else total.times(base, round(done * middle))
        left >>= 1
        if left:
            step *= 2
            base = base.times(base, round(step * middle))
            # XLA would compute every square anew wherever it is used: 2^n operations.
            array, rest = lax.optimization_barrier((base.array, base.rest))
            base = _Scaled(array, rest, base.exponent)
    assert total is not None
    if n < 0:
        total = total.inverse()
    return [total.at(out.exponent).array.astype(out.aval.dtype)]


def _pow(node: Node, operands: list[Any]) -> list[Any]:
    """With a power not known at planning time: a root of the result, squared again and again."""
    base, out = node.uses[0], node.outputs[0]
    if base.exponent or not out.exponent:  # a known power: the rows made the exponents right
        return _compat.bind(node.equation, operands)
    dtype = out.aval.dtype
    x, y = map(_wider, operands)
    largest = abs(out.magnitude.high) + abs(out.exponent) if out.magnitude else abs(out.exponent)
    halvings = max(1, math.ceil(math.log2(max(2.0, largest / (jnp.finfo(x.dtype).maxexp * 0.9)))))
    step = 2**halvings
    root = jnp.power(jnp.abs(x), y / jnp.asarray(float(step), y.dtype))
    total = _Scaled(root, jnp.zeros_like(root), 0).at(round(out.exponent / step))
    for k in range(halvings):
        total = total.times(total, round(out.exponent / 2 ** (halvings - 1 - k)))
    sign = jnp.where(x < 0, jnp.power(jnp.sign(x), y), jnp.ones_like(x))
    return [(total.array * sign).astype(dtype)]


IDENTITIES: dict[str, Callable[[Node, list[Any]], list[Any]]] = {
    "exp": _exp,
    "exp2": _exp2,
    "log": _log,
    "log2": _log,
    "integer_pow": _integer_pow,
    "pow": _pow,
}
