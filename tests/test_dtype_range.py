"""Where a dtype ends: the last number before infinity, and the numbers that vanish."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

pytestmark = pytest.mark.core


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_plan_moves_a_sum_if_and_only_if_the_cast_rounds_it_to_infinity(dtype):
    """A quarter and three quarters of a unit beyond the largest number."""
    halved = lambda x, y: (x + y) * 0.5
    largest = jnp.finfo(dtype).max
    unit = float(largest) - float(np.nextafter(largest, np.zeros((), dtype)))
    for part, is_beyond in ((0.25, False), (0.75, True)):
        args = jnp.asarray(largest), jnp.asarray(part * unit, dtype)
        assert jnp.isinf(jax.jit(jnp.add)(*args)) == is_beyond
        assert tj.scale_graph(halved)(*args).plan.identity == (not is_beyond)
        assert tj.jit(halved)(*args) == (float(largest) + unit * is_beyond) / 2


@pytest.mark.parametrize(
    ("dtype", "exponent"), [("float32", -70), ("bfloat16", -70), ("float16", -9)]
)
def test_plan_moves_a_subnormal_product_if_and_only_if_jax_flushes_it(dtype, exponent):
    """Those of float16 are computed in float32, and kept."""
    there_and_back = lambda x, y: x * y / y
    x = jnp.asarray(2.0**exponent, dtype)
    is_kept = jax.jit(there_and_back)(x, x) == x
    assert is_kept == (dtype == "float16")
    assert tj.scale_graph(there_and_back)(x, x).plan.identity == is_kept
    assert tj.jit(there_and_back)(x, x) == x
