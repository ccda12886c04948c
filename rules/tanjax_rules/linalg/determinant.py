"""Determinants and their logarithms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import Pullback, Samples, Scalar, SquareMatrix

from ..dtypes import floating
from ..shapes import FullStorage, SquareDiagonal, SquareTriangular, SquareUpdate
from ..stacked import stacked
from .block_systems import check_square_blocks
from .factored import factored, formed, inverse_factored, logdet_factored
from .solve import check_square_factor
from .woodbury import capacitance

if TYPE_CHECKING:
    from tanjax.testing import Case

# -- rules ---------------------------------------------------------------------------------------


@tj.logdet.natural_rule(tj.AbstractArray)
def logdet_rule(a: Shaped[tj.AbstractArray, "n n"]) -> tuple[Scalar, Pullback]:
    return tj.logdet.primal(a), lambda y_bar: tj.linalg.multiply(
        tj.inv(a).mT, y_bar.astype(a.dtype)
    )


@tj.logdet.natural_rule(tj.Diagonal)
def logdet_diagonal_rule(a: SquareDiagonal) -> tuple[Scalar, Pullback]:
    return logdet_diagonal(a), lambda y_bar: tj.Diagonal(y_bar.astype(a.dtype) / a.diag)


@tj.logdet.natural_rule(tj.Triangular)
def logdet_triangular_rule(a: SquareTriangular) -> tuple[Scalar, Pullback]:
    """The cotangent is diagonal: the rest of the inverse transpose lies in the other triangle."""
    return logdet_triangular(a), lambda y_bar: tj.Diagonal(y_bar.astype(a.dtype) / a.diagonal())


@tj.logdet.natural_rule(tj.Symmetric)
@tj.logdet.natural_rule(tj.Hermitian)
def logdet_symmetric_rule(a: FullStorage) -> tuple[Scalar, Pullback]:
    """Scales last, so that the inverse is made symmetric in its own memory."""
    f = factored(a)
    value = logdet_factored(f)

    def logdet_symmetric_pullback(y_bar: Scalar) -> Shaped[tj.Scaled, "n n"]:
        inverse = inverse_factored(f)
        inverse = inverse.T if isinstance(a, tj.Hermitian) else inverse
        return tj.Scaled(inverse, y_bar.astype(inverse.dtype))

    return value, logdet_symmetric_pullback


def _log_abs(diag: Shaped[Array, " n"]) -> Shaped[Array, ""]:
    return jnp.sum(jnp.log(jnp.abs(diag)))


# -- logdet --------------------------------------------------------------------------------------


@tj.logdet.implementation(tj.AbstractArray)
def logdet_any(a: Shaped[tj.AbstractArray, "n n"]) -> Scalar:
    return tj.logdet.primal(formed("logdet", a))


@tj.logdet.implementation(tj.Diagonal)
def logdet_diagonal(a: SquareDiagonal) -> Scalar:
    return _log_abs(a.diag)


@tj.logdet.implementation(tj.Triangular)
def logdet_triangular(a: SquareTriangular) -> Scalar:
    return _log_abs(a.diagonal())


@tj.logdet.implementation(tj.Symmetric)
@tj.logdet.implementation(tj.Hermitian)
def logdet_symmetric(a: FullStorage) -> Scalar:
    return logdet_factored(factored(a))


@tj.logdet.implementation(tj.Identity)
def logdet_identity(a: Shaped[tj.Identity, "n n"]) -> Scalar:
    return jnp.zeros((), a.dtype)


@tj.logdet.implementation(tj.Scaled, differentiate=True)
def logdet_scaled(a: Shaped[tj.Scaled, "n n"]) -> Scalar:
    return tj.logdet(a.matrix) + a.shape[0] * jnp.log(jnp.abs(a.factor))


@tj.logdet.implementation(tj.Kronecker, differentiate=True)
def logdet_kronecker(a: Shaped[tj.Kronecker, "n n"]) -> Scalar:
    for factor in a.factors:
        check_square_factor("logdet", factor)
    terms = [tj.logdet(f) * k for f, k in zip(a.factors, copies(a), strict=True) if k]
    return sum(terms[1:], terms[0]) if terms else jnp.zeros((), a.dtype)


def copies(a: tj.Kronecker) -> list[int]:
    """Return the multiplicity of each Kronecker factor's spectrum: the product of other sizes."""
    sizes = [f.shape[0] for f in a.factors]
    return [math.prod(sizes[:i] + sizes[i + 1 :]) for i in range(len(sizes))]


