"""Sequences of several lengths, packed for recurrent layers.

`batch_sizes`, the number of sequences that still run at each time, decides sizes of later results.
Torch's recurrent layers read it as a plain int64 tensor, so that tensor is plain.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Array

from tanjax_torch.table._registry import implements

from ._tools import aten, require, values_of

Places = tuple[np.ndarray, np.ndarray]


def _places(batch_sizes: np.ndarray) -> Places:
    """Time and sequence of each packed entry."""
    times = np.repeat(np.arange(batch_sizes.size), batch_sizes)
    return times, np.concatenate([np.arange(n) for n in batch_sizes])


@implements(aten._pack_padded_sequence, eager=True)
def pack_padded_sequence(
    input: Array, lengths: Array, batch_first: bool
) -> tuple[Array, torch.Tensor]:
    (counts,) = values_of("pack_padded_sequence", lengths)
    require(counts.size > 0 and counts.min() > 0, "lengths: all must be positive")
    require(bool((np.diff(counts) <= 0).all()), "lengths: must be sorted in decreasing order")
    sequences = jnp.swapaxes(input, 0, 1) if batch_first else input
    sizes = (np.arange(counts[0])[:, None] < counts).sum(1)
    return sequences[_places(sizes)], torch.from_numpy(sizes.astype(np.int64))


@implements(aten._pack_padded_sequence_backward, eager=True)
def pack_padded_sequence_backward(
    grad: Array, input_size: list[int], batch_sizes: Array, batch_first: bool
) -> Array:
    (sizes,) = values_of("pack_padded_sequence", batch_sizes)
    shape = (input_size[1], input_size[0]) if batch_first else tuple(input_size[:2])
    whole = jnp.zeros((*shape, *grad.shape[1:]), grad.dtype).at[_places(sizes)].set(grad)
    return jnp.swapaxes(whole, 0, 1) if batch_first else whole
