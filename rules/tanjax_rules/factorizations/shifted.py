r"""A Kronecker product plus a multiple of the identity, by the eigenvectors of the factors.

With $K_i = V_i \Lambda_i V_i^H$ is $\bigotimes K_i + c I = V(\bigotimes \Lambda_i + c)V^H$, where
$V = \bigotimes V_i$ is never formed: $O(\sum n_i^3 + n \sum n_i)$ for a system of $n = \prod n_i$
equations. The multiple must be known to be one, as `c * tj.Identity(n)` is.
The entries of a `Diagonal` may differ, and then no such form exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree, Shaped

import tanjax as tj
from tanjax.typing import Columns, Natural, Pullback, Scalar, SquareMatrix

from .eigh import outer
from .factorize import columns_at_once, defined, factorize_dense
from .gauge import composed

if TYPE_CHECKING:
    from tanjax.testing import Case

SquareSum = Shaped[tj.Sum, "n n"]


def shifted(a: tj.Sum) -> tuple[tj.Kronecker, Scalar] | None:
    """`(k, c)` of a sum `k + c I`, if its terms say that it is one and `k` is Hermitian."""
    terms = list(_flat(a))
    shifts = [c for t in terms if (c := _multiple(t)) is not None]
    rest = [t for t in terms if _multiple(t) is None]
    if len(rest) != 1 or not shifts or not isinstance(rest[0], tj.Kronecker):
        return None
    return (rest[0], sum(shifts[1:], shifts[0])) if _is_hermitian(rest[0]) else None


def _flat(a: Natural) -> Iterator[Natural]:
    if not isinstance(a, tj.Sum):
        yield a
        return
    for term in a.terms:
        yield from _flat(term)


def _multiple(a: Natural) -> Scalar | None:
    """`c` of `c I`, where the type knows it."""
    if isinstance(a, tj.Identity):
        return jnp.ones((), a.dtype)
    if isinstance(a, tj.Scaled) and (inner := _multiple(a.matrix)) is not None:
        return a.factor * inner
    return None


def _is_hermitian(a: Natural) -> bool:
    if isinstance(a, tj.Kronecker):
        return all(map(_is_hermitian, a.factors))
    if isinstance(a, tj.Symmetric | tj.Diagonal):
        return not jnp.issubdtype(a.dtype, jnp.complexfloating)
    return isinstance(a, tj.Hermitian | tj.Identity)


# -- the factorization -----------------------------------------------------------------------------


def _solve(matrix: PyTree, parts: Sequence[PyTree], b: Natural, transposed: bool) -> Natural:
    """`V (Λ + c)⁻¹ Vᴴ b`, or with the conjugate of `V`; differentiated by the matrix."""
    values, vectors = lax.stop_gradient(parts[0]), parts[1]

    def by_vectors(y: Natural, conjugate: bool) -> Natural:
        v = vectors.conj() if conjugate else vectors
        return v @ ((v.conj().mT @ y) / values[:, None])

    def at_once(y: Natural) -> Natural:
        y = y.astype(jnp.result_type(values, vectors.dtype, y))
        times = matrix.mT if transposed else matrix
        return lax.custom_linear_solve(
            lambda x: times @ x,
            y,
            lambda _, r: by_vectors(r, transposed),
            lambda _, r: by_vectors(r, not transposed),
        )

    return columns_at_once(at_once, b)


def _slogdet(matrix: PyTree, parts: Sequence[PyTree]) -> tuple[Scalar, Scalar]:
    values = parts[0]
    size = jnp.abs(values)
    safe = jnp.where(size == 0, jnp.ones_like(size), size)
    return jnp.prod(values / safe.astype(values.dtype)), jnp.sum(jnp.log(size))


def _inv_quad(matrix: PyTree, parts: Sequence[PyTree], b: Natural) -> Natural:
    return _paired_solution(matrix, parts, b.astype(jnp.result_type(*parts, b)))


@tj.rules.custom_jvp
def _paired_solution(matrix: PyTree, parts: Sequence[PyTree], b: Natural) -> Natural:
    """`bᴴ a⁻¹ b`: what its derivative needs is the solution that it has."""
    return _dot(b, _solve(matrix, parts, b, False))


@_paired_solution.defjvp
def _paired_solution_jvp(
    primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]
) -> tuple[Natural, Natural]:
    (matrix, parts, b), (matrix_dot, _, b_dot) = primals, tangents
    x = _solve(matrix, parts, b, False)
    moved = jax.jvp(lambda a: a @ x, (matrix,), (matrix_dot,))[1]
    return _dot(b, x), _dot(x, b_dot) + _dot(b_dot, x) - _dot(x, moved)


def _dot(x: Natural, y: Natural) -> Natural:
    return jnp.sum(x.conj() * y, axis=(-2, -1))


_PLAN = tj.FactorizationPlan(_solve, _slogdet, inv_quad=_inv_quad)


def _eigen(a: Natural) -> tj.EighResult:
    """The eigenvalues, and eigenvectors that are constants: the derivative does without them."""
    if isinstance(a, tj.Kronecker):
        parts = [_eigen(f) for f in a.factors]
        return tj.EighResult(
            outer(p.eigenvalues for p in parts), tj.Kronecker(*(p.eigenvectors for p in parts))
        )
    if isinstance(a, tj.Symmetric | tj.Hermitian):
        return tj.EighResult(*_eigen_of_full(a.data))
    found = tj.eigh(a, invariant=True)
    return tj.EighResult(found.eigenvalues, lax.stop_gradient(found.eigenvectors))


@tj.rules.custom_jvp
def _eigen_of_full(a: SquareMatrix) -> tuple[Natural, Natural]:
    return tuple(tj.eigh(a, invariant=True))


@_eigen_of_full.defjvp
def _eigen_of_full_jvp(
    primals: tuple[SquareMatrix], tangents: tuple[SquareMatrix]
) -> tuple[tuple[Natural, Natural], tuple[Natural, Natural]]:
    w, v = tj.eigh(*primals)  # of equal eigenvalues the second derivative is nan, as it must be
    moved = tangents[0] @ v
    return (w, v), (jnp.real(jnp.sum(v.conj() * moved, axis=-2)), jnp.zeros_like(v))


@tj.factorize.implementation(tj.Sum, differentiate=True)
def factorize_sum(a: SquareSum) -> tj.Factorization:
    """The eigenvalues carry the derivative of the determinant; the eigenvectors are constants.

    The determinant is the same for equal eigenvalues and asks nothing of the vectors: `invariant`.
    """
    found = shifted(a)
    if found is None:
        return factorize_dense(tj.densified(a, "factorize", HINT))
    product, shift = found
    values, vectors = _eigen(product)
    parts = (values + shift, vectors)
    return tj.Factorization(a, parts, _PLAN, a.shape[0])


HINT = "write a multiple of the identity as `c * tj.Identity(n)`, or give a `solver`"


# -- rules -----------------------------------------------------------------------------------------


@tj.solve.implementation(tj.Sum, tj.Dense)
def solve_sum(a: SquareSum, b: Columns) -> Columns:
    if shifted(a) is None:
        return tj.solve.primal(tj.densified(a, "solve", HINT), b)
    return tj.factorize(a).solve(b)


@tj.solve.natural_rule(tj.Sum, tj.Dense)
def solve_sum_rule(a: SquareSum, b: Columns) -> tuple[Columns, Pullback]:
    """The rule of any matrix, with one eigendecomposition for both directions."""
    f = tj.factorize(a)
    x = f.solve(b)

    def solve_sum_pullback(x_bar: Columns) -> tuple[SquareMatrix, Columns]:
        w = f.solve(x_bar, transposed=True)
        return tj.Outer(-w, x), w

    return x, solve_sum_pullback


@tj.logdet.implementation(tj.Sum, differentiate=True)
def logdet_sum(a: SquareSum) -> Scalar:
    if shifted(a) is None:
        return tj.logdet(tj.densified(a, "logdet", HINT))
    return tj.factorize(a).logdet()


@tj.slogdet.implementation(tj.Sum, differentiate=True)
def slogdet_sum(a: SquareSum) -> tj.SlogdetResult:
    if shifted(a) is None:
        return tj.slogdet(tj.densified(a, "slogdet", HINT))
    return tj.factorize(a).slogdet()


# -- cases -----------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Real and complex factors, nested sums, one system and several."""
    from tanjax.testing import Case, Samples

    s = Samples(17)
    real = tj.Kronecker(tj.Symmetric(s.definite(2)), tj.Symmetric(s.definite(2)))
    mixed = tj.Kronecker(tj.Hermitian(s.definite(2, complex=True)), tj.Diagonal(s.positive(2)))
    shift = tj.Scaled(tj.Identity(4), s.positive())
    one, two = tj.Sum(real, shift), tj.Sum(tj.Sum(tj.Identity(4), mixed), shift)
    yield Case(tj.solve, one, s.normal(4))
    yield Case(tj.solve, two, s.complex(4, 2))
    yield composed(Case(tj.logdet, one))
    yield composed(Case(tj.slogdet, two))
    yield composed(Case(tj.inv_quad_logdet, one, s.normal(4)).declare(reference=defined))
