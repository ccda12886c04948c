"""Captured programs as pictures: the equations and the values between them, with their types.

A text shows the order; a picture shows which equation needs which, and where a structured value
went. Every equation is a box, written as the program prints it. Every arrow is a value, with its
name in the print and its type. A frame surrounds the body of a higher-order equation; values that
the body closes over enter the frame as arrows.

    pathlib.Path("f.dot").write_text(program.to_dot())     # then `dot -Tsvg f.dot`
    program.plot()                                         # Matplotlib

Equations that lose structure are orange. Sharp edges: `dot` takes minutes for thousands of
equations, and a plot of more than a few hundred is unreadable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ._equations import Body, Equation, Operand, Variable
from ._print import Names, call_text, program_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Fill by the kind of a box; the colours of Okabe and Ito, as in the pictures of scale graphs.
FILLS = {
    "value": "#ffffff", "equation": "#eef4f8", "structured": "#d6ebf7", "lost": "#E69F00",
    "higher_order": "#f3eefa", "class": "#dff2ea",
}  # fmt: skip
_LONGEST = 60


@dataclasses.dataclass
class Box:
    """An equation, or an input or a result of a program; `fill`: a key of `FILLS`."""

    number: int
    text: str
    fill: str
    source: str = ""


@dataclasses.dataclass
class Frame:
    """A program with its boxes, in the order in which they run; inner programs are frames."""

    title: str
    items: list[Box | Frame] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Arrow:
    """A value that goes from one box to another."""

    start: int
    end: int
    text: str
    closure: bool = False


class Picture:
    """The frames and arrows of a program: `frame`, `arrows`, `count` of boxes."""

    def __init__(self, program: Body) -> None:
        self.names = Names()
        program_text(program, self.names)  # letters as in the print
        self.count = 0
        self.arrows: list[Arrow] = []
        self._made: dict[Variable, int] = {}
        self.frame = self._program(program, program.name)

    def _program(self, program: Body, title: str, closure: Sequence[Operand] = ()) -> Frame:
        frame = Frame(title)
        for inner in program.consts:
            self._made[inner] = self._box(frame, self.names.typed(inner), "value")
        for inner, outer in zip(program.consts, closure, strict=False):
            self._arrow(outer, self._made[inner], closure=True)
        for given in program.inputs:
            self._made[given] = self._box(frame, self.names.typed(given), "value")
        for equation in program:
            self._equation(equation, frame)
        for i, x in enumerate(program.outputs):
            name = "result" if len(program.outputs) == 1 else f"result {i}"
            text = f"{name}: {self.names(x)}"
            self._arrow(x, self._box(frame, text, "value"))
        return frame

    def _equation(self, equation: Equation, frame: Frame) -> None:
        text = call_text(equation, self.names)
        number = self._box(frame, text, _fill(equation), equation.source)
        for x in dict.fromkeys(equation.inputs):
            self._arrow(x, number)
        slots = equation.slots.values()
        closures = {id(p): c for s in slots for p, c in zip(s.programs, s.consts, strict=True)}
        for name, program in equation.programs.items():
            title = f"{equation.name}: {name}"
            frame.items.append(self._program(program, title, closures.get(id(program), ())))
        self._made.update((x, number) for x in equation.outputs if x is not None)

    def _box(self, frame: Frame, text: str, fill: str, source: str = "") -> int:
        frame.items.append(Box(self.count, _cut(text, _LONGEST), fill, source))
        self.count += 1
        return self.count - 1

    def _arrow(self, x: Operand, end: int, closure: bool = False) -> None:
        if isinstance(x, Variable) and x in self._made:
            self.arrows.append(Arrow(self._made[x], end, self.names.typed(x), closure))


def _fill(equation: Equation) -> str:
    if equation.kind in ("higher_order", "class"):
        return equation.kind
    if equation.kind == "operation" and equation.lost:
        return "lost"
    values = [x for x in (*equation.inputs, *equation.outputs) if isinstance(x, Variable)]
    return "structured" if any(x.kind is not None for x in values) else "equation"


# -- Graphviz ----------------------------------------------------------------------------------


def to_dot(program: Body) -> str:
    """Return the program as Graphviz source, without any library."""
    picture = Picture(program)
    dashed = lambda arrow: ", style=dashed" if arrow.closure else ""
    lines = [
        f"digraph {_quote(program.name)} {{",
        '  graph [fontname="Helvetica", fontsize=10, labeljust=l];',
        '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=10];',
        '  edge [fontname="Helvetica", fontsize=9, color="#555555"];',
        *_in_frame(picture.frame, "cluster", "  "),
        *(
            f"  v{arrow.start} -> v{arrow.end} [label={_quote(arrow.text)}{dashed(arrow)}];"
            for arrow in picture.arrows
        ),
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _in_frame(frame: Frame, name: str, indent: str) -> Iterator[str]:
    for i, item in enumerate(frame.items):
        if isinstance(item, Frame):
            inner = f"{name}_{i}"
            yield f"{indent}subgraph {inner} {{"
            yield f'{indent}  label={_quote(item.title)}; color="#999999"; style=rounded;'
            yield from _in_frame(item, inner, indent + "  ")
            yield f"{indent}}}"
            continue
        more = [f"label={_quote(item.text)}", f'fillcolor="{FILLS[item.fill]}"']
        more += ["shape=oval"] if item.fill == "value" else []
        more += [f"tooltip={_quote(item.source)}"] if item.source else []
        yield f"{indent}v{item.number} [{', '.join(more)}];"


def _quote(text: str) -> str:
    """Return a string of the Graphviz language: quotes, backslashes and line breaks escaped."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


