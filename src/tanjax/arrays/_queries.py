"""What one asks of a natural (co)tangent, whatever it is made of.

A natural (co)tangent may be a dense array, an `Outer` product that nobody wants formed, a
`Diagonal`, a sum of such. An array type that pulls it back needs only a little of it: its
diagonal, its product with a thin matrix, one block. These functions ask for that little.
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
    """A structured array as it is, anything else as a `jax.Array`."""
    if type(x) in ARRAY_CLASSES or array_type(x):
        return x
    return array(held(x)) if holds_array(x) else as_array(x)


def matrices(cls: str, what: str, given: tuple[Matrixlike, ...]) -> tuple[Natural, ...]:
    """At least one matrix. **Raises:** `ShapeError` if there is none, or one is none."""
    found = tuple(map(array, given))
    if not found or [m for m in found if len(m.shape) != 2]:
        got = ", ".join(map(describe, found))
        text = f"{cls}: needs at least one {what}, and all of them matrices."
        raise ShapeError(f"{text}\n  got: {got}")
    return found


def shape(x: Primal) -> Shape:
    """The shape of the dense array."""
    if hasattr(x, "shape"):
        return tuple(x.shape)
    kind = array_type(x)
    return jnp.shape(x) if kind is None else tuple(jax.eval_shape(kind.destructure, x).shape)


def dense(x: Primal) -> Shaped[DenseArray, " ..."]:
    """The dense array, formed."""
    kind = array_type(x)
    return jnp.asarray(x) if kind is None else kind.destructure(x)


def apply(x: Primal, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
    """`x @ b` for a dense vector or matrix `b`."""
    return x.apply(b) if is_own(x) else dense(x) @ b


def transposed(x: Primal) -> Shaped[AnyArray, "... n m"]:
    """`xᵀ`, without conjugation."""
    return x.transposed() if is_own(x) else jnp.swapaxes(dense(x), -1, -2)


def diagonal(x: Primal) -> Shaped[DenseArray, "... k"]:
    """The main diagonal."""
    return x.diagonal() if is_own(x) else jnp.diagonal(dense(x))


def off_diagonal(x: Primal, offset: int) -> Shaped[DenseArray, "... k"]:
    """The entries `x[i, i + offset]`: what a band stores."""
    return x.off_diagonal(offset) if is_own(x) else jnp.diagonal(dense(x), offset, -2, -1)


def entries_at(x: Primal, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
    """The entries at places that are known: what a sparse matrix stores."""
    return x.entries_at(rows, columns) if is_own(x) else gather_entries(dense(x), rows, columns)


def total(x: Primal) -> Shaped[DenseArray, " ..."]:
    """The sum of all entries."""
    return x.total() if is_own(x) else jnp.sum(dense(x))


def submatrix(x: Primal, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
    """A contiguous sub-matrix."""
    return x.submatrix(rows, columns) if is_own(x) else dense(x)[rows, columns]


def conj(x: Primal) -> Natural:
    """The complex conjugate."""
    return x.conj() if is_own(x) else jnp.conj(dense(x))


def canonical(x: Primal) -> Primal:
    """The same array with its storage invariant enforced."""
    return x.canonical() if is_own(x) else x


def without_promise(x: Primal) -> Primal:
    """The same array without the promise to be definite, which its tangents do not keep."""
    return x.replace(definite=False) if getattr(x, "definite", False) is True else x


def is_hermitian(x: Primal) -> bool:
    """Whether the type says that the matrix is Hermitian."""
    return is_own(x) and x.is_hermitian and len(x.shape) >= 2 and x.shape[-1] == x.shape[-2]


def is_real(x: Primal) -> bool:
    """Whether the numbers are real."""
    return not jnp.issubdtype(x.dtype, jnp.complexfloating)


def is_dense(x: Primal) -> bool:
    """Whether a natural (co)tangent is formed already."""
    return array_type(x) is None


def as_query(x: Arraylike) -> Query:
    """The query of a thin (co)tangent; that of any other has no name."""
    return (x.as_query() if is_own(x) else None) or ("", (), jnp.zeros(()))


def thin_pairing(x: Primal, natural: Arraylike) -> tuple[Callable[[Primal], Array], Array] | None:
    """A query `q` and a cotangent `c` with `⟨c, q(x)⟩ = ⟨natural, D(x)⟩`, if `x` answers one.

    `⟨l rᵀ, D⟩ = ⟨l, D r⟩`: what a thin cotangent asks of a type, the type has written down. Its
    storage invariant is enforced first, as `to_dense` does.
    """
    query, arguments, cotangent = as_query(natural)
    if not answers(x, query):
        return None
    return lambda x: getattr(x.canonical(), query)(*arguments), cotangent


def inner_product(x: Primal, y: Primal) -> Scalar:
    """The pairing `Σ xᵢⱼ yᵢⱼ`, without conjugation, through whichever side is thinner."""
    for a, b in ((x, y), (y, x)):
        if answers(a, "inner_product"):
            return a.inner_product(b)
    return jnp.sum(dense(x) * dense(y))


COLUMNS = 64  # at a time, where two structured matrices are paired: never n by n numbers


def pairing(x: Primal, other: Natural) -> Scalar:
    """`⟨x, other⟩` for a type whose own formula would form `other`, which is structured.

    Of a linear combination it is that of the terms, and a thin one asks `x` for a little. Of two
    others, a few columns of each are formed at a time.
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
    """The factors and arrays of which a natural (co)tangent is a linear combination, if it is."""
    return x.linear_terms() if is_own(x) else None


def without_unit(where: str, x: Primal, natural: Arraylike) -> Arraylike:
    """A natural (co)tangent of an array without a unit: stripped, if it has no dimension."""
    if getattr(natural, "has_unit", False) and not getattr(x, "has_unit", False):
        return natural.plain(where)
    return natural


def check_natural(where: str, x: Primal, natural: Arraylike) -> None:
    """Raise `CotangentError` unless the natural (co)tangent has the shape of its primal."""
    expected = shape(x)
    if shape(natural) != expected:
        raise wrong_natural_shape(where, expected, natural)
