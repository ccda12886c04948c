"""Programs with matrices that are only multiplied, or factored by their parts, against JAX."""

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from comparisons import assert_same_gradient

R = np.random.default_rng(12)
CG = lineax.CG(1e-11, 1e-11)
IDENTITY = tj.Scaled(tj.Identity(12), 0.5)


def normal(*shape):
    return jnp.asarray(R.normal(size=shape))


def definite(n):
    x = R.normal(size=(n, n))
    return jnp.asarray(x @ x.T / n + np.eye(n))


def test_normal_equations():
    design, y = normal(12, 4), normal(12)
    gram = lambda x, d: x.T @ x + d * jnp.eye(4)
    ridge = lambda d: jnp.sum(tj.solve(gram(design, d), design.T @ y, solver=CG) ** 2)
    exact = lambda d: jnp.sum(jnp.linalg.solve(gram(design, d), design.T @ y) ** 2)
    assert_same_gradient(ridge, exact, 0.3)


def test_poisson_on_a_grid():
    """The Laplacian of a grid is a sum of two Kronecker products; the conductivity is fitted."""
    second = lambda n: tj.SymTridiagonal(jnp.full(n, 2.0), jnp.full(n - 1, -1.0))
    source = normal(12)

    def laplacian(k):
        return tj.Kronecker(k[0] * second(3), jnp.eye(4)) + tj.Kronecker(
            jnp.eye(3), k[1] * second(4)
        )

    def potential(k):
        with tj.densify("error"):
            return jnp.sum(jnp.cos(tj.solve(laplacian(k), source, solver=CG)))

    dense = lambda k: jnp.sum(jnp.cos(jnp.linalg.solve(laplacian(k).to_dense(), source)))
    assert_same_gradient(potential, dense, jnp.array([0.7, 1.3]))


def test_deconvolution_by_toeplitz():
    signal = normal(12)
    kernel = lambda w: tj.Toeplitz(jnp.exp(-((jnp.arange(-11.0, 12.0) / w) ** 2)))

    def sharpened(w):
        a = kernel(w)
        return jnp.sum(tj.solve(tj.Sum(a, IDENTITY), a @ signal, solver=CG) ** 2)

    def dense(w):
        a = kernel(w).to_dense()
        return jnp.sum(jnp.linalg.solve(a + 0.5 * jnp.eye(12), a @ signal) ** 2)

    assert_same_gradient(sharpened, dense, 1.1)


def test_a_most_probable_value_with_a_preconditioner_of_low_rank():
    design, y = normal(30, 12), normal(30)
    u = normal(12, 2)

    def estimate(scale):
        prior = tj.LowRankUpdate(tj.Diagonal(jnp.full(12, 2.0)), u, jnp.full(2, scale))
        system = tj.Sum(design.T @ design, prior)
        options = {"preconditioner": tj.factorize(tj.LowRankUpdate(IDENTITY, u))}
        return jnp.sum(tj.solve(system, design.T @ y, solver=CG, options=options))

    def dense(scale):
        system = design.T @ design + 2 * jnp.eye(12) + scale * u @ u.T
        return jnp.sum(jnp.linalg.solve(system, design.T @ y))

    assert_same_gradient(estimate, dense, 0.8)


# -- a Kronecker product plus a multiple of the identity -------------------------------------------

FACTORS = (definite(3), definite(4))
Y = normal(12)


def shifted(theta, a, b):
    product = tj.Kronecker(theta[0] * tj.Symmetric(a), tj.Symmetric(b))
    return product + tj.Scaled(tj.Identity(12), theta[1])


def test_likelihood_of_a_grid():
    """Exact, in quantities, to the second order, and nothing of the size of the whole is formed."""
    theta = jnp.array([1.3, 0.4])
    kelvin = tj.unit("K")

    def likelihood(theta, a, b):
        with tj.densify("error"):
            covariance = shifted(theta, a, b) * kelvin**2
            squares = tj.dot(Y * kelvin, tj.solve(covariance, Y * kelvin))
            return (squares + tj.logdet(covariance / kelvin**2)).to_value("")

    def dense(theta, a, b):
        covariance = theta[0] * jnp.kron(a, b) + theta[1] * jnp.eye(12)
        return Y @ jnp.linalg.solve(covariance, Y) + jnp.linalg.slogdet(covariance).logabsdet

    both = lambda f: jax.jit(jax.value_and_grad(f, (0, 1, 2)))(theta, *FACTORS)
    symmetric = lambda g: (g[0], *((x + x.T) / 2 for x in g[1:]))
    (got, got_bar), (want, want_bar) = both(likelihood), both(dense)
    np.testing.assert_allclose(got, want, rtol=1e-10)
    jax.tree.map(
        lambda g, w: np.testing.assert_allclose(g, w, atol=1e-9),
        symmetric(got_bar),
        symmetric(want_bar),
    )
    hessian = lambda f: jax.jit(jax.hessian(f))(theta, *FACTORS)
    np.testing.assert_allclose(hessian(likelihood), hessian(dense), atol=1e-8)
    program = str(jax.make_jaxpr(jax.grad(likelihood, (0, 1, 2)))(theta, *FACTORS))
    assert "[12,12]" not in program


