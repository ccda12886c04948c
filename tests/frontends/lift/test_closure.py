"""Lifted code that reads more than its arguments: what it closes over, and when it changed."""

import itertools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from quantities import assert_quantity
from tanjax.units import km, m, s

pytestmark = pytest.mark.core

reference, power = 2.0 * m, 2


def test_lift_notices_another_closure():
    held = []
    f = tj.lift(lambda v: v * held[-1])
    for factor, unit in ((2.0 * m, "m2"), (2.0 * s, "m s"), (2.0 * m, "m2")):
        held.append(factor)
        assert_quantity(f(3.0 * m), unit, 6.0)


def test_lift_infers_the_units_once_for_arguments_of_a_kind():
    """The first call traces once more than those that follow."""
    counter = itertools.count()

    def f(v):
        next(counter)
        return jnp.sqrt(v) * power

    def traces(q):
        before = next(counter)
        lifted(q)
        return next(counter) - before - 1

    lifted = tj.lift(f)
    first = traces(4.0 * m)
    assert first > 1
    assert traces(9.0 * m) == 1
    assert traces(9.0 * km) == first
    assert traces(np.ones(2) * km) == first


@pytest.mark.parametrize("values", [(2.0 * m, 2.0 * s), (2.0, 3.0 * km)])
def test_lift_notices_another_global(values, monkeypatch):
    f = tj.lift(lambda v: v * reference)
    for value in values:
        monkeypatch.setitem(globals(), "reference", value)
        result = f(3.0 * m)
        unit = m * value.unit if type(value) is tj.Quantity else m
        assert result.unit == unit
        assert_quantity(result, str(unit), 3.0 * getattr(value, "value", value))
    f = tj.lift(lambda v: v**power)
    assert_quantity(f(3.0 * m), "m2", 9.0)
    monkeypatch.setitem(globals(), "power", 3)
    assert_quantity(f(3.0 * m), "m3", 27.0)


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


def test_another_thread_takes_no_part_in_a_lift():
    """There a length and a number have no sum, whatever code is lifted here meanwhile."""
    caught = []

    def other():
        with pytest.raises(tj.UnitError) as error:
            tnp.add(2.0 * m, jnp.ones(()))
        caught.append(error)

    def f(v):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return v * reference

    assert_quantity(tj.lift(f)(3.0 * m), "m2", 6.0)
    assert caught
