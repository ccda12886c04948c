"""Find the parts of a program that need no exponents: a plan leaves them unchanged.

`(x * x / x, y / 1.1 / 1.3)` has two parts. If `x` is huge, the first needs exponents. The second
must keep plain JAX's bits: its exponents are 0, and XLA sees its constants and joins them. Results
connect parts. An input that two parts read does not connect them, because each reader reads it at
its own exponent.

    needs_nothing(graph, magnitudes)  # the values and uses whose exponents may be 0
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph._graph import Magnitudes, Node, ScaleGraph, Use, Value
from ..laws import _range


class _Joined:
    """Disjoint sets of the numbers below a count: numbers of one set have the same `root`."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))

    def root(self, x: int) -> int:
        parent = self.parent
        while parent[x] != x:
            parent[x] = x = parent[parent[x]]
        return x

    def join(self, members: Sequence[int]) -> None:
        if members:
            first = self.root(members[0])
            for x in members[1:]:
                self.parent[self.root(x)] = first


def _connects(value: Value) -> bool:
    return value.is_floating and value.kind in ("result", "inner")


def _members(node: Node) -> list[int]:
    """Return the values that an equation connects, with those at the ends of nested graphs."""
    values: list[Value] = [*(use.value for use in node.uses), *node.outputs]
    for inner in node.graphs:
        values += [*inner.inputs, *(use.value for use in inner.outputs)]
    return [v.index for v in values if _connects(v)]


def needs_nothing(graph: ScaleGraph, m: Magnitudes) -> tuple[list[Value], list[Use]]:
    """Return the values of parts where no number leaves its range, and their readings."""
    joined, nodes = _Joined(len(graph.values)), list(graph.walk())
    members = [_members(node) for node in nodes]
    for values in members:
        joined.join(values)
    needy = {joined.root(v.index) for v in graph.values if _connects(v) and not _is_calm(v, m)}
    for node, values in zip(nodes, members, strict=True):  # a constant that tracing lost
        if values and not all(
            _is_calm(u.value, m) for u in node.uses if u.value.kind == "constant"
        ):
            needy.add(joined.root(values[0]))
    calm = [v for v in graph.values if _connects(v) and joined.root(v.index) not in needy]
    uses = [u for v in calm for u in v.uses]
    for node, values in zip(nodes, members, strict=True):
        if values and joined.root(values[0]) not in needy:
            uses += [u for u in node.uses if not _connects(u.value)]
    return calm, uses


def _is_calm(value: Value, m: Magnitudes) -> bool:
    return _range.fits_at_zero(value, m) and _range.needed_by_parts(value, m) <= 0


def plain_parts(graph: ScaleGraph, untouched: Sequence[bool]) -> list[bool]:
    """Return, per node of a graph, True if all nodes of its part are untouched."""
    if all(untouched):
        return [True] * len(graph.nodes)
    count = len(graph.values)
    joined = _Joined(count + len(graph.nodes))
    for i, node in enumerate(graph.nodes):
        values = [use.value for use in node.uses] + node.outputs
        joined.join([count + i, *(v.index for v in values if v.node and v.is_floating)])
    touched = {joined.root(count + i) for i, as_it_was in enumerate(untouched) if not as_it_was}
    return [joined.root(count + i) not in touched for i in range(len(graph.nodes))]
