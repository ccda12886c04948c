"""What the shipped operations mean for dense arrays, where that is more than a call of jnp."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_norm_has_a_subgradient_at_zero(shape):
    """Dense as structured: the gradient at zero is zero, not nan."""
    zero = jnp.zeros(shape)
    assert tj.norm(zero) == 0
    np.testing.assert_array_equal(jax.grad(tj.norm)(zero), zero)
    np.testing.assert_array_equal(jax.grad(tj.norm)(tj.Diagonal(jnp.zeros(3))).diag, jnp.zeros(3))


def test_norm_elsewhere_is_that_of_numpy():
    x = jnp.array([3.0, -4.0])
    assert tj.norm(x) == 5
    np.testing.assert_allclose(jax.grad(tj.norm)(x), x / 5, rtol=1e-15)
    expected = jax.hessian(jnp.linalg.norm)(x)
    np.testing.assert_allclose(jax.hessian(tj.norm)(x), expected, rtol=1e-14)


def test_shape_error_names_arguments_not_tracers():
    with pytest.raises(tj.ShapeError, match=r"Diagonal\[2, 2\] with float64\[3\]"):
        tj.matmul(tj.Diagonal(jnp.ones(2)), jnp.ones(3))
