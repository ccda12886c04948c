"""The closed algebra of block diagonal and Kronecker matrices: block by block, factor by factor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, Matrix

from ..shapes import SquareDiagonal, all_square
from .arithmetic import either_order
from .block_systems import check_square_blocks
from .solve import check_square_factor

if TYPE_CHECKING:
    from tanjax.testing import Case

SquareBlocks = Shaped[tj.BlockDiagonal, "n n"]


# -- sums ----------------------------------------------------------------------------------------


@tj.add.implementation(tj.BlockDiagonal, tj.BlockDiagonal, differentiate=True)
def blocks_add_blocks(
    a: Shaped[tj.BlockDiagonal, "m n"], b: Shaped[tj.BlockDiagonal, "m n"]
) -> Shaped[tj.AbstractArray, "m n"]:
    if [x.shape for x in a.blocks] != [x.shape for x in b.blocks]:
        return tj.Sum(a, b)
    return tj.BlockDiagonal(*(tj.add(x, y) for x, y in zip(a.blocks, b.blocks, strict=True)))


@either_order(tj.BlockDiagonal, (tj.Diagonal, tj.Identity))
def blocks_add_diagonal(
    a: SquareBlocks, b: Shaped[tj.Diagonal | tj.Identity, "n n"]
) -> Shaped[tj.AbstractArray, "n n"]:
    if not all_square(a.blocks):
        return tj.Sum(a, b)
    places = zip(a.blocks, a.slices(), strict=True)
    return tj.BlockDiagonal(*(_on_diagonal(x, b.submatrix(r, r)) for x, (r, _) in places))


def _on_diagonal(block: Matrix, b: Shaped[tj.Diagonal | tj.Identity, "n n"]) -> Matrix:
    """A dense block stays a dense array of its dtype."""
    if tj.is_structured(block):
        return tj.add(block, b)
    n, entries = block.shape[0], b.diagonal()
    dense = block.astype(jnp.result_type(block, entries))
    return dense.at[jnp.arange(n), jnp.arange(n)].add(entries.astype(dense.dtype))


# -- products ------------------------------------------------------------------------------------


@tj.matmul.implementation(tj.BlockDiagonal, tj.BlockDiagonal, differentiate=True)
def blocks_times_blocks(
    a: Shaped[tj.BlockDiagonal, "m k"], b: Shaped[tj.BlockDiagonal, "k n"]
) -> Matrix:
    if [x.shape[1] for x in a.blocks] != [x.shape[0] for x in b.blocks]:
        return tj.matmul(a, tj.densified(b, "matmul", "give both sides the same blocks"))
    return tj.BlockDiagonal(*(tj.matmul(x, y) for x, y in zip(a.blocks, b.blocks, strict=True)))


@tj.matmul.implementation(tj.BlockDiagonal, tj.Diagonal, differentiate=True)
def blocks_times_diagonal(
    a: Shaped[tj.BlockDiagonal, "m n"], b: SquareDiagonal
) -> Shaped[tj.BlockDiagonal, "m n"]:
    places = zip(a.blocks, a.slices(), strict=True)
    return tj.BlockDiagonal(*(tj.matmul(x, tj.Diagonal(b.diag[c])) for x, (_, c) in places))


@tj.matmul.implementation(tj.Diagonal, tj.BlockDiagonal, differentiate=True)
def diagonal_times_blocks(
    a: SquareDiagonal, b: Shaped[tj.BlockDiagonal, "n k"]
) -> Shaped[tj.BlockDiagonal, "n k"]:
    places = zip(b.blocks, b.slices(), strict=True)
    return tj.BlockDiagonal(*(tj.matmul(tj.Diagonal(a.diag[r]), x) for x, (r, _) in places))


# -- systems -------------------------------------------------------------------------------------


@tj.solve.implementation(tj.BlockDiagonal, tj.BlockDiagonal, differentiate=True)
def solve_blocks_blocks(
    a: SquareBlocks, b: Shaped[tj.BlockDiagonal, "n k"]
) -> Shaped[AnyArray, "n k"]:
    check_square_blocks("solve", a)
    if [x.shape[0] for x in a.blocks] != [x.shape[0] for x in b.blocks]:
        return tj.solve(a, tj.densified(b, "solve", "give both sides the same blocks"))
    return tj.BlockDiagonal(*(tj.solve(x, y) for x, y in zip(a.blocks, b.blocks, strict=True)))


@tj.solve.implementation(tj.BlockDiagonal, tj.Diagonal, differentiate=True)
def solve_blocks_diagonal(a: SquareBlocks, b: SquareDiagonal) -> Shaped[AnyArray, "n n"]:
    check_square_blocks("solve", a)
    return solve_blocks_blocks(
        a, tj.BlockDiagonal(*(tj.Diagonal(b.diag[r]) for r, _ in a.slices()))
    )


@tj.solve.implementation(tj.Diagonal, tj.BlockDiagonal, differentiate=True)
def solve_diagonal_blocks(
    a: SquareDiagonal, b: Shaped[tj.BlockDiagonal, "n k"]
) -> Shaped[tj.BlockDiagonal, "n k"]:
    places = zip(b.blocks, b.slices(), strict=True)
    return tj.BlockDiagonal(*(tj.solve(tj.Diagonal(a.diag[r]), x) for x, (r, _) in places))


@tj.solve.implementation(tj.Kronecker, tj.Kronecker, differentiate=True)
def solve_kronecker_kronecker(
    a: Shaped[tj.Kronecker, "n n"], b: Shaped[tj.Kronecker, "n k"]
) -> Shaped[AnyArray, "n k"]:
    """The mixed-product rule."""
    for factor in a.factors:
        check_square_factor("solve", factor)
    if [x.shape[0] for x in a.factors] != [x.shape[0] for x in b.factors]:
        return tj.solve(a, tj.densified(b, "solve", "give both sides the same factors"))
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
    yield Case(tj.add, blocks, same)
    yield Case(tj.add, diagonal, blocks)
    yield Case(tj.matmul, blocks, same)
    yield Case(tj.matmul, blocks, diagonal)
    yield Case(tj.matmul, diagonal, blocks)
    yield Case(tj.solve, blocks, same)
    yield Case(tj.solve, blocks, diagonal)
    yield Case(tj.solve, diagonal, same)
    product = tj.Kronecker(regular, tj.Diagonal(s.positive(2)))
    yield Case(tj.solve, product, tj.Kronecker(s.normal(2, 1), s.normal(2, 1)))
