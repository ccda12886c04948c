"""Activations and their backward operations.

Each derivative is that of the function above it (`gradient_of`), unless torch's formula starts from
the result. At a kink it is torch's side. Untaken branches must not overflow, since the derivative
would be NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch

from tanjax_torch._typing import Dtype, Number
from tanjax_torch.arguments._promotion import jax_dtype, promoted
from tanjax_torch.table._registry import implements

from ._ternary import same_dtypes
from ._tools import aten, axis_of, gradient_of, needs, wide


@implements(aten.relu)
@wide
def relu(self: jax.Array) -> jax.Array:
    needs("relu", (1, 2), self)
    return jnp.where(self <= 0, jnp.zeros((), self.dtype), self)


@implements(aten.threshold)
@wide
def threshold(self: jax.Array, threshold: Number, value: Number) -> jax.Array:
    needs("threshold", (1, 2), self)
    limit, value = (jnp.asarray(x, self.dtype) for x in (threshold, value))
    return jnp.where(self <= limit, value, self)


@implements(aten.threshold_backward)
@wide
def threshold_backward(grad_output: jax.Array, self: jax.Array, threshold: Number) -> jax.Array:
    grad_output, self = promoted(grad_output, self)
    below = self <= jnp.asarray(threshold, self.dtype)
    return jnp.where(below, jnp.zeros((), grad_output.dtype), grad_output)


@implements(aten.hardtanh, static=("min_val", "max_val"))
@wide
def hardtanh(self: jax.Array, min_val: float = -1, max_val: float = 1) -> jax.Array:
    needs("hardtanh", (1, 2), self)
    if self.dtype.kind == "u" and min(min_val, max_val) < 0:
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    low, high = (jnp.asarray(x, self.dtype) for x in (min_val, max_val))
    return _flat_at(self, low, high)


def _flat_at(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Clip `x` to bounds; the derivative at a bound is 0."""
    return jnp.where(x <= low, low, jnp.where(x >= high, high, x))


@implements(aten.hardtanh_backward)
@wide
def hardtanh_backward(
    grad_output: jax.Array, self: jax.Array, min_val: Number, max_val: Number
) -> jax.Array:
    """0 at the bounds too."""
    low, high = (jnp.asarray(x, self.dtype) for x in (min_val, max_val))
    return jnp.where((self <= low) | (self >= high), 0, grad_output)


@implements(aten.leaky_relu)
@wide
def leaky_relu(self: jax.Array, negative_slope: Number = 0.01) -> jax.Array:
    needs("leaky_relu", (2,), self)
    return jnp.where(self > 0, self, self * jnp.asarray(negative_slope, self.dtype))


@implements(aten.leaky_relu_backward)
@wide
def leaky_relu_backward(
    grad_output: jax.Array, self: jax.Array, negative_slope: Number, self_is_result: bool
) -> jax.Array:
    slope = jnp.asarray(negative_slope, grad_output.dtype)
    return jnp.where(self > 0, grad_output, grad_output * slope)


@implements(aten._prelu_kernel)
@wide
def prelu(self: jax.Array, weight: jax.Array) -> jax.Array:
    same_dtypes("prelu", self, weight)
    needs("prelu", (2,), self)
    return jnp.where(self > 0, self, weight * self)


@implements(aten._prelu_kernel_backward)
@wide
def prelu_backward(
    grad_output: jax.Array, self: jax.Array, weight: jax.Array
) -> tuple[jax.Array, jax.Array]:
    zero = jnp.zeros((), self.dtype)
    grad = jnp.where(self > 0, grad_output, weight * grad_output)
    return grad, jnp.where(self > 0, zero, self * grad_output)


