"""Toeplitz matrices: products, sums that stay in the type, systems and determinants.

A product is a convolution, which JAX differentiates itself: that takes fewer transforms than the
outer product of the general rule. Systems and determinants use `factored_toeplitz`, once for a
value and its derivatives. A small system forms the matrix.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, DenseArray, Matrix, Natural, Pullback, Scalar

from ..shapes import DenseColumns, columns_at_once
from .factored_toeplitz import (
    FactoredToeplitz,
    SquareToeplitz,
    factored_toeplitz,
    inverse_diagonal,
    inverse_sums,
    slogdet_factored_toeplitz,
    solve_factored_toeplitz,
    solve_factored_toeplitz_transposed,
    system_of_toeplitz,
)

if TYPE_CHECKING:
    from tanjax.testing import Case

F = TypeVar("F", bound=Callable[..., Matrix])

# -- products --------------------------------------------------------------------------------------


@tj.matmul.implementation(tj.Toeplitz, tj.Dense, differentiate=True)
def toeplitz_times_dense(
    a: Shaped[tj.Toeplitz, "m k"], b: Shaped[DenseArray, " k *n"]
) -> Shaped[DenseArray, " m *n"]:
    return a.apply(b)


# -- systems ---------------------------------------------------------------------------------------


@tj.solve.natural_rule(tj.Toeplitz, tj.Dense)
def solve_toeplitz_rule(a: SquareToeplitz, b: DenseColumns) -> tuple[DenseColumns, Pullback]:
    """The general rule, with the inverse found once for both directions."""
    if not a.shape[0]:
        return solve_toeplitz(a, b), lambda x_bar: (None, x_bar)
    f, b = _system(a, b)
    x = solve_factored_toeplitz(f, b)

    def solve_toeplitz_pullback(
        x_bar: DenseColumns,
    ) -> tuple[Shaped[tj.Outer, "n n"], DenseColumns]:
        w = solve_factored_toeplitz_transposed(f, x_bar)
        return tj.Outer(-w, x), w

    return x, solve_toeplitz_pullback


@tj.solve.implementation(tj.Toeplitz, tj.Dense)
def solve_toeplitz(a: SquareToeplitz, b: DenseColumns) -> DenseColumns:
    """Solve in `O(n²)` operations and `O(n)` memory, then `O(n log n)` for each column of `b`.

    Up to 1024 rows LU of the full matrix is faster, and used unless the matrix is found definite.
    """
    if not a.shape[0]:
        return b.astype(jnp.result_type(a.values, b))
    return solve_factored_toeplitz(*_system(a, b))


def _system(a: SquareToeplitz, b: DenseColumns) -> tuple[FactoredToeplitz, DenseColumns]:
    """Return the factored matrix and its right-hand side, of one dtype."""
    dtype = jnp.result_type(a.values, b)
    count = b.shape[1] if b.ndim == 2 else 1
    f = system_of_toeplitz(a.replace(values=a.values.astype(dtype)), count)
    return f, b.astype(f.a.dtype)


# -- determinants ----------------------------------------------------------------------------------


@tj.linalg.slogdet.natural_rule(tj.Toeplitz, cotangents=("structural",))
def slogdet_toeplitz_rule(a: SquareToeplitz) -> tuple[tj.linalg.SlogdetResult, Pullback]:
    if not a.shape[0]:
        return slogdet_toeplitz(a), lambda bar: a
    f = factored_toeplitz(a)
    out = tj.linalg.SlogdetResult(*slogdet_factored_toeplitz(f))
    return out, lambda bar: a.replace(values=weight_of_slogdet(out.sign, bar) * inverse_sums(f))


def weight_of_slogdet(sign: Scalar, bar: tj.linalg.SlogdetResult) -> Scalar:
    """Return the factor of the inverse transpose; a complex determinant also turns its phase."""
    weight = bar.logabsdet.astype(sign.dtype)
    if not jnp.iscomplexobj(sign):
        return weight
    return weight - 1j * jnp.real(1j * bar.sign * sign).astype(sign.dtype)


@tj.linalg.slogdet.implementation(tj.Toeplitz)
def slogdet_toeplitz(a: SquareToeplitz) -> tj.linalg.SlogdetResult:
    """Sign and logarithm in `O(n²)` operations and `O(n)` memory."""
    if not a.shape[0]:
        return tj.linalg.SlogdetResult(
            jnp.ones((), a.dtype), jnp.zeros((), jnp.finfo(a.dtype).dtype)
        )
    return tj.linalg.SlogdetResult(*slogdet_factored_toeplitz(factored_toeplitz(a)))


@tj.logdet.implementation(tj.Toeplitz, differentiate=True)
def logdet_toeplitz(a: SquareToeplitz) -> Scalar:
    return tj.linalg.slogdet(a).logabsdet


@tj.det.implementation(tj.Toeplitz, differentiate=True)
def det_toeplitz(a: SquareToeplitz) -> Scalar:
    """Return the determinant from `slogdet`: its derivative is nan for a singular matrix."""
    sign, logabsdet = tj.linalg.slogdet(a)
    return sign * jnp.exp(logabsdet).astype(sign.dtype)


# -- the factorization -----------------------------------------------------------------------------


def _solve_by_columns(a: None, f: FactoredToeplitz, b: Natural, transposed: bool) -> Natural:
    solve = solve_factored_toeplitz_transposed if transposed else solve_factored_toeplitz
    return columns_at_once(functools.partial(solve, f), b)


_PLAN = tj.linalg.FactorizationPlan(
    _solve_by_columns,
    lambda a, f: slogdet_factored_toeplitz(f),
    diagonal_of_inverse=lambda a, f: inverse_diagonal(f),
)


@tj.factorize.implementation(tj.Toeplitz, differentiate=True)
def factorize_toeplitz(a: SquareToeplitz) -> tj.linalg.Factorization:
    """Factorise without a root: the root of a Toeplitz matrix has no structure."""
    if not a.shape[0]:
        return tj.factorize(tj.Diagonal(a.values))
    return tj.linalg.Factorization(None, factored_toeplitz(a), _PLAN, a.shape[0])


# -- sums ------------------------------------------------------------------------------------------


def _either_order(
    first: type[tj.AbstractArray], second: type[tj.AbstractArray]
) -> Callable[[F], F]:
    """Register an addition for both orders of two different types."""

    def register(function: F) -> F:
        def swapped(a: Shaped[AnyArray, "m n"], b: Shaped[tj.Toeplitz, "m n"]) -> Matrix:
            return function(b, a)

        swapped.__qualname__ = f"{function.__qualname__}_swapped"
        tj.linalg.add.implementation(first, second, differentiate=True)(function)
        tj.linalg.add.implementation(second, first, differentiate=True)(swapped)
        return function

    return register


@_either_order(tj.Toeplitz, tj.Identity)
def toeplitz_add_identity(a: SquareToeplitz, b: Shaped[tj.Identity, "n n"]) -> SquareToeplitz:
    return _on_diagonal(a, jnp.ones((), b.dtype))


@_either_order(tj.Toeplitz, tj.Fill)
def toeplitz_add_fill(
    a: Shaped[tj.Toeplitz, "m n"], b: Shaped[tj.Fill, "m n"]
) -> Shaped[tj.Toeplitz, "m n"]:
    return a.replace(values=a.values + b.value)


@_either_order(tj.Toeplitz, tj.Circulant)
def toeplitz_add_circulant(a: SquareToeplitz, b: Shaped[tj.Circulant, "n n"]) -> SquareToeplitz:
    return a.replace(values=a.values + b.to_toeplitz().values)


@_either_order(tj.Toeplitz, tj.Scaled)
def toeplitz_add_scaled(a: Shaped[tj.Toeplitz, "m n"], b: Shaped[tj.Scaled, "m n"]) -> Matrix:
    if not isinstance(b.matrix, tj.Identity):
        return tj.tangents.Sum(a, b)
    return _on_diagonal(a, b.factor)


def _on_diagonal(a: SquareToeplitz, number: Scalar) -> SquareToeplitz:
    values = a.values.astype(jnp.result_type(a.values, number))
    middle = a.shape[1] - 1
    return a.replace(values=values.at[middle : middle + 1].add(number) if a.size else values)


# -- the diagonal ----------------------------------------------------------------------------------


@tj.linalg.diagonal.implementation(tj.Toeplitz, differentiate=True)
def diagonal_toeplitz(a: Shaped[tj.Toeplitz, "m n"]) -> Shaped[DenseArray, " k"]:
    return a.diagonal()


@tj.trace.implementation(tj.Toeplitz, differentiate=True)
def trace_toeplitz(a: Shaped[tj.Toeplitz, "m n"]) -> Scalar:
    return jnp.sum(a.diagonal())


# -- cases -----------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Rectangles, systems that need row exchanges, definite and complex systems, no rows."""
    from tanjax.testing import Case, Samples

    s = Samples(21)
    wide = tj.Toeplitz(s.normal(4), (2, 3))
    general = tj.Toeplitz(s.normal(5).at[2].add(3.0))
    minors = tj.Toeplitz(jnp.array([2.0, 1.0, 0.0, 1.3, 3.0]))  # zeros on its diagonal
    turned = tj.Toeplitz(s.complex(5).at[2].add(3.0))
    for a, b in ((wide, s.normal(3, 2)), (s.normal(2), wide), (turned, s.complex(3))):
        yield Case(tj.matmul, a, b)
    yield Case(tj.solve, minors, s.normal(3))
    yield Case(tj.solve, turned, s.complex(3))
    yield Case(tj.linalg.slogdet, turned)
    definite = tj.Toeplitz.from_column(jnp.array([2.3, 0.7 + 0.3j]))
    yield Case(tj.logdet, definite)
    yield Case(tj.det, minors)
    yield Case(tj.trace, wide)
    yield Case(tj.linalg.diagonal, wide)
    for a, b in (
        (general, tj.Identity(3)),
        (general, tj.Scaled(tj.Identity(3), s.normal())),
        (wide, tj.Fill(s.normal(), (2, 3))),
        (general, tj.Circulant(s.normal(3))),
    ):
        yield Case(tj.linalg.add, a, b)
        yield Case(tj.linalg.add, b, a)
    empty = tj.Toeplitz(s.normal(0))
    yield Case(tj.matmul, empty, s.normal(0, 2))
    yield Case(tj.solve, empty, s.normal(0))
    shift = tj.Toeplitz(jnp.zeros(9).at[0].set(1.3).at[5].set(0.7))  # all minors are zero
    triangular = tj.Toeplitz(s.normal(7).at[3].set(2.0).at[4:].set(0.0))
    for a in (shift, triangular):
        yield Case(tj.solve, a, s.normal(a.shape[0]))
    for a in (shift, tj.Toeplitz.from_column(jnp.array([0.2, 0.7, -0.9, -0.6]))):  # indefinite
        yield Case(tj.linalg.slogdet, a)
