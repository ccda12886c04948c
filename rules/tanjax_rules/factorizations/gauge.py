r"""Vectors that are not unique: which losses have a derivative, and how a rule detects them.

Equal eigenvalues have a space, not vectors: any unitary combination of a basis is as good, and none
is a differentiable function of the matrix. A loss that depends only on the space has a derivative,
and its cotangent shows that. With $S = V^H \bar V$, within equal eigenvalues:

- the skew part of $S$ is zero: the loss does not change if the basis is turned;
- $\bar\lambda$ is constant: the loss does not tell the eigenvalues apart.

A function of a matrix, $V f(\lambda) V^H$, passes the first condition although its derivative
contains $f'(\lambda)$, which no cotangent of the factors has. It fails the second, unless by
chance. For the basis of a diagonal matrix that chance is high. So rules turn the basis within equal
eigenvalues (`turn`) by a fixed generic unitary matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

import tanjax as tj
from tanjax.typing import Factor, Function, Natural

if TYPE_CHECKING:
    from tanjax.testing import Case


# Stages skipped for an implementation that consists of checked operations and is differentiated by
# AD: there JAX's transformations compose.
COMPOSED = ("hessian", "vmap", "one argument", "checkpoint", "scan", "public lowering", "variants")


def composed(case: Case) -> Case:
    """Return a case whose implementation consists of checked operations."""
    skip = (*case.options.get("skip", ()), *COMPOSED)
    return case.declare(skip=tuple(dict.fromkeys(skip)))


def whole(a: Natural) -> Natural:
    """Return all entries of an array that stores them."""
    if isinstance(a, tj.Symmetric | tj.Hermitian):
        return a.data
    return a.to_dense() if tj.rules.is_structured(a) else jnp.asarray(a)


def adjoint(x: Natural) -> Natural:
    """Return the conjugate transpose."""
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def outside(basis: Natural, x: Natural) -> Natural:
    """Return the part of columns outside the span of a unitary basis."""
    return x - basis @ (adjoint(basis) @ x)


def skew(x: Natural) -> Natural:
    """Return the skew-Hermitian part."""
    return (x - adjoint(x)) / 2


def embedded(d: Natural, like: Natural) -> Natural:
    """Return vectors as diagonal matrices, in the dtype of another array."""
    return d[..., None, :].astype(like.dtype) * jnp.eye(d.shape[-1], dtype=like.dtype)


def tolerance(w: Natural) -> Natural:
    """Return the distance below which neighbouring eigenvalues count as equal.

    For matrices with eigenvalues of high multiplicity, LAPACK's differ by at most 14 rounding
    errors, for every size up to 512. It must not be larger: of 512 random eigenvalues in float32
    some neighbours differ by a few hundred, and a loss may tell them apart.
    """
    eps = jnp.finfo(w.dtype).eps
    return 16 * eps * jnp.max(jnp.abs(w), axis=-1, keepdims=True, initial=0)


def groups(w: Natural) -> Natural:
    """Return for each sorted value `(..., n)` the number of its group of equal values.

    Rules keep this between their passes; `same_value` makes a matrix of it on demand.
    """
    far = jnp.abs(jnp.diff(w, axis=-1)) > tolerance(w)
    group = jnp.cumsum(far, axis=-1)
    return jnp.concatenate([jnp.zeros_like(w[..., :1], group.dtype), group], axis=-1)


def same_value(group: Natural) -> Natural:
    """Return a Boolean matrix `(..., n, n)` that is true for pairs of equal values."""
    return group[..., :, None] == group[..., None, :]


def any_shared(group: Natural) -> Natural:
    """True if any two values are equal."""
    return jnp.any(group[..., 1:] == group[..., :-1])


def mirrors(group: Natural, dtype: DTypeLike, seed: int = 0) -> Natural:
    """Return a generic vector `(..., n)`, of length 1 in each group of several values; else 0."""
    real = jnp.finfo(dtype).dtype
    i = jnp.arange(1, group.shape[-1] + 1, dtype=real)
    vector = 1 + jnp.mod((0.6180339887 + 0.1 * seed) * i, 1)
    beside = jnp.pad(group[..., 1:] == group[..., :-1], [(0, 0)] * (group.ndim - 1) + [(1, 1)])
    squares = group_sums(group, jnp.broadcast_to(vector**2, group.shape))
    unit = vector.astype(dtype) / jnp.sqrt(squares).astype(dtype)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        unit = unit * jnp.exp(1j * (2.4 + seed) * i.astype(dtype))
    return jnp.where(beside[..., 1:] | beside[..., :-1], unit, jnp.zeros((), dtype))


def group_sums(group: Natural, x: Natural) -> Natural:
    """Return for each value the sum of `x` over its group of equal values."""
    return jnp.matvec(same_value(group).astype(x.dtype), x)


def turn(group: Natural, dtype: DTypeLike, seed: int = 0) -> Natural:
    """Return the unitary matrix that reflects each group of equal values at a generic vector.

    Groups of one value are unchanged.
    """
    u = mirrors(group, dtype, seed)
    products = 2 * u[..., :, None] * jnp.conj(u[..., None, :])
    products = jnp.where(same_value(group), products, jnp.zeros((), dtype))
    return jnp.eye(group.shape[-1], dtype=dtype) - products


def turned_diagonal(
    d: Natural, group: Natural, dtype: DTypeLike, apart: Natural | None = None
) -> Natural:
    """Return `T @ diag(d) @ S`, with `T` and `S` the factors of `turned`, `S` the one with `apart`.

    `T` and `S` are reflections: the off-diagonal part consists of outer products of vectors.
    """
    u = v = mirrors(group, dtype)
    if apart is not None:
        v = jnp.where(apart, mirrors(group, dtype, seed=1), u)
    row, column = lambda x: x[..., None, :], lambda x: x[..., :, None]
    d = d.astype(dtype)
    mean = group_sums(group, jnp.conj(u) * d * v)
    products = column(4 * mean * u - 2 * d * v) * row(jnp.conj(v))
    products = products - column(2 * u) * row(jnp.conj(u) * d)
    products = jnp.where(same_value(group), products, jnp.zeros((), dtype))
    return products + row(d) * jnp.eye(d.shape[-1], dtype=dtype)


def turned(basis: Natural, group: Natural, apart: Natural | None = None) -> Natural:
    """Return a basis turned within groups of equal values; without groups, the basis itself.

    `apart`: groups whose vectors are turned in another way. A second turn restores the basis.

    The product, and similar ones in pullbacks, take a tenth and more of the time of `eigh`. So the
    work for equal values or unused vectors is in a branch that is not taken.
    """

    def by_product() -> Natural:
        one = turn(group, basis.dtype)
        if apart is not None:
            one = jnp.where(apart[..., None, :], turn(group, basis.dtype, seed=1), one)
        return basis @ one

    return if_any(any_shared(group), by_product, lambda: basis)


def if_any(condition: Natural, then: Function, otherwise: Function) -> Natural:
    """Return one of two arrays, and compute only that one (both, under `jax.vmap`)."""
    alike = lambda branch: lambda: tj.rules.align(branch(), condition)
    return lax.cond(jnp.any(condition), alike(then), alike(otherwise))


def over_differences(w: Natural, same: Natural, fill: Factor) -> Natural:
    """Return `1 / (w_j - w_i)`, and `fill` where they are equal; 0 on the diagonal."""
    gaps = w[..., None, :] - w[..., :, None]
    inverse = jnp.where(same, jnp.asarray(fill, w.dtype), 1 / jnp.where(same, 1, gaps))
    return jnp.where(jnp.eye(w.shape[-1], dtype=bool), jnp.zeros((), w.dtype), inverse)


def columns(x: Natural) -> Natural:
    """Return the norms of the columns."""
    return jnp.sqrt(jnp.sum(jnp.real(x * jnp.conj(x)), axis=-2))


def depends_on_basis(same: Natural, rotation: Natural, scale: Natural) -> Natural:
    """True where a loss turns the basis: `rotation`, the skew part of `S`, exceeds rounding.

    `scale`: the norms of the columns of the cotangent, `(..., n)`.
    """
    limit = _root_of_precision(scale) * (scale[..., None, :] + scale[..., :, None])
    return same & (jnp.abs(rotation) > limit)


def tells_apart(same: Natural, w_bar: Natural) -> Natural:
    """True where a loss tells equal values apart: their cotangents differ by more than rounding."""
    size = jnp.abs(w_bar)
    largest = jnp.max(size, axis=-1, keepdims=True, initial=0)[..., None]
    local = jnp.maximum(size[..., None, :], size[..., :, None])
    noise = 8 * max(w_bar.shape[-1], 1) * jnp.finfo(w_bar.dtype).eps
    limit = _root_of_precision(w_bar) * local + noise * largest
    return same & (jnp.abs(w_bar[..., None, :] - w_bar[..., :, None]) > limit)


def ties(w: Natural, same: Natural, w_bar: Natural) -> Natural:
    """Return pairs of a group that are equal for a loss: it does not tell them apart."""
    differ = w[..., None, :] != w[..., :, None]
    return same & ~(differ & tells_apart(same, w_bar))


def too_much_is_missing(
    w: Natural, same: Natural, w_bar: Natural, scale: Natural, inner: Natural
) -> Natural:
    r"""True if rounding of equal values hides a relevant part of the gradient `V inner V^H`.

    A function of a matrix tells equal values apart. Its `inner` has off-diagonal numbers as large
    as the differences on the diagonal. The quotient of the rotation and the gap is rounding there.
    One such pair of a thousand matters as little as the rounding of all others: up to
    $\epsilon^{1/4}$ of the gradient. `scale`: as in `depends_on_basis`.
    """
    apart = jnp.abs(w_bar[..., None, :] - w_bar[..., :, None])
    gap = jnp.abs(w[..., None, :] - w[..., :, None])
    noise = float(jnp.finfo(w.dtype).eps) * (scale[..., None, :] + scale[..., :, None])
    noise = jnp.where(gap == 0, apart, noise / jnp.where(gap == 0, jnp.ones_like(gap), gap))
    hidden = jnp.where(tells_apart(same, w_bar), jnp.minimum(apart, noise), jnp.zeros_like(apart))
    return frobenius(hidden) > _root_of_precision(w_bar) ** 0.5 * frobenius(inner)


def frobenius(x: Natural) -> Natural:
    """Return the norm of each matrix `(..., 1, 1)`; squares neither overflow nor underflow."""
    over = lambda f, x: f(x, axis=(-2, -1), keepdims=True, initial=0)
    if jnp.iscomplexobj(x):
        largest = over(jnp.max, jnp.abs(x))
    else:  # `abs` would form another matrix
        largest = jnp.maximum(over(jnp.max, x), -over(jnp.min, x))
    scaled = x * (1 / jnp.maximum(largest, jnp.finfo(x.dtype).tiny)).astype(x.dtype)
    squares = jnp.real(scaled * jnp.conj(scaled))
    return largest * jnp.sqrt(jnp.sum(squares, axis=(-2, -1), keepdims=True))


def unused(x_bar: Natural) -> Natural:
    """True for each matrix of a batch whose cotangent of vectors is zero in every entry."""
    return jnp.all(x_bar == 0, axis=(-2, -1), keepdims=True)


def where_unused(unused: Natural, alone: Function, both: Function) -> Natural:
    """Return `alone` for matrices of a batch whose vectors are unused, `both` for the others."""

    def some_alone() -> Natural:
        return alone() if unused.ndim == 2 else jnp.where(unused, alone(), both())

    return if_any(unused, some_alone, both)


def without_ties(a_bar: Natural, w: Natural, w_bar: Natural) -> Natural:
    """Return the cotangent of a matrix, or nan where identical values have different cotangents."""
    ties = tells_apart(w[..., None, :] == w[..., :, None], w_bar)
    return spoiled(a_bar, jnp.any(ties, axis=(-2, -1), keepdims=True))


def is_seen(x: Natural, scale: Natural) -> Natural:
    """True where an entry that should vanish exceeds rounding."""
    return jnp.abs(x) > _root_of_precision(scale) * scale


def spoiled(x: Natural, bad: Natural) -> Natural:
    """Return `x`, with nan where it is undefined."""
    return jnp.where(bad, jnp.asarray(jnp.nan, x.dtype), x)


def _root_of_precision(x: Natural) -> float:
    return float(np.sqrt(jnp.finfo(x.dtype).eps))
