r"""Fractional powers: $A^t = A^k e^{(t - k)\log A}$, with `k` the whole number next to `t`.

The logarithm and the exponential have derivatives. Their loss of digits grows with the power, so
they compute a power of at most a half, and products compute the whole part.
"""

from __future__ import annotations

from fractions import Fraction

import jax.numpy as jnp

from tanjax._typing import Arraylike

from ._exponential import exponential
from ._logarithm import logarithm
from ._schur import inexact, require_square
from ._shapes import Numbers
from ._square_root import square_root


def fractional_power(a: Arraylike, t: float, *, upper_triangular: bool = False) -> Numbers:
    """Return the principal power `t`, a number, of `(..., n, n)`."""
    require_square("fractional_matrix_power", a)
    (a,) = inexact(a)
    whole, rest = split_power(t)
    if rest == 0:
        return jnp.linalg.matrix_power(a, whole)
    if rest in (Fraction(1, 2), Fraction(-1, 2)):  # round half to even: floor instead
        whole, part = int(whole + rest - Fraction(1, 2)), square_root
    else:
        part = lambda a, **how: exponential(logarithm(a, **how) * jnp.asarray(float(rest), a.dtype))
    power = part(a, upper_triangular=upper_triangular)
    return power if whole == 0 else jnp.linalg.matrix_power(a, whole) @ power


def split_power(t: float) -> tuple[int, Fraction]:
    """Split a power into the nearest whole number and the rest."""
    exact = Fraction(t)
    whole = round(exact)
    return whole, exact - whole
