"""Normalizations over layers, groups and batches, with the statistics that torch saves."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import torch
from jax import lax

from tanjax._typing import DType
from tanjax_torch._typing import Number
from tanjax_torch.table._registry import implements

from ._support import Array, none_like, product, require, wide

aten = torch.ops.aten
Three = tuple[Array | None, Array | None, Array | None]


def _moments(x: Array, axes: Sequence[int], eps: Number) -> tuple[Array, Array, Array]:
    """Return mean, variance and inverse deviation over axes, which keep size 1."""
    mean = jnp.mean(x, axes, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axes, keepdims=True)
    return mean, variance, lax.rsqrt(variance + jnp.asarray(eps).astype(x.dtype))


def _pulled(grad: Array, normal: Array, rstd: Array, axes: Sequence[int]) -> Array:
    """The cotangent of the input: free of a mean and of a part along the result."""
    middle = jnp.mean(grad, axes, keepdims=True)
    along = jnp.mean(grad * normal, axes, keepdims=True)
    return rstd * (grad - middle - normal * along)


def _saved_dtype(input: Array, weight: Array | None) -> DType:
    """Statistics of half precision stay in it, unless the weights are float32."""
    return input.dtype if weight is None else jnp.result_type(input.dtype, weight.dtype)


@implements(aten.native_layer_norm)
def native_layer_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None,
    bias: Array | None,
    eps: Number,
) -> tuple[Array, Array, Array]:
    n = len(normalized_shape)
    require(
        n >= 1 and input.shape[-n:] == tuple(normalized_shape),
        f"Given normalized_shape={list(normalized_shape)}, expected input with shape "
        f"{['*', *normalized_shape]}, but got input of size {list(input.shape)}",
    )
    axes = tuple(range(input.ndim - n, input.ndim))
    mean, _, rstd = _moments(wide(input), axes, eps)
    out = (wide(input) - mean) * rstd
    lead = tuple(range(input.ndim - n))
    if weight is not None:
        require(weight.shape == tuple(normalized_shape), f"layer_norm: weight {weight.shape}")
        out = out * jnp.expand_dims(wide(weight), lead)
    if bias is not None:
        out = out + jnp.expand_dims(wide(bias), lead)
    saved = _saved_dtype(input, weight)
    return out.astype(input.dtype), mean.astype(saved), rstd.astype(saved)


@implements(aten.native_layer_norm_backward)
def native_layer_norm_backward(
    grad_out: Array,
    input: Array,
    normalized_shape: Sequence[int],
    mean: Array,
    rstd: Array,
    weight: Array | None,
    bias: Array | None,
    output_mask: Sequence[bool],
) -> Three:
    lead = tuple(range(input.ndim - len(normalized_shape)))
    axes = tuple(range(len(lead), input.ndim))
    grad, rstd = wide(grad_out), wide(rstd)
    normal = (wide(input) - wide(mean)) * rstd
    scaled = grad if weight is None else grad * jnp.expand_dims(wide(weight), lead)
    to_input = to_weight = to_bias = None
    if output_mask[0]:
        to_input = _pulled(scaled, normal, rstd, axes).astype(input.dtype)
    if output_mask[1] and weight is not None:
        to_weight = jnp.sum(grad * normal, lead).astype(weight.dtype)
    if output_mask[2] and bias is not None:
        to_bias = jnp.sum(grad, lead).astype(bias.dtype)
    return to_input, to_weight, to_bias


def _grouped(x: Array, n: int, c: int, inner: int, group: int) -> Array:
    return wide(x).reshape(n, group, c // group, inner)


def _channels(x: Array, group: int) -> Array:
    return wide(x).reshape(1, group, -1, 1)


@implements(aten.native_group_norm)
def native_group_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: Number,
) -> tuple[Array, Array, Array]:
    require(C % group == 0, f"group_norm: {C} channels are not divisible by {group} groups")
    x = _grouped(input, N, C, HxW, group)
    mean, _, rstd = _moments(x, (2, 3), eps)
    out = (x - mean) * rstd
    if weight is not None:
        out = out * _channels(weight, group)
    if bias is not None:
        out = out + _channels(bias, group)
    saved = _saved_dtype(input, weight)
    return (
        out.astype(input.dtype).reshape(input.shape),
        mean.reshape(N, group).astype(saved),
        rstd.reshape(N, group).astype(saved),
    )


@implements(aten.native_group_norm_backward)
def native_group_norm_backward(
    grad_out: Array,
    input: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> Three:
    grad = _grouped(grad_out, N, C, HxW, group)
    rstd = wide(rstd).reshape(N, group, 1, 1)
    normal = (_grouped(input, N, C, HxW, group) - wide(mean).reshape(N, group, 1, 1)) * rstd
    scaled = grad if weight is None else grad * _channels(weight, group)
    dtype = input.dtype if weight is None else weight.dtype
    to_input = to_weight = to_bias = None
    if output_mask[0]:
        to_input = _pulled(scaled, normal, rstd, (2, 3)).astype(input.dtype).reshape(input.shape)
    if output_mask[1]:
        to_weight = jnp.sum(grad * normal, (0, 3)).reshape(C).astype(dtype)
    if output_mask[2]:
        to_bias = jnp.sum(grad, (0, 3)).reshape(C).astype(dtype)
    return to_input, to_weight, to_bias


def _line(x: Array, ndim: int) -> Array:
    """Reshape one number for each channel to lie along axis one."""
    return wide(x).reshape(1, -1, *(1,) * (ndim - 2))


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
    x, axes = wide(input), (0, *range(2, input.ndim))
    if training:
        mean, variance, rstd = _moments(x, axes, eps)
        count = product(input.shape) // max(input.shape[1], 1)
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
    return (wide(running) * (1 - m) + m * now).astype(running.dtype)


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


@implements(aten._native_batch_norm_legit.no_stats)
def native_batch_norm_no_stats(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    training: bool,
    momentum: Number,
    eps: Number,
) -> tuple[Array, Array, Array]:
    return _batch_norm(input, weight, bias, None, None, training, momentum, eps)[:3]


@implements(aten._native_batch_norm_legit_no_training)
def native_batch_norm_no_training(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: Number,
    eps: Number,
) -> tuple[Array, Array, Array]:
    out, mean, _, *_ = _batch_norm(
        input, weight, bias, running_mean, running_var, False, momentum, eps
    )
    return out, none_like(mean), none_like(mean)


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


@implements(aten.native_batch_norm_backward)
def native_batch_norm_backward(
    grad_out: Array,
    input: Array,
    weight: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_invstd: Array | None,
    train: bool,
    eps: Number,
    output_mask: Sequence[bool],
) -> Three:
    x, grad, axes = wide(input), wide(grad_out), (0, *range(2, input.ndim))
    if train:
        mean, rstd = _line(save_mean, x.ndim), _line(save_invstd, x.ndim)  # type: ignore[arg-type]
    else:
        mean, variance = _line(running_mean, x.ndim), _line(running_var, x.ndim)  # type: ignore[arg-type]
        rstd = lax.rsqrt(variance + jnp.asarray(eps).astype(variance.dtype))
    normal = (x - mean) * rstd
    scaled = grad if weight is None else grad * _line(weight, x.ndim)
    dtype = input.dtype if weight is None else weight.dtype
    to_input = to_weight = to_bias = None
    if output_mask[0]:
        pulled = _pulled(scaled, normal, rstd, axes) if train else scaled * rstd
        to_input = pulled.astype(input.dtype)
    if output_mask[1]:
        to_weight = jnp.sum(grad * normal, axes).astype(dtype)
    if output_mask[2]:
        to_bias = jnp.sum(grad, axes).astype(dtype)
    return to_input, to_weight, to_bias


@implements(aten.batch_norm_backward)
def batch_norm_backward(
    grad_out: Array,
    input: Array,
    weight: Array,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_var: Array | None,
    update: bool,
    eps: Number,
    output_mask: Sequence[bool],
    reserve: Array,
) -> Three:
    return native_batch_norm_backward(
        grad_out,
        input,
        weight,
        running_mean,
        running_var,
        save_mean,
        save_var,
        update,
        eps,
        output_mask,
    )
