"""Multiples of a matrix, and of the identity: the number moves outside, or to the diagonal.

`c * tj.Identity(n)` stays a `Scaled(Identity)`: its type shows that all entries of its diagonal are
equal; a `Diagonal` does not show it. So `Kronecker + c I` keeps its eigenvectors
(`factorizations/shifted.py`), and `Toeplitz + c I` stays Toeplitz. Other types add it as a
`Diagonal`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, Columns, Natural, Scalar, SquareMatrix

from .arithmetic import add_structured, add_zero

if TYPE_CHECKING:
    from tanjax.testing import Case


def multiple_of_identity(a: Natural) -> Scalar | None:
    """Return `c` if the type is that of `c I`, otherwise `None`."""
    if isinstance(a, tj.Identity):
        return jnp.ones((), a.dtype)
    if isinstance(a, tj.Scaled) and (inner := multiple_of_identity(a.matrix)) is not None:
        return a.factor * inner
    return None


# -- sums ----------------------------------------------------------------------------------------


@tj.linalg.add.implementation(tj.AbstractArray, tj.Scaled, differentiate=True)
def add_scaled(
    a: Shaped[tj.AbstractArray, "m n"], b: Shaped[tj.Scaled, "m n"]
) -> Shaped[tj.AbstractArray, "m n"]:
    """Add a multiple of the identity as a `Diagonal`, if the type of `a` can absorb a diagonal."""
    number = multiple_of_identity(b)
    if number is None:
        return add_structured(a, b)
    if (other := multiple_of_identity(a)) is not None:
        return tj.Scaled(tj.Identity(a.shape[0], a.dtype), other + number)
    total = tj.linalg.add(a, tj.Diagonal(jnp.full(a.shape[0], number)))
    return tj.tangents.Sum(a, b) if isinstance(total, tj.tangents.Sum) else total


@tj.linalg.add.implementation(tj.Scaled, tj.AbstractArray, differentiate=True)
def scaled_add(
    a: Shaped[tj.Scaled, "m n"], b: Shaped[tj.AbstractArray, "m n"]
) -> Shaped[tj.AbstractArray, "m n"]:
    return add_scaled(b, a)


@tj.linalg.add.implementation(tj.Identity, tj.Identity, differentiate=True)
def identity_add_identity(
    a: Shaped[tj.Identity, "n n"], b: Shaped[tj.Identity, "n n"]
) -> Shaped[tj.Scaled, "n n"]:
    dtype = jnp.result_type(a.dtype, b.dtype)
    return tj.Scaled(tj.Identity(a.n, dtype), jnp.full((), 2, dtype))


tj.linalg.add.implementation(tj.Scaled, tj.Zero, differentiate=True)(add_zero)


# -- products and systems ------------------------------------------------------------------------


@tj.matmul.implementation(tj.Scaled, tj.AbstractArray, differentiate=True)
def scaled_times_any(
    a: Shaped[tj.Scaled, "m k"], b: Shaped[tj.AbstractArray, " k *n"]
) -> Shaped[AnyArray, " m *n"]:
    return tj.linalg.multiply(tj.matmul(a.matrix, b), a.factor)


@tj.matmul.implementation(tj.AbstractArray, tj.Scaled, differentiate=True)
def any_times_scaled(
    a: Shaped[tj.AbstractArray, "*m k"], b: Shaped[tj.Scaled, "k n"]
) -> Shaped[AnyArray, "*m n"]:
    return tj.linalg.multiply(tj.matmul(a, b.matrix), b.factor)


@tj.solve.implementation(tj.Scaled, tj.AbstractArray, differentiate=True)
def solve_scaled_any(a: Shaped[tj.Scaled, "n n"], b: Columns) -> Columns:
    return tj.linalg.divide(tj.solve(a.matrix, b), a.factor)


@tj.solve.implementation(tj.AbstractArray, tj.Scaled, differentiate=True)
def solve_any_scaled(a: SquareMatrix, b: Shaped[tj.Scaled, "n k"]) -> Shaped[AnyArray, "n k"]:
    return tj.linalg.multiply(tj.solve(a, b.matrix), b.factor)


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Multiples of matrices and of the identity, on both sides."""
    from tanjax.testing import Case, Samples

    s = Samples(31)
    diagonal, lower = tj.Diagonal(s.positive(2)), tj.Triangular(s.normal(2, 2))
    scaled = tj.Scaled(tj.Triangular(s.definite(2)), s.positive())
    shift = tj.Scaled(tj.Identity(2), s.normal())
    yield Case(tj.linalg.add, shift, diagonal)
    yield Case(tj.linalg.add, tj.LowRank(s.normal(2, 1), s.normal(2, 1)), shift)
    yield Case(tj.linalg.add, shift, tj.Scaled(tj.Identity(2), s.normal()))
    yield Case(tj.linalg.add, tj.Identity(2), tj.Identity(2))
    yield Case(tj.matmul, scaled, diagonal)
    yield Case(tj.matmul, lower, scaled)
    yield Case(tj.solve, scaled, diagonal)
    yield Case(tj.solve, diagonal, scaled)
