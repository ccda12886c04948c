"""Circulant matrices: the Fourier transform of the first column is the spectrum.

Products, quotients and inverses of circulant matrices are circulant, so that the general rules of
`matmul`, `solve` and `inv` stay in the type. With dense arguments JAX differentiates the transforms
themselves: transposed transforms give the cotangent of the column. A rule would transform an outer
product, with twice as many transforms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import jax.numpy as jnp
from jaxtyping import Complex, PyTree, Shaped

import tanjax as tj
from tanjax.kernels import transform_dtype
from tanjax.typing import DenseArray, Natural, Scalar, SquareMatrix

from ..dtypes import floating
from ..shapes import DenseColumns, columns_at_once
from ..signs import nan_unless_alike

if TYPE_CHECKING:
    from tanjax.testing import Case

SquareCirculant: TypeAlias = Shaped[tj.Circulant, "n n"]
Spectrum: TypeAlias = Complex[DenseArray, " n"]

# -- products and systems --------------------------------------------------------------------------


@tj.matmul.implementation(tj.Circulant, tj.Dense, differentiate=True)
def circulant_times_dense(a: SquareCirculant, b: DenseColumns) -> DenseColumns:
    return a.apply(b)


@tj.matmul.implementation(tj.Circulant, tj.Circulant)
def circulant_times_circulant(a: SquareCirculant, b: SquareCirculant) -> SquareCirculant:
    return tj.Circulant(a.apply(b.column))


@tj.solve.implementation(tj.Circulant, tj.Dense, differentiate=True)
def solve_circulant(a: SquareCirculant, b: DenseColumns) -> DenseColumns:
    """Solve by three transforms, in `O(n log n)` operations for each column of `b`."""
    dtype = jnp.result_type(a.column, b)
    if 0 in b.shape:
        return b.astype(dtype)
    wide = transform_dtype(dtype)
    rows, column = (b if b.ndim == 1 else b.T).astype(wide), a.column.astype(wide)
    column = column if b.ndim == 1 else column[None, :]
    if jnp.issubdtype(wide, jnp.complexfloating):
        x = jnp.fft.ifft(jnp.fft.fft(rows) / jnp.fft.fft(column))
    else:
        x = jnp.fft.irfft(jnp.fft.rfft(rows) / jnp.fft.rfft(column), a.shape[0])
    x = x if b.ndim == 1 else x.T
    return x.astype(dtype) if jnp.issubdtype(dtype, jnp.inexact) else x


@tj.solve.implementation(tj.Circulant, tj.Circulant)
def solve_circulant_circulant(a: SquareCirculant, b: SquareCirculant) -> SquareCirculant:
    return tj.Circulant(solve_circulant(a, b.column))


@tj.inv.implementation(tj.Circulant)
def inv_circulant(a: SquareCirculant) -> SquareCirculant:
    return tj.Circulant(solve_circulant(a, jnp.zeros(a.shape[0], a.dtype).at[:1].set(1)))


# -- determinants ----------------------------------------------------------------------------------


@tj.logdet.implementation(tj.Circulant, differentiate=True)
def logdet_circulant(a: SquareCirculant) -> Scalar:
    return _logarithm(a.eigenvalues(), a)


@tj.linalg.slogdet.implementation(tj.Circulant)
def slogdet_circulant(a: SquareCirculant) -> tj.linalg.SlogdetResult:
    spectrum = a.eigenvalues()
    return tj.linalg.SlogdetResult(_sign(spectrum, a), _logarithm(spectrum, a))


@tj.det.implementation(tj.Circulant, differentiate=True)
def det_circulant(a: SquareCirculant) -> Scalar:
    """Return the product of the eigenvalues: its derivative exists even if some are zero."""
    det = jnp.prod(a.eigenvalues())
    return (det if jnp.iscomplexobj(a.column) else det.real).astype(transform_dtype(a.dtype))


def _logarithm(spectrum: Spectrum, a: SquareCirculant) -> Scalar:
    return jnp.sum(jnp.log(jnp.abs(spectrum))).astype(jnp.finfo(transform_dtype(a.dtype)).dtype)


def _sign(spectrum: Spectrum, a: SquareCirculant) -> Scalar:
    """Return the phase. For a real matrix it is a sign, from the eigenvalues 0 and n/2 alone.

    The other eigenvalues of a real matrix are conjugate pairs.
    """
    n, dtype = a.shape[0], transform_dtype(a.dtype)
    size = jnp.abs(spectrum)
    if jnp.iscomplexobj(a.column):
        safe = jnp.where(size == 0, 1, size).astype(dtype)
        return jnp.prod(jnp.where(size == 0, 0, spectrum / safe))
    # The transform is real at 0 and n/2.
    alone = jnp.sign(jnp.real(spectrum[:: n // 2] if n and n % 2 == 0 else spectrum[:1]))
    return jnp.where(jnp.all(size != 0), jnp.prod(alone), 0).astype(dtype)


# -- the factorization -----------------------------------------------------------------------------


def _root(a: SquareCirculant, parts: PyTree, z: Natural, adjoint: bool) -> Natural:
    """Multiply by the Hermitian root, which is circulant, too."""
    a = floating(a)
    column = jnp.fft.ifft(jnp.sqrt(a.eigenvalues().real))
    column = column if jnp.iscomplexobj(a.column) else column.real
    root = tj.Circulant(nan_unless_alike(column, a.column, a.mT.column))
    return columns_at_once(lambda y: root @ y, z)


_PLAN = tj.linalg.FactorizationPlan(
    lambda a, _, b, transposed: columns_at_once(
        lambda y: tj.solve(a.mT if transposed else a, y), b
    ),
    lambda a, parts: tj.linalg.slogdet(a),
    _root,
    diagonal_of_inverse=lambda a, parts: tj.linalg.diagonal(tj.inv(a)),
)


@tj.factorize.implementation(tj.Circulant, differentiate=True)
def factorize_circulant(a: SquareCirculant) -> tj.linalg.Factorization:
    r"""Keep only the column: the transforms of each use take $O(n \log n)$."""
    return tj.linalg.Factorization(a, (), _PLAN, a.shape[0])


# -- sums and the diagonal -------------------------------------------------------------------------


@tj.linalg.add.implementation(tj.Circulant, tj.Identity, differentiate=True)
def circulant_add_identity(a: SquareCirculant, b: Shaped[tj.Identity, "n n"]) -> SquareCirculant:
    return _on_diagonal(a, jnp.ones((), b.dtype))


@tj.linalg.add.implementation(tj.Identity, tj.Circulant, differentiate=True)
def identity_add_circulant(a: Shaped[tj.Identity, "n n"], b: SquareCirculant) -> SquareCirculant:
    return circulant_add_identity(b, a)


@tj.linalg.add.implementation(tj.Circulant, tj.Scaled, differentiate=True)
def circulant_add_scaled(a: SquareCirculant, b: Shaped[tj.Scaled, "n n"]) -> SquareMatrix:
    return _on_diagonal(a, b.factor) if isinstance(b.matrix, tj.Identity) else tj.tangents.Sum(a, b)


@tj.linalg.add.implementation(tj.Scaled, tj.Circulant, differentiate=True)
def scaled_add_circulant(a: Shaped[tj.Scaled, "n n"], b: SquareCirculant) -> SquareMatrix:
    return circulant_add_scaled(b, a)


@tj.linalg.add.implementation(tj.Circulant, tj.Fill, differentiate=True)
def circulant_add_fill(a: SquareCirculant, b: Shaped[tj.Fill, "n n"]) -> SquareCirculant:
    return a.replace(column=a.column + b.value)


@tj.linalg.add.implementation(tj.Fill, tj.Circulant, differentiate=True)
def fill_add_circulant(a: Shaped[tj.Fill, "n n"], b: SquareCirculant) -> SquareCirculant:
    return circulant_add_fill(b, a)


def _on_diagonal(a: SquareCirculant, number: Scalar) -> SquareCirculant:
    column = a.column.astype(jnp.result_type(a.column, number))
    return a.replace(column=column.at[:1].add(number))


@tj.linalg.diagonal.implementation(tj.Circulant, differentiate=True)
def diagonal_circulant(a: SquareCirculant) -> Shaped[DenseArray, " n"]:
    return a.diagonal()


@tj.trace.implementation(tj.Circulant, differentiate=True)
def trace_circulant(a: SquareCirculant) -> Scalar:
    return jnp.sum(a.diagonal())


# -- cases -----------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Even and odd sizes, real and complex, negative determinants, an empty matrix."""
    from tanjax.testing import Case, Samples

    s = Samples(22)
    even, odd = (tj.Circulant(s.normal(n).at[0].add(-3.0)) for n in (4, 3))
    turned = tj.Circulant(s.complex(3).at[0].add(3.0))
    yield Case(tj.matmul, even, s.normal(4, 2))
    yield Case(tj.matmul, s.normal(2, 3), odd)
    yield Case(tj.matmul, odd, tj.Circulant(s.normal(3)))
    yield Case(tj.matmul, tj.Circulant(s.normal(0)), s.normal(0))
    yield Case(tj.solve, even, s.normal(4))
    yield Case(tj.solve, turned, s.complex(3, 2))
    yield Case(tj.solve, odd, tj.Circulant(s.normal(3)))
    yield Case(tj.inv, turned)
    yield Case(tj.linalg.slogdet, turned)
    for a in (even, tj.Circulant(s.normal(2).at[0].add(-3.0)), tj.Circulant(-s.positive(1))):
        yield Case(tj.linalg.slogdet, a)
    yield Case(tj.logdet, odd)
    yield Case(tj.det, odd)
    yield Case(tj.trace, odd)
    yield Case(tj.linalg.diagonal, turned)
    for other in (tj.Identity(3), tj.Scaled(tj.Identity(3), s.normal()), tj.Fill(0.7, (3, 3))):
        yield Case(tj.linalg.add, odd, other)
        yield Case(tj.linalg.add, other, odd)