@jax.numpy_dtype_promotion("standard")
@pytest.mark.parametrize("is_complex", [False, True])
def test_one_solution_serves_the_likelihood_and_its_gradient(is_complex):
    """Eight products of factors: two solutions' worth of them were more, and none with zeros."""
    a, b = FACTORS
    y = jnp.stack([Y, Y[::-1] + 0.3], 1)
    if is_complex:
        turn = jnp.triu(normal(3, 3), 1)
        a, y = jax.lax.complex(a, turn - turn.T), jax.lax.complex(y, 0.2 * y[::-1])
    kind = tj.Hermitian if is_complex else tj.Symmetric

    def matrix(theta):
        product = tj.Kronecker(theta[0] * kind(a), tj.Symmetric(jnp.cos(theta[2]) * b))
        return product + tj.Scaled(tj.Identity(12), theta[1])

    def ours(theta, y):
        squares, logdet = tj.inv_quad_logdet(matrix(theta), y)
        return jnp.real(squares) * logdet

    def dense(theta, y):
        full = matrix(theta).to_dense()
        squares = jnp.sum(y.conj() * jnp.linalg.solve(full, y))
        return jnp.real(squares) * jnp.linalg.slogdet(full).logabsdet

    theta = jnp.array([1.3, 0.4, 0.2])
    for modes in (jax.grad, jax.jacfwd, jax.hessian):
        got, want = (jax.jit(modes(f))(theta, y) for f in (ours, dense))
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8)
    got, want = (jax.jit(jax.grad(f, 1))(theta, y) for f in (ours, dense))
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8)
    if not is_complex:
        run = jax.jit(jax.value_and_grad(lambda t, y: tj.inv_quad_logdet(matrix(t), y)[0]))
        text = run.lower(theta, y).compile().as_text()
        assert text.count(" dot(") <= 8, text.count(" dot(")


def test_equal_eigenvalues_have_a_gradient_and_no_wrong_second_derivative():
    b = FACTORS[1]
    loss = lambda a: tj.logdet(shifted(jnp.array([1.0, 0.5]), a, b))
    dense = lambda a: jnp.linalg.slogdet(jnp.kron(a, b) + 0.5 * jnp.eye(12)).logabsdet
    np.testing.assert_allclose(jax.grad(loss)(jnp.eye(3)), jax.grad(dense)(jnp.eye(3)), atol=1e-10)
    turned = lambda f: jax.grad(lambda a: jax.grad(f)(a)[0, 1])(jnp.eye(3))
    got, want = turned(loss), turned(dense)
    assert bool(jnp.isnan(got).any()) or np.allclose(got, want)


def test_what_is_no_multiple_of_the_identity_is_dense_and_says_so():
    uneven = tj.Sum(shifted(jnp.ones(2), *FACTORS).terms[0], tj.Diagonal(jnp.arange(1.0, 13.0)))
    not_symmetric = tj.Sum(tj.Kronecker(*map(jnp.triu, FACTORS)), IDENTITY)
    for a in (uneven, not_symmetric):
        with tj.densify("error"), pytest.raises(tj.NoRuleError, match="multiple of the identity"):
            tj.solve(a, Y)
        with tj.densify("allow"):
            np.testing.assert_allclose(a @ tj.solve(a, Y), Y, atol=1e-9)
            want = jnp.linalg.slogdet(a.to_dense())
            np.testing.assert_allclose(tj.slogdet(a), want, atol=1e-9)
            np.testing.assert_allclose(tj.logdet(a), want.logabsdet, atol=1e-9)


def test_the_namespace_finds_it():
    a = shifted(jnp.ones(2), *FACTORS)
    np.testing.assert_allclose(tnp.linalg.solve(a, Y), jnp.linalg.solve(a.to_dense(), Y))
