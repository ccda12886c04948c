"""Indexed updates of quantities: values, points of a scale, fills, and what cannot be an index."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from quantities import assert_quantity

m, km, s, K, C = (tj.unit(name) for name in ("m", "km", "s", "K", "degC"))
x = jnp.asarray([0.0, 1.0, 2.0]) * m
t = jnp.asarray([1.0, 2.0]) * C


UPDATES = {
    "set": (lambda a: a.set(5.0 * km), [0.0, 5000.0, 2.0]),
    "set 0": (lambda a: a.set(0), [0.0, 0.0, 2.0]),
    "add": (lambda a: a.add(5.0 * km), [0.0, 5001.0, 2.0]),
    "options": (lambda a: a.add(1 * km, mode="drop", unique_indices=True), [0.0, 1001.0, 2.0]),
    "subtract": (lambda a: a.subtract(5.0 * km), [0.0, -4999.0, 2.0]),
    "min": (lambda a: a.min(-1.0 * km), [0.0, -1000.0, 2.0]),
    "max": (lambda a: a.max(1.0 * km), [0.0, 1000.0, 2.0]),
    "multiply": (lambda a: a.multiply(3.0), [0.0, 3.0, 2.0]),
    "mul": (lambda a: a.mul(3.0), [0.0, 3.0, 2.0]),
    "multiply by a ratio": (lambda a: a.multiply((2 * km) / (1 * m)), [0.0, 2000.0, 2.0]),
    "divide": (lambda a: a.divide(4.0), [0.0, 0.25, 2.0]),
    "apply": (lambda a: a.apply(lambda q: q + 1.0 * km), [0.0, 1001.0, 2.0]),
    "get": (lambda a: a.get(), 1.0),
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_convert_to_the_unit_of_the_array(name):
    update, expected = UPDATES[name]
    assert_quantity(update(x.at[1]), "m", expected)
    assert_quantity(jax.jit(lambda q: update(q.at[1]))(x), "m", expected)
    assert_quantity(update((np.arange(3.0) * m).at[1]), "m", expected)  # becomes a JAX array


@pytest.mark.parametrize("name", ["set", "add", "subtract", "min", "max"])
def test_updates_refuse_other_dimensions(name):
    for wrong in (1.0 * s, 1.0, jnp.ones(()), 1):
        with pytest.raises(tj.UnitError, match=rf"(?s)at\[.*\]\.{name}.*length"):
            getattr(x.at[0], name)(wrong)


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (lambda: t.at[0].add(5.0 * C.delta), [6.0, 2.0]),
        (lambda: t.at[0].subtract(5.0 * C.delta), [-4.0, 2.0]),
        (lambda: t.at[0].set(300.0 * K), [26.85, 2.0]),
        (lambda: t.at[0].min(200.0 * K), [-73.15, 2.0]),
        (lambda: t.at[1].set(3.0 * C), [1.0, 3.0]),
    ],
)
def test_updates_of_temperatures(update, expected):
    """A difference is added as one, and an absolute temperature set as one."""
    np.testing.assert_allclose(update().value, expected, rtol=1e-12)
    assert update().unit == C


@pytest.mark.parametrize(
    "update",
    [
        lambda: t.at[0].add(5.0 * C),
        lambda: t.at[0].subtract(5.0 * C),
        lambda: t.at[0].add(5.0),
        lambda: t.at[0].multiply(2.0),
        lambda: t.at[0].divide(2.0),
        lambda: x.at[0].multiply(2.0 * m),
        lambda: x.at[0].divide(2.0 * m),
        lambda: x.at[0].apply(lambda q: q * q),
        lambda: x.at[0].apply(lambda q: q.value),
        lambda: x[1.0 * m],
        lambda: x[jnp.asarray(1) * m, None],
        lambda: True * m,
    ],
)
def test_nonsense_is_refused(update):
    with pytest.raises(tj.UnitError):
        update()


def test_updates_need_one_index():
    """Without one the forgotten index set everything, of two the first was dropped."""
    with pytest.raises(AttributeError, match=r"say where: `q.at\[index\].set"):
        x.at.set(5.0 * m)
    with pytest.raises(IndexError, match="Got 1"):
        x.at[1.0 * m].set(1.0 * m)
    with pytest.raises(TypeError, match="i, j"):
        x.at[0][1].set(9.0 * m)
    with pytest.raises(AttributeError, match="`at` has no `nothing`"):
        _ = x.at.nothing
    assert not hasattr(x.at, "add")


def test_a_power_of_some_entries():
    ratio = tj.quantity(jnp.asarray([1.0, 200.0, 3.0]), "percent")
    raised = ratio.at[1].power(2)
    assert raised.unit == ratio.unit
    np.testing.assert_allclose(raised.value, [1.0, 400.0, 3.0], rtol=1e-6)
    raised = tj.quantity(jnp.arange(3.0), "1").at[2].power(tj.quantity(3.0, "1"))
    np.testing.assert_allclose(raised.value, [0.0, 1.0, 8.0])
    with pytest.raises(tj.UnitError, match="no longer be in m"):
        x.at[1].power(2)


def test_fill_value_must_have_the_unit():
    out_of_bounds = (jnp.arange(6.0).reshape(2, 3) * m).at[7]
    assert_quantity(out_of_bounds.get(mode="fill", fill_value=1.0 * km), "m", np.full(3, 1000.0))
    assert_quantity(out_of_bounds.get(mode="fill", fill_value=0), "m", np.zeros(3))
    with pytest.raises(tj.UnitError):
        out_of_bounds.get(mode="fill", fill_value=1.0)
    with pytest.raises(tj.UnitError):  # 0 degC, or 0 K?
        tj.Quantity(jnp.ones(2), "degC").at[0].set(0)


def test_sums_beyond_the_range_are_kept():
    """Numbers near the end of it, of which two fit and their sum does not."""
    end = jnp.asarray([2.5e38, 1.0], "float32") * m
    for sign, grow in ((1, end.at[0].add), (-1, (-end).at[0].subtract)):
        grown = grow(jnp.float32(2.5e38) * m)
        assert grown.dtype == jnp.float32
        np.testing.assert_allclose(grown[0].to_value("Gm"), sign * 5e29, rtol=1e-6)
