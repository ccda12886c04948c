r"""Eigenvalues and eigenvectors of symmetric tridiagonal matrices.

Eigenvalues are found by bisection, which needs vectors only, and eigenvectors by divide and
conquer. The natural cotangent is $V X V^\top$ as for all other types. A tridiagonal matrix uses
three diagonals of it: these are sums over pairs of rows, and the other entries are never computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax import kernels
from tanjax.typing import DenseArray, Natural, Pullback, Scalar

from ..dtypes import floating
from .eigh import pushforward_of_pairs, rule_of_pairs
from .factorize import defined
from .gauge import adjoint, composed

if TYPE_CHECKING:
    from tanjax.testing import Case

Matrix = Shaped[tj.SymTridiagonal, "n n"]
Diagonals = tuple[Shaped[DenseArray, " n"], Shaped[DenseArray, " k"]]


# -- values --------------------------------------------------------------------------------------


@tj.eigh.implementation(tj.SymTridiagonal)
def eigh(a: Matrix, *, invariant: bool = False) -> tj.EighResult:
    a = floating(a)
    return tj.EighResult(*pairs_of(a.diag, a.off))


@tj.eigvalsh.implementation(tj.SymTridiagonal)
def eigvalsh(a: Matrix) -> Natural:
    a = floating(a)
    return values_of(a.diag, a.off)


# AD of these iterations would give zeros: the comparisons of a bisection have no derivative.


@tj.rules.custom_jvp
def pairs_of(
    diag: Shaped[DenseArray, " n"], off: Shaped[DenseArray, " k"]
) -> tuple[Natural, Natural]:
    return kernels.tridiagonal_eigenpairs(diag, off)


@pairs_of.defjvp
def _(
    primals: Diagonals, tangents: Diagonals
) -> tuple[tuple[Natural, Natural], tuple[Natural, Natural]]:
    result, pushforward = eigh_push(tj.SymTridiagonal(*primals))
    return tuple(result), tuple(pushforward(tj.SymTridiagonal(*tangents)))


@tj.rules.custom_jvp
def values_of(diag: Shaped[DenseArray, " n"], off: Shaped[DenseArray, " k"]) -> Natural:
    return kernels.tridiagonal_eigenvalues(diag, off)


@values_of.defjvp
def _(primals: Diagonals, tangents: Diagonals) -> tuple[Natural, Natural]:
    v = tj.eigh(tj.SymTridiagonal(*primals)).eigenvectors
    return values_of(*primals), jnp.sum(v * tj.matmul(tj.SymTridiagonal(*tangents), v), axis=0)


# -- derivatives -----------------------------------------------------------------------------------


def bands(left: Shaped[DenseArray, "n k"], v: Shaped[DenseArray, "n k"]) -> Natural:
    r"""Return the diagonal of the symmetric part of `left vᵀ`, and the next one, as two rows."""
    beside = jnp.sum(left[:-1] * v[1:] + left[1:] * v[:-1], axis=-1) / 2
    return jnp.stack([jnp.sum(left * v, axis=-1), jnp.pad(beside, (0, min(1, v.shape[0])))])


def from_bands(rows: Shaped[DenseArray, "two n"]) -> Matrix:
    """Return the natural cotangent: half of the cotangent of `off` at each of its two places."""
    return tj.SymTridiagonal(rows[0], rows[1, : max(rows.shape[1] - 1, 0)])


@tj.eigh.natural_rule(tj.SymTridiagonal)
def eigh_rule(a: Matrix, *, invariant: bool = False) -> tuple[tj.EighResult, Pullback]:
    """The rule of full matrices, restricted to the bands: one product of matrices less."""
    result, pullback = rule_of_pairs(tj.eigh(a), invariant, bands)
    return result, lambda bar: from_bands(pullback(bar))


@tj.eigh.natural_pushforward(tj.SymTridiagonal)
def eigh_push(a: Matrix, *, invariant: bool = False) -> tuple[tj.EighResult, Pullback]:
    seen = lambda a_dot, v: adjoint(v) @ tj.matmul(a_dot, v)
    return pushforward_of_pairs(tj.eigh(a), invariant, seen)


@tj.eigvalsh.natural_rule(tj.SymTridiagonal)
def eigvalsh_rule(a: Matrix) -> tuple[Natural, Pullback]:
    r"""$\overline{diag}_i = \sum_k \bar\lambda_k v_{ik}^2$, and half of the same of neighbours."""
    w, v = tj.eigh(a)
    return w, lambda w_bar: from_bands(bands(v * w_bar[None, :], v))


# -- singular values: the sizes of eigenvalues -----------------------------------------------------


@tj.svd.implementation(tj.SymTridiagonal, differentiate=True)
def svd(
    a: Matrix, full_matrices: bool = True, compute_uv: bool = True, *, invariant: bool = False
) -> tj.SVDResult | Natural:
    """Return the decomposition; the vectors are full matrices, so the matrix is formed, too."""
    if compute_uv or not a.is_hermitian:
        return tj.svd(tj.Symmetric(a.to_dense()), full_matrices, compute_uv, invariant=invariant)
    return jnp.sort(jnp.abs(tj.eigvalsh(a)))[::-1]


# -- a system and a determinant -------------------------------------------------------------------


@tj.inv_quad_logdet.implementation(tj.Tridiagonal, tj.Dense, differentiate=True)
@tj.inv_quad_logdet.implementation(tj.SymTridiagonal, tj.Dense, differentiate=True)
def inv_quad_logdet(
    a: Shaped[tj.Tridiagonal | tj.SymTridiagonal, "n n"], b: Shaped[DenseArray, " n *k"]
) -> tuple[Scalar, Scalar]:
    """By their own algorithms, which together cost less than what a kept elimination does twice."""
    return jnp.sum(jnp.conj(b) * tj.solve(a, b)), tj.logdet(a)


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Real matrices: a complex one is symmetric, not Hermitian."""
    from tanjax.testing import Case, Samples

    s = Samples(18)
    a = tj.SymTridiagonal(s.normal(3), s.normal(2))
    yield Case(tj.eigh, a)
    yield Case(tj.eigh, tj.SymTridiagonal(s.normal(2), s.normal(1)), invariant=True)
    # The eigenvectors in the gradient are as many numbers as a dense cotangent.
    yield Case(tj.eigvalsh, a).declare(skip=("memory",))
    yield composed(Case(tj.svd, a, full_matrices=False, compute_uv=False))
    small = tj.SymTridiagonal(s.normal(2), s.normal(1))
    yield composed(Case(tj.svd, small, full_matrices=False))
    for ord in (-2, "nuc"):
        yield composed(Case(tj.norm, a, ord=ord))
    indefinite = tj.SymTridiagonal(jnp.array([2.1, -3.3, 1.7]), 0.5 * s.normal(2))
    yield composed(Case(tj.condition_number, indefinite))
    yield composed(Case(tj.inv_quad_logdet, indefinite, s.normal(3, 2)).declare(reference=defined))
    definite = tj.SymTridiagonal(3 + s.positive(3), s.normal(2) / 2, definite=True)
    yield composed(Case(tj.inv_quad_logdet, definite, s.normal(3, 9)).declare(reference=defined))
