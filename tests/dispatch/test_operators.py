"""Operators on structured arrays, and between them and quantities."""

import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from quantities import assert_quantity
from tanjax.units import m


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
