"""J⁺ and J⁺ᵀ as free functions, for every array, and functions that combine the four maps.

| map | function | direction |
|---|---|---|
| J⁺ | `pushforward_of_restructure(x)` | natural tangent to structural tangent |
| J⁺ᵀ | `pullback_of_restructure(x)` | structural cotangent to natural cotangent |

As with J and Jᵀ (`_destructure`), a structural result has exactly the tree, shapes and dtypes of
the primal, or they raise.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Shaped

from tanjax._compat import Tracer
from tanjax._errors import HiddenCotangentWarning, describe, message, outside
from tanjax._typing import AnyArray, Arraylike, Natural, Primal, Structural

from .. import _queries as ask
from .._batches import batch_of
from .._leaves import is_inexact
from .._table import array_type, array_type_of
from ..cotangents._scaled import scaled
from ..cotangents._sum import add
from ..cotangents._zero import Zero
from ._destructure import (
    check_structural,
    natural_of_batch,
    pullback_of_destructure,
    pushforward_of_destructure,
    to_structural,
    with_pattern_of,
)


def restructure(like: Primal, dense: Arraylike) -> Primal:
    """Return the value of `like`'s type nearest to `dense`: `like + J⁺(dense - D(like))`.

    It is exact for linear types, and of first order for others.

    **Raises:** `CotangentError` if the shapes differ.
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
        step = move(add(dense, scaled(like, -1)))
    return jax.tree.map(lambda p, t: p + t if is_inexact(p) else p, like, step)


def pushforward_of_restructure(x: Primal) -> Callable[[Arraylike | None], Structural]:
    """Return J⁺ at `x`: a function from natural tangents to the least structural tangents.

    J⁺ drops a part that is not tangent to the type (see `project`). **Cost:** by default that of Jᵀ
    for an isometric type, or of a closed form of J⁺ᵀ; else conjugate gradients on JᵀJ, whose
    condition is the square of that of J.

    **Raises:** `CotangentError` if the shape is not that of `x`.
    """
    return lambda y: to_structural("pushforward_of_restructure", x, y)


def pullback_of_restructure(x: Primal) -> Callable[[Structural], Natural]:
    """Return J⁺ᵀ at `x`: a function from structural cotangents to least-norm natural ones.

    The natural cotangent has the shape of `x`: the same type for linear types, factored or dense
    otherwise. J⁺ᵀ drops a hidden part of the cotangent (see `is_visible`). **Cost:** by default
    that of J for an isometric type; else conjugate gradients on JᵀJ, whose condition is the square
    of that of J. **Raises:** `CotangentError` if the tree or the shapes are not those of `x`.
    """
    kind = array_type(x)
    if kind is None:
        return lambda t: t

    def pull(t: Structural) -> Natural:
        shape = ask.shape(x)
        if 0 in shape:
            return Zero(shape, jnp.result_type(*jax.tree.leaves(x)) if jax.tree.leaves(x) else None)
        check_structural("pullback_of_restructure", x, t)
        if batch_of(x) and not x.has_unit:
            return natural_of_batch(pullback_of_restructure, x, t)
        return with_pattern_of(x, kind.pullback_of_restructure(x, t))

    return pull


def has_exact_naturals(x: Primal) -> bool:
    """True if a closed form gives the natural cotangent of every cotangent of the fields of `x`.

    It is False if fields are hidden from the array, and if J⁺ᵀ iterates. The iteration squares the
    condition of J: in float32 it loses 1e-3 of the result at 1e3, and all of it at 1e4.
    """
    kind = array_type(x)
    if kind is None:
        return True
    if not (kind.is_injective(x) and (kind.has_closed_form or kind.is_isometric(x))):
        return False
    inner = jax.tree.leaves(x, is_leaf=lambda v: v is not x and array_type(v) is not None)
    return all(map(has_exact_naturals, inner))


# -- the public conversions -----------------------------------------------------------------------


def natural(x: Primal, structural_ct: Structural) -> Natural:
    """Return the natural cotangent of a structural one: the gradient in the shape of a matrix.

    **Returns:** the same type for linear types, factored or dense otherwise; dense for dense.
    `natural(x, c)` is `pullback_of_restructure(x)(c)`, with its cost and errors.
    """
    return pullback_of_restructure(x)(structural_ct)


def structural(x: Primal, natural_ct: Arraylike) -> Structural:
    """Return the structural cotangent of a natural one: the form for JAX and for optimisers.

    `structural(x, y)` is `pullback_of_destructure(x)(y)`, with its cost and errors.
    """
    return pullback_of_destructure(x)(natural_ct)


def project(x: Primal, dense: Shaped[AnyArray, "*shape"]) -> Shaped[AnyArray, "*shape"]:
    """Return the orthogonal projection Π = J J⁺ of an array on the tangent space at `x`.

    **Arguments:** `dense`, dense or structured, of the shape of `x`. **Cost:** J⁺, then J.
    **Raises:** `CotangentError` if the shapes differ.
    """
    return pushforward_of_destructure(x)(pushforward_of_restructure(x)(dense))


def is_visible(
    x: Primal, structural_ct: Structural, *, tolerance: float | None = None
) -> Bool[Array, ""]:
    """True if a structural cotangent came through the array: `w̄ = Jᵀ J⁺ᵀ w̄`.

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


# Compiled, because an eager call would trace the loop of the default J⁺ᵀ every time (0.3 s).
_visible = jax.jit(functools.partial(is_visible, tolerance=0.05))


def warn_if_hidden(x: Primal, structural_ct: Structural, what: str = "gradient") -> None:
    """Warn if a concrete cotangent has a part that its natural form lacks."""
    kind = array_type(x)
    leaves = jax.tree.leaves((x, structural_ct))
    if kind is None or kind.is_injective(x) or any(isinstance(v, Tracer) for v in leaves):
        return
    # The loose tolerance is for cotangents near a minimum, which are mostly rounding noise.
    visible = _visible(x, structural_ct)
    if not (isinstance(visible, Tracer) or bool(visible)):
        warnings.warn(
            message(
                f"the {what} of {describe(x)} has a part that no natural {what} can show.",
                "why: the function reads fields that the array itself does not determine.",
                hint="AD gives the whole: `jax.grad` for `tj.grad`, or no natural pullback.",
            ),
            HiddenCotangentWarning,
            stacklevel=outside(),
        )
