"""Compare computations on quantities with plain JAX on SI numbers, and with finite differences.

The factors of units in SI are written by hand, as the library's factors are under test.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

import tanjax as tj

SI = {
    "m": 1.0,
    "km": 1e3,
    "cm": 1e-2,
    "mm": 1e-3,
    "µm": 1e-6,
    "s": 1.0,
    "ms": 1e-3,
    "min": 60.0,
    "h": 3600.0,
    "kg": 1.0,
    "g": 1e-3,
    "N": 1.0,
    "kN": 1e3,
    "J": 1.0,
    "kJ": 1e3,
    "rad": 1.0,
    "deg": math.pi / 180.0,
}


def factor(unit):
    """Return the factor of a unit in SI, from its symbols."""
    return math.prod(SI[symbol] ** float(power) for symbol, power in unit.symbols)


def is_quantity(x):
    return type(x) is tj.Quantity


def si(tree):
    """Return every quantity of a tree as its number in SI; structured arrays stay structured."""

    def strip(x):
        if not is_quantity(x):
            return x
        by = factor(x.unit)
        if tj.rules.is_structured(x.value):
            return tj.linalg.multiply(x.value, by)
        return x.value * by if by != 1.0 else x.value

    return jax.tree.map(strip, tree, is_leaf=is_quantity)


def units_of(tree):
    """Return the unit of every leaf, `None` for plain ones."""
    leaves = jax.tree.leaves(tree, is_leaf=is_quantity)
    return [x.unit if is_quantity(x) else None for x in leaves]


def dense(x):
    """Return the dense array of plain numbers of an array of any type."""
    return np.asarray(tj.destructure(x) if tj.rules.is_structured(x) else x)


def assert_quantity(got, unit, value, tolerance=1e-13):
    """Assert a quantity in exactly this unit (under any of its names), with these numbers."""
    assert type(got) is tj.Quantity, f"not a quantity: {got!r}"
    assert got.unit == tj.unit(unit), f"{got.unit} is not {unit}"
    np.testing.assert_allclose(dense(got.value), dense(value), rtol=tolerance, atol=tolerance)
    assert np.shape(dense(got.value)) == np.shape(dense(value))


def assert_plain(got, value, tolerance=1e-13):
    """Assert plain numbers with these values."""
    assert type(got) is not tj.Quantity, f"a quantity: {got!r}"
    np.testing.assert_allclose(dense(got), dense(value), rtol=tolerance, atol=tolerance)


def assert_same(got, want, tolerance=1e-11):
    """Assert equal dimensions and equal numbers in SI, leaf by leaf of a tree of quantities."""
    leaves, tree = jax.tree.flatten(got, is_leaf=is_quantity)
    for g, w in zip(leaves, tree.flatten_up_to(want), strict=True):
        assert is_quantity(g) == is_quantity(w), f"{g!r} is not like {w!r}"
        if is_quantity(g):
            assert g.unit.dimension is w.unit.dimension, f"{g.unit} is not {w.unit}"
        np.testing.assert_allclose(*map(dense, si((g, w))), rtol=tolerance, atol=tolerance)


def assert_like_si(got, want, dimensions, tolerance=1e-10):
    """Assert plain JAX's numbers in SI, leaf by leaf, in the stated dimensions (`None`: plain)."""
    leaves = jax.tree.leaves(got, is_leaf=is_quantity)
    numbers = jax.tree.leaves(want, is_leaf=tj.rules.is_structured)
    assert len(leaves) == len(numbers) == len(dimensions)
    for g, w, unit in zip(leaves, numbers, dimensions, strict=True):
        if unit is None:
            assert not is_quantity(g), f"a quantity: {g!r}"
        else:
            assert is_quantity(g), f"plain, not in {unit}: {g!r}"
            assert g.unit.dimension is tj.unit(unit).dimension, f"{g.unit} is not {unit}"
        g, w = dense(si(g)), dense(w)
        assert g.shape == w.shape
        scale = tolerance * np.max(np.abs(w), initial=0.0, where=np.isfinite(w))
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=scale)


def central_difference(f, x, step=1e-6):
    """Return the Jacobian `(*out, *x)` of a function of one array, one entry at a time."""
    x = np.asarray(x, float)
    columns = []
    for i in range(x.size):
        e = np.zeros(x.size)
        e[i] = step * max(1.0, abs(x.ravel()[i]))
        e = e.reshape(x.shape)
        columns.append((np.asarray(f(x + e)) - np.asarray(f(x - e))) / (2 * np.max(e)))
    return np.stack(columns, -1).reshape(np.shape(columns[0]) + x.shape)


def arange(n, unit, start=1.0):
    """Return `start`, `start + 1`, … in a unit."""
    return (start + jnp.arange(float(n))) * tj.unit(unit)
