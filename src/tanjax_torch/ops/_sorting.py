"""Order: sorting, the largest, medians and modes. NaN counts as larger than any number."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tanjax_torch.arguments._promotion import category
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, axis_of, integers, require


def _sorted(x: Array, axis: int, descending: bool = False) -> tuple[Array, Array]:
    """Return sorted values and their places; equal values stay in order."""
    if category(x.dtype) == 3:
        require(False, "Sort currently does not support complex dtypes on CPU")
    places = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    if not descending:
        values, indices = lax.sort((x, places), dimension=axis, is_stable=True, num_keys=1)
        return values, indices
    # Flipped before and after, so that equal values stay in order.
    values, indices = lax.sort(
        (jnp.flip(x, axis), jnp.flip(places, axis)), dimension=axis, is_stable=True, num_keys=1
    )
    return jnp.flip(values, axis), jnp.flip(indices, axis)


@implements(aten.sort.default, aten.sort.stable)
def sort(
    self: Array, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[Array, Array]:
    axis = axis_of(dim, self.ndim)
    if not self.ndim:
        return self, integers(jnp.zeros((), jnp.int32))
    values, indices = _sorted(self, axis, descending)
    return values, integers(indices)


@implements(aten.topk)
def topk(
    self: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    x, axis = self.reshape(1) if not self.ndim else self, axis_of(dim, self.ndim)
    require(0 <= k <= x.shape[axis], "selected index k out of range")
    values, indices = (lax.slice_in_dim(y, 0, k, 1, axis) for y in _sorted(x, axis, largest))
    if not self.ndim:
        return values.reshape(()), integers(indices.reshape(()))
    return values, integers(indices)


def _picked(
    x: Array, rank: int | Array, axis: int, keepdim: bool, ndim: int
) -> tuple[Array, Array]:
    """Return the number of a rank along an axis, and its place; the axis keeps size 1."""
    values, indices = _sorted(x, axis)
    rank = jnp.broadcast_to(rank, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    picked = (jnp.take_along_axis(y, rank, axis) for y in (values, integers(indices)))
    value, index = picked if keepdim and ndim else (jnp.squeeze(y, axis) for y in picked)
    return value, index


def _line(self: Array, dim: int, what: str) -> tuple[Array, int]:
    x, axis = self.reshape(1) if not self.ndim else self, axis_of(dim, self.ndim)
    if not x.shape[axis]:
        raise IndexError(f"{what}(): Expected reduction dim {dim} to have non-zero size.")
    return x, axis


@implements(aten.kthvalue)
def kthvalue(self: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    x, axis = _line(self, dim, "kthvalue")
    require(1 <= k <= x.shape[axis], "kthvalue(): selected number k out of range for dimension")
    return _picked(x, k - 1, axis, keepdim, self.ndim)


def _valid(x: Array, axis: int) -> Array:
    """The number of entries that are not NaN."""
    return jnp.sum(~jnp.isnan(x), axis, keepdims=True, dtype=jnp.int32)


@implements(aten.median.dim)
def median_dim(self: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    x, axis = _line(self, dim, "median")
    n, valid = x.shape[axis], _valid(x, axis)
    return _picked(x, jnp.where(valid < n, valid, (n - 1) // 2), axis, keepdim, self.ndim)


@implements(aten.nanmedian.dim)
def nanmedian_dim(self: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    x, axis = _line(self, dim, "nanmedian")
    rank = jnp.maximum(_valid(x, axis) - 1, 0) // 2
    return _picked(x, rank, axis, keepdim, self.ndim)


def _no_numbers(self: Array) -> Array:
    nan = category(self.dtype) >= 2
    return jnp.full((), jnp.nan if nan else jnp.iinfo(self.dtype).min, self.dtype)


def _shared(self: Array, value: Array) -> Array:
    """Return the value, with its derivative shared among the entries that are equal to it."""
    if category(self.dtype) < 2:
        return value
    tied = jnp.max(jnp.where(self == lax.stop_gradient(value), self, -jnp.inf))
    return jnp.where(jnp.isnan(value), value, tied)


@implements(aten.median.default)
def median(self: Array) -> Array:
    return _shared(self, median_dim(self.reshape(-1), 0)[0]) if self.size else _no_numbers(self)


@implements(aten.nanmedian.default)
def nanmedian(self: Array) -> Array:
    return _shared(self, nanmedian_dim(self.reshape(-1), 0)[0]) if self.size else _no_numbers(self)


@implements(aten.mode)
def mode(self: Array, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    x, axis = _line(self, dim, "mode")
    values, _ = _sorted(x, axis)
    places = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    new = jnp.concatenate(
        [
            jnp.ones((*x.shape[:axis], 1, *x.shape[axis + 1 :]), bool),
            lax.slice_in_dim(values, 1, None, 1, axis) != lax.slice_in_dim(values, 0, -1, 1, axis),
        ],
        axis,
    )
    start = lax.cummax(jnp.where(new, places, 0), axis)
    # The first run of the greatest length, at its end: the smallest value, where it was last.
    rank = jnp.argmax(places - start, axis, keepdims=True)
    return _picked(x, rank, axis, keepdim, self.ndim)


def _running(self: Array, dim: int, largest: bool) -> tuple[Array, Array]:
    axis = axis_of(dim, self.ndim)
    if not self.ndim or not self.size:
        return self, integers(jnp.zeros(self.shape, jnp.int32))
    nan = jnp.isnan if category(self.dtype) >= 2 else lambda x: jnp.zeros(x.shape, bool)

    def later(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        beats = b[0] >= a[0] if largest else b[0] <= a[0]
        takes = nan(b[0]) | (~nan(a[0]) & beats)
        return jnp.where(takes, b[0], a[0]), jnp.where(takes, b[1], a[1])

    places = lax.broadcasted_iota(jnp.int32, self.shape, axis)
    values, indices = lax.associative_scan(later, (self, places), axis=axis)
    return values, integers(indices)


@implements(aten.cummax)
def cummax(self: Array, dim: int) -> tuple[Array, Array]:
    return _running(self, dim, True)


@implements(aten.cummin)
def cummin(self: Array, dim: int) -> tuple[Array, Array]:
    return _running(self, dim, False)
