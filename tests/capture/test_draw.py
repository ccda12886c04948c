"""Pictures of programs: Graphviz, Matplotlib, HTML; whatever the names in them."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

import jax.numpy as jnp
import matplotlib
import pytest

import tanjax as tj

pytestmark = pytest.mark.core

X = jnp.array([0.3, 1.7, -0.9])


@pytest.fixture
def pyplot():
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


class Gate(metaclass=tj.programs.CaptureMeta):
    """A class whose type and parameters are written as nobody should."""

    def __init__(self, angle, note):
        self.angle, self.note = angle, note

    def type_text(self):
        return 'Gate<&"$x$">'


def program():
    """A structured value, a quantity, a loop that closes over both, a lost structure, a class."""

    def walk(d, x):
        a, metre = tj.Diagonal(d), x * tj.unit("m")
        y, _ = tj.scan(lambda c, _: (tj.matmul(a, c) + metre.to_value("m"), None), x, None, 2)
        Gate(x[0], note='</pre><script>alert("$1\\$")</script>\n')
        return y, metre, 2.0

    walk.__name__ = 'a<b "c" $d'
    return tj.capture(walk)(X, X)


def parsed(dot):
    """Boxes by name, arrows with their labels, and how deep the frames go."""
    strings = r'"(?:[^"\\]|\\.)*"'
    bare = re.sub(strings, '""', dot)
    assert bare.count("{") == bare.count("}")
    assert bare.count('"') % 2 == 0
    boxes = dict(re.findall(rf"^ +(v\d+) \[label=({strings})", dot, re.MULTILINE))
    arrows = re.findall(rf"(v\d+) -> (v\d+) \[label=({strings})(, style=dashed)?\];", dot)
    return boxes, arrows


def test_arrows_have_types_and_lead_from_box_to_box():
    boxes, arrows = parsed(program().to_dot())
    assert {end for arrow in arrows for end in arrow[:2]} <= set(boxes)
    into = {label for _, end, label, _ in arrows if boxes[end].startswith('"matmul')}
    assert {label.partition(":")[2] for label in into} == {'Diagonal<f64[3]>"', 'f64[3]"'}
    results = {label for _, end, label, _ in arrows if boxes[end].startswith('"result 1')}
    assert [label.partition(":")[2] for label in results] == ['f64[3] m"']


def test_letters_are_those_of_the_print():
    p = program()
    text = str(p)
    _, arrows = parsed(p.to_dot())
    for _, _, label, _ in arrows:
        plain = label[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        assert plain in text


def test_bodies_are_framed_and_closures_arrive_in_them():
    dot = program().to_dot()
    assert 'label="scan: f"' in dot
    boxes, arrows = parsed(dot)
    closures = [(boxes[start], boxes[end]) for start, end, _, dashed in arrows if dashed]
    assert any(a.startswith('"Diagonal') and "Diagonal<f64[3]>" in b for a, b in closures)


def test_every_box_has_the_line_of_the_program():
    assert re.search(r'tooltip="[^"]*test_draw.py:\d+ \(.*walk\)"', program().to_dot())


def test_html_is_well_formed_and_shows_the_print():
    p = program()
    tree = ElementTree.fromstring(f"<div>{p._repr_html_()}</div>")
    pre = tree.find("pre")
    assert "".join(pre.itertext()) == str(p)
    kinds = {span.get("class"): span.text for span in pre.iter("span")}
    assert set(kinds) >= {"plain", "structured", "quantity", "class"}
    assert kinds["quantity"].endswith(" m")
    assert kinds["class"] == 'Gate<&"$x$">'
    assert "<script" not in p._repr_html_()


def test_plot_draws_into_given_axes(pyplot):
    _, axes = pyplot.subplots()
    p = program()
    assert p.plot(axes) is axes
    texts = [t.get_text() for t in axes.texts]
    assert any(t.startswith("matmul[Diagonal, Dense]") for t in texts)
    assert any(":Diagonal<f64[3]>" in t for t in texts)
    axes.figure.canvas.draw()  # dollars start no formula


def test_plot_of_an_empty_program(pyplot):
    axes = tj.capture(lambda: 1.0)().plot()
    axes.figure.canvas.draw()
    assert parsed(tj.capture(lambda x: x)(X).to_dot())[1]


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib"):
        program().plot()
    assert program().to_dot()
