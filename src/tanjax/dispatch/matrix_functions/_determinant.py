"""Sign and logarithm of determinants, with a derivative that every loop keeps.

JAX has the same rule. Before version 0.12 it differentiates the body instead where a loop is taken
apart for reverse mode, and the body for complex matrices of one row or two has no change of phase.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Inexact, Shaped

from tanjax._typing import AnyArray, DenseArray
from tanjax.registry import custom_jvp

Matrix = Shaped[AnyArray, "*batch n n"]
Signed = tuple[Inexact[DenseArray, "*batch"], Inexact[DenseArray, "*batch"]]


def sign_and_logarithm(a: Matrix) -> Signed:
    """`sign(det(a))`, of complex matrices the phase, and `log(abs(det(a)))`."""
    return _of_complex(a) if jnp.iscomplexobj(a) else tuple(jnp.linalg.slogdet(a))


@custom_jvp
def _of_complex(a: Matrix) -> Signed:
    return tuple(jnp.linalg.slogdet(a))


@_of_complex.defjvp
def _(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Signed, Signed]:
    (a,), (a_dot,) = primals, tangents
    sign, logarithm = _of_complex(a)
    change = jnp.trace(jnp.linalg.solve(a, a_dot), axis1=-2, axis2=-1)
    return (sign, logarithm), ((change - change.real.astype(change.dtype)) * sign, change.real)
