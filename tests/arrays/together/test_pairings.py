"""`⟨A, B⟩` of any two structured matrices, and its gradient, without n by n numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

N = 900


def numbers(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def symmetric(seed, n):
    a = numbers(seed, n, n)
    return tj.Symmetric(a @ a.T / n)


SPARSE = tj.Sparse(numbers(1, 5), np.array([[0, 3], [2, 2], [7, 1], [9, 9], [899, 898]]), (N, N))
MATRICES = {
    "Diagonal": tj.Diagonal(numbers(2, N)),
    "Identity": tj.Identity(N, jnp.float64),
    "Zero": tj.Zero((N, N), jnp.float64),
    "Tridiagonal": tj.Tridiagonal(numbers(3, N - 1), numbers(4, N), numbers(5, N - 1)),
    "SymTridiagonal": tj.SymTridiagonal(numbers(6, N), numbers(7, N - 1)),
    "Banded": tj.Banded(numbers(8, 4, N), 1, 2),
    "Sparse": SPARSE,
    "LowRank": tj.LowRank(numbers(9, N, 2), numbers(10, N, 2)),
    "LowRankUpdate": tj.LowRankUpdate(tj.SymTridiagonal(numbers(11, N), numbers(12, N - 1)),
                                      numbers(13, N, 2)),
    "Permutation": tj.Permutation(np.random.default_rng(14).permutation(N)),
    "Toeplitz": tj.Toeplitz(numbers(15, 2 * N - 1)),
    "Circulant": tj.Circulant(numbers(16, N)),
    "Kronecker": tj.Kronecker(symmetric(17, 30), numbers(18, 30, 30)),
    "other Kronecker": tj.Kronecker(numbers(19, 18, 18), numbers(20, 50, 50)),
    "sum": tj.Kronecker(symmetric(21, 30), symmetric(22, 30)) + 0.3 * tj.Identity(N, jnp.float64),
    "shifted Toeplitz": tj.Toeplitz(numbers(23, 2 * N - 1)) + tj.Diagonal(numbers(24, N)),
}  # fmt: skip


def assert_forms_nothing(program, *args):
    """A compiled program whose scratch memory would not hold one n-by-n matrix."""
    with tj.densify("error"):
        compiled = jax.jit(program).lower(*args).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 0.9 * 8 * N * N
    return compiled


@pytest.mark.slow
@pytest.mark.parametrize("name", MATRICES)
def test_a_pairing_with_every_other_type_forms_nothing_and_is_that_of_the_entries(name):
    a, dense = MATRICES[name], {k: np.asarray(tj.destructure(b)) for k, b in MATRICES.items()}
    pairs = lambda a: jnp.stack([tj.linalg.pairing(a, b) for b in MATRICES.values()])
    want = [np.sum(dense[name] * b) for b in dense.values()]
    got = assert_forms_nothing(pairs, a)(a)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    gradient = jax.jit(jax.grad(lambda a: jnp.sum(pairs(a)), allow_int=True))(a)
    literal = tj.tangents.pullback_of_destructure(a)(jnp.asarray(sum(dense.values())))
    for got, right in zip(*map(jax.tree.leaves, (gradient, literal)), strict=True):
        if got.dtype != jax.dtypes.float0:
            np.testing.assert_allclose(got, right, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("name", ["LowRankUpdate", "Kronecker", "sum", "shifted Toeplitz"])
def test_a_norm_and_its_gradient_form_nothing(name):
    assert_forms_nothing(jax.value_and_grad(tj.norm), MATRICES[name])


def test_natural_gradients_of_a_shifted_kronecker_product_form_nothing():
    a, ones = MATRICES["sum"], jnp.ones(N)
    for loss in (
        tj.logdet,
        lambda a: jnp.sum(a @ ones),
        lambda a: tj.linalg.inv_quad_logdet(a, ones)[0],
    ):
        assert_forms_nothing(tj.grad(loss), a)
