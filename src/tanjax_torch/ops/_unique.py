"""Operations whose result has a shape that depends on values: numpy on the host.

Under `jax.jit`, every new count would compile again.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from tanjax_torch._typing import Number
from tanjax_torch.arguments._promotion import floating
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, axis_of, integers, is_traced, require, values_of


@implements(aten.nonzero, eager=True)
def nonzero(self: Array) -> Array:
    (x,) = values_of("nonzero", self)
    return integers(np.argwhere(x))


@implements(aten.nonzero_static)
def nonzero_static(self: Array, *, size: int, fill_value: int = -1) -> Array:
    if not self.ndim:
        return integers(jnp.zeros((size, 0), jnp.int32))
    found = jnp.nonzero(self, size=size, fill_value=fill_value)
    return integers(jnp.stack(found, -1))


def _none() -> Array:
    return integers(np.zeros(0, np.int32))


def _results(
    values: ArrayLike, inverse: ArrayLike | None, counts: ArrayLike | None
) -> tuple[Array, Array, Array]:
    return (
        jnp.asarray(values),
        _none() if inverse is None else integers(inverse),
        _none() if counts is None else integers(counts),
    )


@implements(aten._unique2, eager=True)
def unique2(
    self: Array, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Array, Array, Array]:
    (x,) = values_of("unique", self)
    values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True, equal_nan=False)
    return _results(
        values,
        inverse.reshape(x.shape) if return_inverse else None,
        counts if return_counts else None,
    )


@implements(aten._unique, eager=True)
def unique(self: Array, sorted: bool = True, return_inverse: bool = False) -> tuple[Array, Array]:
    values, inverse, _ = unique2(self, sorted, return_inverse)
    return values, inverse


@implements(aten.unique_dim, eager=True)
def unique_dim(
    self: Array,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Array, Array, Array]:
    (x,) = values_of("unique", self)
    values, inverse, counts = np.unique(
        x, return_inverse=True, return_counts=True, axis=axis_of(dim, x.ndim), equal_nan=False
    )
    return _results(values, inverse.reshape(-1), counts)


@implements(aten.unique_consecutive, eager=True)
def unique_consecutive(
    self: Array, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Array, Array, Array]:
    (x,) = values_of("unique_consecutive", self)
    shape = x.shape
    axis = 0 if dim is None else axis_of(dim, x.ndim)
    x = x.reshape(-1) if dim is None else x
    n = x.shape[axis]
    if not n:
        return _results(x, np.zeros(shape if dim is None else 0, np.int64), np.zeros(0, np.int64))
    lines = np.moveaxis(x, axis, 0).reshape(n, -1)
    new = np.concatenate([[True], (lines[1:] != lines[:-1]).any(1)])
    inverse = np.cumsum(new) - 1
    counts = np.diff(np.append(np.flatnonzero(new), n))
    return _results(
        np.compress(new, x, axis),
        (inverse.reshape(shape) if dim is None else inverse) if return_inverse else None,
        counts if return_counts else None,
    )


@implements(aten.bincount, eager=True)
def bincount(self: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    require(self.ndim == 1, "bincount only supports 1-d non-negative integral inputs.")
    (x,) = values_of("bincount", self)
    require(not x.size or x.min() >= 0, "bincount only supports 1-d non-negative integral inputs.")
    n = max(minlength, int(x.max()) + 1 if x.size else 0)
    if weights is None:
        return integers(np.bincount(x, minlength=n))
    require(weights.shape == self.shape, "weights should be 1-d and have the same length as input")
    weights = weights if weights.dtype == jnp.float32 else weights.astype(jnp.float64)
    return jnp.zeros(n, weights.dtype).at[jnp.asarray(x)].add(weights)


@implements(aten.repeat_interleave.Tensor, eager=True)
def repeat_interleave(repeats: Array, *, output_size: int | None = None) -> Array:
    require(repeats.ndim == 1, "repeat_interleave only accept 1D vector as repeat")
    places = jnp.arange(repeats.size)
    if is_traced(repeats) and output_size is not None:
        return jnp.repeat(places, repeats, total_repeat_length=output_size).astype(repeats.dtype)
    (times,) = values_of("repeat_interleave", repeats)
    require(not times.size or times.min() >= 0, "repeats can not be negative")
    return jnp.asarray(np.repeat(np.arange(times.size, dtype=times.dtype), times))


@implements(aten.histc, eager=True)
def histc(self: Array, bins: int = 100, min: Number = 0, max: Number = 0) -> Array:
    require(bins > 0, f"torch.histc(): bins must be > 0, but got {bins}")
    x = floating(self).reshape(-1)
    low, high = jnp.asarray(min, x.dtype), jnp.asarray(max, x.dtype)
    if min == max and x.size:
        low, high = jnp.min(x), jnp.max(x)
    if not is_traced(low, high):
        ends = bool(jnp.isfinite(low)) and bool(jnp.isfinite(high))
        require(ends, f"torch.histc: range of [{low}, {high}] is not finite")
        require(bool(low <= high), "torch.histc: max must be larger than min")
    return _histogram(x, bins, low, high).astype(self.dtype)


@functools.partial(jax.jit, static_argnames="bins")
def _histogram(x: Array, bins: int, low: Array, high: Array) -> Array:
    low, high = jnp.where(low == high, low - 1, low), jnp.where(low == high, high + 1, high)
    place = jnp.floor((x - low) / (high - low) * bins).astype(jnp.int32)
    inside = (x >= low) & (x <= high)
    place = jnp.where(inside, jnp.minimum(place, bins - 1), bins)
    return jnp.zeros(bins, x.dtype).at[place].add(1, mode="drop")
