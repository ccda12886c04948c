"""Kronecker products, as structured results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray

from ..shapes import SquareDiagonal

if TYPE_CHECKING:
    from tanjax.testing import Case


@tj.linalg.kron.implementation(tj.AbstractArray, tj.AbstractArray, differentiate=True)
@tj.linalg.kron.implementation(tj.AbstractArray, tj.Dense, differentiate=True)
@tj.linalg.kron.implementation(tj.Dense, tj.AbstractArray, differentiate=True)
def kron(a: Shaped[AnyArray, " ..."], b: Shaped[AnyArray, " ..."]) -> Shaped[tj.Kronecker, "_ _"]:
    if a.ndim != 2 or b.ndim != 2:
        raise tj.ShapeError(f"kron: needs two matrices, got {a.shape} and {b.shape}.")
    left = a.factors if isinstance(a, tj.Kronecker) else (a,)
    right = b.factors if isinstance(b, tj.Kronecker) else (b,)
    return tj.Kronecker(*left, *right)


@tj.linalg.kron.implementation(tj.Diagonal, tj.Diagonal, differentiate=True)
def kron_diagonal(
    a: Shaped[tj.Diagonal, "m m"], b: SquareDiagonal
) -> Shaped[tj.Diagonal, "m*n m*n"]:
    return tj.Diagonal(jnp.outer(a.diag, b.diag).reshape(-1))


@tj.linalg.kron.implementation(tj.Identity, tj.Identity, differentiate=True)
def kron_identity(
    a: Shaped[tj.Identity, "m m"], b: Shaped[tj.Identity, "n n"]
) -> Shaped[tj.Identity, "m*n m*n"]:
    return tj.Identity(a.n * b.n, a.kind)


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Structured with structured and dense, both orders."""
    from tanjax.testing import Case, Samples

    s = Samples(6)
    diagonal, symmetric = tj.Diagonal(s.normal(2)), tj.Symmetric(s.normal(2, 2))
    yield Case(tj.linalg.kron, diagonal, symmetric)
    yield Case(tj.linalg.kron, symmetric, s.normal(1, 2))
    yield Case(tj.linalg.kron, s.normal(2, 1), tj.Kronecker(s.normal(1, 2), s.normal(2, 1)))
    yield Case(tj.linalg.kron, diagonal, tj.Diagonal(s.normal(3)))
    yield Case(tj.linalg.kron, tj.Identity(2), tj.Identity(2))
