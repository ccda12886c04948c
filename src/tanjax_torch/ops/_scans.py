"""Cumulative functions along one dim."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch

from tanjax_torch.arguments._promotion import needs
from tanjax_torch.table._registry import implements

from ._reductions import counted
from ._special import add_exponents
from ._tools import aten, axis_of, wide


def _cumulative(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    @wide
    def scan(x: jax.Array, axis: int) -> jax.Array:
        return function(x, axis=axis)

    def entry(self: jax.Array, dim: int, *, dtype: torch.dtype | None = None) -> jax.Array:
        axis = axis_of(dim, self.ndim)
        x = counted(self, dtype)
        needs("a cumulative sum or product", (1, 2, 3), x)
        return scan(x, axis) if x.ndim else x

    return entry


implements(aten.cumsum)(_cumulative(jax.lax.cumsum))
implements(aten.cumprod)(_cumulative(jax.lax.cumprod))


@implements(aten.logcumsumexp, aten._logcumsumexp)
@wide
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
