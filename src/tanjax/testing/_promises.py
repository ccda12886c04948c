"""Promises of an implementation besides its numbers: definite outputs, and its memory.

A result with `definite=True` sends later calls to Cholesky, which gives nan or a wrong number if
the promise is broken. A rule that forms the n-by-n cotangent of a matrix that stores n numbers is
right and useless. No derivative of a small case shows either fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays, registry
from tanjax._errors import NoRuleError
from tanjax._jaxpr_types import OpenJaxpr
from tanjax._jaxprs import all_equations
from tanjax._typing import Function
from tanjax.arrays import AbstractArray

from ._coordinates import moves
from ._problem import Problem
from ._record import Recorder
from ._units import numbers


def check_promises(recorder: Recorder, p: Problem, points: PyTree) -> None:
    """Check that outputs that promise to be positive definite are: here, nearby, and negated.

    The sign changes only in arguments that make no such promise themselves.
    """
    claims = [getattr(x, "definite", False) for x in p.structured_outputs]
    if not any(claims):
        return
    flipped = [
        a
        if any(getattr(x, "definite", False) for x in _structured(a))
        else jax.tree.map(lambda leaf: -leaf if moves(leaf) else leaf, a)
        for a in p.args
    ]
    for how, args in (
        ("", p.args),
        (" nearby", p.unpack(points[0])),
        (" with the signs of other arguments changed", flipped),
    ):
        for x in _structured(p.call(*args)):
            if getattr(x, "definite", False):
                dense = np.asarray(arrays.destructure(numbers(x)))
                recorder.holds(
                    "promises", f"the result says `definite=True`, and is not{how}.",
                    bool(np.all(np.linalg.eigvalsh(dense) > 0)), f"got: {dense.tolist()}",
                )  # fmt: skip


def _structured(tree: PyTree) -> list[PyTree]:
    leaves = jax.tree.leaves(tree, is_leaf=arrays.is_structured)
    return [x for x in leaves if arrays.is_structured(x)]


# -- memory ----------------------------------------------------------------------------------------


def check_scratch(recorder: Recorder, p: Problem) -> None:
    """Check that a rule forms no dense cotangent where AD of the implementation forms none."""
    strip = numbers if p.op.strips(p.args) else lambda tree: tree
    args = strip(tuple(p.args))
    resolution = p.op.resolve(args, p.static)
    if resolution.rule is None:
        return
    wanted = {i: s for i in p.moving if (s := _avoidable(p, args, i)) is not None}
    if not wanted:
        return

    def run(args: Sequence[PyTree]) -> PyTree:
        def primal(*some: PyTree) -> PyTree:
            full = list(args)
            for i, a in zip(p.moving, some, strict=True):
                full[i] = a
            return resolution.primal(*full)

        out, pullback = jax.vjp(primal, *(args[i] for i in p.moving))
        return pullback(_ones(out))

    by_rule, by_ad = _shapes_by_rule(resolution, args), traced_shapes(run, args)
    for i, (m, n) in wanted.items():
        formed = {(m, n), (n, m)} & by_rule - by_ad
        what, hint = _who_forms(resolution, args, {(m, n), (n, m)}) if formed else ("", "")
        recorder.holds(
            "memory", f"{what}: a dense {m}x{n} array, as large as {p.names[i]}.", not formed,
            "AD of the implementation does without.",
            hint=f"{hint}; of an implementation that needs no rule say `differentiate=True`.",
        )  # fmt: skip


def _who_forms(
    resolution: registry.Resolution, args: Sequence[PyTree], shapes: set[tuple[int, ...]]
) -> tuple[str, str]:
    """Name the maker of the array, and a remedy: a default of the type, the rule, or its Jᵀ."""
    try:
        with arrays.densify("error"):
            _shapes_by_rule(resolution, args)
    except NoRuleError as error:
        query, asked = str(error).splitlines()[0].split(": ")[:2]
        kind = asked.split("[")[0]
        on_type = hasattr(AbstractArray, query)
        return f"the rule needs `{query}` of {kind}, which has none and forms it", (
            f"define `{query}` on the type" if on_type else f"register one for {kind}"
        )
    if shapes & traced_shapes(lambda args: _natural_by_rule(resolution, args), args):
        return "the rule forms it", "give `tj.Outer(left, right)`, or another structured cotangent"
    return "`pullback_of_destructure` of the type forms it, of what the rule gives", (
        "ask the cotangent for what the type stores, as `.diagonal()` and `.entries_at(...)`"
    )


def _natural_by_rule(resolution: Any, args: Sequence[PyTree]) -> PyTree:
    """Return the natural cotangents of the rule, before any type takes them."""
    out, pullback = resolution.rule.function(*args, **resolution.statics)
    return pullback(_ones(out))


def _avoidable(p: Problem, args: Sequence[PyTree], i: int) -> tuple[int, int] | None:
    """Return the shape of a matrix that stores less than its entries, if no other array has it."""
    a = args[i]
    if not isinstance(a, AbstractArray) or a.ndim != 2 or min(a.shape) < 2:
        return None
    if sum(np.size(leaf) for leaf in jax.tree.leaves(a)) >= a.size:
        return None
    shapes = {np.shape(leaf)[-2:] for leaf in jax.tree.leaves((args, p.out_template))}
    m, n = a.shape
    return None if {(m, n), (n, m)} & shapes else (m, n)


def _shapes_by_rule(
    resolution: registry.Resolution, args: Sequence[PyTree]
) -> set[tuple[int, ...]]:
    def run(args: Sequence[PyTree]) -> PyTree:
        out, pullback = resolution.structural_rule(*args)
        return pullback(_ones(out))

    return traced_shapes(run, args)


def _ones(out: PyTree) -> PyTree:
    return jax.tree.map(
        lambda v: jnp.ones_like(v) if moves(v) else np.zeros(np.shape(v), jax.dtypes.float0), out
    )


def traced_shapes(run: Function, args: PyTree) -> set[tuple[int, ...]]:
    """Return the last two axes of every floating array that a program on these arguments makes."""
    leaves, tree = jax.tree.flatten(args)
    places = [k for k, leaf in enumerate(leaves) if moves(leaf)]

    def of_leaves(*some: PyTree) -> list[PyTree]:
        full = list(leaves)
        for k, leaf in zip(places, some, strict=True):
            full[k] = leaf
        return [v for v in jax.tree.leaves(run(tree.unflatten(full))) if moves(v)]

    return set(_shapes(jax.make_jaxpr(of_leaves)(*(leaves[k] for k in places)).jaxpr))


def _shapes(jaxpr: OpenJaxpr) -> Iterator[tuple[int, ...]]:
    """Yield the last two axes of every floating array that a program makes."""
    for v in (v for equation in all_equations(jaxpr) for v in equation.outvars):
        if getattr(v.aval, "ndim", 0) >= 2 and jnp.issubdtype(v.aval.dtype, jnp.inexact):
            yield tuple(v.aval.shape[-2:])
