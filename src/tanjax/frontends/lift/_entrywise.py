"""Entrywise functions on types that store their entries: a zero entry stays zero.

    tj.lift(jnp.tanh)(tj.Diagonal(x))   # a Diagonal, of `jnp.tanh(x)`

A function that is not zero at zero fills the matrix, so this module does not handle it. In types
whose fields are not entries (`Kronecker`, `LowRank`, sums), every entry is a sum of products.
`lift` densifies them, with a `DensifyWarning`.
"""

from __future__ import annotations

from types import NotImplementedType
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import PyTree, Shaped

from tanjax import operations as ops
from tanjax._jaxpr_types import JaxEquation
from tanjax._typing import DenseArray, Function, Natural
from tanjax.arrays import (
    AbstractArray,
    BlockDiagonal,
    Diagonal,
    Hermitian,
    Identity,
    Kronecker,
    Permutation,
    Scaled,
    Triangular,
    Zero,
    is_real,
    is_structured,
    without_promise,
)

# The array of the entries, if its type can hold them.
Kept: TypeAlias = Natural | NotImplementedType

# Zero at zero, real for real numbers, conjugate for conjugate ones: Hermitian stays Hermitian.
_EVERYWHERE = {
    *("abs", "asinh", "atan", "cbrt", "ceil", "erf", "expm1", "floor", "integer_pow", "max", "min"),
    *("real", "round", "sign", "sin", "sinh", "square", "tan", "tanh"),
}
# Zero at zero, with a branch cut along real numbers, or imaginary ones for conjugates.
_CUT = {"asin", "atanh", "erf_inv", "imag", "log1p", "pow", "sqrt"}
# For these, the value of a product is the product of the values of its factors.
_MULTIPLICATIVE = {"abs", "integer_pow", "sign", "square"}
_ONE_AT_ONE = _MULTIPLICATIVE | {"cbrt", "ceil", "floor", "pow", "real", "round", "sqrt"}
UNARY = (_EVERYWHERE | _CUT) - {"max", "min", "pow"}


def unary(eqn: JaxEquation, a: PyTree) -> Kept:
    """Apply an equation of one operand entry by entry, or return `NotImplemented`."""
    if eqn.params.get("y", 1) <= 0:  # an integer power
        return NotImplemented
    return _mapped(eqn, a, lambda v: eqn.primitive.bind(v, **eqn.params))


def power(eqn: JaxEquation, a: PyTree, exponent: PyTree) -> Kept:
    """Return a power of each entry, if the exponent is a known positive number."""
    if is_structured(exponent) or not _is_known(exponent):
        return NotImplemented
    number = complex(exponent)  # the exponent is a number if the entries are
    if number.imag or not number.real > 0:
        return NotImplemented
    return _mapped(eqn, a, lambda v: eqn.primitive.bind(v, exponent, **eqn.params))


def bounded(eqn: JaxEquation, a: PyTree, b: PyTree) -> Kept:
    """Return `max` or `min` of each entry and a known number, if that keeps zeros."""
    a, bound = (b, a) if is_structured(b) else (a, b)
    if is_structured(bound) or not _is_known(bound):
        return NotImplemented
    kept = float(bound) <= 0 if eqn.primitive.name == "max" else float(bound) >= 0
    if not kept:
        return NotImplemented
    return _mapped(eqn, a, lambda v: eqn.primitive.bind(v, jnp.full(v.shape, bound, v.dtype)))


def _is_known(x: PyTree) -> bool:
    return not isinstance(x, jax.core.Tracer) and jnp.ndim(x) == 0


def _mapped(eqn: JaxEquation, a: PyTree, function: Function) -> Kept:
    return _entrywise(a, function, eqn.primitive.name)


def _entrywise(a: PyTree, function: Function, name: str) -> Kept:
    """Apply `function` to every entry, also in dense blocks."""
    again = lambda x: _entrywise(x, function, name)
    if not is_structured(a):
        return function(a)
    if isinstance(a, BlockDiagonal) or (isinstance(a, Kronecker) and name in _MULTIPLICATIVE):
        parts = list(map(again, a.blocks if isinstance(a, BlockDiagonal) else a.factors))
        refused = any(p is NotImplemented for p in parts)
        return NotImplemented if refused else type(a)(*parts)
    if isinstance(a, Scaled):
        batch = jnp.ndim(a.factor)  # one factor per matrix
        product = ops.multiply(a.matrix, jnp.expand_dims(a.factor, (-2, -1)) if batch else a.factor)
        return NotImplemented if isinstance(product, Scaled) else again(product)
    if isinstance(a, Zero):
        return a.astype(function(jnp.zeros((), a.dtype)).dtype)
    if isinstance(a, Identity):
        return again(Diagonal(jnp.ones(a.n, a.dtype)))
    if isinstance(a, Permutation):
        one = function(jnp.ones((), a.dtype))
        return a.astype(one.dtype) if name in _ONE_AT_ONE else NotImplemented
    if isinstance(a, Triangular) and a.unit_diagonal:
        a = Triangular(a.to_dense(), a.lower)
    if isinstance(a, Hermitian):
        stored = name in _EVERYWHERE or is_real(a)
    else:
        stored = isinstance(a, AbstractArray) and a.fields_are_entries
    if not stored:
        return NotImplemented
    x = without_promise(a.canonical())
    used = jax.tree.map(lambda v: v != 0, jax.tree.map(jnp.ones_like, x).canonical())
    return jax.tree.map(lambda v, there: _where(there, function(v)), x, used)


def _where(there: Shaped[Array, " ..."], out: DenseArray) -> DenseArray:
    """Set the entries beside the stored ones to zero, where a tangent may be nan."""
    return jnp.where(there, out, jnp.zeros((), out.dtype))


HANDLERS: dict[str, Function] = {
    **dict.fromkeys(UNARY, unary),
    **{"pow": power, "max": bounded, "min": bounded},
}
