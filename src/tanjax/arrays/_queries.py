"""What one asks of a natural (co)tangent, whatever it is made of.

A natural (co)tangent may be a dense array, an `Outer` product that nobody wants formed, a
`Diagonal`, a sum of such. An array type that pulls it back needs only a little of it: its
diagonal, its product with a thin matrix, one block. These functions ask for that little.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tanjax._errors import wrong_natural_shape

from ._abstract import _ARRAY_CLASSES, AbstractArray, as_array
from ._default_maps import is_inexact
from ._register import array_type


def array(x: Any) -> Any:
    """A structured array as it is, anything else as a `jax.Array`."""
    return x if type(x) in _ARRAY_CLASSES or array_type(x) else as_array(x)


def shape(x: Any) -> tuple[int, ...]:
    """The shape of the dense array."""
    if hasattr(x, "shape"):
        return tuple(x.shape)
    kind = array_type(x)
    return jnp.shape(x) if kind is None else tuple(jax.eval_shape(kind.destructure, x).shape)


def dense(x: Any) -> jax.Array:
    """The dense array, formed."""
    kind = array_type(x)
    return jnp.asarray(x) if kind is None else kind.destructure(x)


def apply(x: Any, b: Any) -> Any:
    """`x @ b` for a dense vector or matrix `b`."""
    return x.apply(b) if isinstance(x, AbstractArray) else dense(x) @ b


def transposed(x: Any) -> Any:
    """`xᵀ`, without conjugation."""
    return x.transposed() if isinstance(x, AbstractArray) else jnp.swapaxes(dense(x), -1, -2)


def diagonal(x: Any) -> Any:
    """The main diagonal."""
    return x.diagonal() if isinstance(x, AbstractArray) else jnp.diagonal(dense(x))


def total(x: Any) -> Any:
    """The sum of all entries."""
    return x.total() if isinstance(x, AbstractArray) else jnp.sum(dense(x))


def block(x: Any, rows: slice, columns: slice) -> Any:
    """A contiguous sub-matrix."""
    return x.block(rows, columns) if isinstance(x, AbstractArray) else dense(x)[rows, columns]


def pair(x: Any, y: Any) -> Any:
    """The pairing `Σ xᵢⱼ yᵢⱼ`, without conjugation, through whichever side is thinner."""
    for a, b in ((x, y), (y, x)):
        if isinstance(a, AbstractArray) and type(a).pair is not AbstractArray.pair:
            return a.pair(b)
    return jnp.sum(dense(x) * dense(y))


def scaled(x: Any, factor: Any) -> Any:
    """`factor * x`, in the same type where the type is a linear subspace."""
    if not isinstance(x, AbstractArray):
        return dense(x) * factor
    if x.is_linear:
        if getattr(x, "definite", False):
            x = x.replace(definite=False)  # the factor may be negative
        return jax.tree.map(lambda leaf: leaf * factor if is_inexact(leaf) else leaf, x)
    from ._scaled import Scaled

    return Scaled(x, factor)


def plus(*terms: Any) -> Any:
    """The sum of natural (co)tangents: of one linear type leaf by leaf, otherwise a lazy `Sum`."""
    from ._sum import Sum
    from ._zero import Zero

    nonzero = [t for t in terms if not isinstance(t, Zero)]
    if len(nonzero) < 2:
        return nonzero[0] if nonzero else terms[0]
    first = nonzero[0]
    same = all(jax.tree.structure(t) == jax.tree.structure(first) for t in nonzero[1:])
    if same and (not isinstance(first, AbstractArray) or first.is_linear):
        return jax.tree.map(
            lambda *leaves: sum(leaves[1:], leaves[0]) if is_inexact(leaves[0]) else leaves[0],
            *nonzero,
        )
    return Sum(*nonzero)


def without_unit(where: str, x: Any, natural: Any) -> Any:
    """A natural (co)tangent of an array without a unit: stripped, if it has no dimension."""
    if getattr(natural, "has_unit", False) and not getattr(x, "has_unit", False):
        return natural.plain(where)
    return natural


def check_natural(where: str, x: Any, natural: Any) -> None:
    """Raise `CotangentError` unless the natural (co)tangent has the shape of its primal."""
    expected = shape(x)
    if shape(natural) != expected:
        raise wrong_natural_shape(where, expected, natural)
