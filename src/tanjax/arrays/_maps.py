"""The four maps as free functions, for every array: structured, foreign, or dense.

| map | function | direction |
|---|---|---|
| J | `pushforward_of_destructure(x)` | structural tangent to natural tangent |
| Jᵀ | `pullback_of_destructure(x)` | natural cotangent to structural cotangent |
| J⁺ | `pushforward_of_restructure(x)` | natural tangent to structural tangent |
| J⁺ᵀ | `pullback_of_restructure(x)` | structural cotangent to natural cotangent |

A type's own map may be sloppy about dtypes and integer leaves; these functions are not. What
they return has exactly the tree, shapes and dtypes of the primal, or they raise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax._compat import float0
from tanjax._errors import CotangentError, describe, message

from . import _queries as ask
from ._default_maps import from_tangent_leaves, is_inexact, tangent_leaves
from ._register import ArrayType, array_type
from ._scaled import Scaled
from ._sum import Sum
from ._tangents import fit_leaf, zero_tangent
from ._zero import Zero


def array_type_of(x: Any) -> ArrayType:
    """The registered type of a structured array."""
    kind = array_type(x)
    if kind is None:
        raise TypeError(f"{type(x).__name__} is not a registered array type.")
    return kind


def destructure(x: Any) -> jax.Array:
    """The dense array that `x` stands for (the map D). Cost: that of forming it."""
    return ask.dense(x)


def restructure(like: Any, dense: Any) -> Any:
    """The value of `like`'s type nearest to `dense`, to first order: `like + J⁺(dense - D(like))`.

    Exact for linear types. **Raises** `CotangentError` if the shapes differ.
    """
    if array_type(like) is None:
        return jnp.asarray(dense)
    ask.check_natural("restructure", like, dense)
    kind, move = array_type_of(like), pushforward_of_restructure(like)
    if ask.is_dense(dense) or getattr(like, "has_unit", False):
        step = move(ask.dense(dense) - ask.dense(like))
    elif kind.is_linear(like) and kind.is_injective(like):  # no array is formed
        return jax.tree.map(lambda p, t: t if is_inexact(p) else p, like, move(dense))
    else:
        step = move(ask.plus(dense, ask.scaled(like, -1)))
    return jax.tree.map(lambda p, t: p + t if is_inexact(p) else p, like, step)


def pushforward_of_destructure(x: Any) -> Callable[[Any], Any]:
    """J at `x`: a function from structural tangents to natural tangents.

    The natural tangent has the shape of `x`; it is factored or structured where the type has a
    closed form. The identity for dense arrays. **Cost:** by default none for a linear type, else
    one `jax.jvp` of `to_dense`.
    **Raises:** `CotangentError` if the tree or the shapes of the tangent are not those of `x`.
    """
    kind = array_type(x)
    if kind is None:
        return lambda t: t
    check = functools.partial(check_structural, "pushforward_of_destructure", x)
    return lambda t: _without_float0(x, kind.pushforward_of_destructure(x, check(t)))


def pullback_of_destructure(x: Any) -> Callable[[Any], Any]:
    """Jᵀ at `x`: a function from natural cotangents (dense or structured) to structural ones.

    The result has exactly the tree, shapes and dtypes of `x` (`float0` at integer leaves).
    **Cost:** closed forms ask only for what is stored; by default one `jax.vjp` of `apply` (of an
    `Outer`), `diagonal` or `total`, else of `to_dense`, which forms the cotangent.
    **Raises:** `CotangentError` if the shape is not that of `x`, or the dtype is narrower.
    """
    return lambda y: _to_structural("pullback_of_destructure", x, y)


def pushforward_of_restructure(x: Any) -> Callable[[Any], Any]:
    """J⁺ at `x`: a function from natural tangents to the least structural tangents.

    A part that is not tangent to the type is dropped (see `project`). **Cost:** by default
    that of Jᵀ for an isometric type, or of a closed form of J⁺ᵀ; else conjugate gradients on JᵀJ,
    whose condition is the square of that of J. **Raises:**
    `CotangentError` if the shape is not that of `x`.
    """
    return lambda y: _to_structural("pushforward_of_restructure", x, y)


def pullback_of_restructure(x: Any) -> Callable[[Any], Any]:
    """J⁺ᵀ at `x`: a function from structural cotangents to the least-norm natural cotangent.

    The natural cotangent has the shape of `x`: the same type for linear types, factored or dense
    otherwise. A hidden part of the cotangent (see `is_visible`) is dropped. **Cost:** by default
    that of J for an isometric type; else conjugate gradients on JᵀJ, whose condition is the square
    of that of J. **Raises:** `CotangentError` if the tree or the shapes are not those of `x`.
    """
    kind = array_type(x)
    if kind is None:
        return lambda t: t

    def pull(t: Any) -> Any:
        shape = ask.shape(x)
        if 0 in shape:
            return Zero(shape, jnp.result_type(*jax.tree.leaves(x)) if jax.tree.leaves(x) else None)
        check_structural("pullback_of_restructure", x, t)
        return _without_float0(x, kind.pullback_of_restructure(x, t))

    return pull


def _without_float0(x: Any, natural: Any) -> Any:
    """A natural (co)tangent of `x`'s own class with the integer fields of `x`, as a pattern is."""
    leaves = jax.tree.leaves(natural)
    if type(natural) is not type(x) or all(jnp.result_type(v) != float0 for v in leaves):
        return natural
    fields = [
        p if jnp.result_type(t) == float0 else t
        for p, t in zip(jax.tree.leaves(x), leaves, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(natural), fields)


def has_exact_naturals(x: Any) -> bool:
    """Whether a closed form gives the natural cotangent of whatever reaches the fields of `x`.

    Not so where fields are hidden from the array, nor where J⁺ᵀ is found by iteration: it squares
    the condition of J, in float32 1e-3 of the result at 1e3, and nothing of it is left at 1e4.
    """
    kind = array_type(x)
    if kind is None:
        return True
    if not (kind.is_injective(x) and (kind.has_closed_form or kind.is_isometric(x))):
        return False
    inner = jax.tree.leaves(x, is_leaf=lambda v: v is not x and array_type(v) is not None)
    return all(map(has_exact_naturals, inner))


def _to_structural(name: str, x: Any, natural: Any) -> Any:
    kind = array_type(x)
    if natural is None or isinstance(natural, Zero):
        return zero_tangent(x)
    natural = ask.without_unit(name, x, natural)
    ask.check_natural(f"{name}({describe(x)})", jnp.asarray(x) if kind is None else x, natural)
    if kind is None:
        return fit_leaf(name, x, ask.dense(natural))
    where = f"{name}({describe(x)})"
    return fit_structural(where, x, _term_by_term(where, name, kind, x, natural))


def _term_by_term(where: str, name: str, kind: ArrayType, x: Any, natural: Any) -> Any:
    """A linear map on a `Sum`, term by term, and on a `Scaled`: no type has to know these two.

    A complex factor stays: the fields may be real.
    """
    again = functools.partial(_term_by_term, where, name, kind, x)
    if isinstance(natural, Zero):
        return zero_tangent(x)
    if isinstance(natural, Sum):
        add = lambda p, *t: sum(t[1:], t[0]) if is_inexact(p) else t[0]
        return jax.tree.map(add, x, *map(again, natural.terms))
    if isinstance(natural, Scaled) and not jnp.iscomplexobj(natural.factor):
        scale = lambda p, t: t * natural.factor if is_inexact(p) else t
        return jax.tree.map(scale, x, again(natural.matrix))
    if name == "pushforward_of_restructure" and _is_in_the_type(kind, x, natural):
        return from_tangent_leaves(x, tangent_leaves(x, ask.canonical(natural)))
    return check_structural(where, x, getattr(kind, name)(x, natural))


def _is_in_the_type(kind: ArrayType, x: Any, natural: Any) -> bool:
    """Whether a tangent has the fields of `x`: then J⁺ of an injective linear type relabels it."""
    if type(natural) is not type(x) or not (kind.is_linear(x) and kind.is_injective(x)):
        return False
    model = ask.without_promise(x)
    if jax.tree.structure(natural) != jax.tree.structure(model):
        return False
    pairs = zip(jax.tree.leaves(model), jax.tree.leaves(natural), strict=True)
    return all(np.shape(p) == np.shape(t) if is_inexact(p) else p is t for p, t in pairs)


def fit_structural(where: str, x: Any, structural: Any) -> Any:
    """A structural (co)tangent with exactly the primal's tree, shapes and dtypes."""
    check_structural(where, x, structural)
    return jax.tree.map(lambda p, t: fit_leaf(where, p, t), x, structural)


def check_structural(where: str, x: Any, structural: Any) -> Any:
    """Raise `CotangentError` unless the tree and shapes are those of the primal."""
    expected, got = jax.tree.structure(x), jax.tree.structure(structural)
    if expected != got:
        raise CotangentError(
            message(
                f"{where}: the structural (co)tangent has the wrong tree.",
                f"expected: {expected}",
                f"got: {got}",
                hint="it is an instance of the primal's class, with (co)tangents as fields.",
            )
        )
    for path, (p, t) in enumerate(
        zip(jax.tree.leaves(x), jax.tree.leaves(structural), strict=True)
    ):
        if np.shape(p) != np.shape(t):
            raise CotangentError(
                f"{where}: leaf {path} must have shape {np.shape(p)}, got {describe(t)}."
            )
    return structural


# -- what users ask for ---------------------------------------------------------------------------


def natural(x: Any, structural_ct: Any) -> Any:
    """The natural cotangent of a structural one: the matrix-like gradient that people mean.

    **Returns:** the same type for linear types, factored or dense otherwise; dense for dense.
    `natural(x, c)` is `pullback_of_restructure(x)(c)`, with its cost and errors.
    """
    return pullback_of_restructure(x)(structural_ct)


def structural(x: Any, natural_ct: Any) -> Any:
    """The structural cotangent of a natural one: what JAX carries and optimisers add.

    `structural(x, y)` is `pullback_of_destructure(x)(y)`, with its cost and errors.
    """
    return pullback_of_destructure(x)(natural_ct)


def project(x: Any, dense: Any) -> Any:
    """The orthogonal projection Π = J J⁺ of an array on the tangent space of `x`'s type at `x`.

    **Arguments:** `dense`, dense or structured, of the shape of `x`. **Cost:** J⁺, then J.
    **Raises:** `CotangentError` if the shapes differ.
    """
    return pushforward_of_destructure(x)(pushforward_of_restructure(x)(dense))


def is_visible(x: Any, structural_ct: Any, *, tolerance: float | None = None) -> jax.Array:
    """Whether a structural cotangent came through the array: `w̄ = Jᵀ J⁺ᵀ w̄`.

    **Returns:** a scalar boolean array (it works under `jit`). Always true for dense arrays.
    """
    if array_type(x) is None:
        return jnp.asarray(True)
    back = pullback_of_destructure(x)(pullback_of_restructure(x)(structural_ct))
    pairs = [
        (b, c)
        for p, b, c in zip(*map(jax.tree.leaves, (x, back, structural_ct)), strict=True)
        if is_inexact(p)
    ]
    if not pairs:
        return jnp.asarray(True)
    missing = sum(jnp.sum(jnp.abs(b - c) ** 2) for b, c in pairs)
    whole = sum(jnp.sum(jnp.abs(c) ** 2) for _, c in pairs)
    eps = max(float(jnp.finfo(c.dtype).eps) for _, c in pairs)
    return jnp.asarray(missing <= (tolerance or eps**0.5) ** 2 * whole)
