"""The four maps of any array type, derived from `destructure` alone.

An author who knows only how to form the dense array has already said everything: J and Jᵀ are the
Jacobian-vector and vector-Jacobian products of `destructure`, and J⁺, J⁺ᵀ are least-squares
problems with them. They are solved by conjugate gradients on JᵀJ in the variant that minimises the
residual: JᵀJ is singular for over-parametrised types, and a cotangent with a hidden part (one that
did not come through the array) makes the system inconsistent, where plain CG diverges and this
variant returns the least-squares answer.

These are the fallback of every type and the oracle of the tests. Sharp edges: the condition of
JᵀJ is the square of that of J. Complex leaves are solved in their real and imaginary parts,
because J need only be real-linear (Hermitian).

**References:** conjugate residuals: Stiefel 1955; Saad 2003, section 6.8; on singular systems:
Hayami 2003.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def is_inexact(x: Any) -> bool:
    """Whether a leaf has a tangent space: floating or complex dtype. Functions, texts have none."""
    dtype = getattr(x, "dtype", None)
    if dtype is None and not isinstance(x, bool | int | float | complex):
        return False
    return jnp.issubdtype(dtype or jnp.result_type(x), jnp.inexact)


def split_inexact(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The differentiable leaves of a tree, and the function that puts others in their place."""
    leaves, treedef = jax.tree.flatten(tree)
    places = [i for i, leaf in enumerate(leaves) if is_inexact(leaf)]

    def join(new: list[Any]) -> Any:
        full = list(leaves)
        for i, value in zip(places, new, strict=True):
            full[i] = value
        return jax.tree.unflatten(treedef, full)

    return [jnp.asarray(leaves[i]) for i in places], join


def tangent_leaves(primal: Any, tangent: Any) -> list[Any]:
    """The leaves of a structural tangent that belong to differentiable leaves of the primal."""
    treedef = jax.tree.structure(primal)
    pairs = zip(jax.tree.leaves(primal), treedef.flatten_up_to(tangent), strict=True)
    return [t for p, t in pairs if is_inexact(p)]


def from_tangent_leaves(primal: Any, leaves: list[Any]) -> Any:
    """A structural tangent from its differentiable leaves; the others are `float0` zeros."""
    flat, treedef = jax.tree.flatten(primal)
    rest = iter(leaves)
    full = [next(rest) if is_inexact(p) else np.zeros(np.shape(p), jax.dtypes.float0) for p in flat]
    return jax.tree.unflatten(treedef, full)


def pushforward_of_destructure(destructure: Callable[[Any], Any], x: Any, structural: Any) -> Any:
    """J by `jax.jvp`."""
    leaves, join = split_inexact(x)
    tangents = [
        t.astype(p.dtype) for p, t in zip(leaves, tangent_leaves(x, structural), strict=True)
    ]
    return jax.jvp(lambda new: destructure(join(new)), (leaves,), (tangents,))[1]


def pullback_of_destructure(destructure: Callable[[Any], Any], x: Any, natural: Any) -> Any:
    """Jᵀ by `jax.vjp`."""
    from . import _queries as ask

    leaves, join = split_inexact(x)
    if not leaves:
        return from_tangent_leaves(x, [])
    out, vjp = jax.vjp(lambda new: destructure(join(new)), leaves)
    dense = ask.dense(natural)
    dense = jnp.real(dense) if jnp.iscomplexobj(dense) and not jnp.iscomplexobj(out) else dense
    (cotangents,) = vjp(dense.astype(out.dtype))
    return from_tangent_leaves(x, cotangents)


def pushforward_of_restructure(x: Any, natural: Any) -> Any:
    """J⁺: solve `JᵀJ z = Jᵀ ẋ`, whose least-norm solution CG finds when it starts at zero."""
    from ._maps import pullback_of_destructure as pullback

    dual = pullback(x)(_conj(natural))
    return least_structural(x, [jnp.conj(c) for c in tangent_leaves(x, dual)])


