"""What people look at: table, page, picture, Graphviz source, progress bar.

The graphs are built by hand, with magnitudes and exponents that no planner would choose, so that
each thing that can be said about a value is said about exactly one.
"""

import builtins
import html.parser
import io
import itertools
import math
import re
import sys
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

import tanjax as tj
from scale_facts import exponents_at, magnitudes_of
from tanjax.scale import Magnitude, build
from tanjax.scale.show._dot import to_dot
from tanjax.scale.show._draw import BAND, COLOURS, figure_size, nested_spans, plot
from tanjax.scale.show._html import to_fragment, to_html
from tanjax.scale.show._progress import LARGE, progress
from tanjax.scale.show._report import left_out, report, select
from tanjax.scale.show._rows import (
    Facts,
    magnitude_in_tens,
    place_in_short,
    power_in_tens,
    rows_to_show,
)

pytestmark = pytest.mark.core

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def agg():
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def measured(low, high=None):
    """The magnitude of numbers from `low` to `high`."""
    return Magnitude(math.log2(low), math.log2(high or low), True)


def force(m, d):
    return 6.67e-11 * m * m / (d * d)


def newton():
    """Newton's force in a function of its own: `m * m` overflows, and is stored at 2^128."""
    x = jnp.float32(1)
    graph = build(jax.make_jaxpr(lambda m, d: jax.jit(force)(m, d) + 1.0)(x, x))
    of = {row.name: row.value for row in rows_to_show(graph, Facts("f", argument_names=("m", "d")))}
    sizes = {"m": 6e24, "d": 1.5e11, "a": 6e24, "b": 1.5e11, "c": 4e14, "e": 2.4e39, "f": 2.25e22}
    sizes |= {"g": 1.07e17, "h": 1.07e17, "i": 1.07e17}
    known = {name: measured(size) for name, size in sizes.items()} | {"b": measured(1e11, 2e11)}
    magnitudes = magnitudes_of(graph, [(of[name], m) for name, m in known.items()])
    moved = [(of["e"], 128), *((use, -24) for use in of["c"].uses)]
    lost = {of["e"].index: "overflow", of["f"].index: "underflow"}
    notes = ("the size of <m> is an estimate",)
    numbers = magnitudes, exponents_at(graph, moved)
    facts = Facts(
        "force", False, "milp", 0.25, 0.004, 2, lost, notes, ("m", "d"), ("out",), *numbers
    )
    return graph, facts


def chain(length):
    """Values that grow out of the range of float32 after 20 of `length` steps, and stay there."""

    def run(x):
        for _ in range(length):
            x = x * 100.0
        return x

    graph = build(jax.make_jaxpr(run)(jnp.float32(1)))
    sizes, lost = {}, {}
    for n, value in enumerate([graph.inputs[0], *(node.outputs[0] for node in graph.nodes)]):
        log2 = min(n, 25) * math.log2(100.0)
        sizes[value] = Magnitude(log2, log2, True)
        if log2 > 127:
            lost[value] = "overflow"
    exponents = exponents_at(graph, [(value, 100) for value in lost])
    lost = {value.index: kind for value, kind in lost.items()}
    magnitudes = magnitudes_of(graph, sizes.items())
    return graph, Facts(
        "chain", False, "milp", 0.0, 0.0, 0, lost, (), (), (), magnitudes, exponents
    )


def line_of(text, name):
    (line,) = (line for line in text.splitlines() if re.match(rf" +{name} ", line))
    return line


# -- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("log2", [-1022.0, -126.0, -3.4, 0.0, 3.3, 10.0, 16.7, 127.9, 1023.9])
def test_powers_agree_with_python(log2):
    assert float(power_in_tens(log2)) == pytest.approx(2.0**log2, rel=0.05)


@pytest.mark.parametrize(
    ("log2", "text"),
    [
        (5000.0, "1.4e+1505"),
        (-5000.0, "7.1e-1506"),
        (math.inf, "∞"),
        (-math.inf, "0"),
        (math.log2(9.99e24), "1e+25"),  # the digits round up to ten
        (math.log2(0.02), "0.02"),
        (math.log2(1200), "1200"),
        (math.log2(99999), "1e+5"),
    ],
)
def test_powers_beyond_floats(log2, text):
    assert power_in_tens(log2) == text


