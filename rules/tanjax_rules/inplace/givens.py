"""Givens rotations that make a Hessenberg matrix triangular."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import DenseArray

if TYPE_CHECKING:
    from tanjax.testing import Case


@tj.inplace(mutates=("h", "b"))
def rotate_hessenberg(h: Shaped[jax.Ref, "m n"], b: Shaped[jax.Ref, " m"]) -> None:
    """Overwrite an upper Hessenberg matrix by R, and `b` by Qᵀ b, where Q R is the matrix.

    The sweep of GMRES: for each column one rotation of two rows. Real; `h` has shape `(n + 1, n)`
    or `(n, n)`. Entries below the subdiagonal must be zero, and no column may vanish in both rows.

    **Cost:** O(n²). **Derivative:** that of the program.
    **References:** Saad, Iterative Methods for Sparse Linear Systems, section 6.5.3.

    >>> h, b = tj.new_ref(jnp.array([[3.0], [4.0]])), tj.new_ref(jnp.array([5.0, 0.0]))
    >>> rotate_hessenberg(h, b)
    >>> h[...].tolist(), b[...].tolist()
    ([[5.0], [0.0]], [3.0, -4.0])
    """

    def column(k: DenseArray, _: None) -> None:
        upper, lower = h[k], h[k + 1]
        x, y = upper[k], lower[k]
        norm = jnp.sqrt(x * x + y * y)
        c, s = x / norm, y / norm
        h[k] = c * upper + s * lower
        # The rotation makes this entry zero up to rounding.
        h[k + 1] = jnp.where(jnp.arange(h.shape[1]) == k, 0, c * lower - s * upper)
        b[k], b[k + 1] = c * b[k] + s * b[k + 1], c * b[k + 1] - s * b[k]

    lax.fori_loop(0, min(h.shape[0] - 1, h.shape[1]), column, None)


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """The matrix of a step of GMRES."""
    from tanjax.testing import Case, Samples

    s = Samples(33)
    h = jnp.triu(s.normal(4, 3), -1) + 3 * jnp.eye(4, 3)
    yield Case(rotate_hessenberg.transition, h, s.normal(4))
