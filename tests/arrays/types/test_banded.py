"""Tridiagonal and banded matrices at their ends: no row, singular, very large, integers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def nothing_becomes_dense():
    with tj.densify("error"):
        yield


@pytest.mark.parametrize("n", [0, 1])
def test_matrices_with_no_row_or_one_have_determinants_and_gradients(n):
    none, diag, b = jnp.zeros(0), jnp.full(n, 2.0), jnp.full((n, 1), 3.0)
    small = tj.Tridiagonal(none, diag, none), tj.SymTridiagonal(diag, none)
    for a in (*small, tj.Banded(jnp.full((3, n), 2.0), 1, 1)):
        assert a.shape == (n, n)
        np.testing.assert_allclose(a @ b, 2 * b)
        np.testing.assert_allclose(tj.solve(a, b), b / 2)
        np.testing.assert_allclose(tj.logdet(a), n * np.log(2.0))
        np.testing.assert_allclose(tj.grad(tj.logdet)(a).diagonal(), np.full(n, 0.5))


def test_singular_matrices():
    """Logarithm `-inf`, sign and determinant 0; the gradient of `det` is the adjugate."""
    a = tj.Tridiagonal([2.0, 0.0], [1.0, 2.0, 3.0], [1.0, 5.0])  # rows 0 and 1: 1 1, 2 2 5
    singular = tj.Tridiagonal([2.0, 1.0], [1.0, 2.0, 0.0], [1.0, 0.0])
    for x in (singular, tj.Banded(jnp.zeros((3, 2)), 1, 1)):
        out = tj.linalg.slogdet(x)
        assert (float(out.sign), float(out.logabsdet), float(tj.det(x))) == (0.0, -np.inf, 0.0)
        assert float(tj.logdet(x)) == -np.inf
        assert not np.isfinite(tj.solve(x, jnp.ones(x.shape[0]))).all()
    gradient = tj.grad(tj.det)(singular)
    adjugate = jax.jacobian(lambda d: jnp.linalg.det(d))(singular.to_dense())
    np.testing.assert_allclose(gradient.diag, jnp.diagonal(adjugate), atol=1e-12)
    np.testing.assert_allclose(gradient.upper, jnp.diagonal(adjugate, 1), atol=1e-12)
    np.testing.assert_allclose(gradient.lower, jnp.diagonal(adjugate, -1), atol=1e-12)
    np.testing.assert_allclose(tj.det(a), 0.0, atol=1e-14)


def test_logarithms_do_not_overflow():
    """The determinant of 50 entries of 1e200 does; its logarithm does not."""
    a = tj.SymTridiagonal(jnp.full(50, 1e200), jnp.full(49, 1e199))
    small = tj.SymTridiagonal(jnp.ones(50), jnp.full(49, 0.1))
    np.testing.assert_allclose(tj.logdet(a), tj.logdet(small) + 50 * 200 * np.log(10), rtol=1e-12)
    gradient, expected = (jax.grad(tj.logdet)(x) for x in (a, small))
    np.testing.assert_allclose(gradient.off * 1e200, expected.off, rtol=1e-10)


def test_integers_are_solved_in_floating_point():
    a = tj.SymTridiagonal([2, 2, 2], [-1, -1])
    with jax.numpy_dtype_promotion("standard"):
        np.testing.assert_allclose(tj.solve(a, jnp.array([1, 0, 1])), np.ones(3))
    np.testing.assert_allclose(tj.det(a), 4.0)
    assert (a @ jnp.array([1, 1, 1])).tolist() == [1, 0, 1]


def test_a_step_of_descent_stays_in_the_type():
    """The corners that a gradient has no part in stay zero."""
    a = tj.Banded(RNG.normal(size=(4, 5)), 1, 2)
    step = jax.tree.map(lambda p, g: p - 0.1 * g, a, jax.grad(lambda a: tj.norm(a @ a))(a))
    np.testing.assert_array_equal(step.bands, step.canonical().bands)