# -- Matplotlib --------------------------------------------------------------------------------

_WIDTH, _LANE = 4.6, 0.16  # the width of boxes and of lanes of values; a box has height one
_IN_PLOT = 46


@dataclasses.dataclass
class _Row:
    """A box with its place: its line, and its depth in frames."""

    box: Box
    line: float
    depth: int


@dataclasses.dataclass
class _Way:
    """The way of a value: from its row down to the rows that use it, in its own lane."""

    text: str
    start: float
    ends: list[tuple[_Row, bool]]
    lane: int = 0

    @property
    def last(self) -> float:
        return max(row.line for row, _ in self.ends)


_Frames = list[tuple[str, float, float, int]]  # title, first and last line, depth


def plot(program: Body, ax: Axes | None = None) -> Axes:
    """Draw a program from top to bottom, each value in its own lane, and return the axes.

    **Raises:** `ImportError` if Matplotlib is not installed.
    """
    picture, frames = Picture(program), _Frames()
    rows = {row.box.number: row for row in _rows(picture.frame, frames)}
    ways = _ways(picture.arrows, rows)
    lanes = 1 + max((way.lane for way in ways), default=0)
    lowest = max((row.line for row in rows.values()), default=0.0)
    right = _WIDTH + _LANE * lanes + 2.6
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError(
                "a picture of a program needs matplotlib, which is not installed.\n"
                "Hint: `pip install matplotlib`; `.to_dot()` and `print` do without it."
            ) from error
        size = (1.1 * right, 0.8 + 0.34 * lowest)
        ax = pyplot.subplots(figsize=size, layout="constrained")[1]
    from matplotlib.patches import Rectangle

    for title, first, last, depth in frames:
        left, top = _left(depth) - 0.2, first - 0.5
        width, height = _WIDTH - 0.1 * depth - left, last - first + 0.2
        ax.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor="#999999", lw=0.8))
        ax.text(left + width - 0.1, top + 0.1, _plain(title), ha="right", va="top", fontsize=7)
    for way in ways:
        _draw_way(ax, way)
    for row in rows.values():
        style = {"boxstyle": "round", "facecolor": FILLS[row.box.fill], "edgecolor": "#777777"}
        text = _plain(_cut(row.box.text, _IN_PLOT))
        ax.text(_left(row.depth), row.line, text, va="center", fontsize=8, bbox=style)
    ax.set(xlim=(-0.3, right), ylim=(lowest + 0.8, -0.8), title=_plain(program.name))
    ax.axis("off")
    return ax


def _rows(frame: Frame, frames: _Frames, start: float = 0.0, depth: int = 0) -> Iterator[_Row]:
    """Yield the boxes from top to bottom; record a frame when its last box is done."""
    line = start
    for item in frame.items:
        if isinstance(item, Box):
            yield _Row(item, line, depth)
            line += 1
            continue
        first = line
        for row in _rows(item, frames, line + 0.4, depth + 1):
            yield row
            line = row.line + 1
        frames.append((item.title, first, line, depth + 1))
        line += 0.4


def _ways(arrows: list[Arrow], rows: dict[int, _Row]) -> list[_Way]:
    """Return the ways of all used values, each in the leftmost lane that is free."""
    found: dict[tuple[int, str], _Way] = {}
    for arrow in arrows:
        way = _Way(arrow.text, rows[arrow.start].line, [])
        way = found.setdefault((arrow.start, arrow.text), way)
        way.ends.append((rows[arrow.end], arrow.closure))
    free: list[float] = []  # the row up to which each lane is occupied
    before = -1.0
    for way in sorted(found.values(), key=lambda w: w.start):
        way.start = max(way.start, before + 0.3)
        before = way.start
        lanes = [i for i, until in enumerate(free) if until < way.start]
        way.lane = lanes[0] if lanes else len(free)
        free[way.lane : way.lane + 1] = [way.last + 0.3]
    return list(found.values())


def _left(depth: int) -> float:
    return 0.3 * depth


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _draw_way(ax: Axes, way: _Way) -> None:
    """Draw a line right, down, and back to every user; name and type stand at the corner."""
    x, grey = _WIDTH + _LANE * (way.lane + 1), "#555555"
    ax.plot([_WIDTH - 0.4, x, x], [way.start, way.start, way.last - 0.2], color=grey, lw=0.7)
    for row, is_closure in way.ends:
        ax.annotate(
            "", (_WIDTH - 0.4, row.line - 0.2), (x, row.line - 0.2),
            arrowprops={
                "arrowstyle": "-|>", "lw": 0.7, "color": grey, "shrinkA": 0, "shrinkB": 0,
                "linestyle": "dashed" if is_closure else "solid", "mutation_scale": 7,
            },
        )  # fmt: skip
    style = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    text = _plain(_cut(way.text, _IN_PLOT))
    ax.text(x + 0.06, way.start, text, fontsize=7, va="center", color="#0072B2", bbox=style)


def _plain(text: str) -> str:
    """Escape dollars, so that Matplotlib starts no formula."""
    return text.replace("$", r"\$")
