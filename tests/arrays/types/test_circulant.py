"""Circulant matrices: spectra, singular and small ones, integers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

RNG = np.random.default_rng(6)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_eigenvalues_are_those_of_waves(n):
    a = tj.Circulant(jnp.asarray(RNG.normal(size=n) + 1j * RNG.normal(size=n)))
    waves = np.exp(2j * np.pi * np.outer(np.arange(n), np.arange(n)) / max(n, 1))
    np.testing.assert_allclose(a.to_dense() @ waves, waves * a.eigenvalues(), atol=1e-12)


def test_determinant_of_an_empty_matrix_is_one():
    assert tj.linalg.slogdet(tj.Circulant(jnp.zeros(0))) == (1.0, 0.0)


def test_singular_matrix_has_determinant_zero_and_its_derivatives():
    a = tj.Circulant(jnp.array([1.25, -0.75, -0.5]))
    assert tj.linalg.slogdet(a) == (0.0, -jnp.inf)
    assert not jnp.any(jnp.isfinite(tj.solve(a, jnp.ones(3))))
    by_dense = jax.grad(lambda c: jnp.linalg.det(tj.Circulant(c).to_dense()))(a.column)
    np.testing.assert_allclose(jax.grad(tj.det)(a).column, by_dense, atol=1e-14)
    # Of a³ + b³ + c³ - 3abc; the second derivative of JAX's `det` is nan here.
    x, y, z = a.column.tolist()
    second = [[6 * x, -3 * z, -3 * y], [-3 * z, 6 * y, -3 * x], [-3 * y, -3 * x, 6 * z]]
    of_column = jax.grad(lambda c: tj.det(tj.Circulant(c)))
    np.testing.assert_allclose(jax.jacfwd(of_column)(a.column), second, atol=1e-13)


def test_products_of_integers_are_exact():
    whole = tj.Circulant(jnp.array([2**40 + 1, 3, 5]))
    assert (whole @ jnp.array([1, 2, 0])).tolist() == [2**40 + 11, 2**41 + 5, 11]


def test_cotangent_of_a_batch_is_pulled_back_one_by_one():
    batch = tj.Circulant(jnp.asarray(RNG.normal(size=(3, 4))))
    natural = jnp.asarray(RNG.normal(size=(3, 4, 4)))
    want = jax.vmap(tj.tangents.structural)(batch, natural)
    np.testing.assert_allclose(tj.tangents.structural(batch, natural).column, want.column)
