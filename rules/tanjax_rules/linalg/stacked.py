"""Equal blocks of a `BlockDiagonal` matrix as one batch.

A product or a factorisation of a small matrix takes less time than starting it does, so that many
of them are one call of a batched routine, and a program that does not grow with their number.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import DenseArray

# Entries of a block up to which it is copied: a larger one takes longer to copy than to start.
SMALL = 128 * 128


def stacked(a: Shaped[tj.BlockDiagonal, "m n"]) -> Shaped[DenseArray, "blocks _ _"] | None:
    """The blocks as a batch, if they are small dense matrices of one shape and dtype."""
    first, *others = a.blocks
    if not others or tj.is_structured(first) or first.size > SMALL:
        return None
    alike = lambda x: not tj.is_structured(x) and (x.shape, x.dtype) == (first.shape, first.dtype)
    return jnp.stack(a.blocks) if all(map(alike, others)) else None


def split(
    b: Shaped[DenseArray, " n *k"], batch: Shaped[DenseArray, "blocks _ _"]
) -> Shaped[DenseArray, "blocks _ *k"]:
    """The rows of `b` that belong to each block."""
    return b.reshape(batch.shape[0], batch.shape[2], *b.shape[1:])
