"""Equinox Modules with quantity fields: nothing to install, so everything is tested."""

import io
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tanjax as tj
from tanjax.bridges.optax import apply_updates, from_natural

m, cm, s, kg = (tj.unit(name) for name in ("m", "cm", "s", "kg"))


class Oscillator(eqx.Module):
    """A chain of springs with what else a Module may hold."""

    mass: Any
    stiffness: Any
    start: Any
    bias: jax.Array
    order: int = 2
    note: str = eqx.field(static=True, default="chain")
    nothing: None = None

    def energy(self, v):
        kinetic = 0.5 * self.mass * (v**2).sum()
        return kinetic + 0.5 * (self.start * (self.stiffness @ self.start)).sum()

    def __call__(self, v):
        return self.energy(v) * (1.0 + self.bias**2)


@pytest.fixture
def chain():
    return Oscillator(
        jnp.array(500.0) * tj.unit("g"),
        tj.Symmetric([[2.0, 0.5], [0.5, 3.0]]) * tj.unit("N/m"),
        jnp.array([10.0, 20.0]) * cm,
        jnp.array(0.5),
    )


V = jnp.array([1.0, 2.0]) * (m / s)


def test_filter_grad_is_structural(chain):
    gradient = eqx.filter_grad(lambda model: model(V).to_value("J"))(chain)
    assert (gradient.mass.unit, gradient.start.unit) == (chain.mass.unit, cm)
    assert isinstance(gradient.stiffness.value, tj.Symmetric)
    assert (gradient.order, gradient.note) == (None, "chain")
    np.testing.assert_allclose(gradient.mass.value, 2.5e-3 * 1.25)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_over_modules_have_true_units(chain, compiled):
    loss = lambda model: model(V)
    both = tj.value_and_grad(loss)
    value, gradient = (eqx.filter_jit(both) if compiled else both)(chain)
    assert isinstance(gradient, Oscillator)
    np.testing.assert_allclose(value.to_value("J"), loss(chain).to_value("J"))
    np.testing.assert_allclose(gradient.mass.to_value("J/kg"), 2.5 * 1.25)
    np.testing.assert_allclose(gradient.bias.to_value("J"), 2 * 0.5 * 1.33)
    np.testing.assert_allclose(gradient.start.to_value("N"), [0.375, 0.8125])
    in_place = gradient.stiffness.to_value("m2")
    np.testing.assert_allclose(
        tj.destructure(in_place), 0.625 * np.outer([0.1, 0.2], [0.1, 0.2]), rtol=1e-12
    )
    assert gradient.order is None


def test_tree_at(chain):
    heavier = eqx.tree_at(lambda c: c.mass, chain, 2.0 * kg)
    assert heavier.mass == 2.0 * kg
    longer = eqx.tree_at(lambda c: c.start, chain, replace_fn=lambda x: 2.0 * x)
    np.testing.assert_array_equal(longer.start.to_value("cm"), [20.0, 40.0])
    inside = eqx.tree_at(lambda c: c.start.value, chain, jnp.zeros(2))
    assert inside.start.unit is cm
    both = eqx.tree_at(lambda c: (c.mass, c.bias), chain, (1.0 * kg, 0.0))
    assert both.mass.unit is kg


def test_partition_and_combine(chain):
    arrays, rest = eqx.partition(chain, eqx.is_inexact_array)
    assert arrays.order is None
    assert rest.start.value is None
    assert eqx.tree_equal(eqx.combine(arrays, rest), chain)
    loss = lambda arrays: eqx.combine(arrays, rest)(V)
    np.testing.assert_allclose(tj.grad(loss)(arrays).mass.to_value("J/kg"), 2.5 * 1.25)
    wanted = eqx.tree_at(lambda c: c.mass, jax.tree.map(lambda _: False, chain), replace=True)
    trained, fixed = eqx.partition(chain, wanted)  # by whole quantities
    assert trained.start.value is None
    assert fixed.mass.value is None
    assert eqx.combine(trained, fixed).mass == chain.mass


def test_serialised_leaves_come_back_equal(chain, tmp_path):
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, chain)
    file.seek(0)
    like = jax.tree.map(lambda x: jnp.zeros_like(x) if eqx.is_array(x) else x, chain)
    assert not eqx.tree_equal(like, chain)
    assert eqx.tree_equal(eqx.tree_deserialise_leaves(file, like), chain)


def test_filter_vmap(chain):
    masses = jnp.array([1.0, 2.0, 3.0]) * kg
    many = eqx.filter_vmap(lambda mass: eqx.tree_at(lambda c: c.mass, chain, mass))(masses)
    assert many.stiffness.value.data.shape == (3, 2, 2)
    energies = eqx.filter_vmap(lambda model: model.energy(V))(many)
    np.testing.assert_allclose(energies.to_value("J"), 2.5 * masses.value + 0.08)


def test_other_functions_of_equinox(chain):
    assert "kg" in eqx.tree_pformat(eqx.tree_at(lambda c: c.mass, chain, 2.0 * kg))
    energy = eqx.filter_checkpoint(lambda model: model(V).to_value("J"))
    np.testing.assert_allclose(eqx.filter_jit(energy)(chain), (1.25 + 0.08) * 1.25, rtol=1e-12)
    np.testing.assert_allclose(eqx.filter_grad(energy)(chain).mass.value, 2.5e-3 * 1.25)
    shape = eqx.filter_eval_shape(lambda model: model.start, chain)
    assert (shape.unit, shape.shape) == (cm, (2,))
    assert [eqx.is_array(x) for x in jax.tree.leaves(chain)] == [True] * 4 + [False]


def test_an_optimiser_step_on_a_module(chain):
    with jax.numpy_dtype_promotion("standard"):
        optimiser = from_natural(optax.adam(1e-2))
        arrays, rest = eqx.partition(chain, eqx.is_inexact_array)
        state = optimiser.init(arrays)
        loss = lambda arrays: eqx.combine(arrays, rest)(V)
        before, gradient = tj.value_and_grad(loss)(arrays)
        updates, _ = optimiser.update(gradient, state, arrays)
        assert loss(apply_updates(arrays, updates)) < before


def test_functions_among_the_leaves_are_held_fixed():
    """`jax.grad` refuses such a Module; the gradient says `None` of what is no array."""

    class Scaled(eqx.Module):
        length: tj.Quantity
        net: eqx.nn.MLP
        note: str = "text"

    net = eqx.nn.MLP(2, 1, 3, 1, activation=jnp.tanh, key=jax.random.key(0))
    model = Scaled(jnp.array([1.0, 2.0]) * m, net)
    loss = lambda model, x: model.net(model.length.to_value("m")).sum() * x
    gradient, by_x = tj.grad(loss, (0, 1))(model, 2.0 * s)
    assert (gradient.length.unit, gradient.net.layers[0].bias.unit) == (s / m, s)
    assert gradient.net.activation is None
    assert gradient.note is None
    plain = eqx.filter_grad(lambda net: 2.0 * net(model.length.value).sum())(net)
    np.testing.assert_allclose(gradient.net.layers[0].weight.value, plain.layers[0].weight)
    np.testing.assert_allclose(by_x, net(model.length.value).sum())
    rows = tj.jacobian(lambda model: model.length * model.net(model.length.to_value("m")))(model)
    assert rows.net.activation is None
    assert rows.length.shape == (2, 2)