def test_magnitudes_are_written_as_powers_of_ten():
    assert magnitude_in_tens(measured(2e-11, 6e24)) == "2e-11 … 6e+24"
    assert magnitude_in_tens(Magnitude(0.0, 10.0)) == "~1 … 1000"
    assert magnitude_in_tens(measured(3.0)) == "3"
    assert magnitude_in_tens(Magnitude(math.inf, -math.inf, True)) == "0"
    assert magnitude_in_tens(None) == "?"


@pytest.mark.parametrize(
    ("place", "short"),
    [
        ("/data/orbit.py:12:8 (step.<locals>.force)", "orbit.py:12 (force)"),
        ("C:/x/orbit.py:12 (force)", "orbit.py:12 (force)"),
        ("an equation of the traced function", "an equation of the traced function"),
        ("", ""),
    ],
)
def test_places_are_written_in_short(place, short):
    assert place_in_short(place) == short


# -- the table ------------------------------------------------------------------------------------


def test_table_says_everything():
    text = report(*newton())
    head = text.splitlines()[:4]
    assert head[0] == "force: 6 equations in float32"
    assert head[1] == "in plain JAX: 1 value would overflow and 1 value would underflow"
    assert head[2] == "plan: 2 conversions (milp, gap 0.4 %, 0.25 s)"
    assert head[3] == "note: the size of <m> is an estimate"
    assert re.search(r"m +input +float32\[\] +6e\+24", line_of(text, "m"))
    assert re.search(r"┌ +jit force", text)
    assert re.search(r"   b +argument +float32\[\] +1e\+11 … 2e\+11", line_of(text, "b"))
    c = r"c +mul 6.67e-11 a +float32\[\] +test_show.py:\d+ \(force\) +4e\+14 +×2\^24 in e$"
    assert re.search(c, line_of(text, "c"))
    e = r"e +mul c a +float32\[\] +test_show.py:\d+ \(force\) +2.4e\+39 +2\^128 +×2\^128 in g"
    assert re.search(e, line_of(text, "e"))
    assert line_of(text, "e").endswith(" overflow")
    assert line_of(text, "f").endswith(" underflow")
    assert re.search(r"i → out +add h 1 ", line_of(text, "i"))
    assert "\x1b" not in text


def test_constants_have_rows_only_where_there_is_something_to_say():
    numbers = np.array([1.0, 2.0], np.float32)
    graph = build(jax.make_jaxpr(lambda x: x * 3600.0 + jnp.asarray(numbers))(jnp.float32(1)))
    (factor,) = (v for v in graph.values if v.kind == "constant" and not v.aval.shape)
    facts = Facts("f", exponents=exponents_at(graph, [(factor.uses[0], -32)]))
    rows = rows_to_show(graph, facts)
    assert [row.operation for row in rows if row.value.kind == "constant"] == ["constant"]
    assert "mul a 3600 at 2^-32" in [row.operation for row in rows]
    lost = rows_to_show(graph, facts._replace(lost={factor.index: "underflow"}))
    assert [row.name for row in lost if row.lost] == ["3600"]


def test_a_constant_is_shown_as_its_reader_has_it():
    """It is converted while planning, for each reader, and has no exponent of its own."""
    far = jnp.array([2.0**100, 1.0], jnp.float32)
    graph = build(jax.make_jaxpr(lambda x: x * far)(far))
    (constant,) = graph.constants
    at = exponents_at(graph, [(constant, 219), (constant.uses[0], 12)])
    rows = rows_to_show(graph, Facts("f", exponents=at))
    assert [row.exponent for row in rows if row.operation == "constant"] == [12]


