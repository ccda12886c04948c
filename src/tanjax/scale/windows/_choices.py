"""Values that a caller chooses, without a useful magnitude: indices, counts, truths and masks.

    f = lambda i, a, b: (a @ b)[i]
    choices_of(graph, [None, m_a, m_b])  # chosen: {i}, picked: {a, b, a @ b}

An array of sums may have entries that are lost beside its largest. If a caller chooses among them,
or a slice takes some, only these entries may remain.

Sharp edge: the magnitudes of the look identify a mask of floating dtype. Its entries are zeros and
numbers of one magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..graph._graph import Magnitude, Node, ScaleGraph, Value
from ..laws._law import vanish_of

# XLA fuses checks of fewer numbers, so they cost almost nothing. Benchmark: 1,000 steps of Adam in
# float32; with all sums checked a step takes 2.4 times as long as in plain JAX, instead of 1.1.
FEW = 8


class Choices(NamedTuple):
    """Values by index.

    **Fields:** `chosen`: integers, truths and masks that a caller chooses; `picked`: values whose
    entries are partly picked later; `monomials`: products of arguments, whose bounds are sharp.
    """

    chosen: frozenset[int]
    picked: frozenset[int]
    monomials: frozenset[int] = frozenset()

    def choose(self, node: Node) -> bool:
        """True if a caller chooses some entries of an operand, by an index or a mask."""
        is_product = vanish_of(node).is_product
        return any(
            u.value.index in self.chosen and (not u.value.is_floating or is_product)
            for u in node.uses
        )

    def pick(self, node: Node) -> bool:
        """True if a result has some of the entries of an operand, not sums of all."""
        if node.graphs or not node.outputs:
            return False
        vanish, size = vanish_of(node), node.outputs[0].size
        largest = max((u.value.size for u in node.uses if u.value.is_floating), default=0)
        if vanish.adds:
            return size < min(FEW, largest)
        return vanish.is_part or self.choose(node) or (vanish.moves and size < largest)


def choices_of(graph: ScaleGraph, arguments: Sequence[Magnitude | None]) -> Choices:
    """Return the choices of a program, given the magnitudes of its arguments (None: integers)."""
    chosen: set[int] = set()
    for v, m in zip(graph.inputs, arguments, strict=True):
        if m is None or ((m.is_zero or m.low == m.high) and v.size > 1):
            chosen.add(v.index)
    _follow(graph, chosen)
    choices, picked = Choices(frozenset(chosen), frozenset()), set[int]()
    for node in reversed(list(graph.walk())):
        if choices.pick(node) or any(v.index in picked for v in node.outputs):
            picked |= {u.value.index for u in node.uses if u.value.is_floating}
            for inner in node.graphs:
                picked |= {v.index for n in inner.walk() for v in n.outputs}
    monomials = {v.index for v in (*graph.inputs, *graph.constants)}
    for node in graph.nodes:
        vanish = vanish_of(node)
        if vanish.is_monomial and all(u.value.index in monomials for u in node.uses):
            monomials |= {v.index for v in node.outputs}
    return Choices(choices.chosen, frozenset(picked), frozenset(monomials))


def _follow(graph: ScaleGraph, chosen: set[int]) -> None:
    for node in graph.nodes:
        for given, inner in zip(node.given, node.graphs, strict=False):
            pairs = zip(given, inner.inputs, strict=False)
            chosen |= {v.index for use, v in pairs if use.value.index in chosen}
            _follow(inner, chosen)
        chosen |= {v.index for v in node.outputs if _is_choice(node, v, chosen)}


def _is_choice(node: Node, value: Value, chosen: set[int]) -> bool:
    """True if a result is chosen: a floating one only if it consists of choices alone."""
    uses = [u for u in node.uses if u.value.is_floating] if value.is_floating else []
    if uses and not vanish_of(node).moves:
        return False
    return any(u.value.index in chosen for u in uses or node.uses)