def pullback_of_restructure(x: Any, structural: Any) -> Any:
    """J⁺ᵀ: solve `JᵀJ z = w̄`, then push `z` to the array: `J (JᵀJ)⁺ w̄`."""
    from ._maps import array_type_of, pushforward_of_destructure as pushforward

    z = least_structural(x, [jnp.conj(c) for c in tangent_leaves(x, structural)])
    if array_type_of(x).is_linear(x) and not any(map(jnp.iscomplexobj, jax.tree.leaves(x))):
        return z  # D is linear, so the fields `z` stand for J z
    return _conj(pushforward(x)(z))


def least_structural(x: Any, right: list[Any]) -> Any:
    """The least-norm `z` with `JᵀJ z = right`, as a structural tangent."""
    from ._maps import (
        pullback_of_destructure as pullback,
        pushforward_of_destructure as pushforward,
    )

    if not right:
        return from_tangent_leaves(x, [])
    push, pull = pushforward(x), pullback(x)

    def normal(parts: list[Any]) -> list[Any]:
        z = from_tangent_leaves(x, _join_parts(parts, right))
        c = pull(_conj(push(z)))
        return _split_parts([jnp.conj(leaf) for leaf in tangent_leaves(x, c)])

    parts = _split_parts(right)
    solution = jax.lax.custom_linear_solve(normal, parts, _conjugate_residual, symmetric=True)
    return from_tangent_leaves(x, _join_parts(solution, right))


def _conjugate_residual(matvec: Callable[[list[Any]], list[Any]], b: list[Any]) -> list[Any]:
    """Minimise `|matvec(z) - b|` for a symmetric positive semidefinite map, from `z = 0`."""
    eps = max(float(jnp.finfo(p.dtype).eps) for p in b)
    limit = 4 * sum(p.size for p in b) + 8

    def step(state: Any) -> Any:
        k, z, r, q, gr, gq, rho = state
        alpha = rho / _guard(_dot(gq, gq))
        z, r = _axpy(alpha, q, z), _axpy(-alpha, gq, r)
        gr = matvec(r)
        new = _dot(r, gr)
        beta = new / _guard(rho)
        return k + 1, z, r, _axpy(beta, q, r), gr, _axpy(beta, gq, gr), new

    gb = matvec(b)
    rho = _dot(b, gb)
    largest = _dot(gb, gb) / _guard(rho)  # of the order of the largest eigenvalue

    def unfinished(state: Any) -> Any:
        k, _, r, *_, now = state
        # Two ways to be done: the residual vanishes, or what is left of it is hidden (the map
        # sends it to zero up to the rounding of `r·Gr`), beyond which steps would amplify noise.
        return (k < limit) & (now > (32 * eps) ** 2 * rho) & (now > 8 * eps * largest * _dot(r, r))

    start = (0, [jnp.zeros_like(p) for p in b], b, b, gb, gb, rho)
    return jax.lax.while_loop(unfinished, step, start)[1]


def _dot(a: list[Any], b: list[Any]) -> Any:
    return sum((jnp.sum(x * y) for x, y in zip(a, b, strict=True)), start=jnp.zeros((), a[0].dtype))


def _axpy(alpha: Any, x: list[Any], y: list[Any]) -> list[Any]:
    return [alpha.astype(v.dtype) * u + v for u, v in zip(x, y, strict=True)]


def _guard(x: Any) -> Any:
    return jnp.where(x == 0, jnp.ones_like(x), x)


def _conj(natural: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.conj(leaf) if jnp.iscomplexobj(leaf) else leaf, natural)


def _split_parts(leaves: list[Any]) -> list[Any]:
    return [part for v in leaves for part in ((v.real, v.imag) if jnp.iscomplexobj(v) else (v,))]


def _join_parts(parts: list[Any], like: list[Any]) -> list[Any]:
    rest = iter(parts)
    return [
        jax.lax.complex(next(rest), next(rest)) if jnp.iscomplexobj(v) else next(rest) for v in like
    ]