def test_identity_has_no_columns_for_exponents():
    graph, facts = newton()
    text = report(graph, facts._replace(identity=True, lost={}, conversions=0, exponents=None))
    assert "plan: the program is run as it is" in text
    assert "in plain JAX: nothing is lost" in text
    assert "exponent" not in text
    assert "converted" not in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_losses_are_red_on_a_terminal_only(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    terminal, log = Terminal(), io.StringIO()
    text = report(*newton(), file=terminal, width=132)
    assert report(*newton(), file=log) == text
    assert "\x1b" not in log.getvalue()
    red = {line for line in terminal.getvalue().splitlines() if re.search(r"\x1b\[(1;)?31m", line)}
    assert {re.sub(r"\x1b\[[\d;]*m", "", line).split()[-1] for line in red} == {
        "overflow",
        "underflow",
    }
    assert len(red) == 2


def test_table_is_text_in_a_notebook_too(monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    log = io.StringIO()
    text = report(*newton(), file=log)
    assert [line.rstrip() for line in log.getvalue().splitlines()] == text.splitlines()
    assert "overflow" in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_table_keeps_to_its_width(width):
    graph, facts = newton()
    lines = report(graph, facts._replace(notes=()), width=width).splitlines()[3:]
    assert max(map(len, lines)) <= width
    assert any(line.endswith("overflow") for line in lines)


def test_long_table_is_limited_and_counts_the_rest():
    graph, facts = chain(1000)
    rows = rows_to_show(graph, facts)
    text = report(graph, facts, limit=12)
    assert len(text.splitlines()) < 12 * 2 + 8
    counts = [int(n) for n in re.findall(r"… +(\d+) values?", text)]
    assert len(select(rows, 12)) == 12
    assert sum(counts) == len(rows) - 12
    first = next(row for row in rows if row.lost)
    assert line_of(text, first.name)  # where the trouble begins
    assert " → result" in text
    assert f"{left_out(rows[-5:-1])}" == "4 values, 4 of them lost"
    assert "in range" in text


def test_headings_come_with_what_stands_below():
    graph, facts = newton()
    rows = rows_to_show(graph, facts)
    shown = [rows[n] for n in select(rows, 1)]
    assert [row.operation for row in shown] == ["jit force", "mul c a"]


def mixed(x, h, n, key):
    """Every kind of nested graph, two dtypes, integers, a random key."""

    def body(c, k):
        e = c * c + k
        return e / 3, (e.astype(jnp.float16), jnp.where(e > 0, e, -e))

    c, (ys, zs) = jax.lax.scan(body, x, jnp.arange(365, dtype=jnp.float32))
    step = lambda s: (s[0] + 1, jnp.sin(s[1]) * h.astype(jnp.float32))
    _, w = jax.lax.while_loop(lambda s: s[0] < n, step, (0, c))
    k = jax.lax.cond(n > 2, lambda a: jnp.exp(a), lambda a: a * 2.5, w)
    return jnp.sum(ys), k * jax.random.normal(key, (3,), jnp.float32)[0], zs @ zs


@pytest.fixture(scope="module")
def mixed_graph():
    args = jnp.float32(1), jnp.float16(2), 3, jax.random.key(0)
    graph = build(jax.make_jaxpr(mixed)(*args))
    random, sizes, moved = np.random.default_rng(0), {}, {}
    for value in graph.values:
        if value.is_floating:
            middle, half = random.normal(0, 40), abs(random.normal(0, 10))
            sizes[value] = Magnitude(middle - half, middle + half)
            if value.kind != "constant" and middle > 30:
                moved[value] = round(middle)
    lost = {value.index: "overflow" for value in moved}
    numbers = {
        "magnitudes": magnitudes_of(graph, sizes.items()),
        "exponents": exponents_at(graph, moved.items()),
    }
    hostile = ("<script>alert(1)</script>", 'a"b\\', "$n_$", "key")
    return graph, Facts("<b>&mixed$x$", False, lost=lost, argument_names=hostile, **numbers)


def test_every_value_has_one_row_and_one_name(mixed_graph):
    graph, facts = mixed_graph
    rows = rows_to_show(graph, facts)
    shown = [row.value.index for row in rows if row.value]
    named = {value.index for value in graph.values if value.kind != "constant"}
    assert len(shown) == len(set(shown))
    assert named <= set(shown)
    names = [row.name for row in rows if row.value and row.value.kind != "constant"]
    assert len(names) == len(set(names))
    headings = [row.operation for row in rows if row.value is None]
    assert "scan, 365 times" in headings
    assert {"while, condition", "while, body", "cond, branch 2 of 2"} <= set(headings)


# -- the picture ----------------------------------------------------------------------------------


def collection(ax, gid):
    (found,) = (c for c in ax.collections if c.get_gid() == gid)
    return found


def test_picture_shows_plain_jax_fail_and_the_plan_hold():
    graph, facts = newton()
    ax = plot(graph, facts)
    names = [row.name for row in rows_to_show(graph, facts) if row.value]
    numbers, stored = collection(ax, "numbers"), collection(ax, "stored")
    colours = [
        matplotlib.colors.to_hex(c, keep_alpha=False).upper() for c in numbers.get_facecolors()
    ]
    wanted = {"e": COLOURS["overflow"], "f": COLOURS["underflow"]}
    assert colours == [wanted.get(name, COLOURS[""]) for name in names]
    e = names.index("e")
    tall, moved = numbers.get_paths()[e].vertices, stored.get_paths()[e].vertices
    assert tall[:, 1].max() > 38.5
    assert moved[:, 1].mean() == pytest.approx(tall[:, 1].mean() - 128 * math.log10(2))
    assert all(path.vertices[:, 1].min() > -37.9 for path in stored.get_paths())
    assert all(path.vertices[:, 1].max() < 38.5 for path in stored.get_paths())
    b = numbers.get_paths()[names.index("b")].vertices[:, 1]
    assert b.min() <= 11.0
    assert b.max() >= math.log10(2e11)
    title = "force: plain JAX loses 2 of 10 values; stored with exponents, all are in range"
    assert ax.get_title(loc="left") == title
    assert [str(t.get_text()) for t in ax.get_xticklabels()][e] == "e: mul c a"


def test_picture_of_an_identity_has_no_second_bars():
    graph, facts = newton()
    lost = facts.lost
    sizes = [measured(1e30) if i in lost else m for i, m in enumerate(facts.magnitudes)]
    facts = facts._replace(identity=True, lost={}, magnitudes=sizes, exponents=None)
    ax = plot(graph, facts)
    assert [c.get_gid() for c in ax.collections if c.get_gid()] == ["numbers"]
    assert ax.get_title(loc="left") == "force: plain JAX loses nothing; run as it is"


def test_picture_is_drawn_into_given_axes():
    from matplotlib import pyplot

    _, (left, right) = pyplot.subplots(1, 2)
    assert plot(*newton(), ax=right) is right
    assert not left.collections


@pytest.mark.parametrize("length", [2, 40, 1000])
def test_labels_do_not_overlap(length, mixed_graph):
    ax = plot(*(mixed_graph if length == 40 else chain(length)))
    ax.figure.canvas.draw()
    boxes = [t.get_window_extent() for t in ax.get_xticklabels()]
    assert 3 <= len(boxes) <= 100
    gaps = [after.x0 - before.x1 for before, after in itertools.pairwise(boxes)]
    assert min(gaps) >= 0
    inside = ax.figure.bbox
    texts = [ax.title, *ax.get_xticklabels(), *ax.texts]
    for box in (t.get_window_extent() for t in texts if t.get_text()):
        assert inside.x0 <= box.x0
        assert box.x1 <= inside.x1 + 1
        assert box.y0 >= inside.y0 - 1


def test_runaway_values_are_cut_and_marked():
    graph, facts = newton()
    runaway = [Magnitude(5000.0, math.inf), Magnitude(-math.inf, 0.0)]
    ax = plot(graph, facts._replace(magnitudes=[*runaway, *facts.magnitudes[2:]]))
    assert ax.get_ylim()[1] < 150
    marked = [
        c.get_offsets()[:, 0].tolist()
        for c in ax.collections
        if len(c.get_offsets()) and c.get_zorder() == 4
    ]
    assert marked == [[0.0], [1.0]]
    ax.figure.canvas.draw()


def test_band_follows_the_dtype(mixed_graph):
    graph, facts = mixed_graph
    ax = plot(graph, facts)
    green = matplotlib.colors.to_rgb(BAND)
    bands = [c for c in ax.collections if c.get_zorder() == 0]
    assert all(tuple(c.get_facecolor()[0][:3]) == green for c in bands)
    edges = {round(float(path.vertices[:, 1].max())) for c in bands for path in c.get_paths()}
    assert edges == {5, 39}
    texts = " ".join(t.get_text() for t in ax.texts)
    assert "largest float32\n3.4e+38" in texts
    assert "float16" in texts


def test_nested_graphs_are_shaded_where_they_are(mixed_graph):
    rows = rows_to_show(*mixed_graph)
    floating = [row for row in rows if row.value and row.value.is_floating]
    for heading, first, last in nested_spans(rows):
        assert all(row.depth >= heading.depth for row in floating[first : last + 1])
        for beyond in floating[last + 1 : last + 2]:
            assert beyond.depth <= heading.depth
    assert figure_size(rows)[0] <= 14


def test_nothing_known_is_drawn_empty():
    graph = build(jax.make_jaxpr(lambda x: x + 1.0)(jnp.float32(1)))
    ax = plot(graph, Facts("f"))
    ax.figure.canvas.draw()
    assert ax.get_legend() is None
    integers = build(jax.make_jaxpr(lambda n: n + 1)(1))
    plot(integers, Facts("g")).figure.canvas.draw()
    assert "g: 1 equation in no float" in report(integers, Facts("g"))


# -- the page -------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """Checks that tags are closed in order; collects text, tags and attributes."""

    VOID = ("meta", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def svg_of(page):
    return ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


@pytest.mark.parametrize("make", [to_html, to_fragment])
def test_page_is_whole_and_asks_for_nothing(make, mixed_graph):
    graph, facts = mixed_graph
    text = make(graph, facts)
    page = Page(text)
    assert "script" not in page.tags
    assert "&lt;script&gt;" in text
    assert "mixed$x$" in "".join(page.text)
    links = [v for _, name, v in page.attributes if name in ("src", "href", "xlink:href")]
    assert all(link.startswith("#") for link in links)
    spaces = [v for _, name, v in page.attributes if name.startswith("xmlns")]
    without = text
    for space in spaces:
        without = without.replace(f'"{space}"', "")
    assert "//" not in without.replace("<script>alert(1)</script>", "")
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []
    assert text == make(graph, facts)  # the same page each time


def test_page_has_all_rows_and_the_fragment_those_that_matter():
    graph, facts = chain(80)
    assert Page(to_html(graph, facts)).tags.count("tr") == 1 + len(rows_to_show(graph, facts))
    fragment = to_fragment(graph, facts, limit=10)
    assert Page(fragment).tags.count("tr") < 25
    assert re.search(r"\d+ values in range", fragment)


def test_rows_and_bars_of_the_page_say_their_source():
    graph, facts = newton()
    text = to_html(graph, facts)
    page, svg = Page(text), svg_of(text)
    assert [v for tag, name, v in page.attributes if tag == "tr" and v == "overflow"] == [
        "overflow"
    ]
    places = [v for tag, name, v in page.attributes if tag == "tr" and name == "title"]
    assert any(v.startswith(__file__) for v in places)
    (numbers,) = (g for g in svg.iter(f"{SVG}g") if g.get("id") == "numbers")
    titles = [title.text for title in numbers.iter(f"{SVG}title")]
    assert len(titles) == 10
    (lost,) = (t for t in titles if "overflow" in t)
    assert lost.splitlines()[:3] == ["e: mul c a", "2.4e+39", "stored at 2^128"]
    assert svg.find(f"{SVG}metadata") is None
    assert "#010203" not in text
    assert "currentColor" in text


def test_very_many_bars_are_pixels():
    graph, facts = chain(2100)
    text = to_fragment(graph, facts)
    assert len(text) < 150_000
    images = [image for image in svg_of(text).iter(f"{SVG}image")]
    assert images
    assert all(
        value.startswith("data:image/png")
        for image in images
        for key, value in image.items()
        if key.endswith("href")
    )


def without_matplotlib(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_missing_matplotlib_is_said(monkeypatch):
    with monkeypatch.context() as patch:
        without_matplotlib(patch)
        for make in (plot, to_html):
            with pytest.raises(ImportError, match="pip install matplotlib"):
                make(*newton())
        assert "pip install matplotlib" in to_fragment(*newton())
        assert report(*newton())
        assert to_dot(*newton())


# -- Graphviz -------------------------------------------------------------------------------------

STRING = r'"(?:[^"\\\n]|\\.)*"'
ATTRIBUTES = rf"\[\w+=(?:{STRING}|[\w.]+)(?:, \w+=(?:{STRING}|[\w.]+))*\]"


KEYWORDS = ("graph", "node", "edge")


def parse_dot(text):
    """The boxes, arrows and depth of frames of a file; anything unexpected fails."""
    boxes, arrows, frames, depth = {}, [], [], 0
    for line in map(str.strip, text.splitlines()):
        if line == "}":
            depth -= 1
        elif re.fullmatch(rf"digraph {STRING} {{", line) or re.fullmatch(r"subgraph \w+ {", line):
            depth += 1
            frames.append(line.split()[1])
        elif (box := re.fullmatch(rf"(\w+) ({ATTRIBUTES});", line)) and box[1] not in KEYWORDS:
            boxes[box[1]] = box[2]
        elif arrow := re.fullmatch(rf"(\w+) -> (\w+)(?: ({ATTRIBUTES}))?;", line):
            arrows.append((arrow[1], arrow[2], arrow[3] or ""))
        else:
            settings = rf"(\w+=(?:{STRING}|\w+);? ?)+|({'|'.join(KEYWORDS)}) {ATTRIBUTES};"
            assert re.fullmatch(settings, line), line
    assert depth == 0
    assert len(frames) == len(set(frames))
    for start, end, _ in arrows:
        assert start in boxes
        assert end in boxes
    return boxes, arrows, frames


def test_dot_says_everything():
    graph, facts = newton()
    boxes, arrows, frames = parse_dot(to_dot(graph, facts))
    index = {row.name: f"v{row.value.index}" for row in rows_to_show(graph, facts) if row.value}
    assert "mul c a" in boxes[index["e"]]
    assert "2.4e+39 at 2^128" in boxes[index["e"]]
    assert COLOURS["overflow"] in boxes[index["e"]]
    assert COLOURS["underflow"] in boxes[index["f"]]
    assert COLOURS["overflow"] not in boxes[index["c"]]
    labels = {(a, b): label for a, b, label in arrows}
    assert "×2^24" in labels[index["c"], index["e"]]
    assert "×2^128" in labels[index["e"], index["g"]]
    assert labels[index["m"], index["a"]] == ""  # into the nested function
    assert labels[index["g"], index["h"]] == ""  # and out of it
    assert labels[index["i"], "result0"] == ""
    assert len(frames) == 2


def test_dot_shows_loops_and_escapes(mixed_graph):
    graph, facts = mixed_graph
    boxes, arrows, frames = parse_dot(to_dot(graph, facts))
    assert len([1 for _, _, style in arrows if "dashed" in style]) == 3  # a scan's, two of a while
    assert len(frames) == 1 + sum(1 for row in rows_to_show(graph, facts) if row.value is None)
    reached = {end for _, end, _ in arrows}
    inner = {f"v{v.index}" for v in graph.values if v.kind == "inner"}
    starts = {start for start, _, _ in arrows}
    assert {box for box in boxes if box not in reached | starts} <= inner


# -- progress -------------------------------------------------------------------------------------


def test_progress_is_seen_for_large_graphs_on_a_terminal_only(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")

    def run(total, file):
        with progress(total, "planning", file=file) as advance:
            for _ in range(4):
                advance(total // 4)
        return file.getvalue()

    assert run(LARGE - 1, Terminal()) == ""
    assert run(LARGE, io.StringIO()) == ""
    assert "planning" in run(LARGE, Terminal())
    assert "100%" in run(LARGE, Terminal())


# -- all of it, planned ---------------------------------------------------------------------------


def test_view_of_a_planned_function():
    """Newton's force, sun and earth: what a user sees agrees with what plain JAX does."""
    masses = jnp.float32(1.989e30), jnp.float32(5.972e24)
    newton = lambda m, n, d: 6.674e-11 * m * n / (d * d)
    assert jnp.isinf(newton(*masses, jnp.float32(1.496e11)))
    view = tj.scale_graph(newton)(*masses, jnp.float32(1.496e11))
    text = view.report()
    assert text == str(view)
    (lost,) = (line for line in text.splitlines()[4:] if line.endswith(" overflow"))
    assert re.search(r"mul \w+ n +float32\[\] +test_show.py:\d+ .* 7.9e\+44 +2\^\d+", lost)
    assert "plain JAX loses 1 of 7 values" in view.plot().get_title(loc="left")
    parse_dot(view.to_dot())
    assert Page(view.to_html()).tags.count("tr") == 1 + len(rows_to_show(view.graph, Facts("f")))
    assert Page(view._repr_html_()).tags[0] == "section"
