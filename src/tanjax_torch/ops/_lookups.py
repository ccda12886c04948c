"""Rows looked up in a table: embeddings, their bags, and places in sorted boundaries."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from tanjax_torch._typing import Number
from tanjax_torch.arguments._promotion import promoted
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, in_bounds, integers, require

_MODES = {True: "promise_in_bounds", False: "fill"}
_SELF = "index out of range in self"


@functools.partial(jax.jit, static_argnames="known")
def _rows(weight: Array, indices: Array, known: bool) -> Array:
    return weight.at[indices].get(mode=_MODES[known])


@implements(aten.embedding, eager=True)
def embedding(
    weight: Array,
    indices: Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    require(weight.ndim == 2, "'weight' must be 2-D")
    require(not sparse, "embedding: gradients are dense here; sparse=False")
    return _rows(weight, indices, in_bounds(indices, weight.shape[0], text=_SELF))


@implements(aten.embedding_dense_backward)
def embedding_dense_backward(
    grad_output: Array,
    indices: Array,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Array:
    indices = indices.reshape(-1)
    grad = grad_output.reshape(indices.size, grad_output.shape[-1])
    if scale_grad_by_freq:
        counts = jnp.zeros(num_weights, grad.dtype).at[indices].add(1)
        grad = grad / counts[indices][:, None]
    grad = jnp.where((indices == padding_idx)[:, None], 0, grad)
    return jnp.zeros((num_weights, grad.shape[-1]), grad.dtype).at[indices].add(grad)


def _search(
    boundaries: Array, values: Number, out_int32: bool, right: bool, side: str | None
) -> Array:
    require(side in (None, "left", "right"), f"side can only be 'left' or 'right', got {side}")
    require(not (right and side == "left"), "side and right can't be set to opposites")
    boundaries, values = promoted(boundaries, values)
    which = "right" if right or side == "right" else "left"
    find = functools.partial(jnp.searchsorted, side=which)
    if boundaries.ndim > 1:
        require(
            boundaries.shape[:-1] == values.shape[:-1],
            "searchsorted: boundaries and values must agree in all but the last dimension",
        )
        shape = values.shape
        boundaries = boundaries.reshape(-1, boundaries.shape[-1])
        found = jax.vmap(find)(boundaries, values.reshape(boundaries.shape[0], -1)).reshape(shape)
    else:
        found = find(boundaries, values)
    return found.astype(jnp.int32) if out_int32 else integers(found)


@implements(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(
    sorted_sequence: Array,
    self: Number,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    if sorter is not None:
        sorted_sequence = jnp.take_along_axis(sorted_sequence, sorter, -1)
    return _search(sorted_sequence, self, out_int32, right, side)


@implements(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(
    self: Number, boundaries: Array, *, out_int32: bool = False, right: bool = False
) -> Array:
    require(boundaries.ndim == 1, "boundaries tensor must be 1 dimension")
    return _search(boundaries, self, out_int32, right, None)
