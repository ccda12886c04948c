"""Trees of quantities as trees of numbers: what crosses the boundary of a solver."""

import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.bridges._charts import chart_of, number_in, units_of, with_arrays

metre, second = tj.unit("m"), tj.unit("s")
TREE = {
    "x": jnp.array([1.0, 2.0]) * metre,
    "matrix": tj.Diagonal([1.0, 2.0]) * (metre / second),
    "plain": (jnp.array(3.0), None),
    "bare": tj.Symmetric(jnp.eye(2)),
    "warm": tj.Unitful(jnp.array(20.0), "degC"),
}


def test_round_trip():
    numbers, chart = chart_of(TREE)
    assert isinstance(numbers["matrix"], tj.Diagonal)
    assert numbers["plain"][1] is None
    again = chart.quantities(numbers)
    for name in ("x", "matrix", "warm"):
        assert again[name].unit is TREE[name].unit
        np.testing.assert_array_equal(
            tj.destructure(again[name].value), tj.destructure(TREE[name].value)
        )
    assert isinstance(again["bare"], tj.Symmetric)


def test_charts_compare_by_value():
    assert units_of(TREE) == units_of(chart_of(TREE)[1].quantities(chart_of(TREE)[0]))
    assert units_of(TREE) != units_of(TREE | {"x": 1.0 * second})


def test_numbers_are_converted_and_the_leaf_is_named():
    chart = units_of({"x": 1.0 * metre, "t": [1.0 * second]})
    got = chart.numbers("here: y", {"x": 5.0 * tj.unit("km"), "t": [0.0]})
    assert got == {"x": 5000.0, "t": [0.0]}
    with pytest.raises(tj.UnitError, match=r"here: y\['t'\]\[0\]"):
        chart.numbers("here: y", {"x": 0.0, "t": [5.0 * metre]})
    with pytest.raises(tj.ShapeError, match="here: y"):
        chart.numbers("here: y", {"x": 0.0 * metre})


def test_rates_of_plain_leaves_and_of_points_of_a_scale():
    rates = units_of(TREE).per(second)
    by_name = dict(zip(sorted(TREE), rates.units, strict=False))
    assert by_name["bare"] == tj.unit("1/s")
    assert units_of(TREE["warm"]).per(second).units == (tj.unit("K/s"),)
    assert units_of(TREE["warm"]).per(None).units == (tj.unit("K"),)


@pytest.mark.parametrize(
    ("x", "unit", "expected"),
    [
        (3.0 * tj.unit("km"), metre, 3000.0),
        (0, metre, 0),
        (0.0, metre, 0.0),
        (None, metre, None),
        (2.0, None, 2.0),
        (2.0 * tj.unit("m/km"), None, 0.002),
        (0.5, tj.unit("percent"), 50.0),
        (tj.Unitful(20.0, "degC"), tj.unit("K"), 293.15),
    ],
    ids=str,
)
def test_number_in(x, unit, expected):
    assert number_in("here", x, unit) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("x", "unit"), [(2.0, metre), (2.0 * metre, None), (2.0 * metre, second), (False, metre)]
)
def test_number_in_refuses(x, unit):
    with pytest.raises(tj.UnitError, match="here: the unit does not fit"):
        number_in("here", x, unit)


def test_python_numbers_inside_quantities_become_arrays():
    tree = with_arrays({"a": 2.0 * metre, "b": 2.0, "c": [np.ones(2) * metre], "f": len})
    assert isinstance(tree["a"].value, jnp.ndarray)
    assert (type(tree["b"]), type(tree["c"][0].value), tree["f"]) == (float, np.ndarray, len)
