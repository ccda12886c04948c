"""The four maps of any array type, derived from its methods.

`to_dense` alone determines them: J and Jᵀ are the Jacobian-vector and vector-Jacobian products of
`to_dense`, and J⁺, J⁺ᵀ are least-squares problems with J and Jᵀ. Other methods and facts of a type
make the maps cheap, without a closed form of any map:

| a type that | needs no dense array for |
|---|---|
| is linear | J: the tangent's fields stand for it |
| has `apply`, `diagonal` or `total` | Jᵀ of an `Outer`, a `Diagonal`, a `Fill`: AD of that query |
| is isometric | J⁺ = Jᵀ and J⁺ᵀ = J (conjugated, for complex fields) |
| has a closed form of J⁺ᵀ | J⁺, its transpose |

Otherwise the maps solve with conjugate gradients on JᵀJ, in the variant that minimises the
residual. JᵀJ is singular for over-parametrised types. A cotangent with a hidden part, which did not
come through the array, makes the system inconsistent. There plain CG diverges, and this variant
returns the least-squares answer.

These maps are the fallback of every type, and the tests compare closed forms with them.

Sharp edges. The condition of JᵀJ is the square of that of J, so tanjax does not use a rule whose
output would need this solve. Complex leaves are solved in their real and imaginary parts, because J
may be only real-linear (Hermitian).

**References:** conjugate residuals: Stiefel 1955; Saad 2003, section 6.8; on singular systems:
Hayami 2003.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, PyTree

from tanjax._typing import Natural, Primal, Scalar, Structural

from .. import _queries as ask
from .._densify import announce_tangent
from .._leaves import from_tangent_leaves, split_inexact, tangent_leaves
from .._table import array_type_of
from ._destructure import (
    pullback_of_destructure as pullback,
    pushforward_of_destructure as pushforward,
)

T = TypeVar("T")


def in_the_type_of(x: T, structural: Structural) -> T:
    """Return `x` with the fields of a tangent: the result of J if `to_dense` is linear.

    Integer fields (a pattern) are those of `x`; a promise such as `definite` is dropped.
    """
    return ask.canonical(ask.without_promise(split_inexact(x)[1](tangent_leaves(x, structural))))


def pushforward_of_destructure(
    destructure: Callable[[T], Array], x: T, structural: Structural
) -> Natural:
    """J: an array with the tangent's fields if `to_dense` is linear, else `jax.jvp`."""
    if array_type_of(x).is_linear(x):
        return in_the_type_of(x, structural)
    leaves, join = split_inexact(x)
    tangents = [
        t.astype(p.dtype) for p, t in zip(leaves, tangent_leaves(x, structural), strict=True)
    ]
    announce_tangent(x, "pushforward_of_destructure")
    return jax.jvp(lambda new: destructure(join(new)), (leaves,), (tangents,))[1]


def pullback_of_destructure(
    destructure: Callable[[T], Array], x: T, natural: Natural
) -> Structural:
    """Jᵀ by `jax.vjp` of the query of a thin cotangent, else of `to_dense`."""
    leaves, join = split_inexact(x)
    if not leaves:
        return from_tangent_leaves(x, [])
    query, bar = ask.thin_pairing(x, natural) or (destructure, None)
    if bar is None:
        if not ask.is_dense(natural):
            announce_tangent(x, "pullback_of_destructure")
        bar = ask.dense(natural)
    out, vjp = jax.vjp(lambda new: query(join(new)), leaves)
    bar = jnp.real(bar) if jnp.iscomplexobj(bar) and not jnp.iscomplexobj(out) else bar
    (cotangents,) = vjp(bar.astype(out.dtype))
    return from_tangent_leaves(x, cotangents)


def pushforward_of_restructure(x: Primal, natural: Natural) -> Structural:
    """J⁺: the transpose of a closed form of J⁺ᵀ, Jᵀ for an isometry, or solve `JᵀJ z = Jᵀ ẋ`."""
    kind = array_type_of(x)
    if not kind.has_closed_form or kind.is_isometric(x):
        dual = _conj(pullback(x)(ask.conj(natural)))
        return dual if kind.is_isometric(x) else least_structural(x, tangent_leaves(x, dual))

    def paired(leaves: list[Array]) -> Scalar:
        kept = ask.canonical(from_tangent_leaves(x, leaves))  # makes the result canonical, too
        shown = kind.pullback_of_restructure(x, kept)
        if type(shown) is not type(x) or not kind.is_linear(x):
            return jnp.real(ask.inner_product(shown, natural))
        # In the same class `⟨D(g), ẋ⟩ = ⟨g, Jᵀ ẋ⟩` reads only the stored entries of the tangent.
        terms = zip(tangent_leaves(x, shown), tangent_leaves(x, pullback(x)(natural)), strict=True)
        return sum(jnp.real(jnp.sum(g * c)) for g, c in terms)

    zeros = [jnp.zeros_like(leaf) for leaf in split_inexact(x)[0]]
    return from_tangent_leaves(x, jax.grad(paired)(zeros) if zeros else [])


