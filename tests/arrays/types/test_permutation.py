"""Permutation matrices: indices that are none are refused, products gather, parity is right."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import Samples

RNG = np.random.default_rng(7)


@pytest.mark.parametrize(
    ("indices", "says"),
    [
        ([0, 0, 2], r"(?s)from 0 to 2 once.*missing: \[1\]"),
        ([0, 1, 3], r"missing: \[2\]"),
        ([-1, 0, 1], r"missing: \[2\]"),
        ([0.0, 1.0], "vector of integers"),
        ([True, False], "vector of integers"),
        (0, "vector of integers"),
        ([[0, 1], [1, 1]], r"missing: \[0\]"),
    ],
)
def test_what_is_no_permutation_is_refused(indices, says):
    with pytest.raises(tj.ShapeError, match=says):
        tj.Permutation(indices)


def test_parity_of_all_permutations_of_five_and_of_long_cycles():
    every = jnp.array(list(itertools.permutations(range(5))))
    signs = jax.jit(jax.vmap(lambda i: tj.det(tj.Permutation(i))))(every)
    np.testing.assert_array_equal(signs, np.linalg.det(np.eye(5)[np.asarray(every)]).round())
    batch = jax.vmap(tj.Permutation)(every)
    np.testing.assert_array_equal(batch.sign(), signs)
    np.testing.assert_array_equal(batch.to_dense(), np.eye(5)[np.asarray(every)])
    np.testing.assert_array_equal(
        batch.transposed().to_dense(), np.swapaxes(batch.to_dense(), 1, 2)
    )
    for n in (1, 2, 7, 8, 9, 1000):  # one cycle
        assert tj.det(tj.Permutation(np.roll(np.arange(n), 1))) == (-1) ** (n - 1)
    assert tj.det(tj.Permutation([])) == 1


def test_products_systems_and_inverses():
    indices = RNG.permutation(6)
    p, dense = tj.Permutation(indices), np.eye(6)[indices]
    b = RNG.normal(size=(6, 2))
    np.testing.assert_array_equal(p.to_dense(), dense)
    np.testing.assert_array_equal(p @ jnp.asarray(b), b[indices])
    np.testing.assert_array_equal(jnp.asarray(b.T) @ p, b.T @ dense)
    np.testing.assert_array_equal(tj.solve(p, jnp.asarray(b)), dense.T @ b)
    assert isinstance(p @ p, tj.Permutation)
    np.testing.assert_array_equal(p @ p, dense @ dense)
    assert isinstance(tj.inv(p), tj.Permutation)
    np.testing.assert_array_equal(tj.inv(p), dense.T)
    np.testing.assert_array_equal(p.mT, dense.T)
    assert tj.slogdet(p) == (np.linalg.det(dense).round(), 0.0)
    assert tj.logdet(p) == 0.0
    np.testing.assert_array_equal(2 * p, 2 * dense)
    assert (p.astype(jnp.float32) @ jnp.asarray(b, jnp.float32)).dtype == jnp.float32
    full = RNG.normal(size=(6, 6))
    with tj.densify("error"):  # what stores all of its entries is not made dense
        for other in (tj.Triangular(full), tj.Symmetric(full), tj.Hermitian(full)):
            np.testing.assert_array_equal(p @ other, dense @ np.asarray(other))
            np.testing.assert_array_equal(other @ p, np.asarray(other) @ dense)


def test_derivatives_go_to_the_other_argument():
    indices, b = jnp.array([2, 0, 1]), jnp.asarray(RNG.normal(size=3))
    weights = jnp.array([1.0, 10.0, 100.0])
    gradient = jax.grad(lambda b, p: jnp.sum(weights * (p @ b) ** 2))(b, tj.Permutation(indices))
    np.testing.assert_allclose(gradient, 2 * b * jnp.array([10.0, 100.0, 1.0]))
    both = jax.grad(lambda p, b: weights @ tj.solve(p, b), (0, 1), allow_int=True)
    p_bar, b_bar = both(tj.Permutation(indices), b)
    assert p_bar.indices.dtype == jax.dtypes.float0
    np.testing.assert_allclose(b_bar, weights[indices])
    moved = jax.jvp(lambda b: tj.Permutation(jnp.argsort(b)) @ b, (b,), (weights,))
    np.testing.assert_allclose(moved[1], weights[jnp.argsort(b)])


@pytest.mark.parametrize(
    "other",
    [
        lambda s: tj.Outer(s.normal(5, 2), s.normal(5, 2)),
        lambda s: tj.LowRank(s.normal(5, 1), s.normal(5, 1)),
        lambda s: tj.Diagonal(s.normal(5)),
        lambda s: tj.Permutation(jnp.array([0, 2, 1, 4, 3])),
    ],
    ids=["Outer", "LowRank", "Diagonal", "Permutation"],
)
def test_inner_product_asks_the_other(other):
    """With an array that is thin, nothing is formed."""
    p, y = tj.Permutation(jnp.array([2, 0, 1, 4, 3])), other(Samples(7))
    want = jnp.sum(p.to_dense() * y.to_dense())
    np.testing.assert_allclose(p.inner_product(y), want, rtol=1e-6)
    assert "[5,5]" not in str(jax.make_jaxpr(lambda p, y: p.inner_product(y))(p, y))
