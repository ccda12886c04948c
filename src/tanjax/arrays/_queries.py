"""What one asks of a natural (co)tangent, whatever it is made of.

A natural (co)tangent may be a dense array, an `Outer` product that nobody wants formed, a
`Diagonal`, a sum of such. An array type that pulls it back needs only a little of it: its
diagonal, its product with a thin matrix, one block. These functions ask for that little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tanjax._errors import wrong_natural_shape

from ._abstract import (
    _ARRAY_CLASSES,
    AbstractArray,
    as_array,
    without_promise as without_promise,
)
from ._default_maps import is_inexact
from ._densify import densified
from ._register import array_type

HINT = "convert it with `tj.destructure` if a dense result is meant"


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


def conj(x: Any) -> Any:
    """The complex conjugate."""
    return x.conj() if isinstance(x, AbstractArray) else jnp.conj(dense(x))


def canonical(x: Any) -> Any:
    """The same array with its storage invariant enforced."""
    return x.canonical() if isinstance(x, AbstractArray) else x


def is_dense(x: Any) -> bool:
    """Whether a natural (co)tangent is formed already."""
    return array_type(x) is None


def thin_pairing(x: Any, natural: Any) -> tuple[Callable[[Any], Any], Any] | None:
    """A query `q` and a cotangent `c` with `⟨c, q(x)⟩ = ⟨natural, D(x)⟩`, if `x` answers one.

    `⟨l rᵀ, D⟩ = ⟨l, D r⟩`: what a thin cotangent asks of a type, the type has written down. Its
    storage invariant is enforced first, as `to_dense` does.
    """
    from ._diagonal import Diagonal
    from ._fill import Fill
    from ._outer import Outer

    has = lambda query: getattr(type(x), query) is not getattr(AbstractArray, query)
    if not isinstance(x, AbstractArray):
        return None
    if isinstance(natural, Outer) and natural.left.ndim == 2 and has("apply"):
        left, right = natural.left, natural.right
        if left.shape[1] == 1:
            left, right = left[:, 0], right[:, 0]
        return lambda x: x.canonical().apply(right), left
    if isinstance(natural, Diagonal) and natural.diag.ndim == 1 and has("diagonal"):
        return lambda x: x.canonical().diagonal(), natural.diag
    if isinstance(natural, Fill) and natural.value.ndim == 0 and has("total"):
        return lambda x: x.canonical().total(), natural.value
    return None


def pair(x: Any, y: Any) -> Any:
    """The pairing `Σ xᵢⱼ yᵢⱼ`, without conjugation, through whichever side is thinner."""
    for a, b in ((x, y), (y, x)):
        if isinstance(a, AbstractArray) and type(a).pair is not AbstractArray.pair:
            return a.pair(b)
    return jnp.sum(dense(x) * dense(y))


def scaled(x: Any, factor: Any) -> Any:
    """`factor * x` for a scalar: of a type that can express it, otherwise a lazy `Scaled`."""
    if is_dense(x):
        return jnp.asarray(x) * factor
    if not isinstance(x, AbstractArray):
        return densified(x, "multiply", HINT) * factor
    multiple = x.scaled(factor)
    if multiple is not NotImplemented:
        return multiple
    from ._scaled import Scaled

    return Scaled(x, jnp.asarray(factor, jnp.result_type(x.dtype, factor)))


def plus(*terms: Any) -> Any:
    """The sum of natural (co)tangents: of one linear type leaf by leaf, otherwise a lazy `Sum`."""
    from ._sum import Sum
    from ._zero import Zero

    nonzero = [t for t in terms if not isinstance(t, Zero)]
    if len(nonzero) < 2:
        return nonzero[0] if nonzero else terms[0]
    first = nonzero[0]
    if all(_have_one_space(first, t) for t in nonzero[1:]):
        return jax.tree.map(
            lambda *leaves: sum(leaves[1:], leaves[0]) if is_inexact(leaves[0]) else leaves[0],
            *nonzero,
        )
    return Sum(*nonzero)


def _have_one_space(x: Any, y: Any) -> bool:
    """Whether two (co)tangents add leaf by leaf: dense, or of one linear type with one pattern."""
    if jax.tree.structure(x) != jax.tree.structure(y):
        return False
    if not isinstance(x, AbstractArray):
        return True
    pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    same = (p.shape == q.shape if is_inexact(p) else p is q for p, q in pairs)
    return bool(x.is_linear) and all(same)


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
