"""Determinants, with derivatives where the matrix is singular, and their sign and logarithm.

The derivative of a determinant is the matrix of its cofactors. JAX computes them by LU. If a pivot
before the last one is zero, JAX's derivative is zero and can be wrong. For these matrices this
module computes cofactors as products of singular values.

    jax.grad(det)(jnp.diag(jnp.array([0.0, 1.0, 2.0, 3.0])))[0, 0]  # 6.0

JAX also has a rule for sign and logarithm. Before version 0.12, reverse mode through a loop
differentiates the body instead of using the rule. For complex matrices of one or two rows the body
has no change of phase.

Sharp edge: third derivatives at a matrix with a zero pivot are nan if singular values are equal.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Inexact, Shaped

from tanjax._typing import AnyArray, DenseArray

from ._custom_jvp import custom_jvp

Matrix = Shaped[AnyArray, "*batch n n"]
Signed = tuple[Inexact[DenseArray, "*batch"], Inexact[DenseArray, "*batch"]]


def sign_and_logarithm(a: Matrix) -> Signed:
    """Return `sign(det(a))` (the phase of a complex determinant) and `log(abs(det(a)))`."""
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


# -- determinants --------------------------------------------------------------------------------


@custom_jvp
def det(a: Matrix) -> Inexact[DenseArray, "*batch"]:
    """Return the determinant."""
    return jnp.linalg.det(a)


@det.defjvp
def _(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[DenseArray, DenseArray]:
    (a,), (a_dot,) = primals, tangents
    return det(a), jnp.sum(cofactors(a) * a_dot, (-2, -1))


def cofactors(a: Matrix) -> Matrix:
    r"""Return the derivative of the determinant by each entry: $\det(A) A^{-\top}$ if regular.

    **Cost:** an LU and a solve; a singular value decomposition if a pivot is zero to rounding.
    """
    if 0 in a.shape:
        return jnp.ones_like(a)
    regular = _is_regular(lax.stop_gradient(a))[..., None, None]

    def by_either(a: Matrix) -> Matrix:
        n = a.shape[-1]
        distinct = jnp.diag(jnp.arange(1, n + 1, dtype=a.dtype))  # derivatives of any order exist
        singular = _by_singular_values(jnp.where(regular, distinct, a))
        return jnp.where(regular, _by_lu(jnp.where(regular, a, distinct)), singular)

    return lax.cond(jnp.all(regular), _by_lu, by_either, a)


def _is_regular(a: Matrix) -> Bool[DenseArray, "*batch"]:
    """True if every pivot is above rounding errors of its column."""
    pivots = jnp.abs(jnp.diagonal(lax.linalg.lu(a)[0], axis1=-2, axis2=-1))
    largest = jnp.max(jnp.abs(a), -2)
    return jnp.all(pivots > a.shape[-1] * jnp.finfo(a.dtype).eps * largest, -1)


def _by_lu(a: Matrix) -> Matrix:
    value, pullback = jax.vjp(jnp.linalg.det, a)
    return pullback(jnp.ones_like(value))[0]


class _Decomposition(NamedTuple):
    r"""$A = U S V^*$, with $c = \det(U) \det(V^*)$."""

    u: Matrix
    s: DenseArray
    vh: Matrix

    @classmethod
    def of(cls, a: Matrix) -> Self:
        u, s, vh = jnp.linalg.svd(a)
        return cls(u, _told_apart(s).astype(a.dtype), vh)

    def derivative(self, inner: Matrix) -> Matrix:
        """Return the derivative by $A$, from that of the determinant by $U^* A V$."""
        c = jnp.linalg.det(self.u) * jnp.linalg.det(self.vh)
        return c[..., None, None] * (self.u.conj() @ inner @ self.vh.conj())


@custom_jvp
def _by_singular_values(a: Matrix) -> Matrix:
    found = _Decomposition.of(a)
    return found.derivative(_diagonal(_all_but_one(found.s)))


@_by_singular_values.defjvp
def _(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Matrix, Matrix]:
    r"""$D^2\det(X, Y) = \sum_{i \ne j} p_{ij} (x_{ii} y_{jj} - x_{ij} y_{ji})$ if $A$ is diagonal.

    $p_{ij}$ is the product of all values except $i$ and $j$. **Source:** it is a minor (Horn and
    Johnson, *Matrix Analysis*, 2nd ed., 0.8.10).
    """
    (a,), (a_dot,) = primals, tangents
    found = _Decomposition.of(a)
    x = jnp.swapaxes(found.u.conj(), -1, -2) @ a_dot @ jnp.swapaxes(found.vh.conj(), -1, -2)
    eye = jnp.eye(a.shape[-1], dtype=a.dtype)
    products = (1 - eye) * _all_but_one(jnp.where(eye == 1, eye, found.s[..., None, :]))
    own = (products @ jnp.diagonal(x, axis1=-2, axis2=-1)[..., None])[..., 0]
    inner = _diagonal(own) - products * jnp.swapaxes(x, -1, -2)
    return _by_singular_values(a), found.derivative(inner)


@custom_jvp
def _told_apart(s: DenseArray) -> DenseArray:
    """Return singular values; their derivative is nan if two are equal to rounding."""
    return s


@_told_apart.defjvp
def _(primals: tuple[DenseArray], tangents: tuple[DenseArray]) -> tuple[DenseArray, DenseArray]:
    (s,), (s_dot,) = primals, tangents
    gap = jnp.min(s[..., :-1] - s[..., 1:], -1, keepdims=True)
    are_apart = gap > s.shape[-1] * jnp.finfo(s.dtype).eps * s[..., :1]
    slope = jnp.where(are_apart, jnp.ones_like(gap), jnp.full_like(gap, jnp.nan))
    return _told_apart(s), slope * s_dot


def _diagonal(x: Shaped[DenseArray, "*batch n"]) -> Matrix:
    return x[..., None] * jnp.eye(x.shape[-1], dtype=x.dtype)


def _all_but_one(x: Shaped[DenseArray, "*batch n"]) -> Shaped[DenseArray, "*batch n"]:
    """Return for each entry the product of all others, without a division."""
    one = jnp.ones_like(x[..., :1])
    before = jnp.cumprod(jnp.concatenate((one, x[..., :-1]), -1), -1)
    after = lax.cumprod(jnp.concatenate((x[..., 1:], one), -1), axis=x.ndim - 1, reverse=True)
    return before * after
