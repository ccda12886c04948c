"""The closed algebra of block diagonal and Kronecker matrices: block by block, factor by factor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, Matrix

from ..shapes import SquareDiagonal
from .arithmetic import either_order
from .block_systems import check_square_blocks
from .solve import check_square_factor

if TYPE_CHECKING:
    from tanjax.testing import Case

SquareBlocks = Shaped[tj.BlockDiagonal, "n n"]


# -- sums ----------------------------------------------------------------------------------------


@tj.linalg.add.implementation(tj.BlockDiagonal, tj.BlockDiagonal, differentiate=True)
def blocks_add_blocks(
    a: Shaped[tj.BlockDiagonal, "m n"], b: Shaped[tj.BlockDiagonal, "m n"]
) -> Shaped[tj.AbstractArray, "m n"]:
    if a.block_shapes != b.block_shapes:
        return tj.tangents.Sum(a, b)
    return a.each(tj.linalg.add, b.blocks)


@either_order(tj.BlockDiagonal, (tj.Diagonal, tj.Identity))
def blocks_add_diagonal(
    a: SquareBlocks, b: Shaped[tj.Diagonal | tj.Identity, "n n"]
) -> Shaped[tj.AbstractArray, "n n"]:
    if not a.has_square_blocks:
        return tj.tangents.Sum(a, b)
    if isinstance(b, tj.Identity):
        return a.each(lambda x: _on_diagonal(x, tj.Identity(x.shape[0], b.dtype)))
    return a.each(lambda x, d: _on_diagonal(x, tj.Diagonal(d)), a.rows_of(b.diag))


def _on_diagonal(block: Matrix, b: Shaped[tj.Diagonal | tj.Identity, "n n"]) -> Matrix:
    """Add to the diagonal of a block: a dense block stays a dense array."""
    if tj.rules.is_structured(block):
        return tj.linalg.add(block, b)
    n, entries = block.shape[0], b.diagonal()
    dense = block.astype(jnp.result_type(block, entries))
    return dense.at[jnp.arange(n), jnp.arange(n)].add(entries.astype(dense.dtype))


# -- products ------------------------------------------------------------------------------------


@tj.matmul.implementation(tj.BlockDiagonal, tj.BlockDiagonal, differentiate=True)
def blocks_times_blocks(
    a: Shaped[tj.BlockDiagonal, "m k"], b: Shaped[tj.BlockDiagonal, "k n"]
) -> Matrix:
    if [n for _, n in a.block_shapes] != [m for m, _ in b.block_shapes]:
        return tj.matmul(a, tj.rules.densified(b, "matmul", "give both sides the same blocks"))
    return a.each(tj.matmul, b.blocks)


@tj.matmul.implementation(tj.BlockDiagonal, tj.Diagonal, differentiate=True)
def blocks_times_diagonal(
    a: Shaped[tj.BlockDiagonal, "m n"], b: SquareDiagonal
) -> Shaped[tj.BlockDiagonal, "m n"]:
    return a.each(lambda x, d: tj.matmul(x, tj.Diagonal(d)), a.columns_of(b.diag))


@tj.matmul.implementation(tj.Diagonal, tj.BlockDiagonal, differentiate=True)
def diagonal_times_blocks(
    a: SquareDiagonal, b: Shaped[tj.BlockDiagonal, "n k"]
) -> Shaped[tj.BlockDiagonal, "n k"]:
    return b.each(lambda x, d: tj.matmul(tj.Diagonal(d), x), b.rows_of(a.diag))


# -- systems -------------------------------------------------------------------------------------


@tj.solve.implementation(tj.BlockDiagonal, tj.BlockDiagonal, differentiate=True)
def solve_blocks_blocks(
    a: SquareBlocks, b: Shaped[tj.BlockDiagonal, "n k"]
) -> Shaped[AnyArray, "n k"]:
    check_square_blocks("solve", a)
    if [m for m, _ in a.block_shapes] != [m for m, _ in b.block_shapes]:
        return tj.solve(a, tj.rules.densified(b, "solve", "give both sides the same blocks"))
    return a.each(tj.solve, b.blocks)


@tj.solve.implementation(tj.BlockDiagonal, tj.Diagonal, differentiate=True)
def solve_blocks_diagonal(a: SquareBlocks, b: SquareDiagonal) -> Shaped[AnyArray, "n n"]:
    check_square_blocks("solve", a)
    return a.each(lambda x, d: tj.solve(x, tj.Diagonal(d)), a.rows_of(b.diag))


@tj.solve.implementation(tj.Diagonal, tj.BlockDiagonal, differentiate=True)
def solve_diagonal_blocks(
    a: SquareDiagonal, b: Shaped[tj.BlockDiagonal, "n k"]
) -> Shaped[tj.BlockDiagonal, "n k"]:
    return b.each(lambda x, d: tj.solve(tj.Diagonal(d), x), b.rows_of(a.diag))


@tj.solve.implementation(tj.Kronecker, tj.Kronecker, differentiate=True)
def solve_kronecker_kronecker(
    a: Shaped[tj.Kronecker, "n n"], b: Shaped[tj.Kronecker, "n k"]
) -> Shaped[AnyArray, "n k"]:
    """The mixed-product rule."""
    for factor in a.factors:
        check_square_factor("solve", factor)
    if [x.shape[0] for x in a.factors] != [x.shape[0] for x in b.factors]:
        return tj.solve(a, tj.rules.densified(b, "solve", "give both sides the same factors"))
    return tj.Kronecker(*(tj.solve(x, y) for x, y in zip(a.factors, b.factors, strict=True)))


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Dense and structured blocks and factors."""
    from tanjax.testing import Case, Samples

    s = Samples(35)
    regular = s.normal(2, 2) + 3.0 * jnp.eye(2)
    blocks = tj.BlockDiagonal(regular, tj.Diagonal(s.positive(1)))
    same = tj.BlockDiagonal(tj.Diagonal(s.normal(2)), s.normal(1, 1))
    diagonal = tj.Diagonal(s.positive(3))
    yield Case(tj.linalg.add, blocks, same)
    yield Case(tj.linalg.add, diagonal, blocks)
    yield Case(tj.matmul, blocks, same)
    yield Case(tj.matmul, blocks, diagonal)
    yield Case(tj.matmul, diagonal, blocks)
    yield Case(tj.solve, blocks, same)
    yield Case(tj.solve, blocks, diagonal)
    yield Case(tj.solve, diagonal, same)
    stack = tj.BlockDiagonal.from_stack(jnp.stack([regular, regular.T]))
    yield Case(tj.matmul, stack, tj.Diagonal(s.positive(4)))
    yield Case(tj.solve, stack, tj.BlockDiagonal.from_stack(s.normal(2, 2, 1)))
    yield Case(tj.linalg.add, stack, tj.Diagonal(s.positive(4)))
    yield Case(tj.linalg.add, stack, tj.BlockDiagonal.from_stack(tj.Symmetric(s.normal(2, 2, 2))))
    product = tj.Kronecker(regular, tj.Diagonal(s.positive(2)))
    yield Case(tj.solve, product, tj.Kronecker(s.normal(2, 1), s.normal(2, 1)))
