"""J and Jᵀ as free functions, for every array: structured, foreign, or dense.

| map | function | direction |
|---|---|---|
| J | `pushforward_of_destructure(x)` | structural tangent to natural tangent |
| Jᵀ | `pullback_of_destructure(x)` | natural cotangent to structural cotangent |

A type's own map may be sloppy about dtypes and integer leaves; these functions are not. A
structural result has exactly the tree, shapes and dtypes of the primal, or they raise. This module
imports no type, so every type can use these functions on its fields.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree, Shaped

from tanjax._compat import float0
from tanjax._errors import CotangentError, describe, message
from tanjax._typing import Arraylike, DenseArray, Factor, Natural, Primal, Structural

from .. import _queries as ask
from .._batches import batch_of, over_batches
from .._leaves import from_tangent_leaves, is_inexact, tangent_leaves
from .._table import ArrayType, array_type
from ._tangents import fit_leaf, zero_tangent


def destructure(x: Primal) -> Shaped[DenseArray, " ..."]:
    """Return the dense array that `x` stands for (the map D). **Cost:** that of `x.to_dense()`."""
    return ask.dense(x)


def pushforward_of_destructure(x: Primal) -> Callable[[Structural], Natural]:
    """Return J at `x`: a function from structural tangents to natural tangents.

    The natural tangent has the shape of `x`; it is factored or structured if the type has a closed
    form. For dense arrays J is the identity. **Cost:** by default none for a linear type, else one
    `jax.jvp` of `to_dense`.
    **Raises:** `CotangentError` if the tree or the shapes of the tangent are not those of `x`.
    """
    kind = array_type(x)
    if kind is None:
        return lambda t: t
    check = functools.partial(check_structural, "pushforward_of_destructure", x)
    if batch_of(x) and not x.has_unit:
        return lambda t: natural_of_batch(pushforward_of_destructure, x, check(t))
    return lambda t: with_pattern_of(x, kind.pushforward_of_destructure(x, check(t)))


def pullback_of_destructure(x: Primal) -> Callable[[Arraylike | None], Structural]:
    """Return Jᵀ at `x`: a function from natural cotangents to structural ones.

    A natural cotangent is dense or structured. The result has exactly the tree, shapes and dtypes
    of `x` (`float0` at integer leaves). **Cost:** closed forms read only the stored entries. The
    default is one `jax.vjp` of `apply` (for an `Outer`), `diagonal` or `total`, else of `to_dense`,
    which forms the cotangent.
    **Raises:** `CotangentError` if the shape is not that of `x`, or the dtype is narrower.
    """
    return lambda y: to_structural("pullback_of_destructure", x, y)


def with_pattern_of(x: Primal, natural: Arraylike) -> Arraylike:
    """Put the integer fields of `x`, such as a pattern, into a (co)tangent of the same class."""
    leaves = jax.tree.leaves(natural)
    if type(natural) is not type(x) or all(jnp.result_type(v) != float0 for v in leaves):
        return natural
    fields = [
        p if jnp.result_type(t) == float0 else t
        for p, t in zip(jax.tree.leaves(x), leaves, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(natural), fields)


def to_structural(name: str, x: Primal, natural: Arraylike | None) -> Structural:
    """Apply the map `name` of `x` (Jᵀ or J⁺) to a natural (co)tangent, with all checks."""
    kind = array_type(x)
    if natural is None or ask.linear_terms(natural) == ():
        return zero_tangent(x)
    natural = ask.without_unit(name, x, natural)
    ask.check_natural(f"{name}({describe(x)})", jnp.asarray(x) if kind is None else x, natural)
    if kind is None:
        return fit_leaf(name, x, ask.dense(natural))
    if batch_of(x) and not x.has_unit:
        return _structural_of_batch(name, x, natural)
    where = f"{name}({describe(x)})"
    return fit_structural(where, x, _term_by_term(where, name, kind, x, natural))


def natural_of_batch(
    convert: Callable[[Primal], Callable[[Structural], Natural]], x: Primal, structural: Structural
) -> Natural:
    """Apply `convert(x)(structural)`, J or J⁺ᵀ, to every array of a batch."""
    batch = batch_of(x)
    one = lambda x, leaves: convert(x)(from_tangent_leaves(x, leaves))
    found = over_batches("natural", one, (x, tangent_leaves(x, structural)), (batch, batch))
    return found.replace(size_=ask.shape(x)) if ask.linear_terms(found) == () else found


def _structural_of_batch(name: str, x: Primal, natural: Arraylike) -> Structural:
    """Apply `to_structural` to every array of a batch."""
    batch = batch_of(x)
    if batch_of(natural) != batch:
        natural = ask.dense(natural)
    one = lambda x, natural: tangent_leaves(x, to_structural(name, x, natural))
    return from_tangent_leaves(x, over_batches(name, one, (x, natural), (batch, batch)))


def _term_by_term(
    where: str, name: str, kind: ArrayType, x: Primal, natural: Arraylike
) -> Structural:
    """Apply a linear map term by term to a linear combination, such as a `Sum`."""
    terms = ask.linear_terms(natural)
    if terms is not None:
        moved = [
            _times(x, factor, _term_by_term(where, name, kind, x, term)) for factor, term in terms
        ]
        add = lambda p, *t: sum(t[1:], t[0]) if is_inexact(p) else t[0]
        return jax.tree.map(add, x, *moved) if moved else zero_tangent(x)
    if name == "pushforward_of_restructure" and _is_in_the_type(kind, x, natural):
        leaves = tangent_leaves(ask.without_promise(x), ask.canonical(natural))
        return from_tangent_leaves(x, leaves)
    if ask.is_dense(natural) and jnp.iscomplexobj(natural) and _is_real(kind, x):
        natural = jnp.real(natural)  # a real array pairs with the real part only
    return check_structural(where, x, getattr(kind, name)(x, natural))


def _is_real(kind: ArrayType, x: Primal) -> bool:
    return ask.is_real(x if kind.is_own else jax.eval_shape(kind.destructure, x))


def _times(x: Primal, factor: Factor | None, structural: Structural) -> Structural:
    """Multiply a structural (co)tangent of `x` by a factor, `None` for 1."""
    if factor is None:
        return structural
    return jax.tree.map(lambda p, t: t * factor if is_inexact(p) else t, x, structural)


def _is_in_the_type(kind: ArrayType, x: Primal, natural: Arraylike) -> bool:
    """True if a tangent has the fields of `x`: then J⁺ of an injective linear type relabels it."""
    if type(natural) is not type(x) or not (kind.is_linear(x) and kind.is_injective(x)):
        return False
    model = ask.without_promise(x)
    if jax.tree.structure(natural) != jax.tree.structure(model):
        return False
    pairs = zip(jax.tree.leaves(model), jax.tree.leaves(natural), strict=True)
    return all(np.shape(p) == np.shape(t) if is_inexact(p) else p is t for p, t in pairs)


def fit_structural(where: str, x: PyTree, structural: Structural) -> Structural:
    """Cast a structural (co)tangent to the primal's dtypes, after a check of tree and shapes."""
    check_structural(where, x, structural)
    return jax.tree.map(lambda p, t: fit_leaf(where, p, t), x, structural)


def check_structural(where: str, x: PyTree, structural: Structural) -> Structural:
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
