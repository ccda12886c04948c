"""Derivatives outside of `tj.jit` are those of `tj.jit` where plain JAX gives no number."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.errors import ScaleWarning

pytestmark = pytest.mark.core

NEWTON = lambda m, r: jnp.sum(6.674e-11 * m * m / r**2)
MASS, FAR = jnp.float32(2e30), jnp.float32(1e15)
SLOPE = 2 * 6.674e-11 * 2e30 / 1e30


@pytest.fixture(autouse=True)
def _no_x64():
    with jax.enable_x64(False):
        yield


def test_a_gradient_that_overflows_is_planned():
    assert not np.isfinite(jax.grad(NEWTON, 1)(MASS, FAR))
    np.testing.assert_allclose(tj.grad(NEWTON, 1)(MASS, FAR), -SLOPE * 2e15, rtol=1e-6)
    np.testing.assert_allclose(tj.grad(NEWTON)(MASS, FAR), SLOPE, rtol=1e-6)
    value, slope = tj.value_and_grad(NEWTON)(MASS, FAR)
    np.testing.assert_allclose([value, slope], [SLOPE * 1e30, SLOPE], rtol=1e-6)


def test_other_derivatives():
    np.testing.assert_allclose(tj.jacobian(NEWTON)(MASS, FAR), SLOPE, rtol=1e-6)
    np.testing.assert_allclose(tj.jacfwd(NEWTON)(MASS, FAR), SLOPE, rtol=1e-6)
    one, zero = jnp.float32(1.0), jnp.float32(0.0)
    _, moved = tj.jvp(NEWTON, (MASS, FAR), (one, zero))
    np.testing.assert_allclose(moved, SLOPE, rtol=1e-6)


def test_gradient_of_quantities_has_a_scale_where_it_needs_one():
    m, r = MASS * tj.unit("kg"), FAR * tj.unit("m")
    got = tj.grad(lambda m, r: m * m / r**2)(m, r)
    np.testing.assert_allclose(float(got.stored) * 2.0**got.scale, 2 * 2e30 / 1e30, rtol=1e-6)


def test_code_that_cannot_be_compiled_says_so():
    f = lambda x: x * x * 1e-30 if x > 0 else x
    with pytest.warns(ScaleWarning, match="(?s)not finite.*Hint") as seen:
        got = tj.grad(lambda x: f(x) * f(x) * f(x))(MASS)
    assert not np.isfinite(got)
    assert seen[0].filename == __file__


def test_infinite_and_nan_gradients_are_those_of_plain_jax_and_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tj.grad(jnp.sqrt)(jnp.float32(0.0)) == np.inf
        assert np.isnan(tj.grad(lambda x: x * x)(jnp.float32(np.nan)))
        assert tj.grad(lambda x: x * x)(jnp.float32(3.0)) == 6.0


def test_pullbacks_and_linear_maps_are_looked_at():
    one = jnp.float32(1.0)
    value, pullback = tj.vjp(NEWTON, MASS, FAR)
    np.testing.assert_allclose(value, SLOPE * 1e30, rtol=1e-6)
    np.testing.assert_allclose(pullback(one), [SLOPE, -SLOPE * 2e15], rtol=1e-6)
    value, push = tj.linearize(NEWTON, MASS, FAR)
    np.testing.assert_allclose(value, SLOPE * 1e30, rtol=1e-6)
    np.testing.assert_allclose(push(one, jnp.float32(0.0)), SLOPE, rtol=1e-6)


CUBE = lambda x: x * x * x * 1e30


def derivatives_of_cube(x, one):
    yield tj.grad(CUBE)(x)
    yield tj.jacobian(CUBE)(x)
    yield tj.jvp(CUBE, (x,), (one,))[1]
    yield tj.vjp(CUBE, x)[1](one)[0]
    yield tj.linearize(CUBE, x)[1](one)


def test_a_zero_on_the_way_is_not_silent():
    """x² vanishes, and with it one of three terms: plain JAX has 2e-10 instead of 3e-10."""
    x = jnp.float32(1e-20)
    np.testing.assert_allclose(jax.grad(CUBE)(x), 2e-10, rtol=1e-6)
    for slope in derivatives_of_cube(x, jnp.float32(1.0)):
        np.testing.assert_allclose(slope, 3e-10, rtol=1e-6)


def test_function_without_a_derivative_is_planned_once(monkeypatch):
    from tanjax.transforms import _eager

    looks = []
    look = _eager.scale_graph
    monkeypatch.setattr(_eager, "scale_graph", lambda f: looks.append(f) or look(f))
    root = lambda x: jnp.sqrt(x)
    for _ in range(3):
        assert tj.grad(root)(jnp.float32(0.0)) == np.inf
    assert len(looks) == 1


def test_looking_stops_nothing():
    """A mask has a shape that depends on numbers: it cannot be compiled."""
    x = jnp.float32([1e-20, 2.0])
    np.testing.assert_array_equal(tj.grad(lambda x: jnp.sum(x[x > 1.0] ** 2))(x), [0.0, 4.0])
