"""A Kronecker product plus a multiple of the identity, solved by the spectra of its factors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from tanjax.testing import Samples

pytestmark = pytest.mark.core

S = Samples(12)
A, B, Y = S.definite(3), S.definite(4), S.normal(12)
THETA = jnp.array([1.3, 0.4, 0.2])


def shifted(theta, a, b):
    product = tj.Kronecker(theta[0] * tj.Symmetric(a), tj.Symmetric(b))
    return product + tj.Scaled(tj.Identity(12), theta[1])


def test_a_likelihood_in_quantities_forms_no_matrix():
    """Two derivatives by the numbers; the program of a gradient by the factors, too."""
    kelvin = tj.unit("K")

    def likelihood(theta, a, b):
        with tj.densify("error"):
            covariance = shifted(theta, a, b) * kelvin**2
            squares = tj.linalg.pairing(Y * kelvin, tj.solve(covariance, Y * kelvin))
            return (squares + tj.logdet(covariance / kelvin**2)).to_value("")

    def dense(theta, a, b):
        covariance = theta[0] * jnp.kron(a, b) + theta[1] * jnp.eye(12)
        return Y @ jnp.linalg.solve(covariance, Y) + jnp.linalg.slogdet(covariance).logabsdet

    for change in (lambda f: f, jax.hessian):
        got, want = (jax.jit(change(f))(THETA, A, B) for f in (likelihood, dense))
        np.testing.assert_allclose(got, want, atol=1e-8)
    assert "[12,12]" not in str(jax.make_jaxpr(jax.grad(likelihood, (0, 1, 2)))(THETA, A, B))


@jax.numpy_dtype_promotion("standard")
@pytest.mark.parametrize("is_complex", [False, True])
def test_one_solution_serves_the_likelihood_and_its_gradient(is_complex):
    """Eight products of factors: two solutions' worth of them were more, and none with zeros."""
    a, y = A, jnp.stack([Y, Y[::-1] + 0.3], 1)
    if is_complex:
        turn = jnp.triu(S.normal(3, 3), 1)
        a, y = jax.lax.complex(a, turn - turn.T), jax.lax.complex(y, 0.2 * y[::-1])
    kind = tj.Hermitian if is_complex else tj.Symmetric

    def matrix(theta):
        product = tj.Kronecker(theta[0] * kind(a), tj.Symmetric(jnp.cos(theta[2]) * B))
        return product + tj.Scaled(tj.Identity(12), theta[1])

    def ours(theta, y):
        squares, logdet = tj.linalg.inv_quad_logdet(matrix(theta), y)
        return jnp.real(squares) * logdet

    def dense(theta, y):
        full = matrix(theta).to_dense()
        squares = jnp.sum(y.conj() * jnp.linalg.solve(full, y))
        return jnp.real(squares) * jnp.linalg.slogdet(full).logabsdet

    by_columns = lambda f: jax.grad(f, 1)
    for derivative in (jax.grad, jax.jacfwd, jax.hessian, by_columns):
        got, want = (jax.jit(derivative(f))(THETA, y) for f in (ours, dense))
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8)
    if not is_complex:
        run = jax.jit(jax.value_and_grad(lambda t, y: tj.linalg.inv_quad_logdet(matrix(t), y)[0]))
        text = run.lower(THETA, y).compile().as_text()
        assert text.count(" dot(") <= 8, text.count(" dot(")


