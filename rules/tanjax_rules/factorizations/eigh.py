"""Eigenvalues and eigenvectors of Hermitian matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import PyTree, Shaped

import tanjax as tj
from tanjax.typing import DenseArray, Function, Natural, Pullback, Vector

from ..stacked import of_each_block
from . import gauge
from .gauge import adjoint, whole

if TYPE_CHECKING:
    from tanjax.testing import Case


# -- rules ---------------------------------------------------------------------------------------


@tj.linalg.eigh.natural_rule(tj.Dense, convention="chainrules")
@tj.linalg.eigh.natural_rule(tj.Symmetric, convention="chainrules")
@tj.linalg.eigh.natural_rule(tj.Hermitian, convention="chainrules")
def eigh_rule(
    a: Shaped[DenseArray | tj.Symmetric | tj.Hermitian, "... m n"], *, invariant: bool = False
) -> tuple[tj.linalg.EighResult, Pullback]:
    r"""$V(\mathrm{diag}\,\bar\lambda + F \circ \mathrm{skew}(S))V^H$, with $S = V^H \bar V$.

    The eigenvectors that second derivatives use never carry the promise `invariant`: to second
    order it does not hold, because the gradient tells equal eigenvalues apart. Vectors whose
    cotangent is zero in every entry are unused: then the gradient is that of `eigvalsh`, as in JAX.
    """
    return rule_of_pairs(tj.linalg.eigh(whole(a)), invariant, lambda left, v: left @ adjoint(v))


def rule_of_pairs(
    pairs: tj.linalg.EighResult, invariant: bool, product: Function
) -> tuple[tj.linalg.EighResult, Pullback]:
    """Return the rule; `product` multiplies a matrix by the adjoint of the basis for a type."""
    w, v = pairs
    group = gauge.groups(w)
    if not invariant:
        v = gauge.turned(v, group)

    def eigh_pullback(bar: tj.linalg.EighResult) -> Natural:
        towards = adjoint(v) @ bar.eigenvectors  # the rest of `bar` enters by vectors
        if invariant:
            return product(v @ _of_distinct(w, group, towards, bar.eigenvalues), v)
        scale, unused = gauge.columns(bar.eigenvectors), gauge.unused(bar.eigenvectors)
        equal = lambda: _of_equal(w, group, towards, bar.eigenvalues, scale)
        distinct = lambda: _of_distinct(w, group, towards, bar.eigenvalues)
        both = lambda: v @ gauge.if_any(gauge.any_shared(group), equal, distinct)
        alone = lambda: _of_values_alone(v, w, group, bar.eigenvalues)
        return product(gauge.where_unused(unused, alone, both), v)

    return tj.linalg.EighResult(w, v), eigh_pullback


def _of_distinct(w: Natural, group: Natural, towards: Natural, w_bar: Natural) -> Natural:
    r"""Return the cotangent in the eigenbasis, 0 between equal values; `towards` is $V^H\bar V$."""
    over = gauge.over_differences(w, gauge.same_value(group), 0.0)
    return over.astype(towards.dtype) * gauge.skew(towards) + gauge.embedded(w_bar, towards)


def _of_equal(
    w: Natural, group: Natural, towards: Natural, w_bar: Natural, scale: Natural
) -> Natural:
    """Return the same, and nan where the loss depends on vectors that equal values leave open."""
    same, rotation = gauge.same_value(group), gauge.skew(towards)
    over = gauge.over_differences(w, gauge.ties(w, same, w_bar), 0.0)
    inner = over.astype(towards.dtype) * rotation + gauge.embedded(w_bar, towards)
    # LAPACK chooses the diagonal of a rotation, a phase, arbitrarily. Rules leave it, as JAX does.
    turned = same & ~jnp.eye(same.shape[-1], dtype=bool)
    bad = gauge.depends_on_basis(turned, rotation, scale)
    bad = bad | gauge.too_much_is_missing(w, same, w_bar, scale, inner)
    return gauge.spoiled(inner, bad)


def _of_values_alone(v: Natural, w: Natural, group: Natural, w_bar: Natural) -> Natural:
    """Return the left factor beside `adjoint(v)`, in the basis that `eigvalsh` has."""
    distinct = lambda: v * w_bar[..., None, :].astype(v.dtype)
    equal = lambda: v @ gauge.turned_diagonal(w_bar, group, v.dtype)
    left = gauge.if_any(gauge.any_shared(group), equal, distinct)
    return gauge.without_ties(left, w, w_bar)


@tj.linalg.eigh.natural_pushforward(tj.Dense)
@tj.linalg.eigh.natural_pushforward(tj.Symmetric)
@tj.linalg.eigh.natural_pushforward(tj.Hermitian)
def eigh_push(
    a: Shaped[DenseArray | tj.Symmetric | tj.Hermitian, "... m n"], *, invariant: bool = False
) -> tuple[tj.linalg.EighResult, Pullback]:
    return pushforward_of_pairs(
        tj.linalg.eigh(whole(a)), invariant, lambda a_dot, v: adjoint(v) @ whole(a_dot) @ v
    )


def pushforward_of_pairs(
    pairs: tj.linalg.EighResult, invariant: bool, in_basis: Function
) -> tuple[tj.linalg.EighResult, Pullback]:
    """Return the pushforward; `in_basis` transforms a tangent of a type into a basis."""
    w, v = pairs
    group = gauge.groups(w)
    if not invariant:
        v = gauge.turned(v, group)
    same, fill = gauge.same_value(group), 0.0 if invariant else jnp.nan
    over = gauge.over_differences(w, same, fill).astype(v.dtype)

    def eigh_pushforward(a_dot: Natural) -> tj.linalg.EighResult:
        moved = in_basis(a_dot, v)
        moved = (moved + adjoint(moved)) / 2
        w_dot = jnp.real(jnp.diagonal(moved, axis1=-2, axis2=-1))
        return tj.linalg.EighResult(w_dot, v @ (over * moved))

    return tj.linalg.EighResult(w, v), eigh_pushforward


@tj.linalg.eigvalsh.natural_rule(tj.Dense, convention="chainrules")
@tj.linalg.eigvalsh.natural_rule(tj.Symmetric, convention="chainrules")
@tj.linalg.eigvalsh.natural_rule(tj.Hermitian, convention="chainrules")
def eigvalsh_rule(
    a: Shaped[DenseArray | tj.Symmetric | tj.Hermitian, "... m n"],
) -> tuple[Natural, Pullback]:
    w, v = tj.linalg.eigh(whole(a))
    return w, lambda w_bar: (v * w_bar[..., None, :].astype(v.dtype)) @ adjoint(v)


# -- eigh ----------------------------------------------------------------------------------------


@tj.linalg.eigh.implementation(tj.Symmetric)
@tj.linalg.eigh.implementation(tj.Hermitian)
def eigh(
    a: Shaped[tj.Symmetric | tj.Hermitian, "n n"], *, invariant: bool = False
) -> tj.linalg.EighResult:
    return tj.linalg.eigh.primal(a.data)


@tj.linalg.eigh.implementation(tj.Diagonal, differentiate=True)
def eigh_diagonal(
    a: Shaped[tj.Diagonal, "n n"], *, invariant: bool = False
) -> tj.linalg.EighResult:
    return tj.linalg.EighResult(jnp.real(a.diag), tj.Identity(a.shape[0], a.dtype))


@tj.linalg.eigh.implementation(tj.Identity, differentiate=True)
def eigh_identity(
    a: Shaped[tj.Identity, "n n"], *, invariant: bool = False
) -> tj.linalg.EighResult:
    return tj.linalg.EighResult(jnp.ones(a.shape[0], jnp.finfo(a.dtype).dtype), a)


@tj.linalg.eigh.implementation(tj.Scaled, differentiate=True)
def eigh_scaled(a: Shaped[tj.Scaled, "n n"], *, invariant: bool = False) -> tj.linalg.EighResult:
    w, v = tj.linalg.eigh(a.matrix, invariant=invariant)
    return tj.linalg.EighResult(w * a.factor, v)


@tj.linalg.eigh.implementation(tj.Kronecker, differentiate=True)
def eigh_kronecker(
    a: Shaped[tj.Kronecker, "n n"], *, invariant: bool = False
) -> tj.linalg.EighResult:
    parts = [tj.linalg.eigh(f, invariant=invariant) for f in a.factors]
    vectors = tj.Kronecker(*(p.eigenvectors for p in parts))
    return tj.linalg.EighResult(outer(p.eigenvalues for p in parts), vectors)


def outer(vectors: Iterable[Vector]) -> Natural:
    """Return the Kronecker product of vectors."""
    first, *rest = vectors
    for v in rest:
        first = (first[:, None] * v[None, :]).reshape(first.size * v.size)
    return first


def outer_sum(vectors: Iterable[Vector]) -> Natural:
    """Return all sums of one entry of each vector; the first index is the slowest."""
    first, *rest = vectors
    for v in rest:
        first = (first[:, None] + v[None, :]).reshape(first.size * v.size)
    return first


@tj.linalg.eigh.implementation(tj.KroneckerSum, differentiate=True)
def eigh_kronecker_sum(
    a: Shaped[tj.KroneckerSum, "n n"], *, invariant: bool = False
) -> tj.linalg.EighResult:
    parts = [tj.linalg.eigh(f, invariant=invariant) for f in a.factors]
    vectors = tj.Kronecker(*(p.eigenvectors for p in parts))
    return tj.linalg.EighResult(outer_sum(p.eigenvalues for p in parts), vectors)


@tj.linalg.eigh.implementation(tj.BlockDiagonal, differentiate=True)
def eigh_blocks(
    a: Shaped[tj.BlockDiagonal, "n n"], *, invariant: bool = False
) -> tj.linalg.EighResult:
    return tj.linalg.EighResult(*of_each_block(a, lambda b: tj.linalg.eigh(b, invariant=invariant)))


# -- eigenvalues alone, sorted ---------------------------------------------------------------------


@tj.linalg.eigvalsh.implementation(tj.Symmetric)
@tj.linalg.eigvalsh.implementation(tj.Hermitian)
def eigvalsh(a: Shaped[tj.Symmetric | tj.Hermitian, "n n"]) -> Natural:
    return tj.linalg.eigvalsh.primal(a.data)


@tj.linalg.eigvalsh.implementation(tj.Diagonal, differentiate=True)
def eigvalsh_diagonal(a: Shaped[tj.Diagonal, "n n"]) -> Natural:
    return jnp.sort(jnp.real(a.diag))


@tj.linalg.eigvalsh.implementation(tj.Identity, differentiate=True)
def eigvalsh_identity(a: Shaped[tj.Identity, "n n"]) -> Natural:
    return jnp.ones(a.shape[0], jnp.finfo(a.dtype).dtype)


@tj.linalg.eigvalsh.implementation(tj.Scaled, differentiate=True)
def eigvalsh_scaled(a: Shaped[tj.Scaled, "n n"]) -> Natural:
    return jnp.sort(tj.linalg.eigvalsh(a.matrix) * a.factor)


@tj.linalg.eigvalsh.implementation(tj.Kronecker, differentiate=True)
def eigvalsh_kronecker(a: Shaped[tj.Kronecker, "n n"]) -> Natural:
    return jnp.sort(outer(map(tj.linalg.eigvalsh, a.factors)))


@tj.linalg.eigvalsh.implementation(tj.KroneckerSum, differentiate=True)
def eigvalsh_kronecker_sum(a: Shaped[tj.KroneckerSum, "n n"]) -> Natural:
    return jnp.sort(outer_sum(map(tj.linalg.eigvalsh, a.factors)))


@tj.linalg.eigvalsh.implementation(tj.BlockDiagonal, differentiate=True)
def eigvalsh_blocks(a: Shaped[tj.BlockDiagonal, "n n"]) -> Natural:
    return jnp.sort(*of_each_block(a, lambda b: (tj.linalg.eigvalsh(b),)))


# -- cases ---------------------------------------------------------------------------------------


def _of_kronecker(a: Natural) -> PyTree:
    """Recover 2 x 2 factors from their product up to a factor, which does not affect vectors."""
    (p, u), (q, v) = jnp.linalg.eigh(a[::2, ::2] / a[0, 0]), jnp.linalg.eigh(a[:2, :2])
    return tj.linalg.EighResult(jnp.kron(p, q), jnp.kron(u, v))


def _of_kronecker_sum(a: Natural) -> PyTree:
    """Recover 2 x 2 terms from their Kronecker sum, up to multiples of the identity."""
    (p, u), (q, v) = jnp.linalg.eigh(a[::2, ::2]), jnp.linalg.eigh(a[:2, :2])
    return tj.linalg.EighResult((p[:, None] + q).ravel() - a[0, 0], jnp.kron(u, v))


def _of_blocks(a: Natural) -> PyTree:
    w, v = jnp.linalg.eigh(a[:2, :2])
    zero = jnp.zeros((2, 1))
    vectors = jnp.block([[v, zero], [zero.T, jnp.ones((1, 1))]])
    return tj.linalg.EighResult(jnp.append(w, a[2, 2]), vectors)


def cases() -> Iterator[Case]:
    """Full storage, real and complex, batches; types in the order of their structure."""
    from tanjax.testing import Case, Samples

    s = Samples(11)
    a: Any
    symmetric, hermitian = tj.Symmetric(s.normal(2, 2)), tj.Hermitian(s.complex(2, 2))
    small, diagonal = tj.Symmetric(s.definite(2)), tj.Diagonal(s.positive(2))
    blocks = tj.BlockDiagonal(small, tj.Diagonal(s.positive(1)))
    kronecker = tj.Kronecker(small, tj.Symmetric(s.definite(2)))
    scaled = tj.Scaled(small, s.positive())
    laplacian = tj.KroneckerSum(small, tj.Symmetric(s.definite(2)))
    shifted = tj.tangents.Sum(laplacian, tj.Scaled(tj.Identity(4), s.positive()))
    yield Case(tj.linalg.eigh, s.normal(2, 3, 3))
    yield Case(tj.linalg.eigh, symmetric, invariant=True)
    # LAPACK's choice of phases is not a function that finite differences can follow. A loss that
    # depends on it has no symmetric second derivative.
    yield Case(tj.linalg.eigh, hermitian).declare(skip=("finite differences", "hessian"))
    for a, reference in (
        (diagonal, lambda a: tj.linalg.EighResult(jnp.diagonal(a), jnp.eye(a.shape[0]))),
        (kronecker, _of_kronecker),
        (blocks, _of_blocks),
        (scaled, None),
        (tj.Identity(2), None),
        (laplacian, _of_kronecker_sum),
        (shifted, _of_kronecker_sum),
    ):
        yield gauge.composed(Case(tj.linalg.eigh, a).declare(reference=reference))
    for a in (s.normal(3, 3), symmetric, hermitian):
        yield Case(tj.linalg.eigvalsh, a)
    for a in (diagonal, tj.Identity(2), scaled, kronecker, blocks, laplacian, shifted):
        yield gauge.composed(Case(tj.linalg.eigvalsh, a))
