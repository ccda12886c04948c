"""Run equations with nested jaxprs: calls, branches, loops.

A runner runs the graph of the callee, the branch taken or the body on the operands. Its values are
those of the scale graph, so their magnitudes are the union over all runs.

    NESTED[Kind.BRANCH](run, node, operands)  # runs one branch; the other keeps magnitude None

Sharp edges: `shard_map` and kernels work on parts of arrays and are not entered. Unknown operands
(None) are allowed: results that do not depend on them are known afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tanjax import _compat
from tanjax._jaxpr_types import Aval
from tanjax.jaxprs import KINDS, Kind, given

from ..graph._graph import Node, ScaleGraph
from ..numbers._spread import choose, is_spread, parts_of
from ..numbers._wide import Apart, Wide, align, wide
from . import _loops
from ._evaluation import AbstractRun, Numbers

Runner = Callable[[AbstractRun, Node, Numbers], Numbers]


def _call(run: AbstractRun, node: Node, xs: Numbers) -> Numbers:
    return run.body(node.graphs[0], given(node.equation, xs)[0])


def _cond(run: AbstractRun, node: Node, xs: Numbers) -> Numbers:
    if xs[0] is None:
        return [None] * len(node.outputs)
    taken = min(max(int(xs[0].array), 0), len(node.graphs) - 1)
    return run.body(node.graphs[taken], xs[1:])


def _scan(run: AbstractRun, node: Node, xs: Numbers) -> Numbers:
    _, fixed, carry, rows = _compat.Loop.of(node.params).cut(xs)
    carries = len(carry)
    length = node.params["length"]
    order = range(length - 1, -1, -1) if node.params["reverse"] else range(length)
    stacked: list[Numbers] = []

    def step(carry: Numbers, i: int) -> Numbers | None:
        row = [None if x is None else _row(x, order[i]) for x in rows]
        out = run.body(node.graphs[0], [*fixed, *carry, *row])
        if out and all(x is None for x in out):
            return None
        stacked.append(out[carries:])
        return out[:carries]

    done = _loops.run_loop(run, node, carry, step, length)
    if done is None:
        return [None] * len(node.outputs)
    missing = length - len(stacked)
    if missing and stacked:
        stacked += [stacked[-1]] * missing
    if node.params["reverse"]:
        stacked.reverse()
    columns = zip(*stacked, strict=True) if stacked else [()] * (len(node.outputs) - carries)
    avals = [v.aval for v in node.outputs[carries:]]
    return [*done, *itertools.starmap(_stack, zip(columns, avals, strict=True))]


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


def _while(run: AbstractRun, node: Node, xs: Numbers) -> Numbers:
    tested, fixed, carry, _ = _compat.Loop.of(node.params).cut(xs)
    test, body = node.graphs
    stopped, simulated = False, run.mode == "stored"

    def step(carry: Numbers, i: int) -> Numbers | None:
        nonlocal stopped
        (more,) = run.body(test, [*tested, *carry])
        if more is None:
            return None
        if not np.any(more.array):
            stopped = True
            return carry
        out = run.body(body, [*fixed, *carry])
        if more.array.ndim and not np.all(more.array):  # batched: finished rows keep their state
            out = [_where(more.array, new, old) for new, old in zip(out, carry, strict=True)]
        # Checked on steps 1, 2, 4, 8, …: a state that does not change once never changes again.
        if simulated and not i & (i - 1) and all(_equal(carry[j], out[j]) for j in tested_by(node)):
            run.never_ends(node)
            return None
        return out

    done = _loops.run_loop(run, node, carry, step, None, lambda: stopped)
    return [None] * len(node.outputs) if done is None else done


def tested_by(node: Node) -> set[int]:
    """Return the places in the carry of a `while` loop on which its test depends, now or later."""
    test, body = node.graphs
    loop = _compat.Loop.of(node.params)
    new, found = _read(test, loop.tested, {0}), set[int]()
    while not new <= found:
        found |= new
        new = _read(body, loop.fixed, found)
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


NESTED: dict[Kind | None, Runner] = {Kind.SCAN: _scan, Kind.WHILE: _while, Kind.BRANCH: _cond}


def runner_of(primitive: str) -> Runner | None:
    """Return the runner of an equation with nested jaxprs; None if it cannot be run."""
    kind = KINDS.get(primitive)
    return None if kind in (None, Kind.OPAQUE, Kind.DEVICES) else NESTED.get(kind, _call)
