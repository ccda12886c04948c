"""The test session is what the other tests rely on."""

import os

import jax
import jax.numpy as jnp
import pytest


def test_four_devices():
    """Without them a sharding test would pass on one device and prove nothing."""
    assert jax.device_count() == 4


@pytest.mark.skipif("JAX_ENABLE_X64" in os.environ, reason="the precision was chosen by hand")
def test_float64_is_the_default():
    assert jnp.ones(()).dtype == jnp.float64


def test_float32_fixture(float32):
    assert jnp.ones(()).dtype == jnp.float32


def test_promotion_is_strict():
    with pytest.raises(ValueError, match="dtype promotion"):
        jnp.ones((), jnp.float32) + jnp.ones((), jnp.int32)


def test_keys_differ(getkey):
    first, second = getkey(), getkey()
    assert not jnp.array_equal(jax.random.key_data(first), jax.random.key_data(second))
