"""Factor once, solve many: the factorization of each type, and the uses of its parts.

The factor of a dense matrix is a constant to JAX. A solution is a `custom_linear_solve` in the
matrix itself, and the logarithm of the determinant states its tangent. So derivatives of any order
solve with the same factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree, Shaped

import tanjax as tj
from tanjax.typing import Columns, DenseArray, Function, Matrix, Natural, Scalar

from ..dtypes import floating
from ..shapes import columns_at_once
from .gauge import composed, whole

if TYPE_CHECKING:
    from tanjax.testing import Case


# -- dense: LU and Cholesky ------------------------------------------------------------------------


def _solve_dense(by_factor: Function) -> Function:
    """Return a solver for the matrix or its transpose, from a solver by the factor alone."""

    def solve(matrix: PyTree, parts: Sequence[PyTree], b: Natural, transposed: bool) -> Natural:
        a = whole(matrix)
        dtype = jnp.result_type(a, b)
        a, b = a.astype(dtype), b.astype(dtype)
        parts = [p.astype(dtype) if jnp.issubdtype(p.dtype, jnp.inexact) else p for p in parts]
        batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        b = jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
        if a.shape[:-2] != batch:
            a, parts = _spread(a, batch, 2), [_spread(p, batch, p.ndim - a.ndim + 2) for p in parts]
        forward, back = (
            lambda _, y, t=t: by_factor(parts, y, t) for t in (transposed, not transposed)
        )
        times = jnp.swapaxes(a, -1, -2) if transposed else a
        return lax.custom_linear_solve(lambda x: times @ x, b, forward, back)

    return solve


def _spread(x: Natural, batch: tuple[int, ...], core: int) -> Natural:
    return jnp.broadcast_to(x, (*batch, *x.shape[x.ndim - core :]))


def _by_lu(parts: Sequence[PyTree], b: Natural, transposed: bool) -> Natural:
    factor, _, permutation = map(lax.stop_gradient, parts)
    divide = lambda y, **how: lax.linalg.triangular_solve(
        factor, y, left_side=True, transpose_a=transposed, **how
    )
    by_l = lambda y: divide(y, lower=True, unit_diagonal=True)
    by_u = lambda y: divide(y, lower=False)
    rows = lambda y, order: jnp.take_along_axis(y, order[..., None], axis=-2)
    if transposed:
        return rows(by_l(by_u(b)), jnp.argsort(permutation, axis=-1))
    return by_u(by_l(rows(b, permutation)))


def _by_cholesky(parts: Sequence[PyTree], b: Natural, transposed: bool) -> Natural:
    """Solve by a Cholesky factor; the transpose of a Hermitian matrix is its conjugate."""
    (factor,) = map(lax.stop_gradient, parts)
    factor = jnp.conj(factor) if transposed else factor
    divide = lambda y, **how: lax.linalg.triangular_solve(
        factor, y, left_side=True, lower=True, **how
    )
    return divide(divide(b), transpose_a=True, conjugate_a=jnp.iscomplexobj(factor))


def _slogdet_dense(solve: Function, value: Function) -> Function:
    """Return sign and logarithm by the factor, differentiated by the matrix."""

    @tj.rules.custom_jvp
    def slogdet(matrix: PyTree, parts: Sequence[PyTree]) -> tuple[Natural, Natural]:
        return value(parts)

    @slogdet.defjvp
    def _(
        primals: tuple[Matrix, PyTree], tangents: tuple[Matrix, PyTree]
    ) -> tuple[tuple[Natural, Natural], tuple[Natural, Natural]]:
        matrix, parts = primals
        sign, logarithm = slogdet(matrix, parts)
        eye = tj.rules.align(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix)
        inverse = solve(matrix, parts, eye, False)
        y_dot = jnp.sum(jnp.swapaxes(inverse, -1, -2) * tangents[0], axis=(-2, -1))
        turned = sign * (y_dot - jnp.real(y_dot).astype(y_dot.dtype))
        return (sign, logarithm), (turned, jnp.real(y_dot))

    return lambda matrix, parts: slogdet(whole(matrix), parts)


def _value_of_lu(parts: Sequence[PyTree]) -> tuple[Scalar, Scalar]:
    factor, pivots, _ = parts
    diag = jnp.diagonal(factor, axis1=-2, axis2=-1)
    swaps = jnp.sum(pivots != jnp.arange(pivots.shape[-1], dtype=pivots.dtype), axis=-1)
    odd = (swaps % 2).astype(diag.dtype)
    size = jnp.abs(diag)
    safe = jnp.where(size == 0, jnp.ones_like(size), size).astype(diag.dtype)
    return jnp.prod(diag / safe, axis=-1) * (1 - 2 * odd), jnp.sum(jnp.log(size), axis=-1)


def _value_of_cholesky(parts: Sequence[PyTree]) -> tuple[Scalar, Scalar]:
    diag = jnp.diagonal(parts[0], axis1=-2, axis2=-1)
    sign = jnp.where(jnp.isnan(jnp.sum(diag, axis=-1)), jnp.nan, 1).astype(diag.dtype)
    return sign, 2 * jnp.sum(jnp.log(jnp.real(diag)), axis=-1)


@tj.rules.custom_jvp
def _root_dense(matrix: PyTree, parts: Sequence[PyTree]) -> DenseArray:
    return parts[0]


@_root_dense.defjvp
def _root_jvp(
    primals: tuple[Matrix, PyTree], tangents: tuple[Matrix, PyTree]
) -> tuple[DenseArray, DenseArray]:
    r"""$\dot L = L\,\Phi(L^{-1} \dot A L^{-H})$, $\Phi$ the lower part with half its diagonal."""
    root = _root_dense(*primals)
    divide = lambda x: lax.linalg.triangular_solve(root, x, left_side=True, lower=True)
    inner = divide(jnp.conj(divide(tangents[0]).swapaxes(-1, -2))).swapaxes(-1, -2)
    inner = jnp.conj(inner)
    inner = (inner + jnp.conj(inner.swapaxes(-1, -2))) / 2
    half = jnp.eye(root.shape[-1], dtype=root.dtype) / 2
    return root, root @ (jnp.tril(inner) - half * inner)


def _plan(
    by_factor: Function, value: Function, cholesky: Function | None
) -> tj.linalg.FactorizationPlan:
    solve = _solve_dense(by_factor)

    def diagonal_of_inverse(matrix: PyTree, parts: Sequence[PyTree]) -> Natural:
        eye = tj.rules.align(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix)
        return jnp.diagonal(solve(matrix, parts, eye, False), axis1=-2, axis2=-1)

    slogdet = _slogdet_dense(solve, value)
    return tj.linalg.FactorizationPlan(
        solve, slogdet, cholesky=cholesky, diagonal_of_inverse=diagonal_of_inverse
    )


_LU = _plan(_by_lu, _value_of_lu, None)
_CHOLESKY = _plan(
    _by_cholesky, _value_of_cholesky, lambda matrix, parts: _root_dense(whole(matrix), parts)
)


@tj.factorize.implementation(tj.Dense, differentiate=True)
def factorize_dense(a: Shaped[DenseArray, "... m n"]) -> tj.linalg.Factorization:
    a = floating(jnp.asarray(a))
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise tj.ShapeError(f"factorize: needs a square matrix, got shape {a.shape}.")
    return tj.linalg.Factorization(a, tuple(lax.linalg.lu(lax.stop_gradient(a))), _LU, a.shape[-1])


@tj.factorize.implementation(tj.AbstractArray, differentiate=True)
def factorize_any(a: Shaped[tj.AbstractArray, "... m n"]) -> tj.linalg.Factorization:
    hint = f"register `@tj.factorize.implementation({type(a).__name__})`"
    return factorize_dense(tj.rules.densified(a, "factorize", hint))


@tj.factorize.implementation(tj.Symmetric, differentiate=True)
@tj.factorize.implementation(tj.Hermitian, differentiate=True)
def factorize_symmetric(a: Shaped[tj.Symmetric | tj.Hermitian, "n n"]) -> tj.linalg.Factorization:
    data = floating(a.data)
    if not a.definite:
        return tj.linalg.Factorization(
            data, tuple(lax.linalg.lu(lax.stop_gradient(data))), _LU, a.shape[0]
        )
    factor = lax.linalg.cholesky(lax.stop_gradient(data), symmetrize_input=False)
    return tj.linalg.Factorization(data, (factor,), _CHOLESKY, a.shape[0])


# -- no factor needed ------------------------------------------------------------------------------


def root_of_diagonal(matrix: PyTree, parts: Sequence[PyTree], z: Natural, adjoint: bool) -> Natural:
    diag = floating(matrix).diagonal()
    root = jnp.sqrt(diag.real)
    if jnp.iscomplexobj(diag):
        root = jnp.where(diag.imag == 0, root, jnp.nan)
    return root[:, None] * z


_ITSELF = tj.linalg.FactorizationPlan(
    lambda a, _, b, transposed: columns_at_once(
        lambda y: tj.solve(a.mT if transposed else a, y), b
    ),
    lambda a, _: tj.linalg.slogdet(a),
    diagonal_of_inverse=lambda a, _: 1 / floating(a).diagonal(),
)


@tj.factorize.implementation(tj.Triangular, differentiate=True)
def factorize_triangular(a: Shaped[tj.Triangular, "n n"]) -> tj.linalg.Factorization:
    return tj.linalg.Factorization(a, (), _ITSELF, a.shape[0])


@tj.factorize.implementation(tj.Diagonal, differentiate=True)
@tj.factorize.implementation(tj.Identity, differentiate=True)
def factorize_diagonal(a: Shaped[tj.Diagonal | tj.Identity, "n n"]) -> tj.linalg.Factorization:
    return tj.linalg.Factorization(a, (), _ITSELF._replace(root=root_of_diagonal), a.shape[0])


# The inverse of a permutation is its transpose, which has its diagonal.
_TRANSPOSED = _ITSELF._replace(diagonal_of_inverse=lambda a, _: a.diagonal())


@tj.factorize.implementation(tj.Permutation, differentiate=True)
def factorize_permutation(a: Shaped[tj.Permutation, "n n"]) -> tj.linalg.Factorization:
    return tj.linalg.Factorization(a, (), _TRANSPOSED, a.shape[0])


# -- both at once ----------------------------------------------------------------------------------


@tj.linalg.inv_quad_logdet.implementation(tj.AbstractArray, tj.Dense, differentiate=True)
def inv_quad_logdet(a: Shaped[tj.AbstractArray, "... m n"], b: Columns) -> tuple[Scalar, Scalar]:
    f = tj.factorize(a)
    return f.inv_quad(b), f.logdet()


# -- cases ---------------------------------------------------------------------------------------


def defined(a: Natural, b: Natural) -> tuple[Scalar, Scalar]:
    """The definition of `inv_quad_logdet`."""
    x = jnp.linalg.solve(a, b)
    return jnp.sum(jnp.conj(b) * x), jnp.linalg.slogdet(a).logabsdet


def cases() -> Iterator[Case]:
    """Every type with its own factorization, through operations that use both results."""
    from tanjax.testing import Case, Samples

    s = Samples(14)
    a: Any
    symmetric = tj.Symmetric(s.definite(2))
    definite = symmetric.replace(definite=True)
    triangular = tj.Triangular(s.regular(2))
    thin = s.normal(2, 1)
    for a, b in (
        (s.regular(2, complex=True), s.complex(2)),
        (definite, s.normal(2, 2)),
        (tj.Hermitian(s.definite(2, complex=True), definite=True), s.complex(2)),
        (tj.Permutation([1, 2, 0]), s.normal(3, 2)),
        (tj.Kronecker(definite, triangular), s.normal(4, 1)),
        (tj.LowRankUpdate(symmetric, thin, None, 0.1 * s.normal(2, 1)), s.normal(2, 2)),
        (tj.LowRankUpdate(triangular, thin, s.positive(1)), s.normal(2)),
        (tj.LowRankUpdate(tj.Diagonal(s.positive(2)), s.complex(2, 1)), s.complex(2)),
        (tj.BlockDiagonal(s.regular(2), tj.Diagonal(s.positive(1))), s.normal(3)),
        (tj.Scaled(tj.Symmetric(s.normal(2, 2)), s.positive()), s.normal(2)),
    ):
        yield composed(Case(tj.linalg.inv_quad_logdet, a, b).declare(reference=defined))
