"""Where a dtype ends: the last number that rounds to the largest one, and the next beyond it."""

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
