"""Optimisers in true units: what agrees with optax, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tanjax as tj
from tanjax.bridges.optax import (
    adam,
    apply_updates,
    check_learning_rate,
    from_natural,
    sgd,
    structural,
)

m, cm, s, J = (tj.unit(name) for name in ("m", "cm", "s", "J"))
PARAMS = {
    "x": jnp.array([1.0, 2.0]) * m,
    "stiffness": tj.Symmetric([[2.0, 0.5], [0.5, 3.0]]) * tj.unit("N/m"),
    "t": 300.0 * tj.unit("ms"),
    "bias": jnp.array(0.5),
}


@pytest.fixture(autouse=True)
def promotion():
    """Optax counts steps in int32 and raises floats to them."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def loss(p):
    """In joules, of parameters in four units."""
    stretched = 0.5 * (p["x"] * (p["stiffness"] @ p["x"])).sum()
    return stretched * (1.0 + p["bias"] ** 2) + (p["t"] / s - 1.0) ** 2 * J


RATES = {
    "x": 0.1 * m**2 / J,
    "stiffness": 100.0 * tj.unit("N2/m2") / J,
    "t": 0.1 * s**2 / J,
    "bias": 0.1 / J,
}


def assert_close(got, expected, rtol=1e-12):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol)


def test_structural_undoes_natural():
    """`tj.grad`, made structural, is `jax.grad`: same types, labels and numbers."""
    expected = jax.grad(lambda p: loss(p).to_value("J"))(PARAMS)
    natural = tj.grad(loss)(PARAMS)
    assert_close(structural(PARAMS, natural, J), expected)
    assert_close(structural(PARAMS, natural, "erg"), jax.tree.map(lambda v: v * 1e7, expected))


def test_structural_refuses_a_gradient_of_something_else():
    natural = tj.grad(loss)(PARAMS)
    with pytest.raises(tj.UnitError, match=r"(?s)gradient of params\['x'\]"):
        structural(PARAMS, natural | {"x": natural["x"] * m})
    with pytest.raises(tj.errors.CotangentError, match="not a tree"):
        structural(PARAMS, {"x": natural["x"]})


@pytest.mark.parametrize("compiled", [False, True])
def test_gradient_descent_is_the_formula(compiled):
    optimiser = sgd(RATES)

    def step(params, state):
        updates, state = optimiser.update(tj.grad(loss)(params), state, params)
        return apply_updates(params, updates), state

    moved, _ = (jax.jit(step) if compiled else step)(PARAMS, optimiser.init(PARAMS))
    natural = tj.grad(loss)(PARAMS)
    for name, before in PARAMS.items():
        got, expected = moved[name], before - RATES[name] * natural[name]
        assert tj.rules.is_structured(got) is tj.rules.is_structured(before)
        expected = expected.to_value(got.unit if tj.rules.is_structured(got) else "1")
        got, expected = (tj.destructure(getattr(x, "value", x)) for x in (got, expected))
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert isinstance(moved["stiffness"].value, tj.Symmetric)


@pytest.mark.parametrize(("momentum", "nesterov"), [(None, False), (0.9, False), (0.9, True)])
def test_descent_agrees_with_optax_on_numbers_and_does_not_see_prefixes(momentum, nesterov):
    quadratic = lambda x: 0.5 * 3.0 * tj.unit("N/m") * (x**2).sum()
    numbers = jnp.array([1.0, -2.0])
    plain = optax.sgd(0.1, momentum, nesterov)
    true = sgd(0.1 * m**2 / J, momentum, nesterov)
    plain_x, plain_state = numbers, plain.init(numbers)
    x = (100 * numbers) * cm
    state = true.init(x)
    for _ in range(4):
        updates, plain_state = plain.update(3.0 * plain_x, plain_state)
        plain_x = optax.apply_updates(plain_x, updates)
        updates, state = true.update(tj.grad(quadratic)(x), state, x)
        x = apply_updates(x, updates)
    assert x.unit is cm
    np.testing.assert_allclose(x.to_value("m"), plain_x, rtol=1e-12)


