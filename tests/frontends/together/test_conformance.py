"""Value and unit of every function on quantities, through every front door, against plain JAX.

Each kind of call is made with units mixed in prefix; plain JAX on SI numbers says what is right.
"""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj
from calls import CALLS, DOORS, FACTORS, GROUPS, NONSENSE, Call, Q, raw, unit
from tanjax.quantities import UnitFunction

sys.path.append(str(Path(__file__).parents[3] / "docs"))
import generate_conformance

pytestmark = [pytest.mark.core, pytest.mark.slow]

ARRAY_API = ("numpy", "linalg", "fft", "lax")


@functools.cache
def outcome(call, door):
    """What is wrong with a call through a door; `None` if the door does not have it."""
    function = DOORS[door](call)
    return None if function is None else call.wrong(function)


def wrong(calls, door):
    return [f"{c}: {outcome(c, door)}" for c in calls if raw(c) is not None and outcome(c, door)]


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_tanjax_is_right(group):
    assert wrong(GROUPS[group], "tanjax") == []


@pytest.mark.parametrize("group", [g for g in GROUPS if g.startswith(("numpy", "linalg", "fft"))])
def test_numpy_protocols_are_right(group):
    assert wrong(GROUPS[group], "NumPy") == []


def test_operators_and_methods_are_right():
    assert wrong(CALLS, "Python") == []


def test_enough_kinds_of_calls():
    """At least the 346 calls that other libraries were measured with, and 60 of `jax.scipy`."""
    tables = [c.table for c in CALLS]
    assert sum(t in ARRAY_API for t in tables) >= 346
    assert sum(t.startswith("scipy") for t in tables) >= 60
    assert sum(DOORS["NumPy"](c) is not None for c in CALLS) >= 250
    assert len({str(c) for c in CALLS}) >= 500
    right = sum(outcome(c, "tanjax") == "" for c in CALLS if c.table in ARRAY_API)
    assert right >= 340
    assert len(NONSENSE) >= 40
    base = {"km": "m", "cm": "m", "ms": "s", "deg": "rad"}
    for name, factor in FACTORS.items():  # written by hand
        assert float(tj.Quantity(1.0, name).to_value(base.get(name, name))) == factor


def traced(call, function, leaf):
    """The result of a call whose quantities are traced, without values."""
    leaves, tree = jax.tree.flatten((call.args, call.kwargs), is_leaf=lambda x: type(x) is Q)
    places = [i for i, x in enumerate(leaves) if type(x) is Q]

    def run(*values):
        new = dict(zip(places, values, strict=True))
        args, kwargs = tree.unflatten([new.get(i, x) for i, x in enumerate(leaves)])
        return function(*args, **kwargs)

    return jax.eval_shape(run, *(leaf(leaves[i]) for i in places))


def test_units_are_known_while_tracing():
    """Inside `jax.jit` results have the units that they have outside: for one call in four."""
    checked = []
    for call in CALLS[::4]:
        try:
            traced(call, raw(call), lambda q: q.si)
        except Exception:
            continue  # JAX itself wants values, or a function gives something else than arrays
        inside = traced(call, DOORS["tanjax"](call), lambda q: q.quantity)
        leaves = jax.tree.leaves(inside, is_leaf=lambda x: type(x) is tj.Quantity)
        found = [x.unit.dimension for x in leaves if type(x) is tj.Quantity]
        assert found == [unit(u).dimension for u in jax.tree.leaves(call.expected)], call
        checked.append(call)
    assert len(checked) >= 130


@pytest.mark.parametrize("call", NONSENSE, ids=str)
@pytest.mark.parametrize("door", ["tanjax", "NumPy", "Python"])
def test_nonsense_is_refused(call, door):
    function = DOORS[door](call)
    if function is None:
        assert door != "tanjax"
        return
    args, kwargs = call.quantities()
    with pytest.raises(tj.UnitError):
        function(*args, **kwargs)


METRES, KILOMETRES = Q([1.5, 2.0], "m"), Q([0.001, 0.002], "km")


@pytest.mark.parametrize(
    ("name", "planted", "args", "unit", "finding"),
    [
        ("hypot", "x1: u, x2: u -> u^2", (METRES, KILOMETRES), "m", "unit"),
        ("hypot", "x1: u, x2: v -> u", (METRES, KILOMETRES), "m", "value"),
        ("hypot", "x1: u, x2: u -> -", (METRES, KILOMETRES), "m", "strip"),
        ("sqrt", "x: 1 -> 1", (METRES,), "m^1/2", "error"),
    ],
)
def test_a_wrong_signature_is_found(name, planted, args, unit, finding):
    function = UnitFunction(name, getattr(jnp, name), planted)
    assert Call("numpy", name, args, {}, unit).wrong(function).startswith(finding)


# -- the page of the documentation -----------------------------------------------------------------


COMMITTED = generate_conformance.PAGE.read_text()


def test_page_is_current():
    """All columns but the last, which `docs/generate_conformance.py --check` compares, too."""
    page = generate_conformance.page(lambda c, door: None if door == "lift" else outcome(c, door))
    of_page, of_committed = map(generate_conformance.without_last_column, (page, COMMITTED))
    is_current = of_page == of_committed  # not compared by pytest, whose message is the whole page
    assert is_current, "the page is stale: run `python docs/generate_conformance.py`."
    for right, wrong in (("✓", "·"), ("u*v", "u/v")):
        assert generate_conformance.stale(COMMITTED, COMMITTED.replace(right, wrong, 1))
    assert not generate_conformance.stale(COMMITTED, COMMITTED)


LIFTED = """
mean var std max prod sum cross clip interp trapezoid arctan2 hypot fft dot outer einsum cumsum diff
gradient convolve select sqrt cbrt square exp sin matmul solve inv det cholesky eigh eigvalsh svd qr
norm lstsq pinv matrix_power slogdet cho_solve solve_triangular stack concatenate tile pad sort flip
roll repeat where less sign isfinite argmax
"""


def test_lift_is_right():
    tables = ("numpy", "linalg", "fft", "scipy.linalg")
    assert wrong([c for c in CALLS if c.table in tables and c.name in LIFTED.split()], "lift") == []


@pytest.mark.parametrize("group", GROUPS)
def test_lift_does_what_the_page_says(group):
    """For one function in seven; which primitives a function is made of depends on the version."""
    if generate_conformance.version() not in COMMITTED:
        assert "measured with JAX" in COMMITTED
        return
    functions = generate_conformance.by_function(GROUPS[group])
    section = COMMITTED.partition(f"## {group}\n")[2].partition("\n## ")[0].splitlines()
    for name in list(functions)[::7]:
        cell = generate_conformance.cell(functions[name], "lift", outcome)
        row = next(line for line in section if line.startswith(f"| `{name}` |"))
        assert (name, row.rpartition("| ")[2]) == (name, f"{cell} |")
