"""Mutants: run the author's own pullback with planted errors, and require the check to fail.

A comparison can be blind: to a transposition where everything is symmetric, to a rule that never
runs, to a term that vanishes here. So the registered rule is run as JAX runs it, with the
cotangent of one argument at a time zeroed, negated, scaled by `1 + 10 tolerance` and transposed.
Each time the structural cotangent must change by more than the tolerance. Two numbers per argument
select the mutant, so that one compiled program serves all of them.

Sharp edge: a transposition that no inputs can show (into a diagonal, a symmetric matrix) is no
fault; it counts only if inputs nearby show it.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree

from tanjax import arrays
from tanjax._typing import DenseArray, Function

from ._coordinates import moves
from ._modes import compiled
from ._problem import Problem
from ._record import Recorder, relative_error
from ._units import numbers

STAGE = "sensitivity"


def check_sensitivity(
    recorder: Recorder, p: Problem, point: PyTree, near: PyTree, zero: PyTree, tolerance: float
) -> None:
    """Run the rule's mutants at a point; `zero` names arguments without a derivative."""
    program = _mutated(p)
    if program is None:
        return
    run: Function = compiled(program)
    honest = np.zeros((len(p.args) + 1, 2)) + np.array([1.0, 0.0])
    right, right_near = np.asarray(run(point, honest)), np.asarray(run(near, honest))
    mutants = {"zeroed": (0.0, 0.0), "negated": (-1.0, 0.0), "transposed": (0.0, 1.0),
               f"scaled by 1 + {10 * tolerance:.0e}": (1 + 10 * tolerance, 0.0)}  # fmt: skip
    for i in p.moving:
        where = p.part(i)
        if p.names[i] in zero or not np.any(right[where]):
            continue
        for name, numbers_ in mutants.items():
            change = honest.copy()
            change[i] = numbers_
            gap = relative_error(np.asarray(run(point, change))[where], right[where])
            if name == "transposed" and gap <= tolerance:
                there = np.asarray(run(near, change))[where]
                if relative_error(there, right_near[where]) <= tolerance:
                    continue  # no input can show it
            recorder.holds(
                STAGE, f"the check passes when the rule's cotangent of {p.names[i]} is {name}.",
                gap > tolerance, f"relative change: {gap:.1e}, tolerance: {tolerance:.1e}",
                hint="choose inputs without accidental symmetry.",
            )  # fmt: skip


def _mutated(p: Problem) -> Function | None:
    """Return `Jᵀ ȳ` by the changed rule; `None` where no natural rule runs."""
    # A unit signature strips quantities before the rule, so that the rule gets the numbers.
    strip = numbers if p.op.strips(p.args) else lambda tree: tree
    resolution = p.op.resolve(strip(p.args), p.static)
    registered = resolution.rule
    if registered is None:
        return None
    fixed = [i for i, a in enumerate(p.args) if callable(a) or isinstance(a, str)]

    def run(point: PyTree, change: DenseArray) -> PyTree:
        # A rule whose natural pullback gives changed cotangents.
        def mutated_rule(*args: PyTree, **static: PyTree) -> tuple[PyTree, Function]:
            out, pullback = registered.function(*args, **static)

            def mutated_pullback(out_bar: PyTree) -> PyTree:
                bars = pullback(out_bar)
                many = isinstance(bars, tuple) and not hasattr(bars, "_fields")
                new = [
                    _change(b, change[i], registered.convention.kind(i) == "natural")
                    for i, b in enumerate(bars if many else (bars,))
                ]
                return tuple(new) if many else new[0]

            return out, mutated_pullback

        function = mutated_rule
        rule = dataclasses.replace(registered, function=function)
        new = dataclasses.replace(resolution, rule=rule, push=None, checked=[rule])
        args = strip(tuple(p.unpack(point)))
        f = new.differentiable({i: args[i] for i in fixed})
        free = [i for i in range(len(args)) if i not in fixed]

        def read(*some: PyTree) -> Array:
            rest = dict(zip(free, some, strict=True))
            out = f(*(rest[i] for i in free))
            leaves = jax.tree.leaves(jax.tree.map(_dense, out, is_leaf=arrays.is_structured))
            flat = [jnp.concatenate([v.real.ravel(), v.imag.ravel()]) for v in leaves if moves(v)]
            return jnp.concatenate(flat)

        out, pull = jax.vjp(read, *(args[i] for i in free))
        bars = dict(zip(free, pull(jnp.cos(jnp.arange(out.size))), strict=True))
        return jnp.concatenate([_flat(p, i, bars[i]) for i in p.moving])

    return run


def _flat(p: Problem, i: int, bar: PyTree) -> PyTree:
    """Return the dual coordinates of one argument, whose quantities may be stripped."""
    leaves = [leaf for leaf in jax.tree.leaves(bar) if moves(leaf)]
    blocks = [b for b in p.inputs[i].blocks if b is not None]
    parts = []
    for leaf, block in zip(leaves, blocks, strict=True):
        parts += [leaf.real.ravel(), -leaf.imag.ravel()] if block.is_complex else [leaf.ravel()]
    return jnp.concatenate(parts)


def _change(bar: PyTree, numbers_: PyTree, natural: bool) -> PyTree:
    keep, flip = numbers_

    def leaf(x: PyTree) -> PyTree:
        x = _dense(x) if natural else x
        if not moves(x):
            return x
        square = jnp.ndim(x) == 2 and x.shape[0] == x.shape[1]
        keep_, flip_ = keep.astype(x.dtype), flip.astype(x.dtype)
        return keep_ * x + flip_ * (x.T if square else x)

    return jax.tree.map(leaf, bar, is_leaf=arrays.is_structured if natural else None)


def _dense(x: PyTree) -> PyTree:
    if arrays.is_structured(x):
        return arrays.destructure(x)
    return jnp.asarray(x) if moves(x) else x
