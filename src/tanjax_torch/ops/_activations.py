"""Activations with other derivatives, or other bounds, than torch's definitions by others give.

At a kink the derivative of the code here is torch's side. The other activations and the backward
operations are torch's definitions: `table/_left.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from tanjax_torch._typing import Dtype, Number
from tanjax_torch.arguments._promotion import jax_dtype, needs
from tanjax_torch.table._registry import implements

from ._tools import aten, axis_of, wide


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


@implements(aten.hardsigmoid)
@wide
def hardsigmoid(self: jax.Array) -> jax.Array:
    needs("hardsigmoid", (2,), self)
    return _flat_at(self + 3, jnp.zeros((), self.dtype), jnp.full((), 6, self.dtype)) / 6


@implements(aten.hardswish)
@wide
def hardswish(self: jax.Array) -> jax.Array:
    needs("hardswish", (2,), self)
    zero, six = (jnp.full((), x, self.dtype) for x in (0, 6))
    return self * (_flat_at(self + 3, zero, six) / 6)


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


@implements(aten.hardshrink_backward)
@wide
def hardshrink_backward(grad_out: jax.Array, self: jax.Array, lambd: Number) -> jax.Array:
    limit = jnp.asarray(lambd, self.dtype)
    return jnp.where((self >= -limit) & (self <= limit), 0, grad_out)


implements(aten.softshrink_backward)(hardshrink_backward)


def _pulled(forward: Callable[[jax.Array], jax.Array]) -> Callable[..., jax.Array]:
    """The pullback of `forward`: XLA computes it faster than torch's formula, 9 times for silu."""

    @wide
    def backward(grad_output: jax.Array, self: jax.Array) -> jax.Array:
        grad_output, self = jnp.broadcast_arrays(grad_output, self)  # differ under torch's vmap
        (gradient,) = jax.vjp(forward, self)[1](grad_output.astype(self.dtype))
        return gradient

    return backward


implements(aten.silu_backward)(_pulled(lambda x: x * jax.nn.sigmoid(x)))
implements(aten.mish_backward)(_pulled(lambda x: x * jnp.tanh(jax.nn.softplus(x))))
