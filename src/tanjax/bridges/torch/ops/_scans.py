"""Cumulative functions along one dim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch

from .._promotion import jax_dtype
from .._registry import implements
from ._reductions import at_index, counted
from ._special import add_exponents
from ._tools import aten, axis_of, needs


def _cumulative(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def entry(self: jax.Array, dim: int, *, dtype: torch.dtype | None = None) -> jax.Array:
        axis = axis_of(dim, self.ndim)
        x = counted(self, dtype)
        return function(x, axis=axis) if x.ndim else x

    return entry


implements(aten.cumsum)(_cumulative(jax.lax.cumsum))
implements(aten.cumprod)(_cumulative(jax.lax.cumprod))


@implements(aten.logcumsumexp, aten._logcumsumexp)
def logcumsumexp(self: jax.Array, dim: int) -> jax.Array:
    needs("logcumsumexp", (2, 3), self)
    axis = axis_of(dim, self.ndim)
    if not self.ndim or not self.size:
        return self
    if not jnp.iscomplexobj(self):
        return jax.lax.cumlogsumexp(self, axis=axis)
    rows = jnp.moveaxis(self, axis, 0)

    def step(total: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = add_exponents(total, row)  # in order: the branch of the logarithm follows it
        return total, total

    _, rest = jax.lax.scan(step, rows[0], rows[1:])
    return jnp.moveaxis(jnp.concatenate([rows[:1], rest]), 0, axis)


def _running(better: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[..., Any]:
    """The extreme so far and its place: the last of equal ones, and any NaN."""

    def combine(a: Any, b: Any) -> Any:
        (x, i), (y, j) = a, b
        later = (y != y) | ((x == x) & better(y, x))
        return jnp.where(later, y, x), jnp.where(later, j, i)

    def entry(self: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
        needs("cummax or cummin", (0, 1, 2), self)
        axis = axis_of(dim, self.ndim)
        integer = jax_dtype(torch.int64)
        if not self.ndim or not self.size:
            return self, jnp.zeros(self.shape, integer)
        places = jax.lax.broadcasted_iota(integer, self.shape, axis)
        start = (jax.lax.stop_gradient(self), places)
        _, index = jax.lax.associative_scan(combine, start, axis=axis)
        return at_index(self, index, axis), index

    return entry


implements(aten.cummax)(_running(jnp.greater_equal))
implements(aten.cummin)(_running(jnp.less_equal))
