"""The Moore-Penrose inverse, differentiated at constant rank and not through its SVD.

JAX has the same rule, but before version 0.12 drops it in loops. AD of an SVD is nan at equal
singular values, and inaccurate at nearly equal ones.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Inexact, Shaped

from tanjax._typing import AnyArray, DenseArray, Factor

from ._custom_jvp import custom_jvp
from ._schur import adjoint

Matrix = Shaped[AnyArray, "*batch m n"]
Inverse = Inexact[DenseArray, "*batch n m"]


def pseudo_inverse(a: Matrix, rtol: Factor | None = None) -> Inverse:
    """Return the inverse of matrices `(..., m, n)`.

    Singular values below `rtol` times the largest count as zero.
    """
    inverse = custom_jvp(lambda a: jnp.linalg.pinv(a, rtol=rtol))

    @inverse.defjvp
    def _(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Inverse, Inverse]:
        (a,), (a_dot,) = primals, tangents
        c, turned = inverse(a), adjoint(a_dot)
        left, right = c @ (adjoint(c) @ turned), (turned @ adjoint(c)) @ c
        return c, left - (left @ a) @ c + right - c @ (a @ right) - c @ (a_dot @ c)

    return inverse(a)
