"""Derivatives by finite differences are those of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import Samples, finite_difference_jvp, finite_difference_vjp


def test_derivatives_of_a_complex_function_are_those_of_jax():
    def f(z, x):
        x = x.astype(z.dtype)
        return {"y": (1 + 2j) * z**2 * x[0] + jnp.conj(z) * x[1]}

    samples = Samples(0)
    primals = samples.complex(3), samples.normal(2)
    tangents = samples.complex(3), samples.normal(2)
    cotangent = {"y": samples.complex(3)}
    _, want = jax.jvp(f, primals, tangents)
    got = finite_difference_jvp(f, primals, tangents)
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-8)
    want = jax.vjp(f, *primals)[1](cotangent)
    for a, b in zip(finite_difference_vjp(f, primals, cotangent), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8)


def test_the_ladder_goes_on_while_its_error_falls():
    """Functions that vary within the last step of the ladder, and one that is not smooth at all."""
    slope = lambda f, x: finite_difference_jvp(f, (jnp.asarray(x),), (jnp.asarray(1.0),))
    quick = lambda x: jnp.sin(3000.0 * x) / 3000.0
    np.testing.assert_allclose(slope(quick, 0.4), np.cos(1200.0), rtol=1e-6)
    near = lambda x: 1e-5 * jnp.log(x)  # not a number below zero, which is nearer than a step
    np.testing.assert_allclose(slope(near, 1e-5), 1.0, rtol=1e-6)
    with pytest.raises(tj.errors.CheckFailure, match="no two steps agree"):
        slope(lambda x: jnp.cbrt(x - 0.4), 0.4)
