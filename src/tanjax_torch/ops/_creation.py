"""Tensors from nothing, from another's shape, and copies.

Tensors that torch leaves empty hold zeros here. An array has no strides: torch handles those.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tanjax._typing import DType
from tanjax_torch._typing import Dtype, Number, Operand
from tanjax_torch.arguments._dtypes import default_float
from tanjax_torch.arguments._promotion import category, jax_dtype
from tanjax_torch.table._registry import implements

from ._tools import aten, number_kind, prims


def _of(dtype: Dtype, otherwise: DType | None = None) -> DType:
    """The dtype if given, or `otherwise`, or torch's default float."""
    if dtype is not None:
        return jax_dtype(dtype)
    return default_float() if otherwise is None else otherwise


def _natural(*numbers: Number) -> DType:
    """The dtype that torch gives numbers: bool, int64, its default float, or complex."""
    kind = max(number_kind(x) for x in numbers)
    if kind == 2:
        return default_float()
    if kind == 3:
        return jnp.promote_types(default_float(), jnp.complex64)
    return jax_dtype((torch.bool, torch.int64)[kind])


@implements(aten.zeros, aten.empty.memory_format, aten.empty_permuted, prims.empty_permuted)
def zeros(size: Sequence[int], *_: object, dtype: Dtype = None, **__: object) -> jax.Array:
    return jnp.zeros(size, _of(dtype))


@implements(aten.empty_strided, prims.empty_strided)
def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Dtype = None, **_: object
) -> jax.Array:
    return jnp.zeros(size, _of(dtype))


implements(prims.empty)(zeros)


@implements(aten.ones)
def ones(size: Sequence[int], *, dtype: Dtype = None, **_: object) -> jax.Array:
    return jnp.ones(size, _of(dtype))


@implements(aten.full, prims.full)
def full(size: Sequence[int], fill_value: Number, *, dtype: Dtype = None, **_: object) -> jax.Array:
    return jnp.full(size, fill_value, _of(dtype, _natural(fill_value)))


@implements(aten.scalar_tensor, prims.scalar_tensor)
def scalar_tensor(s: Number, *, dtype: Dtype = None, **_: object) -> jax.Array:
    return jnp.asarray(s, _of(dtype))


@implements(aten.zeros_like, aten.empty_like)
def zeros_like(self: jax.Array, *, dtype: Dtype = None, **_: object) -> jax.Array:
    return jnp.zeros(self.shape, _of(dtype, self.dtype))


@implements(aten.full_like, prims.full_like)
def full_like(
    self: jax.Array, fill_value: Number, *, dtype: Dtype = None, **_: object
) -> jax.Array:
    return jnp.full(self.shape, fill_value, _of(dtype, self.dtype))


@implements(aten.new_zeros, aten.new_empty)
def new_zeros(
    self: jax.Array, size: Sequence[int], *, dtype: Dtype = None, **_: object
) -> jax.Array:
    return jnp.zeros(size, _of(dtype, self.dtype))


@implements(aten.new_full)
def new_full(
    self: jax.Array, size: Sequence[int], fill_value: Number, *, dtype: Dtype = None, **_: object
) -> jax.Array:
    return jnp.full(size, fill_value, _of(dtype, self.dtype))


@implements(aten._efficientzerotensor)
def zero_tensor(size: Sequence[int], *, dtype: Dtype = None, **_: object) -> jax.Array:
    return jnp.zeros(size, _of(dtype))


# Sequences.


@implements(aten.tril_indices)
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Dtype = None, **_: object
) -> jax.Array:
    return jnp.asarray(np.tril_indices(row, offset, col), _of(dtype, _natural(0)))


@implements(aten.triu_indices)
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Dtype = None, **_: object
) -> jax.Array:
    return jnp.asarray(np.triu_indices(row, offset, col), _of(dtype, _natural(0)))


@implements(prims.iota)
def iota(length: int, *, start: int, step: int, dtype: torch.dtype, **_: object) -> jax.Array:
    return _sequence(length, start, step, jax_dtype(dtype))


def _sequence(length: int, start: float, step: float, dtype: DType) -> jax.Array:
    if category(dtype) < 2:
        return (int(start) + int(step) * jnp.arange(length, dtype=jax_dtype(torch.int64))).astype(
            dtype
        )
    return (start + step * jnp.arange(length, dtype=dtype)).astype(dtype)


# Copies.
@implements(aten._to_copy)
def to_copy(self: jax.Array, *, dtype: Dtype = None, **_: object) -> jax.Array:
    return self if dtype is None else converted(self, dtype)


@implements(prims.convert_element_type)
def converted(a: jax.Array, dtype: torch.dtype) -> jax.Array:
    """Cast to another dtype; from complex to real, take the real part, as torch with a warning."""
    wanted = jax_dtype(dtype)
    if category(a.dtype) == 3 and category(wanted) in (1, 2):
        a = a.real
    if category(a.dtype) == 2 and wanted.kind == "u":
        a = a.astype(jax_dtype(torch.int64))  # a negative number wraps
    return a.astype(wanted)


@implements(aten.clone, prims.clone)
def clone(self: jax.Array, *, memory_format: torch.memory_format | None = None) -> jax.Array:
    return self


@implements(aten.lift_fresh_copy)
def lifted_copy(self: jax.Array) -> jax.Array:
    return self


@implements(aten.copy)
def copy(self: jax.Array, src: jax.Array, non_blocking: bool = False) -> jax.Array:
    """The numbers of `src` in the dtype and shape of `self`."""
    if src.size == self.size and src.ndim > self.ndim:
        src = src.reshape(src.shape[src.ndim - self.ndim :])
    value = src if src.dtype == self.dtype else src.astype(self.dtype)
    return jnp.broadcast_to(value, self.shape)


@implements(aten.fill)
def fill(self: jax.Array, value: Operand) -> jax.Array:
    if getattr(value, "ndim", 0):
        raise RuntimeError(
            "fill_ only supports 0-dimension value tensor but got tensor with "
            f"{value.ndim} dimensions."
        )
    return jnp.broadcast_to(jnp.asarray(value).astype(self.dtype), self.shape)


implements(prims.fill)(fill)


@implements(aten.zero)
def zero(self: jax.Array) -> jax.Array:
    return jnp.zeros_like(self)


@implements(aten._local_scalar_dense, prims.item, eager=True)
def item(self: jax.Array) -> complex:
    """The number of a tensor with one element, for Python."""
    return self.reshape(()).item()


@implements(aten.linspace)
def linspace(
    start: Number, end: Number, steps: int, *, dtype: Dtype = None, **_: object
) -> jax.Array:
    """`steps` numbers from `start` to `end`, both included; each half from the nearer end."""
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    kinds = (number_kind(x) for x in (start, end))
    wanted = _of(dtype, _natural(1j) if 3 in kinds else None)
    inner = wanted if category(wanted) > 1 else default_float()
    first, last = (jnp.asarray(x, inner).reshape(()) for x in (start, end))
    if steps < 2:
        return jnp.full((steps,), first).astype(wanted)
    step = (last - first) / (steps - 1)
    count = jnp.arange(steps, dtype=inner.type(0).real.dtype).astype(inner)
    near = first + step * count
    far = last - step * (steps - 1 - count)
    return jnp.where(jnp.arange(steps) < steps // 2, near, far).astype(wanted)
