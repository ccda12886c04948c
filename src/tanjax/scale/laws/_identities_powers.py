"""Powers and products whose operands or results overflow or underflow.

`(m·2^e)^y = m^y · 2^n · 2^f`, where `n` is the integer part and `f` the fraction of `e·y`, computed
in twice the length of the dtype. `m` is near 1 and so is its power; `n` may have any size.
Products of many numbers keep their exponents in an integer beside them.

    (x * x) ** (1 / 3)  # of 1e20 in float32: 2.154e13

Sharp edges. A power like `1 / 3` is a rounded number; times an exponent of 130 its error is six
units in the last place of the result. So a power within rounding of a fraction of small numbers
counts as that fraction. A complex power runs as it is: the exponent of its result is the power
times that of its base.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from tanjax import _compat
from tanjax._typing import DType

from ..graph._graph import Exponents, Node, Value
from ._powers_of_two import Number, Split, convert, product_error, split, times_power, wider

SIMPLE = 12  # the largest denominator of a fraction that a rounded power is taken for


def meant(number: float, dtype: DType) -> Fraction:
    """Return the fraction that was rounded to a number: `1 / 3` for 0.33333334."""
    simple = Fraction(number).limit_denominator(SIMPLE)
    unit = float(jnp.finfo(dtype).eps) / 2 * max(1.0, abs(number))
    return simple if abs(float(simple) - number) <= unit else Fraction(number)


def number_of(value: Value) -> Any:
    """Return the number that all entries of a value equal, if known at planning time, or None."""
    while value.constant is None and value.node is not None:
        if value.node.primitive not in ("broadcast_in_dim", "convert_element_type", "copy"):
            return None
        value = value.node.uses[0].value
    if value.constant is None or not value.size or not isinstance(value.aval.dtype, np.dtype):
        return None
    array = np.asarray(value.constant)
    wide = np.complex128 if np.iscomplexobj(array) else np.float64
    numbers = np.unique(array.astype(wide))
    return numbers[0].item() if len(numbers) == 1 and np.isfinite(numbers[0]) else None


def integer_pow(node: Node, operands: list[Array], at: Exponents) -> list[Array]:
    out, use = node.outputs[0], node.uses[0]
    n = node.params["y"]
    if at.of(out) == n * at.of(use):
        return _compat.bind(node.equation, operands)
    x = wider(operands[0])
    result = _power(x, np.asarray(float(n), x.dtype), Fraction(n), node, at)
    return [result.astype(out.aval.dtype)]


def pow_(node: Node, operands: list[Array], at: Exponents) -> list[Array]:
    base, out = node.uses[0], node.outputs[0]
    if not (at.of(base) or at.of(out)) or jnp.iscomplexobj(operands[0]):
        return _compat.bind(node.equation, operands)
    known = number_of(node.uses[1].value)
    exact = None
    if known is not None and isinstance(known, float):
        exact = meant(known, base.value.aval.dtype)
        if Fraction(at.of(out)) == exact * at.of(base):
            return _compat.bind(node.equation, operands)
    x = wider(operands[0])
    y = operands[1].astype(x.dtype) if exact is None else np.asarray(float(exact), x.dtype)
    return [_power(x, y, exact, node, at).astype(out.aval.dtype)]


def _power(x: Array, y: Number, exact: Fraction | None, node: Node, at: Exponents) -> Array:
    """Return `(x·2^t)^y · 2^-s`. `exact`: the power, if known; then `y` is `exact`, rounded."""
    t, s = at.of(node.uses[0]), at.of(node.outputs[0])
    m, e = split(jnp.abs(x))
    e = e + np.int32(t)
    whole, part = _times_integer(y, e, s, exact)
    halvings = _halvings(node, s, exact)
    root = jnp.power(m, y / jnp.asarray(2.0**halvings, y.dtype))
    if halvings:
        root, more = split(root)
        whole = whole + (more << np.int32(halvings))
    for _ in range(halvings):
        root = lax.optimization_barrier(root * root)  # or XLA computes it again at every use
    result = times_power(root * jnp.power(jnp.asarray(2.0, y.dtype), part), whole - np.int32(s))
    result = jnp.where(x < 0, result * jnp.power(jnp.sign(x), y), result)
    ordinary = (x != 0) & jnp.isfinite(x) & jnp.isfinite(y)
    special = convert(jnp.power(convert(x, t), y), -s)  # 0**0 is 1, and stored like any number
    return jnp.where(ordinary, result, special)


def _times_integer(y: Number, e: Array, s: int, exact: Fraction | None) -> tuple[Array, Array]:
    """Return `y · e` as an integer and a fraction; a product far out of range is clamped."""
    q = e.astype(y.dtype)
    product = y * q
    rest = product_error(y, q, product)
    if exact is not None:
        rest = rest + q * jnp.asarray(float(exact - Fraction(float(y))), y.dtype)
    limit = jnp.asarray(4.0 * jnp.finfo(y.dtype).maxexp + abs(s), y.dtype)
    near = jnp.abs(product) < limit
    n = jnp.round(jnp.where(near, product, jnp.sign(product) * limit))
    n = jnp.where(jnp.isnan(n), 0, n)
    return n.astype(np.int32), jnp.where(near, (product - n) + rest, 0)


def _halvings(node: Node, s: int, exact: Fraction | None) -> int:
    """Return how often the exponent of a number near 1 has to be halved so that its power fits.

    The power is at most `√2^y`, and no larger than the result, which fits at its exponent.
    """
    bits = jnp.finfo(node.outputs[0].aval.dtype).maxexp
    largest = abs(s) + 2.0 * bits
    if exact is not None:
        largest = min(largest, abs(float(exact)) / 2)
    room = 0.9 * max(bits, 127)
    return max(0, math.ceil(math.log2(max(largest, 1.0) / room)))


# -- products of many ---------------------------------------------------------------------------


def reduce_prod(node: Node, operands: list[Array], at: Exponents) -> list[Array]:
    out = node.outputs[0]
    t, s = at.of(node.uses[0]), at.of(out)
    if not (t or s or node.index in at.guarded):  # some of its products may not fit
        return _compat.bind(node.equation, operands)
    x, axes = wider(operands[0]), tuple(node.params["axes"])
    x = jnp.moveaxis(x, axes, range(len(axes)))
    x = x.reshape(-1, *out.aval.shape)
    count = x.shape[0]
    m, e = split(x)
    while m.shape[0] > 1:
        half = m.shape[0] // 2
        pair = split(m[:half] * m[half : 2 * half])
        (m, more), left, e_left = pair, m[2 * half :], e[2 * half :]
        e = jnp.concatenate([e[:half] + e[half : 2 * half] + more, e_left])
        m = jnp.concatenate([m, left])
    shift = np.int32(count * t - s)
    if not count:
        return [convert(jnp.ones(out.aval.shape, out.aval.dtype), -s)]
    return [times_power(m[0], e[0] + shift).astype(out.aval.dtype)]


def cumprod(node: Node, operands: list[Array], at: Exponents) -> list[Array]:
    out = node.outputs[0]
    t, s = at.of(node.uses[0]), at.of(out)
    if not (t or s or node.index in at.guarded):  # some of its products may not fit
        return _compat.bind(node.equation, operands)
    m, e = split(wider(operands[0]))

    def times(a: Split, b: Split) -> Split:
        product, more = split(a[0] * b[0])
        return product, a[1] + b[1] + more

    m, e = lax.associative_scan(
        times,
        (m, e + np.int32(t)),
        axis=node.params["axis"],
        reverse=node.params["reverse"],
    )
    return [times_power(m, e - np.int32(s)).astype(out.aval.dtype)]