@tj.logdet.implementation(tj.BlockDiagonal, differentiate=True)
def logdet_blocks(a: Shaped[tj.BlockDiagonal, "n n"]) -> Scalar:
    check_square_blocks("logdet", a)
    batch = stacked(a)
    if batch is not None:
        return jnp.sum(jax.vmap(tj.logdet)(batch))
    terms = [tj.logdet(b) for b in a.blocks]
    return sum(terms[1:], terms[0])


@tj.logdet.implementation(tj.LowRankUpdate, differentiate=True)
def logdet_update(a: SquareUpdate) -> Scalar:
    """The matrix determinant lemma."""
    small = capacitance(a, tj.solve(a.base, a.u))
    return tj.logdet(a.base) + jnp.linalg.slogdet(small).logabsdet


# -- slogdet: the logarithm with the sign ----------------------------------------------------------


@tj.linalg.slogdet.natural_rule(tj.AbstractArray)
def slogdet_rule(a: Shaped[tj.AbstractArray, "n n"]) -> tuple[tj.linalg.SlogdetResult, Pullback]:
    out = tj.linalg.slogdet.primal(a)
    return out, lambda bar: tj.linalg.multiply(tj.inv(a).mT, weight(out.sign, bar))


@tj.linalg.slogdet.natural_rule(tj.Diagonal)
@tj.linalg.slogdet.natural_rule(tj.Triangular)
def slogdet_of_diagonal_rule(
    a: Shaped[tj.AbstractArray, "n n"],
) -> tuple[tj.linalg.SlogdetResult, Pullback]:
    out = slogdet_of_diagonal(a)
    return out, lambda bar: tj.Diagonal(weight(out.sign, bar) / a.diagonal())


def weight(sign: Scalar, bar: tj.linalg.SlogdetResult) -> Scalar:
    """Return the factor of the inverse transpose; a complex determinant also turns its phase."""
    y_bar = bar.logabsdet.astype(sign.dtype)
    if not jnp.iscomplexobj(sign):
        return y_bar
    return y_bar - 1j * jnp.real(1j * bar.sign * sign).astype(sign.dtype)


def phase(x: Shaped[Array, " ..."]) -> Shaped[Array, " ..."]:
    """`x / |x|`, and 0 at 0 (`jnp.sign` of complex numbers has no derivative)."""
    if not jnp.iscomplexobj(x):
        return jnp.sign(x)
    safe = jnp.where(x == 0, jnp.ones_like(x), x)
    return jnp.where(x == 0, jnp.zeros_like(x), safe / jnp.abs(safe).astype(x.dtype))


@tj.linalg.slogdet.implementation(tj.AbstractArray)
def slogdet_any(a: Shaped[tj.AbstractArray, "n n"]) -> tj.linalg.SlogdetResult:
    return tj.linalg.slogdet.primal(formed("slogdet", a))


@tj.linalg.slogdet.implementation(tj.Diagonal)
@tj.linalg.slogdet.implementation(tj.Triangular)
def slogdet_of_diagonal(a: Shaped[tj.AbstractArray, "n n"]) -> tj.linalg.SlogdetResult:
    diag = a.diagonal()
    return tj.linalg.SlogdetResult(jnp.prod(phase(diag)), _log_abs(diag))


@tj.linalg.slogdet.implementation(tj.Symmetric)
@tj.linalg.slogdet.implementation(tj.Hermitian)
def slogdet_symmetric(a: FullStorage) -> tj.linalg.SlogdetResult:
    if a.definite:
        return tj.linalg.SlogdetResult(jnp.ones((), a.dtype), logdet_symmetric(a))
    return tj.linalg.slogdet.primal(a.data)


