"""Equal blocks of a `BlockDiagonal` matrix as one batch.

A product or a factorisation of a small matrix takes less time than its start. So one call of a
batched routine serves all blocks, and the program does not grow with their number.

Sharp edge: if a process has several devices, separate blocks stay apart. Their rows may be spread
over the devices, and a trace does not show that. A batch of them would be sent around. The blocks
of `tj.BlockDiagonal.from_stack` always are a batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, DenseArray, Function

# Entries of a block up to which it is copied: a larger one takes longer to copy than to start.
SMALL = 128 * 128


def stacked(a: Shaped[tj.BlockDiagonal, "m n"]) -> Shaped[AnyArray, "blocks _ _"] | None:
    """The blocks as a batch: that of a stack, or of small matrices of one type, shape and dtype."""
    if not isinstance(a.blocks, tuple):
        return a.blocks.array
    first, *others = a.blocks
    leaves = jax.tree.leaves(first)
    if jax.device_count() > 1 or not others or not leaves or first.size > SMALL:
        return None
    kind = lambda x: (jax.tree.structure(x), [(y.shape, y.dtype) for y in jax.tree.leaves(x)])
    if any(kind(x) != kind(first) for x in others):
        return None
    return jax.tree.map(lambda *parts: jnp.stack(parts), *a.blocks)


def of_each_block(a: Shaped[tj.BlockDiagonal, "m n"], function: Function) -> tuple[AnyArray, ...]:
    """The results of `function(block)`, a tuple, for all blocks: of a stack by one call.

    **Returns:** of each result one for all blocks: vectors end to end, matrices as blocks.
    """
    if isinstance(a.blocks, tuple):
        join = lambda x: jnp.concatenate(x) if x[0].ndim == 1 else tj.BlockDiagonal(*x)
        return tuple(map(join, zip(*map(function, a.blocks), strict=True)))
    return tuple(_unstacked(a, x) for x in jax.vmap(function)(a.blocks.array))


def _unstacked(a: Shaped[tj.BlockDiagonal, "m n"], batch: AnyArray) -> AnyArray:
    if not jax.tree.leaves(batch):  # an `Identity`, which is that of every block
        return tj.BlockDiagonal(*(batch,) * len(a.blocks))
    if batch.ndim == 2:
        return batch.reshape(batch.shape[0] * batch.shape[1])
    return a.from_stack(batch)


def split(
    b: Shaped[DenseArray, " n *k"], batch: Shaped[AnyArray, "blocks _ _"]
) -> Shaped[DenseArray, "blocks _ *k"]:
    """The rows of `b` that belong to each block."""
    return b.reshape(batch.shape[0], batch.shape[2], *b.shape[1:])


def like(a: tj.BlockDiagonal, batch: Shaped[DenseArray, "blocks _ _"]) -> tj.BlockDiagonal:
    """The block diagonal matrix of a batch, with blocks stored as those of `a`."""
    return tj.BlockDiagonal(*batch) if isinstance(a.blocks, tuple) else a.from_stack(batch)
