"""Find the end of a value's numbers on which the results depend, if no exponent holds all of them.

In a sum the largest terms count. If `1 / x` is a term, the smallest `x` counts: if the others are
infinite, `1 / x` is 0, which is no loss. So this module follows the end that counts backwards from
the results, and swaps it at every denominator.

    ends_that_count(graph)[value.index]  # LARGEST, SMALLEST, or BOTH: by different readers

Sharp edges. This is a heuristic: its proposals are judged by the results. Loops and branches are
not entered.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..graph._graph import Node, ScaleGraph, Value
from ..laws._law import LARGEST, law_of

BOTH = 0

Ends = dict[int, int]


def ends_that_count(graph: ScaleGraph) -> Ends:
    """Return the end that counts, by the index of a value; other values are not in the dict."""
    ends: Ends = {}
    _note(ends, (use.value for use in graph.outputs), LARGEST)
    _follow(graph, ends)
    return ends


def _note(ends: Ends, values: Iterable[Value], end: int) -> None:
    for value in values:
        if value.is_floating and ends.setdefault(value.index, end) != end:
            ends[value.index] = BOTH


def _follow(graph: ScaleGraph, ends: Ends) -> None:
    for node in reversed(graph.nodes):
        end = ends.get(node.outputs[0].index, LARGEST) if node.outputs else LARGEST
        if node.is_call:
            inner = node.graphs[0]
            for use, out in zip(inner.outputs, node.outputs, strict=True):
                _note(ends, [use.value], ends.get(out.index, LARGEST))
            _follow(inner, ends)
            for use, given in zip(node.given[0], inner.inputs, strict=True):
                _note(ends, [use.value], ends.get(given.index, LARGEST))
            continue
        for position, use in enumerate(node.uses):
            _note(ends, [use.value], _end_of(node, position, end))


def _end_of(node: Node, position: int, end: int) -> int:
    """Return the end of an operand that counts if `end` of the result counts."""
    law = law_of(node)
    if law.inverts:
        inverts = law.inverts(node, position)
    else:  # a negative power of the operand
        inverts = (law.vanish.infinite(node, position) or 0.0) < 0.0
    return law.end or (-end if inverts else end)
