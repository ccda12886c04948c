"""The scale graph in the language of Graphviz: boxes for values, arrows for readings.

A table shows each value, but not the origin of the value. Here each value is a box with its
operation, magnitude and exponent, in colour if plain JAX loses it. Each arrow leads to a reader of
the value, and its label is the power of two of the conversion. Nested graphs are framed. The arrows
from the end of a loop's body to its beginning show the loop.

    pathlib.Path("energy.dot").write_text(to_dot(graph, facts))

Then run `dot -Tsvg energy.dot`.

Sharp edge: the text has no limit of length, but `dot` takes minutes for thousands of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tanjax.jaxprs import Kind

from ..graph._graph import Node, ScaleGraph, Use, Value
from ._rows import Facts, Row, heading, kind_of, magnitude_in_tens, place_in_short, rows_to_show

_At = Callable[[Value | Use], int]  # the exponent of a value or of a use

# Colours of box and text: those of Okabe and Ito, as in the picture.
COLOURS = {
    "": ("#eef4f8", "#14213d"),
    "overflow": ("#D55E00", "white"),
    "underflow": ("#E69F00", "black"),
}


def to_dot(graph: ScaleGraph, facts: Facts) -> str:
    """Return the graph as Graphviz source; needs no library."""
    rows = {row.value.index: row for row in rows_to_show(graph, facts) if row.value}
    at = facts.exponent
    lines = [
        f"digraph {_quote(facts.name)} {{",
        '  graph [fontname="Helvetica", fontsize=10, labeljust=l];',
        '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=10];',
        '  edge [fontname="Helvetica", fontsize=9, color="#555555"];',
        *_boxes(graph, rows, at, "cluster"),
    ]
    for number, use in enumerate(graph.outputs):
        names = facts.output_names
        name = names[number] if number < len(names) and names[number] else "result"
        lines.append(f'  result{number} [label={_quote(name)}, shape=oval, fillcolor="white"];')
        lines += _arrow(use, f"result{number}", rows, at)
    return "\n".join([*lines, "}"]) + "\n"


def _boxes(graph: ScaleGraph, rows: dict[int, Row], at: _At, frame: str) -> Iterator[str]:
    """Yield the boxes and arrows of one graph; `frame` makes the names of frames unique."""
    indent = "  " * (frame.count("_") + 1)
    read = [use.value for node in graph.nodes for use in node.uses if use.value.kind == "constant"]
    for value in dict.fromkeys([*graph.inputs, *graph.constants, *read]):
        if value.index in rows:
            yield indent + _box(value, rows[value.index])
    for number, node in enumerate(graph.nodes):
        for value in node.outputs:
            yield indent + _box(value, rows[value.index])
        for k, inner in enumerate(node.graphs):
            name = f"{frame}_{number}x{k}"
            yield f"{indent}subgraph {name} {{"
            yield f'{indent}  label={_quote(heading(node, k))}; color="#999999"; style=rounded;'
            yield from _boxes(inner, rows, at, name)
            yield f"{indent}}}"
        for use, value, style in _readings(node):
            yield from (
                indent + line[2:] for line in _arrow(use, f"v{value.index}", rows, at, style)
            )


def _readings(node: Node) -> Iterator[tuple[Use, Value, str]]:
    """Yield the arrows into a node: use, value and style."""
    for uses, graph in zip(node.given, node.graphs, strict=False):
        yield from ((use, value, "") for use, value in zip(uses, graph.inputs, strict=False))
    for use, value in node.carried:
        yield use, value, "style=dashed, constraint=false"
    for graph in node.returning:
        pairs = zip(graph.outputs, node.outputs, strict=False)
        yield from ((use, value, "") for use, value in pairs)
    direct = node.uses[:1] if node.kind is Kind.BRANCH else [] if node.graphs else node.uses
    yield from ((use, value, "") for value in node.outputs for use in direct)


def _box(value: Value, row: Row) -> str:
    lines = [f"{row.name}: {row.operation}", f"{kind_of(value)}"]
    if value.is_floating:
        exponent = f" at 2^{row.exponent}" if row.exponent else ""
        lines.append(magnitude_in_tens(row.magnitude) + exponent)
    if row.lost:
        lines.append(f"{row.lost} in plain JAX")
    fill, writing = COLOURS[row.lost]
    tooltip = f", tooltip={_quote(place_in_short(row.place))}" if row.place else ""
    colours = f'fillcolor="{fill}", fontcolor="{writing}"'
    shape = "" if value.node else ", shape=oval"
    label = _quote("\n".join(lines))
    return f"v{value.index} [label={label}, {colours}{shape}{tooltip}];"


def _arrow(use: Use, target: str, rows: dict[int, Row], at: _At, style: str = "") -> list[str]:
    """Return an arrow, unless its value has no box: a number is part of the operation."""
    if use.value.index not in rows:
        return []
    shift = at(use.value) - at(use)
    label = (
        f'label="×2^{shift}", color="#0072B2", fontcolor="#0072B2", penwidth=1.6' if shift else ""
    )
    both = ", ".join(filter(None, (label, style)))
    return [f"  v{use.value.index} -> {target}{f' [{both}]' if both else ''};"]


def _quote(text: str) -> str:
    """Return a string of the language: quotes, backslashes and line breaks escaped."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
