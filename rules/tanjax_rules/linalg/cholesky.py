"""Cholesky factors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import Pullback, Scalar, SquareMatrix

from ..shapes import FullStorage, SquareDiagonal, SquareTriangular
from ..signs import is_positive, oriented
from .solve import check_square_factor

if TYPE_CHECKING:
    from tanjax.testing import Case


@tj.linalg.cholesky.implementation(tj.Symmetric)
@tj.linalg.cholesky.implementation(tj.Hermitian)
def cholesky(a: FullStorage) -> SquareTriangular:
    return tj.Triangular(jnp.linalg.cholesky(a.data), lower=True)


@tj.linalg.cholesky.natural_rule(tj.Symmetric, convention="chainrules")
@tj.linalg.cholesky.natural_rule(tj.Hermitian, convention="chainrules")
def cholesky_rule(a: FullStorage) -> tuple[SquareTriangular, Pullback]:
    r"""$\bar A = \tfrac12 L^{-H}(\Phi + \Phi^H)L^{-1}$.

    $\Phi$ is the lower triangle of $L^H \bar L$ with half its diagonal.
    Written in the convention of the literature (cotangents paired with conjugation).
    """
    factor = cholesky(a)
    lower = factor.data

    def cholesky_pullback(l_bar: Shaped[tj.AbstractArray, "n n"]) -> Shaped[Array, "n n"]:
        phi = jnp.tril(jnp.conj(lower.T) @ l_bar.to_dense())
        phi = phi - jnp.diag(jnp.diagonal(phi)) / 2
        both = phi + jnp.conj(phi.T)
        half = jsl.solve_triangular(lower, both, lower=True, trans="C")
        return jnp.conj(jsl.solve_triangular(lower, jnp.conj(half.T), lower=True, trans="C").T) / 2

    return factor, cholesky_pullback


@tj.linalg.cholesky.implementation(tj.Diagonal, differentiate=True)
def cholesky_diagonal(a: SquareDiagonal) -> SquareDiagonal:
    return tj.Diagonal(jnp.sqrt(a.diag))


@tj.linalg.cholesky.implementation(tj.Identity, differentiate=True)
def cholesky_identity(a: Shaped[tj.Identity, "n n"]) -> Shaped[tj.Identity, "n n"]:
    return a


@tj.linalg.cholesky.implementation(tj.Kronecker, differentiate=True)
def cholesky_kronecker(a: Shaped[tj.Kronecker, "n n"]) -> Shaped[tj.Kronecker, "n n"]:
    for factor in a.factors:
        check_square_factor("cholesky", factor)
    return tj.Kronecker(*map(tj.linalg.cholesky, oriented(a.factors)))


@tj.linalg.cholesky.implementation(tj.BlockDiagonal, differentiate=True)
def cholesky_blocks(a: Shaped[tj.BlockDiagonal, "n n"]) -> Shaped[tj.BlockDiagonal, "n n"]:
    return a.each(tj.linalg.cholesky)


@tj.linalg.cholesky.implementation(tj.Scaled, differentiate=True)
def cholesky_scaled(a: Shaped[tj.Scaled, "n n"]) -> SquareMatrix:
    matrix, factor = a.matrix, a.factor
    if isinstance(matrix, tj.Scaled):
        return cholesky_scaled(tj.Scaled(matrix.matrix, matrix.factor * factor))
    if not is_positive(matrix):  # both may be negative
        sign = jnp.where(factor < 0, -1, 1).astype(factor.dtype)
        matrix, factor = times(matrix, sign), factor * sign
    return tj.linalg.multiply(tj.linalg.cholesky(matrix), jnp.sqrt(factor))


def times(a: SquareMatrix, sign: Scalar) -> SquareMatrix:
    """Multiply without a `Scaled` result, if need be by densifying with a warning."""
    product = tj.linalg.multiply(a, sign)
    if isinstance(product, tj.Scaled):
        return tj.rules.densified(product, "cholesky", "wrap the matrix in `tj.Symmetric`")
    return product


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Every type that has a factor, real and complex."""
    from tanjax.testing import Case, Samples

    s = Samples(5)
    symmetric, diagonal = tj.Symmetric(s.definite(3)), tj.Diagonal(s.positive(2))
    negative, other = tj.Symmetric(-s.definite(2)), tj.Symmetric(-s.definite(2))
    for a in (
        symmetric,
        tj.Hermitian(s.definite(2, complex=True)),
        diagonal,
        tj.Identity(2),
        tj.Kronecker(tj.Symmetric(s.definite(2)), diagonal),
        tj.BlockDiagonal(tj.Symmetric(s.definite(2)), tj.Diagonal(s.positive(1))),
        tj.BlockDiagonal.from_stack(tj.Symmetric(jnp.stack([s.definite(2), s.definite(2)]))),
        tj.Scaled(tj.Symmetric(s.definite(2)), s.positive()),
        tj.Kronecker(negative, other),  # signs that cancel
        tj.Kronecker(negative, diagonal, other),
        tj.Scaled(tj.Kronecker(-negative, other), jnp.asarray(-0.5)),
        tj.Scaled(tj.BlockDiagonal(negative, tj.Kronecker(other)), jnp.asarray(-3.0)),
    ):
        yield Case(tj.linalg.cholesky, a)