@jax.numpy_dtype_promotion("standard")
def test_a_complex_multiple_of_the_identity_is_not_hermitian():
    """A resolvent: solved and differentiated in structure, and without a root."""

    def ours(a, c, y):
        f = tj.factorize(tj.Kronecker(tj.Symmetric(a), tj.Symmetric(B)) + c * tj.Identity(12))
        return f.inv_quad(y), jnp.sum(jnp.sin(y) * f.diagonal_of_inverse())

    def dense(a, c, y):
        inverse = jnp.linalg.inv(jnp.kron(tj.Symmetric(a).to_dense(), B) + c * jnp.eye(12))
        return y.conj() @ inverse @ y, jnp.sum(jnp.sin(y) * jnp.diagonal(inverse))

    y = Y + 0.3j * Y[::-1]
    for i in (0, 1):
        of = lambda f, i=i: lambda *x: jnp.real((2 - 1j) * f(*x)[i])
        got, want = (jax.jit(jax.grad(of(f), (0, 1)))(A, 0.4 + 0.2j, y) for f in (ours, dense))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), got, want)
    product = tj.Kronecker(tj.Symmetric(A), tj.Symmetric(B))
    with pytest.raises(tj.ShapeError, match="no root"):
        tj.factorize(product + (0.4 + 0.2j) * tj.Identity(12)).root()


@pytest.mark.parametrize("signs", [(1, -1), (-1, -1)])
def test_diagonal_factors_that_are_negative_are_subtracted(signs):
    c, d = signs[0] * jnp.array([0.3, 0.5, 0.2]), signs[1] * jnp.array([1.0, 0.4, 0.1, 0.7])

    def ours(a, c, d):
        product = tj.Kronecker(tj.Symmetric(a), tj.Symmetric(B))
        f = tj.factorize(product + tj.Kronecker(tj.Diagonal(c), tj.Diagonal(d)))
        return f.inv_quad(Y) * f.logdet() + jnp.sum(jnp.sin(f.root() @ Y))

    def dense(a, c, d):
        full = jnp.kron(tj.Symmetric(a).to_dense(), B) + jnp.diag(jnp.kron(c, d))
        scale = jnp.sqrt(jnp.abs(jnp.kron(c, d)))
        values, vectors = jnp.linalg.eigh(full / scale / scale[:, None])
        root = scale * (vectors @ (jnp.sqrt(values) * (vectors.T @ Y)))
        logdet = jnp.linalg.slogdet(full).logabsdet
        return Y @ jnp.linalg.solve(full, Y) * logdet + jnp.sum(jnp.sin(root))

    with tj.densify("error"):
        got = jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(A, c, d)
    want = jax.jit(jax.value_and_grad(dense, (0, 1, 2)))(A, c, d)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-8), got, want)


def test_equal_eigenvalues_have_a_gradient_and_no_wrong_second_derivative():
    loss = lambda a: tj.logdet(shifted(jnp.array([1.0, 0.5]), a, B))
    dense = lambda a: jnp.linalg.slogdet(jnp.kron(a, B) + 0.5 * jnp.eye(12)).logabsdet
    np.testing.assert_allclose(jax.grad(loss)(jnp.eye(3)), jax.grad(dense)(jnp.eye(3)), atol=1e-10)
    turned = lambda f: jax.grad(lambda a: jax.grad(f)(a)[0, 1])(jnp.eye(3))
    got, want = turned(loss), turned(dense)
    assert bool(jnp.isnan(got).any()) or np.allclose(got, want)


def test_other_sums_become_dense_and_say_so():
    uneven = tj.tangents.Sum(tj.Kronecker(A, B), tj.Diagonal(jnp.arange(1.0, 13.0)))
    not_symmetric = tj.tangents.Sum(
        tj.Kronecker(jnp.triu(A), jnp.triu(B)), tj.Scaled(tj.Identity(12), 0.5)
    )
    for a in (uneven, not_symmetric):
        with tj.densify("error"), pytest.raises(tj.NoRuleError, match="multiple of the identity"):
            tj.solve(a, Y)
        with tj.densify("allow"):
            np.testing.assert_allclose(a @ tj.solve(a, Y), Y, atol=1e-9)
            want = jnp.linalg.slogdet(a.to_dense())
            np.testing.assert_allclose(tj.linalg.slogdet(a), want, atol=1e-9)
            np.testing.assert_allclose(tj.logdet(a), want.logabsdet, atol=1e-9)
    with tj.densify("error"):
        x = tnp.linalg.solve(shifted(THETA, A, B), Y)  # the namespace finds the rule
    np.testing.assert_allclose(shifted(THETA, A, B) @ x, Y)
