"""Singular values and vectors: rules, and the types that keep their structure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
from jaxtyping import PyTree, Shaped

import tanjax as tj
from tanjax.typing import AnyArray, DenseArray, Natural, Pullback

from ..shapes import all_square
from ..stacked import of_each_block
from . import gauge
from .eigh import outer
from .gauge import adjoint, whole
from .singular import Factors

if TYPE_CHECKING:
    from tanjax.testing import Case

Decomposed: TypeAlias = DenseArray | tj.Symmetric | tj.Hermitian | tj.Triangular | tj.LowRank


# -- rules ---------------------------------------------------------------------------------------


@tj.linalg.svd.natural_rule(tj.Dense, convention="chainrules")
@tj.linalg.svd.natural_rule(tj.Symmetric, convention="chainrules")
@tj.linalg.svd.natural_rule(tj.Hermitian, convention="chainrules")
@tj.linalg.svd.natural_rule(tj.Triangular, convention="chainrules")
@tj.linalg.svd.natural_rule(tj.LowRank, convention="chainrules")
def svd_rule(
    a: Shaped[Decomposed, "... m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tuple[tj.linalg.SVDResult | Natural, Pullback]:
    a = _formed(a, full_matrices and compute_uv)
    if not compute_uv:
        u, s, vh = tj.linalg.svd(a, False)
        scaled = lambda s_bar: u * s_bar[..., None, :].astype(u.dtype)
        if tj.rules.is_structured(a):
            return s, lambda s_bar: tj.Outer(scaled(s_bar), vh.T)
        return s, lambda s_bar: scaled(s_bar) @ vh
    f = Factors(a, full_matrices, invariant)

    def svd_pullback(bar: tj.linalg.SVDResult) -> Natural:
        l_bar, r_bar = f.tall(bar.U, adjoint(bar.Vh))
        thin_bar = l_bar[..., : f.k]
        towards = adjoint(f.l1) @ thin_bar, adjoint(f.r) @ r_bar
        outside = f.outer_cotangent(l_bar)
        if invariant:
            return f.as_stored(f.l1 @ f.of_distinct(towards, bar.S) + outside, r_bar)
        scale = gauge.columns(thin_bar) + gauge.columns(r_bar)
        equal = lambda: f.of_equal(towards, bar.S, scale)
        distinct = lambda: f.of_distinct(towards, bar.S)
        both = lambda: f.l1 @ gauge.if_any(f.special, equal, distinct) + outside
        unused = gauge.unused(l_bar) & gauge.unused(r_bar)
        alone = lambda: f.of_values_alone(bar.S)
        return f.as_stored(gauge.where_unused(unused, alone, both), r_bar)

    return f.result, svd_pullback


@tj.linalg.svd.natural_pushforward(tj.Dense)
@tj.linalg.svd.natural_pushforward(tj.Symmetric)
@tj.linalg.svd.natural_pushforward(tj.Hermitian)
@tj.linalg.svd.natural_pushforward(tj.Triangular)
@tj.linalg.svd.natural_pushforward(tj.LowRank)
def svd_push(
    a: Shaped[Decomposed, "... m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tuple[tj.linalg.SVDResult | Natural, Pullback]:
    a = _formed(a, full_matrices and compute_uv)
    f = Factors(a, full_matrices and compute_uv, invariant)

    def svd_pushforward(a_dot: Natural) -> tj.linalg.SVDResult | Natural:
        a_dot = a_dot if tj.rules.is_structured(a) else whole(a_dot)
        across = a_dot.conj().mT if tj.rules.is_structured(a_dot) else adjoint(a_dot)
        forth, back = f.tall(a_dot, across)
        moved = forth @ f.r
        inner = adjoint(f.l1) @ moved
        s_dot = jnp.real(jnp.diagonal(inner, axis1=-2, axis2=-1))
        if not compute_uv:
            return s_dot
        l_dot, r_dot = f.tangents(moved, inner, lambda x: back @ x)
        u_dot, v_dot = f.tall(l_dot, r_dot)
        return tj.linalg.SVDResult(u_dot, s_dot, adjoint(v_dot))

    return (f.result if compute_uv else f.s), svd_pushforward


def _formed(a: Natural, is_full: bool) -> Natural:
    """Return all entries; a low-rank matrix stays unless full factors are asked for."""
    if not isinstance(a, tj.LowRank):
        return whole(a)
    return tj.rules.densified(a, "svd", "pass `full_matrices=False`") if is_full else a


# -- svd -----------------------------------------------------------------------------------------


@tj.linalg.svd.implementation(tj.Symmetric)
@tj.linalg.svd.implementation(tj.Hermitian)
@tj.linalg.svd.implementation(tj.Triangular)
def svd(
    a: Shaped[tj.Symmetric | tj.Hermitian | tj.Triangular, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.linalg.SVDResult | Natural:
    return tj.linalg.svd.primal(whole(a), full_matrices, compute_uv)


@tj.linalg.svd.implementation(tj.Diagonal, differentiate=True)
def svd_diagonal(
    a: Shaped[tj.Diagonal, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.linalg.SVDResult | Natural:
    s = jnp.abs(a.diag)
    if not compute_uv:
        return s
    return tj.linalg.SVDResult(tj.Diagonal(_phase(a.diag)), s, tj.Identity(a.shape[0], a.dtype))


@tj.linalg.svd.implementation(tj.Identity, differentiate=True)
def svd_identity(
    a: Shaped[tj.Identity, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.linalg.SVDResult | Natural:
    s = jnp.ones(a.shape[0], jnp.finfo(a.dtype).dtype)
    return tj.linalg.SVDResult(a, s, a) if compute_uv else s


@tj.linalg.svd.implementation(tj.Scaled, differentiate=True)
def svd_scaled(
    a: Shaped[tj.Scaled, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.linalg.SVDResult | Natural:
    size = jnp.abs(a.factor)
    if not compute_uv:
        return tj.linalg.svd(a.matrix, full_matrices, False) * size
    u, s, vh = tj.linalg.svd(a.matrix, full_matrices, invariant=invariant)
    return tj.linalg.SVDResult(
        tj.linalg.multiply(u, _phase(a.factor).astype(a.dtype)), s * size, vh
    )


def _phase(z: Natural) -> Natural:
    """Return `z / |z|`, and 1 at 0, where it has no derivative."""
    zero = z == 0
    safe = jnp.where(zero, jnp.ones_like(z), z)
    return jnp.where(zero, jnp.ones_like(z), safe / jnp.abs(safe).astype(z.dtype))


@tj.linalg.svd.implementation(tj.Kronecker, differentiate=True)
def svd_kronecker(
    a: Shaped[tj.Kronecker, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.linalg.SVDResult | Natural:
    if not compute_uv:
        return outer(tj.linalg.svd(f, False, False) for f in a.factors)
    if full_matrices and not all_square(a.factors):
        return _svd_formed(a, invariant)
    parts = [tj.linalg.svd(f, full_matrices, invariant=invariant) for f in a.factors]
    u, vh = tj.Kronecker(*(p.U for p in parts)), tj.Kronecker(*(p.Vh for p in parts))
    return tj.linalg.SVDResult(u, outer(p.S for p in parts), vh)


@tj.linalg.svd.implementation(tj.BlockDiagonal, differentiate=True)
def svd_blocks(
    a: Shaped[tj.BlockDiagonal, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.linalg.SVDResult | Natural:
    if not compute_uv:
        return of_each_block(a, lambda b: (tj.linalg.svd(b, False, False),))[0]
    if full_matrices and not a.has_square_blocks:
        return _svd_formed(a, invariant)
    of_block = lambda b: tj.linalg.svd(b, full_matrices, invariant=invariant)
    return tj.linalg.SVDResult(*of_each_block(a, of_block))


def _svd_formed(a: Natural, invariant: bool) -> tj.linalg.SVDResult:
    return tj.linalg.svd(
        tj.rules.densified(a, "svd", "pass `full_matrices=False`"), invariant=invariant
    )


@tj.linalg.svd.implementation(tj.LowRank)
def svd_low_rank(
    a: Shaped[tj.LowRank, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.linalg.SVDResult | Natural:
    """Use the QR decompositions of both thin factors: `u = Q R`, `v = P S`, the SVD of `R S^T`.

    Not differentiated: QR has no derivative where columns are linearly dependent.
    """
    if full_matrices and compute_uv:
        return _svd_formed(a, invariant)
    q, p, core = thin_core(a)
    if not compute_uv:
        return tj.linalg.svd(core, False, False)
    u, s, vh = tj.linalg.svd(core, False, invariant=invariant)
    return tj.linalg.SVDResult(q @ u, s, vh @ p.T)


@tj.linalg.svd.implementation(tj.Circulant, differentiate=True)
def svd_circulant(
    a: Shaped[tj.Circulant, "n n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.linalg.SVDResult | Natural:
    """Return the sizes of the eigenvalues, which come in pairs for a real matrix."""
    if compute_uv:
        dense = tj.rules.densified(a, "svd", "ask for the singular values alone")
        return tj.linalg.svd(dense, full_matrices, invariant=invariant)
    return jnp.abs(a.eigenvalues())


def thin_core(
    a: Natural,
) -> tuple[Shaped[AnyArray, "m k"], Shaped[AnyArray, "n l"], Shaped[AnyArray, "k l"]]:
    r"""Return `q`, `p`, `core` of a low-rank `q @ core @ p.T`: `q`, `p` with unitary columns.

    **Derivative:** for functions of the matrix alone: the tangents of $Q$ and $P$ are orthogonal to
    their columns, $\dot Q = (I - QQ^H)\,\dot A\bar P C^+$ of the core $C$. Where columns of the
    factors are linearly dependent, QR has no derivative; this one is along matrices of one rank.
    """
    # Tangents of the factors mix: if one factor is complex, both must be.
    q, p, core = _thin_core(a.u.astype(a.dtype), a.v.astype(a.dtype))
    return q, p, core


@tj.rules.custom_jvp
def _thin_core(u: Natural, v: Natural) -> tuple[Natural, Natural, Natural]:
    (q, left), (p, right) = jnp.linalg.qr(u), jnp.linalg.qr(v)
    return q, p, left @ right.T


@_thin_core.defjvp
def _(primals: tuple[Natural, Natural], tangents: tuple[Natural, Natural]) -> tuple[Any, Any]:
    (u, v), (u_dot, v_dot) = primals, tangents
    q, p, core = _thin_core(u, v)
    left, right = adjoint(q) @ u, adjoint(p) @ v
    inverse = tj.linalg.pinv(core)
    q_dot = gauge.outside(q, u_dot) @ (right.T @ inverse)
    p_dot = gauge.outside(p, v_dot) @ (left.T @ inverse.T)
    core_dot = adjoint(q) @ u_dot @ right.T + left @ (adjoint(p) @ v_dot).T
    return (q, p, core), (q_dot, p_dot, core_dot)


# -- cases ---------------------------------------------------------------------------------------


def _of_kronecker(a: Natural, full_matrices: bool, compute_uv: bool, invariant: bool) -> PyTree:
    """Recover 2 x 2 factors, both square."""
    first, second = a[::2, ::2] / a[0, 0], a[:2, :2]
    (u, s, vh), (x, t, yh) = jnp.linalg.svd(first), jnp.linalg.svd(second)
    if not compute_uv:
        return jnp.kron(s, t)
    return tj.linalg.SVDResult(jnp.kron(u, x), jnp.kron(s, t), jnp.kron(vh, yh))


def _of_diagonal(a: Natural, full_matrices: bool, compute_uv: bool, invariant: bool) -> PyTree:
    d = jnp.diagonal(a)
    if not compute_uv:
        return jnp.abs(d)
    return tj.linalg.SVDResult(jnp.diag(jnp.sign(d)), jnp.abs(d), jnp.eye(a.shape[0]))


def _of_blocks(a: Natural, full_matrices: bool, compute_uv: bool, invariant: bool) -> PyTree:
    u, s, vh = jnp.linalg.svd(a[:2, :2])
    zero, one = jnp.zeros((2, 1)), jnp.ones((1, 1))
    s = jnp.append(s, a[2, 2])
    whole = lambda x: jnp.block([[x, zero], [zero.T, one]])
    return tj.linalg.SVDResult(whole(u), s, whole(vh)) if compute_uv else s


def cases() -> Iterator[Case]:
    """Tall, wide and square, thin, full and values alone; types in the order of the structure."""
    from tanjax.testing import Case, Samples

    s = Samples(12)
    a: Any
    kronecker = tj.Kronecker(s.regular(2), s.regular(2))
    blocks = tj.BlockDiagonal(s.regular(2), tj.Diagonal(s.positive(1)))
    diagonal = tj.Diagonal(s.normal(2))
    # Full factors have no derivative in JAX for comparison: tests compare with finite differences.
    yield Case(tj.linalg.svd, s.normal(2, 3, 2), full_matrices=False).declare(skip=("variants",))
    # LAPACK's choice of phases is not a function that finite differences can follow. A loss that
    # depends on it has no symmetric second derivative.
    phases = ("finite differences", "hessian", "variants", "vmap")
    yield Case(tj.linalg.svd, s.complex(2, 3), full_matrices=False).declare(skip=phases)
    yield Case(tj.linalg.svd, tj.Hermitian(s.complex(2, 2))).declare(skip=phases)
    yield gauge.composed(Case(tj.linalg.svd, tj.Symmetric(s.normal(2, 2)), invariant=True))
    yield gauge.composed(Case(tj.linalg.svd, tj.Triangular(s.regular(2)), compute_uv=False))
    for a, reference in (
        (diagonal, _of_diagonal),
        (kronecker, _of_kronecker),
        (blocks, _of_blocks),
    ):
        yield gauge.composed(Case(tj.linalg.svd, a).declare(reference=reference))
    for a in (tj.Circulant(s.normal(3)), tj.Circulant(s.complex(2))):
        case = Case(tj.linalg.svd, a, compute_uv=False).declare(
            reference=lambda a, **_: jnp.abs(jnp.fft.fft(a[:, 0]))
        )
        yield gauge.composed(case)
    thin = tj.LowRank(s.normal(3, 1), s.normal(2, 1))
    case = Case(tj.linalg.svd, thin, full_matrices=False, compute_uv=False)
    yield case.declare(reference=lambda a, **_: jnp.linalg.norm(a)[None], skip=("variants",))
    wide = tj.LowRank(s.normal(3, 2), s.normal(2, 2))
    for a in (tj.Scaled(s.normal(2, 2), s.positive()), wide, tj.Identity(2)):
        yield gauge.composed(Case(tj.linalg.svd, a, full_matrices=False, compute_uv=False))
    wider = tj.LowRank(s.complex(3, 4), s.complex(2, 4))  # more columns than the matrix has rows
    yield gauge.composed(Case(tj.linalg.svd, wider, full_matrices=False, compute_uv=False))
