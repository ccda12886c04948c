"""The scale graph as a page: picture and table in one file, to mail or archive.

    pathlib.Path("energy.html").write_text(to_html(graph, facts), encoding="utf-8")

The page has no scripts and loads no other file. Matplotlib draws the picture as inline SVG in the
colour of the page's text, so it is readable on a dark screen. Bars and rows show their source line
as a tooltip. All text from the program is escaped.

Sharp edge: every value has a row, so the page of 10,000 equations has some megabytes. For an
overview, `report` selects the important rows.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from ..graph._graph import ScaleGraph
from ._draw import COLOURS, MANY, bars_of, draw, figure_size, missing_matplotlib
from ._report import left_out, select
from ._rows import (
    Facts,
    Row,
    kind_of,
    magnitude_in_tens,
    place_in_short,
    rows_to_show,
    summary,
)

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"

# A placeholder that is replaced by the colour of the page's text; no other part may use it.
_INK = "#010203"
_GREY = "#808080"  # for pixels, which cannot change their colour: visible on white and on black

# All rules are below `.tanjax-scale`, because a notebook has other tables, too.
_STYLE = f"""
.tanjax-scale {{ font: 14px/1.45 system-ui, sans-serif; }}
.tanjax-scale svg {{ max-width: 100%; height: auto; }}
.tanjax-scale div {{ overflow-x: auto; }}
.tanjax-scale table {{ border-collapse: collapse; font-size: 13px; }}
.tanjax-scale :is(th, td) {{ text-align: left; padding: .15rem .6rem; white-space: nowrap; }}
.tanjax-scale td {{ border-top: 1px solid #8883; font-variant-numeric: tabular-nums; }}
.tanjax-scale td:is(:nth-child(2), :nth-child(7)) {{ white-space: normal; min-width: 9rem; }}
.tanjax-scale .aside td {{ font-style: italic; opacity: .75; }}
.tanjax-scale .overflow td:last-child {{ background: {COLOURS["overflow"]}; color: #fff; }}
.tanjax-scale .underflow td:last-child {{ background: {COLOURS["underflow"]}; color: #000; }}
"""

_COLUMNS = (
    "value", "operation", "type", "line", "magnitude", "exponent", "converted", "plain JAX",
)  # fmt: skip

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>:root {{ color-scheme: light dark; }} body {{ margin: 2rem; }}</style>
</head>
<body>
<h1>{title}</h1>
{inside}</body>
</html>
"""


def to_html(graph: ScaleGraph, facts: Facts) -> str:
    """Return a whole page as text, with all values.

    **Raises:** `ImportError` if Matplotlib is not installed.
    """
    rows = rows_to_show(graph, facts)
    inside = _section(graph, facts, rows, range(len(rows)), _picture(rows, facts))
    return _PAGE.format(title=html.escape(f"Scale graph of {facts.name}"), inside=inside)


def to_fragment(graph: ScaleGraph, facts: Facts, limit: int = 60) -> str:
    """Return the part for a notebook's cell: important values; a hint without Matplotlib."""
    rows = rows_to_show(graph, facts)
    try:
        picture = _picture(rows, facts)
    except ImportError as error:
        picture = f"<p>{html.escape(str(error))}</p>"
    return _section(graph, facts, rows, select(rows, limit), picture)


def _section(
    graph: ScaleGraph, facts: Facts, rows: list[Row], kept: Sequence[int], picture: str
) -> str:
    said = "".join(f"<li>{html.escape(line)}</li>\n" for line in summary(graph, facts))
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    body, before = [], -1
    for number in [*kept, len(rows)]:
        if skipped := [row for row in rows[before + 1 : number] if row.value]:
            said_of_them = html.escape(left_out(skipped))
            body.append(f'<tr class="aside"><td>…</td><td colspan="7">{said_of_them}</td></tr>\n')
        if number < len(rows):
            body.append(_row(rows[number]))
        before = number
    return (
        f'<section class="tanjax-scale">\n<style>{_STYLE}</style>\n<ul>\n{said}</ul>\n'
        f"{picture}\n<div><table>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{''.join(body)}</tbody>\n</table></div>\n</section>\n"
    )


def _row(row: Row) -> str:
    value, place = row.value, place_in_short(row.place)
    cells = ["", row.operation, "", place, "", "", "", ""]
    if value is not None:
        name = row.name + (f" → {row.result}" if row.result else "")
        magnitude = magnitude_in_tens(row.magnitude) if value.is_floating else ""
        exponent = f"2^{row.exponent}" if row.exponent else ""
        cells = [name, row.operation, kind_of(value), place, magnitude, exponent]
        cells += [row.converted, row.lost]
    indent = f' style="padding-left:{0.6 + 1.2 * row.depth:g}rem"' if row.depth else ""
    texts = [f"<td>{html.escape(cell)}</td>" for cell in cells]
    inside = "".join(texts).replace("<td>", f"<td{indent}>", 1)
    kind = row.lost if value else "aside"
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' title="{html.escape(row.place)}"' if row.place else ""
    return f"<tr{attributes}>{inside}</tr>\n"


def _picture(rows: list[Row], facts: Facts) -> str:
    """Return the picture as SVG for a page: no prologue, in the page's colour, with tooltips."""
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_matplotlib() from error
    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "tanjax",
        **dict.fromkeys(ink, _INK),
    }
    written = io.BytesIO()
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=figure_size(rows), layout="constrained")
        FigureCanvasSVG(figure)
        few = len(rows) <= MANY
        draw(rows, facts, figure.subplots(), ink=_INK if few else _GREY)
        figure.savefig(written, format="svg", transparent=True, metadata=dict.fromkeys(_METADATA))
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    svg = ElementTree.fromstring(written.getvalue())
    svg.set("role", "img")
    _add_titles(svg, [bar.row for bar in bars_of(rows) if bar])
    return ElementTree.tostring(svg, encoding="unicode").replace(_INK, "currentColor")


_METADATA = ("Date", "Creator", "Format", "Type")


def _add_titles(svg: ElementTree.Element, rows: list[Row]) -> None:
    """Add a tooltip to every bar."""
    groups = [g for g in svg.iter(f"{{{_SVG}}}g") if g.get("id") == "numbers"]
    bars = [path for group in groups for path in group.iter(f"{{{_SVG}}}path")]
    if not bars:  # pixels
        return
    for bar, row in zip(bars, rows, strict=True):
        assert row.value is not None
        title = ElementTree.SubElement(bar, f"{{{_SVG}}}title")
        facts = (
            f"{row.name}: {row.operation}",
            magnitude_in_tens(row.magnitude),
            f"stored at 2^{row.exponent}" if row.exponent else "",
            f"{row.lost} in plain JAX" if row.lost else "",
            row.place,
        )
        title.text = "\n".join(filter(None, facts))
