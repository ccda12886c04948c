"""Reductions: sums, means, extremes with their places, variances, norms.

No dims mean every axis. Counts are int64, and so are sums of integers. An extreme of several dims
shares its derivative among ties; with an index beside it, the element at the index has it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tanjax_torch._typing import Number
from tanjax_torch.arguments._promotion import category, jax_dtype, needs
from tanjax_torch.table._registry import implements

from ._tools import aten, axes_of, axis_of, raised, size, wide

Dims = int | Sequence[int] | None


def counted(x: jax.Array, dtype: torch.dtype | None) -> jax.Array:
    """`x` in the dtype of a sum: `dtype` if given, or int64 for integers."""
    if dtype is not None:
        return x.astype(jax_dtype(dtype))
    return x if category(x.dtype) > 1 else x.astype(jax_dtype(torch.int64))


def _whole(function: Callable[..., jax.Array], x: jax.Array) -> Callable[..., jax.Array]:
    """Reduce integers in their own dtype; without `dtype` JAX sums half precision in float32."""
    return functools.partial(function, dtype=x.dtype) if category(x.dtype) < 2 else function


@implements(aten.sum)
def sum_(
    self: jax.Array, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> jax.Array:
    x = counted(self, dtype)
    return _whole(jnp.sum, x)(x, axis=axes_of(dim, self.ndim), keepdims=keepdim)


@implements(aten.mean)
def mean(
    self: jax.Array, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> jax.Array:
    x = self if dtype is None else self.astype(jax_dtype(dtype))
    if category(x.dtype) < 2:
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {x.dtype}"
        )
    return jnp.mean(x, axis=axes_of(dim, x.ndim), keepdims=keepdim)


@implements(aten.prod.default, aten.prod.dim_int)
def prod(
    self: jax.Array,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> jax.Array:
    x = counted(self, dtype)
    return _whole(jnp.prod, x)(x, axis=axes_of(dim, self.ndim), keepdims=keepdim)


# Extremes.
def _not_empty(name: str, x: jax.Array, axes: tuple[int, ...], all_of_it: bool) -> None:
    for axis in axes:
        if x.shape[axis] == 0 and not all_of_it:
            raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
    if all_of_it and x.size == 0:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )


def _extreme(name: str, function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def entry(self: jax.Array, dim: Dims = None, keepdim: bool = False) -> jax.Array:
        needs(name, (0, 1, 2), self)
        axes = axes_of(dim, self.ndim)
        _not_empty(name, self, axes, dim is None or dim == [] or dim == ())
        return function(self, axis=axes, keepdims=keepdim)

    return entry


amax = _extreme("amax", jnp.max)
amin = _extreme("amin", jnp.min)
implements(aten.amax, aten.max.default)(amax)
implements(aten.amin, aten.min.default)(amin)


def at_index(x: jax.Array, index: jax.Array, axis: int) -> jax.Array:
    """The elements at indices along an axis."""
    return jnp.take_along_axis(x, index, axis=axis, mode="promise_in_bounds")


def _with_index(
    name: str, where: Callable[..., jax.Array]
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    def entry(self: jax.Array, dim: int, keepdim: bool = False) -> tuple[jax.Array, jax.Array]:
        needs(name, (0, 1, 2), self)
        axis = axis_of(dim, self.ndim)
        integer = jax_dtype(torch.int64)
        if self.ndim == 0:
            return self, jnp.zeros((), integer)
        _not_empty(name, self, (axis,), False)
        index = where(self, axis=axis, keepdims=True)
        value = at_index(self, index, axis)
        if not keepdim:
            value, index = value.squeeze(axis), index.squeeze(axis)
        return value, index.astype(integer)

    return entry


implements(aten.max.dim)(_with_index("max", jnp.argmax))
implements(aten.min.dim)(_with_index("min", jnp.argmin))


def _index(name: str, where: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def entry(self: jax.Array, dim: int | None = None, keepdim: bool = False) -> jax.Array:
        needs(name, (1, 2), self)
        axis = None if dim is None else axis_of(dim, self.ndim)
        if self.ndim == 0:
            return jnp.zeros((), jax_dtype(torch.int64))
        _not_empty(name, self, () if axis is None else (axis,), axis is None)
        return where(self, axis=axis, keepdims=keepdim).astype(jax_dtype(torch.int64))

    return entry


implements(aten.argmax)(_index("argmax", jnp.argmax))
implements(aten.argmin)(_index("argmin", jnp.argmin))


# Truth.
def _truth(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return a bool; for uint8 a uint8, as in torch."""

    def entry(self: jax.Array, dim: Dims = None, keepdim: bool = False) -> jax.Array:
        axes = () if dim == [] or dim == () else axes_of(dim, self.ndim)
        found = function(self.astype(jnp.bool_), axis=axes, keepdims=keepdim)
        return found.astype(jnp.uint8) if self.dtype == jnp.uint8 else found

    return entry


