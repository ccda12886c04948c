r"""Sylvester and Lyapunov equations with structured matrices.

With matrices whose eigenvectors are orthonormal the equation is diagonal in their bases:
$a_i \tilde x_{ij} + \tilde x_{ij} b_j = \tilde q_{ij}$. Neither the eigenvalues nor the vectors are
differentiated. The solution states its derivative in terms of the matrices themselves, so equal
eigenvalues do no harm. A cotangent is contracted with the structure before a matrix is formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import jax.numpy as jnp
from jax import lax
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, DenseArray, Function, Matrix, SquareMatrix, Vector

from ..dtypes import floating
from ..shapes import FullStorage
from .elementary import ASKED_ONCE

if TYPE_CHECKING:
    from tanjax.testing import Case

DenseSquare: TypeAlias = Shaped[DenseArray, "n n"]
DenseMatrix: TypeAlias = Shaped[DenseArray, "m n"]
# Matrices with orthonormal eigenvectors; `is_general` excludes a complex Symmetric, which has none.
Normal: TypeAlias = Shaped[tj.Diagonal | tj.Symmetric | tj.Hermitian, "n n"]
NormalRows: TypeAlias = Shaped[tj.Diagonal | tj.Symmetric | tj.Hermitian, "m m"]
# Eigenvectors; None for the standard basis.
Basis: TypeAlias = Shaped[DenseArray, "_ _"] | None

# -- matrices with orthonormal eigenvectors --------------------------------------------------------


def spectrum(a: Normal) -> tuple[Vector, Basis]:
    """Return eigenvalues and -vectors (None for the standard basis), as constants."""
    if isinstance(a, tj.Diagonal):
        return lax.stop_gradient(a.diag), None
    return jnp.linalg.eigh(lax.stop_gradient(a.data), symmetrize_input=False)


def rotated(u: Basis, x: Matrix, v: Basis) -> Matrix:
    """Return `u^H x v`."""
    x = x if u is None else jnp.conj(u.T) @ x
    return x if v is None else x @ v


def rotated_back(u: Basis, x: Matrix, v: Basis) -> Matrix:
    """Return `u x v^H`."""
    x = x if u is None else u @ x
    return x if v is None else x @ jnp.conj(v.T)


def conjugated(u: Basis) -> Basis:
    """Return the conjugate of a basis."""
    return None if u is None else jnp.conj(u)


def diagonal_equation(
    apply: Function, u: Basis, gains: DenseMatrix, v: Basis, q: DenseMatrix
) -> DenseMatrix:
    """Return the `x` with `apply(x) = q`; `apply` multiplies by `gains` between bases `u`, `v`."""

    def solve(u: Basis, v: Basis) -> Function:
        divided = lambda q: rotated(u, q, v) / gains.astype(q.dtype)
        return lambda _, q: rotated_back(u, divided(q), v).astype(q.dtype)

    backward = solve(conjugated(u), conjugated(v))
    return lax.custom_linear_solve(apply, tj.rules.align(q, u, v, gains), solve(u, v), backward)


def is_general(a: SquareMatrix) -> bool:
    """True if a matrix is symmetric without being Hermitian: its basis is not orthonormal."""
    return isinstance(a, tj.Symmetric) and jnp.iscomplexobj(a.data)


def floating_together(a: NormalRows, q: DenseMatrix) -> tuple[NormalRows, DenseMatrix]:
    """Cast `q` to the dtype of the solution, and a matrix of integers to the same width."""
    q = floating(q.astype(jnp.result_type(a.dtype, q)))
    return floating(a, jnp.finfo(q.dtype).dtype), q


def sylvester_of_normal(a: NormalRows, b: Normal, q: DenseMatrix) -> DenseMatrix:
    if is_general(a) or is_general(b):
        return tj.linalg.solve_sylvester(a.to_dense(), b.to_dense(), q)
    a, q = floating_together(a, q.astype(jnp.result_type(a.dtype, b.dtype, q)))
    b = floating(b, jnp.finfo(q.dtype).dtype)
    (x, u), (y, v) = spectrum(a), spectrum(b)
    apply = lambda x: tj.matmul(a, x) + tj.matmul(x, b)
    return diagonal_equation(apply, u, x.astype(q.dtype)[:, None] + y.astype(q.dtype), v, q)


@tj.linalg.solve_lyapunov.implementation(tj.Diagonal, tj.Dense, differentiate=True)
@tj.linalg.solve_lyapunov.implementation(tj.Symmetric, tj.Dense, differentiate=True)
@tj.linalg.solve_lyapunov.implementation(tj.Hermitian, tj.Dense, differentiate=True)
def lyapunov_of_normal(a: Normal, q: DenseSquare) -> DenseSquare:
    if is_general(a):
        return tj.linalg.solve_lyapunov(a.to_dense(), q)
    a, q = floating_together(a, q)
    adjoint = adjoint_of(a)
    w, u = spectrum(a)
    apply = lambda x: tj.matmul(a, x) + tj.matmul(x, adjoint)
    return diagonal_equation(apply, u, w[:, None] + jnp.conj(w)[None, :], u, q)


@tj.linalg.solve_discrete_lyapunov.implementation(tj.Diagonal, tj.Dense, differentiate=True)
@tj.linalg.solve_discrete_lyapunov.implementation(tj.Symmetric, tj.Dense, differentiate=True)
@tj.linalg.solve_discrete_lyapunov.implementation(tj.Hermitian, tj.Dense, differentiate=True)
def discrete_lyapunov_of_normal(a: Normal, q: DenseSquare) -> DenseSquare:
    if is_general(a):
        return tj.linalg.solve_discrete_lyapunov(a.to_dense(), q)
    a, q = floating_together(a, q)
    adjoint = adjoint_of(a)
    w, u = spectrum(a)
    apply = lambda x: x - tj.matmul(a, tj.matmul(x, adjoint))
    return diagonal_equation(apply, u, 1 - w[:, None] * jnp.conj(w)[None, :], u, q)


def adjoint_of(a: Normal) -> Normal:
    """Return the conjugate transpose of a normal matrix, in its type."""
    return tj.Diagonal(jnp.conj(a.diag)) if isinstance(a, tj.Diagonal) else a


# -- other types: general matrices -----------------------------------------------------------------


def stored(a: Matrix, name: str) -> DenseMatrix:
    """Return the dense array of a matrix, without a warning if the type stores all of it."""
    if isinstance(a, tj.Symmetric | tj.Hermitian | tj.Triangular):
        return a.to_dense()
    return tj.rules.densified(a, name, "") if tj.rules.is_structured(a) else a


@tj.linalg.solve_sylvester.implementation(tj.AbstractArray, object, object, differentiate=True)
@tj.linalg.solve_sylvester.implementation(tj.Dense, tj.AbstractArray, object, differentiate=True)
@tj.linalg.solve_sylvester.implementation(tj.Dense, tj.Dense, tj.AbstractArray, differentiate=True)
def sylvester_of_any(a: Shaped[AnyArray, "m m"], b: SquareMatrix, q: Matrix) -> Matrix:
    return tj.linalg.solve_sylvester(*(stored(x, "solve_sylvester") for x in (a, b, q)))


NORMAL = (tj.Diagonal, tj.Symmetric, tj.Hermitian)
for _first in NORMAL:
    for _second in NORMAL:
        tj.linalg.solve_sylvester.implementation(_first, _second, tj.Dense, differentiate=True)(
            sylvester_of_normal
        )


@tj.linalg.solve_lyapunov.implementation(tj.AbstractArray, tj.Dense, differentiate=True)
@tj.linalg.solve_lyapunov.implementation(object, tj.AbstractArray, differentiate=True)
def lyapunov_of_any(a: SquareMatrix, q: SquareMatrix) -> SquareMatrix:
    return tj.linalg.solve_lyapunov(stored(a, "solve_lyapunov"), stored(q, "solve_lyapunov"))


@tj.linalg.solve_discrete_lyapunov.implementation(tj.AbstractArray, tj.Dense, differentiate=True)
@tj.linalg.solve_discrete_lyapunov.implementation(object, tj.AbstractArray, differentiate=True)
def discrete_lyapunov_of_any(a: SquareMatrix, q: SquareMatrix) -> SquareMatrix:
    name = "solve_discrete_lyapunov"
    return tj.linalg.solve_discrete_lyapunov(stored(a, name), stored(q, name))


# -- a symmetric right-hand side has a symmetric solution ------------------------------------------


@tj.linalg.solve_lyapunov.implementation(object, tj.Symmetric, differentiate=True)
@tj.linalg.solve_lyapunov.implementation(object, tj.Hermitian, differentiate=True)
def lyapunov_of_hermitian(a: SquareMatrix, q: FullStorage) -> SquareMatrix:
    return hermitian_like(q, tj.linalg.solve_lyapunov(a, q.data))


@tj.linalg.solve_discrete_lyapunov.implementation(object, tj.Symmetric, differentiate=True)
@tj.linalg.solve_discrete_lyapunov.implementation(object, tj.Hermitian, differentiate=True)
def discrete_lyapunov_of_hermitian(a: SquareMatrix, q: FullStorage) -> SquareMatrix:
    return hermitian_like(q, tj.linalg.solve_discrete_lyapunov(a, q.data))


def hermitian_like(q: FullStorage, x: DenseSquare) -> SquareMatrix:
    """Return `x` in the type that it has for a symmetric or Hermitian `q`."""
    if not jnp.iscomplexobj(x):
        return tj.Symmetric(x, "mean")
    is_hermitian = isinstance(q, tj.Hermitian) or not jnp.iscomplexobj(q.data)
    return tj.Hermitian(x, "mean") if is_hermitian else x


# -- cases ---------------------------------------------------------------------------------------


def sylvester_by_kronecker(
    a: Shaped[DenseArray, "m m"], b: DenseSquare, q: DenseMatrix
) -> DenseMatrix:
    """The definition: one linear system for all entries."""
    m, n = q.shape
    system = jnp.kron(a, jnp.eye(n)) + jnp.kron(jnp.eye(m), b.T)
    return jnp.linalg.solve(system, q.reshape(-1)).reshape(m, n)


def lyapunov_by_kronecker(a: DenseSquare, q: DenseSquare) -> DenseSquare:
    """The definition of the continuous equation."""
    return sylvester_by_kronecker(a, jnp.conj(a.T), q)


def discrete_by_kronecker(a: DenseSquare, q: DenseSquare) -> DenseSquare:
    """The definition of the discrete equation."""
    system = jnp.eye(q.size) - jnp.kron(a, jnp.conj(a))
    return jnp.linalg.solve(system, q.reshape(-1)).reshape(q.shape)


def cases() -> Iterator[Case]:
    """General and structured matrices, real and complex, against one large linear system."""
    from tanjax.testing import Case, Samples

    s = Samples(24)
    complex_ = s.regular(2, complex=True)
    hermitian = tj.Hermitian(s.definite(2, complex=True))
    for thorough, a, b, q in (
        (True, complex_, s.regular(2, complex=True), s.complex(2, 2)),
        (True, hermitian, tj.Diagonal(s.positive(2).astype(complex) + 0.3j), s.complex(2, 2)),
        (False, tj.Triangular(s.regular(2)), s.regular(3), s.normal(2, 3)),
    ):
        case = Case(tj.linalg.solve_sylvester, a, b, q)
        yield case.declare(reference=sylvester_by_kronecker, skip=() if thorough else ASKED_ONCE)
    for thorough, a, q in (
        (True, s.regular(2), s.normal(2, 2)),
        (True, tj.Symmetric(s.definite(2)), s.normal(2, 2)),
        (False, s.regular(2), tj.Diagonal(s.positive(2))),
        (False, s.regular(2), tj.Symmetric(s.normal(2, 2))),
    ):
        case = Case(tj.linalg.solve_lyapunov, a, q)
        yield case.declare(reference=lyapunov_by_kronecker, skip=() if thorough else ASKED_ONCE)
    for thorough, a, q in (
        (True, 0.2 * complex_, s.complex(2, 2)),
        (True, tj.Diagonal(s.positive(2).astype(complex) * (0.2 + 0.06j)), s.complex(2, 2)),
        (False, tj.Triangular(0.2 * s.regular(2)), s.normal(2, 2)),
        (False, 0.2 * complex_, tj.Hermitian(s.complex(2, 2))),
    ):
        case = Case(tj.linalg.solve_discrete_lyapunov, a, q)
        yield case.declare(reference=discrete_by_kronecker, skip=() if thorough else ASKED_ONCE)
