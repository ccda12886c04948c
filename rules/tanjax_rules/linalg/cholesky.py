"""Cholesky factors."""

from __future__ import annotations

import jax.numpy as jnp
import jax.scipy.linalg as jsl

import tanjax as tj

from .solve import check_square_factor


@tj.cholesky.implementation(tj.Symmetric)
@tj.cholesky.implementation(tj.Hermitian)
def cholesky(a):
    return tj.Triangular(jnp.linalg.cholesky(a.data), lower=True)


@tj.cholesky.natural_rule(tj.Symmetric, convention="chainrules")
@tj.cholesky.natural_rule(tj.Hermitian, convention="chainrules")
def cholesky_rule(a):
    r"""$\bar A = \tfrac12 L^{-H}(\Phi + \Phi^H)L^{-1}$.

    $\Phi$ is the lower triangle of $L^H \bar L$ with half its diagonal.
    Written in the convention of the literature (cotangents paired with conjugation).
    """
    factor = cholesky(a)
    lower = factor.data

    def cholesky_pullback(l_bar):
        phi = jnp.tril(jnp.conj(lower.T) @ l_bar.to_dense())
        phi = phi - jnp.diag(jnp.diagonal(phi)) / 2
        both = phi + jnp.conj(phi.T)
        half = jsl.solve_triangular(lower, both, lower=True, trans="C")
        return jnp.conj(jsl.solve_triangular(lower, jnp.conj(half.T), lower=True, trans="C").T) / 2

    return factor, cholesky_pullback


@tj.cholesky.implementation(tj.Diagonal, differentiate=True)
def cholesky_diagonal(a):
    return tj.Diagonal(jnp.sqrt(a.diag))


@tj.cholesky.implementation(tj.Identity, differentiate=True)
def cholesky_identity(a):
    return a


@tj.cholesky.implementation(tj.Kronecker, differentiate=True)
def cholesky_kronecker(a):
    for factor in a.factors:
        check_square_factor("cholesky", factor)
    return tj.Kronecker(*map(tj.cholesky, a.factors))


@tj.cholesky.implementation(tj.BlockDiagonal, differentiate=True)
def cholesky_blocks(a):
    return tj.BlockDiagonal(*map(tj.cholesky, a.blocks))


@tj.cholesky.implementation(tj.Scaled, differentiate=True)
def cholesky_scaled(a):
    return tj.multiply(tj.cholesky(a.matrix), jnp.sqrt(a.factor))


# -- cases ---------------------------------------------------------------------------------------


def cases():
    """Every type that has a factor, real and complex."""
    from tanjax.testing import Case, Samples

    s = Samples(5)
    symmetric, diagonal = tj.Symmetric(s.definite(3)), tj.Diagonal(s.positive(2))
    for a in (
        symmetric,
        tj.Hermitian(s.definite(2, complex=True)),
        diagonal,
        tj.Identity(2),
        tj.Kronecker(tj.Symmetric(s.definite(2)), diagonal),
        tj.BlockDiagonal(tj.Symmetric(s.definite(2)), tj.Diagonal(s.positive(1))),
        tj.Scaled(tj.Symmetric(s.definite(2)), s.positive()),
    ):
        yield Case(tj.cholesky, a)
