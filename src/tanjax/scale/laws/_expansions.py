"""Primitives that stand for a program: polynomials, `ldexp`, `searchsorted`, sparse products.

They have no law of their own, but the primitives of their program have laws. The graph treats such
an equation as a call of that program; if no exponent touches it, the primitive itself runs.

    expansion(equation)  # of `polynomial x a b c`: the jaxpr of (a x + b) x + c

Sharp edges: if an exponent touches it, a polynomial is rounded like Horner's scheme in the dtype.
A reduction by a user's function combines halves, in an order that may differ from XLA's.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from tanjax import _compat, _jaxprs, jaxprs
from tanjax._jaxpr_types import ClosedJaxpr, JaxEquation, Steps
from tanjax._typing import Factor, Function

from . import _lu
from ._forms import reducer_of
from ._windows import REDUCERS


def _polynomial(x: Array, *coefficients: Array, **_: object) -> Array:
    """Evaluate Horner's scheme; the constant coefficient is first, any operand may broadcast."""
    total, *rest = coefficients[::-1]
    total = jnp.broadcast_to(total, jnp.broadcast_shapes(*map(jnp.shape, (x, *coefficients))))
    for coefficient in rest:
        total = total * x + coefficient
    return total


def _symmetric_product(a: Array, c: Array, *, alpha: Factor, beta: Factor, **_: object) -> Array:
    product = alpha * (a @ jnp.swapaxes(a, -1, -2))
    return product + beta * c if beta else product


def _ldexp(x: Array, n: Array) -> Array:
    """Multiply by a power of 2, in float32 for numbers of 16 bits, since 2^n may be large."""
    dtype = jnp.float32 if x.dtype.itemsize == 2 else x.dtype
    two = jnp.power(jnp.asarray(2.0, dtype), n.astype(dtype))
    return (x.astype(dtype) * two).astype(x.dtype)


def _frexp(x: Array) -> tuple[Array, Array]:
    """Use a logarithm, and correct it where it is off by one next to a power of two."""
    dtype = jnp.float32 if x.dtype.itemsize == 2 else x.dtype
    ordinary = jnp.isfinite(x) & (x != 0)
    y = jnp.where(ordinary, x, jnp.ones_like(x)).astype(dtype)
    e = jnp.floor(jnp.log2(jnp.abs(y))).astype(jnp.int32) + 1
    m = y * jnp.power(jnp.asarray(2.0, dtype), -e.astype(dtype))
    over, under = jnp.abs(m) >= 1, jnp.abs(m) < 0.5
    m = jnp.where(over, m * 0.5, jnp.where(under, m * 2, m)).astype(x.dtype)
    e = e + over.astype(jnp.int32) - under.astype(jnp.int32)
    return jnp.where(ordinary, m, x), jnp.where(ordinary, e, 0)


def _reduction(
    *operands: Array, jaxpr: Steps, dimensions: Sequence[int], **_: object
) -> list[Array]:
    """Combine one half of the entries with the other until one is left, then with the start.

    **Arguments:** `operands`: arrays, then as many numbers to start with.
    """
    each = functools.partial(_jaxprs.evaluate, *jaxprs.opened(jaxpr))
    count = len(operands) // 2
    arrays = [jnp.moveaxis(x, dimensions, range(len(dimensions))) for x in operands[:count]]
    kept = arrays[0].shape[len(dimensions) :]
    arrays = [x.reshape(-1, *kept) for x in arrays]
    for _axis in range(len(kept) + 1):
        each = jax.vmap(each)
    while (size := arrays[0].shape[0]) > 1:
        half = size // 2
        pairs = [*(x[:half] for x in arrays), *(x[half : 2 * half] for x in arrays)]
        done = each(*pairs)
        arrays = [jnp.concatenate([x, y[2 * half :]]) for x, y in zip(done, arrays, strict=True)]
    starts = [jnp.broadcast_to(x, (1, *kept)) for x in operands[count:]]
    return [x.reshape(kept) for x in (each(*starts, *arrays) if size else starts)]


_PROGRAMS: dict[str, Function] = {
    "polynomial": _polynomial,
    "symmetric_product": _symmetric_product,
}
# JAX's functions that take numbers apart, with the kinds of their operands and results. Up to
# JAX 0.11 they are bit operations, which are right only at exponent 0.
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
    if name == "reduce" and reducer_of(equation) not in REDUCERS:
        return functools.partial(_reduction, **params)
    if (higher := _compat.higher_primitive(equation)) is not None:
        return higher.expand  # type: ignore[no-any-return]
    return _compat.sparse_program(equation)


def _kinds(equation: JaxEquation) -> str:
    """Return the kinds of operands and results: `fi>f` for (float, integer) to float.

    Kinds tell a function from its derivatives, which have the same name.
    """
    kind = lambda v: "f" if jnp.issubdtype(v.aval.dtype, jnp.floating) else "i"
    return "".join(map(kind, equation.invars)) + ">" + "".join(map(kind, equation.outvars))


def is_expanded(equation: JaxEquation) -> bool:
    """True if an equation stands for a program."""
    return _program(equation) is not None


def expansion(equation: JaxEquation) -> ClosedJaxpr:
    """Return the closed jaxpr of the program that an equation stands for."""
    run = _program(equation)
    assert run is not None
    avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    with jax.numpy_rank_promotion("allow"):
        return jax.make_jaxpr(run)(*avals)


def nested_jaxprs(equation: JaxEquation) -> tuple[Steps, ...]:
    """Return the jaxprs that an equation runs, or that of the program that it stands for."""
    return (expansion(equation),) if is_expanded(equation) else jaxprs.nested_jaxprs(equation)


def law_name(equation: JaxEquation) -> str:
    """Return the name in `LAWS` for the law of an equation as a node of a graph."""
    if is_expanded(equation):
        return jaxprs.names_of(jaxprs.Kind.CALL)[0]
    return _lu.NAME if equation.primitive.name == "lu" else equation.primitive.name
