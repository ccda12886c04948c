r"""The nuclear norm and the extreme singular values of dense matrices, differentiable twice.

All three are sums $\sum_i w_i\sigma_i$ with constant weights. Their slopes are
$G = U\,\mathrm{diag}(w)V^H$. The derivative of a slope, by divided differences of weights, needs
no vectors of equal singular values. AD of a decomposition is nan if any two singular values are
equal, as in every circulant matrix, or in the identity plus a matrix of low rank.
"""

from __future__ import annotations

from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Inexact, PyTree, Shaped

from tanjax._typing import AnyArray, DenseArray, Order

from ._custom_jvp import custom_jvp
from ._schur import adjoint

Matrix: TypeAlias = Shaped[AnyArray, "*batch m n"]
Values: TypeAlias = Float[AnyArray, "*batch k"]
Sum: TypeAlias = Float[AnyArray, "*batch"]
Slope: TypeAlias = Inexact[DenseArray, "*batch m n"]
Pairs: TypeAlias = Float[AnyArray, "*batch k k"]


def of_singular_values(s: Values, ord: Order) -> Sum:
    """Return the nuclear norm, or the largest (2) or least (-2) of singular values `(..., k)`."""
    if ord == "nuc":
        return jnp.sum(s, axis=-1)
    return jnp.max(s, axis=-1, initial=0) if ord == 2 else jnp.min(s, axis=-1)


def spectral_norm(a: Matrix, ord: Order) -> Sum:
    r"""Return `of_singular_values` of matrices `(..., m, n)`.

    **Derivative:** $\mathrm{Re}\langle G, \dot A\rangle$. At kinks, where extreme values are equal,
    it is a subgradient, and the second derivative is nan. The nuclear norm also has a kink at zero
    values: there its second derivative is the one along matrices of the same rank.

    **References:** Lewis and Sendov 2005; Noferini 2017.
    """
    values = custom_jvp(lambda a: of_singular_values(jnp.linalg.svd(a, compute_uv=False), ord))
    sloped = custom_jvp(lambda a: _with_slope(a, ord))

    @values.defjvp
    def _(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Sum, Sum]:
        y, slope = sloped(primals[0])
        return y, _product(slope, tangents[0])

    @sloped.defjvp
    def _(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[PyTree, PyTree]:
        (a,), (a_dot,) = primals, tangents
        y, slope = sloped(a)
        return (y, slope), (_product(slope, a_dot), _slope_dot(a, a_dot, ord))

    return values(a)


def _product(slope: Matrix, a_dot: Matrix) -> Sum:
    return jnp.sum(jnp.real(jnp.conj(slope) * a_dot), axis=(-2, -1))


def _with_slope(a: Matrix, ord: Order) -> tuple[Sum, Slope]:
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    return of_singular_values(s, ord), (u * _weights(s, ord).astype(u.dtype)[..., None, :]) @ vh


def _weights(s: Values, ord: Order) -> Values:
    """Return weight 1 for each value in the sum; equal extreme values share one weight."""
    if ord == "nuc":
        return jnp.ones_like(s)
    extreme = (s == of_singular_values(s, ord)[..., None]).astype(s.dtype)
    return extreme / jnp.sum(extreme, axis=-1, keepdims=True)


def _slope_dot(a: Matrix, a_dot: Matrix, ord: Order) -> Slope:
    """Return the tangent of the slope along `a_dot`.

    Its parts come from the Hermitian and the skew part of `U^H a_dot V`, and from the complement
    of the thin factors.
    """
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    uh, v = adjoint(u), adjoint(vh)
    w = _weights(s, ord)
    inner = uh @ a_dot @ v
    hermitian = (inner + adjoint(inner)) / 2
    differences, sums, single = (x.astype(u.dtype) for x in _quotients(s, w, ord))
    core = differences * hermitian + sums * (inner - hermitian)
    slope = u @ core @ vh
    rows, columns = a.shape[-2:]
    if rows > columns:
        slope = slope + (single[..., None, :] * (a_dot @ v - u @ inner)) @ vh
    elif rows < columns:
        slope = slope + u @ (single[..., :, None] * (uh @ a_dot - inner @ vh))
    return slope


def _quotients(s: Values, w: Values, ord: Order) -> tuple[Pairs, Pairs, Values]:
    """Return the factors of `_slope_dot`, quotients that are 0 if the numerator is 0.

    They are `(w_i - w_j) / (s_i - s_j)`, `(w_i + w_j) / (s_i + s_j)` and `w_i / s_i`.
    """
    eye = jnp.eye(s.shape[-1], dtype=bool)
    pairs = lambda x: (x[..., :, None], x[..., None, :])
    (si, sj), (wi, wj) = pairs(s), pairs(w)
    noise = 16 * jnp.finfo(s.dtype).eps * jnp.max(s, axis=-1, initial=0)[..., None, None]
    is_kink = (jnp.abs(si - sj) <= noise) & (wi + wj > 0) & ~eye & (ord != "nuc")
    differences = _quotient(wi - wj, si - sj)
    differences = jnp.where(is_kink, jnp.asarray(jnp.nan, s.dtype), differences)
    # Along matrices of the same rank, singular values that are zero to rounding stay zero.
    null = noise if ord == "nuc" else jnp.full_like(noise, -jnp.inf)
    sums = _quotient(wi + wj, si + sj, null)
    return differences, sums, _quotient(w, s, null[..., 0] / 2)


def _quotient(above: Values, below: Values, null: Values | float = -np.inf) -> Values:
    """Return `above / below`, or zero if the numerator is 0 or the denominator at most `null`."""
    zero = (above == 0) | (below <= null)
    above = jnp.where(zero, jnp.zeros_like(above), above)
    return jnp.where(zero, above, above / jnp.where(zero, jnp.ones_like(below), below))
