"""Toeplitz matrices: integers, singular ones, single precision, batches."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

import tanjax as tj

RNG = np.random.default_rng(5)


def test_integers_stay_exact():
    a = tj.Toeplitz(jnp.array([2**40 + 1, 3, 5]))
    assert (a @ jnp.array([1, 2**20])).tolist() == [3 + 2**60 + 2**20, 5 + 3 * 2**20]
    assert a.dtype == jnp.int64
    with jax.numpy_dtype_promotion("standard"):
        x = tj.solve(tj.Toeplitz(jnp.array([1, 3, 1])), jnp.array([4.0, 4.0]))
    np.testing.assert_allclose(x, [1.0, 1.0])


def test_a_singular_matrix_has_a_sign_of_zero():
    singular = tj.Toeplitz(jnp.zeros(5))
    assert tj.linalg.slogdet(singular) == (0.0, -jnp.inf)
    assert tj.det(singular) == 0.0


def test_single_precision_is_as_good_as_dense_elimination():
    n = 200
    lags = np.arange(n)
    column = (np.exp(-((lags / 4.0) ** 2) / 2) + 0.05 * (lags == 0)).astype(np.float32)
    b = RNG.normal(size=n).astype(np.float32)
    exact = np.linalg.solve(scipy.linalg.toeplitz(column.astype(float)), b)
    dense = jnp.linalg.solve(jnp.asarray(scipy.linalg.toeplitz(column)), b)
    error = lambda x: np.linalg.norm(np.asarray(x, float) - exact) / np.linalg.norm(exact)
    values = tj.Toeplitz.from_column(column)
    almost = values.replace(values=values.values.at[0].add(1e-9))  # not Hermitian
    for a in (values, almost):
        x = tj.solve(a, jnp.asarray(b))
        assert x.dtype == jnp.float32
        assert error(x) < 3 * error(dense) + 1e-6
    product = values @ jnp.asarray(b)
    want = scipy.linalg.toeplitz(column.astype(float)) @ b
    assert product.dtype == jnp.float32
    assert np.max(np.abs(np.asarray(product) - want)) < 3e-6 * np.max(np.abs(want))


def test_cotangent_of_a_batch_is_summed_along_diagonals():
    batch = tj.Toeplitz(jnp.asarray(RNG.normal(size=(3, 5))))
    natural = jnp.asarray(RNG.normal(size=(3, 3, 3)))
    want = jnp.stack([jnp.trace(natural, -d, 1, 2) for d in range(-2, 3)], 1)
    np.testing.assert_allclose(tj.tangents.structural(batch, natural).values, want, atol=1e-14)


def test_natural_gradient_of_a_complex_matrix_has_its_type():
    a = tj.Toeplitz(jnp.asarray(RNG.normal(size=4) + 1j * RNG.normal(size=4)), (2, 3))
    got = tj.grad(lambda a: jnp.real(tj.norm(a)) ** 2)(a)
    assert isinstance(got, tj.Toeplitz)
    np.testing.assert_allclose(got, 2 * np.conj(np.asarray(a)), atol=1e-14)
