"""Pointwise functions of three operands: choices, bounds, interpolation, products with a sum."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tanjax_torch._typing import Number
from tanjax_torch.arguments._promotion import (
    category,
    is_number,
    needs,
    no_meaning,
    promoted,
    result_dtype,
)
from tanjax_torch.table._registry import implements

from ._tools import aten, prims, same_dtype, wide


@implements(aten.where.self, prims.where)
def where(condition: jax.Array, self: Number, other: Number) -> jax.Array:
    if condition.dtype not in (jnp.bool_, jnp.uint8):
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got {condition.dtype}"
        )
    self, other = promoted(self, other)
    return jnp.where(condition.astype(jnp.bool_), self, other)


def bounded(x: jax.Array, low: Number | None, high: Number | None) -> jax.Array:
    """Clip `x` to bounds; NaN if any of the three is NaN; the derivative at a bound is 1."""
    if low is not None:
        x = jnp.where((x < low) | (low != low), low, x)
    if high is not None:
        x = jnp.where((x > high) | (high != high), high, x)
    return x


@implements(aten.clamp)
def clamp(self: jax.Array, min: Number | None = None, max: Number | None = None) -> jax.Array:
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    self, min, max = promoted(self, min, max)
    needs("clamp", (1, 2), self)
    return bounded(self, min, max)


@implements(aten.clamp_min)
def clamp_min(self: jax.Array, min: Number) -> jax.Array:
    return _one_bound(self, min, True)


@implements(aten.clamp_max)
def clamp_max(self: jax.Array, max: Number) -> jax.Array:
    return _one_bound(self, max, False)


def _one_bound(x: jax.Array, bound: Number, low: bool) -> jax.Array:
    needs("clamp", (1, 2) if is_number(bound) else (0, 1, 2), x)
    x, bound = promoted(x, bound)
    return bounded(x, bound, None) if low else bounded(x, None, bound)


@implements(aten.lerp)
@wide
def lerp(self: jax.Array, end: jax.Array, weight: Number) -> jax.Array:
    """`self + weight (end - self)`, from the end that is nearer."""
    arrays = (self, end) if getattr(weight, "weak_type", True) else (self, end, weight)
    same_dtype("lerp", *arrays)
    needs("lerp", (2, 3), self)
    weight = jnp.asarray(weight, self.dtype)
    way = end - self
    return jnp.where(jnp.abs(weight) < 0.5, self + weight * way, end - way * (1 - weight))


def is_mask(a: Number) -> bool:
    """True for an array of bools."""
    return isinstance(a, jax.Array) and a.dtype == jnp.bool_


def product(a: Number, b: Number) -> jax.Array:
    """`a b`, in the dtype of torch's result."""
    if is_mask(a) or is_mask(b):
        mask, factor = (a, b) if is_mask(a) else (b, a)
        factor = promoted(mask, factor)[1]
        if category(factor.dtype) > 1:  # XLA would choose 0 where a product with False is nan
            return jnp.where(mask, factor, 0 * factor)
    a, b = promoted(a, b)
    return a * b


@implements(aten.addcmul)
@wide
def addcmul(
    self: jax.Array, tensor1: jax.Array, tensor2: jax.Array, *, value: Number = 1
) -> jax.Array:
    if is_mask(tensor1) or is_mask(tensor2):
        tensor1, tensor2 = product(tensor1, tensor2), jnp.ones((), self.dtype)
    self, tensor1, tensor2 = promoted(self, tensor1, tensor2)
    needs("addcmul", (1, 2, 3), self)
    return self + _factor("addcmul", value, self) * tensor1 * tensor2


@implements(aten.addcdiv)
@wide
def addcdiv(
    self: jax.Array, tensor1: jax.Array, tensor2: jax.Array, *, value: Number = 1
) -> jax.Array:
    if category(result_dtype(tensor1, tensor2)) < 2:
        raise no_meaning("addcdiv", tensor1.dtype, "divide first, in floats or rounding.")
    self, tensor1, tensor2 = promoted(self, tensor1, tensor2)
    return self + _factor("addcdiv", value, self) * (tensor1 / tensor2)


def _factor(name: str, value: Number, like: jax.Array) -> jax.Array:
    if category(result_dtype(like, value)) > category(like.dtype):
        raise no_meaning(f"{name} with a value of a higher kind than the tensors", like.dtype)
    return jnp.asarray(value, like.dtype)
