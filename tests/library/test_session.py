"""The test session is what the other tests rely on."""

import os

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir


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


def test_a_program_is_compiled_while_another_one_is_written():
    """They have no context of MLIR in common, although programs one after the other do."""
    primitive = Primitive("looks_up")
    primitive.def_abstract_eval(lambda x: x)

    def written(x):
        with jax.ensure_compile_time_eval():
            return x + int(jax.jit(lambda y: y + 41)(0))

    mlir.register_lowering(primitive, mlir.lower_fun(written, multiple_results=False))
    assert jax.jit(primitive.bind)(1) == 42
