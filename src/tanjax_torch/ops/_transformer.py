"""Torch's fast path for transformers that are only evaluated: one operation per layer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tanjax_torch.table._registry import implements

from ._tools import Array, aten


@implements(aten._native_multi_head_attention)
def native_multi_head_attention(
    query: Array,
    key: Array,
    value: Array,
    embed_dim: int,
    num_head: int,
    qkv_weight: Array,
    qkv_bias: Array,
    proj_weight: Array,
    proj_bias: Array,
    mask: Array | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Array, Array | None]:
    projected = zip(
        (query, key, value), jnp.split(qkv_weight, 3), jnp.split(qkv_bias, 3), strict=True
    )
    heads = [(x @ w.T + b).reshape(*x.shape[:2], num_head, -1) for x, w, b in projected]
    q, k, v = (x.transpose(0, 2, 1, 3) for x in heads)
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    if mask is not None:
        scores = jnp.where(_masked(mask, mask_type, scores.ndim), -jnp.inf, scores)
    weights = jax.nn.softmax(scores, axis=-1)
    out = (weights @ v).transpose(0, 2, 1, 3).reshape(*query.shape[:2], embed_dim)
    out = out @ proj_weight.T + proj_bias
    if not need_weights:
        return out, None
    return out, weights.mean(1) if average_attn_weights else weights


def _masked(mask: Array, mask_type: int | None, ndim: int) -> Array:
    """True where attention is masked: a mask of places (0), of keys (1), or of both by head (2)."""
    hidden = mask.astype(bool)
    if mask_type == 1:
        return hidden[:, None, None, :]
    return hidden.reshape((1,) * (ndim - hidden.ndim) + hidden.shape)


@implements(aten._transformer_encoder_layer_fwd)
def transformer_encoder_layer_fwd(
    src: Array,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Array,
    qkv_bias: Array,
    proj_weight: Array,
    proj_bias: Array,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Array,
    norm_bias_1: Array,
    norm_weight_2: Array,
    norm_bias_2: Array,
    ffn_weight_1: Array,
    ffn_bias_1: Array,
    ffn_weight_2: Array,
    ffn_bias_2: Array,
    mask: Array | None = None,
    mask_type: int | None = None,
) -> Array:
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)

    def attend(x: Array) -> Array:
        sizes = (embed_dim, num_heads)
        rest = (mask, False, False, mask_type)
        return native_multi_head_attention(x, x, x, *sizes, *weights, *rest)[0]

    def feed(x: Array) -> Array:
        hidden = x @ ffn_weight_1.T + ffn_bias_1
        hidden = jax.nn.gelu(hidden, approximate=False) if use_gelu else jax.nn.relu(hidden)
        return hidden @ ffn_weight_2.T + ffn_bias_2

    def first(x: Array) -> Array:
        return _normalised(x, eps) * norm_weight_1 + norm_bias_1

    def second(x: Array) -> Array:
        return _normalised(x, eps) * norm_weight_2 + norm_bias_2

    if norm_first:
        x = src + attend(first(src))
        return x + feed(second(x))
    x = first(src + attend(src))
    return second(x + feed(x))


def _normalised(x: Array, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + jnp.asarray(eps, x.dtype))
