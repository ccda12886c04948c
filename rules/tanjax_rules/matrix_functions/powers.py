"""Whole powers, on types whose products keep their structure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import SquareMatrix

from ..bands import Band, widths
from ..dtypes import floating
from ..shapes import FullStorage, SquareDiagonal, SquareTriangular
from .elementary import (
    ASKED_ONCE,
    SquareBlocks,
    SquareIdentity,
    SquareScaled,
)

if TYPE_CHECKING:
    from tanjax.testing import Case


@tj.linalg.matrix_power.implementation(tj.Diagonal, differentiate=True)
def power_of_diagonal(a: SquareDiagonal, *, n: int) -> SquareDiagonal:
    a = floating(a) if n < 0 else a
    return tj.Diagonal(lax.integer_pow(a.diag, n))


@tj.linalg.matrix_power.implementation(tj.Identity)
def power_of_identity(a: SquareIdentity, *, n: int) -> SquareIdentity:
    return a


@tj.linalg.matrix_power.implementation(tj.Symmetric, differentiate=True)
@tj.linalg.matrix_power.implementation(tj.Hermitian, differentiate=True)
def power_of_hermitian(a: FullStorage, *, n: int) -> FullStorage:
    return type(a)(jnp.linalg.matrix_power(a.data, n), "mean", a.definite)


@tj.linalg.matrix_power.implementation(tj.Triangular, differentiate=True)
def power_of_triangular(a: SquareTriangular, *, n: int) -> SquareTriangular:
    """Return a negative power by a triangular inverse, which is exactly triangular."""
    a = tj.inv(a) if n < 0 else a
    dense = jnp.linalg.matrix_power(a.to_dense(), abs(n))
    return tj.Triangular(dense, a.lower, a.unit_diagonal)


@tj.linalg.matrix_power.implementation(tj.BlockDiagonal, differentiate=True)
def power_of_blocks(a: SquareBlocks, *, n: int) -> SquareMatrix:
    if not a.has_square_blocks:
        return tj.linalg.matrix_power(
            tj.rules.densified(a, "matrix_power", "its blocks are not square"), n
        )
    return a.each(lambda b: tj.linalg.matrix_power(b, n))


@tj.linalg.matrix_power.implementation(tj.Scaled, differentiate=True)
def power_of_scaled(a: SquareScaled, *, n: int) -> SquareMatrix:
    return tj.linalg.multiply(tj.linalg.matrix_power(a.matrix, n), lax.integer_pow(a.factor, n))


@tj.linalg.matrix_power.implementation(tj.Tridiagonal, differentiate=True)
@tj.linalg.matrix_power.implementation(tj.SymTridiagonal, differentiate=True)
@tj.linalg.matrix_power.implementation(tj.Banded, differentiate=True)
def power_of_band(a: Band, *, n: int) -> SquareMatrix:
    """Return a band of `n` times the width, by repeated squares; dense if it fills the matrix."""
    if n == 0:
        return tj.Identity(a.shape[0], a.dtype)
    if n < 0 or n * sum(widths(a)) >= a.shape[0]:
        return jnp.linalg.matrix_power(tj.inv(a) if n < 0 else a.to_dense(), abs(n))
    square, power = a, a if n % 2 else None
    while n := n // 2:
        square = square @ square
        if n % 2:
            power = square if power is None else power @ square
    return power


@tj.linalg.matrix_power.implementation(tj.LowRank, differentiate=True)
def power_of_low_rank(a: Shaped[tj.LowRank, "n n"], *, n: int) -> SquareMatrix:
    r"""$(U V^\top)^n = U (V^\top U)^{n-1} V^\top$."""
    if n == 0:
        return tj.Identity(a.shape[0], a.dtype)
    if n < 0:
        return tj.linalg.matrix_power(tj.rules.densified(a, "matrix_power", "it has no inverse"), n)
    return tj.LowRank(a.u @ jnp.linalg.matrix_power(a.v.T @ a.u, n - 1), a.v)


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Every type, with positive, zero and negative powers among them."""
    from tanjax.testing import Case, Samples

    s = Samples(22)
    symmetric = tj.Symmetric(s.definite(2))
    for a, n in (
        (tj.Diagonal(s.complex(2)), 3),
        (tj.Identity(2), 2),
        (symmetric, 3),
        (tj.Triangular(s.regular(3)), -2),
        (tj.Triangular(s.normal(3, 3), False, unit_diagonal=True), 2),
        (tj.BlockDiagonal(symmetric, s.regular(2)), 2),
        (tj.Scaled(symmetric, s.positive()), 3),
        (tj.SymTridiagonal(s.normal(7), s.normal(6)), 3),
        (tj.Banded(s.normal(2, 3), 1, 0), 2),
        (tj.Tridiagonal(s.normal(2), 4 + s.normal(3), s.normal(2)), -2),
        (tj.LowRank(s.normal(3, 2), s.normal(3, 2)), 3),
    ):
        yield Case(tj.linalg.matrix_power, a, n=n).declare(skip=ASKED_ONCE)
