"""Prims: the small set, nearly `jax.lax`, that torch's decompositions end in.

Pointwise prims are registered beside ATen's. Dtypes have been promoted when a prim is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch._inductor import inductor_prims

from tanjax_torch._typing import Number
from tanjax_torch.arguments._promotion import category, jax_dtype
from tanjax_torch.table._registry import implements

from ._reductions import counted
from ._tools import prims

Axes = Sequence[int] | None


# Shapes.
@implements(prims.broadcast_in_dim)
def broadcast_in_dim(
    a: jax.Array, shape: Sequence[int], broadcast_dimensions: Sequence[int]
) -> jax.Array:
    return jax.lax.broadcast_in_dim(a, tuple(shape), tuple(broadcast_dimensions))


@implements(prims.reshape)
def reshape(a: jax.Array, shape: Sequence[int]) -> jax.Array:
    return a.reshape(shape)


@implements(prims.collapse, prims.collapse_view)
def collapse(a: jax.Array, start: int, end: int) -> jax.Array:
    """The axes from `start` to `end`, both included, as one."""
    return a.reshape((*a.shape[:start], math.prod(a.shape[start : end + 1]), *a.shape[end + 1 :]))


@implements(prims.split_dim)
def split_dim(a: jax.Array, dim: int, outer_length: int) -> jax.Array:
    inner = a.shape[dim] // outer_length
    return a.reshape((*a.shape[:dim], outer_length, inner, *a.shape[dim + 1 :]))


@implements(prims.squeeze)
def squeeze(a: jax.Array, dimensions: Sequence[int]) -> jax.Array:
    return jnp.squeeze(a, tuple(dimensions))


@implements(prims.transpose)
def transpose(a: jax.Array, permutation: Sequence[int]) -> jax.Array:
    return jnp.transpose(a, tuple(permutation))


@implements(prims.rev)
def rev(a: jax.Array, dims: Sequence[int]) -> jax.Array:
    return jnp.flip(a, tuple(dims))


@implements(prims.cat)
def cat(tensors: Sequence[jax.Array], dim: int) -> jax.Array:
    return jnp.concatenate(tensors, axis=dim)


def _same(name: str) -> Callable[..., jax.Array]:
    def entry(a: jax.Array, *_: object, **__: object) -> jax.Array:
        return a

    entry.__name__ = name
    return entry


for _op in (prims.view_of, prims.copy_strided, prims.device_put):
    implements(_op)(_same(str(_op)))


@implements(prims.view_of_dtype)
def view_of_dtype(a: jax.Array, dtype: torch.dtype) -> jax.Array:
    return a.view(jax_dtype(dtype))


def _elements(size: Sequence[int], stride: Sequence[int], offset: int) -> np.ndarray:
    """The places in memory of the elements of a strided view."""
    places = np.full(tuple(size), offset, np.int64)
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        along = [1] * len(size)
        along[axis] = length
        places = places + (np.arange(length) * step).reshape(along)
    return places


@implements(prims.as_strided)
def as_strided(
    a: jax.Array, size: Sequence[int], stride: Sequence[int], storage_offset: int
) -> jax.Array:
    """A strided view of a tensor whose elements lie in order."""
    return a.reshape(-1)[_elements(size, stride, storage_offset)]


@implements(prims.as_strided_scatter)
def as_strided_scatter(
    self: jax.Array,
    src: jax.Array,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int,
) -> jax.Array:
    places = _elements(size, stride, storage_offset)
    return self.reshape(-1).at[places].set(src).reshape(self.shape)


# Parts of complex numbers.
@implements(prims.conj)
def conj(a: jax.Array) -> jax.Array:
    return jnp.conj(a)


@implements(prims.real)
def real(self: jax.Array) -> jax.Array:
    return self.real


@implements(prims.imag)
def imag(self: jax.Array) -> jax.Array:
    return self.imag


# Reductions; no dims mean every axis.
def _reduction(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def entry(inp: jax.Array, dims: Axes, *, output_dtype: torch.dtype | None = None) -> jax.Array:
        out = function(inp, axis=None if dims is None else tuple(dims))
        return out if output_dtype is None else out.astype(jax_dtype(output_dtype))

    return entry


def _summed(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    return lambda x, axis: function(counted(x, None), axis=axis)


def _xor(x: jax.Array, axis: Axes | None) -> jax.Array:
    return jax.lax.reduce(x, np.zeros((), x.dtype), jax.lax.bitwise_xor, axis or range(x.ndim))


implements(prims.sum)(_reduction(_summed(jnp.sum)))
implements(prims.prod)(_reduction(_summed(jnp.prod)))
implements(prims.amax)(_reduction(jnp.max))
implements(prims.amin)(_reduction(jnp.min))
implements(prims.xor_sum)(_reduction(_xor))


@implements(prims.var)
def var(
    inp: jax.Array,
    dims: Axes,
    correction: Number = 1,
    *,
    output_dtype: torch.dtype | None = None,
) -> jax.Array:
    axes = tuple(range(inp.ndim)) if dims is None else tuple(dims)
    off = inp - jnp.mean(inp, axis=axes, keepdims=True)
    total = jnp.sum(
        (off * jnp.conj(off)).real if category(inp.dtype) == 3 else off * off, axis=axes
    )
    count = float(math.prod(inp.shape[a] for a in axes))
    return total / jnp.asarray(jnp.maximum(count - correction, 0), total.dtype)


# Others.
@implements(prims.copy_to)
def copy_to(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the result, and the new value of `a`."""
    value = jnp.broadcast_to(b, a.shape).astype(a.dtype)
    return value, value


@implements(prims.fft_c2c)
def fft_c2c(self: jax.Array, *, dim: Sequence[int], forward: bool) -> jax.Array:
    if forward:
        return jnp.fft.fftn(self, axes=tuple(dim))
    return jnp.fft.ifftn(self, axes=tuple(dim), norm="forward")


@implements(prims.fft_r2c)
def fft_r2c(self: jax.Array, *, dim: Sequence[int], onesided: bool) -> jax.Array:
    return (jnp.fft.rfftn if onesided else jnp.fft.fftn)(self, axes=tuple(dim))


@implements(prims.fft_c2r)
def fft_c2r(self: jax.Array, *, dim: Sequence[int], last_dim_size: int) -> jax.Array:
    sizes = [self.shape[d] for d in dim[:-1]] + [last_dim_size]
    return jnp.fft.irfftn(self, s=sizes, axes=tuple(dim), norm="forward")


@implements(prims.svd)
def svd(A: jax.Array, *, full_matrices: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    u, s, vh = jnp.linalg.svd(A, full_matrices=full_matrices)
    return u, s, vh


@implements(inductor_prims.fma)
def fma(a: jax.Array, b: Number, c: jax.Array) -> jax.Array:
    """`a b + c`, in compiled steps of torch's optimisers."""
    return a * b + c
