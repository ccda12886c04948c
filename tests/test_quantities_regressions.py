"""Quantities in the hands of somebody new: what once went wrong."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from quantities import assert_quantity

m, km, s = (tj.unit(name) for name in ("m", "km", "s"))
x = jnp.arange(6.0).reshape(2, 3) * m


# -- lift: code that means something else than in the call before ----------------------------------

reference, power = 2.0 * m, 2


def test_lift_notices_another_closure():
    held = []
    f = tj.lift(lambda v: v * held[-1])
    for factor, unit in ((2.0 * m, "m2"), (2.0 * s, "m s"), (2.0 * m, "m2")):
        held.append(factor)
        assert_quantity(f(3.0 * m), unit, 6.0)


@pytest.mark.parametrize("values", [(2.0 * m, 2.0 * s), (2.0, 3.0 * km)])
def test_lift_notices_another_global(values, monkeypatch):
    f = tj.lift(lambda v: v * reference)
    for value in values:
        monkeypatch.setitem(globals(), "reference", value)
        result = f(3.0 * m)
        unit = m * value.unit if type(value) is tj.Unitful else m
        assert result.unit == unit
        assert_quantity(result, str(unit), 3.0 * getattr(value, "value", value))


def test_lift_notices_another_power(monkeypatch):
    f = tj.lift(lambda v: v**power)
    assert_quantity(f(3.0 * m), "m2", 9.0)
    monkeypatch.setitem(globals(), "power", 3)
    assert_quantity(f(3.0 * m), "m3", 27.0)


def test_lift_traces_what_stays_the_same_once():
    counter = itertools.count()

    def f(v):
        next(counter)
        return jnp.sqrt(v) * power

    lifted = tj.lift(f)
    lifted(4.0 * m)
    first = next(counter)
    lifted(9.0 * m)
    assert next(counter) == first + 2


def test_lift_multiplies_what_is_tracked_with_what_is_closed_over():
    """A sum of a number in metres and a quantity whose number is tracked: `y + rate * x * t`."""
    rate = 2.0 / s
    f = tj.lift(lambda y, t: y + rate * y * t)
    assert_quantity(f(3.0 * m, 2.0 * s), "m", 15.0)
    assert_quantity(f(3.0 * km, 2000.0 * tj.unit("ms")), "m", 15000.0)
    length = 1.0 * m
    with pytest.raises(tj.UnitError):  # m + m s
        tj.lift(lambda y, t: y + length * t)(1.0 * m, 2.0 * s)


def test_lift_integrates_with_a_rate_that_is_closed_over():
    rate = 120.0 / tj.unit("min")

    def steps(y, h):
        step = lambda i, y: y - h * (rate * y)
        return jax.lax.fori_loop(0, 3, step, y)

    got = tj.lift(steps)(jnp.ones(2) * km, 100.0 * tj.unit("ms"))
    assert_quantity(got.to("km"), "km", np.full(2, 0.8**3))


def test_lift_of_code_that_turns_degrees_into_radians():
    angle = jnp.array([90.0, 180.0]) * tj.unit("deg")
    assert_quantity(tj.lift(jnp.deg2rad)(angle), "rad", [np.pi / 2, np.pi])
    assert_quantity(tj.lift(lambda a: jnp.sin(jnp.deg2rad(a)))(angle), "1", [1.0, 0.0])
    of_ratio = tj.lift(lambda a, b: jnp.rad2deg(jnp.arctan2(a, b)))
    assert_quantity(of_ratio(1.0 * m, 0.001 * km), "deg", 45.0)
    for wrong in (
        lambda: tj.lift(jnp.deg2rad)(angle.to("rad")),
        lambda: tj.lift(jnp.rad2deg)(angle),
    ):
        with pytest.raises(tj.UnitError):
            wrong()
    with pytest.raises(tj.UnitError):  # a prefix differs, so degrees go in as radians
        tj.lift(lambda a, b, c: (b + c) * jnp.deg2rad(a))(angle, 1.0 * m, 1.0 * km)


# -- indexing, NumPy's names, positions ------------------------------------------------------------


def test_what_is_filled_in_has_a_unit():
    out_of_bounds = x.at[7]
    assert_quantity(out_of_bounds.get(mode="fill", fill_value=1.0 * km), "m", np.full(3, 1000.0))
    assert_quantity(out_of_bounds.get(mode="fill", fill_value=0), "m", np.zeros(3))
    with pytest.raises(tj.UnitError):
        out_of_bounds.get(mode="fill", fill_value=1.0)
    with pytest.raises(tj.UnitError):  # 0 degC, or 0 K?
        tj.Unitful(jnp.ones(2), "degC").at[0].set(0)


def test_clip_with_the_names_of_numpy():
    limits = {"a_min": 1.0 * m, "a_max": 2000.0 * tj.unit("mm")}
    expected = np.clip(np.arange(6.0).reshape(2, 3), 1, 2)
    assert_quantity(np.clip(x, **limits), "m", expected)
    assert_quantity(np.clip(a=x, **limits), "m", expected)


def test_prod_with_positions():
    assert_quantity(tnp.prod(x, 0, jnp.float32, None, True), "m2", [[0.0, 4.0, 10.0]])


# -- keyword arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["key", "fun", "self"])
def test_arguments_may_have_any_name(name):
    f = lambda x, **named: x * named[name]
    assert_quantity(tj.jit(f)(2.0 * m, **{name: 3.0 * s}), "m s", 6.0)
    assert_quantity(tj.grad(f)(2.0 * m, **{name: 3.0 * s}), "s", 3.0)


# -- structured arrays -----------------------------------------------------------------------------


def test_iteration_over_a_structured_array_ends():
    d = tj.Diagonal(jnp.array([1.0, 2.0]))
    with tj.densify("allow"):
        rows = list(d)
        quantities = list(d * m)
    np.testing.assert_array_equal(rows, np.diag([1.0, 2.0]))
    assert len(d) == len(d * m) == len(quantities) == 2
    assert_quantity(quantities[1], "m", [0.0, 2.0])
    with pytest.raises(TypeError):
        len(tj.Fill(1.0, ()))


def test_a_structured_array_compares_with_a_quantity():
    d = tj.Diagonal(jnp.array([1.0, 2.0]))
    with tj.densify("allow"):
        assert np.all(d == d.__mul__(100.0) * tj.unit("percent"))
        assert np.array_equal(d < 2 * d * tj.unit("1"), np.diag([True, True]))
        with pytest.raises(tj.UnitError):
            d == d * m  # noqa: B015


def test_a_compiled_square_of_a_far_unit_does_not_overflow():
    """1 Gpc is 3e25 m, whose square float32 does not hold."""
    square = tj.jit(lambda x: x**2)
    one = jnp.float32(1.0)
    assert square(one * tj.unit("m")).unit == tj.unit("m2")
    far = square(one * tj.unit("Gpc"))
    assert (float(far.value), far.unit) == (1.0, tj.unit("Gpc2"))
    assert square(one * tj.unit("km")).unit == tj.unit("m2")


def test_a_branch_may_be_the_literal_zero():
    """As in sums and `where`, the literal zero has every unit."""
    f = lambda keep, x: tj.cond(keep, lambda x: x, lambda x: 0.0, x)
    x = 2.0 * tj.unit("m")
    assert float(f(True, x) / x) == 1.0
    assert f(False, x).to_value("m") == 0.0
    with pytest.raises(tj.UnitError, match="branch"):
        tj.cond(True, lambda x: x, lambda x: 1.0, x)


def test_lifted_code_may_use_the_methods_of_arrays():
    """A quantity of a Python number is an array to the code, as in a trace."""
    double = tj.lift(lambda v: v.astype(v.dtype) * 2)
    assert double(2.0 * tj.unit("m")).to_value("m") == 4.0


def test_a_pure_number_is_printed_without_a_label():
    ratio = (1.0 * m) / (2.0 * m)
    assert (str(ratio), f"{ratio:.2f}", repr(ratio)) == ("0.5", "0.50", 'Unitful(0.5, "1")')
    assert str((1.0 * m) / (2.0 * km)) == "0.5 m / km"
    assert str(5.0 * tj.unit("percent")) == "5.0 %"
