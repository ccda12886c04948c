"""Sums, products and systems with matrices that store all of their entries.

A `Symmetric`, `Hermitian` or `Triangular` stores as many numbers as a dense result, so dense
results lose nothing, and tanjax does not warn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, Columns, DenseArray, Matrix

from ..shapes import FullStorage, SquareDiagonal, SquareTriangular
from .arithmetic import add_structured, either_order
from .matmul import any_times_identity, any_times_zero, dense_times_structured
from .multiples import any_times_scaled, solve_any_scaled

if TYPE_CHECKING:
    from tanjax.testing import Case

Full: TypeAlias = Shaped[tj.Symmetric | tj.Hermitian | tj.Triangular, "n n"]

# -- products ------------------------------------------------------------------------------------


@tj.matmul.implementation(tj.Symmetric, tj.AbstractArray)
@tj.matmul.implementation(tj.Hermitian, tj.AbstractArray)
@tj.matmul.implementation(tj.Triangular, tj.AbstractArray)
def full_storage_times_any(
    a: Full, b: Shaped[tj.AbstractArray, " n *k"]
) -> Shaped[AnyArray, " n *k"]:
    if len(b.shape) != 2:
        return a.apply(tj.destructure(b))
    return dense_times_structured(a.to_dense(), b)


@tj.matmul.implementation(tj.AbstractArray, tj.Symmetric)
@tj.matmul.implementation(tj.AbstractArray, tj.Hermitian)
@tj.matmul.implementation(tj.AbstractArray, tj.Triangular)
def any_times_full_storage(
    a: Shaped[tj.AbstractArray, "*m n"], b: Full
) -> Shaped[DenseArray, "*m n"]:
    if len(a.shape) != 2:
        return tj.destructure(a) @ b.to_dense()
    return a.apply(b.to_dense())


# -- sums ----------------------------------------------------------------------------------------


@either_order((tj.Hermitian, tj.Symmetric), tj.AbstractArray)
def full_storage_add(
    a: FullStorage, b: Shaped[tj.AbstractArray, "n n"]
) -> Shaped[tj.AbstractArray, "n n"]:
    """Add in the type of `a` if `b` is as symmetric as `a`."""
    real = not jnp.issubdtype(b.dtype, jnp.complexfloating)
    if not (a.is_hermitian and b.is_hermitian and (real or isinstance(a, tj.Hermitian))):
        return add_structured(a, b)
    dtype = jnp.result_type(a.dtype, b.dtype)
    data = a.data.astype(dtype) + tj.destructure(b).astype(dtype)
    return a.replace(data=data, definite=a.definite and getattr(b, "definite", False))


# -- systems -------------------------------------------------------------------------------------


@tj.solve.implementation(tj.AbstractArray, tj.Symmetric)
@tj.solve.implementation(tj.AbstractArray, tj.Hermitian)
@tj.solve.implementation(tj.AbstractArray, tj.Triangular)
def solve_for_full_storage(
    a: Shaped[tj.AbstractArray, "n n"], b: Full
) -> Shaped[DenseArray, "n n"]:
    return tj.solve.primal(a, b.to_dense())


@tj.solve.implementation(tj.Symmetric, tj.AbstractArray)
@tj.solve.implementation(tj.Hermitian, tj.AbstractArray)
@tj.solve.implementation(tj.Triangular, tj.AbstractArray)
def solve_full_storage(a: Full, b: Columns) -> Shaped[DenseArray, " n *k"]:
    return tj.solve.primal(a, tj.destructure(b))


@tj.solve.implementation(tj.Triangular, tj.Diagonal)
def solve_triangular_diagonal(a: SquareTriangular, b: SquareDiagonal) -> SquareTriangular:
    return tj.Triangular(tj.solve.primal(a, b.to_dense()), a.lower)


def solve_identity_matrix(
    a: Shaped[tj.AbstractArray, "n n"], b: Shaped[tj.Identity, "n n"]
) -> Matrix:
    """Return the inverse, in its own type."""
    return tj.inv(a)


def solve_for_zero(
    a: Shaped[tj.AbstractArray, "n n"], b: Shaped[tj.Zero, " n *k"]
) -> Shaped[tj.Zero, " n *k"]:
    return tj.Zero(b.shape, jnp.result_type(a.dtype, b.dtype))


def _register() -> None:
    """Register pairs that implementations for any right operand would hide.

    Register systems with the identity as right-hand side, too.
    """
    for full in (tj.Symmetric, tj.Hermitian, tj.Triangular):
        tj.matmul.implementation(full, tj.Identity)(any_times_identity)
        tj.matmul.implementation(full, tj.Zero)(any_times_zero)
        tj.matmul.implementation(full, tj.Scaled, differentiate=True)(any_times_scaled)
        tj.solve.implementation(full, tj.Scaled, differentiate=True)(solve_any_scaled)
        tj.solve.implementation(full, tj.Zero, differentiate=True)(solve_for_zero)
        tj.solve.implementation(full, tj.Identity, differentiate=True)(solve_identity_matrix)
    tj.solve.implementation(tj.AbstractArray, tj.Zero, differentiate=True)(solve_for_zero)
    bands = (tj.Tridiagonal, tj.SymTridiagonal, tj.Banded)
    by_parts = (tj.Diagonal, tj.Circulant, tj.Kronecker, tj.BlockDiagonal, tj.LowRankUpdate)
    for kept in (*by_parts, *bands):
        tj.solve.implementation(kept, tj.Identity, differentiate=True)(solve_identity_matrix)


_register()


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """With a type that has no implementation of its own for the pair, from both sides."""
    from tanjax.testing import Case, Samples

    s = Samples(34)
    symmetric, hermitian = tj.Symmetric(s.definite(2)), tj.Hermitian(s.definite(2, complex=True))
    lower, diagonal = tj.Triangular(s.definite(2)), tj.Diagonal(s.positive(2))
    toeplitz = tj.Toeplitz.from_column(jnp.array([2.0, 0.3]))
    yield Case(tj.matmul, symmetric, diagonal)
    yield Case(tj.matmul, lower, toeplitz)
    yield Case(tj.matmul, toeplitz, lower)
    yield Case(tj.linalg.add, toeplitz, symmetric)
    yield Case(tj.linalg.add, tj.SymTridiagonal(s.normal(2), s.normal(1)), hermitian)
    yield Case(tj.solve, diagonal, symmetric)
    yield Case(tj.solve, lower, diagonal)
    yield Case(tj.solve, symmetric, toeplitz)
    yield Case(tj.solve, lower, tj.Identity(2))
    yield Case(tj.solve, symmetric, tj.Zero((2, 2))).declare(zero=("a",))
