"""Permutation matrices: parity is right, derivatives go past the indices, nothing is formed."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import Samples


def test_parity_of_all_permutations_of_five_and_of_long_cycles():
    every = jnp.array(list(itertools.permutations(range(5))))
    signs = jax.jit(jax.vmap(lambda i: tj.det(tj.Permutation(i))))(every)
    dense = np.eye(5)[np.asarray(every)]
    np.testing.assert_array_equal(signs, np.linalg.det(dense).round())
    batch = jax.vmap(tj.Permutation)(every)
    np.testing.assert_array_equal(batch.sign(), signs)
    np.testing.assert_array_equal(batch.to_dense(), dense)
    np.testing.assert_array_equal(batch.transposed().to_dense(), np.swapaxes(dense, 1, 2))
    for n in (1, 2, 7, 8, 9, 1000):  # one cycle
        assert tj.det(tj.Permutation(np.roll(np.arange(n), 1))) == (-1) ** (n - 1)
    assert (tj.det(tj.Permutation([])), tj.Permutation([]).to_dense().shape) == (1, (0, 0))
    assert tj.linalg.slogdet(tj.Permutation([1, 0])) == (-1.0, 0.0)


def test_products_keep_the_dtype():
    p = tj.Permutation([1, 0]).astype(jnp.float32)
    assert (p @ jnp.ones(2, jnp.float32)).dtype == jnp.float32


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.int64])
def test_trace_and_parts_of_indices_of_any_dtype(dtype):
    p = tj.Permutation(jnp.array([2, 1, 0], dtype))
    assert tj.trace(p) == 1
    np.testing.assert_array_equal(p.submatrix(slice(0, 2), slice(1, 3)), [[0, 1], [1, 0]])
    assert tj.trace(tj.Permutation([])) == 0


def test_indices_have_no_derivative():
    weights, b = jnp.array([1.0, 10.0, 100.0]), jnp.array([0.3, -1.2, 0.7])
    both = jax.grad(lambda p, b: weights @ tj.solve(p, b), (0, 1), allow_int=True)
    p_bar, b_bar = both(tj.Permutation([2, 0, 1]), b)
    assert p_bar.indices.dtype == jax.dtypes.float0
    np.testing.assert_allclose(b_bar, [100.0, 1.0, 10.0])
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
def test_inner_product_with_a_thin_array_forms_nothing(other):
    p, y = tj.Permutation(jnp.array([2, 0, 1, 4, 3])), other(Samples(7))
    want = jnp.sum(p.to_dense() * y.to_dense())
    np.testing.assert_allclose(p.inner_product(y), want, rtol=1e-6)
    assert "[5,5]" not in str(jax.make_jaxpr(lambda p, y: p.inner_product(y))(p, y))


def test_a_factorization_moves_rows_and_forms_nothing():
    p, b = tj.Permutation([2, 0, 1, 3]), jnp.array([0.3, -1.2, 0.7, 2.0])
    with tj.densify("error"):
        f = tj.factorize(p)
        np.testing.assert_array_equal(f.solve(b), p.mT @ b)
        np.testing.assert_array_equal(f.solve(b, transposed=True), p @ b)
        np.testing.assert_array_equal(f.diagonal_of_inverse(), [0, 0, 0, 1])
        assert (f.slogdet(), f.inv_quad(b)) == ((1, 0), b @ (p.mT @ b))
        assert not f.has_root
        (bar,) = jax.grad(lambda b: jnp.sin(tj.factorize(p).inv_quad(b)), (0,))(b)
        parts = tj.factorize(tj.BlockDiagonal(p, tj.Diagonal(b)))
        np.testing.assert_allclose(parts.solve(jnp.append(b, b)), [*(p.mT @ b), *jnp.ones(4)])
        both = tj.factorize(tj.Permutation(jnp.array([[0, 1], [1, 0]])))
        np.testing.assert_array_equal(both.solve(jnp.array([1.0, 2.0])), [[1, 2], [2, 1]])
    dense = jax.grad(lambda b: jnp.sin(b @ (p.to_dense().T @ b)))(b)
    np.testing.assert_allclose(bar, dense)


def test_a_product_with_a_diagonal_says_what_keeps_the_structure():
    p, d = tj.Permutation([2, 0, 1]), tj.Diagonal(jnp.array([1.0, 2.0, 3.0]))
    for a, b in ((p, d), (d, p)):
        with (
            tj.densify("error"),
            pytest.raises(tj.NoRuleError, match=r"`tj\.Diagonal\(p @ d\.diag"),
        ):
            a @ b
    with tj.densify("allow"):
        np.testing.assert_array_equal(p @ d @ p.mT, tj.destructure(tj.Diagonal(p @ d.diag)))
