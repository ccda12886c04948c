"""Signs of factors."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

import tanjax as tj
from tanjax.typing import SquareMatrix


def oriented(factors: tuple[SquareMatrix, ...]) -> list[SquareMatrix]:
    r"""Return square factors of the same product; at most the last has a negative trace.

    $(-A) \otimes (-B)$ is definite where $A \otimes B$ is, and has its Cholesky factor and root.
    """
    out = list(factors)
    unknown = [i for i, f in enumerate(factors) if not is_positive(f) and 0 not in f.shape]
    for i in unknown[:-1]:
        trace = jnp.real(jnp.sum(tj.linalg.diagonal(out[i])))
        sign = jnp.where(trace < 0, -1, 1).astype(trace.dtype)
        out[i], last = tj.linalg.multiply(out[i], sign), unknown[-1]
        out[last] = tj.linalg.multiply(out[last], sign)
    return out


def is_positive(a: SquareMatrix) -> bool:
    """Return whether the type promises that a matrix is definite."""
    return isinstance(a, tj.Identity) or bool(getattr(a, "definite", False))


def nan_unless_alike(out: Array, upper: Array, lower: Array) -> Array:
    """`out`, or nan where entries above the diagonal are not the conjugates of those below.

    They may differ by what a sum of as many entries is rounded by.
    """
    if not upper.size:
        return out
    rounding = upper.size * jnp.finfo(upper.dtype).eps * jnp.max(jnp.abs(upper))
    hermitian = jnp.all(jnp.abs(upper - jnp.conj(lower)) <= rounding)
    return jnp.where(hermitian, out, jnp.nan)
