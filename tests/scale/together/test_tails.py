"""Functions whose entries leave the range on both sides: tails of occupations, and their slopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

pytestmark = pytest.mark.core


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


GRID = [-1000.0, -30.0, -1.0, 0.5, 1.5, 30.0, 1000.0]
TAILS = {
    "occupation": (lambda x: 1 / (jnp.exp(x) + 1), lambda x: jax.nn.sigmoid(-x)),
    "half": (lambda x: 1 / (0.5 * jnp.exp(x) + 1), lambda x: jax.nn.sigmoid(np.log(2) - x)),
    "swish": (lambda x: x / (1 + jnp.exp(-x)), jax.nn.swish),
    "spectrum": (
        lambda x: jnp.abs(x) ** 3 / jnp.expm1(jnp.abs(x)),
        lambda x: jnp.abs(x) ** 3 * jnp.exp(-jnp.abs(x)) / -jnp.expm1(-jnp.abs(x)),
    ),
    "sech": (
        lambda x: 1 / jnp.cosh(x),
        lambda x: 2 * jnp.exp(-jnp.abs(x)) / (1 + jnp.exp(-2 * jnp.abs(x))),
    ),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", TAILS)
def test_tails_and_their_slopes(name, dtype):
    """An entry whose exponential overflows is 0 or what it tends to; the others do not suffer."""
    f, stable = TAILS[name]
    both = lambda grad, f: lambda x: (f(x), grad(lambda x: jnp.sum(f(x)))(x))
    x = jnp.asarray(GRID, dtype)
    with jax.enable_x64(True):
        exact = both(jax.grad, stable)(jnp.asarray(np.asarray(x, float)))
    info = jnp.finfo(dtype)
    for got, true in zip(tj.jit(both(tj.grad, f))(x), exact, strict=True):
        least = float(info.smallest_normal)
        np.testing.assert_allclose(np.asarray(got, float), true, 16 * float(info.eps), least)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    "f", [jax.nn.sigmoid, jax.nn.softplus, jax.nn.logsumexp, jnp.tanh, jax.scipy.special.erf]
)
def test_function_that_is_written_for_tails_keeps_its_bits(f, dtype):
    both = lambda x: (f(x), jax.grad(lambda x: jnp.sum(f(x)))(x))
    x = jnp.asarray([-1000.0, -1.0, 0.5, 1.5, 1000.0], dtype)
    for got, plain in zip(tj.jit(both)(x), jax.jit(both)(x), strict=True):
        assert np.array_equal(got, plain)


def test_the_tail_of_a_sigmoid_in_float16():
    """XLA computes `1 / (1 + exp(-x))`, where exp(12) is infinite."""
    x = jnp.array([-13.0, -12.0, 0.0, 12.0], jnp.float16)
    exact = 1 / (1 + np.exp(-np.asarray(x, float)))
    assert not np.any(jax.nn.silu(x)[:2])
    for f, want, atol in ((jax.nn.sigmoid, exact, 6e-8), (jax.nn.silu, np.asarray(x) * exact, 0)):
        got = np.asarray(tj.jit(f)(x), float)
        np.testing.assert_allclose(got, np.asarray(want, float), 4e-3, atol)


def test_an_occupation_is_zero_in_the_tail():
    """It was 1 / 65504, the largest number of float16."""
    f = lambda x: 1 / (jnp.exp(x) + 1)
    both = lambda x: (f(x), jax.grad(lambda x: jnp.sum(f(x)))(x))
    value, slope = tj.jit(both)(jnp.asarray([0.5, 30.0, 800.0], jnp.float16))
    assert value[1:].tolist() == [0, 0]
    assert slope[1:].tolist() == [0, 0]


def test_subnormal_numbers_of_float16_are_no_tails():
    """`1 / c**2` is 5.1e-5 where `c` is 140, beside an entry at which it is infinite."""
    a = 1.2565e-4
    x = jnp.array([0.0, 140.5, 6316.0, 1e-4, 3.0], jnp.float16)
    slope = jax.grad(lambda x, a: jnp.sum(x * a / (x + a)))
    with pytest.warns(tj.errors.ScaleWarning, match="wrong"):
        got = np.asarray(tj.jit(slope)(x, jnp.float16(a)), float)
    np.testing.assert_allclose(got[1], 0.0, atol=1e-7)
