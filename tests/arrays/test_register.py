"""Registration of classes that somebody else owns."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj


class Rotation(NamedTuple):
    angle: jax.Array


def rotation_matrix(r):
    c, s = jnp.cos(r.angle), jnp.sin(r.angle)
    return jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])])


tj.register_array_type(Rotation, destructure=rotation_matrix)


def test_named_tuple_registers_and_is_differentiated():
    """A named tuple refuses `object.__new__`; asking whether it is a pytree must not call it."""
    x = jnp.array([0.7, -1.2])
    with tj.densify("allow"):
        got = jax.grad(lambda r: tj.matmul(r, x)[1])(Rotation(jnp.array(0.3)))
    expected = jax.grad(lambda t: (rotation_matrix(Rotation(t)) @ x)[1])(jnp.array(0.3))
    np.testing.assert_allclose(got.angle, expected, rtol=1e-14)


def test_foreign_array_is_a_natural_cotangent():
    """The default Jᵀ asks a foreign array for its dense form, not for its leaves."""
    r, other = Rotation(jnp.array(0.3)), Rotation(jnp.array(1.1))
    got = tj.pullback_of_destructure(r)(other)
    expected = tj.pullback_of_destructure(r)(rotation_matrix(other))
    assert float(jnp.abs(expected.angle)) > 0.1
    np.testing.assert_allclose(got.angle, expected.angle, rtol=1e-14)


@pytest.mark.parametrize("cls", [type("Plain", (), {}), type("Pair", (tuple,), {})])
def test_class_that_is_no_pytree_is_refused(cls):
    with pytest.raises(tj.RegistrationError, match="is not a pytree"):
        tj.register_array_type(cls, destructure=lambda x: x)


def test_unknown_option_is_named():
    """A misspelt option is reported with the options there are, not with a private function."""
    with pytest.raises(tj.RegistrationError, match=r"unknown option liner.*\n.*linear, isometric"):

        @tj.register_array_type(liner=True)
        class Misspelt(tj.AbstractArray):
            diag: jax.Array

            def to_dense(self):
                return jnp.diag(self.diag)


def test_a_field_does_not_hide_a_method():
    with pytest.raises(tj.RegistrationError, match="field `diagonal` has the name of a method"):

        @tj.register_array_type
        class Hidden(tj.AbstractArray):
            diagonal: jax.Array

            def to_dense(self):
                return jnp.diag(self.diagonal)
