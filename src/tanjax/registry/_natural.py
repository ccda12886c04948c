"""Conversions between JAX's structural (co)tangents and the natural ones of a rule.

A rule is matrix algebra on natural (co)tangents; JAX passes and expects structural ones.
`wrap_natural_pullback` puts the conversions around a natural pullback and checks its result leaf by
leaf. Without the check, JAX would broadcast a bare array to every leaf of a pytree and silently
pass on a wrong float width.

Sharp edge: these checks do not find a wrong *value*; `tj.testing.check_operation` does.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays
from tanjax._compat import float0, no_tangent
from tanjax._errors import CotangentError, UnitError, describe, message
from tanjax._typing import Function

Kind = Literal["natural", "structural"]


@dataclasses.dataclass(frozen=True)
class Convention:
    """The kind of (co)tangent that a rule uses per argument and output, and its conjugation."""

    name: str = "rule"
    cotangents: tuple[Kind, ...] | None = None
    output: Kind = "natural"
    chainrules: bool = False

    def kind(self, i: int) -> Kind:
        """Return the kind of cotangent for argument `i`."""
        return self.cotangents[i] if self.cotangents and i < len(self.cotangents) else "natural"


def wrap_natural_pullback(
    natural_pullback: Function, out: PyTree, *args: PyTree, **kwargs: PyTree
) -> Function:
    """Turn a natural pullback into the structural pullback that AD would have.

    **Arguments:** `natural_pullback(out_bar)`: from the natural cotangent of `out` (same tree as
    `out`) to one natural cotangent per argument (a tuple; for a single argument also the bare
    value; `None` for no dependence). `out`, `*args`: the primal output and arguments, arrays of
    any type, scalars, pytrees, `None`, integers, callables. With keyword arguments the pullback
    ends its tuple with a dictionary of their cotangents (those left out get zero).

    **Returns:** a function from the structural cotangent of `out` to a tuple of structural
    cotangents of `args` (with keyword arguments, followed by a dictionary).

    **Raises:** `CotangentError` when the pullback returns a wrong count, tree, shape or dtype.

    **Warns:** `HiddenCotangentWarning`, not under `jit`, if the cotangent of `out` has a part that
    no natural cotangent can express. That part is dropped: a function that reads `Scaled.factor` of
    `out` has another gradient by AD. An operation uses AD there (`hidden="ad"`).

    **References:** the recipe of ChainRulesCore.jl pull request 449.
    """
    name = getattr(natural_pullback, "__qualname__", "natural_pullback").split(".")[-1]
    pullback = structural_pullback(Convention(name), natural_pullback, out, args, kwargs)

    def warned(out_bar: PyTree) -> PyTree:
        bars = pullback(out_bar)
        warn = functools.partial(arrays.warn_if_hidden, what="cotangent")
        jax.tree.map(warn, out, out_bar, is_leaf=arrays.is_structured)
        return bars

    return warned


def structural_pullback(
    how: Convention,
    natural_pullback: Function,
    out: PyTree,
    args: Sequence[PyTree],
    kwargs: dict[str, PyTree],
    names: Sequence[str] = (),
) -> Function:
    """As `wrap_natural_pullback`, with a convention and argument names for messages."""
    labels = [names[i] if i < len(names) else f"argument {i}" for i in range(len(args))]

    def pullback(out_bar: PyTree, speak: PyTree = None) -> PyTree:
        arrays.check_structural(f"{how.name}: cotangent of the output", out, out_bar)
        out_bar = in_jax(out_bar)
        if how.output == "structural":
            speak = out_bar
        elif speak is None:
            speak = to_natural(out, out_bar)
        bars = natural_pullback(_conj(speak) if how.chainrules else speak)
        bars, keyword_bars = _split(how, bars, len(args), kwargs)
        if how.chainrules:
            bars, keyword_bars = _conj(bars), _conj(keyword_bars)
        done = tuple(
            to_structural(f"{how.name}: cotangent of {label}", how.kind(i), a, b)
            for i, (label, a, b) in enumerate(zip(labels, args, bars, strict=True))
        )
        if not kwargs:
            return done
        return *done, {
            k: to_structural(f"{how.name}: cotangent of {k}", "natural", v, keyword_bars.get(k))
            for k, v in kwargs.items()
        }

    return pullback


def structural_pushforward(
    how: Convention, natural_pushforward: Function, out: PyTree, args: Sequence[PyTree]
) -> Function:
    """Return the structural pushforward of a natural one: J⁺ after it, J before it."""

    def natural(x: PyTree, t: PyTree) -> PyTree:
        return arrays.pushforward_of_destructure(x)(t) if arrays.is_structured(x) else t

    def structural(o: PyTree, t: PyTree) -> PyTree:
        if arrays.is_structured(o):
            return arrays.pushforward_of_restructure(o)(t)
        return _fit_dense(f"{how.name}: tangent of the output", o, t)

    def pushforward(*tangents: PyTree) -> PyTree:
        given = (
            jax.tree.map(natural, a, in_jax(t), is_leaf=arrays.is_structured)
            for a, t in zip(args, tangents, strict=True)
        )
        leaf = lambda v: arrays.is_structured(v) or v is None
        return jax.tree.map(structural, out, natural_pushforward(*given), is_leaf=leaf)

    return pushforward


def in_jax(tree: PyTree) -> PyTree:
    """Replace NumPy arrays in a tree by JAX arrays: NumPy's have no `.at` for a rule."""

    def one(x: PyTree) -> PyTree:
        is_numpy = isinstance(x, np.ndarray | np.generic) and x.dtype != float0
        return jnp.asarray(x) if is_numpy else x

    return jax.tree.map(one, tree)


