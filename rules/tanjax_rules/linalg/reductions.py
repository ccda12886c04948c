"""Transposes, diagonals, sums, inner products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import (
    AnyArray,
    Axis,
    DenseArray,
    Matrix,
    Natural,
    Pullback,
    Scalar,
    SquareMatrix,
    Vector,
)

if TYPE_CHECKING:
    from tanjax.testing import Case


@tj.linalg.transpose.implementation(tj.AbstractArray, differentiate=True)
def transpose(a: Shaped[tj.AbstractArray, "m n"]) -> Shaped[AnyArray, "n m"]:
    return a.transposed()  # a relabelling of the fields: AD of it is free


# -- the diagonal and the trace ------------------------------------------------------------------


@tj.linalg.diagonal.implementation(tj.AbstractArray)
def diagonal(a: Shaped[tj.AbstractArray, "m n"]) -> Shaped[Array, " min(m,n)"]:
    return a.diagonal()


@tj.linalg.diagonal.natural_rule(tj.AbstractArray)
def diagonal_rule(
    a: Shaped[tj.AbstractArray, "m n"],
) -> tuple[Shaped[Array, " min(m,n)"], Pullback]:
    return a.diagonal(), lambda d_bar: embed_diagonal(d_bar, a.shape)


@tj.trace.implementation(tj.AbstractArray)
def trace(a: Shaped[tj.AbstractArray, "m n"]) -> Scalar:
    return jnp.sum(a.diagonal())


@tj.trace.natural_rule(tj.AbstractArray)
def trace_rule(a: Shaped[tj.AbstractArray, "m n"]) -> tuple[Scalar, Pullback]:
    def trace_pullback(y_bar: Scalar) -> Matrix:
        return embed_diagonal(jnp.broadcast_to(y_bar, (min(a.shape),)), a.shape)

    return trace(a), trace_pullback


def embed_diagonal(diag: Shaped[Array, " k"], shape: tuple[int, ...]) -> Matrix:
    """Return the matrix of a shape with `diag` on its main diagonal."""
    if shape[0] == shape[1]:
        return tj.Diagonal(diag)
    k = min(shape)  # the rest of a rectangle is a block without rows or without columns
    return tj.BlockDiagonal(tj.Diagonal(diag), tj.Zero((shape[0] - k, shape[1] - k), diag.dtype))


# -- sums ----------------------------------------------------------------------------------------


@tj.linalg.sum.implementation(tj.AbstractArray)
def sum_(a: Shaped[tj.AbstractArray, " ..."], *, axis: Axis = None) -> Shaped[AnyArray, " ..."]:
    if axis is None or a.ndim != 2 or isinstance(axis, tuple):
        return (
            a.total()
            if axis is None
            else jnp.sum(tj.rules.densified(a, "sum", "sum over one axis or all"), axis)
        )
    if axis not in (-2, -1, 0, 1):
        raise tj.ShapeError(f"sum: axis {axis} is out of range for shape {a.shape}.")
    matrix = a.transposed() if axis in (0, -2) else a
    return tj.matmul.primal(matrix, jnp.ones(matrix.shape[1], a.dtype))


@tj.linalg.sum.natural_rule(tj.AbstractArray)
def sum_rule(a: Shaped[tj.AbstractArray, " ..."], *, axis: Axis = None) -> tuple[Natural, Pullback]:
    def sum_pullback(y_bar: Natural) -> Natural:
        if a.ndim != 2 or isinstance(axis, tuple):
            return jnp.broadcast_to(
                y_bar if axis is None else jnp.expand_dims(y_bar, axis), a.shape
            )
        ones = [jnp.ones(n, y_bar.dtype) for n in a.shape]
        if axis is None:
            return tj.Outer(y_bar * ones[0], ones[1])
        return tj.Outer(ones[0], y_bar) if axis in (0, -2) else tj.Outer(y_bar, ones[1])

    return sum_(a, axis=axis), sum_pullback


# -- inner products ------------------------------------------------------------------------------


@tj.linalg.pairing.implementation(tj.AbstractArray, tj.Dense)
@tj.linalg.pairing.implementation(tj.AbstractArray, tj.AbstractArray)
def pairing(a: Shaped[tj.AbstractArray, "*shape"], b: Shaped[AnyArray, "*shape"]) -> Scalar:
    return a.inner_product(b)


@tj.linalg.pairing.implementation(tj.Dense, tj.AbstractArray)
def dense_pairing(a: Shaped[DenseArray, "*shape"], b: Shaped[tj.AbstractArray, "*shape"]) -> Scalar:
    return pairing(b, a)


@tj.linalg.pairing.natural_rule(tj.AbstractArray)
@tj.linalg.pairing.natural_rule(tj.Dense, tj.AbstractArray)
def pairing_rule(
    a: Shaped[AnyArray, "*shape"], b: Shaped[AnyArray, "*shape"]
) -> tuple[Scalar, Pullback]:
    return tj.linalg.pairing.primal(a, b), lambda y_bar: (
        tj.linalg.multiply(b, y_bar),
        tj.linalg.multiply(a, y_bar),
    )


# -- quadratic forms -----------------------------------------------------------------------------


@tj.linalg.quadratic_form.implementation(tj.AbstractArray, tj.Dense)
def quadratic_form(a: Shaped[tj.AbstractArray, "n n"], x: Shaped[DenseArray, " n"]) -> Scalar:
    return jnp.sum(x * a.apply(x))


@tj.linalg.quadratic_form.natural_rule(tj.AbstractArray)
def quadratic_form_rule(a: Shaped[tj.AbstractArray, "n n"], x: Vector) -> tuple[Scalar, Pullback]:
    ax = a.apply(x)

    def quadratic_form_pullback(y_bar: Scalar) -> tuple[SquareMatrix, Vector]:
        return tj.Outer(y_bar * x, x), y_bar * (ax + tj.matmul(a.mT, x))

    return jnp.sum(x * ax), quadratic_form_pullback


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Reductions and inner products of matrices with and without structure to use."""
    from tanjax.testing import Case, Samples

    s = Samples(7)
    diagonal = tj.Diagonal(s.normal(2))
    hermitian, low_rank = tj.Hermitian(s.complex(2, 2)), tj.LowRank(s.normal(2, 1), s.normal(3, 1))
    kronecker, lower = tj.Kronecker(s.normal(2, 1), s.normal(1, 2)), tj.Triangular(s.normal(2, 2))
    unit = tj.Triangular(s.normal(2, 2), unit_diagonal=True)
    a: Natural
    b: Natural
    for a in (hermitian, lower, low_rank, kronecker):
        yield Case(tj.linalg.transpose, a)
    for a in (lower, low_rank, hermitian):
        yield Case(tj.linalg.diagonal, a)
    for a in (tj.Symmetric(s.complex(3, 3)), kronecker, tj.Diagonal(s.normal(0))):
        yield Case(tj.trace, a)
    yield Case(tj.trace, unit).declare(zero=("a",))
    for a in (unit, hermitian):
        yield Case(tj.linalg.sum, a)
    yield Case(tj.linalg.sum, low_rank, axis=0)
    yield Case(tj.linalg.sum, kronecker, axis=-1)
    yield Case(tj.linalg.sum, tj.Fill(s.normal(), (2, 3)), axis=(0, 1))
    wide = tj.Symmetric(s.normal(3, 3)), s.normal(3, 3)
    for a, b in (wide, (diagonal, lower), (s.complex(2, 2), hermitian)):
        yield Case(tj.linalg.pairing, a, b)
    for a in (lower, kronecker):
        yield Case(tj.linalg.quadratic_form, a, s.normal(2))
    yield Case(tj.linalg.quadratic_form, tj.Symmetric(s.complex(3, 3)), s.complex(3))
