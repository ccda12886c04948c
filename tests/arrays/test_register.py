"""Registration: types with `to_dense` alone, classes that somebody else owns, what is refused."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import assert_close, assert_same_derivatives, wave


@tj.register_array_type
class Vandermonde(tj.AbstractArray):
    """Only `to_dense`."""

    points: jax.Array
    degree: int = tj.rules.static_field()

    def to_dense(self):
        return self.points[:, None] ** jnp.arange(self.degree, dtype=self.points.dtype)


@tj.register_array_type
class Twice(tj.AbstractArray):
    """Over-parametrised: only the sum of the fields counts."""

    a: jax.Array
    b: jax.Array

    def to_dense(self):
        return jnp.diag(self.a + self.b)


@pytest.mark.parametrize(
    "x",
    [
        Vandermonde(jnp.asarray([0.5, 1.0, 2.0]), 4),
        Twice(jnp.asarray([0.3, -1.2, 0.7]), jnp.asarray([1.1, 0.4, -0.9])),
    ],
    ids=["Vandermonde", "Twice"],
)
def test_type_with_only_to_dense_has_all_four_maps(x):
    """The defaults, against the Jacobian and its pseudo-inverse formed densely."""
    modes = ("maps", "natural")
    others = tuple(mode for mode in tj.testing.ARRAY_MODES if mode not in modes)
    assert tj.testing.check_array_type(x, modes=modes, skip=others).worst_error < 1e-9
    y = wave(x.to_dense(), 1.0)
    with tj.densify("allow"):
        once = tj.destructure(tj.tangents.project(x, y))
        assert_close(tj.destructure(tj.tangents.project(x, once)), once)
        assert bool(tj.tangents.is_visible(x, wave(x))) == isinstance(x, Vandermonde)


def test_type_with_only_to_dense_warns_where_it_becomes_dense():
    with pytest.warns(tj.DensifyWarning, match="Vandermonde"):
        tj.matmul(Vandermonde(jnp.ones(2), 2), jnp.ones(2))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Theirs:
    """A class that knows nothing of this library."""

    scale: jax.Array
    diag: jax.Array


def theirs_dense(x):
    return jnp.diag(x.scale * x.diag)


tj.register_array_type(Theirs, destructure=theirs_dense)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class TheirDiagonal:
    values: jax.Array


tj.register_array_type(
    TheirDiagonal,
    destructure=lambda x: jnp.diag(x.values),
    pullback_of_destructure=lambda x, y: TheirDiagonal(jnp.diagonal(tj.destructure(y))),
    pullback_of_restructure=lambda x, t: t,
    linear=True,
    isometric=True,
    injective=True,
)


def test_a_foreign_class_takes_part():
    x = Theirs(jnp.asarray(2.0), jnp.asarray([1.0, 3.0]))
    assert tj.rules.is_structured(x)
    assert_close(tj.destructure(x), jnp.diag(jnp.asarray([2.0, 6.0])))
    y = wave(jnp.zeros((2, 2)))
    assert_close(tj.tangents.structural(x, y), jax.vjp(theirs_dense, x)[1](y)[0])
    op = tj.operation(lambda a, b: tj.destructure(a) @ b)
    op.natural_rule(lambda a, b: (op.primal(a, b), lambda c: (c @ b.T, tj.destructure(a).T @ c)))
    assert_same_derivatives(op, jnp.matmul, x, y)
    gradient = tj.grad(lambda a: jnp.sum(jnp.sin(op(a, y))))(x)
    dense = jax.grad(lambda a: jnp.sum(jnp.sin(a @ y)))(tj.destructure(x))
    assert_close(tj.destructure(gradient), jnp.diag(jnp.diagonal(dense)))


def test_a_foreign_class_with_maps_of_its_own():
    x = TheirDiagonal(jnp.asarray([1.0, 3.0]))
    gradient = tj.grad(lambda a: jnp.sum(jnp.sin(tj.destructure(a))))(x)
    assert isinstance(gradient, TheirDiagonal)
    assert_close(gradient.values, jnp.cos(x.values))
    assert_close(
        tj.tangents.structural(x, tj.Outer(x.values, x.values)), TheirDiagonal(x.values**2)
    )


def test_registrations_are_refused():
    class Loose(tj.AbstractArray):
        pass

    with pytest.raises(tj.errors.RegistrationError, match="Loose must define `to_dense`"):
        tj.register_array_type(Loose)
    with pytest.raises(tj.errors.RegistrationError, match="Derived: array types are final"):

        class Derived(Vandermonde):
            def to_dense(self): ...

    for cls in (Vandermonde, Theirs, tj.Diagonal):
        with pytest.raises(tj.errors.RegistrationError, match="already registered"):
            tj.register_array_type(cls)
    types = tj.rules.registered_array_types()
    assert tj.Diagonal in types
    assert Theirs in types
    assert Loose not in types
    unregistered = type("Forgotten", (tj.AbstractArray,), {"to_dense": lambda self: jnp.ones(2)})
    for f in (lambda x: x @ jnp.ones(2), lambda x: 1.0):
        with pytest.raises(tj.errors.RegistrationError, match="is not registered"):
            jax.jit(f)(unregistered())


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
    got = tj.tangents.pullback_of_destructure(r)(other)
    expected = tj.tangents.pullback_of_destructure(r)(rotation_matrix(other))
    assert float(jnp.abs(expected.angle)) > 0.1
    np.testing.assert_allclose(got.angle, expected.angle, rtol=1e-14)


@pytest.mark.parametrize("cls", [type("Plain", (), {}), type("Pair", (tuple,), {})])
def test_class_that_is_no_pytree_is_refused(cls):
    with pytest.raises(
        tj.errors.RegistrationError, match=r"(?s)is not a pytree.*register_dataclass"
    ):
        tj.register_array_type(cls, destructure=lambda x: x)


def test_unknown_option_is_named():
    """A misspelt option is reported with the options there are, not with a private function."""
    with pytest.raises(
        tj.errors.RegistrationError, match=r"unknown option liner.*\n.*linear, isometric"
    ):

        @tj.register_array_type(liner=True)
        class Misspelt(tj.AbstractArray):
            diag: jax.Array

            def to_dense(self):
                return jnp.diag(self.diag)


def test_a_field_does_not_hide_a_method():
    with pytest.raises(
        tj.errors.RegistrationError, match="field `diagonal` has the name of a method"
    ):

        @tj.register_array_type
        class Hidden(tj.AbstractArray):
            diagonal: jax.Array

            def to_dense(self):
                return jnp.diag(self.diagonal)
