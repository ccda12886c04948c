"""Widths and rows of matrices with a few diagonals, for rules of every pack."""

from __future__ import annotations

from typing import TypeAlias

import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

import tanjax as tj
from tanjax.kernels import diagonal_padding

Band: TypeAlias = Shaped[tj.Tridiagonal | tj.SymTridiagonal | tj.Banded, "n n"]


def widths(a: Band) -> tuple[int, int]:
    """How many diagonals there are below and above the main one."""
    return (a.lower, a.upper) if isinstance(a, tj.Banded) else (1, 1)


def rows_of(a: Shaped[tj.AbstractArray, "n n"], lower: int, upper: int) -> Shaped[Array, "n width"]:
    """Return the band of a matrix, by rows."""
    n, offsets = a.shape[0], range(-lower, upper + 1)
    columns = [jnp.pad(a.off_diagonal(k), diagonal_padding(n, -k)) for k in offsets]
    return jnp.stack(columns, axis=1)
