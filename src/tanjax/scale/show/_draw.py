"""The scale graph as a picture: the numbers, the range of their dtype, the stored numbers.

A plan is right if no stored number leaves the range of its dtype. It was needed if the numbers
themselves leave it. So the picture has one place for each value, in the order of the program. A
wide bar shows its magnitudes, and a shaded band the range of its dtype. Plain JAX loses numbers if
the bar sticks out of the band. The narrow dark bar is the same value as it is stored, moved by its
exponent.

    axes = plot(graph, facts)
    axes.figure.savefig("energy.png")

Sharp edges: the axis is cut if a few extreme values would hide all others. A triangle at the edge
marks a bar that continues beyond it. Integers, values that are all zero and values of unknown
magnitude have no bar. Only drawing needs Matplotlib, and imports it when called.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tanjax._dtype_range import normal_range

from ..graph._graph import ScaleGraph, Value
from ._rows import Facts, Row, power_in_tens, ranks_of, rows_to_show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

# Colours of Okabe and Ito, safe for colour-blind readers.
COLOURS = {"": "#56B4E9", "overflow": "#D55E00", "underflow": "#E69F00"}
STORED = "#14213d"
BAND = "#009E73"
LABELS = {
    "": "numbers, in range",
    "overflow": "numbers that overflow in plain JAX",
    "underflow": "numbers that underflow in plain JAX",
    "stored": "as stored",
}

_TITLE: dict[str, Any] = {"pad": 24, "fontsize": 10.5, "fontweight": "bold", "parse_math": False}
_TICKS: dict[str, Any] = {"rotation": 90, "fontsize": 7.5, "parse_math": False}
MANY = 2000  # the most bars to draw as SVG, 0.3 kB each; more are drawn as pixels
_TEN = math.log10(2.0)
_FAR = 1e5  # replaces an infinite bound: outside every picture


class Bar(NamedTuple):
    """A value in the picture; all heights are base 10 logarithms."""

    row: Row
    low: float
    high: float
    shift: float  # the exponent
    smallest: float  # the range of the dtype
    largest: float

    @property
    def kind(self) -> str:
        assert self.row.value is not None
        return str(self.row.value.aval.dtype)


def plot(graph: ScaleGraph, facts: Facts, ax: Axes | None = None) -> Axes:
    """Draw the magnitudes of all values, and return the axes; without `ax`, in a new figure.

    **Raises:** `ImportError` if Matplotlib is not installed.
    """
    rows = rows_to_show(graph, facts)
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise missing_matplotlib() from error
        ax = pyplot.subplots(figsize=figure_size(rows), layout="constrained")[1]
    draw(rows, facts, ax)
    return ax


def missing_matplotlib() -> ImportError:
    """Return the error for a missing Matplotlib; raise it from the original."""
    return ImportError(
        "a picture of a scale graph needs matplotlib, which is not installed.\n"
        "Hint: `pip install matplotlib`; `.report()` and `.to_dot()` do without it."
    )


def figure_size(rows: list[Row]) -> tuple[float, float]:
    """Return width and height in inches: few values are not stretched, many stay distinct."""
    return min(max(7.0, 0.26 * len(_floating(rows)) + 1.5), 14.0), 5.2


def _floating(rows: list[Row]) -> list[int]:
    """Return the numbers of the rows that have a place on the axis."""
    return [number for number, row in enumerate(rows) if row.value and row.value.is_floating]


def bars_of(rows: list[Row]) -> list[Bar | None]:
    """Return a bar for every floating value; None if its magnitude is unknown, or it is zero."""
    return [_bar(row, row.value) for row in rows if row.value and row.value.is_floating]


def _bar(row: Row, value: Value) -> Bar | None:
    m = row.magnitude
    if m is None or m.is_zero or math.isnan(m.low + m.high):
        return None
    numbers = (m.low, m.high, row.exponent, *normal_range(value.aval.dtype))
    return Bar(row, *(number * _TEN for number in numbers))


def draw(rows: list[Row], facts: Facts, ax: Axes, ink: str = STORED) -> None:
    """Draw rows into axes: dtype ranges, nested graphs, bars, labels; stored numbers in `ink`."""
    bars = bars_of(rows)
    known = [bar for bar in bars if bar]
    bottom, top = _window(known)
    ax.set(xlim=(-0.7, max(len(bars), 1) - 0.3), ylim=(bottom, top))
    _draw_band(ax, bars)
    _draw_nested(ax, rows)
    _draw_bars(ax, bars, ink)
    _draw_cut(ax, bars)
    _label_values(ax, rows)
    ax.set_title(_title(rows, known, facts), loc="left", **_TITLE)
    ax.set_ylabel("magnitude")
    ax.yaxis.set_major_formatter(lambda power, _: f"$10^{{{power:g}}}$")
    ax.spines[["top", "right"]].set_visible(False)


def _title(rows: list[Row], bars: list[Bar], facts: Facts) -> str:
    """Return a sentence that describes the picture."""
    name = facts.name if len(facts.name) <= 24 else facts.name[:23] + "…"
    values = [row for row in rows if row.value and row.value.is_floating]
    lost, out = sum(1 for row in values if row.lost), sum(1 for bar in bars if _is_out(bar))
    plain = f"plain JAX loses {lost} of {len(values)} values" if lost else "plain JAX loses nothing"
    state = "run as it is" if facts.identity else "stored with exponents"
    if out:
        state = f"{state}, {out} out of range"
    elif not facts.identity and all(row.magnitude for row in values):
        state = f"{state}, all are in range"
    return f"{name}: {plain}; {state}"


def _is_out(bar: Bar) -> bool:
    return bar.low - bar.shift < bar.smallest or bar.high - bar.shift > bar.largest


def _window(bars: list[Bar]) -> tuple[float, float]:
    """Return the heights to show: the range of dtypes, and bars within three times that."""
    smallest = min((bar.smallest for bar in bars), default=-40.0)
    largest = max((bar.largest for bar in bars), default=40.0)
    ends = [end - shift for bar in bars for end in bar[1:3] for shift in (0.0, bar.shift)]
    bottom = max(min(smallest, *ends, 0.0), 3.0 * smallest)
    top = min(max(largest, *ends, 0.0), 3.0 * largest)
    margin = 0.07 * (top - bottom)
    return bottom - margin, top + 1.6 * margin  # room for the names of nested graphs


def _draw_band(ax: Axes, bars: list[Bar | None]) -> None:
    """Shade the range of each value's dtype, and write its largest and smallest number."""
    places = [(x, bar) for x, bar in enumerate(bars) if bar]
    for _, run in itertools.groupby(places, lambda place: place[1].kind):
        first, *rest = run
        last = rest[-1] if rest else first
        x = (first[0] - 0.5, last[0] + 0.5)
        if first is places[0]:
            x = (-0.7, x[1])
        if last is places[-1]:
            x = (x[0], len(bars) - 0.3)
        edges = first[1].smallest, first[1].largest
        ax.fill_between(x, *edges, color=BAND, alpha=0.13, lw=0, zorder=0)
        ax.hlines(edges, *x, color=BAND, lw=0.8, zorder=0.5)
    kinds: dict[tuple[float, float], list[str]] = {}
    for _, bar in places:
        kinds.setdefault((bar.smallest, bar.largest), []).append(bar.kind)
    for edges, names in kinds.items():
        kind = ", ".join(dict.fromkeys(names))
        if edges[1] - edges[0] < 0.08 * (ax.get_ylim()[1] - ax.get_ylim()[0]):
            _write_right(ax, 0.0, kind)
            continue
        for edge, which in zip(edges, ("smallest", "largest"), strict=True):
            _write_right(ax, edge, f"{which} {kind}\n{power_in_tens(edge / _TEN)}")


