"""Scaled dot product attention, by its formula."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from tanjax_torch._typing import Number
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, pullback, require, widened


def _scores(
    query: Array, key: Array, is_causal: bool, attn_mask: Array | None, scale: Number | None
) -> Array:
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = jnp.matmul(query, jnp.swapaxes(key, -1, -2))
    scores = scores * jnp.asarray(factor).astype(scores.dtype)
    if is_causal:
        allowed = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(allowed, scores, -jnp.inf)
    if attn_mask is None:
        return scores
    if attn_mask.dtype == jnp.bool_:
        return jnp.where(attn_mask, scores, -jnp.inf)
    return scores + attn_mask.astype(scores.dtype)


def _for_each_head(query: Array, x: Array) -> Array:
    """Repeat keys or values that a group of heads of the query shares."""
    heads, count = query.shape[1], x.shape[1]
    return x if heads == count else jnp.repeat(x, heads // max(count, 1), 1)


def _attended(
    query: Array,
    key: Array,
    value: Array,
    is_causal: bool,
    attn_mask: Array | None,
    scale: Number | None,
) -> tuple[Array, Array]:
    """The result and the logarithm of the sum of exponentials of each row of scores."""
    key, value = (_for_each_head(query, x) for x in (key, value))
    scores = _scores(query, key, is_causal, attn_mask, scale)
    # A fully masked row attends to nothing, and has no derivative.
    empty = jnp.all(jnp.isneginf(scores), -1, keepdims=True)
    scores = jnp.where(empty, 0, scores)
    total = jax.nn.logsumexp(scores, -1, keepdims=True)
    weights = jnp.where(empty, 0, jnp.exp(scores - total))
    total = jnp.where(empty, -jnp.inf, total)
    return jnp.matmul(weights, value), total[..., 0]


@implements(aten._scaled_dot_product_flash_attention_for_cpu, static=("dropout_p",))
def flash_attention(
    query: Array,
    key: Array,
    value: Array,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Array | None = None,
    scale: Number | None = None,
) -> tuple[Array, Array]:
    require(dropout_p == 0, "flash_attention: Currently do not support dropout > 0")
    out, total = _attended(
        widened(query), widened(key), widened(value), is_causal, attn_mask, scale
    )
    return out.astype(query.dtype), total


@implements(aten._scaled_dot_product_flash_attention_for_cpu_backward, static=("dropout_p",))
def flash_attention_backward(
    grad_out: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    logsumexp: Array,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Array | None = None,
    scale: Number | None = None,
) -> tuple[Array, Array, Array]:
    def attend(q: Array, k: Array, v: Array) -> Array:
        return _attended(widened(q), widened(k), widened(v), is_causal, attn_mask, scale)[0]

    to_query, to_key, to_value = pullback(attend, (query, key, value), grad_out)
    return to_query, to_key, to_value
