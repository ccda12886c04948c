"""Transposes that are fast.

XLA's CPU compiler transposes tile by tile where that is all that a loop does. Where it fuses a
transpose with other arithmetic, the loop walks down columns: `(x + x.T) / 2` takes ten times as
long as it has to at n = 2048. So a transpose of many numbers is written out first.

    (x + transposed(x)) / 2

Sharp edges. Under `jax.jit` only: a concrete array is transposed by a call of its own anyway.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint


def transposed(x: Any) -> Any:
    """The last two axes exchanged, written out before anything else is done with the result."""
    return _row_major(jnp.swapaxes(x, -1, -2))


def moved_axis(x: Any, source: int, destination: int) -> Any:
    """`jnp.moveaxis`, written out likewise, and so is a cotangent that comes the other way."""
    return _row_major(jnp.moveaxis(_row_major(x), source, destination))


def _row_major(x: Any) -> Any:
    if not isinstance(x, jax.core.Tracer):
        return x
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))
