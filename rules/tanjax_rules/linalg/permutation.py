"""Permutation matrices: products move rows or columns, and have no derivative of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import Columns, Scalar

if TYPE_CHECKING:
    from tanjax.testing import Case

SquarePermutation: TypeAlias = Shaped[tj.Permutation, "n n"]


@tj.matmul.implementation(tj.Permutation, tj.Permutation, differentiate=True)
def permutation_times_permutation(a: SquarePermutation, b: SquarePermutation) -> SquarePermutation:
    return a.replace(indices=b.indices[a.indices], kind=jnp.result_type(a.dtype, b.dtype))


@tj.solve.implementation(tj.Permutation, tj.Dense)
@tj.solve.implementation(tj.Permutation, tj.AbstractArray)
def solve_permutation(a: SquarePermutation, b: Columns) -> Columns:
    return tj.matmul.primal(a.transposed(), b)


@tj.inv.implementation(tj.Permutation, differentiate=True)
def inv_permutation(a: SquarePermutation) -> SquarePermutation:
    return a.transposed()


@tj.det.implementation(tj.Permutation, differentiate=True)
def det_permutation(a: SquarePermutation) -> Scalar:
    return a.sign()


@tj.linalg.slogdet.implementation(tj.Permutation, differentiate=True)
def slogdet_permutation(a: SquarePermutation) -> tj.linalg.SlogdetResult:
    return tj.linalg.SlogdetResult(a.sign(), logdet_permutation(a))


@tj.logdet.implementation(tj.Permutation, differentiate=True)
def logdet_permutation(a: SquarePermutation) -> Scalar:
    return jnp.zeros((), jnp.finfo(a.dtype).dtype)


# -- cases -----------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Products from both sides, with matrices that store everything, systems, determinants."""
    from tanjax.testing import Case, Samples

    s = Samples(23)
    p = tj.Permutation([2, 0, 3, 1])
    q = tj.Permutation([1, 0, 2, 3])
    lower, symmetric = tj.Triangular(s.normal(4, 4)), tj.Symmetric(s.normal(4, 4))
    for a, b in (
        (p, s.normal(4, 2)),
        (s.complex(4), p),
        (p, lower),
        (symmetric, p),
        (p, tj.LowRank(s.normal(4, 1), s.normal(3, 1))),
        (p, q),
    ):
        yield Case(tj.matmul, a, b)
    yield Case(tj.solve, p, s.normal(4))
    yield Case(tj.solve, p, symmetric)
    for operation in (tj.inv, tj.det, tj.linalg.slogdet, tj.logdet):
        yield Case(operation, p)
