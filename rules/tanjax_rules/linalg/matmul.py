"""Products of matrices and vectors.

One natural rule serves every pair of types. Implementations compute the products. The closed
algebra (products that keep a structure) stands below them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import (
    AnyArray,
    Columns,
    DenseArray,
    Matrix,
    Natural,
    Pullback,
    SquareMatrix,
)

from ..shapes import SquareDiagonal, SquareTriangular
from ..stacked import split, stacked

if TYPE_CHECKING:
    from tanjax.testing import Case

# -- the rule ------------------------------------------------------------------------------------


@tj.matmul.natural_rule(tj.AbstractArray)
@tj.matmul.natural_rule(tj.Dense, tj.AbstractArray)
def matmul_rule(
    a: Shaped[AnyArray, "*m k"], b: Shaped[AnyArray, " k *n"]
) -> tuple[Natural, Pullback]:
    c = tj.matmul.primal(a, b)

    def matmul_pullback(c_bar: Natural) -> tuple[Natural, Natural]:
        a_bar = tj.matmul(b, c_bar) if a.ndim == 1 else product_cotangent(c_bar, b)
        if a.ndim == 1:
            return a_bar, product_cotangent(a, c_bar)
        if c_bar.ndim == 1:
            return a_bar, tj.matmul(a.mT, c_bar)
        return a_bar, product_cotangent(a.mT, c_bar.mT)

    return c, matmul_pullback


def product_cotangent(left: Shaped[AnyArray, " m *k"], right: Shaped[AnyArray, " n *k"]) -> Matrix:
    """Return `left @ right.T`, unformed if both are dense."""
    if tj.rules.is_structured(left) or tj.rules.is_structured(right):
        return tj.matmul(left, right.mT)
    return tj.Outer(left, right)


# -- implementations -----------------------------------------------------------------------------


@tj.matmul.implementation(tj.AbstractArray, tj.Dense)
def structured_times_dense(
    a: Shaped[tj.AbstractArray, "m k"], b: Shaped[DenseArray, " k *n"]
) -> Shaped[AnyArray, " m *n"]:
    return a.apply(b)


@tj.matmul.implementation(tj.Dense, tj.AbstractArray)
def dense_times_structured(
    a: Shaped[DenseArray, "*m k"], b: Shaped[tj.AbstractArray, "k n"]
) -> Shaped[AnyArray, "*m n"]:
    return tj.matmul.primal(b.transposed(), a.T).T  # the transpose may have its own product


@tj.matmul.implementation(tj.AbstractArray, tj.AbstractArray)
def structured_times_structured(
    a: Shaped[tj.AbstractArray, "m k"], b: Shaped[tj.AbstractArray, "k n"]
) -> Matrix:
    hint = "multiply one side onto vectors first"
    if {type(a), type(b)} == {tj.Permutation, tj.Diagonal}:  # places of entries are static
        hint = "`p @ d @ p.mT` is `tj.Diagonal(p @ d.diag)`; otherwise " + hint
    return a.apply(tj.rules.densified(b, "matmul", hint))


@tj.matmul.implementation(tj.Diagonal, tj.Diagonal)
def diagonal_times_diagonal(a: SquareDiagonal, b: SquareDiagonal) -> SquareDiagonal:
    return tj.Diagonal(a.diag * b.diag)


@tj.matmul.implementation(tj.Diagonal, tj.Triangular)
def diagonal_times_triangular(a: SquareDiagonal, b: SquareTriangular) -> SquareTriangular:
    return _triangular(a.diag[:, None] * b.to_dense(), b)


@tj.matmul.implementation(tj.Triangular, tj.Diagonal)
def triangular_times_diagonal(a: SquareTriangular, b: SquareDiagonal) -> SquareTriangular:
    return _triangular(a.to_dense() * b.diag, a)


@tj.matmul.implementation(tj.Triangular, tj.Triangular)
def triangular_times_triangular(a: SquareTriangular, b: SquareTriangular) -> SquareMatrix:
    dense = a.to_dense() @ b.to_dense()
    return tj.Triangular(dense, a.lower) if a.lower == b.lower else dense


def _triangular(dense: Shaped[Array, "n n"], like: tj.Triangular) -> SquareTriangular:
    return tj.Triangular(dense, like.lower)


@tj.matmul.implementation(tj.Identity, tj.AbstractArray)
@tj.matmul.implementation(tj.Identity, tj.Dense)
def identity_times_any(a: Shaped[tj.Identity, "n n"], b: Columns) -> Columns:
    return b


@tj.matmul.implementation(tj.AbstractArray, tj.Identity)
@tj.matmul.implementation(tj.Dense, tj.Identity)
def any_times_identity(
    a: Shaped[AnyArray, "*m n"], b: Shaped[tj.Identity, "n n"]
) -> Shaped[AnyArray, "*m n"]:
    return a


@tj.matmul.implementation(tj.Zero, tj.AbstractArray)
def zero_times_any(
    a: Shaped[tj.Zero, "m k"], b: Shaped[tj.AbstractArray, "k n"]
) -> Shaped[tj.Zero, "m n"]:
    return tj.Zero((a.shape[0], b.shape[1]), a.dtype)


@tj.matmul.implementation(tj.AbstractArray, tj.Zero)
def any_times_zero(
    a: Shaped[tj.AbstractArray, "m k"], b: Shaped[tj.Zero, "k n"]
) -> Shaped[tj.Zero, "m n"]:
    return tj.Zero((a.shape[0], b.shape[1]), b.dtype)


# -- composite types: the composition is differentiated, part by part -----------------------------


@tj.matmul.implementation(tj.LowRankUpdate, tj.Dense, differentiate=True)
def update_times_dense(
    a: Shaped[tj.LowRankUpdate, "m k"], b: Shaped[DenseArray, " k *n"]
) -> Shaped[DenseArray, " m *n"]:
    return tj.matmul(a.base, b) + a.update().apply(b)


@tj.matmul.implementation(tj.Kronecker, tj.Dense, differentiate=True)
def kronecker_times_dense(
    a: Shaped[tj.Kronecker, "m k"], b: Shaped[DenseArray, " k *n"]
) -> Shaped[DenseArray, " m *n"]:
    return a.along_axes(tj.matmul, b)


@tj.matmul.implementation(tj.Dense, tj.Kronecker, differentiate=True)
def dense_times_kronecker(
    a: Shaped[DenseArray, "*m k"], b: Shaped[tj.Kronecker, "k n"]
) -> Shaped[DenseArray, "*m n"]:
    """Multiply factor by factor from the right, so that rows of the result stay contiguous."""
    lead = a.shape[:-1]
    x = a.reshape(math.prod(lead), *(f.shape[0] for f in b.factors))
    for i in b.cheapest_order(right=True):
        moved = jnp.moveaxis(x, i + 1, -1)
        rest, rows = moved.shape[:-1], b.factors[i].shape[0]
        out = tj.matmul(moved.reshape(math.prod(rest), rows), b.factors[i])
        x = jnp.moveaxis(out.reshape(*rest, out.shape[1]), -1, i + 1)
    return x.reshape(*lead, b.shape[1])


@tj.matmul.implementation(tj.Scaled, tj.Dense, differentiate=True)
def scaled_times_dense(
    a: Shaped[tj.Scaled, "m k"], b: Shaped[DenseArray, " k *n"]
) -> Shaped[DenseArray, " m *n"]:
    return a.factor * tj.matmul(a.matrix, b)


@tj.matmul.implementation(tj.BlockDiagonal, tj.Dense, differentiate=True)
def blocks_times_dense(
    a: Shaped[tj.BlockDiagonal, "m k"], b: Shaped[DenseArray, " k *n"]
) -> Shaped[DenseArray, " m *n"]:
    batch = stacked(a)
    if batch is not None:
        products = jax.vmap(tj.matmul)(batch, split(b, batch))
        return products.reshape(a.shape[0], *b.shape[1:])
    parts = zip(a.blocks, a.columns_of(b), strict=True)
    return jnp.concatenate([tj.matmul(block, part) for block, part in parts])


@tj.matmul.implementation(tj.Kronecker, tj.Kronecker, differentiate=True)
def kronecker_times_kronecker(
    a: Shaped[tj.Kronecker, "m k"], b: Shaped[tj.Kronecker, "k n"]
) -> Matrix:
    """The mixed-product rule."""
    if [x.shape[1] for x in a.factors] != [x.shape[0] for x in b.factors]:
        return tj.matmul(a, tj.rules.densified(b, "matmul", "give both sides the same factors"))
    return tj.Kronecker(*(tj.matmul(x, y) for x, y in zip(a.factors, b.factors, strict=True)))


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """One of each pair of types: every implementation, both rules, vectors, complex, empty."""
    from tanjax.testing import Case, Samples

    s = Samples(1)
    dense, diagonal = s.normal(3, 3), tj.Diagonal(s.normal(3))
    lower, upper = tj.Triangular(s.normal(3, 3)), tj.Triangular(s.normal(3, 3), lower=False)
    unit = tj.Triangular(s.normal(3, 3), unit_diagonal=True)
    symmetric = tj.Symmetric(s.normal(3, 3))
    kronecker = tj.Kronecker(s.normal(2, 2), tj.Diagonal(s.normal(2)))
    blocks = tj.BlockDiagonal(tj.Symmetric(s.normal(2, 2)), s.normal(1, 1))
    for a, b in (
        (diagonal, s.normal(3, 2)),
        (s.normal(3), diagonal),
        (s.normal(2, 3), lower),
        (symmetric, s.normal(3)),
        (tj.Hermitian(s.complex(2, 2)), s.complex(2, 2)),
        (tj.Diagonal(s.complex(2)), tj.Symmetric(s.complex(2, 2))),
        (unit, s.normal(3)),
        (symmetric, unit),
        (tj.Fill(s.normal(), (2, 3)), dense),
        (diagonal, tj.Diagonal(s.normal(3))),
        (diagonal, upper),
        (lower, diagonal),
        (lower, tj.Triangular(s.normal(3, 3))),
        (lower, upper),
        (tj.Identity(3), symmetric),
        (tj.Identity(3), s.normal(3)),
        (diagonal, tj.Identity(3)),
        (dense, tj.Identity(3)),
        (tj.LowRankUpdate(diagonal, s.normal(3, 1), s.normal(1)), s.normal(3)),
        (kronecker, s.normal(4, 1)),
        (tj.Kronecker(s.normal(3, 1), s.normal(2, 3)), s.normal(3, 2)),
        (s.normal(2, 4), kronecker),
        (s.normal(6), tj.Kronecker(s.normal(3, 1), s.normal(2, 3))),
        (kronecker, tj.Diagonal(s.normal(4))),
        (kronecker, tj.Kronecker(s.normal(2, 1), s.normal(2, 1))),
        (tj.Scaled(symmetric, s.normal()), s.normal(3)),
        (blocks, s.normal(3)),
        (tj.BlockDiagonal(s.normal(1, 2), s.normal(1, 2)), s.normal(4)),
        (tj.BlockDiagonal.from_stack(s.normal(2, 1, 2)), s.normal(4)),
        (tj.BlockDiagonal.from_stack(tj.Symmetric(s.normal(2, 2, 2))), s.normal(4, 1)),
        (tj.Diagonal(s.normal(0)), s.normal(0, 2)),
    ):
        yield Case(tj.matmul, a, b)
    yield Case(tj.matmul, tj.Zero((2, 3)), symmetric).declare(zero=("b",))
    yield Case(tj.matmul, symmetric, tj.Zero((3, 2))).declare(zero=("a",))
