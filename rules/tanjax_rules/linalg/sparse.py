"""Sparse matrices: products and sums that read only the stored entries.

Patterns are static, so tanjax computes the pattern of a sum or of a product while JAX traces. The
compiled program only gathers values and sums them. Systems and determinants are not here: they
form the dense matrix, with a `DensifyWarning`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, DenseArray, Pullback

from ..bands import Band, widths
from ..shapes import SquareDiagonal
from .arithmetic import multiply_dense
from .banded import FAMILY

if TYPE_CHECKING:
    from tanjax.testing import Case

SparseMatrix: TypeAlias = Shaped[tj.Sparse, "_ _"]
Sparser: TypeAlias = Shaped[tj.Sparse | tj.Diagonal | tj.Identity, "_ _"]
INSIDE: Any = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


def as_sparse(a: Sparser | Band) -> SparseMatrix:
    """Return a matrix as `Sparse`; the pattern of other types is that of their diagonals."""
    if isinstance(a, tj.Sparse):
        return a
    lower, upper = (0, 0) if isinstance(a, tj.Diagonal | tj.Identity) else widths(a)
    n = a.shape[0]
    rows, columns = np.broadcast_arrays(
        np.arange(n)[:, None], np.arange(n)[:, None] + np.arange(-lower, upper + 1)
    )
    inside = (columns >= 0) & (columns < n)
    rows, columns = rows[inside], columns[inside]
    return tj.Sparse(a.entries_at(rows, columns), np.stack([rows, columns], 1), a.shape)


# -- products with dense arrays --------------------------------------------------------------------


@tj.matmul.implementation(tj.Dense, tj.Sparse)
def dense_times_sparse(
    a: Shaped[DenseArray, "*m k"], b: Shaped[tj.Sparse, "k n"]
) -> Shaped[DenseArray, "*m n"]:
    return b.apply_transposed(a.T).T


@tj.matmul.natural_rule(tj.Sparse, tj.Dense)
def sparse_times_dense_rule(
    a: Shaped[tj.Sparse, "m k"], b: Shaped[DenseArray, " k *n"]
) -> tuple[Shaped[DenseArray, " m *n"], Pullback]:
    """The general rule, with a transposed product that does not move the values."""

    def sparse_times_dense_pullback(c_bar: DenseArray) -> tuple[tj.Outer, DenseArray]:
        return tj.Outer(c_bar, b), a.apply_transposed(c_bar)

    return a.apply(b), sparse_times_dense_pullback


@tj.matmul.natural_rule(tj.Dense, tj.Sparse)
def dense_times_sparse_rule(
    a: Shaped[DenseArray, "*m k"], b: Shaped[tj.Sparse, "k n"]
) -> tuple[Shaped[DenseArray, "*m n"], Pullback]:
    def dense_times_sparse_pullback(c_bar: DenseArray) -> tuple[DenseArray, tj.Outer]:
        return b.apply(c_bar.T).T, tj.Outer(a.T, c_bar.T)

    return dense_times_sparse(a, b), dense_times_sparse_pullback


# -- products ------------------------------------------------------------------------------------


def sparse_times_sparse(a: Sparser | Band, b: Sparser | Band) -> SparseMatrix:
    """Multiply: one term for every pair of places that meet, summed to static places."""
    a, b = as_sparse(a), as_sparse(b)
    pattern, left, right, to = a.pattern.product(b.pattern)
    terms = a.values.at[left].get(**INSIDE) * b.values.at[right].get(**INSIDE)
    sums = jnp.zeros(len(pattern), terms.dtype).at[to].add(terms, **INSIDE)
    return tj.Sparse.of_pattern(sums, pattern)


@tj.matmul.implementation(tj.Sparse, tj.Diagonal, differentiate=True)
def sparse_times_diagonal(
    a: Shaped[tj.Sparse, "m n"], b: SquareDiagonal
) -> Shaped[tj.Sparse, "m n"]:
    return a.replace(values=a.values * b.diag.at[a.pattern.columns].get(**INSIDE))


@tj.matmul.implementation(tj.Diagonal, tj.Sparse, differentiate=True)
def diagonal_times_sparse(
    a: SquareDiagonal, b: Shaped[tj.Sparse, "n k"]
) -> Shaped[tj.Sparse, "n k"]:
    return b.replace(values=a.diag.at[b.pattern.rows].get(**INSIDE) * b.values)


@tj.solve.implementation(tj.Diagonal, tj.Sparse, differentiate=True)
def diagonal_solve_sparse(
    a: SquareDiagonal, b: Shaped[tj.Sparse, "n k"]
) -> Shaped[tj.Sparse, "n k"]:
    return b.replace(values=b.values / a.diag.at[b.pattern.rows].get(**INSIDE))


# -- sums ----------------------------------------------------------------------------------------


def add_sparse(a: Sparser | Band, b: Sparser | Band) -> SparseMatrix:
    """Add value by value if the patterns are one object, otherwise on the union of their places."""
    a, b = as_sparse(a), as_sparse(b)
    places = a.pattern if a.pattern is b.pattern else a.pattern.union(b.pattern)
    left, right = (x.entries_at(places.rows, places.columns) for x in (a, b))
    return tj.Sparse.of_pattern(left + right, places)


# -- entry-wise products -------------------------------------------------------------------------


@tj.linalg.multiply.implementation(tj.Sparse, tj.Dense, differentiate=True)
def sparse_multiply_dense(
    a: Shaped[tj.Sparse, "m n"], b: Shaped[ArrayLike, " ..."]
) -> Shaped[AnyArray, " ..."]:
    """Multiply entry by entry: the zeros stay, so `b` is read only at the places of `a`.

    `b` may be a row or a column.
    """
    shape = jnp.shape(b)
    if shape == () or jnp.broadcast_shapes(shape, a.shape) != a.shape:
        return multiply_dense(a, b)
    whole = jnp.reshape(jnp.asarray(b), (1,) * (2 - len(shape)) + shape)
    places = (a.pattern.rows, a.pattern.columns)
    rows, columns = (x if k > 1 else 0 * x for x, k in zip(places, whole.shape, strict=True))
    return a.replace(values=a.values * whole.at[rows, columns].get(**INSIDE))


def _register() -> None:
    """Register every pair of a sparse matrix and a matrix whose type shows its pattern."""
    smooth: Any = {"differentiate": True}
    tj.matmul.implementation(tj.Sparse, tj.Sparse, **smooth)(sparse_times_sparse)
    tj.linalg.add.implementation(tj.Sparse, tj.Sparse, **smooth)(add_sparse)
    for kind in FAMILY:
        tj.matmul.implementation(tj.Sparse, kind, **smooth)(sparse_times_sparse)
        tj.matmul.implementation(kind, tj.Sparse, **smooth)(sparse_times_sparse)
    for summand in (*FAMILY, tj.Diagonal, tj.Identity):
        tj.linalg.add.implementation(tj.Sparse, summand, **smooth)(add_sparse)
        tj.linalg.add.implementation(summand, tj.Sparse, **smooth)(add_sparse)


_register()


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """One for every formula: rectangular, complex, with an empty pattern."""
    from tanjax.testing import Case, Samples

    s = Samples(31)
    places = [[0, 1], [1, 0], [1, 2], [2, 2]]
    square = tj.Sparse(s.normal(4), places, (3, 3))
    other = tj.Sparse(s.normal(3), [[0, 0], [1, 2], [2, 1]], (3, 3))
    wide = tj.Sparse(s.complex(4), [[0, 3], [1, 0], [1, 3], [2, 1]], (3, 4))
    tridiagonal = tj.Tridiagonal(s.normal(2), s.normal(3), s.normal(2))
    yield Case(tj.matmul, wide, s.complex(4))
    yield Case(tj.matmul, s.complex(2, 3), wide)
    yield Case(tj.matmul, square, other)
    yield Case(tj.matmul, square, tridiagonal)
    yield Case(tj.matmul, tj.Diagonal(s.complex(3)), wide)
    yield Case(tj.matmul, square, tj.Diagonal(s.normal(3)))
    yield Case(tj.matmul, tj.Symmetric(s.normal(3, 3)), square)
    yield Case(tj.linalg.add, square, other)
    yield Case(tj.linalg.add, tj.Identity(3), square)
    yield Case(tj.linalg.multiply, square, s.normal(3, 1))
    yield Case(tj.linalg.multiply, square, tj.Symmetric(s.normal(3, 3)))
    yield Case(tj.solve, tj.Diagonal(s.positive(3)), square)
    yield Case(tj.linalg.multiply, tj.Symmetric(s.normal(3, 3)), square)
    yield Case(tj.linalg.multiply, square, tj.Fill(s.normal(), (3, 3)))
    yield Case(tj.matmul, square, tj.Triangular(s.normal(3, 3)))
    yield Case(tj.linalg.sum, wide, axis=0)
    yield Case(tj.linalg.sum, wide, axis=1)
    on_and_off = jnp.concatenate([2 + 0.3 * s.complex(3), 0.5 * s.complex(2)])
    places = [[0, 0], [1, 1], [2, 2], [0, 1], [1, 2]]
    regular = tj.Sparse(on_and_off, places, (3, 3))  # for operations that densify
    yield Case(tj.solve, regular, s.complex(3))
    yield Case(tj.logdet, regular)
    yield Case(tj.linalg.slogdet, regular)
