"""The small matrix of a low-rank update, for Woodbury and the determinant lemma."""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import DenseArray, Function

from ..shapes import DenseColumns, SquareUpdate
from .factored import both_ways


def as_columns(b: DenseColumns) -> Shaped[DenseArray, "n _"]:
    """Return a vector as a matrix of one column."""
    return b[:, None] if b.ndim == 1 else b


def solve_base(
    a: SquareUpdate, b: Shaped[DenseArray, "n k"]
) -> tuple[Shaped[Array, "n k"], Shaped[Array, "n r"], Shaped[Array, "n r"] | None, Function]:
    """Return `B⁻¹ b`, `B⁻¹ U`, `B⁻ᵀ V` if it equals `B⁻¹ U`, and a function of `x̄`.

    The function returns `B⁻ᵀ x̄` and `B⁻ᵀ V`. A base that needs a factorisation is factorised once.
    """
    if isinstance(a.base, tj.Diagonal | tj.Triangular | tj.Identity):
        z, divide = tj.solve(a.base, a.u), functools.partial(tj.solve, a.base.mT)
        zt = z if a.v is None and not isinstance(a.base, tj.Triangular) else None
        back = lambda x_bar: (divide(x_bar), divide(a.right) if zt is None else zt)
        return tj.solve(a.base, b), z, zt, back
    dtype, k = jnp.result_type(a.base.dtype, b, a.u), b.shape[1]
    solve, solve_transposed = both_ways(a.base, dtype)
    both = solve(jnp.concatenate([b, a.u], axis=1))

    def transposed(x_bar: DenseColumns) -> tuple[DenseColumns, Shaped[Array, "n r"]]:
        bars = solve_transposed(jnp.concatenate([x_bar, a.right], axis=1))
        return bars[:, :k], bars[:, k:]

    return both[:, :k], both[:, k:], None, transposed


def capacitance(a: SquareUpdate, z: Shaped[Array, "n r"]) -> Shaped[Array, "r r"]:
    """Return `I + D Vᵀ Z`, the small matrix of Woodbury and of the determinant lemma."""
    # In this order of the product XLA frees `Z` early in the gradient of logdet (half the scratch
    # memory).
    return jnp.eye(z.shape[1], dtype=z.dtype) + a.weighted((z.T @ a.right).T)
