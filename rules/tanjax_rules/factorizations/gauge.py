r"""Vectors that are not unique: what a loss may ask of them, and how a rule finds out.

To equal eigenvalues belongs a space, not vectors: any unitary combination of a basis is as good,
and none of them is a differentiable function of the matrix. A loss that depends on the space alone
has a derivative all the same, and its cotangent shows it. With $S = V^H \bar V$, within equal
eigenvalues:

- the skew part of $S$ is zero: the loss does not change if the basis is turned;
- $\bar\lambda$ is constant: the loss does not tell the eigenvalues apart.

The second is needed because a function of a matrix, $V f(\lambda) V^H$, passes the first although
its derivative contains $f'(\lambda)$, which no cotangent of the factors has. It fails the second,
unless by chance, as the basis of a diagonal matrix is one where chance is likely. So rules turn the
basis within equal eigenvalues (`turn`) by a fixed unitary matrix that means nothing to any loss.
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


# What is not asked of an implementation that is made of operations which are checked themselves,
# and differentiated by AD: that JAX's transformations compose.
COMPOSED = ("hessian", "vmap", "one argument", "checkpoint", "scan", "public lowering", "variants")


def composed(case: Case) -> Case:
    """A case whose implementation is made of checked operations."""
    skip = (*case.options.get("skip", ()), *COMPOSED)
    return case.declare(skip=tuple(dict.fromkeys(skip)))


def whole(a: Natural) -> Natural:
    """All entries of an array that stores them."""
    if isinstance(a, tj.Symmetric | tj.Hermitian):
        return a.data
    return a.to_dense() if tj.is_structured(a) else jnp.asarray(a)


def adjoint(x: Natural) -> Natural:
    """The conjugate transpose."""
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def outside(basis: Natural, x: Natural) -> Natural:
    """What of columns is not in the span of a unitary basis."""
    return x - basis @ (adjoint(basis) @ x)


def skew(x: Natural) -> Natural:
    """The skew-Hermitian part."""
    return (x - adjoint(x)) / 2


def embedded(d: Natural, like: Natural) -> Natural:
    """Vectors as diagonal matrices, in the dtype of another array."""
    return d[..., None, :].astype(like.dtype) * jnp.eye(d.shape[-1], dtype=like.dtype)


def tolerance(w: Natural) -> Natural:
    """Below which neighbouring eigenvalues count as equal.

    Of matrices with eigenvalues of high multiplicity, LAPACK's come at most 14 rounding errors
    apart, for every size up to 512. It is not to be larger: of 512 random eigenvalues in float32
    some neighbours differ by a few hundred, and a loss may tell them apart.
    """
    eps = jnp.finfo(w.dtype).eps
    return 16 * eps * jnp.max(jnp.abs(w), axis=-1, keepdims=True, initial=0)


def groups(w: Natural) -> Natural:
    """The number of the group of equal values that each of the sorted values `(..., n)` is in.

    What rules keep between their passes: `same_value` makes a matrix of it where one is needed.
    """
    far = jnp.abs(jnp.diff(w, axis=-1)) > tolerance(w)
    group = jnp.cumsum(far, axis=-1)
    return jnp.concatenate([jnp.zeros_like(w[..., :1], group.dtype), group], axis=-1)


def same_value(group: Natural) -> Natural:
    """Which values are equal: a Boolean matrix `(..., n, n)`."""
    return group[..., :, None] == group[..., None, :]


def any_shared(group: Natural) -> Natural:
    """Whether any two values are equal."""
    return jnp.any(group[..., 1:] == group[..., :-1])


def mirrors(group: Natural, dtype: DTypeLike, seed: int = 0) -> Natural:
    """A generic vector `(..., n)`, of length 1 in each group of equal values, 0 in one of one."""
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
    """For each value, the sum of `x` over those that are equal to it."""
    return jnp.matvec(same_value(group).astype(x.dtype), x)


def turn(group: Natural, dtype: DTypeLike, seed: int = 0) -> Natural:
    """The unitary matrix that turns each group of equal values, a reflection at a generic vector.

    Groups of one are left as they are.
    """
    u = mirrors(group, dtype, seed)
    products = 2 * u[..., :, None] * jnp.conj(u[..., None, :])
    products = jnp.where(same_value(group), products, jnp.zeros((), dtype))
    return jnp.eye(group.shape[-1], dtype=dtype) - products


def turned_diagonal(
    d: Natural, group: Natural, dtype: DTypeLike, apart: Natural | None = None
) -> Natural:
    """`T @ diag(d) @ S`, for what `turned` multiplies two bases by, `S` the one with `apart`.

    `T` and `S` are reflections: what is not on the diagonal are outer products of vectors.
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
    """A basis, turned within groups of equal values: where there are none, as it is.

    `apart`: groups whose vectors are turned in another way. Turned twice it is the basis again.

    The product, and the like in pullbacks, are a tenth and more of the time of `eigh`: so what only
    equal values or unused vectors ask for is a branch that is not taken.
    """

    def by_product() -> Natural:
        one = turn(group, basis.dtype)
        if apart is not None:
            one = jnp.where(apart[..., None, :], turn(group, basis.dtype, seed=1), one)
        return basis @ one

    return if_any(any_shared(group), by_product, lambda: basis)


def if_any(condition: Natural, then: Function, otherwise: Function) -> Natural:
    """One of two arrays, of which only one is computed (both, under `jax.vmap`)."""
    alike = lambda branch: lambda: tj.rules.align(branch(), condition)
    return lax.cond(jnp.any(condition), alike(then), alike(otherwise))


