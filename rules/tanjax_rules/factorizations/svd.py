"""Singular values and vectors.

A tall matrix is the general one: a wide one is treated as its conjugate transpose. Its left factor
`l` then has the longer columns, and more of them if full matrices are asked for; its right factor
`r` is square.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import PyTree, Shaped

import tanjax as tj
from tanjax.typing import AnyArray, DenseArray, Factor, Natural, Pullback

from . import gauge
from .eigh import outer
from .gauge import adjoint, whole

if TYPE_CHECKING:
    from tanjax.testing import Case


# -- rules ---------------------------------------------------------------------------------------


@tj.svd.natural_rule(tj.Dense, convention="chainrules")
@tj.svd.natural_rule(tj.Symmetric, convention="chainrules")
@tj.svd.natural_rule(tj.Hermitian, convention="chainrules")
@tj.svd.natural_rule(tj.Triangular, convention="chainrules")
def svd_rule(
    a: Shaped[DenseArray | tj.Symmetric | tj.Hermitian | tj.Triangular, "... m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tuple[tj.SVDResult | Natural, Pullback]:
    a = whole(a)
    if not compute_uv:
        u, s, vh = tj.svd(a, False)
        return s, lambda s_bar: (u * s_bar[..., None, :].astype(u.dtype)) @ vh
    f = _Factors(a, full_matrices, invariant)

    def svd_pullback(bar: tj.SVDResult) -> Natural:
        l_bar, r_bar = f.tall(bar.U, adjoint(bar.Vh))
        moved = f.inner_cotangent(l_bar[..., : f.k], bar.S, r_bar) + f.outer_cotangent(l_bar)
        both = lambda: moved @ adjoint(f.r)
        unused = gauge.unused(l_bar) & gauge.unused(r_bar)

        def some_alone() -> Natural:
            alone = gauge.without_ties(f.of_values(bar.S), f.s, bar.S)
            return jnp.where(unused, alone, both())

        a_bar = both() if invariant else gauge.if_any(unused, some_alone, both)
        return adjoint(a_bar) if f.wide else a_bar

    return f.result, svd_pullback


@tj.svd.natural_pushforward(tj.Dense)
@tj.svd.natural_pushforward(tj.Symmetric)
@tj.svd.natural_pushforward(tj.Hermitian)
@tj.svd.natural_pushforward(tj.Triangular)
def svd_push(
    a: Shaped[DenseArray | tj.Symmetric | tj.Hermitian | tj.Triangular, "... m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tuple[tj.SVDResult | Natural, Pullback]:
    a = whole(a)
    f = _Factors(a, full_matrices and compute_uv, invariant)

    def svd_pushforward(a_dot: Natural) -> tj.SVDResult | Natural:
        moved = adjoint(whole(a_dot)) if f.wide else whole(a_dot)
        inner = adjoint(f.l1) @ moved @ f.r
        s_dot = jnp.real(jnp.diagonal(inner, axis1=-2, axis2=-1))
        if not compute_uv:
            return s_dot
        l_dot, r_dot = f.tangents(moved @ f.r, inner)
        u_dot, v_dot = f.tall(l_dot, r_dot)
        return tj.SVDResult(u_dot, s_dot, adjoint(v_dot))

    return (f.result if compute_uv else f.s), svd_pushforward


class _Factors:
    """The factors of a matrix as of a tall one, and the two linear maps of its derivative."""

    def __init__(self, a: Natural, full_matrices: bool, invariant: bool) -> None:
        u, self.s, vh = tj.svd(a, full_matrices)
        self.wide, self.k = a.shape[-2] < a.shape[-1], self.s.shape[-1]
        left, self.r = self.tall(u, adjoint(vh))
        self.thin = left[..., : self.k], self.r
        self.invariant = invariant
        self.same = gauge.same_value(self.s)
        self.zero = self.s <= gauge.tolerance(self.s)
        self.higher = a.shape[-1 if self.wide else -2] > self.k
        l1, l2 = left[..., : self.k], left[..., self.k :]
        if not invariant:
            l1 = gauge.turned(l1, self.same)
            self.r = gauge.turned(self.r, self.same, self.zero)  # `l` and `r` of zero apart
        self.l1, self.l2 = l1, l2
        u, v = self.tall(jnp.concatenate([l1, l2], axis=-1), self.r)
        self.result = tj.SVDResult(u, self.s, adjoint(v))

    def tall(self, left: Natural, right: Natural) -> tuple[Natural, Natural]:
        """Exchange left and right of a wide matrix."""
        return (right, left) if self.wide else (left, right)

    def inverses(self, fill: Factor, s_bar: Natural | None = None) -> tuple[Natural, ...]:
        """`1/(s_j - s_i)`, `1/(s_j + s_i)` and `1/s_j`, and `fill` where they do not exist."""
        fill = jnp.asarray(fill, self.s.dtype)
        both = self.zero[..., None, :] & self.zero[..., :, None]
        sums = self.s[..., None, :] + self.s[..., :, None]
        plus = jnp.where(both, fill, 1 / jnp.where(both, 1, sums))
        if not jnp.iscomplexobj(self.r):  # where the skew part has no diagonal
            plus = jnp.where(jnp.eye(self.k, dtype=bool), jnp.zeros((), plus.dtype), plus)
        one = jnp.where(self.zero, fill, 1 / jnp.where(self.zero, 1, self.s))
        keeps = s_bar is None or self.invariant
        tied = self.same if keeps else gauge.ties(self.s, self.same, s_bar)
        minus = gauge.over_differences(self.s, tied, fill)
        return tuple(x.astype(self.r.dtype) for x in (minus, plus, one[..., None, :]))

    def of_values(self, s_bar: Natural) -> Natural:
        """The cotangent of the matrix if the singular values alone are used."""
        left, right = self.thin
        return (left * s_bar[..., None, :].astype(left.dtype)) @ adjoint(right)

    def inner_cotangent(self, l_bar: Natural, s_bar: Natural, r_bar: Natural) -> Natural:
        """The part in the span of both thin factors."""
        x, y = adjoint(self.l1) @ l_bar, adjoint(self.r) @ r_bar
        common, opposite = gauge.skew(x + y), gauge.skew(x - y)
        if jnp.iscomplexobj(x):  # as JAX, the phase moves `U` alone
            phase = -gauge.skew(y) if self.wide else gauge.skew(x)
            opposite = jnp.where(jnp.eye(self.k, dtype=bool), 2 * phase, opposite)
        minus, plus, _ = self.inverses(0.0, s_bar)
        inner = minus * common + plus * opposite + gauge.embedded(s_bar, self.r)
        if not self.invariant:
            off_diagonal = ~jnp.eye(self.k, dtype=bool)
            scale = gauge.columns(l_bar) + gauge.columns(r_bar)
            zeros = self.zero[..., None, :] & self.zero[..., :, None]
            bad = gauge.depends_on_basis(self.same & off_diagonal, common, scale)
            bad = bad | gauge.depends_on_basis(zeros & off_diagonal, opposite, scale)
            bad = bad | gauge.too_much_is_missing(self.s, self.same, s_bar, scale, inner)
            bad = bad | self._tells_zeros(s_bar)
            inner = gauge.spoiled(inner, bad)
        return self.l1 @ inner

    def _tells_zeros(self, s_bar: Natural) -> Natural:
        """Where a zero value of a matrix that is not square counts: its vector is one of many."""
        if not self.higher:
            return jnp.zeros((), bool)
        largest = jnp.max(jnp.abs(s_bar), axis=-1, keepdims=True, initial=0)
        noise = 64 * self.k * float(jnp.finfo(s_bar.dtype).eps)
        return (self.zero & (jnp.abs(s_bar) > noise * largest))[..., None, :]

    def outer_cotangent(self, l_bar: Natural) -> Natural:
        """The part outside the span of the left thin factor."""
        if not self.higher:
            return jnp.zeros((), l_bar.dtype)
        bar1, bar2 = l_bar[..., : self.k], l_bar[..., self.k :]
        over = self.inverses(0.0)[2]
        if not self.l2.shape[-1]:
            rest = bar1 - self.l1 @ (adjoint(self.l1) @ bar1)
            return self._checked(rest, gauge.columns(bar1)) * over
        rest = adjoint(self.l2) @ bar1 - adjoint(bar2) @ self.l1
        rest = self._checked(rest, gauge.columns(bar1) + self._size(bar2)) * over
        if not self.invariant:
            rotation, scale = gauge.skew(adjoint(self.l2) @ bar2), gauge.columns(bar2)
            off_diagonal = ~jnp.eye(self.l2.shape[-1], dtype=bool)
            bad = gauge.depends_on_basis(off_diagonal, rotation, scale)
            rest = gauge.spoiled(rest, jnp.any(bad, axis=(-2, -1), keepdims=True))
        return self.l2 @ rest

    def _size(self, x: Natural) -> Natural:
        return jnp.sqrt(jnp.sum(jnp.real(x * jnp.conj(x)), axis=(-2, -1)))[..., None]

    def _checked(self, rest: Natural, scale: Natural) -> Natural:
        """What belongs to zero values must vanish: their vectors are some of many."""
        if self.invariant:
            return rest
        bad = self.zero[..., None, :] & gauge.is_seen(rest, scale[..., None, :])
        return gauge.spoiled(rest, bad)

    def tangents(self, moved: Natural, inner: Natural) -> tuple[Natural, Natural]:
        """Tangents of the left and the right factor, of `moved = A' r`, `inner = l1^H A' r`."""
        fill = 0.0 if self.invariant else jnp.nan
        minus, plus, one = self.inverses(fill)
        common = minus * (inner + adjoint(inner)) / 2
        opposite = plus * gauge.skew(inner)
        phase = opposite * jnp.eye(self.k, dtype=opposite.dtype)  # as JAX, it moves `U` alone
        phase = -phase if self.wide else phase
        r_dot, l_dot = self.r @ (common - opposite + phase), self.l1 @ (common + opposite + phase)
        if not self.higher:
            return l_dot, r_dot
        if not self.l2.shape[-1]:
            return l_dot + (moved - self.l1 @ inner) * one, r_dot
        rest = (adjoint(self.l2) @ moved) * one
        l2_dot = -self.l1 @ adjoint(rest)
        if not self.invariant and self.l2.shape[-1] > 1:
            l2_dot = l2_dot * jnp.nan  # their basis is not the one of a nearby matrix
        return jnp.concatenate([l_dot + self.l2 @ rest, l2_dot], axis=-1), r_dot


# -- svd -----------------------------------------------------------------------------------------


@tj.svd.implementation(tj.Symmetric)
@tj.svd.implementation(tj.Hermitian)
@tj.svd.implementation(tj.Triangular)
def svd(
    a: Shaped[tj.Symmetric | tj.Hermitian | tj.Triangular, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.SVDResult | Natural:
    return tj.svd.primal(whole(a), full_matrices, compute_uv)


@tj.svd.implementation(tj.Diagonal, differentiate=True)
def svd_diagonal(
    a: Shaped[tj.Diagonal, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.SVDResult | Natural:
    s = jnp.abs(a.diag)
    if not compute_uv:
        return s
    return tj.SVDResult(tj.Diagonal(_phase(a.diag)), s, tj.Identity(a.shape[0], a.dtype))


@tj.svd.implementation(tj.Identity, differentiate=True)
def svd_identity(
    a: Shaped[tj.Identity, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.SVDResult | Natural:
    s = jnp.ones(a.shape[0], jnp.finfo(a.dtype).dtype)
    return tj.SVDResult(a, s, a) if compute_uv else s


@tj.svd.implementation(tj.Scaled, differentiate=True)
def svd_scaled(
    a: Shaped[tj.Scaled, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.SVDResult | Natural:
    size = jnp.abs(a.factor)
    if not compute_uv:
        return tj.svd(a.matrix, full_matrices, False) * size
    u, s, vh = tj.svd(a.matrix, full_matrices, invariant=invariant)
    return tj.SVDResult(tj.multiply(u, _phase(a.factor).astype(a.dtype)), s * size, vh)


def _phase(z: Natural) -> Natural:
    """`z / |z|`, and 1 at 0, where it has no derivative."""
    zero = z == 0
    safe = jnp.where(zero, jnp.ones_like(z), z)
    return jnp.where(zero, jnp.ones_like(z), safe / jnp.abs(safe).astype(z.dtype))


@tj.svd.implementation(tj.Kronecker, differentiate=True)
def svd_kronecker(
    a: Shaped[tj.Kronecker, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.SVDResult | Natural:
    if not compute_uv:
        return outer(tj.svd(f, False, False) for f in a.factors)
    if full_matrices and not _all_square(a.factors):
        return _svd_formed(a, invariant)
    parts = [tj.svd(f, full_matrices, invariant=invariant) for f in a.factors]
    u, vh = tj.Kronecker(*(p.U for p in parts)), tj.Kronecker(*(p.Vh for p in parts))
    return tj.SVDResult(u, outer(p.S for p in parts), vh)


@tj.svd.implementation(tj.BlockDiagonal, differentiate=True)
def svd_blocks(
    a: Shaped[tj.BlockDiagonal, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.SVDResult | Natural:
    if not compute_uv:
        return jnp.concatenate([tj.svd(b, False, False) for b in a.blocks])
    if full_matrices and not _all_square(a.blocks):
        return _svd_formed(a, invariant)
    parts = [tj.svd(b, full_matrices, invariant=invariant) for b in a.blocks]
    u, vh = tj.BlockDiagonal(*(p.U for p in parts)), tj.BlockDiagonal(*(p.Vh for p in parts))
    return tj.SVDResult(u, jnp.concatenate([p.S for p in parts]), vh)


def _all_square(parts: Sequence[PyTree]) -> bool:
    """Whether the full factors of the whole are made of the full factors of the parts."""
    return all(p.shape[0] == p.shape[1] for p in parts)


def _svd_formed(a: Natural, invariant: bool) -> tj.SVDResult:
    return tj.svd(tj.densified(a, "svd", "pass `full_matrices=False`"), invariant=invariant)


@tj.svd.implementation(tj.LowRank, differentiate=True)
def svd_low_rank(
    a: Shaped[tj.LowRank, "m n"],
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    invariant: bool = False,
) -> tj.SVDResult | Natural:
    """By the QR decompositions of both thin factors: `u = Q R`, `v = P S`, the SVD of `R S^T`."""
    if full_matrices and compute_uv:
        return _svd_formed(a, invariant)
    q, p, core = thin_core(a)
    if not compute_uv:
        return tj.svd(core, False, False)
    u, s, vh = tj.svd(core, False, invariant=invariant)
    return tj.SVDResult(q @ u, s, vh @ p.T)


def thin_core(
    a: Natural,
) -> tuple[Shaped[AnyArray, "m k"], Shaped[AnyArray, "n l"], Shaped[AnyArray, "k l"]]:
    """`q`, `p` and `core` of a low-rank matrix `q @ core @ p.T`: `q`, `p` with unitary columns."""
    (q, left), (p, right) = tj.qr(a.u), tj.qr(a.v)
    return q, p, left @ right.T


# -- cases ---------------------------------------------------------------------------------------


def _of_kronecker(a: Natural, full_matrices: bool, compute_uv: bool, invariant: bool) -> PyTree:
    """Of 2 x 2 factors, both of them square."""
    first, second = a[::2, ::2] / a[0, 0], a[:2, :2]
    (u, s, vh), (x, t, yh) = jnp.linalg.svd(first), jnp.linalg.svd(second)
    if not compute_uv:
        return jnp.kron(s, t)
    return tj.SVDResult(jnp.kron(u, x), jnp.kron(s, t), jnp.kron(vh, yh))


def _of_diagonal(a: Natural, full_matrices: bool, compute_uv: bool, invariant: bool) -> PyTree:
    d = jnp.diagonal(a)
    if not compute_uv:
        return jnp.abs(d)
    return tj.SVDResult(jnp.diag(jnp.sign(d)), jnp.abs(d), jnp.eye(a.shape[0]))


def _of_blocks(a: Natural, full_matrices: bool, compute_uv: bool, invariant: bool) -> PyTree:
    u, s, vh = jnp.linalg.svd(a[:2, :2])
    zero, one = jnp.zeros((2, 1)), jnp.ones((1, 1))
    s = jnp.append(s, a[2, 2])
    whole = lambda x: jnp.block([[x, zero], [zero.T, one]])
    return tj.SVDResult(whole(u), s, whole(vh)) if compute_uv else s


def cases() -> Iterator[Case]:
    """Tall, wide and square, thin, full and values alone; types in the order of the structure."""
    from tanjax.testing import Case, Samples

    s = Samples(12)
    a: Any
    kronecker = tj.Kronecker(s.regular(2), s.regular(2))
    blocks = tj.BlockDiagonal(s.regular(2), tj.Diagonal(s.positive(1)))
    diagonal = tj.Diagonal(s.normal(2))
    # Full factors have no derivative in JAX that could judge: tests compare with differences.
    yield Case(tj.svd, s.normal(2, 3, 2), full_matrices=False).declare(skip=("variants",))
    # LAPACK's choice of the phases is no function that differences could follow, and a loss that
    # depends on it has no symmetric second derivative.
    phases = ("finite differences", "hessian", "variants", "vmap")
    yield Case(tj.svd, s.complex(2, 3), full_matrices=False).declare(skip=phases)
    yield Case(tj.svd, tj.Hermitian(s.complex(2, 2))).declare(skip=phases)
    yield gauge.composed(Case(tj.svd, tj.Symmetric(s.normal(2, 2)), invariant=True))
    yield gauge.composed(Case(tj.svd, tj.Triangular(s.regular(2)), compute_uv=False))
    for a, reference in (
        (diagonal, _of_diagonal),
        (kronecker, _of_kronecker),
        (blocks, _of_blocks),
    ):
        yield gauge.composed(Case(tj.svd, a).declare(reference=reference))
    for a in (
        tj.Scaled(s.normal(2, 2), s.positive()),
        tj.LowRank(s.normal(3, 2), s.normal(2, 2)),
        tj.Identity(2),
    ):
        yield gauge.composed(Case(tj.svd, a, full_matrices=False, compute_uv=False))
