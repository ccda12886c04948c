"""Derivatives of determinants, of singular matrices too, against sums over permutations."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

pytestmark = [pytest.mark.core, pytest.mark.slow]


def by_permutations(a):
    n = a.shape[-1]
    terms = []
    for p in itertools.permutations(range(n)):
        sign = (-1) ** sum(p[i] > p[j] for i in range(n) for j in range(i + 1, n))
        terms.append(sign * math.prod(a[i, j] for i, j in enumerate(p)))
    return sum(terms)


def of_rank(rank, n=4, dtype=np.float64):
    rng = np.random.default_rng(rank)
    factors = rng.normal(size=(2, n, rank)).astype(dtype)
    if np.iscomplexobj(factors):
        factors = factors + 1j * rng.normal(size=(2, n, rank))
    return jnp.asarray(factors[0] @ factors[1].T)


MATRICES = {
    "rank 4": of_rank(4),
    "rank 3": of_rank(3),
    "rank 2": of_rank(2),
    "rank 1": of_rank(1),
    "first pivot zero": jnp.diag(jnp.array([0.0, 1.0, 2.0, 3.0])),
    "two pivots zero": jnp.diag(jnp.array([0.0, 0.0, 2.0, 3.0])),
    "last pivot zero": jnp.diag(jnp.array([1.0, 2.0, 3.0, 0.0])),
    "two rows": jnp.diag(jnp.array([0.0, 2.0])),
    "three rows": jnp.diag(jnp.array([0.0, 1.0, 2.0])),
    "one row": jnp.zeros((1, 1)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_first_and_second_derivatives_are_those_of_the_polynomial(name):
    a = MATRICES[name]
    for derivative in (jax.grad, jax.jacfwd, jax.hessian, lambda f: jax.jacrev(jax.grad(f))):
        want = derivative(by_permutations)(a)
        np.testing.assert_allclose(derivative(tj.det)(a), want, atol=1e-12)


@pytest.mark.parametrize("rank", [4, 3, 2])
def test_derivatives_of_complex_matrices_are_those_of_the_polynomial(rank):
    a = of_rank(rank, dtype=np.complex128)
    derivative = lambda f: jax.jacfwd(f, holomorphic=True)
    for times in (derivative, lambda f: derivative(derivative(f))):
        np.testing.assert_allclose(times(tj.det)(a), times(by_permutations)(a), atol=1e-11)


def test_a_batch_has_regular_and_singular_matrices():
    batch = jnp.stack([MATRICES[k] for k in ("rank 4", "rank 3", "first pivot zero")])
    want = jnp.stack([jax.grad(by_permutations)(a) for a in batch])
    total = lambda a: jnp.sum(jax.vmap(tj.det)(a))
    for gradient in (jax.vmap(jax.grad(tj.det)), jax.grad(total), jax.jit(jax.grad(total))):
        np.testing.assert_allclose(gradient(batch), want, atol=1e-12)


def test_a_third_derivative_is_right_or_nan():
    third = lambda f: jax.jacfwd(jax.hessian(f))
    for name in ("rank 4", "rank 3", "rank 2", "two pivots zero"):
        found, want = (third(f)(MATRICES[name]) for f in (tj.det, by_permutations))
        assert jnp.all(jnp.isnan(found) | (jnp.abs(found - want) < 1e-9)), name


@pytest.mark.parametrize(
    "a",
    [
        tj.Symmetric(MATRICES["first pivot zero"]),
        tj.Kronecker(jnp.eye(1), MATRICES["first pivot zero"]),
        tj.tangents.Sum(tj.Diagonal(jnp.array([-1.0, 0.0, 1.0, 2.0])), jnp.eye(4)),
    ],
    ids=lambda a: type(a).__name__,
)
def test_structured_singular_matrices_have_the_adjugate(a):
    gradient = jax.grad(lambda x: tj.det(tj.linalg.add(a, x)))(jnp.zeros((4, 4)))
    want = jax.grad(by_permutations)(a.to_dense())
    np.testing.assert_allclose(gradient, want, atol=1e-12)


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [-0.5, 0.5, 1.0, 0.5, -0.5], [0.0]])
def test_the_gradient_of_a_singular_toeplitz_matrix_is_nan(values):
    for function in (tj.det, tj.logdet):
        assert np.isnan(jax.grad(function)(tj.Toeplitz(jnp.array(values))).values).all()