def pullback_of_restructure(x: Primal, structural: Structural) -> Natural:
    """J⁺ᵀ: J for an isometry, else `J (JᵀJ)⁺ w̄`: solve `JᵀJ z = w̄` and push `z` forward."""
    z = _conj(structural)
    if not array_type_of(x).is_isometric(x):
        z = least_structural(x, tangent_leaves(x, z))
    return ask.conj(pushforward(x)(z))


def least_structural(x: Primal, right: list[Array]) -> Structural:
    """Return the least-norm `z` with `JᵀJ z = right`, as a structural tangent."""
    if not right:
        return from_tangent_leaves(x, [])
    push, pull = pushforward(x), pullback(x)

    def normal(parts: list[Array]) -> list[Array]:
        z = from_tangent_leaves(x, _join_parts(parts, right))
        c = pull(ask.conj(push(z)))
        return _split_parts([jnp.conj(leaf) for leaf in tangent_leaves(x, c)])

    parts = _split_parts(right)
    solution = jax.lax.custom_linear_solve(normal, parts, _conjugate_residual, symmetric=True)
    return from_tangent_leaves(x, _join_parts(solution, right))


def _conjugate_residual(
    matvec: Callable[[list[Array]], list[Array]], b: list[Array]
) -> list[Array]:
    """Minimise `|matvec(z) - b|` for a symmetric positive semidefinite map, from `z = 0`."""
    eps = max(float(jnp.finfo(p.dtype).eps) for p in b)
    limit = 4 * sum(p.size for p in b) + 8

    def step(state: PyTree) -> PyTree:
        k, z, r, q, gr, gq, rho = state
        alpha = rho / _nonzero(_dot(gq, gq))
        z, r = _axpy(alpha, q, z), _axpy(-alpha, gq, r)
        gr = matvec(r)
        new = _dot(r, gr)
        beta = new / _nonzero(rho)
        return k + 1, z, r, _axpy(beta, q, r), gr, _axpy(beta, gq, gr), new

    gb = matvec(b)
    rho = _dot(b, gb)
    largest = _dot(gb, gb) / _nonzero(rho)  # of the order of the largest eigenvalue

    def unfinished(state: PyTree) -> Bool[Array, ""]:
        k, _, r, *_, now = state
        # Stop if the residual vanishes, or if the rest of it is hidden: the map sends it to zero up
        # to the rounding of `r·Gr`, and further steps would amplify noise.
        return (k < limit) & (now > (32 * eps) ** 2 * rho) & (now > 8 * eps * largest * _dot(r, r))

    start = (0, [jnp.zeros_like(p) for p in b], b, b, gb, gb, rho)
    return jax.lax.while_loop(unfinished, step, start)[1]


def _dot(a: list[Array], b: list[Array]) -> Scalar:
    return sum((jnp.sum(x * y) for x, y in zip(a, b, strict=True)), start=jnp.zeros((), a[0].dtype))


def _axpy(alpha: Scalar, x: list[Array], y: list[Array]) -> list[Array]:
    return [alpha.astype(v.dtype) * u + v for u, v in zip(x, y, strict=True)]


def _nonzero(x: Scalar) -> Scalar:
    return jnp.where(x == 0, jnp.ones_like(x), x)


def _conj(structural: Structural) -> Structural:
    return jax.tree.map(lambda leaf: jnp.conj(leaf) if jnp.iscomplexobj(leaf) else leaf, structural)


def _split_parts(leaves: list[Array]) -> list[Array]:
    return [part for v in leaves for part in ((v.real, v.imag) if jnp.iscomplexobj(v) else (v,))]


def _join_parts(parts: list[Array], like: list[Array]) -> list[Array]:
    rest = iter(parts)
    return [
        jax.lax.complex(next(rest), next(rest)) if jnp.iscomplexobj(v) else next(rest) for v in like
    ]