@tj.linalg.slogdet.implementation(tj.Identity)
def slogdet_identity(a: Shaped[tj.Identity, "n n"]) -> tj.linalg.SlogdetResult:
    return tj.linalg.SlogdetResult(jnp.ones((), a.dtype), jnp.zeros((), jnp.finfo(a.dtype).dtype))


@tj.linalg.slogdet.implementation(tj.Scaled, differentiate=True)
def slogdet_scaled(a: Shaped[tj.Scaled, "n n"]) -> tj.linalg.SlogdetResult:
    n, inner = a.shape[0], tj.linalg.slogdet(a.matrix)
    sign = inner.sign.astype(a.dtype) * (phase(a.factor) ** n).astype(a.dtype)
    return tj.linalg.SlogdetResult(sign, inner.logabsdet + n * jnp.log(jnp.abs(a.factor)))


@tj.linalg.slogdet.implementation(tj.Kronecker, differentiate=True)
def slogdet_kronecker(a: Shaped[tj.Kronecker, "n n"]) -> tj.linalg.SlogdetResult:
    for factor in a.factors:
        check_square_factor("slogdet", factor)
    return _together(
        a, [(tj.linalg.slogdet(f), k) for f, k in zip(a.factors, copies(a), strict=True)]
    )


@tj.linalg.slogdet.implementation(tj.BlockDiagonal, differentiate=True)
def slogdet_blocks(a: Shaped[tj.BlockDiagonal, "n n"]) -> tj.linalg.SlogdetResult:
    check_square_blocks("slogdet", a)
    batch = stacked(a)
    if batch is not None:
        every = jax.vmap(tj.linalg.slogdet)(batch)
        return tj.linalg.SlogdetResult(jnp.prod(every.sign), jnp.sum(every.logabsdet))
    return _together(a, [(tj.linalg.slogdet(b), 1) for b in a.blocks])


def _together(
    a: SquareMatrix, parts: Sequence[tuple[tj.linalg.SlogdetResult, int]]
) -> tj.linalg.SlogdetResult:
    """Return the result for a product of determinants, each with its multiplicity."""
    sign = floating(jnp.ones((), a.dtype))
    logarithm = jnp.zeros((), jnp.finfo(sign.dtype).dtype)
    for part, count in parts:
        if count:
            sign = sign * (part.sign**count).astype(sign.dtype)
            logarithm = logarithm + count * part.logabsdet
    return tj.linalg.SlogdetResult(sign, logarithm)


@tj.linalg.slogdet.implementation(tj.LowRankUpdate, differentiate=True)
def slogdet_update(a: SquareUpdate) -> tj.linalg.SlogdetResult:
    base, z = tj.linalg.slogdet(a.base), tj.solve(a.base, a.u)
    small = tj.linalg.slogdet(capacitance(a, z))
    return tj.linalg.SlogdetResult(base.sign * small.sign, base.logabsdet + small.logabsdet)


# -- det: AD of these handles singular matrices, `det * inv` would not -----------------------------


@tj.det.implementation(tj.Diagonal, differentiate=True)
@tj.det.implementation(tj.Triangular, differentiate=True)
def det_of_diagonal(a: Shaped[tj.AbstractArray, "n n"]) -> Scalar:
    return jnp.prod(a.diagonal())


@tj.det.implementation(tj.Symmetric, differentiate=True)
@tj.det.implementation(tj.Hermitian, differentiate=True)
def det_symmetric(a: FullStorage) -> Scalar:
    return tj.det.primal(a.to_dense())


@tj.det.implementation(tj.Identity, differentiate=True)
def det_identity(a: Shaped[tj.Identity, "n n"]) -> Scalar:
    return jnp.ones((), a.dtype)


@tj.det.implementation(tj.Scaled, differentiate=True)
def det_scaled(a: Shaped[tj.Scaled, "n n"]) -> Scalar:
    return tj.det(a.matrix) * a.factor ** a.shape[0]


