"""Constructors that are given quantities: the unit is that of the array, as its type says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

km, m = tj.unit("km"), tj.unit("m")


@tj.register_array_type
class Damped(tj.AbstractArray):
    """Entries with a unit, and a pure number that they are multiplied by."""

    units = "entries: u, damping: 1 -> u"

    entries: jax.Array = tj.array_field(ndim=1)
    damping: jax.Array = tj.array_field(ndim=0)

    def to_dense(self):
        return self.entries * self.damping


@tj.register_array_type
class Counted(tj.AbstractArray):
    """Pure numbers alone: there is no unit to have."""

    units = "share: 1 -> 1"

    share: jax.Array = tj.array_field(ndim=1)

    def to_dense(self):
        return self.share


@pytest.mark.parametrize("damping", [jnp.asarray(0.5), 50.0 * tj.unit("%"), 0.5 * m / m])
def test_a_field_without_a_unit_takes_a_quantity_without_a_dimension(damping):
    made = Damped(jnp.arange(3.0) * km, damping)
    assert (made.unit, type(made.value)) == (km, Damped)
    np.testing.assert_allclose(made.value.to_dense(), [0.0, 0.5, 1.0])
    bare = Damped(jnp.arange(3.0), damping)
    np.testing.assert_allclose(tj.destructure(bare), [0.0, 0.5, 1.0])


def test_a_field_without_a_unit_refuses_one():
    with pytest.raises(tj.UnitError, match="Damped"):
        Damped(jnp.arange(3.0) * km, 0.5 * m)
    with pytest.raises(tj.UnitError, match="Counted"):
        Counted(jnp.arange(3.0) * m)


def test_an_array_of_pure_numbers_is_made_of_their_values():
    made = Counted(jnp.asarray([10.0, 20.0]) * tj.unit("%"))
    np.testing.assert_allclose(tj.destructure(made), [0.1, 0.2])
