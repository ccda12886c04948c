"""Shapes of arguments that rules of several packs share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, DenseArray, Function, Natural

# The right-hand sides of a system, and its solutions: one vector, or a matrix of them.
DenseColumns: TypeAlias = Shaped[DenseArray, " n *k"]
# Square matrices of one type.
SquareDiagonal: TypeAlias = Shaped[tj.Diagonal, "n n"]
SquareTriangular: TypeAlias = Shaped[tj.Triangular, "n n"]
SquareUpdate: TypeAlias = Shaped[tj.LowRankUpdate, "n n"]
# The two types that store every entry of a matrix with a symmetry.
FullStorage: TypeAlias = Shaped[tj.Symmetric | tj.Hermitian, "n n"]


def all_square(parts: Iterable[AnyArray]) -> bool:
    """Return whether every part is square: then each part has its own functions."""
    return all(part.shape[0] == part.shape[1] for part in parts)


def columns_at_once(function: Function, b: Natural) -> Natural:
    """A function of columns `(n, k)`, of a batch of them `(..., n, k)` as of more columns."""
    if b.ndim == 2:
        return function(b)
    rows = jnp.moveaxis(b, -2, 0)
    x = function(rows.reshape(rows.shape[0], rows.size // max(rows.shape[0], 1)))
    return jnp.moveaxis(x.reshape(rows.shape), 0, -2)
