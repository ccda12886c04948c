"""Distances of all pairs of points, and their derivatives as torch defines them at zero."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tanjax_torch.table._registry import implements

from ._tools import Array, aten, raised, require, size


def _norm(d: Array, p: float) -> Array:
    if p == 0:
        return jnp.sum(d != 0, -1).astype(d.dtype)
    if p == 2:
        return raised(jnp.sum(d * d, -1), 0.5)
    if not np.isinf(p):
        return raised(jnp.sum(raised(size(d), p), -1), 1 / p)
    if not d.shape[-1]:
        return jnp.zeros(d.shape[:-1], d.dtype)
    # Each of equal largest differences has the whole derivative, as in torch.
    length = size(d)
    most = lax.stop_gradient(length)
    tied = (most == jnp.max(most, -1, keepdims=True)) & jnp.isfinite(most)
    return jnp.max(most, -1) + jnp.sum(jnp.where(tied, length - most, 0), -1)


def _slope(d: Array, distance: Array, p: float) -> Array:
    """The derivative of the norm by each entry of `d`; zero where the distance is zero."""
    length, r = jnp.abs(d), distance[..., None]
    if p == 0:
        return jnp.zeros_like(d)
    if p == 1:
        return jnp.sign(d)
    if np.isinf(p):
        return jnp.sign(d) * (length == r).astype(d.dtype)
    safe = jnp.where(r == 0, 1, r)
    if p == 2:
        return jnp.where(r == 0, 0, d / safe)
    zero = (r == 0) | (d == 0)
    ratio = jnp.where(zero, 1, length) / safe
    return jnp.where(zero, 0, jnp.sign(d) * ratio ** (p - 1))


def _check(what: str, p: float) -> None:
    require(p >= 0, f"{what} only supports non-negative p values")


@implements(aten._cdist_forward, static=("p",))
def cdist_forward(x1: Array, x2: Array, p: float, compute_mode: int | None) -> Array:
    _check("cdist", p)
    require(x1.shape[-1] == x2.shape[-1], "X1 and X2 must have the same number of columns")
    return _norm(x1[..., :, None, :] - x2[..., None, :, :], p)


@implements(aten._cdist_backward, static=("p",))
def cdist_backward(grad: Array, x1: Array, x2: Array, p: float, cdist: Array) -> Array:
    d = x1[..., :, None, :] - x2[..., None, :, :]
    out = jnp.sum(grad[..., None] * _slope(d, cdist, p), -2)
    return out.reshape(*out.shape[: out.ndim - x1.ndim], *x1.shape)


def _pairs(x: Array) -> tuple[np.ndarray, np.ndarray]:
    require(x.ndim == 2, "pdist only supports 2D tensors")
    first, second = np.triu_indices(x.shape[0], 1)
    return first, second


@implements(aten._pdist_forward, static=("p",))
def pdist_forward(self: Array, p: float = 2.0) -> Array:
    _check("pdist", p)
    first, second = _pairs(self)
    return _norm(self[first] - self[second], p)


@implements(aten._pdist_backward, static=("p",))
def pdist_backward(grad: Array, self: Array, p: float, pdist: Array) -> Array:
    first, second = _pairs(self)
    part = grad[:, None] * _slope(self[first] - self[second], pdist, p)
    return jnp.zeros_like(self).at[first].add(part).at[second].add(-part)
