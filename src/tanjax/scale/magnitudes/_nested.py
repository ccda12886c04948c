"""Run equations with nested jaxprs: calls, branches, loops.

`run_nested` runs the graph of the callee, the branch taken or the body on the operands. Its values
are those of the scale graph, so their magnitudes are the union over all runs.

    run_nested(run, node, operands)  # of a `cond`: one branch; the other keeps magnitude None

Sharp edges: `shard_map` and kernels work on parts of arrays and are not entered. Unknown operands
(None) are allowed: results that do not depend on them are known afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tanjax._jaxpr_types import Aval, JaxEquation
from tanjax.jaxprs import KINDS, Branches, Kind, Loop, Nested

from ..graph._graph import Node, ScaleGraph
from ..numbers._spread import choose, is_spread, parts_of
from ..numbers._wide import Apart, Wide, align, wide
from . import _loops
from ._evaluation import AbstractRun, Numbers


class _Runs(Nested["Wide | None"]):
    """The meaning of a node with nested graphs: numbers in, numbers out."""

    def __init__(self, run: AbstractRun, node: Node) -> None:
        self.run, self.node = run, node

    def call(self, eqn: JaxEquation, program: ScaleGraph, values: Numbers) -> Numbers:
        return self.run.body(program, values)

    def cond(self, eqn: JaxEquation, branches: Branches) -> Numbers:
        programs, index, operands = branches
        if index is None:
            return [None] * len(self.node.outputs)
        taken = min(max(int(index.array), 0), len(programs) - 1)
        return self.run.body(programs[taken], operands)

    def scan(self, eqn: JaxEquation, loop: Loop) -> Numbers:
        node, length, carries = self.node, loop.length or 0, len(loop.carry)
        order = range(length)[:: -1 if loop.reverse else 1]
        stacked: list[Numbers] = []

        def step(carry: Numbers, i: int) -> Numbers | None:
            row = [None if x is None else _row(x, order[i]) for x in loop.rows]
            out = self.run.body(loop.body, [*loop.fixed, *carry, *row])
            if out and all(x is None for x in out):
                return None
            stacked.append(out[carries:])
            return out[:carries]

        done = _loops.run_loop(self.run, node, loop.carry, step, length)
        if done is None:
            return [None] * len(node.outputs)
        missing = length - len(stacked)
        if missing and stacked:
            stacked += [stacked[-1]] * missing
        if loop.reverse:
            stacked.reverse()
        columns = zip(*stacked, strict=True) if stacked else [()] * (len(node.outputs) - carries)
        avals = [v.aval for v in node.outputs[carries:]]
        return [*done, *itertools.starmap(_stack, zip(columns, avals, strict=True))]

    def while_(self, eqn: JaxEquation, loop: Loop) -> Numbers:
        run, node = self.run, self.node
        stopped, simulated = False, run.mode == "stored"

        def step(carry: Numbers, i: int) -> Numbers | None:
            nonlocal stopped
            (more,) = run.body(loop.test, [*loop.tested, *carry])
            if more is None:
                return None
            if not np.any(more.array):
                stopped = True
                return carry
            out = run.body(loop.body, [*loop.fixed, *carry])
            if more.array.ndim and not np.all(more.array):  # batched: finished rows keep theirs
                out = [_where(more.array, new, old) for new, old in zip(out, carry, strict=True)]
            # On steps 1, 2, 4, 8, …: a state that does not change once never changes again.
            looks = simulated and not i & (i - 1)
            if looks and all(_equal(carry[j], out[j]) for j in tested_by(node)):
                run.never_ends(node)
                return None
            return out

        done = _loops.run_loop(run, node, loop.carry, step, None, lambda: stopped)
        return [None] * len(node.outputs) if done is None else done


def _row(x: Wide, i: int) -> Wide:
    return Wide(x.array[i], x.exponent[i] if is_spread(x) else x.exponent)


def _stack(column: Sequence[Any], aval: Aval) -> Wide | None:
    if not column:
        return wide(np.zeros(aval.shape, aval.dtype))
    if any(x is None for x in column):
        return None
    try:
        arrays, power = align(list(column))
        return Wide(np.stack(arrays), power)
    except Apart:
        pairs = [parts_of(x) for x in column]
        return Wide(np.stack([f for f, _ in pairs]), np.stack([p for _, p in pairs]))


def tested_by(node: Node) -> set[int]:
    """Return the places in the carry of a `while` loop on which its test depends, now or later."""
    loop, found = node.loop, set[int]()
    new = _read(loop.test, len(loop.tested), {0})
    while not new <= found:
        found |= new
        new = _read(loop.body, len(loop.fixed), found)
    return found


def _read(graph: ScaleGraph, kept: int, results: set[int]) -> set[int]:
    """Return the places, among the arguments after the first `kept`, that some results need."""
    needed = {graph.outputs[i].value for i in results}
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(use.value for use in node.uses)
    return {i for i, value in enumerate(graph.inputs[kept:]) if value in needed}


def _equal(a: Wide | None, b: Wide | None) -> bool:
    if a is None or b is None:
        return False
    return np.array_equal(a.array, b.array) and np.array_equal(a.exponent, b.exponent)


def _where(mask: np.ndarray, new: Wide | None, old: Wide | None) -> Wide | None:
    """Select entries of one of two arrays, by a mask over their leading axes."""
    if new is None or old is None:
        return None
    mask = mask.reshape((*mask.shape, *(1 for _ in new.array.shape[mask.ndim :])))
    try:
        arrays, power = align([new, old])
        return Wide(np.where(mask, *arrays), power)
    except Apart:
        return choose(mask, old, new)


def can_run(primitive: str) -> bool:
    """True if an equation of this primitive has nested jaxprs that can be run."""
    return KINDS.get(primitive) not in (None, Kind.OPAQUE, Kind.DEVICES)


def run_nested(run: AbstractRun, node: Node, operands: Numbers) -> Numbers:
    """Return the results of a node with nested graphs."""
    return _Runs(run, node).enter(node.equation, node.graphs, operands)