def _split(
    how: Convention, bars: PyTree, count: int, kwargs: dict[str, PyTree]
) -> tuple[tuple[PyTree, ...], dict[str, PyTree]]:
    """Return the cotangents of positional and of keyword arguments, after checking their number."""
    keyword_bars: dict[str, PyTree] = {}
    if kwargs and isinstance(bars, tuple) and bars and isinstance(bars[-1], dict):
        bars, keyword_bars = bars[:-1], bars[-1]
    if not isinstance(bars, tuple) or hasattr(bars, "_fields"):
        bars = (bars,)
    if len(bars) != count:
        is_list = len(bars) == 1 and isinstance(bars[0], list)
        raise CotangentError(
            message(
                f"{how.name}: the pullback must return one cotangent per argument, in a tuple.",
                f"expected: {count}",
                f"got: a list of {len(bars[0])}" if is_list else f"got: {len(bars)}",
                hint="return a tuple, with `None` where the output does not depend on an argument.",
            )
        )
    return bars, keyword_bars


def to_natural(out: PyTree, out_bar: PyTree) -> PyTree:
    """Convert every structured array in an output cotangent to its natural cotangent."""
    pull = lambda o, c: arrays.pullback_of_restructure(o)(c) if arrays.is_structured(o) else c
    return jax.tree.map(pull, out, out_bar, is_leaf=arrays.is_structured)


def to_structural(where: str, kind: Kind, x: PyTree, bar: PyTree) -> PyTree:
    """Return the structural cotangent of an argument, with exactly its tree, shapes and dtypes."""
    if isinstance(x, str) or (callable(x) and jax.tree_util.all_leaves([x])):
        return None  # a static argument
    if bar is None:
        return arrays.zero_tangent(x)
    if kind == "structural":
        return arrays.fit_structural(where, x, bar)
    if arrays.is_structured(x):
        return _located(where, lambda: arrays.pullback_of_destructure(x)(bar))
    if jax.tree_util.all_leaves([x]):
        return _fit_dense(where, x, bar)
    return _tree_to_structural(where, kind, x, bar)


def _tree_to_structural(where: str, kind: Kind, x: PyTree, bar: PyTree) -> PyTree:
    children, treedef = jax.tree.flatten(x, is_leaf=lambda v: v is not x)
    bars, bar_tree = jax.tree.flatten(bar, is_leaf=lambda v: v is not bar)
    if treedef != bar_tree:
        raise CotangentError(
            message(
                f"{where}: the cotangent has the wrong tree.",
                f"expected: {treedef}",
                f"got: {describe(bar)}"
                if bar_tree.num_leaves == 1 and bar_tree.num_nodes == 1
                else f"got: {bar_tree}",
                hint="return a tree like the argument, with one natural cotangent per array.",
            )
        )
    done = [to_structural(where, kind, c, b) for c, b in zip(children, bars, strict=True)]
    return jax.tree.unflatten(treedef, done)


def _fit_dense(where: str, x: PyTree, bar: PyTree) -> PyTree:
    if not arrays.is_inexact(x):
        return no_tangent(x)
    bar = arrays.without_unit(where, x, bar)
    if arrays.is_structured(bar):
        bar = arrays.destructure(bar)
    elif not jax.tree_util.all_leaves([bar]):
        raise CotangentError(
            f"{where}: expected one array of shape {np.shape(x)}, got {describe(bar)}."
        )
    if np.shape(bar) != np.shape(x):
        raise CotangentError(
            message(
                f"{where}: the cotangent has the wrong shape.",
                f"expected: {np.shape(x)}",
                f"got: {describe(bar)}",
                hint="it has the shape of its argument; sum over axes that were broadcast.",
            )
        )
    return arrays.fit_leaf(where, x, jnp.asarray(bar))


def _located(where: str, convert: Callable[[], PyTree]) -> PyTree:
    """Add the names of rule and argument to an error that names only the array."""
    try:
        return convert()
    except (CotangentError, UnitError) as error:
        raise type(error)(f"{where}: {error}") from None


def _conj(tree: PyTree) -> PyTree:
    return jax.tree.map(
        lambda v: jnp.conj(v) if arrays.is_inexact(v) and jnp.iscomplexobj(v) else v, tree
    )
