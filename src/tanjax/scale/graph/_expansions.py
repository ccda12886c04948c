"""Primitives that stand for a program: a polynomial, `ldexp`, `searchsorted`.

They have no law of their own, but what they stand for has. The graph treats such an equation as a
call of that program; where no exponent touches it, the primitive itself runs as before.

    expansion(equation)  # of `polynomial x a b c`: the jaxpr of (a x + b) x + c

Sharp edge: where it is touched, a polynomial is rounded as Horner's scheme in the dtype rounds it.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import Array

from tanjax import _compat
from tanjax._jaxpr_types import ClosedJaxpr, JaxEquation
from tanjax._typing import Factor, Function


def _polynomial(x: Array, *coefficients: Array, **_: object) -> Array:
    """Horner's scheme; the constant coefficient is the first, and any operand may be broadcast."""
    total, *rest = coefficients[::-1]
    total = jnp.broadcast_to(total, jnp.broadcast_shapes(*map(jnp.shape, (x, *coefficients))))
    for coefficient in rest:
        total = total * x + coefficient
    return total


def _symmetric_product(a: Array, c: Array, *, alpha: Factor, beta: Factor, **_: object) -> Array:
    product = alpha * (a @ jnp.swapaxes(a, -1, -2))
    return product + beta * c if beta else product


def _ldexp(x: Array, n: Array) -> Array:
    """By a power of 2, which has a law; of 16 bits by one in float32, since 2^n may be large."""
    dtype = jnp.float32 if x.dtype.itemsize == 2 else x.dtype
    two = jnp.power(jnp.asarray(2.0, dtype), n.astype(dtype))
    return (x.astype(dtype) * two).astype(x.dtype)


def _frexp(x: Array) -> tuple[Array, Array]:
    """By a logarithm, which may be off by one next to a power of two."""
    dtype = jnp.float32 if x.dtype.itemsize == 2 else x.dtype
    ordinary = jnp.isfinite(x) & (x != 0)
    y = jnp.where(ordinary, x, jnp.ones_like(x)).astype(dtype)
    e = jnp.floor(jnp.log2(jnp.abs(y))).astype(jnp.int32) + 1
    m = y * jnp.power(jnp.asarray(2.0, dtype), -e.astype(dtype))
    over, under = jnp.abs(m) >= 1, jnp.abs(m) < 0.5
    m = jnp.where(over, m * 0.5, jnp.where(under, m * 2, m)).astype(x.dtype)
    e = e + over.astype(jnp.int32) - under.astype(jnp.int32)
    return jnp.where(ordinary, m, x), jnp.where(ordinary, e, 0)


_PROGRAMS: dict[str, Function] = {
    "polynomial": _polynomial,
    "symmetric_product": _symmetric_product,
}
# JAX's own functions of numbers taken apart, by the kinds of their operands and results. Up to
# JAX 0.11 they are bit operations, which nothing but the number itself can go through.
_BY_BITS: dict[str, tuple[str, Function]] = {
    "ldexp": ("fi>f", _ldexp),
    "frexp": ("f>fi", _frexp),
}


def _program(equation: JaxEquation) -> Function | None:
    params, name = equation.params, equation.primitive.name
    if name in _PROGRAMS:
        return functools.partial(_PROGRAMS[name], **params)
    kinds, function = _BY_BITS.get(params.get("name", ""), ("", None))
    if function and kinds == _kinds(equation) and _compat.jax_function_of(equation):
        return function
    higher = _compat.higher_primitive(equation)
    return None if higher is None else higher.expand  # type: ignore[no-any-return]


def _kinds(equation: JaxEquation) -> str:
    """`fi>f`: a floating number and an integer to a number. Derivatives have the same name."""
    kind = lambda v: "f" if jnp.issubdtype(v.aval.dtype, jnp.floating) else "i"
    return "".join(map(kind, equation.invars)) + ">" + "".join(map(kind, equation.outvars))


def is_expanded(equation: JaxEquation) -> bool:
    """Whether an equation stands for a program."""
    return _program(equation) is not None


def expansion(equation: JaxEquation) -> ClosedJaxpr:
    """The closed jaxpr of the program that an equation stands for."""
    run = _program(equation)
    assert run is not None
    avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    with jax.numpy_rank_promotion("allow"):
        return jax.make_jaxpr(run)(*avals)
