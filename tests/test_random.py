"""`tanjax.random`: what is drawn between quantities, or from them, is one."""

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj
import tanjax.random as tr
from quantities import assert_plain, assert_quantity

m, km, s, C = (tj.unit(name) for name in ("m", "km", "s", "degC"))
KEY = jax.random.key(0)
V = jnp.array([1.0, 2.0, 4.0])


def test_between_bounds():
    raw = jax.random.uniform(KEY, (4,), minval=10.0, maxval=2000.0)
    assert_quantity(tr.uniform(KEY, (4,), minval=10.0 * m, maxval=2.0 * km), "m", raw)
    raw = jax.random.uniform(KEY, (4,), maxval=2.0)
    assert_quantity(tr.uniform(KEY, (4,), maxval=2.0 * km), "km", raw)
    assert_quantity(jax.jit(lambda k: tr.uniform(k, (4,), maxval=2.0 * km))(KEY), "km", raw)
    warm = tr.uniform(KEY, (4,), minval=10.0 * C, maxval=20.0 * C)
    assert_quantity(warm, "degC", jax.random.uniform(KEY, (4,), minval=10.0, maxval=20.0))
    with pytest.raises(tj.UnitError, match="maxval"):
        tr.uniform(KEY, (4,), minval=1.0 * km)  # the default maximum is 1 of what?
    assert_plain(tr.uniform(KEY, (4,)), jax.random.uniform(KEY, (4,)))


def test_beyond_the_range_of_the_dtype():
    far = jnp.float32(1e30) * m * 1e10
    got = tr.uniform(KEY, (100,), jnp.float32, maxval=far) / far
    assert 0.4 < float(jnp.mean(got.value)) < 0.6


def test_from_an_array():
    for name, args in (("permutation", ()), ("choice", ((5,),))):
        want = getattr(jax.random, name)(KEY, V, *args)
        assert_quantity(getattr(tr, name)(KEY, V * km, *args), "km", want)
    weights = jnp.array([0.0, 1.0, 0.0])
    assert_quantity(tr.choice(KEY, V * km, (2,), p=weights), "km", [2.0, 2.0])


def test_multivariate_normal_takes_a_covariance_in_squared_units():
    square = jnp.diag(V)
    raw = jax.random.multivariate_normal(KEY, V, square * 1e6)
    assert_quantity(tr.multivariate_normal(KEY, V * m, square * km**2), "m", raw)
    assert_quantity(tr.multivariate_normal(KEY, V * C, square * 1e6 * C.delta**2), "degC", raw)
    raw = jax.random.multivariate_normal(KEY, 0.0 * V, square)
    assert_quantity(tr.multivariate_normal(KEY, 0.0 * V, square * m**2), "m", raw)
    with pytest.raises(tj.UnitError, match=r"cov.*time"):
        tr.multivariate_normal(KEY, V * m, square * s)


def test_pure_numbers():
    assert_plain(tr.poisson(KEY, 3.0 * m / m), jax.random.poisson(KEY, 3.0))
    assert_plain(tr.normal(KEY, (3,)), jax.random.normal(KEY, (3,)))
    assert_quantity(tr.rayleigh(KEY, 2.0 * m), "m", jax.random.rayleigh(KEY, 2.0))
    for call in (lambda: tr.poisson(KEY, 3.0 * m), lambda: tr.gamma(KEY, 1.0 * m)):
        with pytest.raises(tj.UnitError, match="dimensionless"):
            call()
