"""Queries of a natural (co)tangent of any type.

A natural (co)tangent may be a dense array, an `Outer` product that should stay unformed, a
`Diagonal`, or a sum of these. An array type that pulls it back needs only a small part of it: its
diagonal, its product with a thin matrix, one block. These functions return that part.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

from tanjax._errors import ShapeError, describe, wrong_natural_shape
from tanjax._typing import (
    AnyArray,
    Arraylike,
    DenseArray,
    LinearTerms,
    Matrixlike,
    Natural,
    Places,
    Primal,
    Query,
    Scalar,
    Shape,
)

from ._leaves import ARRAY_CLASSES, as_array, held, holds_array
from ._places import gather_entries
from ._table import answers, array_type, is_own


def array(x: Arraylike) -> Natural:
    """Return a structured array unchanged, and anything else as a `jax.Array`."""
    if type(x) in ARRAY_CLASSES or array_type(x):
        return x
    return array(held(x)) if holds_array(x) else as_array(x)


def matrices(cls: str, what: str, given: tuple[Matrixlike, ...]) -> tuple[Natural, ...]:
    """Convert to a tuple of matrices. **Raises:** `ShapeError` for none, or for a non-matrix."""
    found = tuple(map(array, given))
    if not found or [m for m in found if len(m.shape) != 2]:
        got = ", ".join(map(describe, found))
        text = f"{cls}: needs at least one {what}, and all of them matrices."
        raise ShapeError(f"{text}\n  got: {got}")
    return found


def shape(x: Primal) -> Shape:
    """Return the shape of the dense array."""
    if hasattr(x, "shape"):
        return tuple(x.shape)
    kind = array_type(x)
    return jnp.shape(x) if kind is None else tuple(jax.eval_shape(kind.destructure, x).shape)


def dense(x: Primal) -> Shaped[DenseArray, " ..."]:
    """Return the dense array."""
    kind = array_type(x)
    return jnp.asarray(x) if kind is None else kind.destructure(x)


def apply(x: Primal, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
    """Return `x @ b` for a dense vector or matrix `b`."""
    return x.apply(b) if is_own(x) else dense(x) @ b


def transposed(x: Primal) -> Shaped[AnyArray, "... n m"]:
    """Return `xᵀ`, without conjugation."""
    return x.transposed() if is_own(x) else jnp.swapaxes(dense(x), -1, -2)


def diagonal(x: Primal) -> Shaped[DenseArray, "... k"]:
    """Return the main diagonal."""
    return x.diagonal() if is_own(x) else jnp.diagonal(dense(x))


def off_diagonal(x: Primal, offset: int) -> Shaped[DenseArray, "... k"]:
    """Return the entries `x[i, i + offset]`, as a band stores them."""
    return x.off_diagonal(offset) if is_own(x) else jnp.diagonal(dense(x), offset, -2, -1)


def entries_at(x: Primal, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
    """Return the entries at known places, as a sparse matrix stores them."""
    return x.entries_at(rows, columns) if is_own(x) else gather_entries(dense(x), rows, columns)


def total(x: Primal) -> Shaped[DenseArray, " ..."]:
    """Return the sum of all entries."""
    return x.total() if is_own(x) else jnp.sum(dense(x))


def submatrix(x: Primal, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
    """Return a contiguous sub-matrix."""
    return x.submatrix(rows, columns) if is_own(x) else dense(x)[rows, columns]


def conj(x: Primal) -> Natural:
    """Return the complex conjugate."""
    return x.conj() if is_own(x) else jnp.conj(dense(x))


def canonical(x: Primal) -> Primal:
    """Return the same array with its storage invariant restored."""
    return x.canonical() if is_own(x) else x


def without_promise(x: Primal) -> Primal:
    """Return the same array without `definite=True`, a promise that its tangents do not keep."""
    return x.replace(definite=False) if getattr(x, "definite", False) is True else x


def is_hermitian(x: Primal) -> bool:
    """True if the type guarantees a Hermitian matrix."""
    return is_own(x) and x.is_hermitian and len(x.shape) >= 2 and x.shape[-1] == x.shape[-2]


def is_real(x: Primal) -> bool:
    """True if the numbers are real."""
    return not jnp.issubdtype(x.dtype, jnp.complexfloating)


def is_dense(x: Primal) -> bool:
    """True if a natural (co)tangent is a dense array."""
    return array_type(x) is None


def as_query(x: Arraylike) -> Query:
    """Return the query of a thin (co)tangent, or a query with an empty name for any other."""
    return (x.as_query() if is_own(x) else None) or ("", (), jnp.zeros(()))


def thin_pairing(x: Primal, natural: Arraylike) -> tuple[Callable[[Primal], Array], Array] | None:
    """Return `q` and `c` with `⟨c, q(x)⟩ = ⟨natural, D(x)⟩`, or None if `x` lacks the query `q`.

    `⟨l rᵀ, D⟩ = ⟨l, D r⟩`: the type's own `apply` gives the pairing with an `Outer`. The query
    first restores the storage invariant, as `to_dense` does.
    """
    query, arguments, cotangent = as_query(natural)
    if not answers(x, query):
        return None
    return lambda x: getattr(x.canonical(), query)(*arguments), cotangent


def inner_product(x: Primal, y: Primal) -> Scalar:
    """Return the pairing `Σ xᵢⱼ yᵢⱼ`, without conjugation, by the side that implements it."""
    for a, b in ((x, y), (y, x)):
        if answers(a, "inner_product"):
            return a.inner_product(b)
    return jnp.sum(dense(x) * dense(y))


COLUMNS = 64  # formed at a time in the pairing of two structured matrices, instead of n by n


def pairing(x: Primal, other: Natural) -> Scalar:
    """Return `⟨x, other⟩` for a type whose own formula would densify `other`.

    A linear combination sums over its terms. A thin (co)tangent queries `x`. For two other types,
    a loop forms a few columns of each at a time.
    """
    zero = jnp.zeros((), jnp.result_type(x.dtype, other.dtype))
    terms = linear_terms(other)
    if terms is not None:
        return sum((inner_product(x, t) * (1 if f is None else f) for f, t in terms), zero)
    if as_query(other)[0]:
        return other.inner_product(x)
    n = shape(x)[-1]

    @jax.checkpoint
    def add(total: Scalar, start: Scalar) -> tuple[Scalar, None]:
        places = start + jnp.arange(COLUMNS)
        some = lambda a: apply(a, (jnp.arange(n)[:, None] == places).astype(a.dtype))
        return total + jnp.sum(some(x) * some(other)), None

    return jax.lax.scan(add, zero, jnp.arange(0, n, COLUMNS))[0]


def linear_terms(x: Primal) -> LinearTerms | None:
    """Return factors and arrays of a lazy linear combination; None for other (co)tangents."""
    return x.linear_terms() if is_own(x) else None


def without_unit(where: str, x: Primal, natural: Arraylike) -> Arraylike:
    """Strip a dimensionless unit from a natural (co)tangent of an array without a unit."""
    if getattr(natural, "has_unit", False) and not getattr(x, "has_unit", False):
        return natural.plain(where)
    return natural


def check_natural(where: str, x: Primal, natural: Arraylike) -> None:
    """Raise `CotangentError` unless the natural (co)tangent has the shape of its primal."""
    expected = shape(x)
    if shape(natural) != expected:
        raise wrong_natural_shape(where, expected, natural)
