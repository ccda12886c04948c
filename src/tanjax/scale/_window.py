"""For which magnitudes of its inputs a plan stays right, and whether a call's inputs have them.

A plan is made from the numbers of one call. The next call has others, and must neither overflow nor
be planned again for nothing. So the inputs are moved up and down together, by as many bits as it
takes until some value leaves the range of its dtype at its exponent (`_movements`): `x * y` is
allowed half of what the range leaves, `x * 0.5` all of it. All pairs of distances are tried at
once, in one pass over the graph.

    windows(graph)  # of x * y + 1 in float32, both near 1
    # [Window(low=-60.0, high=60.0), Window(low=-60.0, high=60.0)]

Sharp edges. A value that is out of range already, without harm, does not count: it does not get
worse. Nor does a value of unknown magnitude. An input that is zero now moves nothing; if it
becomes nonzero, only the results can tell whether the plan was right. Integers are not looked at.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tanjax import _compat

from . import _range
from ._graph import Node, ScaleGraph, Value, trips
from ._measure import ANYWHERE, Window as Window, inside as inside, measure as measure
from ._movements import FAR, MOVEMENTS, Movement, farthest, known, scattered

# Distances that are tried, in bits, first none at all. A window is never narrower than the least
# (or each call would be planned), nor wider than the last.
_DISTANCES = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 45.0, 60.0)
_UP, _DOWN = np.array(list(itertools.product(_DISTANCES, _DISTANCES))).T


def windows(
    graph: ScaleGraph, dtype_of: Callable[[Value], Any] | None = None
) -> list[Window | None]:
    """Per input of a planned graph the magnitudes for which the plan stays right.

    **Arguments:** `dtype_of`: in which dtype a value is stored, if not in its own.
    None for inputs that are not floating. Costs about 10 µs per equation.
    """
    inputs = graph.inputs
    if not any(v.is_floating and known(v) for v in inputs):
        up = down = _DISTANCES[-1]
    else:
        moves = _Moves(graph, dtype_of or (lambda value: value.aval.dtype))
        with np.errstate(all="ignore"):
            moves.run(graph, [_start(value) for value in inputs])
        up, down = moves.widest()
    found = [_around(value, up, down) for value in inputs]
    return [
        _of_zero(value, found) if window is None and value.is_floating else window
        for value, window in zip(inputs, found, strict=True)
    ]


def _start(value: Value) -> Movement:
    return (_UP, _DOWN) if value.is_floating and known(value) else None


def _around(value: Value, up: float, down: float) -> Window | None:
    """The window of an input; None if it is zero, or is not floating."""
    m = value.magnitude
    if not value.is_floating or (m is not None and m.is_zero):
        return None
    return ANYWHERE if m is None else Window(m.low - down, m.high + up)


def _of_zero(value: Value, found: list[Window | None]) -> Window:
    """What an input that is zero may become: as large as the others, or near 1."""
    smallest, largest = _range.normal_range(value.aval.dtype)
    others = [w for w in found if w is not None and w != ANYWHERE]
    low, high = smallest / 4, largest / 4
    if others:
        low = min(low, float(np.median([w.low for w in others])))
        high = max(high, float(np.median([w.high for w in others])))
    return Window(low, high)


class _Moves:
    """The movements of all values, and how much room they leave at least."""

    def __init__(self, graph: ScaleGraph, dtype_of: Callable[[Value], Any]) -> None:
        self.moves: list[Movement] = [None] * len(graph.values)
        self.dtype_of = dtype_of
        self.room = np.full(_UP.shape, math.inf)
        self.is_final = True  # not in the first pass through a loop
        self.is_plain = not any(use.exponent for use in graph.uses)

    def widest(self) -> tuple[float, float]:
        """The widest pair of distances that leaves room everywhere, alike if possible."""
        fits = np.flatnonzero(self.room >= 0.0)
        size = np.minimum(_UP, _DOWN)[fits] * 1e3 + (_UP + _DOWN)[fits]
        best = fits[np.argmax(size)] if fits.size else 0
        return max(float(_UP[best]), _DISTANCES[1]), max(float(_DOWN[best]), _DISTANCES[1])

    def run(self, graph: ScaleGraph, inputs: list[Movement]) -> list[Movement]:
        moves = self.moves
        for value, move in zip(graph.inputs, inputs, strict=True):
            moves[value.index] = move
            if move is not None:
                self.check(value, move)
        for node in graph.nodes:
            operands = [moves[use.value.index] for use in node.uses]
            if operands.count(None) == len(operands):
                continue
            for value, move in zip(node.outputs, self.results(node, operands), strict=True):
                if move is not None and value.is_floating:
                    moves[value.index] = move
                    self.check(value, move)
        return [moves[use.value.index] for use in graph.outputs]

    def check(self, value: Value, move: Movement) -> None:
        """Take down how much room a value has left after each of the movements."""
        m = known(value)
        if m is None or move is None or not self.is_final:
            return
        smallest, largest = _range.range_of(value, self.dtype_of(value))
        least = most = value.exponent
        if not self.is_plain:
            exponents = [use.exponent for use in value.uses]
            least, most = min([least, *exponents]), max([most, *exponents])
        self._leave(largest + least - m.high, move[0])
        self._leave(m.low - smallest - most, move[1])

    def _leave(self, room: float, move: Any) -> None:
        # Out of range already, without harm; or not even by the farthest movement, the last.
        if not 0.0 <= room < math.inf or move[-1] <= room:
            return
        # What a cancellation could reach without any movement does not forbid all of them.
        if move[0] > room:
            move = move - move[0]
        np.minimum(self.room, room - move, out=self.room)

    def results(self, node: Node, operands: list[Movement]) -> list[Movement]:
        name = node.primitive
        if name == "scan":
            consts, carries = _compat.scan_counts(node.params)
            return self.loop(node, node.graphs[0], operands, consts, carries)
        if name == "while":
            skipped = node.params["cond_nconsts"]
            fixed = node.params["body_nconsts"]
            operands = operands[skipped:]
            return self.loop(node, node.graphs[1], operands, fixed, len(operands) - fixed)
        if name == "cond":
            branches = [self.run(branch, operands[1:]) for branch in node.graphs]
            return [farthest(list(moves)) for moves in zip(*branches, strict=True)]
        rule = MOVEMENTS.get(name)
        if rule is not None:
            return rule(node, operands)
        if len(node.graphs) == 1:
            callee = node.graphs[0]
            sizes = len(callee.inputs), len(callee.outputs)
            if sizes == (len(operands), len(node.outputs)):
                return self.run(callee, operands)
        return [scattered(operands)] * len(node.outputs)

    def loop(
        self, node: Node, body: ScaleGraph, operands: list[Movement], consts: int, carries: int
    ) -> list[Movement]:
        """A loop: what its carry moves in the first iteration, it moves in each."""
        fixed, rest = operands[:consts], operands[consts + carries :]
        start = operands[consts : consts + carries]
        was_final, self.is_final = self.is_final, False
        after = self.run(body, [*fixed, *start, *rest])[:carries]
        count = trips(node.equation)
        wide = [_grown(a, b, count) for a, b in zip(start, after, strict=True)]
        self.is_final = was_final
        results = self.run(body, [*fixed, *wide, *rest])
        return [*wide, *results[carries:]]


def _grown(before: Movement, after: Movement, count: float) -> Movement:
    if after is None:
        return before
    if before is None:
        before = (np.zeros_like(_UP), np.zeros_like(_UP))
    up, down = (_grown_side(b, a, count) for b, a in zip(before, after, strict=True))
    return up, down


def _grown_side(before: Any, after: Any, count: float) -> Any:
    growth = after - before
    # What grows without any movement of the inputs is no movement.
    growth = np.maximum(growth - growth[0], 0.0)
    return np.minimum(before + growth * count, FAR)