def _negative(x: jax.Array, change: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """`change` of the negative part, `x` elsewhere."""
    return jnp.where(x > 0, x, change(jnp.where(x > 0, jnp.zeros((), x.dtype), x)))


@implements(aten.elu)
@wide
def elu(
    self: jax.Array, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1
) -> jax.Array:
    needs("elu", (2,), self)
    alpha, scale, inner = (jnp.asarray(x, self.dtype) for x in (alpha, scale, input_scale))
    return scale * _negative(self, lambda x: alpha * jnp.expm1(inner * x))


@implements(aten.elu_backward)
@wide
def elu_backward(
    grad_output: jax.Array,
    alpha: Number,
    scale: Number,
    input_scale: Number,
    is_result: bool,
    self_or_result: jax.Array,
) -> jax.Array:
    x = self_or_result
    alpha, scale, inner = (jnp.asarray(v, x.dtype) for v in (alpha, scale, input_scale))
    low = jnp.minimum(x, 0)
    slope = (
        inner * (low + scale * alpha) if is_result else inner * scale * alpha * jnp.exp(inner * low)
    )
    return grad_output * jnp.where(x <= 0, slope, scale)


@implements(aten.celu)
@wide
def celu(self: jax.Array, alpha: Number = 1.0) -> jax.Array:
    needs("celu", (2,), self)
    alpha = jnp.asarray(alpha, self.dtype)
    return _negative(self, lambda x: alpha * jnp.expm1(x / alpha))


@implements(aten.gelu)
@wide
def gelu(self: jax.Array, *, approximate: str = "none") -> jax.Array:
    needs("gelu", (2,), self)
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return jax.nn.gelu(self, approximate=approximate == "tanh")


@implements(aten.silu)
@wide
def silu(self: jax.Array) -> jax.Array:
    needs("silu", (2, 3), self)
    return self * jax.nn.sigmoid(self)


@implements(aten.mish)
@wide
def mish(self: jax.Array) -> jax.Array:
    needs("mish", (2,), self)
    return self * jnp.tanh(jax.nn.softplus(self))


@implements(aten.softplus)
@wide
def softplus(self: jax.Array, beta: Number = 1, threshold: Number = 20) -> jax.Array:
    needs("softplus", (2,), self)
    beta = jnp.asarray(beta, self.dtype)
    linear = self * beta > jnp.asarray(threshold, self.dtype)
    return jnp.where(linear, self, jax.nn.softplus(self * beta) / beta)


@implements(aten.log_sigmoid_forward)
@wide
def log_sigmoid(self: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the logarithm of the sigmoid, and a buffer for its derivative."""
    needs("log_sigmoid", (2,), self)
    return jax.nn.log_sigmoid(self), jnp.exp(-jnp.abs(self))


@implements(aten.log_sigmoid_backward)
@wide
def log_sigmoid_backward(grad_output: jax.Array, self: jax.Array, buffer: jax.Array) -> jax.Array:
    return grad_output * jax.nn.sigmoid(-self)


@implements(aten.hardsigmoid)
@wide
def hardsigmoid(self: jax.Array) -> jax.Array:
    needs("hardsigmoid", (2,), self)
    return _flat_at(self + 3, jnp.zeros((), self.dtype), jnp.full((), 6, self.dtype)) / 6


@implements(aten.hardsigmoid_backward)
@wide
def hardsigmoid_backward(grad_output: jax.Array, self: jax.Array) -> jax.Array:
    return jnp.where((self > -3) & (self < 3), grad_output / 6, 0)


@implements(aten.hardswish)
@wide
def hardswish(self: jax.Array) -> jax.Array:
    needs("hardswish", (2,), self)
    zero, six = (jnp.full((), x, self.dtype) for x in (0, 6))
    return self * (_flat_at(self + 3, zero, six) / 6)


@implements(aten.hardshrink)
@wide
def hardshrink(self: jax.Array, lambd: Number = 0.5) -> jax.Array:
    needs("hardshrink", (2,), self)
    limit = jnp.asarray(lambd, self.dtype)
    return jnp.where((self >= -limit) & (self <= limit), 0, self)


@implements(aten.softshrink, static=("lambd",))
@wide
def softshrink(self: jax.Array, lambd: float = 0.5) -> jax.Array:
    needs("softshrink", (2,), self)
    if not lambd >= 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    small = jnp.where(self < -lambd, self + lambd, self * 0)
    return jnp.where(self > lambd, self - lambd, small)


@implements(aten.hardshrink_backward)
@wide
def hardshrink_backward(grad_out: jax.Array, self: jax.Array, lambd: Number) -> jax.Array:
    limit = jnp.asarray(lambd, self.dtype)
    return jnp.where((self >= -limit) & (self <= limit), 0, grad_out)


implements(aten.softshrink_backward)(hardshrink_backward)


@implements(aten.glu)
@wide
def glu(self: jax.Array, dim: int = -1) -> jax.Array:
    needs("glu", (2,), self)
    if self.ndim == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    axis = axis_of(dim, self.ndim)
    if self.shape[axis] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {axis} is size {self.shape[axis]}"
        )
    half = self.shape[axis] // 2
    value, gate = jnp.split(self, [half], axis=axis)
    return value * jax.nn.sigmoid(gate)


implements(aten.gelu_backward)(gradient_of(gelu))
implements(aten.silu_backward)(gradient_of(silu))
implements(aten.mish_backward)(gradient_of(mish))
implements(aten.softplus_backward)(gradient_of(softplus))
implements(aten.hardswish_backward)(gradient_of(hardswish))
implements(aten.glu_backward)(gradient_of(glu, pointwise=False))


# From the result.
@implements(aten.sigmoid_backward)
@wide
def sigmoid_backward(grad_output: jax.Array, output: jax.Array) -> jax.Array:
    return grad_output * jnp.conj((1 - output) * output)


@implements(aten.tanh_backward)
@wide
def tanh_backward(grad_output: jax.Array, output: jax.Array) -> jax.Array:
    return grad_output * jnp.conj(1 - output * output)


# Softmax.
@implements(aten._softmax)
@wide
def softmax(self: jax.Array, dim: int, half_to_float: bool) -> jax.Array:
    needs("softmax", (2,), self)
    axis = axis_of(dim, self.ndim)
    return jax.nn.softmax(self, axis=axis) if self.ndim else jnp.exp(self - self)


@implements(aten._safe_softmax)
@wide
def safe_softmax(self: jax.Array, dim: int, dtype: Dtype = None) -> jax.Array:
    """Softmax, 0 where all are -∞."""
    needs("softmax", (2,), self)
    axis = axis_of(dim, self.ndim)
    x = self if dtype is None else self.astype(jax_dtype(dtype))
    masked = (x == -jnp.inf).all(axis=axis, keepdims=True)
    return jnp.where(masked, 0, jax.nn.softmax(jnp.where(masked, 0, x), axis=axis))


@implements(aten._log_softmax)
@wide
def log_softmax(self: jax.Array, dim: int, half_to_float: bool) -> jax.Array:
    needs("log_softmax", (2,), self)
    axis = axis_of(dim, self.ndim)
    return jax.nn.log_softmax(self, axis=axis) if self.ndim else self - self


@implements(aten._softmax_backward_data)
@wide
def softmax_backward(
    grad_output: jax.Array, output: jax.Array, dim: int, input_dtype: torch.dtype
) -> jax.Array:
    if not output.ndim:
        return jnp.zeros_like(output)
    weighted = grad_output * output
    return weighted - output * weighted.sum(axis=dim, keepdims=True)


@implements(aten._log_softmax_backward_data)
@wide
def log_softmax_backward(
    grad_output: jax.Array, output: jax.Array, dim: int, input_dtype: torch.dtype
) -> jax.Array:
    if not output.ndim:
        return jnp.zeros_like(output)
    return grad_output - jnp.exp(output) * grad_output.sum(axis=dim, keepdims=True)
