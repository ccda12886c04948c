"""Sums, differences, scalings and quotients.

These operations are linear in each argument, so AD of a structured implementation is as good as a
rule. This module decides which structure survives. Products of entries are in `entrywise`, sums of
composite types beside those types.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import (
    AnyArray,
    Factor,
    Function,
    Samples,
    SquareMatrix,
)

from ..shapes import FullStorage, SquareDiagonal, SquareTriangular, SquareUpdate

if TYPE_CHECKING:
    from tanjax.testing import Case

HINT = "convert one side with `tj.destructure` if a dense result is meant"


def _is_inexact(x: AnyArray) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _forgotten(a: Shaped[tj.AbstractArray, "*shape"]) -> Shaped[tj.AbstractArray, "*shape"]:
    """Return the array without the promise to be definite."""
    return a.replace(definite=False) if getattr(a, "definite", False) else a


def _have_one_space(a: tj.AbstractArray, b: tj.AbstractArray) -> bool:
    """True if two arrays add field by field: one linear type, and no index that may differ."""
    if not a.is_linear or jax.tree.structure(a) != jax.tree.structure(b):
        return False
    pairs = list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    if any(x.shape != y.shape for x, y in pairs):
        return False
    return a.fields_are_entries or all(_is_inexact(x) and _is_inexact(y) for x, y in pairs)


# -- addition ------------------------------------------------------------------------------------


@tj.linalg.add.implementation(tj.AbstractArray, tj.AbstractArray, differentiate=True)
def add_structured(
    a: Shaped[tj.AbstractArray, "*shape"], b: Shaped[tj.AbstractArray, "*shape"]
) -> Shaped[tj.AbstractArray, "*shape"]:
    if not (getattr(a, "definite", False) and getattr(b, "definite", False)):
        a, b = _forgotten(a), _forgotten(b)
    return jax.tree.map(jnp.add, a, b) if _have_one_space(a, b) else tj.tangents.Sum(a, b)


@tj.linalg.add.implementation(tj.AbstractArray, tj.Dense, differentiate=True)
def add_dense(
    a: Shaped[tj.AbstractArray, " ..."], b: Shaped[ArrayLike, " ..."]
) -> Shaped[Array, " ..."]:
    # The result must be dense; warn only for a scalar `b`, which fills the structure.
    if jnp.shape(b) == ():
        return tj.rules.densified(a, "add", HINT) + b
    return tj.destructure(a) + b


@tj.linalg.add.implementation(tj.Dense, tj.AbstractArray, differentiate=True)
def dense_add(
    a: Shaped[ArrayLike, " ..."], b: Shaped[tj.AbstractArray, " ..."]
) -> Shaped[Array, " ..."]:
    return add_dense(b, a)


def either_order(
    first: type | tuple[type, ...], second: type | tuple[type, ...]
) -> Callable[[Function], Function]:
    """Register an addition for both orders of its arguments; equal types keep their order."""

    def register(function: Function) -> Function:
        def ordered(
            a: Shaped[tj.AbstractArray, "m n"], b: Shaped[tj.AbstractArray, "m n"]
        ) -> Shaped[AnyArray, "m n"]:
            fits = isinstance(a, first) and isinstance(b, second)
            return function(a, b) if fits else function(b, a)

        ordered.__module__ = function.__module__
        ordered.__qualname__ = f"{function.__qualname__}_ordered"
        kinds = [x if isinstance(x, tuple) else (x,) for x in (first, second)]
        for one, other in itertools.product(*kinds):
            tj.linalg.add.implementation(one, other, differentiate=True)(ordered)
            if one is not other:
                tj.linalg.add.implementation(other, one, differentiate=True)(ordered)
        return function

    return register


@tj.linalg.add.implementation(tj.Zero, tj.AbstractArray, differentiate=True)
def zero_add(
    a: Shaped[tj.Zero, "*shape"], b: Shaped[tj.AbstractArray, "*shape"]
) -> Shaped[tj.AbstractArray, "*shape"]:
    return b


@tj.linalg.add.implementation(tj.AbstractArray, tj.Zero, differentiate=True)
def add_zero(
    a: Shaped[tj.AbstractArray, "*shape"], b: Shaped[tj.Zero, "*shape"]
) -> Shaped[tj.AbstractArray, "*shape"]:
    return a


@either_order(tj.Diagonal, tj.Identity)
def diagonal_add_identity(a: SquareDiagonal, b: Shaped[tj.Identity, "n n"]) -> SquareDiagonal:
    return tj.Diagonal(a.diag + jnp.ones_like(a.diag))


@either_order(tj.Symmetric, tj.Diagonal)
def symmetric_add_diagonal(
    a: Shaped[tj.Symmetric, "n n"], b: SquareDiagonal
) -> Shaped[tj.Symmetric, "n n"]:
    return a.replace(data=_on_diagonal(a.data, b.diag), definite=False)


@either_order((tj.Symmetric, tj.Hermitian), tj.Identity)
def symmetric_add_identity(a: FullStorage, b: Shaped[tj.Identity, "n n"]) -> FullStorage:
    # Definite stays definite: the identity is positive.
    return a.replace(data=_on_diagonal(a.data, jnp.ones(a.shape[0], a.dtype)))


@either_order(tj.Hermitian, tj.Diagonal)
def hermitian_add_diagonal(
    a: Shaped[tj.Hermitian, "n n"], b: SquareDiagonal
) -> Shaped[tj.AbstractArray, "n n"]:
    if jnp.iscomplexobj(b.diag):
        return tj.tangents.Sum(a, b)
    data = _on_diagonal(a.data, b.diag.astype(a.data.dtype))
    return a.replace(data=data, definite=False)


@either_order(tj.Triangular, tj.Diagonal)
def triangular_add_diagonal(a: SquareTriangular, b: SquareDiagonal) -> SquareTriangular:
    return tj.Triangular(_on_diagonal(a.to_dense(), b.diag), a.lower)


@either_order(tj.Triangular, tj.Identity)
def triangular_add_identity(a: SquareTriangular, b: Shaped[tj.Identity, "n n"]) -> SquareTriangular:
    return tj.Triangular(_on_diagonal(a.to_dense(), jnp.ones(a.shape[0], a.dtype)), a.lower)


@tj.linalg.add.implementation(tj.Symmetric, tj.Symmetric, differentiate=True)
@tj.linalg.add.implementation(tj.Hermitian, tj.Hermitian, differentiate=True)
def symmetric_add_symmetric(a: FullStorage, b: FullStorage) -> FullStorage:
    return a.replace(data=a.data + b.data, definite=a.definite and b.definite)


def _on_diagonal(dense: Shaped[Array, "n n"], diag: Shaped[Array, " n"]) -> Shaped[Array, "n n"]:
    n, dense = diag.shape[0], dense.astype(jnp.result_type(dense, diag))
    return dense.at[jnp.arange(n), jnp.arange(n)].add(diag)


@tj.linalg.add.implementation(tj.Triangular, tj.Triangular, differentiate=True)
def triangular_add_triangular(a: SquareTriangular, b: SquareTriangular) -> SquareMatrix:
    dense = a.to_dense() + b.to_dense()
    return tj.Triangular(dense, a.lower) if a.lower == b.lower else dense


@either_order(tj.Diagonal, tj.LowRank)
def diagonal_add_low_rank(a: SquareDiagonal, b: Shaped[tj.LowRank, "n n"]) -> SquareUpdate:
    return tj.LowRankUpdate(a, b.u, None, b.v)


@tj.linalg.subtract.implementation(tj.AbstractArray, tj.AbstractArray, differentiate=True)
@tj.linalg.subtract.implementation(tj.AbstractArray, tj.Dense, differentiate=True)
@tj.linalg.subtract.implementation(tj.Dense, tj.AbstractArray, differentiate=True)
def subtract(
    a: Shaped[AnyArray, " ..."] | complex, b: Shaped[AnyArray, " ..."] | complex
) -> Shaped[AnyArray, " ..."]:
    return tj.linalg.add(a, tj.linalg.negative(b))


@tj.linalg.negative.implementation(tj.AbstractArray, differentiate=True)
def negative(a: Shaped[tj.AbstractArray, "*shape"]) -> Shaped[AnyArray, "*shape"]:
    return scale(a, -1)


# -- multiplication ------------------------------------------------------------------------------


@tj.linalg.multiply.implementation(tj.AbstractArray, tj.Dense, differentiate=True)
def multiply_dense(
    a: Shaped[tj.AbstractArray, " ..."], b: Shaped[ArrayLike, " ..."]
) -> Shaped[AnyArray, " ..."]:
    if jnp.shape(b) == ():
        return scale(a, b)
    return tj.rules.densified(a, "multiply", HINT) * b


@tj.linalg.multiply.implementation(tj.Dense, tj.AbstractArray, differentiate=True)
def dense_multiply(
    a: Shaped[ArrayLike, " ..."], b: Shaped[tj.AbstractArray, " ..."]
) -> Shaped[AnyArray, " ..."]:
    return tj.linalg.multiply(b, a)


@tj.linalg.divide.implementation(tj.AbstractArray, tj.Dense, differentiate=True)
def divide(
    a: Shaped[tj.AbstractArray, " ..."], b: Shaped[ArrayLike, " ..."]
) -> Shaped[AnyArray, " ..."]:
    quotient = a.divided(b) if jnp.shape(b) == () else NotImplemented
    return tj.linalg.multiply(a, 1 / b) if quotient is NotImplemented else quotient


def scale(a: Shaped[tj.AbstractArray, "*shape"], factor: Factor) -> Shaped[AnyArray, "*shape"]:
    """Return `factor * a` for a scalar, in a type that can express it exactly."""
    multiple = a.scaled(factor)
    if multiple is not NotImplemented:
        return multiple
    return tj.Scaled(a, jnp.asarray(factor, jnp.result_type(a.dtype, factor)))


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Sums, differences and products of every pair with an implementation of its own."""
    from tanjax.testing import Case, Samples

    s = Samples(2)
    diagonal, symmetric = tj.Diagonal(s.normal(2)), tj.Symmetric(s.normal(2, 2))
    lower, upper = tj.Triangular(s.normal(2, 2)), tj.Triangular(s.normal(2, 2), lower=False)
    unit = tj.Triangular(s.normal(2, 2), unit_diagonal=True)
    hermitian = tj.Hermitian(s.complex(2, 2))
    low_rank = tj.LowRank(s.normal(2, 1), s.normal(2, 1))
    update = tj.LowRankUpdate(tj.Diagonal(s.normal(2)), s.normal(2, 1), s.normal(1))
    kronecker = tj.Kronecker(s.normal(2, 1), s.normal(1, 2))
    for a, b in (
        (diagonal, tj.Diagonal(s.normal(2))),
        (symmetric, lower),
        (symmetric, s.normal(2, 2)),
        (symmetric, s.normal()),
        (s.normal(2, 2), diagonal),
        (tj.Zero((2, 2)), symmetric),
        (lower, tj.Zero((2, 2))),
        (diagonal, tj.Identity(2)),
        (symmetric, diagonal),
        (symmetric, symmetric.replace(definite=True)),
        (hermitian, hermitian),
        (symmetric, tj.Identity(2)),
        (hermitian, tj.Identity(2, complex)),
        (lower, diagonal),
        (unit, tj.Identity(2)),
        (lower, upper),
        (unit, lower),
        (diagonal, low_rank),
    ):
        yield Case(tj.linalg.add, a, b)
    yield Case(tj.linalg.add, tj.Diagonal(s.complex(2)), hermitian)
    for a, b in ((symmetric, diagonal), (diagonal, s.normal(2, 2)), (s.normal(2, 2), unit)):
        yield Case(tj.linalg.subtract, a, b)
    for a in (symmetric, unit, kronecker, update, tj.Diagonal(s.normal(0))):
        yield Case(tj.linalg.negative, a)
    yield from _product_cases(Case, s)


def _product_cases(case: type[Case], s: Samples) -> Iterator[Case]:
    """Products with scalars, and quotients."""
    symmetric = tj.Symmetric(s.normal(2, 2))
    hermitian, low_rank = tj.Hermitian(s.complex(2, 2)), tj.LowRank(s.normal(2, 1), s.normal(2, 1))
    kronecker = tj.Kronecker(s.normal(2, 1), s.normal(1, 2))
    blocks = tj.BlockDiagonal(s.normal(1, 1), tj.Diagonal(s.normal(1)))
    for a, b in (
        (symmetric, s.normal()),
        (hermitian, s.complex()),
        (tj.Identity(2), s.normal()),
        (blocks, s.normal()),
        (tj.Scaled(symmetric, s.normal()), s.normal()),
        (s.normal(), low_rank),
        (low_rank, s.normal()),
    ):
        yield case(tj.linalg.multiply, a, b)
    yield case(tj.linalg.divide, symmetric, s.positive())
    yield case(tj.linalg.divide, kronecker, s.positive())
