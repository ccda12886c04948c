"""Functions whose entries leave the range on both sides: tails of occupations, and their slopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj


def test_numbers_that_a_trace_multiplies_may_leave_the_range():
    """2^-28 is 0 in float16, where 2^-14 is the least normal number."""
    small = 2.0**-14
    slope = jax.grad(lambda x: x * small * small)
    f = lambda x: slope(x) * x * x
    x = jnp.float16(3000.0)
    assert jax.jit(f)(x) == 0
    assert tj.jit(f)(x) == np.float16(2.0**-28 * 3000.0**2)


@pytest.mark.parametrize(("n", "low", "high"), [(2, -7.4, 7.4), (-2, -7.4, 6.4)])
def test_a_square_may_need_an_odd_exponent(n, low, high):
    """Between 2^-14.8 and 2^14.8 there is one exponent of float16, -1."""
    x = np.float16(2.0) ** np.float16([low, 0.0, high])
    y = np.float16([2.0**12, 1.0, 2.0**-12])[:: 1 if n > 0 else -1]
    exact = x.astype(float) ** n * y
    got = tj.jit(lambda x, y: x**n * y)(x, y)
    np.testing.assert_allclose(np.asarray(got, float), exact, 2.0**-9)
