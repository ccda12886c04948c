r"""Determinants of real tridiagonal matrices, by pivots without row exchanges.

The determinant depends on the products $l_i u_i$ of an entry and its mirror image alone. The pivots
of an elimination without row exchanges,

$$p_{i+1} = d_{i+1} - l_i u_i / p_i,$$

are, after rounding, those of a matrix in which only these products differ, by a few roundings each.
Large multipliers therefore lose no accuracy, and no row has to move: three operations a row. A zero
pivot makes the next pivot infinite, and does not affect the pivot after that. Two numbers with the
same product replace the two. Systems do not have this property: they are solved with exchanges
(`_band_factor`), or by LAPACK.

With the pivots from the last row up, $m_i$, the derivative is the band of the inverse,

$$A^{-1}_{i,i} = 1/(p_i - l_i u_i/m_{i+1}), \qquad A^{-1}_{i,i+1} = 1/(l_i - p_i m_{i+1}/u_i).$$

**References:** Demmel 1997, section 5.3.4, for symmetric matrices; Dhillon and Parlett 2004, for
the pivots from both ends.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree, Shaped

from tanjax._typing import Scalar

from ._band_factor import band_factor, diagonal_of_rows, diagonal_padding, inverse_band
from ._custom_jvp import custom_jvp

# The entries below the diagonal, on it and above it.
Three: TypeAlias = tuple[Shaped[Array, " m"], Shaped[Array, " n"], Shaped[Array, " m"]]
Rows: TypeAlias = tuple[Shaped[Array, " n"], Shaped[Array, " n"], Shaped[Array, " n"]]
Determinant: TypeAlias = tuple[Scalar, Scalar]  # its sign and logarithm


@custom_jvp
def slogdet_tridiagonal(lower: Array, diag: Array, upper: Array) -> Determinant:
    rows = _rows(lower, diag, upper)
    return _product(rows, *_pivots(rows))


@slogdet_tridiagonal.defjvp
def _(primals: Three, tangents: Three) -> tuple[Determinant, Determinant]:
    sign, logabsdet, *inverse = determinant_and_inverse(*primals)
    y_dot = sum(jnp.sum(x * t) for x, t in zip(reversed(inverse), tangents, strict=True))
    return (sign, logabsdet), (jnp.zeros_like(sign), y_dot)


@custom_jvp
def determinant_and_inverse(
    lower: Array, diag: Array, upper: Array
) -> tuple[Scalar, Scalar, Array, Array, Array]:
    """Return sign, logarithm, and the band of the inverse: below the diagonal, on it, above it."""
    rows = _rows(lower, diag, upper)
    down, up = _pivots(rows, _rows(upper[::-1], diag[::-1], lower[::-1]))
    p, m = down[:-1], up[::-1][1:]
    own = down - jnp.pad(lower / m * upper, (0, 1))[: diag.shape[0]]
    below, above = (1 / (x - p / y * m) for x, y in ((upper, lower), (lower, upper)))
    return (*_product(rows, down), below, 1 / own, above)


@determinant_and_inverse.defjvp
def _(primals: Three, tangents: Three) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Use row exchanges: second derivatives of pivots from both ends would cancel."""

    def inverse(*three: Array) -> Three:
        lower, diag, upper = three
        n = diag.shape[0]
        lower, upper = (jnp.pad(x, diagonal_padding(n, k)) for x, k in ((lower, 1), (upper, -1)))
        rows = inverse_band(band_factor(jnp.stack([lower, diag, upper], axis=1), 1))
        below, diag, above = (diagonal_of_rows(rows, 1, k) for k in (1, 0, -1))
        return below, diag, above

    value = jax.jvp(slogdet_tridiagonal, primals, tangents)
    return tuple(x + y for x, y in zip(value, jax.jvp(inverse, primals, tangents), strict=True))


def _rows(lower: Array, diag: Array, upper: Array) -> Rows:
    """Return the rows of a step: the diagonal between its entries that couple to the row before."""
    before = (jnp.pad(x, (1, 0))[: diag.shape[0]] for x in (lower, upper))
    return next(before), diag, next(before)


def _pivots(*matrices: Rows) -> tuple[Shaped[Array, " n"], ...]:
    """Return the pivots of each matrix, in one loop."""

    def step(last: tuple[Array, ...], rows: PyTree) -> PyTree:
        # A row that is not coupled to a zero pivot must not be divided by it.
        found = tuple(
            diag - jnp.where((x == 0) | (y == 0), x * y, x / pivot * y)
            for pivot, (x, diag, y) in zip(last, rows, strict=True)
        )
        return found, found

    first = tuple(jnp.ones_like(jnp.sum(diag[:0])) for _, diag, _ in matrices)
    return lax.scan(step, first, matrices)[1]


def _product(rows: Rows, pivots: Shaped[Array, " n"]) -> Determinant:
    """Return sign and logarithm of the product of the pivots, without their product."""
    lower, diag, upper = rows
    infinite = jnp.isinf(pivots) & (lower != 0)  # the pivot before is zero, or nearly
    others = upper - diag / lower * jnp.pad(pivots, (1, 0))[: diag.shape[0]]
    behind = lambda x: jnp.pad(x[1:], (0, 1))[: diag.shape[0]]
    x = jnp.where(infinite, others, pivots)
    x = jnp.where(behind(infinite), behind(-lower), x)
    return jnp.prod(jnp.sign(x)), jnp.sum(jnp.log(jnp.abs(x)))
