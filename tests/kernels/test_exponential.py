"""The exponential of badly scaled matrices, entry by entry, and its derivatives."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest
import scipy.linalg

import tanjax as tj

pytestmark = pytest.mark.core

RNG = np.random.default_rng(0)
POWERS = np.array([2.0**31, 2.0**-13, 1.0, 2.0**-30])
FAR = POWERS / POWERS[:, None]  # times this, a matrix is in units far apart
ORDINARY = RNG.uniform(0.1, 1.0, size=(4, 4))


def companion(values):
    """Of `x''' = a x'' + b x' + c x` and an input, in units of 1e-12 (jax-ml/jax#26802)."""
    step = 1.001001e-12
    return np.array([values, [step, 0, 0, 0], [0, step, 0, 0], [0, 0, 0, 0]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
def test_entries_far_apart_keep_their_digits(dtype):
    turn = 1j if dtype is np.complex128 else 1.0
    got = jax.jit(tj.linalg.expm)(jnp.asarray(ORDINARY * FAR * turn, dtype))
    want = scipy.linalg.expm(ORDINARY * turn) * FAR
    np.testing.assert_allclose(got, want, rtol=200 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_companion_matrix_is_that_of_scaled_states(dtype):
    a = companion([-6.00094776e-02, -1.37334693e09, -1.16936523e19, 1.001001e-12])
    units = 2.0 ** np.array([33.0, 0.0, -33.0, 0.0])
    want = scipy.linalg.expm(a / units[:, None] * units) * units[:, None] / units
    got = tj.linalg.expm(jnp.asarray(a, dtype))
    np.testing.assert_allclose(got, want, rtol=100 * np.finfo(dtype).eps)
    np.testing.assert_allclose(got[0, 2], -1.13470960e19, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("last", [-1.0, 0.0])
def test_large_entry_above_small_eigenvalues(last, dtype):
    """No similarity makes it symmetric; its exponential lost as many digits as the entry has."""
    a = jnp.asarray([[1.0, 1e6], [0.0, last]], dtype)
    want = [[np.e, 1e6 * (np.e - np.exp(last)) / (1 - last)], [0, np.exp(last)]]
    turned = tj.Triangular(a.T, lower=True)
    joined = tj.BlockDiagonal(jnp.asarray([[0.0, 1e18], [0.0, 0.0]], dtype), a)
    for got in (
        tj.linalg.expm(a),
        tj.linalg.expm(turned).to_dense().T,
        tj.linalg.expm(joined.to_dense())[2:, 2:],
    ):
        np.testing.assert_allclose(got, want, rtol=20 * np.finfo(dtype).eps)
    for got in (tj.linalg.expm(joined).to_dense(), tj.linalg.expm(joined.to_dense())):
        np.testing.assert_allclose(got[:2, :2], [[1, 1e18], [0, 1]], rtol=20 * np.finfo(dtype).eps)


def test_blocks_joined_by_large_entries_and_a_complex_symmetric_matrix():
    turn, fast = np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[0.0, 2.0], [-2.0, 0.0]])
    joined = np.block([[turn, 1e9 * np.eye(2)], [np.zeros((2, 2)), fast]])
    units = 2.0 ** np.array([30.0, 30.0, 0.0, 0.0])
    want = scipy.linalg.expm(joined / units[:, None] * units) * units[:, None] / units
    np.testing.assert_allclose(tj.linalg.expm(jnp.asarray(joined))[:2], want[:2], rtol=1e-13)
    symmetric = tj.Symmetric(jnp.asarray(ORDINARY + 2j * ORDINARY.T), "mean")
    want = scipy.linalg.expm(np.asarray(symmetric))
    np.testing.assert_allclose(tj.linalg.expm(symmetric).to_dense(), want, rtol=1e-13)


def test_derivatives_of_a_badly_scaled_matrix_are_those_of_the_balanced_one():
    """Also in second order, for all matrices of a batch and inside a loop."""
    far = jnp.asarray(FAR)
    scaled = lambda b: tj.linalg.expm(b * far) / far
    loss = lambda f: lambda b: jnp.sum(jnp.sin(f(b)))
    batch = jnp.stack([ORDINARY, ORDINARY.T])
    for derivative in (
        lambda f: jax.jacfwd(f),
        lambda f: jax.jacrev(f),
        lambda f: jax.hessian(loss(f)),
        lambda f: jax.jacrev(jax.grad(loss(f))),
        lambda f: lambda b: jax.jvp(jax.jacfwd(f), (b,), (b,)),
        lambda f: jax.grad(
            lambda b: jax.lax.scan(lambda x, _: (f(0.1 * x), None), b, None, 2)[0][0, 1]
        ),
    ):
        got, want = (jax.jit(jax.vmap(derivative(f)))(batch) for f in (scaled, jsl.expm))
        jax.tree.map(
            lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-11, atol=1e-12), got, want
        )


def test_numbers_at_the_ends_of_the_range_and_beyond():
    for bad in (np.nan, np.inf):
        assert np.isnan(tj.linalg.expm(jnp.asarray([[0.0, bad], [1.0, 0.0]]))).all()
    assert tj.linalg.expm(jnp.zeros((2, 0, 0))).shape == (2, 0, 0)
    edge = jnp.asarray([[0.0, 1e300], [1e-300, 0.0]])
    np.testing.assert_allclose(
        tj.linalg.expm(edge),
        scipy.linalg.expm([[0, 1], [1, 0]]) * [[1, 1e300], [1e-300, 1]],
        rtol=1e-12,
    )
