"""Systems of block diagonal matrices, and inverses: block by block, or equal blocks as a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import Pullback

from ..dtypes import floating
from ..shapes import DenseColumns
from ..stacked import like, split, stacked
from .factored import factored_matrix, solve_factored, solve_factored_transposed

if TYPE_CHECKING:
    from tanjax.testing import Case


def check_square_blocks(name: str, a: tj.BlockDiagonal) -> None:
    """Raise `ShapeError` unless every block is square (otherwise the matrix is singular)."""
    if not a.has_square_blocks:
        raise tj.ShapeError(f"{name}: a BlockDiagonal with blocks that are not square is singular.")


@tj.solve.natural_rule(tj.BlockDiagonal, tj.Dense, cotangents=("structural", "natural"))
def solve_blocks_rule(
    a: Shaped[tj.BlockDiagonal, "n n"], b: DenseColumns
) -> tuple[DenseColumns, Pullback]:
    """Solve equal blocks with one batch of factors for both directions."""
    check_square_blocks("solve", a)
    batch = stacked(a)
    if batch is None or tj.rules.is_structured(batch):
        return jax.vjp(solve_blocks, a, b)
    dtype = jnp.result_type(floating(batch), floating(b))
    f = jax.vmap(factored_matrix)(batch.astype(dtype))
    x = jax.vmap(solve_factored)(f, split(b.astype(dtype), batch))

    def solve_blocks_pullback(x_bar: DenseColumns) -> tuple[tj.BlockDiagonal, DenseColumns]:
        x_bar, _ = lax.optimization_barrier((x_bar, x))  # solving in sequence takes less scratch
        w = jax.vmap(solve_factored_transposed)(f, split(-x_bar, batch))
        columns = lambda y: y if b.ndim == 2 else y[..., None]
        a_bar = columns(w) @ jnp.matrix_transpose(columns(x))
        return like(a, a_bar), -w.reshape(b.shape)

    return x.reshape(b.shape), solve_blocks_pullback


@tj.solve.implementation(tj.BlockDiagonal, tj.Dense)
def solve_blocks(a: Shaped[tj.BlockDiagonal, "n n"], b: DenseColumns) -> DenseColumns:
    check_square_blocks("solve", a)
    batch = stacked(a)
    if batch is not None:
        return jax.vmap(tj.solve)(batch, split(b, batch)).reshape(b.shape)
    parts = [
        tj.solve(block, b[columns])
        for block, (_, columns) in zip(a.blocks, a.slices(), strict=True)
    ]
    return jnp.concatenate(parts)


@tj.inv.implementation(tj.BlockDiagonal, differentiate=True)
def inv_blocks(a: Shaped[tj.BlockDiagonal, "n n"]) -> Shaped[tj.BlockDiagonal, "n n"]:
    check_square_blocks("inv", a)
    return a.each(tj.inv)


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Different blocks, some structured, and equal blocks, real and complex."""
    from tanjax.testing import Case, Samples

    s = Samples(19)
    blocks = tj.BlockDiagonal(tj.Symmetric(s.definite(2)), tj.Diagonal(s.positive(1)))
    yield Case(tj.solve, blocks, s.normal(3))
    yield Case(tj.solve, tj.BlockDiagonal(s.regular(2), s.regular(2)), s.normal(4, 2))
    ones = (s.regular(1, complex=True) for _ in range(2))
    yield Case(tj.solve, tj.BlockDiagonal(*ones), s.complex(2))
    yield Case(tj.inv, blocks)
    stack = tj.BlockDiagonal.from_stack(jnp.stack([s.regular(2), s.regular(2)]))
    yield Case(tj.solve, stack, s.normal(4, 1))
    data = jnp.stack([s.definite(2), s.definite(2)])
    stack = tj.BlockDiagonal.from_stack(tj.Symmetric(data, definite=True))
    yield Case(tj.solve, stack, s.normal(4))
    yield Case(tj.inv, stack)