def over_differences(w: Natural, same: Natural, fill: Factor) -> Natural:
    """`1 / (w_j - w_i)`, and `fill` where they are equal; 0 on the diagonal."""
    gaps = w[..., None, :] - w[..., :, None]
    inverse = jnp.where(same, jnp.asarray(fill, w.dtype), 1 / jnp.where(same, 1, gaps))
    return jnp.where(jnp.eye(w.shape[-1], dtype=bool), jnp.zeros((), w.dtype), inverse)


def columns(x: Natural) -> Natural:
    """The norms of the columns."""
    return jnp.sqrt(jnp.sum(jnp.real(x * jnp.conj(x)), axis=-2))


def depends_on_basis(same: Natural, rotation: Natural, scale: Natural) -> Natural:
    """Where a loss turns the basis: `rotation`, the skew part of `S`, is more than rounding.

    `scale`: how large the columns of the cotangent are, `(..., n)`.
    """
    limit = _root_of_precision(scale) * (scale[..., None, :] + scale[..., :, None])
    return same & (jnp.abs(rotation) > limit)


def tells_apart(same: Natural, w_bar: Natural) -> Natural:
    """Where a loss tells equal values apart: their cotangents differ by more than rounding."""
    size = jnp.abs(w_bar)
    largest = jnp.max(size, axis=-1, keepdims=True, initial=0)[..., None]
    local = jnp.maximum(size[..., None, :], size[..., :, None])
    noise = 8 * max(w_bar.shape[-1], 1) * jnp.finfo(w_bar.dtype).eps
    limit = _root_of_precision(w_bar) * local + noise * largest
    return same & (jnp.abs(w_bar[..., None, :] - w_bar[..., :, None]) > limit)


def ties(w: Natural, same: Natural, w_bar: Natural) -> Natural:
    """Equal values for a loss: those of a group, but for two numbers that it tells apart."""
    differ = w[..., None, :] != w[..., :, None]
    return same & ~(differ & tells_apart(same, w_bar))


def too_much_is_missing(
    w: Natural, same: Natural, w_bar: Natural, scale: Natural, inner: Natural
) -> Natural:
    r"""Whether what rounding hides of equal values is seen in the gradient `V inner V^H`.

    A function of a matrix tells equal values apart, and its `inner` has, off the diagonal, numbers
    as large as the differences on the diagonal. The quotient of the rotation and the gap is
    rounding there. One such pair of a thousand matters as little as the rounding of all others: up
    to $\epsilon^{1/4}$ of the gradient. `scale`: as in `depends_on_basis`.
    """
    apart = jnp.abs(w_bar[..., None, :] - w_bar[..., :, None])
    gap = jnp.abs(w[..., None, :] - w[..., :, None])
    noise = float(jnp.finfo(w.dtype).eps) * (scale[..., None, :] + scale[..., :, None])
    noise = jnp.where(gap == 0, apart, noise / jnp.where(gap == 0, jnp.ones_like(gap), gap))
    hidden = jnp.where(tells_apart(same, w_bar), jnp.minimum(apart, noise), jnp.zeros_like(apart))
    return frobenius(hidden) > _root_of_precision(w_bar) ** 0.5 * frobenius(inner)


def frobenius(x: Natural) -> Natural:
    """The norm of each matrix `(..., 1, 1)`, whose squares neither overflow nor vanish."""
    over = lambda f, x: f(x, axis=(-2, -1), keepdims=True, initial=0)
    if jnp.iscomplexobj(x):
        largest = over(jnp.max, jnp.abs(x))
    else:  # the absolute values would be another matrix
        largest = jnp.maximum(over(jnp.max, x), -over(jnp.min, x))
    scaled = x * (1 / jnp.maximum(largest, jnp.finfo(x.dtype).tiny)).astype(x.dtype)
    squares = jnp.real(scaled * jnp.conj(scaled))
    return largest * jnp.sqrt(jnp.sum(squares, axis=(-2, -1), keepdims=True))


def unused(x_bar: Natural) -> Natural:
    """Whether the cotangent of vectors is zero in every entry, of each matrix of a batch."""
    return jnp.all(x_bar == 0, axis=(-2, -1), keepdims=True)


def where_unused(unused: Natural, alone: Function, both: Function) -> Natural:
    """`alone` of the matrices of a batch whose vectors are unused, `both` of the others."""

    def some_alone() -> Natural:
        return alone() if unused.ndim == 2 else jnp.where(unused, alone(), both())

    return if_any(unused, some_alone, both)


def without_ties(a_bar: Natural, w: Natural, w_bar: Natural) -> Natural:
    """The cotangent of a matrix, or nan where values that are the very same have two cotangents."""
    ties = tells_apart(w[..., None, :] == w[..., :, None], w_bar)
    return spoiled(a_bar, jnp.any(ties, axis=(-2, -1), keepdims=True))


def is_seen(x: Natural, scale: Natural) -> Natural:
    """Where something that should vanish is more than rounding."""
    return jnp.abs(x) > _root_of_precision(scale) * scale


def spoiled(x: Natural, bad: Natural) -> Natural:
    """`x`, and nan where it is not defined."""
    return jnp.where(bad, jnp.asarray(jnp.nan, x.dtype), x)


def _root_of_precision(x: Natural) -> float:
    return float(np.sqrt(jnp.finfo(x.dtype).eps))
