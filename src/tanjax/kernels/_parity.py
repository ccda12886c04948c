"""The sign of a permutation, without a loop over its numbers."""

from __future__ import annotations

import jax.numpy as jnp
from jax import export, lax
from jaxtyping import Integer

from tanjax import _compat
from tanjax._typing import DenseArray


def parity(indices: Integer[DenseArray, "*batch n"]) -> Integer[DenseArray, "*batch"]:
    r"""Return 1 or -1: the determinant of the matrix of a permutation.

    A permutation of `n` numbers with `c` cycles is made of `n - c` exchanges. Every cycle has one
    smallest number, and every number finds that of its cycle by looking 1, 2, 4, … places ahead.
    **Cost:** $O(n \log n)$.
    """
    n = indices.shape[-1]
    own = jnp.broadcast_to(jnp.arange(n, dtype=indices.dtype), indices.shape)
    known = not export.is_symbolic_dim(n)
    steps = max(n - 1, 0).bit_length() if known else jnp.iinfo(own.dtype).bits

    def look(_: DenseArray, state: tuple[DenseArray, DenseArray]) -> tuple[DenseArray, ...]:
        smallest, ahead = (jnp.take_along_axis(x, state[1], axis=-1) for x in state)
        return jnp.minimum(state[0], smallest), ahead

    smallest, _ = lax.fori_loop(0, steps, look, _compat.align((own, indices)))
    return 1 - 2 * ((n - jnp.sum(smallest == own, axis=-1)) % 2)
