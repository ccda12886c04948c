"""Programs of control, statistics and chemistry that rest on functions of matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg as sl

import tanjax as tj

RNG = np.random.default_rng(3)


def covariance(n):
    half = RNG.normal(size=(n, n))
    return half @ half.T + np.eye(n)


def test_sensitivity_of_a_linear_differential_equation():
    """Two reactions in a row: how much of the product there is depends on both rates."""

    def product(rates, time=1.3):
        k1, k2 = rates
        a = jnp.array([[-k1, 0.0, 0.0], [k1, -k2, 0.0], [0.0, k2, 0.0]])
        return tj.linalg.expm(time * a)[2, 0]

    rates = jnp.array(
        [0.8, 0.8]
    )  # equal: the matrix is defective, and textbook formulas divide by 0
    k, t = 0.8, 1.3
    expected = 1 - np.exp(-k * t) * (1 + k * t)
    np.testing.assert_allclose(product(rates), expected, rtol=1e-13)
    by_k = t * k * t * np.exp(-k * t)  # of both rates together, shared equally
    np.testing.assert_allclose(jax.grad(product)(rates), [by_k / 2, by_k / 2], rtol=1e-12)


def test_the_optimal_regulator_has_a_zero_gradient():
    """The cost of a feedback by a discrete Lyapunov equation, at the solution of Riccati's."""
    a = np.array([[1.0, 0.1], [0.0, 1.0]])
    b, q, r = np.array([[0.0], [0.1]]), np.eye(2), np.array([[0.5]])

    def cost(k):
        closed = a - b @ k
        return jnp.trace(tj.linalg.solve_discrete_lyapunov(closed.T, q + k.T @ r @ k))

    p = sl.solve_discrete_are(a, b, q, r)
    best = np.linalg.solve(r + b.T @ p @ b, b.T @ p @ a)
    np.testing.assert_allclose(cost(best), np.trace(p), rtol=1e-10)
    np.testing.assert_allclose(jax.grad(cost)(best), 0, atol=1e-6)
    assert np.linalg.norm(jax.grad(cost)(best + 0.1)) > 0.5


def test_bures_distance_at_equal_covariances():
    """Its gradient vanishes there, although the spectrum may be degenerate; and elsewhere not."""

    def distance(a, b):
        root = tj.linalg.sqrtm(a)
        inner = tj.linalg.sqrtm(tj.Symmetric(root.data @ b.data @ root.data, "mean"))
        return tj.trace(a) + tj.trace(b) - 2 * tj.trace(inner)

    gradient = jax.jit(jax.grad(distance))
    for c in (np.eye(3), covariance(3)):
        same = tj.Symmetric(jnp.asarray(c))
        np.testing.assert_allclose(distance(same, same), 0, atol=1e-12)
        np.testing.assert_allclose(gradient(same, same).data, 0, atol=1e-10)
    b = tj.Symmetric(jnp.asarray(covariance(3)))
    transport = sl.inv(sl.sqrtm(c)) @ sl.sqrtm(sl.sqrtm(c) @ b.data @ sl.sqrtm(c))
    transport = transport @ sl.inv(sl.sqrtm(c))  # the optimal map T: the gradient is I - T
    np.testing.assert_allclose(gradient(same, b).data, np.eye(3) - transport, atol=1e-10)


def test_log_euclidean_mean_minimises_its_distances():
    covs = [tj.Symmetric(jnp.asarray(covariance(3)), "mean") for _ in range(3)]
    logs = [tj.linalg.logm(c) for c in covs]
    mean = tj.linalg.expm(tj.Symmetric(sum(x.data for x in logs) / 3, "mean"))

    def spread(m):
        return sum(tj.norm(tj.linalg.logm(m) - x) ** 2 for x in logs)

    np.testing.assert_allclose(jax.grad(spread)(mean).data, 0, atol=1e-12)
    assert isinstance(mean, tj.Symmetric)


def test_generator_of_a_markov_chain_is_found_again():
    """From the transitions in one step: by the logarithm, and as the maximum of a likelihood."""
    rates = np.array([[0.0, 0.5, 0.1], [0.2, 0.0, 0.4], [0.3, 0.1, 0.0]])
    generator = rates - np.diag(rates.sum(axis=1))
    steps = tj.linalg.expm(jnp.asarray(generator))
    np.testing.assert_allclose(tj.linalg.logm(steps), generator, atol=1e-13)

    def surprise(rates):
        off = rates * (1 - jnp.eye(3))
        return -jnp.sum(steps * jnp.log(tj.linalg.expm(off - jnp.diag(jnp.sum(off, axis=1)))))

    np.testing.assert_allclose(jax.grad(surprise)(rates), 0, atol=1e-12)
    assert np.linalg.norm(jax.grad(surprise)(1.2 * rates)) > 0.05


def test_controllability_gramian_is_its_integral():
    """With a rate in 1/s the Gramian is in seconds times the square of the input."""
    a = np.array([[-1.0, 0.4], [-0.3, -0.7]])
    b = np.array([[1.0], [0.5]])
    w = tj.linalg.solve_lyapunov(jnp.asarray(a) / tj.unit("s"), -tj.Symmetric(jnp.asarray(b @ b.T)))
    times, step = np.linspace(0, 30, 3001, retstep=True)
    states = np.stack([sl.expm(a * t) @ b for t in times])
    squares = states @ states.transpose(0, 2, 1)
    integral = step * (squares.sum(axis=0) - (squares[0] + squares[-1]) / 2)
    np.testing.assert_allclose(w.value.to_dense(), integral, atol=1e-4)
    assert w.unit == tj.unit("s")


@pytest.mark.slow
def test_functions_of_square_matrices_whose_parts_are_not():
    """A square product or sum of parts that are not square: dense, said so, and right."""
    kronecker = tj.Kronecker(jnp.ones((2, 1)), jnp.asarray([[1.0, 2.0]]))
    blocks = tj.BlockDiagonal(jnp.ones((1, 2)), jnp.asarray([[1.0], [2.0]]))
    for a, op in (
        (kronecker, lambda a: tj.linalg.matrix_power(a, 3)),
        (blocks, lambda a: tj.linalg.matrix_power(a, 3)),
        (blocks, tj.linalg.expm),
    ):
        with pytest.raises(tj.NoRuleError, match="not square"), tj.densify("error"):
            op(a)
        with tj.densify("allow"):
            np.testing.assert_allclose(op(a), op(a.to_dense()), rtol=1e-12)
    with pytest.raises(tj.ShapeError, match="square"):
        tj.linalg.sqrtm(blocks)
