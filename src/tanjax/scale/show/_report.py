"""The scale graph as a table, for a terminal, a log file or a notebook.

A program has hundreds of values, and a few are in danger. The table opens with the summary and then
has a row for each value: name, operation, source line, magnitude, exponent, conversions, and the
loss in plain JAX. For a long program the table shows only rows with a loss, a conversion or an
exponent, their neighbours, inputs and results. A line counts the rows between them.

    force: 4 equations in float32
    in plain JAX: 1 value would overflow
    plan: 2 conversions (presolve, gap 0 %, 0.002 s)

    value  operation   type       line               magnitude  exponent  converted      plain JAX
    b      mul a m2    float32[]  orbit.py:3 (force)   8e+44      2^106                    overflow

Sharp edges: empty columns are left out. Colours are shown only if `file` is a terminal; the
returned text has the same content without colours.
"""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING

from ..graph._graph import ScaleGraph
from ._rows import (
    PLAIN,
    Facts as Facts,
    Row,
    kind_of,
    magnitude_in_tens,
    place_in_short,
    ranks_of,
    rows_to_show,
    summary,
)

if TYPE_CHECKING:
    from rich.table import Table

# Rich styles; `lost` in words stands next to the colour.
STYLES = {"overflow": "bold red", "underflow": "red", "": ""}

# Wide enough for all columns of ordinary programs.
WIDTH = 132

# Below this width, types and the names of functions are left out, so that lines do not wrap.
NARROW = 110


def report(
    graph: ScaleGraph,
    facts: Facts,
    *,
    file: IO[str] | None = None,
    width: int | None = None,
    limit: int = 60,
) -> str:
    """Return the table as text; with `file`, print it there too, in colour on a terminal.

    **Arguments:** `width`: of the text in columns; None: that of the terminal if there is one.
    `limit`: the most values that have a row.
    """
    from rich.console import Console
    from rich.text import Text

    lines, rows = summary(graph, facts), rows_to_show(graph, facts)
    buffer = io.StringIO()
    # Without `force_jupyter=False`, Rich would print into the notebook instead of the file.
    plain = Console(file=buffer, width=width or WIDTH, color_system=None, force_jupyter=False)
    consoles = [plain]
    if file is not None:
        given = width if width or file.isatty() else WIDTH
        consoles.append(Console(file=file, width=given, force_jupyter=False))
    for console in consoles:
        for line in lines:
            console.print(Text(line), soft_wrap=True)
        console.print(_table(rows, limit, console.width))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _table(rows: list[Row], limit: int, width: int) -> Table:
    """Return the rows as a table; a line counts the rows that are left out."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    kept = select(rows, limit)
    columns = ("value", "operation", "type", "line", "magnitude", "exponent", "converted")
    cells = {number: _cells(rows[number], width < NARROW) for number in kept}
    used = [n for n in range(len(columns)) if n < 2 or any(c[n] for c in cells.values())]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for n in used:
        table.add_column(columns[n], no_wrap=n in (0, 4, 5), overflow="fold")
    table.add_column("plain JAX", no_wrap=True)
    before = -1
    for number in [*kept, len(rows)]:
        if number - before > 1:
            skipped = [row for row in rows[before + 1 : number] if row.value]
            if skipped:
                table.add_row("…", Text(left_out(skipped)), style="dim")
        before = number
        if number < len(rows):
            row = rows[number]
            shown = [Text(cells[number][n]) for n in used]
            table.add_row(*shown, row.lost, style=STYLES[row.lost] or ("" if row.value else "dim"))
    return table


def _cells(row: Row, narrow: bool) -> tuple[str, ...]:
    indent, place = "  " * row.depth, place_in_short(row.place)
    if narrow:
        place = place.partition(" ")[0]
    if row.value is None:
        return indent[2:] + "┌", row.operation, "", place, "", "", ""
    name = indent + row.name + (f" → {row.result}" if row.result else "")
    floating = row.value.is_floating
    magnitude = magnitude_in_tens(row.magnitude) if floating else ""
    exponent = f"2^{row.exponent}" if row.exponent else ""
    kind = "" if narrow else kind_of(row.value)
    return name, row.operation, kind, place, magnitude, exponent, row.converted


def left_out(rows: list[Row]) -> str:
    """Return a line that replaces rows: their number, and the number out of range."""
    lost, count = sum(1 for row in rows if row.lost), len(rows)
    values = "value" if count == 1 else "values"
    return f"{count} {values}, {lost} of them lost" if lost else f"{count} {values} in range"


def select(rows: list[Row], limit: int) -> list[int]:
    """Return the numbers of the rows to show, in order: all, or the most important.

    The headings of selected rows are included.
    """
    if sum(1 for row in rows if row.value) <= limit:
        return list(range(len(rows)))
    found = sorted((rank, number) for number, rank in ranks_of(rows).items() if rank < PLAIN)
    best = [number for _, number in found[:limit]]
    return sorted({*best, *_headings(rows, best)})


def _headings(rows: list[Row], chosen: list[int]) -> set[int]:
    """Return the headings above the chosen rows."""
    found: set[int] = set()
    wanted = set(chosen)
    above: list[int] = []
    for number, row in enumerate(rows):
        del above[row.depth - (row.value is None) :]
        if row.value is None:
            above.append(number)
        elif number in wanted:
            found.update(above)
    return found
