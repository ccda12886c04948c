"""The ways to solve Toeplitz systems: which one a program takes depends on size and values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

RNG = np.random.default_rng(8)


@pytest.mark.parametrize(("small", "formed", "n"), [(0, 0, 7), (0, 1024, 9), (256, 1024, 11)])
def test_all_ways_to_solve_agree_with_the_dense_matrix(monkeypatch, small, formed, n):
    """By columns of the inverse, as found definite or by LU while it runs, and by LU."""
    monkeypatch.setattr("tanjax_rules.linalg.factored_toeplitz.SMALL", small)
    monkeypatch.setattr("tanjax_rules.linalg.factored_toeplitz.FORMED", formed)
    b, weights = (jnp.asarray(RNG.normal(size=n)) for _ in range(2))
    general = jnp.asarray(RNG.normal(size=2 * n - 1)).at[n - 1].add(3.0)
    column = 0.9 ** np.arange(n) + (np.arange(n) == 0)
    definite = jnp.concatenate([column[:0:-1], column])
    values = jnp.stack([general, definite, general + general[::-1]])

    def both(solve):
        loss = lambda v, b: weights @ solve(tj.Toeplitz(v), b)
        return lambda v: jax.value_and_grad(loss, (0, 1))(v, b)

    want = jax.jit(jax.vmap(both(lambda a, b: jnp.linalg.solve(a.to_dense(), b))))(values)
    for run in (jax.vmap(both(tj.solve)), lambda v: jax.lax.map(both(tj.solve), v)):
        for g, w in zip(*map(jax.tree.leaves, (jax.jit(run)(values), want)), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9 * np.max(np.abs(w)))


def test_complex_symmetric_system_is_not_taken_for_a_definite_one():
    """With 300 rows, of which a definite one is solved by the columns of its inverse."""
    k = np.arange(300)
    column = 0.5**k * np.exp(1j * k) + (k == 0)
    b = RNG.normal(size=k.size) + 0j
    symmetric, hermitian = (np.concatenate([v[:0:-1], column]) for v in (column, column.conj()))
    for values in (symmetric, hermitian):
        a = tj.Toeplitz(jnp.asarray(values))
        want = np.linalg.solve(np.asarray(a.to_dense()), b)
        np.testing.assert_allclose(tj.solve(a, jnp.asarray(b)), want, rtol=1e-9, atol=1e-12)
