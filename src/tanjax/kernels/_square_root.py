"""The principal square root, by the Schur method.

`x x = a` gives `x dx + dx x = da`: the derivative solves a Sylvester equation with `x` on both
sides. The Schur form of `x` came with the root, so all modes and orders use one factorisation.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

from tanjax._typing import Arraylike

from ._custom_jvp import custom_jvp
from ._equations import sylvester_of_itself
from ._schur import (
    as_real_if,
    batched,
    leaves_the_reals,
    nan_if,
    require_square,
    schur,
    sqrt_of_triangular,
    turned,
)
from ._shapes import Numbers, Square


def square_root(a: Arraylike, *, upper_triangular: bool = False) -> Numbers:
    """Return `x` with `x x = a` and eigenvalues in the right half plane, `(..., n, n)`."""
    require_square("sqrtm", a)
    return _square_root(a, upper_triangular=upper_triangular)


@batched("(n,n)->(n,n)")
def _square_root(a: Square, *, upper_triangular: bool) -> Square:
    return a if a.size == 0 else _with_factors(a, upper_triangular)[0]


def _with_factors(a: Square, upper_triangular: bool) -> tuple[Square, Square, Square]:
    """Return the root and its Schur form `(x, r, u)`; derivatives take the form as constant."""
    root = custom_jvp(lambda a: _evaluated(a, upper_triangular))

    @root.defjvp
    def _(primals: tuple[Square], tangents: tuple[Square]) -> PyTree:
        x, r, u = _with_factors(primals[0], upper_triangular)
        x_dot = sylvester_of_itself(x, lax.stop_gradient(r), lax.stop_gradient(u), tangents[0])
        return (x, r, u), (x_dot, jnp.zeros_like(r), jnp.zeros_like(u))

    return root(a)


def _evaluated(a: Square, upper_triangular: bool) -> tuple[Square, Square, Square]:
    t, u = schur(a, upper_triangular=upper_triangular)
    r = sqrt_of_triangular(t)
    x = turned(r, u)
    return nan_if(leaves_the_reals(a, t, x), as_real_if(a, x)), r, u
