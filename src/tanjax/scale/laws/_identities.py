"""Identities for functions of numbers that overflow or underflow, by powers of two.

`exp(x)` can be stored at any exponent: `x = n·log 2 + r` with an integer `n` and a small `r`, so
that `exp(x)·2^-s = exp(r)·2^(n-s)`. `log(v·2^t) = log v + t·log 2`. A sine of a tiny number is the
number, and an inverse hyperbolic sine of a huge number is a logarithm. A hyperbolic tangent of a
huge number is 1: there an operand may overflow, since infinity has the right limit. Identities cost
several operations, so a plan uses them only where it must; elsewhere the primitive itself runs.

    IDENTITIES["log1p"](node, [stored], exponents)  # of the node's use and result

Numbers of 16 bits are computed in float32 and rounded once.

Sharp edge: a sine of a huge number is NaN, as in plain JAX; none of its digits is known.

**References:** Cody and Waite 1980 for the reduction by a logarithm of two in two parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from tanjax import _compat

from ..graph._graph import Exponents, Node, is_floating
from . import _identities_powers as powers
from ._law import Replay
from ._powers_of_two import convert, product_error, times_power, wider

# log 2 in two parts: the first has so few digits that its product with an integer is exact.
_LOG2_PARTS = {
    np.dtype(np.float32): (0.693359375, -2.1219444005469057e-04),
    np.dtype(np.float64): (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
Apply: TypeAlias = Callable[[Array], Array]


def _number(value: float, like: Array) -> Array:
    return jnp.asarray(value, like.dtype)


def _of_one(law: Callable[[Array, Array, int, int, Apply], Array]) -> Replay:
    """Return the replay of a law `(stored, plain, t, s, f)`, whose result is at exponent `s`.

    `plain` is the true number, or 0 or inf if it underflows or overflows; `f` is the primitive.
    """

    def identity(node: Node, operands: list[Array], e: Exponents) -> list[Array]:
        out = node.outputs[0]
        t, s = e.of(node.uses[0]), e.of(out)
        if not (t or s):
            return _compat.bind(node.equation, operands)
        stored = wider(operands[0])
        plain = convert(stored, t)
        apply: Apply = lambda x: _compat.bind(node.equation, [x])[0]
        result = law(stored, plain, t, s, apply)
        return [result.astype(out.aval.dtype)]

    return identity


# -- exponentials -------------------------------------------------------------------------------


def exp_at(x: Array, s: int) -> Array:
    """Return `exp(x) · 2^-s`."""
    high, low = _LOG2_PARTS[np.dtype(x.dtype)]
    limit = 4.0 * jnp.finfo(x.dtype).maxexp + abs(s)
    n = jnp.clip(jnp.round(x * _number(1 / math.log(2), x)), -limit, limit)
    r = (x - n * _number(high, x)) - n * _number(low, x)
    return times_power(jnp.exp(r), _integer(n) - np.int32(s))


def exp2_at(x: Array, s: int) -> Array:
    """Return `2^x · 2^-s`."""
    limit = 4.0 * jnp.finfo(x.dtype).maxexp + abs(s)
    n = jnp.clip(jnp.round(x), -limit, limit)
    return times_power(jnp.exp2(x - n), _integer(n) - np.int32(s))


def _integer(n: Array) -> Array:
    return jnp.where(jnp.isfinite(n), n, 0).astype(np.int32)


def _exponential(of_real: Callable[[Array, int], Array], unit: float) -> Replay:
    """Return the replay of an exponential; a complex one has the size of its real part."""

    def law(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
        if not s:
            return f(x)
        if not jnp.iscomplexobj(x):
            return of_real(x, s)
        size, angle = of_real(x.real, s), x.imag * _number(unit, x.imag)
        return lax.complex(size * jnp.cos(angle), size * jnp.sin(angle))

    return _of_one(law)


def _expm1(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    one = convert(jnp.ones_like(x), -s)
    return jnp.where(x > 2, exp_at(x, s) - one, _near_zero(v, x, t, s, f, 1)) if s else f(x)


def _sinh(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    near = _near_zero(v, x, t, s, f, 2)
    if not s:
        return near
    size = jnp.abs(x)
    far = exp_at(size, s + 1) - exp_at(-size, s + 1)
    return jnp.where(size > 2, jnp.copysign(far, x), near)


def _cosh(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    return exp_at(x, s + 1) + exp_at(-x, s + 1) if s else f(x)


def _logistic(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    if not s:
        return f(x)
    return jnp.where(x < 0, exp_at(x, s) / (1 + jnp.exp(-jnp.abs(x))), convert(f(x), -s))


def _erfc(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    """Use the asymptotic series from 8 on, where it has all digits of float32."""
    single = x.dtype == jnp.float32
    if not s or not single:
        return convert(f(x), -s)
    far = jnp.clip(x, 8.0, 1e9)
    square = far * far
    rest = product_error(far, far, square)
    q = 1 / (2 * square)
    series = 1 - q * (1 - q * (3 - q * (15 - q * (105 - q * 945))))
    size = exp_at(-square, s) * jnp.exp(-rest) / (far * _number(math.sqrt(math.pi), x))
    return jnp.where(x > 8, size * series, convert(f(x), -s))


# -- logarithms and what grows like them --------------------------------------------------------


def _log_of(v: Array, x: Array, t: int, binary: bool = False) -> Array:
    """Return the logarithm of `v · 2^t`, which is `x` where that fits."""
    log, unit = (jnp.log2, 1.0) if binary else (jnp.log, math.log(2))
    size = jnp.maximum(jnp.abs(x.real), jnp.abs(x.imag)) if jnp.iscomplexobj(x) else jnp.abs(x)
    # Near 1 the two terms would cancel; there the number itself fits.
    fits = jnp.isfinite(x) & (size >= jnp.finfo(x.dtype).smallest_normal)
    shift = jnp.asarray(t * unit, v.dtype)
    return jnp.where(fits, log(x), log(v) + shift)


def _log(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    return convert(_log_of(v, x, t), -s)


def _log2(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    return convert(_log_of(v, x, t, binary=True), -s)


def _log1p(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    near = _near_zero(v, x, t, s, f, 1)
    return jnp.where(x > 2.0**60, convert(_log_of(v, x, t), -s), near)


def _asinh(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    near = _near_zero(v, x, t, s, f, 2)
    far = _log_of(jnp.abs(v), jnp.abs(x), t) + _number(math.log(2), x)
    return jnp.where(jnp.abs(x) > 2.0**60, jnp.copysign(convert(far, -s), v), near)


def _acosh(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    far = _log_of(v, x, t) + _number(math.log(2), x)
    return convert(jnp.where(x > 2.0**60, far, f(x)), -s)


# -- functions that are linear at zero, and others ----------------------------------------------


def _near_zero(
    v: Array, x: Array, t: int, s: int, f: Apply, order: int, slope: float = 1.0
) -> Array:
    """Return `f(x) · 2^-s`, where `f(x) = slope · x` up to a share of `x^order`."""
    small = 2.0 ** -((jnp.finfo(x.dtype).nmant + 2) // order)
    tiny = convert(v if slope == 1.0 else v * _number(slope, v), t - s)
    return jnp.where(jnp.abs(x) < small, tiny, convert(f(x), -s))


def _odd(slope: float = 1.0) -> Replay:
    return _of_one(lambda v, x, t, s, f: _near_zero(v, x, t, s, f, 2, slope))


def _plain(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    """Apply `f`, for which 0 and a tiny number, or inf and a huge one, give the same result."""
    return convert(f(x), -s)


def _whole(v: Array, x: Array, t: int, s: int, f: Apply) -> Array:
    """Apply `floor`, `ceil` or `round`: a huge number is whole, and a tiny one has a sign."""
    huge = ~(jnp.abs(x) < 2.0 ** jnp.finfo(x.dtype).nmant)
    smallest = jnp.copysign(_number(float(jnp.finfo(x.dtype).smallest_normal), x), v)
    seen = jnp.where((jnp.abs(x) < jnp.abs(smallest)) & (v != 0), smallest, x)
    return jnp.where(huge, convert(v, t - s), convert(f(seen), -s))


def _atan2(node: Node, operands: list[Array], e: Exponents) -> list[Array]:
    """Apply `atan2` to numbers at two exponents; far to the right of 0 it is their quotient."""
    out, (i, j) = node.outputs[0], map(e.of, node.uses)
    s = e.of(out)
    if i == j and not s:
        return _compat.bind(node.equation, operands)
    y, x = map(wider, operands)
    top = max(i, j)
    angle = _compat.bind(node.equation, [convert(y, i - top), convert(x, j - top)])[0]
    quotient = y / x
    ratio = convert(quotient, i - j)
    is_small = (jnp.abs(ratio) < 2.0 ** -(jnp.finfo(x.dtype).nmant // 2 + 1)) & (x > 0)
    result = jnp.where(is_small, convert(quotient, i - j - s), convert(angle, -s))
    return [result.astype(out.aval.dtype)]


def _convert_element_type(node: Node, operands: list[Array], e: Exponents) -> list[Array]:
    """Cast between dtypes at any exponents, in the wider of the two."""
    use, out, (x,) = node.uses[0], node.outputs[0], operands
    t, s, dtype = e.of(use), e.of(out), out.aval.dtype
    if not (t or s) or (t == s and use.value.is_floating and out.is_floating):
        return _compat.bind(node.equation, operands)
    if not out.is_floating:
        return _compat.bind(node.equation, [x if dtype == np.bool_ else convert(wider(x), t)])
    if x.dtype.itemsize < dtype.itemsize or not use.value.is_floating:
        wide = np.float32 if dtype.itemsize == 2 else dtype
        return [convert(x.astype(wide), t - s).astype(dtype)]
    return _compat.bind(node.equation, [convert(wider(x), t - s)])


def _gather(node: Node, operands: list[Array], e: Exponents) -> list[Array]:
    """Store the fill value at the exponent of the result."""
    fill, s = node.params["fill_value"], e.of(node.outputs[0])
    if fill is None or not s or not is_floating(node.outputs[0].aval):
        return _compat.bind(node.equation, operands)
    params = {**node.params, "fill_value": np.ldexp(fill, -s)}
    return _compat.bind(node.equation.replace(params=params), operands)


IDENTITIES: dict[str, Replay] = {
    "exp": _exponential(exp_at, 1.0),
    "exp2": _exponential(exp2_at, math.log(2)),
    "expm1": _of_one(_expm1),
    "sinh": _of_one(_sinh),
    "cosh": _of_one(_cosh),
    "logistic": _of_one(_logistic),
    "erfc": _of_one(_erfc),
    "log": _of_one(_log),
    "log2": _of_one(_log2),
    "log1p": _of_one(_log1p),
    "asinh": _of_one(_asinh),
    "acosh": _of_one(_acosh),
    "erf": _odd(2 / math.sqrt(math.pi)),
    "erf_inv": _odd(math.sqrt(math.pi) / 2),
    **dict.fromkeys(("sin", "tan", "tanh", "asin", "atan", "atanh"), _odd()),
    **dict.fromkeys(("cos", "acos"), _of_one(_plain)),
    **dict.fromkeys(("floor", "ceil", "round"), _of_one(_whole)),
    "atan2": _atan2,
    "convert_element_type": _convert_element_type,
    "gather": _gather,
    "integer_pow": powers.integer_pow,
    "pow": powers.pow_,
    "reduce_prod": powers.reduce_prod,
    "cumprod": powers.cumprod,
}