def test_adam_moves_by_its_rate_whatever_the_loss():
    """The first step of Adam is rate · sign: a length, in the unit of the parameter."""
    params = {"x": jnp.array([1.0, -2.0]) * m, "t": 3.0 * s}
    energy = lambda p: (p["x"] ** 2).sum() * tj.unit("N/m") + (p["t"] / s) ** 2 * J
    optimiser = adam({"x": 1.0 * cm, "t": 1.0 * tj.unit("ms")})
    gradient = tj.grad(energy)(params)
    updates, _ = optimiser.update(gradient, optimiser.init(params), params)
    np.testing.assert_allclose(updates["x"].to_value("cm"), [-1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(updates["t"].to_value("ms"), -1.0, rtol=1e-6)
    wrong = adam(1.0 * cm)
    with pytest.raises(tj.UnitError, match=r"(?s)learning rate of params\['t'\].*expected: s"):
        wrong.update(gradient, wrong.init(params), params)


def test_schedules_return_rates():
    optimiser = sgd(lambda count: 0.1 / (1 + count) * m**2 / J)
    x = jnp.array([1.0]) * m
    state = optimiser.init(x)
    for expected in (-0.1, -0.05):
        updates, state = optimiser.update(jnp.array([1.0]) * J / m, state, x)
        np.testing.assert_allclose(updates.value, [expected])


def test_any_optimiser_of_optax_takes_natural_gradients():
    plain, wrapped = optax.rmsprop(1e-2), from_natural(optax.rmsprop(1e-2), J)
    gradient = jax.grad(lambda p: loss(p).to_value("J"))(PARAMS)
    expected, _ = plain.update(gradient, plain.init(PARAMS), PARAMS)
    got, _ = wrapped.update(tj.grad(loss)(PARAMS), wrapped.init(PARAMS), PARAMS)
    assert_close(got, expected)


def test_from_natural_passes_on_what_line_searches_want():
    value = lambda x: (x**2).sum().to_value("m2")
    optimiser = from_natural(optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(5)))
    x = jnp.array([1.0, 2.0]) * m
    natural = tj.grad(value)(x)
    extra = {"value": value(x), "grad": jax.grad(value)(x), "value_fn": value}
    updates, _ = optimiser.update(natural, optimiser.init(x), x, **extra)
    assert value(apply_updates(x, updates)) < value(x)


def test_check_learning_rate():
    check_learning_rate(loss(PARAMS), PARAMS, RATES)
    check_learning_rate("kJ", PARAMS, RATES)
    check_learning_rate(1.0, {"x": 1.0 * m, "y": [2.0 * cm]}, 0.1 * m**2)
    check_learning_rate(1.0, {"x": 1.0 * m, "y": [2.0 * s]}, {"x": 0.1 * m**2, "y": 0.1 * s**2})
    with pytest.raises(tj.UnitError, match=r"(?s)params\['bias'\].*expected: 1 / m / N .*got: 1 "):
        check_learning_rate(loss(PARAMS), PARAMS, RATES | {"bias": 0.1})
    with pytest.raises(tj.UnitError, match=r"params\['y'\]\[0\]"):
        check_learning_rate(1.0, {"x": 1.0 * m, "y": [2.0 * s]}, 0.1 * m**2)


def test_a_wrong_rate_is_refused_by_the_step():
    gradient = tj.grad(loss)(PARAMS)
    optimiser = sgd(0.1 * m**2 / J)
    with pytest.raises(tj.UnitError, match="rate times gradient is no step"):
        optimiser.update(gradient, optimiser.init(PARAMS), PARAMS)
    with pytest.raises(TypeError, match="pass the parameters"):
        optimiser.update(gradient, optimiser.init(PARAMS))


def test_apply_updates_converts_and_refuses():
    moved = apply_updates({"x": 1.0 * m, "n": None}, {"x": 10.0 * cm, "n": None})
    np.testing.assert_allclose(moved["x"].to_value("m"), 1.1)
    warm = apply_updates(tj.Quantity(20.0, "degC"), 1.0 * tj.unit("K"))
    np.testing.assert_allclose(warm.to_value("degC"), 21.0)
    with pytest.raises(tj.UnitError, match=r"apply_updates: params\['x'\]"):
        apply_updates({"x": 1.0 * m}, {"x": 10.0 * s})


@pytest.mark.parametrize("make", [sgd, adam, lambda rate: from_natural(optax.adam(0.01))])
def test_integers_stay_where_they_are(make):
    params = {"x": jnp.array([1.0, 2.0]) * m, "n": 3}
    area = lambda p: (p["x"] ** p["n"]).sum() / p["x"][0]
    optimiser = make({"x": 0.01 if make is sgd else 1.0 * cm, "n": 1.0})
    state = optimiser.init(params)
    for _ in range(2):
        before, gradient = tj.value_and_grad(area)(params)
        updates, state = optimiser.update(gradient, state, params)
        params = apply_updates(params, updates)
        assert area(params) < before
    assert params["n"] == 3


def test_the_loss_says_its_own_unit():
    """A loss in percent is not one in numbers: its gradients are a hundred times as large."""
    params = {"x": 2.0 * m}
    gradients = {"x": 1.0 / m}
    percent = tj.unit("%")
    for unit, factor in ((1.0, 1.0), (percent, 100.0), ("%", 100.0), (3.0 * percent, 100.0)):
        assert_close(structural(params, gradients, unit), {"x": factor * m})
    for nonsense in ([1.0], jnp.ones(2), {"a": 1.0}, True):
        with pytest.raises(tj.UnitError, match="unit of a loss"):
            structural(params, gradients, nonsense)


OPTIMISERS = {
    "adam": lambda mass, unit: optax.adam(0.01 * mass, eps=0.0),
    "rmsprop": lambda mass, unit: optax.rmsprop(0.01 * mass, eps=0.0, initial_scale=0.0),
    "momentum": lambda mass, unit: optax.sgd(0.01 * mass * mass, momentum=0.9),
    "bridge adam": lambda mass, unit: adam(0.01 * mass * unit, eps=0.0),
    "bridge momentum": lambda mass, unit: sgd(0.01 * (mass * unit) * (mass * unit), momentum=0.9),
}


@pytest.mark.parametrize("mass", [6e24, 1e-30])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_hundred_steps_in_float32_far_from_one_keep_one_structure(name, mass):
    """Squares of gradients leave float32; outside of the labels of the state nothing does."""
    kg, of_bridge = tj.unit("kg"), name.startswith("bridge")
    relative = lambda x: ((x / (mass * kg)).to_value("1") - 1.0) ** 2
    gradient = (tj.grad if of_bridge else jax.grad)(relative)
    apply = apply_updates if of_bridge else optax.apply_updates
    optimiser = OPTIMISERS[name](mass, kg)

    def step(x, state):
        updates, state = optimiser.update(gradient(x), state, x)
        return apply(x, updates), state

    x = jnp.float32(2 * mass) * kg
    state, structures = optimiser.init(x), set()
    step = tj.jit(step, check="now")
    for _ in range(100):
        x, state = step(x, state)
        structures.add(jax.tree.structure((x, state)))
    assert len(structures) == 1
    assert x.scale == 0

    reference = OPTIMISERS[name.removeprefix("bridge ")](mass, 1.0)
    y = jnp.float64(2 * mass)
    memory = reference.init(y)
    for _ in range(100):
        slope = jax.grad(lambda y: (y / mass - 1.0) ** 2)(y)
        updates, memory = reference.update(slope, memory, y)
        y = optax.apply_updates(y, updates)
    np.testing.assert_allclose(x.to_value("kg"), y, rtol=1e-5)


def test_powers_of_two_in_labels_count_or_are_refused():
    """1e60 m² in float32 is stored as 1.2 · 2^199: a bridge reads the number, not the leaf."""
    area, one = tj.Quantity(1e60, "m2").astype(jnp.float32), jnp.float32(1.0) * m**2
    moved = apply_updates({"a": area}, {"a": -0.5 * area})["a"]
    np.testing.assert_allclose(moved.astype(jnp.float64).to_value("m2"), 5e59, rtol=1e-6)
    assert structural(one, 1e-3 * area / area).to_value("m2") == np.float32(1e-3)
    for refused in (lambda: apply_updates(one, area), lambda: structural(one, area / m**2)):
        with pytest.raises(tj.errors.ScaleError, match="does not fit in float32"):
            refused()
