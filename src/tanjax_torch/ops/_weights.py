"""Operations of layers on their weights: rows of bounded norm; norm and direction apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tanjax_torch._typing import Number
from tanjax_torch.table._registry import implements

from ._tools import Array, aten


@implements(aten.embedding_renorm, static=("norm_type",))
def embedding_renorm(self: Array, indices: Array, max_norm: Number, norm_type: float) -> Array:
    norms = jnp.linalg.norm(self, norm_type, axis=1, keepdims=True)
    used = jnp.zeros((self.shape[0], 1), bool).at[indices.reshape(-1)].set(True)
    bound = jnp.asarray(max_norm).astype(self.dtype)
    smaller = self * (bound / (norms + jnp.asarray(1e-7, self.dtype)))
    return jnp.where(used & (norms > bound), smaller, self)


def _weight(v: Array, g: Array, dim: int) -> tuple[Array, Array]:
    axes = tuple(n for n in range(v.ndim) if n != dim % v.ndim)
    norm = jnp.sqrt(jnp.sum(v * v, axis=axes, keepdims=True))
    return v * (g / norm), norm


@implements(aten._weight_norm_interface)
def weight_norm_interface(v: Array, g: Array, dim: int = 0) -> tuple[Array, Array]:
    return _weight(v, g, dim)


@implements(aten._weight_norm_interface_backward)
def weight_norm_interface_backward(
    grad_w: Array, saved_v: Array, saved_g: Array, saved_norms: Array, dim: int
) -> tuple[Array, Array]:
    _, pullback = jax.vjp(lambda v, g: _weight(v, g, dim)[0], saved_v, saved_g)
    return pullback(grad_w)
