"""Gathering and scattering along one axis, with an index for each number."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from tanjax._typing import DType
from tanjax_torch._typing import Number
from tanjax_torch.arguments._promotion import category
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, axis_of, in_bounds, number, require, same_dtype, shaped

_OUT = "index {} is out of bounds for dimension with size {}"
_SHORT = {"sum": "add", "add": "add", "multiply": "multiply", "prod": "multiply"}
_REDUCTIONS = _SHORT | {"mean": "mean", "amax": "max", "amin": "min"}


def _grid(index: Array, axis: int) -> tuple[Array, ...]:
    """Return the places of all numbers: `index` along `axis`, their own along the others."""
    places = [jax.lax.broadcasted_iota(index.dtype, index.shape, k) for k in range(index.ndim)]
    places[axis] = index
    return tuple(places)


def _lined(x: Array) -> Array:
    return x if x.ndim else x.reshape(1)


def _checked(what: str, self: Array, axis: int, index: Array, others: bool = True) -> bool:
    require(
        index.dtype.kind in "iu",
        f"{what}(): Expected dtype int32 or int64 for index",
    )
    require(index.ndim == self.ndim, f"{what}(): Index tensor must have the same number of dims")
    fits = all(
        n <= m for k, (n, m) in enumerate(zip(index.shape, self.shape, strict=True)) if k != axis
    )
    require(
        not index.size or not others or fits,
        f"{what}(): expected index {list(index.shape)} to be smaller than self "
        f"{list(self.shape)} apart from dimension {axis}",
    )
    return in_bounds(index, self.shape[axis], error=RuntimeError, text=_OUT)


@functools.partial(jax.jit, static_argnames=("axis", "known"))
def _gather(x: Array, axis: int, index: Array, known: bool) -> Array:
    return x.at[_grid(index, axis)].get(mode="promise_in_bounds" if known else "fill")


@implements(aten.gather, eager=True)
def gather(self: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    x, places, axis = _lined(self), _lined(index), axis_of(dim, self.ndim)
    known = _checked("gather", x, axis, places)
    return shaped(_gather(x, axis, places, known), index.shape)


@functools.partial(jax.jit, static_argnames=("axis", "how", "include_self", "known"))
def _scattered(
    x: Array, axis: int, index: Array, source: Array, how: str, include_self: bool, known: bool
) -> Array:
    mode = "promise_in_bounds" if known else "drop"
    grid = _grid(index, axis)
    if source.ndim:
        source = source[tuple(slice(0, n) for n in index.shape)]
    if how != "set" and not include_self:
        x = x.at[grid].set(_neutral(how, x.dtype), mode=mode)
    if how != "mean":
        # A sum of truth values is "or", a product "and".
        how = {"add": "max", "multiply": "min"}.get(how, how) if x.dtype == jnp.bool_ else how
        return getattr(x.at[grid], how)(source, mode=mode)
    total = x.at[grid].add(source, mode=mode)
    start = jnp.ones if include_self else jnp.zeros
    count = jnp.maximum(start(x.shape, x.dtype).at[grid].add(1, mode=mode), 1)
    return total / count if category(x.dtype) >= 2 else total // count


def _neutral(how: str, dtype: DType) -> Array:
    if how in ("add", "mean"):
        return jnp.zeros((), dtype)
    if how == "multiply":
        return jnp.ones((), dtype)
    if dtype == jnp.bool_:
        return jnp.asarray(how == "min")
    if category(dtype) == 1:
        info = jnp.iinfo(dtype)
        return jnp.asarray(info.min if how == "max" else info.max, dtype)
    return jnp.asarray(-jnp.inf if how == "max" else jnp.inf, dtype)


def _scatter(
    what: str,
    self: Array,
    dim: int,
    index: Array,
    source: Array,
    how: str,
    include_self: bool = True,
) -> Array:
    x, places, axis = _lined(self), _lined(index), axis_of(dim, self.ndim)
    known = _checked(what, x, axis, places)
    if not places.size:
        return self
    if source is not index and jnp.ndim(source):
        fits = all(n <= m for n, m in zip(places.shape, _lined(source).shape, strict=True))
        require(fits, f"{what}(): expected index to be no larger than src in any dimension")
    return shaped(_scattered(x, axis, places, source, how, include_self, known), self.shape)


@implements(aten.scatter.src, eager=True)
def scatter(self: Array, dim: int, index: Array, src: Array) -> Array:
    same_dtype("scatter", self, src)
    return _scatter("scatter", self, dim, index, src, "set")


@implements(aten.scatter.value, eager=True)
def scatter_value(self: Array, dim: int, index: Array, value: Number) -> Array:
    return _scatter("scatter", self, dim, index, number(value, self.dtype), "set")


@implements(aten.scatter.reduce, eager=True)
def scatter_src_reduce(self: Array, dim: int, index: Array, src: Array, *, reduce: str) -> Array:
    require(reduce in _SHORT, f"reduce argument must be either add or multiply, got {reduce}")
    return _scatter("scatter", self, dim, index, src, _SHORT[reduce])


@implements(aten.scatter.value_reduce, eager=True)
def scatter_value_reduce(
    self: Array, dim: int, index: Array, value: Number, *, reduce: str
) -> Array:
    return scatter_src_reduce(self, dim, index, number(value, self.dtype), reduce=reduce)


@implements(aten.scatter_add, eager=True)
def scatter_add(self: Array, dim: int, index: Array, src: Array) -> Array:
    same_dtype("scatter_add", self, src)
    return _scatter("scatter_add", self, dim, index, src, "add")


@implements(aten.scatter_reduce.two, eager=True)
def scatter_reduce(
    self: Array, dim: int, index: Array, src: Array, reduce: str, *, include_self: bool = True
) -> Array:
    same_dtype("scatter_reduce", self, src)
    known = reduce in ("sum", "prod", "mean", "amax", "amin")
    require(known, f"reduce argument must be sum, prod, mean, amax or amin, got {reduce}")
    how = _REDUCTIONS[reduce]
    return _scatter("scatter_reduce", self, dim, index, src, how, include_self)


@implements(aten.index_reduce, eager=True)
def index_reduce(
    self: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True
) -> Array:
    axis = axis_of(dim, self.ndim)
    known = reduce in ("prod", "mean", "amax", "amin")
    require(known, f"reduce argument must be prod, mean, amax or amin, got {reduce}")
    shape = [1] * max(self.ndim, 1)
    shape[axis] = index.size
    places = jnp.broadcast_to(index.reshape(shape), _lined(source).shape)
    return _scatter("index_reduce", self, dim, places, source, _REDUCTIONS[reduce], include_self)