def _write_right(ax: Axes, height: float, text: str) -> None:
    ax.annotate(
        text, (1.0, height), (4, 0), xycoords=("axes fraction", "data"), annotation_clip=False,
        textcoords="offset points", color=BAND, va="center", fontsize=7.5,
    )  # fmt: skip


def nested_spans(rows: list[Row]) -> Iterator[tuple[Row, int, int]]:
    """Yield headings with the first and last place on the axis of the rows below them."""
    has_place = set(_floating(rows))
    place = [*itertools.accumulate((n in has_place for n in range(len(rows))), initial=0)]
    for number, row in enumerate(rows):
        if row.value is None:
            rest = range(number + 1, len(rows))
            end = next((n for n in rest if _is_above(rows[n], row)), len(rows))
            if place[end] > place[number]:
                yield row, place[number], place[end] - 1


def _is_above(row: Row, heading: Row) -> bool:
    """True if a later row is no longer below a heading."""
    return row.depth < heading.depth or (row.value is None and row.depth == heading.depth)


def _draw_nested(ax: Axes, rows: list[Row]) -> None:
    """Shade nested graphs, and name those that are wide enough for it."""
    inches = _inches(ax)
    for row, first, last in nested_spans(rows):
        ax.axvspan(first - 0.5, last + 0.5, color="#808080", alpha=0.12, lw=0, zorder=-1)
        room = int((last - first + 1) * inches / 0.065)  # characters of this size
        if room >= 4 and row.depth <= 3:
            text = row.operation if len(row.operation) <= room else row.operation[: room - 1] + "…"
            ax.annotate(
                text, (first - 0.4, 1.0), (0, -2 - 9 * (row.depth - 1)), fontsize=7.5,
                xycoords=("data", "axes fraction"), textcoords="offset points", va="top",
                parse_math=False,
            )  # fmt: skip


