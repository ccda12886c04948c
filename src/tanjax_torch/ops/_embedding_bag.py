"""Bags of embeddings: rows of a table summed, averaged, or the largest of them, bag by bag."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from tanjax_torch.table._registry import implements

from ._tools import Array, aten, in_bounds, require, same_dtype, widened

_SUM, _MEAN, _MAX = 0, 1, 2


def _bags(indices: Array, offsets: Array, include_last_offset: bool) -> tuple[Array, int]:
    """Return the bag of each index, and the number of bags."""
    count = offsets.shape[0] - include_last_offset
    starts = jnp.zeros(indices.shape[0] + 1, jnp.int32).at[offsets[:count]].add(1)
    return (jnp.cumsum(starts)[:-1] - 1).astype(indices.dtype), count


@functools.partial(jax.jit, static_argnames=("mode", "include_last_offset", "padding_idx"))
def _bagged(
    weight: Array,
    indices: Array,
    offsets: Array,
    mode: int,
    per_sample_weights: Array | None,
    include_last_offset: bool,
    padding_idx: int,
) -> tuple[Array, Array, Array, Array]:
    bag, count = _bags(indices, offsets, include_last_offset)
    kept = indices != padding_idx
    rows = widened(weight).at[indices].get(mode="fill")
    if per_sample_weights is not None:
        rows = rows * widened(per_sample_weights)[:, None]
    sizes = jnp.zeros(count, indices.dtype).at[bag].add(kept.astype(indices.dtype))
    if mode != _MAX:
        rows = jnp.where(kept[:, None], rows, 0)
        out = jnp.zeros((count, weight.shape[1]), rows.dtype).at[bag].add(rows)
        if mode == _MEAN:
            out = out / jnp.maximum(sizes, 1)[:, None].astype(out.dtype)
        return out.astype(weight.dtype), bag, sizes, sizes
    rows = jnp.where(kept[:, None], rows, -jnp.inf)
    largest = jnp.full((count, weight.shape[1]), -jnp.inf, rows.dtype).at[bag].max(rows)
    # The first row of a bag that has the largest number.
    place = jnp.arange(indices.shape[0], dtype=indices.dtype)[:, None]
    ours = kept[:, None] & (rows == largest[bag])
    first = jnp.full(largest.shape, indices.shape[0], indices.dtype)
    first = first.at[bag].min(jnp.where(ours, place, indices.shape[0]))
    empty = (sizes == 0)[:, None]
    chosen = jnp.where(empty, -1, indices.at[first].get(mode="clip"))
    return jnp.where(empty, 0, largest).astype(weight.dtype), bag, sizes, chosen


@implements(aten._embedding_bag.default, aten._embedding_bag_forward_only.default, eager=True)
def embedding_bag(
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Array, Array, Array, Array]:
    require(not sparse, "embedding_bag: gradients are dense here; sparse=False")
    require(
        per_sample_weights is None or mode == _SUM,
        "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
        "for mode='sum'",
    )
    same_dtype("embedding_bag", weight, per_sample_weights)
    in_bounds(indices, weight.shape[0], error=RuntimeError)
    in_bounds(offsets, indices.shape[0] + 1, error=RuntimeError)
    offsets = offsets.astype(indices.dtype)
    padding = padding_idx + weight.shape[0] if padding_idx < -1 else padding_idx
    out, bag, sizes, chosen = _bagged(
        weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding
    )
    if mode == _SUM and padding < 0 and weight.dtype in (jnp.float32, jnp.float16):
        bag = bag[:0]  # as in torch: the derivative computes it from the offsets
    return out, bag, sizes, chosen


@implements(aten._embedding_bag_backward, aten._embedding_bag_dense_backward.default)
def embedding_bag_backward(
    grad: Array,
    indices: Array,
    offsets: Array,
    offset2bag: Array,
    bag_size: Array,
    maximum_indices: Array,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Array | None,
    padding_idx: int = -1,
) -> Array:
    table = jnp.zeros((num_weights, grad.shape[-1]), grad.dtype)
    if mode == _MAX:
        columns = jnp.arange(grad.shape[-1])
        rows = jnp.where(maximum_indices < 0, num_weights, maximum_indices)
        return table.at[rows, columns].add(jnp.where(rows < num_weights, grad, 0), mode="drop")
    bag, _ = _bags(indices, offsets, False)
    bag = offset2bag if offset2bag.shape == indices.shape else bag
    rows = grad[bag]
    if mode == _MEAN:
        rows = rows / jnp.maximum(bag_size[bag], 1)[:, None].astype(rows.dtype)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    if scale_grad_by_freq:
        counts = jnp.zeros(num_weights, rows.dtype).at[indices].add(1)
        rows = rows / counts[indices][:, None]
    rows = jnp.where((indices == padding_idx)[:, None], 0, rows)
    return table.at[indices].add(rows, mode="drop")


@implements(aten._embedding_bag_per_sample_weights_backward.default)
def embedding_bag_per_sample_weights_backward(
    grad: Array,
    weight: Array,
    indices: Array,
    offsets: Array,
    offset2bag: Array,
    mode: int,
    padding_idx: int = -1,
) -> Array:
    bag, _ = _bags(indices, offsets, False)
    bag = offset2bag if offset2bag.shape == indices.shape else bag
    dots = jnp.sum(grad[bag] * weight[indices], -1)
    return jnp.where(indices == padding_idx, 0, dots)
