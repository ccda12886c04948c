"""Sums that are hardly larger than the smallest normal number: what is added on the way is smaller.

XLA flushes it. The result was normal and wrong, and every number of the program normal too.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

pytestmark = pytest.mark.core

SIGNED = np.array([1.4e-38, -1.9e-38, -1.45e-38], np.float32)
ROOTS = np.array([1e-19, 1e-19, 1.2e-19, 1.01e-19], np.float32)


def windowed(x):
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (3,), (1,), "valid")


SUMS = {
    "sum": (jnp.sum, SIGNED),
    "product with a vector": (lambda x: x @ jnp.ones_like(x), SIGNED),
    "running sum": (lambda x: jnp.cumsum(x)[-1], SIGNED),
    "sum over a window": (lambda x: windowed(x)[0], SIGNED),
    "gradient": (lambda x: jax.grad(lambda s: jnp.sum(s * x))(1.0), SIGNED),
    "products": (lambda x: x @ x, ROOTS),
}


@pytest.mark.parametrize("name", SUMS)
def test_terms_that_are_flushed_on_the_way_are_not_lost(name):
    f, x = SUMS[name]
    with jax.enable_x64(True):
        want = f(jnp.asarray(x, jnp.float64))
    compiled = tj.jit(f)
    assert float(compiled(jnp.asarray(x))) == pytest.approx(float(want), rel=1e-5, abs=0)
    assert not compiled.plans[-1].identity  # what plain JAX makes of it depends on the processor


def test_exponents_leave_room_for_what_is_added_on_the_way():
    """The exponent at which all results are normal is not enough for those of the last row."""

    def one(x):
        v = x**0.7 * jnp.array([-5377994.5, 335937664.0, 256985664.0], x.dtype)
        return jnp.outer(v, jnp.full(3, 1e-36, x.dtype)) @ v * 1.76e20 * 1.76e20

    small = np.float32([1.4798597e-38, 1.4798597e-38])
    x = np.float32([[2.5636e17, 0.002969, 4.17e8], [3.54e-36, *small]])
    with jax.enable_x64(True):
        want = np.asarray(jax.vmap(one)(jnp.asarray(x, jnp.float64)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = np.asarray(tj.jit(jax.vmap(one))(jnp.asarray(x)), np.float64)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4)
    np.testing.assert_allclose(got[0, 1:], want[0, 1:], rtol=1e-4)


def test_sums_that_need_no_room_run_as_they_are():
    """Two terms have nothing on the way, terms of one sign do not cancel, zeros are no sums."""
    for f, x in (
        (jnp.sum, SIGNED[:2] * np.float32([1, 2])),
        (jnp.sum, np.abs(SIGNED)),
        (lambda x: x @ x, ROOTS * np.float32(1e4)),
        (jnp.sum, np.zeros(5, np.float32)),
    ):
        compiled = tj.jit(f)
        assert float(compiled(jnp.asarray(x))) == float(jax.jit(f)(x))
        assert compiled.plans[-1].identity
