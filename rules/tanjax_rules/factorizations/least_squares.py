"""Pseudo-inverses, least squares, ranks and condition numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray, DenseArray, Factor, Matrix, Natural, Order, Pullback

from ..dtypes import floating
from .gauge import adjoint, composed, whole
from .svd import thin_core

if TYPE_CHECKING:
    from tanjax.testing import Case


# -- pinv ----------------------------------------------------------------------------------------


@tj.linalg.pinv.implementation(tj.Symmetric, differentiate=True)
def pinv_symmetric(a: Shaped[tj.Symmetric, "m n"], rtol: Factor | None = None) -> Matrix:
    return tj.Symmetric(tj.linalg.pinv(a.data, rtol), "mean")


@tj.linalg.pinv.implementation(tj.Hermitian, differentiate=True)
def pinv_hermitian(a: Shaped[tj.Hermitian, "m n"], rtol: Factor | None = None) -> Matrix:
    return tj.Hermitian(tj.linalg.pinv(a.data, rtol), "mean")


@tj.linalg.pinv.implementation(tj.Triangular, differentiate=True)
def pinv_triangular(a: Shaped[tj.Triangular, "m n"], rtol: Factor | None = None) -> Matrix:
    """Return a dense pseudo-inverse: that of a singular triangular matrix is not triangular."""
    return tj.linalg.pinv(whole(a), rtol)


@tj.linalg.pinv.implementation(tj.Diagonal, differentiate=True)
def pinv_diagonal(a: Shaped[tj.Diagonal, "m n"], rtol: Factor | None = None) -> Matrix:
    a = floating(a)
    size = jnp.abs(a.diag)
    limit = 10 * max(a.shape) * float(jnp.finfo(size.dtype).eps) if rtol is None else rtol
    keep = size > limit * jnp.max(size, initial=0)
    inverse = 1 / jnp.where(keep, a.diag, jnp.ones_like(a.diag))
    return tj.Diagonal(jnp.where(keep, inverse, jnp.zeros_like(inverse)))


@tj.linalg.pinv.implementation(tj.Identity, differentiate=True)
def pinv_identity(a: Shaped[tj.Identity, "m n"], rtol: Factor | None = None) -> Matrix:
    return a


@tj.linalg.pinv.implementation(tj.Scaled, differentiate=True)
def pinv_scaled(a: Shaped[tj.Scaled, "m n"], rtol: Factor | None = None) -> Matrix:
    zero = a.factor == 0
    inverse = 1 / jnp.where(zero, jnp.ones_like(a.factor), a.factor)
    return tj.linalg.multiply(
        tj.linalg.pinv(a.matrix, rtol), jnp.where(zero, jnp.zeros_like(inverse), inverse)
    )


@tj.linalg.pinv.implementation(tj.Kronecker, differentiate=True)
def pinv_kronecker(
    a: Shaped[tj.Kronecker, "m n"], rtol: Factor | None = None
) -> Shaped[tj.Kronecker, "n m"]:
    return tj.Kronecker(*(tj.linalg.pinv(f, rtol) for f in a.factors))


@tj.linalg.pinv.implementation(tj.BlockDiagonal, differentiate=True)
def pinv_blocks(
    a: Shaped[tj.BlockDiagonal, "m n"], rtol: Factor | None = None
) -> Shaped[tj.BlockDiagonal, "n m"]:
    return a.each(lambda b: tj.linalg.pinv(b, rtol))


@tj.linalg.pinv.implementation(tj.LowRank, differentiate=True)
def pinv_low_rank(
    a: Shaped[tj.LowRank, "m n"], rtol: Factor | None = None
) -> Shaped[AnyArray, "n m"]:
    """Return `conj(p) @ pinv(core) @ q^H` for `q @ core @ p.T`, with unitary columns."""
    q, p, core = thin_core(a)
    return tj.LowRank(jnp.conj(p) @ tj.linalg.pinv(core, rtol), jnp.conj(q))


# -- lstsq ---------------------------------------------------------------------------------------


@tj.linalg.lstsq.implementation(tj.AbstractArray, tj.Dense)
def lstsq(
    a: Shaped[tj.AbstractArray, "... m n"], b: Natural, rcond: Factor | None = None
) -> Natural:
    return tj.linalg.pinv(a, rcond) @ b


@tj.linalg.lstsq.natural_rule(tj.Dense, tj.Dense, convention="chainrules")
@tj.linalg.lstsq.natural_rule(tj.AbstractArray, tj.Dense, convention="chainrules")
def lstsq_rule(
    a: Shaped[DenseArray | tj.AbstractArray, "... m n"], b: Natural, rcond: Factor | None = None
) -> tuple[Natural, Pullback]:
    r"""The rule, with $w = A^{+H}\bar x$, $r = b - Ax$: three thin products, and $\bar b = w$.

    $\bar A = -w x^H + r\,(A^+ w)^H + (A^{+H}x)\,((I - A^+ A)\bar x)^H$.
    """
    a = a if tj.rules.is_structured(a) else jnp.asarray(a)
    vector, shape = jnp.ndim(b) == 1, jnp.shape(b)
    b = jnp.asarray(b)[:, None] if vector else jnp.asarray(b)
    inverse = tj.linalg.pinv(a, rcond)
    x = inverse @ b
    adjoint_inverse = inverse.conj().mT if tj.rules.is_structured(inverse) else adjoint(inverse)

    def lstsq_pullback(x_bar: Natural) -> tuple[Natural, Natural]:
        x_bar = x_bar[..., None] if vector else x_bar
        w = adjoint_inverse @ x_bar
        thin = (
            (-w, x),
            (b - a @ x, inverse @ w),
            (
                adjoint_inverse @ x,
                x_bar - inverse @ (a @ x_bar),
            ),
        )
        left, right = (_side_by_side([pair[i] for pair in thin]) for i in (0, 1))
        b_bar = _summed_to(w, b.shape).reshape(shape)
        if left.ndim == 2:
            return tj.Outer(left, jnp.conj(right)), b_bar
        return _summed_to(left @ adjoint(right), a.shape), b_bar

    return (x[..., 0] if vector else x), lstsq_pullback


def _side_by_side(parts: Sequence[Natural]) -> Natural:
    """Concatenate columns of batches that broadcast."""
    batch = jnp.broadcast_shapes(*(p.shape[:-2] for p in parts))
    return jnp.concatenate([jnp.broadcast_to(p, (*batch, *p.shape[-2:])) for p in parts], axis=-1)


def _summed_to(x: Natural, shape: tuple[int, ...]) -> Natural:
    """Sum over the leading axes along which a right-hand side was broadcast."""
    x = jnp.sum(x, axis=tuple(range(x.ndim - len(shape))))
    kept = tuple(i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1)
    return jnp.sum(x, axis=kept, keepdims=True)


# -- ranks and condition numbers -------------------------------------------------------------------


@tj.linalg.matrix_rank.implementation(tj.AbstractArray, differentiate=True)
def matrix_rank(a: Shaped[tj.AbstractArray, "... m n"], rtol: Factor | None = None) -> Natural:
    s = floating(tj.linalg.svd(a, False, False))
    limit = max(a.shape) * float(jnp.finfo(s.dtype).eps) if rtol is None else rtol
    return jnp.sum(s > limit * jnp.max(s, initial=0))


@tj.linalg.condition_number.implementation(tj.AbstractArray, differentiate=True)
def condition_number(a: Shaped[tj.AbstractArray, "... m n"], p: Order = None) -> Natural:
    if p not in (None, 2, -2):
        return tj.norm(a, p) * tj.norm(tj.inv(a), p)
    largest, least = tj.norm(a, 2), tj.norm(a, -2)
    return least / largest if p == -2 else largest / least


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Every type with a pseudo-inverse of its own; tall, wide, complex and batched systems."""
    from tanjax.testing import Case, Samples

    s = Samples(15)
    a: Any
    symmetric, diagonal = tj.Symmetric(s.definite(2)), tj.Diagonal(s.positive(2))
    hermitian = tj.Hermitian(s.definite(2, complex=True))
    low_rank = tj.LowRank(s.normal(3, 2), s.normal(2, 2))
    kronecker = tj.Kronecker(s.normal(2, 1), symmetric)
    blocks = tj.BlockDiagonal(s.normal(2, 1), diagonal)
    scaled = tj.Scaled(symmetric, s.positive())
    triangular = tj.Triangular(s.regular(2))
    for a in (s.normal(3, 2), symmetric, hermitian, triangular, diagonal, tj.Identity(2), scaled):
        yield composed(Case(tj.linalg.pinv, a))
    for a in (kronecker, blocks, tj.LowRank(s.complex(2, 2), s.complex(2, 2))):
        yield composed(Case(tj.linalg.pinv, a))
    for a in (s.complex(3, 2), s.normal(2, 3), s.normal(2, 3, 2)):
        yield composed(Case(tj.linalg.pinv, a))
    yield Case(tj.linalg.lstsq, s.normal(3, 2), s.normal(3))
    yield composed(Case(tj.linalg.lstsq, s.normal(2, 3), s.normal(2, 1)))
    yield composed(Case(tj.linalg.lstsq, s.normal(2, 3, 2), s.normal(3, 1)))
    yield composed(Case(tj.linalg.lstsq, s.normal(2, 3, 2), s.normal(3)))
    yield composed(Case(tj.linalg.lstsq, s.normal(3, 2), s.normal(2, 3, 1)))
    yield composed(Case(tj.linalg.lstsq, s.normal(2, 1, 3, 2), s.normal(2, 3, 1)))
    yield composed(Case(tj.linalg.lstsq, s.complex(3, 2), s.complex(3)))
    yield composed(Case(tj.linalg.lstsq, low_rank, s.normal(3)))
    yield composed(Case(tj.linalg.matrix_rank, kronecker)).declare(zero=("a",))
    yield composed(Case(tj.linalg.matrix_rank, s.normal(2, 2), rtol=0.1)).declare(zero=("a",))
    yield composed(Case(tj.linalg.pinv, s.normal(2, 2), rtol=1e-9))
    yield composed(Case(tj.linalg.lstsq, s.normal(3, 2), s.normal(3), rcond=1e-9))
    for a in (diagonal, symmetric):
        yield composed(Case(tj.linalg.condition_number, a))
    yield composed(Case(tj.linalg.condition_number, triangular, p=1))
    yield composed(Case(tj.linalg.condition_number, s.regular(3), p=-2))
    # Dependent or zero columns: a step of finite differences changes the rank.
    u, v = s.complex(3, 1), s.normal(4, 2).at[:, 1].set(0.0)
    for a in (tj.LowRank(u[:, [0, 0]], s.complex(2, 2)), tj.LowRank(s.normal(2, 2), v)):
        for case in (Case(tj.linalg.pinv, a), Case(tj.linalg.lstsq, a, s.normal(a.shape[0]))):
            yield composed(case.declare(skip=("finite differences",)))
    yield composed(Case(tj.linalg.pinv, tj.LowRank(s.normal(3, 4), s.normal(2, 4))))
