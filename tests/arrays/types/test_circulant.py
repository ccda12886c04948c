"""Circulant matrices: the algebra is closed, and agrees with dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import tanjax as tj

RNG = np.random.default_rng(6)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("kind", [float, complex])
def test_everything_agrees_with_dense_matrices(n, kind):
    column = RNG.normal(size=n).astype(kind)
    column[:1] -= 3
    if kind is complex:
        column += 1j * RNG.normal(size=n)
    a, b = tj.Circulant(jnp.asarray(column)), jnp.asarray(RNG.normal(size=(n, 2)).astype(kind))
    dense = scipy.linalg.circulant(column) if n else np.zeros((0, 0), kind)
    np.testing.assert_array_equal(a.to_dense(), dense)
    np.testing.assert_array_equal(a.mT.to_dense(), dense.T)
    np.testing.assert_allclose(a @ b, dense @ b, atol=1e-13)
    np.testing.assert_allclose(b.T @ a, b.T @ dense, atol=1e-13)
    np.testing.assert_allclose(tj.solve(a, b), np.linalg.solve(dense, b), atol=1e-13)
    assert (a @ b).dtype == tj.solve(a, b).dtype == kind
    for stays, want in (
        (a @ a, dense @ dense),
        (tj.inv(a), np.linalg.inv(dense)),
        (a + a, 2 * dense),
    ):
        assert isinstance(stays, tj.Circulant)
        np.testing.assert_allclose(stays, want, atol=1e-12)
    sign, logabsdet = tj.slogdet(a)
    want = np.linalg.slogdet(dense)
    np.testing.assert_allclose([sign, logabsdet], [want.sign, want.logabsdet], atol=1e-12)
    np.testing.assert_allclose(
        [tj.logdet(a), tj.det(a)], [want.logabsdet, np.linalg.det(dense)], atol=1e-10
    )
    waves = np.exp(2j * np.pi * np.outer(np.arange(n), np.arange(n)) / max(n, 1))
    np.testing.assert_allclose(dense @ waves, waves * a.eigenvalues(), atol=1e-12)


def test_sums_and_toeplitz():
    a = tj.Circulant(jnp.array([1.0, 2.0, 4.0]))
    for other in (tj.Identity(3), tj.Scaled(tj.Identity(3), 0.3), tj.Fill(2.0, (3, 3))):
        for total in (a + other, other + a):
            assert isinstance(total, tj.Circulant)
            np.testing.assert_allclose(total, np.asarray(a) + np.asarray(other))
    np.testing.assert_array_equal(a.to_toeplitz(), a)
    np.testing.assert_array_equal(a.submatrix(slice(1, 3), slice(0, 2)), np.asarray(a)[1:, :2])


def test_a_singular_matrix():
    a = tj.Circulant(jnp.array([1.25, -0.75, -0.5]))
    assert tj.slogdet(a) == (0.0, -jnp.inf)
    assert not jnp.any(jnp.isfinite(tj.solve(a, jnp.ones(3))))
    by_dense = jax.grad(lambda c: jnp.linalg.det(tj.Circulant(c).to_dense()))(a.column)
    np.testing.assert_allclose(jax.grad(tj.det)(a).column, by_dense, atol=1e-14)
    # Of a³ + b³ + c³ - 3abc; the second derivative of JAX's `det` is nan here.
    x, y, z = a.column.tolist()
    second = [[6 * x, -3 * z, -3 * y], [-3 * z, 6 * y, -3 * x], [-3 * y, -3 * x, 6 * z]]
    of_column = jax.grad(lambda c: tj.det(tj.Circulant(c)))
    np.testing.assert_allclose(jax.jacfwd(of_column)(a.column), second, atol=1e-13)


def test_integers_batches_quantities():
    whole = tj.Circulant(jnp.array([2**40 + 1, 3, 5]))
    assert (whole @ jnp.array([1, 2, 0])).tolist() == [2**40 + 11, 2**41 + 5, 11]
    columns = jnp.asarray(RNG.normal(size=(3, 4))).at[:, 0].add(4.0)
    batch = jax.vmap(tj.Circulant)(columns)
    dense = np.stack([scipy.linalg.circulant(c) for c in columns])
    np.testing.assert_array_equal(batch.to_dense(), dense)
    b = jnp.asarray(RNG.normal(size=(3, 4)))
    solved = jax.vmap(tj.solve)(batch, b)
    np.testing.assert_allclose(solved, np.linalg.solve(dense, b[..., None])[..., 0], atol=1e-13)
    natural = jnp.asarray(RNG.normal(size=(3, 4, 4)))
    want = jax.vmap(lambda a, y: tj.structural(a, y))(batch, natural)
    np.testing.assert_allclose(tj.structural(batch, natural).column, want.column)
    a = tj.Circulant(tj.quantity(columns[0], tj.unit("km")))
    x = tj.solve(a, tj.quantity(b[0], tj.unit("m")))
    np.testing.assert_allclose(x.to_value(tj.unit("1")), solved[0] / 1000, rtol=1e-12)
    np.testing.assert_array_equal(tj.Circulant(columns).to_dense(), dense)
