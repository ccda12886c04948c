"""What every test session needs from JAX, shared by `tests` and `property_tests`.

Four CPU devices, so that sharding is tested on any machine; strict dtype promotion, so that a
silent widening is an error; float64, so that finite differences can judge. `JAX_ENABLE_X64=0 pytest
FILE` runs a file in float32, and so does the fixture `float32` for one test.
"""

import os

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_dtype_promotion", "strict")
if "JAX_ENABLE_X64" not in os.environ:
    jax.config.update("jax_enable_x64", True)


@pytest.fixture
def getkey():
    """Return a function that gives a new random key at every call, the same in every run."""
    key = jax.random.key(0)

    def next_key():
        nonlocal key
        key, fresh = jax.random.split(key)
        return fresh

    return next_key


@pytest.fixture
def float32():
    """Run one test with JAX's default precision."""
    with jax.enable_x64(False):
        yield