@tj.det.implementation(tj.Kronecker, differentiate=True)
def det_kronecker(a: Shaped[tj.Kronecker, "n n"]) -> Scalar:
    for factor in a.factors:
        check_square_factor("det", factor)
    powers = [tj.det(f) ** k for f, k in zip(a.factors, copies(a), strict=True) if k]
    return math.prod(powers, start=jnp.ones((), a.dtype))


@tj.det.implementation(tj.BlockDiagonal, differentiate=True)
def det_blocks(a: Shaped[tj.BlockDiagonal, "n n"]) -> Scalar:
    check_square_blocks("det", a)
    batch = stacked(a)
    if batch is not None:
        return jnp.prod(jax.vmap(tj.det)(batch))
    return math.prod(map(tj.det, a.blocks))


@tj.det.implementation(tj.LowRankUpdate, differentiate=True)
def det_update(a: SquareUpdate) -> Scalar:
    return tj.det(a.base) * tj.det.primal(capacitance(a, tj.solve(a.base, a.u)))


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Every type with a determinant of its own, complex, empty."""
    from tanjax.testing import Case, Samples

    s = Samples(4)
    symmetric, diagonal = tj.Symmetric(s.definite(2)), tj.Diagonal(s.positive(2))
    own = (
        diagonal,
        tj.Triangular(s.regular(3, complex=True)),
        symmetric,
        tj.Hermitian(s.definite(2, complex=True)),
        tj.Identity(2),
        tj.Scaled(symmetric, s.positive()),
        tj.Kronecker(symmetric, diagonal),
        tj.BlockDiagonal(symmetric, tj.Diagonal(s.positive(1))),
        tj.LowRankUpdate(tj.Diagonal(s.positive(3)), s.normal(3, 1), s.positive(1)),
    )
    for a in own:
        yield Case(tj.logdet, a)
        yield Case(tj.det, a)
    for a in _with_sign(s):
        yield Case(tj.linalg.slogdet, a)
    yield Case(tj.logdet, tj.BlockDiagonal(s.regular(2), s.regular(2)))
    dense = jnp.stack([s.regular(2), s.regular(2)])
    yield Case(tj.logdet, tj.BlockDiagonal.from_stack(tj.Symmetric(dense, "mean")))
    yield Case(tj.linalg.slogdet, tj.BlockDiagonal.from_stack(dense))
    yield Case(tj.det, tj.BlockDiagonal.from_stack(dense))
    yield Case(tj.logdet, symmetric.replace(definite=True))
    yield Case(tj.logdet, tj.Hermitian(s.definite(3, complex=True), definite=True))
    yield Case(tj.logdet, tj.tangents.Sum(diagonal, s.regular(2)))
    yield Case(tj.logdet, tj.tangents.Sum(tj.Diagonal(s.complex(3)), s.regular(3, complex=True)))
    yield Case(tj.logdet, tj.Diagonal(s.complex(3)))
    yield Case(tj.logdet, tj.Diagonal(s.normal(0)))


def _with_sign(s: Samples) -> Iterator[SquareMatrix]:
    """Matrices with negative and with complex determinants."""
    indefinite = tj.Symmetric(s.definite(3) - 2 * jnp.diag(jnp.array([1.3, 0.0, 0.0])))
    diagonal = tj.Diagonal(jnp.array([0.7, -1.3]))
    yield tj.Diagonal(s.complex(3))
    yield tj.Triangular(-s.regular(3))
    yield indefinite
    yield tj.Identity(2)
    yield tj.Scaled(tj.Diagonal(s.complex(2)), s.complex())
    yield tj.Kronecker(tj.Diagonal(s.complex(2)), s.regular(3, complex=True))
    yield tj.BlockDiagonal(indefinite, diagonal)
    yield tj.LowRankUpdate(diagonal, s.normal(2, 1), s.positive(1))
    yield tj.tangents.Sum(tj.Diagonal(s.complex(2)), s.complex(2, 2))
