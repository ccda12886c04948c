r"""Eigenvalues of symmetric tridiagonal matrices, by bisection.

The elimination of $T - x I$ without row exchanges has one negative pivot for each eigenvalue below
`x` (Sylvester). A zero pivot moves by the least positive number, which moves `x` by less than its
rounding error. The count halves an interval for every eigenvalue: one scan over the rows, with
vectors over the eigenvalues, per digit of the dtype. So the cost is $O(n^2)$, the memory $O(n)$,
and the error a few roundings of $\|T\|$, for every matrix.

**References:** Givens 1954; Kahan 1966; Demmel, Dhillon and Ren 1995.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Float, PyTree

from tanjax import _compat
from tanjax._typing import DenseArray, Natural, Scalar


def in_range(
    diag: Float[DenseArray, " n"], off: Float[DenseArray, " m"]
) -> tuple[Float[DenseArray, " n"], Float[DenseArray, " m"], Scalar, Natural]:
    """Return the matrix scaled to entries up to 1, the exponent of two, and a flag for nan or inf.

    Without the scaling, squares overflow or underflow. A matrix with an `inf` or a `nan` becomes
    the zero matrix; the caller sets its eigenvalues to nan.
    """
    sizes = jnp.concatenate([jnp.abs(diag), jnp.abs(off)])
    largest = jnp.max(sizes, initial=0)
    lost = ~jnp.isfinite(largest)
    seen = (largest >= jnp.finfo(diag.dtype).tiny) & ~lost
    exponent = jnp.where(seen, jnp.frexp(jnp.where(seen, largest, 1))[1], 0)
    scaled = lambda x: times_power(jnp.where(lost, jnp.zeros_like(x), x), -exponent)
    return scaled(diag), scaled(off), exponent, lost


def times_power(x: Natural, exponent: Scalar) -> Natural:
    """Return `x` times a power of two, even if the power itself overflows or underflows."""
    half = exponent // 2
    return jnp.ldexp(jnp.ldexp(x, half), exponent - half)


def tridiagonal_eigenvalues(
    diag: Float[DenseArray, " n"], off: Float[DenseArray, " m"]
) -> Float[DenseArray, " n"]:
    r"""Return ascending eigenvalues within a few $\epsilon\|T\|$; nan if an entry is not finite."""
    if diag.shape[0] == 0:
        return diag
    diag, off, exponent, lost = in_range(diag, off)
    squares = jnp.pad(off * off, (1, 0))
    smallest = jnp.finfo(diag.dtype).tiny
    which = jnp.arange(diag.shape[0])

    def below(x: Natural) -> Natural:
        """Return the number of eigenvalues at most each number."""

        def eliminate(carry: PyTree, row: PyTree) -> PyTree:
            pivot, count = carry
            pivot = row[0] - x - row[1] / pivot
            pivot = jnp.where(jnp.abs(pivot) < smallest, -smallest, pivot)
            return (pivot, count + (pivot < 0).astype(count.dtype)), None

        start = jnp.ones_like(x), jnp.zeros_like(which)
        return lax.scan(eliminate, _compat.align(start, x), (diag, squares))[0][1]

    def halve(bounds: PyTree, _: None) -> PyTree:
        low, high = bounds
        middle = (low + high) / 2
        above = below(middle) > which
        return (jnp.where(above, low, middle), jnp.where(above, middle, high)), None

    # The sum of a row is less than 4, and halving 4 is exact.
    bounds = _compat.align((jnp.full_like(diag, -4), jnp.full_like(diag, 4)), diag)
    digits = jnp.finfo(diag.dtype).nmant
    high = lax.scan(halve, bounds, None, length=digits + 8)[0][1]
    return jnp.where(lost, jnp.nan, times_power(high, exponent))