def _inches(ax: Axes) -> float:
    """Return the width of one place on the axis, a little too small: the layout comes later."""
    left, right = ax.get_xlim()
    figure = ax.get_figure(root=True)
    assert figure is not None
    return float(0.97 * ax.get_position().width * figure.get_figwidth() / (right - left))


def _draw_bars(ax: Axes, bars: list[Bar | None], ink: str) -> None:
    """Draw wide bars, coloured by their loss in plain JAX, and stored numbers inside them."""
    from matplotlib.collections import LineCollection, PolyCollection

    known = [(x, bar) for x, bar in enumerate(bars) if bar]
    bottom, top = ax.get_ylim()
    least = 0.014 * (top - bottom)  # a single number stays visible
    crowded = _inches(ax) < 0.05  # gaps and lines would be narrower than two pixels
    hair = 0.007 / _inches(ax)  # half the least visible width
    half, pixels = max(0.5 if crowded else 0.38, hair), {"rasterized": len(known) > MANY}
    boxes = [_box(x, half, bar.low, bar.high, least) for x, bar in known]
    colours = [COLOURS[bar.row.lost] for _, bar in known]
    ax.add_collection(
        PolyCollection(boxes, facecolors=colours, linewidths=0, zorder=2, gid="numbers", **pixels),
        autolim=False,
    )
    handles = [
        _patch(COLOURS[k], LABELS[k]) for k in COLOURS if k in {b.row.lost for _, b in known}
    ]
    if any(bar.shift for _, bar in known):
        moved = [
            [(x, _middle(bar) - move) for move in (0.0, bar.shift)]
            for x, bar in known
            if bar.shift and not crowded
        ]
        ax.add_collection(
            LineCollection(moved, colors=ink, lw=0.5, alpha=0.45, zorder=2.5), autolim=False
        )
        boxes = [
            _box(x, max(half - 0.23, hair), b.low - b.shift, b.high - b.shift, least)
            for x, b in known
        ]
        ax.add_collection(
            PolyCollection(boxes, facecolors=ink, linewidths=0, zorder=3, gid="stored", **pixels),
            autolim=False,
        )
        handles.append(_patch(ink, LABELS["stored"]))
    if handles:
        ax.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0.0, 0.995), ncols=len(handles),
            frameon=False, fontsize=8, borderaxespad=0.2, borderpad=0.2, handlelength=1.0,
            columnspacing=1.4,
        )  # fmt: skip


def _middle(bar: Bar) -> float:
    return (max(bar.low, -_FAR) + min(bar.high, _FAR)) / 2


def _patch(colour: str, label: str) -> Patch:
    from matplotlib.patches import Patch

    return Patch(color=colour, label=label, lw=0)


def _box(x: float, half: float, low: float, high: float, least: float) -> list[tuple[float, float]]:
    grow = max(least - (high - low), 0.0) / 2
    low, high = max(low - grow, -_FAR), min(high + grow, _FAR)
    return [(x - half, low), (x + half, low), (x + half, high), (x - half, high)]


def _draw_cut(ax: Axes, bars: list[Bar | None]) -> None:
    """Draw a triangle at the edge of the axes for a bar that continues beyond it."""
    bottom, top = ax.get_ylim()
    for marker, edge in (("^", top), ("v", bottom)):
        cut = [
            (x, COLOURS[bar.row.lost])
            for x, bar in enumerate(bars)
            if bar and (bar.high > top if marker == "^" else bar.low < bottom)
        ]
        if cut:
            x, colours = zip(*cut, strict=True)
            ax.scatter(x, [edge] * len(x), s=30, c=colours, marker=marker, clip_on=False, zorder=4)


def _label_values(ax: Axes, rows: list[Row]) -> None:
    """Write name and operation below the bars: as many as fit, the important ones first."""
    numbers = _floating(rows)
    ranks, spacing = ranks_of(rows), 0.15 / _inches(ax)
    taken: list[int] = []
    for x in sorted(range(len(numbers)), key=lambda x: (ranks[numbers[x]], x)):
        if all(abs(x - other) >= spacing for other in taken):
            taken.append(x)
    taken.sort()
    ax.set_xticks(taken, [_short(rows[numbers[x]]) for x in taken], **_TICKS)
    ax.tick_params(axis="x", length=2 if spacing > 1 else 0)


def _short(row: Row) -> str:
    text = f"{row.name}: {row.operation}"
    return text if len(text) <= 24 else text[:23] + "…"
