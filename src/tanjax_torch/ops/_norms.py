"""Normalizations over layers, groups and batches, with the statistics that torch saves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax

from tanjax._typing import DType
from tanjax_torch._typing import Number
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, none_like, require, widened

Three = tuple[Array | None, Array | None, Array | None]


def _moments(x: Array, axes: Sequence[int], eps: Number) -> tuple[Array, Array, Array]:
    """Return mean, variance and inverse deviation over axes, which keep size 1."""
    mean = jnp.mean(x, axes, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axes, keepdims=True)
    return mean, variance, lax.rsqrt(variance + jnp.asarray(eps).astype(x.dtype))


def _saved_dtype(input: Array, weight: Array | None) -> DType:
    """Statistics of half precision stay in it, unless the weights are float32."""
    return input.dtype if weight is None else jnp.result_type(input.dtype, weight.dtype)


def _line(x: Array, ndim: int) -> Array:
    """Reshape one number for each channel to lie along axis one."""
    return widened(x).reshape(1, -1, *(1,) * (ndim - 2))


def _batch_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: Number,
    eps: Number,
) -> tuple[Array, Array, Array, Array | None, Array | None]:
    """The result, mean and inverse deviation, and the running statistics after it."""
    require(input.ndim >= 2, "batch_norm: Expected more than 1 dimension")
    x, axes = widened(input), (0, *range(2, input.ndim))
    if training:
        mean, variance, rstd = _moments(x, axes, eps)
        count = math.prod(input.shape) // max(input.shape[1], 1)
        unbiased = variance.reshape(-1) * (count / (count - 1) if count > 1 else jnp.nan)
        running_mean = _moved(running_mean, mean.reshape(-1), momentum)
        running_var = _moved(running_var, unbiased, momentum)
    else:
        require(running_mean is not None, "Expected running_mean to be defined when not training")
        mean, variance = _line(running_mean, x.ndim), _line(running_var, x.ndim)  # type: ignore[arg-type]
        rstd = lax.rsqrt(variance + jnp.asarray(eps).astype(variance.dtype))
    out = (x - mean) * rstd
    if weight is not None:
        out = out * _line(weight, x.ndim)
    if bias is not None:
        out = out + _line(bias, x.ndim)
    saved = _saved_dtype(input, weight)
    return (
        out.astype(input.dtype),
        mean.reshape(-1).astype(saved),
        rstd.reshape(-1).astype(saved),
        running_mean,
        running_var,
    )


def _moved(running: Array | None, now: Array, momentum: Number) -> Array | None:
    if running is None:
        return None
    m = jnp.asarray(momentum).astype(now.dtype)
    return (widened(running) * (1 - m) + m * now).astype(running.dtype)


@implements(aten.native_batch_norm, aten._native_batch_norm_legit.default)
def native_batch_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: Number,
    eps: Number,
) -> tuple[Array | None, ...]:
    out, mean, rstd, *running = _batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )
    if not training:
        mean = rstd = none_like(mean)
    return out, mean, rstd, *running


implements(aten._native_batch_norm_legit_functional)(native_batch_norm)


@implements(aten._batch_norm_with_update.default)
def batch_norm_with_update(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: Number,
    eps: Number,
) -> tuple[Array | None, ...]:
    out, mean, rstd, *running = _batch_norm(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return out, mean, rstd, jnp.zeros(0, jnp.uint8), *running