any_, all_ = _truth(jnp.any), _truth(jnp.all)
implements(aten.any)(any_)
implements(aten.all)(all_)
implements(aten._is_any_true)(any_)
implements(aten._is_all_true)(all_)


@implements(aten.equal, eager=True)
def equal(self: jax.Array, other: jax.Array) -> bool:
    if self.shape != other.shape:
        return False
    return bool(jnp.array_equal(self, other))


# Moments.
@wide
def _moments(
    self: jax.Array, dim: Dims, correction: Number | None, keepdim: bool
) -> tuple[jax.Array, jax.Array]:
    needs("var", (2, 3), self)
    axes = axes_of(dim, self.ndim)
    count = float(np.prod([self.shape[a] for a in axes]))
    centre = jnp.mean(self, axis=axes, keepdims=True)
    off = self - centre
    squares = off * off if category(self.dtype) == 2 else off.real**2 + off.imag**2
    total = jnp.sum(squares, axis=axes, keepdims=keepdim)
    divisor = jnp.maximum(count - (1 if correction is None else correction), 0)
    centre = centre if keepdim else centre.squeeze(axes)
    return total / jnp.asarray(divisor, total.dtype), centre


@implements(aten.var.correction)
def var(
    self: jax.Array, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> jax.Array:
    return _moments(self, dim, correction, keepdim)[0]


@implements(aten.std.correction)
def std(
    self: jax.Array, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> jax.Array:
    return raised(_moments(self, dim, correction, keepdim)[0], 0.5)


@implements(aten.var_mean.correction)
def var_mean(
    self: jax.Array, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[jax.Array, jax.Array]:
    return _moments(self, dim, correction, keepdim)


@implements(aten.std_mean.correction)
def std_mean(
    self: jax.Array, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[jax.Array, jax.Array]:
    square, centre = _moments(self, dim, correction, keepdim)
    return raised(square, 0.5), centre


# Sums of functions.


@implements(aten.linalg_vector_norm, static=("ord",))
@wide
def vector_norm(
    self: jax.Array,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> jax.Array:
    """`(Σ |x|**ord)**(1/ord)`; its derivative at 0 is 0."""
    needs("linalg_vector_norm", (2, 3), self)
    x = self if dtype is None else self.astype(jax_dtype(dtype))
    axes = axes_of(dim, x.ndim)
    if abs(ord) == jnp.inf or ord < 0:
        _not_empty("linalg_vector_norm", x, axes, False)
    if ord == 0:
        return jnp.sum(x.astype(jnp.bool_), axis=axes, keepdims=keepdim, dtype=x.real.dtype)
    if ord == 2:
        squares = x * x if category(x.dtype) == 2 else x.real**2 + x.imag**2
        return raised(jnp.sum(squares, axis=axes, keepdims=keepdim), 0.5)
    if abs(ord) == jnp.inf:
        return (jnp.max if ord > 0 else jnp.min)(size(x), axis=axes, keepdims=keepdim)
    if ord == 1:
        return jnp.sum(size(x), axis=axes, keepdims=keepdim)
    return raised(jnp.sum(raised(size(x), ord), axis=axes, keepdims=keepdim), 1 / ord)
