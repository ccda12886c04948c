"""Lanczos quadrature behind `tj.logdet`: value, error, gradients, and matrices it is not for."""

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest

import tanjax as tj
from tanjax.bridges.matfree import Lanczos

R = np.random.default_rng(8)
N = 12
CG = lineax.CG(1e-10, 1e-10)


def definite(n):
    x = R.normal(size=(n, n))
    return x @ x.T / n + np.eye(n)


A = tj.tangents.Sum(
    tj.Kronecker(tj.Symmetric(definite(3)), tj.Symmetric(definite(4))),
    tj.Diagonal(jnp.asarray(R.uniform(1, 2, N))),
)
EXACT = jnp.linalg.slogdet(A.to_dense()).logabsdet
MANY = Lanczos(N, 3000, jax.random.key(0), solver=CG)


def test_value_and_its_standard_error():
    value, error = jax.jit(lambda a: MANY.estimate(a))(A)
    assert 0 < error < 0.05
    assert abs(value - EXACT) < 4 * error
    np.testing.assert_allclose(tj.logdet(A, estimator=MANY), value, rtol=1e-12)


def test_the_bias_falls_with_the_order():
    errors = [
        abs(tj.logdet(A, estimator=Lanczos(k, 500, jax.random.key(1))) - EXACT) for k in (1, 4)
    ]
    assert errors[0] > 0.2 > 0.1 > errors[1]


def exact_gradient(s):
    return jnp.trace(jnp.linalg.inv(A.to_dense() + s * jnp.eye(N)))


@pytest.mark.slow
def test_derivatives_of_both_modes_and_the_second():
    """The estimates are unbiased: with many vectors they are near, by the same factor in each."""
    loss = lambda s: tj.logdet(tj.tangents.Sum(A, tj.Scaled(tj.Identity(N), s)), estimator=MANY)
    first, second = jax.jit(jax.value_and_grad(jax.grad(loss)))(0.3)
    np.testing.assert_allclose(first, exact_gradient(0.3), rtol=0.01)
    np.testing.assert_allclose(second, jax.grad(exact_gradient)(0.3), rtol=0.01)
    np.testing.assert_allclose(jax.jvp(loss, (0.3,), (1.0,))[1], first, rtol=1e-9)
    gradient = tj.grad(lambda a: tj.logdet(a, estimator=MANY))(A.to_dense())
    np.testing.assert_allclose(gradient, jnp.linalg.inv(A.to_dense()), atol=0.05)


def test_the_gradient_of_structure_is_thin():
    """The cotangent is an outer product as wide as there are vectors."""
    few = Lanczos(5, 3, jax.random.key(2), solver=CG)
    _, pullback = tj.rules.rrule(tj.rules.logdet_by, A, tj.rules.Algorithm.of(few))
    assert type(few.cotangent(A, jnp.ones(()))) is tj.Outer
    assert few.cotangent(A, jnp.ones(())).left.shape == (N, 3)
    assert jax.tree.structure(pullback(jnp.ones(()))[0]) == jax.tree.structure(A)


@pytest.mark.slow
def test_complex_matrices():
    ones = jnp.ones((N, N))
    h = jax.lax.complex(A.to_dense(), 0.3 * (jnp.triu(ones, 1) - jnp.tril(ones, -1)))
    many = Lanczos(N, 2000, jax.random.key(3), solver=lineax.GMRES(1e-9, 1e-9))
    value, gradient = jax.value_and_grad(lambda a: tj.logdet(a, estimator=many))(tj.Hermitian(h))
    want = jax.value_and_grad(tj.logdet)(tj.Hermitian(h))
    np.testing.assert_allclose(value, want[0], rtol=0.01)
    np.testing.assert_allclose(gradient.data, want[1].data, atol=0.05)


@pytest.mark.parametrize("reorthogonalize", [True, False])
def test_an_invariant_space_ends_the_iteration(reorthogonalize):
    few = Lanczos(5, 2, jax.random.key(0), reorthogonalize=reorthogonalize)
    value = tj.logdet(tj.Scaled(tj.Identity(N), 2.0), estimator=few)
    np.testing.assert_allclose(value, N * np.log(2.0), rtol=1e-12)


@pytest.mark.parametrize(
    "a", [-jnp.ones(N), jnp.linspace(-1.0, 3.0, N), jnp.full(N, jnp.nan)], ids=["-", "-+", "nan"]
)
def test_determinant_of_an_indefinite_matrix_is_nan(a):
    few = Lanczos(N, 3, jax.random.key(0))
    assert jnp.isnan(tj.logdet(tj.Diagonal(a), estimator=few))
    assert jnp.isnan(tj.linalg.slogdet(tj.Diagonal(a), estimator=few).sign)


def test_determinant_of_an_unsymmetric_matrix_is_nan_with_its_gradient():
    few = Lanczos(N, 3, jax.random.key(0), solver=lineax.GMRES(1e-8, 1e-8))
    a = A.to_dense() + jnp.triu(jnp.ones((N, N)), 1)
    value, gradient = jax.value_and_grad(lambda a: tj.logdet(a, estimator=few))(a)
    assert jnp.isnan(value)
    assert jnp.isnan(gradient).all()


@pytest.mark.slow
def test_all_at_once_and_units():
    b = jnp.ones(N)
    value, quad = MANY.logdet(A), b @ jnp.linalg.solve(A.to_dense(), b)
    both = tj.linalg.inv_quad_logdet(A, b * tj.unit("m"), estimator=MANY)
    assert both[0].unit == tj.unit("m2")
    np.testing.assert_allclose([both[0].to_value("m2"), both[1]], [quad, value], rtol=1e-9)
    sign, logarithm = tj.linalg.slogdet(tj.Quantity(A, "km/m"), estimator=MANY)
    np.testing.assert_allclose([sign, logarithm], [1, value + N * np.log(1000)], rtol=1e-9)
    assert tj.logdet(tj.Diagonal(jnp.zeros(0)), estimator=MANY) == 0


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: tj.logdet(A, estimator="lanczos"), TypeError, "not an estimator"),
        (lambda: Lanczos(0, 3, jax.random.key(0)), ValueError, "positive"),
        (lambda: tj.logdet(tj.Quantity(A, "m"), estimator=MANY), tj.UnitError, "unit"),
        (lambda: tj.logdet(tj.LowRank(jnp.ones((3, 1)), jnp.ones((2, 1))), estimator=MANY),
         tj.ShapeError, "square"),
    ],
)  # fmt: skip
def test_wrong_estimators_and_operands_are_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
