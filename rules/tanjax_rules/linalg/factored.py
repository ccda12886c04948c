"""One factorisation for a value and all its derivatives: Cholesky if definite, LU otherwise.

The derivative of a factorisation costs several times as much as a solution with it. Here the factor
itself is never differentiated. Each function of the factor states its derivative in terms of the
matrix, as `lax.custom_linear_solve` does, so that second derivatives reuse the factor, too.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike
from jaxtyping import Shaped

import tanjax as tj
from tanjax.kernels import exported
from tanjax.typing import Function, Scalar, SquareMatrix

from ..dtypes import floating

# Hints for types without an implementation: methods that need only products with the matrix.
HINTS = {
    "solve": "iterate: `solver=lineax.CG(rtol, atol)` (positive definite) or `lineax.GMRES(...)`",
    "logdet": "estimate it: `estimator=tj.bridges.matfree.Lanczos(...)` (positive definite)",
}


def formed(name: str, a: Shaped[tj.AbstractArray, "n n"]) -> SquareMatrix:
    """Densify, with a warning, a matrix whose type has no `name`; keep its promise if definite."""
    hint = f"register `@tj.{name}.implementation({type(a).__name__})`"
    hint = f"{HINTS[name]}, or {hint}" if name in HINTS else hint
    dense = tj.rules.densified(a, name, hint)
    if not getattr(a, "definite", False):
        return dense
    kind = tj.Hermitian if jnp.iscomplexobj(dense) else tj.Symmetric
    return kind(dense, definite=True)


@exported
class Factored(NamedTuple):
    """A square matrix with its factorisation: lower Cholesky (no permutation), or packed LU."""

    data: Shaped[Array, "n n"]
    factor: Shaped[Array, "n n"]
    permutation: Shaped[Array, " n"] | None


def factored(a: tj.Symmetric | tj.Hermitian) -> Factored:
    """Factorise a `Symmetric` or `Hermitian` matrix: $n^3/3$ operations, or $2n^3/3$ by LU.

    LAPACK stores by columns. The (conjugate) transpose is the same matrix, and lies by columns in
    memory where the matrix lies by rows, so that no copy is needed.
    """
    a = floating(a)
    same = jnp.conj(a.data) if isinstance(a, tj.Hermitian) else a.data
    fixed = lax.stop_gradient(jnp.swapaxes(same, -1, -2))
    if a.definite:
        return Factored(a.data, lax.linalg.cholesky(fixed, symmetrize_input=False), None)
    factor, _, permutation = lax.linalg.lu(fixed)
    return Factored(a.data, factor, permutation)


def factored_matrix(a: Shaped[Array, "n n"]) -> Factored:
    """Factorise a dense square matrix by LU: $2n^3/3$ operations."""
    factor, _, permutation = lax.linalg.lu(lax.stop_gradient(a))
    return Factored(a, factor, permutation)


def both_ways(a: SquareMatrix, dtype: DTypeLike) -> tuple[Function, Function]:
    """Return functions that solve with a matrix and with its transpose.

    Dense, `Symmetric` and `Hermitian` matrices are factorised once for both.
    """
    if not tj.rules.is_structured(a):
        f = factored_matrix(a.astype(dtype))
    elif isinstance(a, tj.Symmetric | tj.Hermitian):
        f = factored(a.replace(data=a.data.astype(dtype)))
    else:
        return functools.partial(tj.solve, a), functools.partial(tj.solve, a.mT)
    return (
        lambda b: solve_factored(f, b.astype(dtype)),
        lambda b: solve_factored_transposed(f, b.astype(dtype)),
    )


def solve_factored(f: Factored, b: Shaped[Array, " n *k"]) -> Shaped[Array, " n *k"]:
    """`A⁻¹ b`, differentiable in `A` and `b` to any order."""
    return lax.custom_linear_solve(
        lambda x: f.data @ x,
        b,
        lambda _, y: solve_by_factor(f, y, False),
        lambda _, y: solve_by_factor(f, y, True),
    )


def solve_factored_transposed(f: Factored, b: Shaped[Array, " n *k"]) -> Shaped[Array, " n *k"]:
    """`A⁻ᵀ b`, without conjugation, with the same factor."""
    return lax.custom_linear_solve(
        lambda x: f.data.T @ x,
        b,
        lambda _, y: solve_by_factor(f, y, True),
        lambda _, y: solve_by_factor(f, y, False),
    )


@tj.rules.custom_jvp
def inverse_factored(f: Factored) -> Shaped[Array, "n n"]:
    """`A⁻¹`."""
    return solve_by_factor(f, jnp.eye(f.data.shape[-1], dtype=f.data.dtype), False)


@inverse_factored.defjvp
def _(
    primals: tuple[Factored], tangents: tuple[Factored]
) -> tuple[Shaped[Array, "n n"], Shaped[Array, "n n"]]:
    inverse = inverse_factored(*primals)
    return inverse, -(inverse @ tangents[0].data @ inverse)


@tj.rules.custom_jvp
def logdet_factored(f: Factored) -> Shaped[Array, ""]:
    """`log |det A|`."""
    total = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(f.factor))))
    return 2 * total if f.permutation is None else total


@logdet_factored.defjvp
def _(primals: tuple[Factored], tangents: tuple[Factored]) -> tuple[Scalar, Scalar]:
    y_dot = jnp.sum(inverse_factored(*primals).T * tangents[0].data)
    return logdet_factored(*primals), jnp.real(y_dot)


def solve_by_factor(
    f: Factored, b: Shaped[Array, " n *k"], transposed: bool
) -> Shaped[Array, " n *k"]:
    """Solve with the factor alone, without its derivative."""
    if b.ndim == 1:
        return solve_by_factor(f, b[:, None], transposed)[:, 0]
    factor = lax.stop_gradient(f.factor)
    if f.permutation is None:
        # The transpose of a Hermitian matrix is its conjugate, and so is the second factor of
        # `bᵀ L⁻ᵀ conj(L)⁻¹`. Solve from the right, because `bᵀ` by columns is `b` by rows.
        divide = functools.partial(lax.linalg.triangular_solve, factor, left_side=False, lower=True)
        y = divide((jnp.conj(b) if transposed else b).T, transpose_a=True)
        x = jnp.conj(divide(jnp.conj(y))).T
        return jnp.conj(x) if transposed else x
    solve = functools.partial(lax.linalg.triangular_solve, factor, left_side=True)
    by_l = functools.partial(solve, lower=True, unit_diagonal=True, transpose_a=transposed)
    by_u = functools.partial(solve, lower=False, transpose_a=transposed)
    if transposed:
        return by_l(by_u(b))[jnp.argsort(f.permutation)]
    return by_u(by_l(b[f.permutation]))
