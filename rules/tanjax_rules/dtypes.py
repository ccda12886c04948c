"""Casts of dtypes, for rules of every pack."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from tanjax.typing import Natural


def floating(a: Natural, dtype: DTypeLike = float) -> Natural:
    """Integers, dense or the fields of a structured array, as floating-point numbers."""
    if jnp.issubdtype(a.dtype, jnp.inexact):
        return a
    return jax.tree.map(lambda x: x.astype(jnp.result_type(dtype)), a)
