"""The closed algebra of thin factors: `LowRank`, `LowRankUpdate`, and `Fill`, which has rank one.

A product with a matrix of low rank has low rank, and so has a sum of two. A `Diagonal` or the
identity plus low rank is an update. An update plus a matrix that its base can absorb is an update,
too. tanjax turns no other sum into an update: Woodbury divides by the base, which may be singular
although the sum is regular. If your base is regular, write `tj.LowRankUpdate(base, u, None, v)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, SquareMatrix

from ..shapes import SquareDiagonal, SquareUpdate
from .arithmetic import either_order
from .matmul import any_times_identity, any_times_zero, structured_times_structured

if TYPE_CHECKING:
    from tanjax.testing import Case

Factors: TypeAlias = tuple[Shaped[Array, "m _"], Shaped[Array, " _"] | None, Shaped[Array, "n _"]]


Thin: TypeAlias = Shaped[tj.LowRank | tj.Fill, "m n"]


def as_low_rank(a: Thin) -> Shaped[tj.LowRank, "m n"]:
    """Return a `LowRank` or `Fill` as a `LowRank`."""
    if isinstance(a, tj.LowRank):
        return a
    rows, columns = a.shape
    return tj.LowRank(jnp.full((rows, 1), a.value), jnp.ones((columns, 1), a.dtype))


def joined(*updates: Factors) -> Factors:
    """Return the factors of a sum: columns beside each other."""
    u, d, v = zip(*updates, strict=True)
    some = any(x is not None for x in d)
    ones = [jnp.ones(x.shape[1], x.dtype) if y is None else y for x, y in zip(u, d, strict=True)]
    return jnp.concatenate(u, 1), jnp.concatenate(ones) if some else None, jnp.concatenate(v, 1)


def factors_of(a: tj.LowRankUpdate) -> Factors:
    """Return the thin part of an update, with its right factor."""
    return a.u, a.d, a.right


# -- sums ----------------------------------------------------------------------------------------


@either_order(tj.LowRank, (tj.LowRank, tj.Fill))
def low_rank_add_thin(a: Shaped[tj.LowRank, "m n"], b: Thin) -> Shaped[tj.LowRank, "m n"]:
    b = as_low_rank(b)
    return tj.LowRank(jnp.concatenate([a.u, b.u], 1), jnp.concatenate([a.v, b.v], 1))


@either_order(tj.Identity, tj.LowRank)
def identity_add_low_rank(
    a: Shaped[tj.Identity, "n n"], b: Shaped[tj.LowRank, "n n"]
) -> SquareUpdate:
    return tj.LowRankUpdate(a, b.u, None, b.v)


@either_order((tj.Diagonal, tj.Identity), tj.Fill)
def diagonal_add_fill(
    a: Shaped[tj.Diagonal | tj.Identity, "n n"], b: Shaped[tj.Fill, "n n"]
) -> SquareUpdate:
    ones = jnp.ones((a.shape[0], 1), jnp.result_type(a.dtype, b.dtype))
    return tj.LowRankUpdate(a, ones, b.value[None])


@tj.linalg.add.implementation(tj.LowRankUpdate, tj.LowRankUpdate, differentiate=True)
def update_add_update(
    a: Shaped[tj.LowRankUpdate, "m n"], b: Shaped[tj.LowRankUpdate, "m n"]
) -> Shaped[tj.LowRankUpdate, "m n"]:
    u, d, v = joined(factors_of(a), factors_of(b))
    right = None if a.v is None and b.v is None else v
    return tj.LowRankUpdate(tj.linalg.add(a.base, b.base), u, d, right)


@either_order(tj.LowRankUpdate, (tj.LowRank, tj.Fill))
def update_add_thin(a: Shaped[tj.LowRankUpdate, "m n"], b: Thin) -> Shaped[tj.LowRankUpdate, "m n"]:
    b = as_low_rank(b)
    return tj.LowRankUpdate(a.base, *joined(factors_of(a), (b.u, None, b.v)))


@either_order(tj.LowRankUpdate, (tj.Identity, tj.Diagonal))
def update_add_diagonal(
    a: SquareUpdate, b: Shaped[tj.Diagonal | tj.Identity, "n n"]
) -> Shaped[tj.AbstractArray, "n n"]:
    """Add to the base if it can absorb `b`; solving with a `Sum` as base would densify."""
    base = tj.linalg.add(a.base, b)
    return tj.tangents.Sum(a, b) if isinstance(base, tj.tangents.Sum) else a.replace(base=base)


# -- products ------------------------------------------------------------------------------------


@tj.matmul.implementation(tj.LowRank, tj.AbstractArray, differentiate=True)
@tj.matmul.implementation(tj.LowRank, tj.LowRank, differentiate=True)
@tj.matmul.implementation(tj.Fill, tj.AbstractArray, differentiate=True)
def thin_times_any(
    a: Shaped[tj.LowRank | tj.Fill, "*m k"], b: Shaped[tj.AbstractArray, " k *n"]
) -> Shaped[AnyArray, " ..."]:
    if len(a.shape) != 2 or len(b.shape) != 2:
        return tj.matmul(tj.destructure(a), b)
    a = as_low_rank(a)
    return tj.LowRank(a.u, tj.matmul(b.mT, a.v))


@tj.matmul.implementation(tj.AbstractArray, tj.LowRank, differentiate=True)
@tj.matmul.implementation(tj.AbstractArray, tj.Fill, differentiate=True)
def any_times_thin(
    a: Shaped[tj.AbstractArray, "*m k"], b: Shaped[tj.LowRank | tj.Fill, " k *n"]
) -> Shaped[AnyArray, " ..."]:
    if len(a.shape) != 2 or len(b.shape) != 2:
        return tj.matmul(a, tj.destructure(b))
    b = as_low_rank(b)
    return tj.LowRank(tj.matmul(a, b.u), b.v)


@tj.matmul.implementation(tj.Fill, tj.Fill, differentiate=True)
def fill_times_fill(
    a: Shaped[tj.Fill, "*m k"], b: Shaped[tj.Fill, " k *n"]
) -> Shaped[AnyArray, " ..."]:
    value = a.value * b.value * jnp.asarray(a.shape[-1], jnp.result_type(a.dtype, b.dtype))
    return tj.Fill(value, (*a.shape[:-1], *b.shape[1:]))


@tj.matmul.implementation(tj.Diagonal, tj.LowRankUpdate, differentiate=True)
def diagonal_times_update(
    a: SquareDiagonal, b: Shaped[tj.LowRankUpdate, "n k"]
) -> Shaped[tj.LowRankUpdate, "n k"]:
    return tj.LowRankUpdate(tj.matmul(a, b.base), tj.matmul(a, b.u), b.d, b.right)


@tj.matmul.implementation(tj.LowRankUpdate, tj.Diagonal, differentiate=True)
def update_times_diagonal(
    a: Shaped[tj.LowRankUpdate, "m n"], b: SquareDiagonal
) -> Shaped[tj.LowRankUpdate, "m n"]:
    return tj.LowRankUpdate(tj.matmul(a.base, b), a.u, a.d, tj.matmul(b, a.right))


@tj.matmul.implementation(tj.LowRankUpdate, tj.LowRankUpdate, differentiate=True)
def update_times_update(
    a: Shaped[tj.LowRankUpdate, "m k"], b: Shaped[tj.LowRankUpdate, "k n"]
) -> Shaped[AnyArray, "m n"]:
    r"""$(B + U D V^\top)(B' + U' D' V'^\top) = B B' + (A U') D' V'^\top + U D (B'^\top V)^\top$."""
    sparse = tj.Diagonal | tj.Identity
    if not (isinstance(a.base, sparse) and isinstance(b.base, sparse)):
        return structured_times_structured(a, b)
    left = tj.matmul(a, b.u), b.d, b.right
    right = a.u, a.d, tj.matmul(b.base.mT, a.right)
    return tj.LowRankUpdate(tj.matmul(a.base, b.base), *joined(left, right))


# -- systems -------------------------------------------------------------------------------------


def solve_thin(
    a: SquareMatrix, b: Shaped[tj.LowRank | tj.Fill, " n *k"]
) -> Shaped[AnyArray, " n *k"]:
    if len(b.shape) != 2:
        return tj.solve(a, tj.destructure(b))
    b = as_low_rank(b)
    return tj.LowRank(tj.solve(a, b.u), b.v)


@tj.solve.implementation(tj.Diagonal, tj.LowRankUpdate, differentiate=True)
def solve_diagonal_update(a: SquareDiagonal, b: SquareUpdate) -> SquareUpdate:
    return tj.LowRankUpdate(tj.solve(a, b.base), tj.solve(a, b.u), b.d, b.right)


def _register() -> None:
    """Register pairs that implementations for any right operand would hide."""
    smooth: Any = {"differentiate": True}
    for thin in (tj.LowRank, tj.Fill):
        for full in (tj.Symmetric, tj.Hermitian, tj.Triangular):
            tj.matmul.implementation(full, thin, **smooth)(any_times_thin)
        for left in (tj.AbstractArray, tj.Symmetric, tj.Hermitian, tj.Triangular):
            tj.solve.implementation(left, thin, **smooth)(solve_thin)
    tj.matmul.implementation(tj.Fill, tj.Identity)(any_times_identity)
    tj.matmul.implementation(tj.Fill, tj.Zero)(any_times_zero)


_register()


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """One for every formula: updates with and without weights, symmetric and not."""
    from tanjax.testing import Case, Samples

    s = Samples(32)
    diagonal, identity = tj.Diagonal(s.positive(2)), tj.Identity(2)
    low, fill = tj.LowRank(s.normal(2, 1), s.normal(2, 1)), tj.Fill(s.positive(), (2, 2))
    update = tj.LowRankUpdate(diagonal, s.normal(2, 1), s.normal(1))
    other = tj.LowRankUpdate(identity, s.normal(2, 1), None, s.normal(2, 1))
    for a, b in (
        (fill, low),
        (identity, low),
        (diagonal, fill),
        (update, other),
        (low, update),
        (other, diagonal),
    ):
        yield Case(tj.linalg.add, a, b)
    for a, b in (
        (diagonal, fill),
        (fill, tj.Fill(s.normal(), (2, 3))),
        (diagonal, update),
        (other, diagonal),
        (update, other),
        (tj.LowRank(s.normal(2, 2), s.normal(3, 2)), tj.LowRank(s.normal(3, 1), s.normal(2, 1))),
    ):
        yield Case(tj.matmul, a, b)
    for b in (low, update):
        yield Case(tj.solve, diagonal, b)
