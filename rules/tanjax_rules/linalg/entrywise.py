"""Products of entries: the argument with more zeros keeps them, and reads only the other entries.

The order of the functions below is the order of precedence: the earlier type decides the type of a
product. If the right argument has the earlier type, the arguments are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, Function, Matrix

from ..shapes import FullStorage, SquareDiagonal, SquareTriangular
from .arithmetic import HINT, multiply_dense, scale
from .band_algebra import band_multiply

if TYPE_CHECKING:
    from tanjax.testing import Case

# By type, in order of precedence: the product with a type of the same or a later place.
KEPT: dict[type, Function] = {}


def keeps(kind: type[tj.AbstractArray]) -> Callable[[Function], Function]:
    """Register the product of the next type in the order of precedence."""

    def register(function: Function) -> Function:
        KEPT[kind] = function
        return function

    return register


@tj.linalg.multiply.implementation(tj.AbstractArray, tj.AbstractArray, differentiate=True)
def multiply_structured(
    a: Shaped[tj.AbstractArray, "*shape"], b: Shaped[tj.AbstractArray, "*shape"]
) -> Shaped[AnyArray, "*shape"]:
    order = list(KEPT)
    first, second = (order.index(type(x)) if type(x) in KEPT else len(order) for x in (a, b))
    if second < first:
        return multiply_structured(b, a)
    if type(a) in KEPT:
        return KEPT[type(a)](a, b)
    return tj.linalg.multiply(a, tj.rules.densified(b, "multiply", HINT))


# -- what each type keeps ------------------------------------------------------------------------


@keeps(tj.Zero)
def zero_multiply(
    a: Shaped[tj.Zero, "*shape"], b: Shaped[tj.AbstractArray, "*shape"]
) -> Shaped[tj.Zero, "*shape"]:
    return a


@keeps(tj.Fill)
def fill_multiply(
    a: Shaped[tj.Fill, "*shape"], b: Shaped[tj.AbstractArray, "*shape"]
) -> Shaped[AnyArray, "*shape"]:
    return scale(b, a.value)


@keeps(tj.Diagonal)
@tj.linalg.multiply.implementation(tj.Diagonal, tj.Dense, differentiate=True)
def diagonal_multiply(a: SquareDiagonal, b: Shaped[AnyArray, " ..."]) -> Shaped[AnyArray, " ..."]:
    if jnp.shape(b) != a.shape:
        return multiply_dense(a, b)
    return tj.Diagonal(a.diag * tj.linalg.diagonal(b))


@keeps(tj.Identity)
@tj.linalg.multiply.implementation(tj.Identity, tj.Dense, differentiate=True)
def identity_multiply(
    a: Shaped[tj.Identity, "n n"], b: Shaped[AnyArray, " ..."]
) -> Shaped[AnyArray, " ..."]:
    if jnp.shape(b) != a.shape:
        return multiply_dense(a, b)
    return a if isinstance(b, tj.Identity) else tj.Diagonal(tj.linalg.diagonal(b))


@keeps(tj.Scaled)
@tj.linalg.multiply.implementation(tj.Scaled, tj.Dense, differentiate=True)
def scaled_multiply(
    a: Shaped[tj.Scaled, "m n"], b: Shaped[AnyArray, " ..."]
) -> Shaped[AnyArray, " ..."]:
    if jnp.shape(b) == ():
        return scale(a, b)
    return tj.linalg.multiply(tj.linalg.multiply(a.matrix, b), a.factor)


@keeps(tj.Sparse)
def sparse_multiply(
    a: Shaped[tj.Sparse, "m n"], b: Shaped[tj.AbstractArray, "m n"]
) -> Shaped[tj.Sparse, "m n"]:
    return a.replace(values=a.values * b.entries_at(a.pattern.rows, a.pattern.columns))


keeps(tj.SymTridiagonal)(band_multiply)
keeps(tj.Tridiagonal)(band_multiply)
keeps(tj.Banded)(band_multiply)


@keeps(tj.BlockDiagonal)
def blocks_multiply(
    a: Shaped[tj.BlockDiagonal, "m n"], b: Shaped[tj.AbstractArray, "m n"]
) -> Shaped[tj.BlockDiagonal, "m n"]:
    return a.each(_block_multiply, a.parts_of(b))


def _block_multiply(block: Matrix, b: Matrix) -> Matrix:
    """Multiply two blocks; a dense block stores all entries, so densifying loses nothing."""
    return tj.linalg.multiply(block, b if tj.rules.is_structured(block) else tj.destructure(b))


@tj.linalg.multiply.implementation(tj.BlockDiagonal, tj.Dense, differentiate=True)
def blocks_multiply_dense(
    a: Shaped[tj.BlockDiagonal, "m n"], b: Shaped[ArrayLike, " ..."]
) -> Shaped[AnyArray, " ..."]:
    if jnp.shape(b) != a.shape:
        return multiply_dense(a, b)
    return a.each(tj.linalg.multiply, a.parts_of(jnp.asarray(b)))


@keeps(tj.Triangular)
@tj.linalg.multiply.implementation(tj.Triangular, tj.Dense, differentiate=True)
def triangular_multiply(
    a: SquareTriangular, b: Shaped[AnyArray, " ..."]
) -> Shaped[AnyArray, " ..."]:
    """Multiply by `b` as a dense array: the result stores all of its entries anyway."""
    if jnp.shape(b) != a.shape:
        return multiply_dense(a, b)
    return tj.Triangular(a.to_dense() * tj.destructure(b), a.lower)


@tj.linalg.multiply.implementation(tj.Symmetric, tj.Dense, differentiate=True)
@tj.linalg.multiply.implementation(tj.Hermitian, tj.Dense, differentiate=True)
def full_storage_multiply(a: FullStorage, b: Shaped[ArrayLike, " ..."]) -> Shaped[AnyArray, " ..."]:
    return scale(a, b) if jnp.shape(b) == () else a.to_dense() * b  # `a` stores all entries


@keeps(tj.Symmetric)  # after `Hermitian`, which decides the type of a product of both
@keeps(tj.Hermitian)
def full_storage_multiply_any(
    a: FullStorage, b: Shaped[tj.AbstractArray, "n n"]
) -> Shaped[AnyArray, "n n"]:
    """Multiply dense entries; the product keeps the type of `a` if both are Hermitian."""
    dense = a.data * tj.destructure(b)
    if not (a.is_hermitian and b.is_hermitian):
        return dense
    data = dense.astype(jnp.result_type(a.dtype, b.dtype))
    return a.replace(data=data, definite=a.definite and getattr(b, "definite", False))


# -- two of one kind -----------------------------------------------------------------------------


@tj.linalg.multiply.implementation(tj.Symmetric, tj.Symmetric, differentiate=True)
def symmetric_multiply_symmetric(
    a: Shaped[tj.Symmetric, "n n"], b: Shaped[tj.Symmetric, "n n"]
) -> Shaped[tj.Symmetric, "n n"]:
    return a.replace(data=a.data * b.data, definite=a.definite and b.definite)


@tj.linalg.multiply.implementation(tj.Kronecker, tj.Kronecker, differentiate=True)
def kronecker_multiply_kronecker(
    a: Shaped[tj.Kronecker, "m n"], b: Shaped[tj.Kronecker, "m n"]
) -> Matrix:
    """Multiply factor by factor if the shapes of the factors are equal."""
    if [x.shape for x in a.factors] != [x.shape for x in b.factors]:
        return multiply_structured(a, b)
    return tj.Kronecker(
        *(tj.linalg.multiply(x, y) for x, y in zip(a.factors, b.factors, strict=True))
    )


@tj.linalg.multiply.implementation(tj.Toeplitz, tj.Toeplitz, differentiate=True)
@tj.linalg.multiply.implementation(tj.Toeplitz, tj.Circulant, differentiate=True)
@tj.linalg.multiply.implementation(tj.Circulant, tj.Toeplitz, differentiate=True)
def toeplitz_multiply_toeplitz(
    a: Shaped[tj.Toeplitz | tj.Circulant, "m n"], b: Shaped[tj.Toeplitz | tj.Circulant, "m n"]
) -> Shaped[tj.Toeplitz, "m n"]:
    a, b = (x.to_toeplitz() if isinstance(x, tj.Circulant) else x for x in (a, b))
    return a.replace(values=a.values * b.values)


@tj.linalg.multiply.implementation(tj.Circulant, tj.Circulant, differentiate=True)
def circulant_multiply_circulant(
    a: Shaped[tj.Circulant, "n n"], b: Shaped[tj.Circulant, "n n"]
) -> Shaped[tj.Circulant, "n n"]:
    return a.replace(column=a.column * b.column)


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """One for each type, with a dense or a structured array."""
    from tanjax.testing import Case, Samples

    s = Samples(33)
    diagonal, symmetric = tj.Diagonal(s.normal(2)), tj.Symmetric(s.normal(2, 2))
    lower, upper = tj.Triangular(s.normal(2, 2)), tj.Triangular(s.normal(2, 2), lower=False)
    low = tj.LowRank(s.normal(2, 1), s.normal(2, 1))
    blocks = tj.BlockDiagonal(s.normal(1, 1), tj.Diagonal(s.normal(1)))
    toeplitz, circulant = tj.Toeplitz(s.normal(3)), tj.Circulant(s.normal(2))
    for a, b in (
        (symmetric, s.normal(2, 2)),
        (diagonal, s.normal(2, 2)),
        (lower, diagonal),
        (lower, s.normal(2, 2)),
        (upper, symmetric),
        (symmetric, tj.Symmetric(s.normal(2, 2))),
        (symmetric, tj.LowRankUpdate(diagonal, s.normal(2, 1))),
        (tj.Fill(s.normal(), (2, 2)), lower),
        (tj.Identity(2), s.normal(2, 2)),
        (tj.Scaled(low, s.normal()), s.normal(2, 2)),
        (low, blocks),
        (blocks, s.normal(2, 2)),
        (toeplitz, circulant),
        (circulant, tj.Circulant(s.normal(2))),
        tuple(tj.Kronecker(s.normal(1, 2), s.normal(2, 1)) for _ in range(2)),
    ):
        yield Case(tj.linalg.multiply, a, b)
    yield Case(tj.linalg.multiply, tj.Zero((2, 2)), symmetric).declare(zero=("b",))
