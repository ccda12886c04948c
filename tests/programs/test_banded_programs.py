"""Programs that strangers write with tridiagonal and banded matrices, against SciPy and dense JAX.

Each runs in O(n): nothing may become dense on the way.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate
from jax import lax

import tanjax as tj


@pytest.fixture(autouse=True)
def nothing_becomes_dense():
    with tj.densify("error"):
        yield


def central(f, x, step=1e-6):
    """The derivative of a scalar function by a central difference."""
    return (f(x + step) - f(x - step)) / (2 * step)


def test_natural_cubic_spline():
    """Second derivatives at the knots from one symmetric tridiagonal system."""
    t = jnp.array([0.0, 0.7, 1.1, 2.0, 2.6, 3.5])
    y, at = jnp.sin(2 * t), jnp.linspace(0.1, 3.4, 9)

    @jax.jit
    def spline(y):
        h = jnp.diff(t)
        slope = jnp.diff(y) / h
        system = tj.SymTridiagonal(2 * (h[:-1] + h[1:]), h[1:-1])
        curvature = jnp.pad(tj.solve(system, 6 * jnp.diff(slope)), 1)
        i = jnp.searchsorted(t, at) - 1
        left, right = (t[i + 1] - at) / h[i], (at - t[i]) / h[i]
        bend = lambda s, m: (s**3 - s) * m * h[i] ** 2 / 6
        bent = bend(left, curvature[i]) + bend(right, curvature[i + 1])
        return left * y[i] + right * y[i + 1] + bent

    of_scipy = scipy.interpolate.CubicSpline(t, y, bc_type="natural")
    np.testing.assert_allclose(spline(y), of_scipy(at), rtol=1e-12)
    jacobian = jax.jacobian(spline)(y)  # linear in y: column j is the spline of a unit vector
    units = scipy.interpolate.CubicSpline(t, np.eye(6), bc_type="natural")
    np.testing.assert_allclose(jacobian, units(at), rtol=1e-10, atol=1e-12)


def test_heat_equation_with_gradients_to_the_diffusivity():
    """Implicit steps in a scan; the conductivity of every cell face is fitted by descent."""
    n, dt = 20, 0.05
    start = jnp.exp(-((jnp.arange(float(n)) - 6) ** 2) / 4)

    def cool(conductivity):  # of the n - 1 faces between cells; nothing flows through the ends
        flow = jnp.pad(conductivity, 1)
        step = tj.SymTridiagonal(1 + dt * (flow[:-1] + flow[1:]), -dt * conductivity)
        return lax.scan(lambda u, _: (tj.solve(step, u), None), start, None, length=10)[0]

    true = 1 + 0.5 * jnp.cos(jnp.arange(n - 1.0))
    observed = cool(true)
    np.testing.assert_allclose(jnp.sum(observed), jnp.sum(start), rtol=1e-12)  # heat is kept
    loss = jax.jit(lambda c: jnp.sum((cool(c) - observed) ** 2))
    guess, along = jnp.ones(n - 1), jnp.sin(jnp.arange(n - 1.0))
    gradient = jax.jit(jax.grad(loss))(guess)
    slope = central(lambda s: loss(guess + s * along), 0.0)
    np.testing.assert_allclose(gradient @ along, slope, rtol=1e-6)
    assert loss(guess - 0.5 * gradient) < loss(guess)


def test_poisson_equation_converges_with_the_square_of_the_step():
    """-u'' = π² sin πx, and the derivative of the energy by the load is the solution."""

    def error(n):
        x = jnp.arange(1, n) / n
        laplacian = tj.SymTridiagonal(jnp.full(n - 1, 2.0), jnp.full(n - 2, -1.0)) * n**2
        load = jnp.pi**2 * jnp.sin(jnp.pi * x)
        u = tj.solve(laplacian, load)
        energy = lambda f: f @ tj.solve(laplacian, f) / 2
        np.testing.assert_allclose(jax.grad(energy)(load), u, rtol=1e-10)
        return float(jnp.max(jnp.abs(u - jnp.sin(jnp.pi * x))))

    assert error(16) / error(32) == pytest.approx(4, rel=0.01)


def test_likelihood_of_an_autoregressive_process():
    """log N(x; 0, P⁻¹) with the tridiagonal precision P of AR(1), and its score by phi."""
    n = 30
    x = jnp.asarray(np.random.default_rng(3).normal(size=n))

    def likelihood(phi):
        diag = jnp.full(n, 1 + phi**2).at[jnp.array([0, -1])].set(1.0)
        precision = tj.SymTridiagonal(diag, jnp.full(n - 1, -phi))
        square = tj.quadratic_form(precision, x)
        return (tj.logdet(precision) - square - n * jnp.log(2 * jnp.pi)) / 2

    def by_conditionals(phi):
        first = jnp.log(1 - phi**2) - (1 - phi**2) * x[0] ** 2
        rest = jnp.sum((x[1:] - phi * x[:-1]) ** 2)
        return (first - rest - n * jnp.log(2 * jnp.pi)) / 2

    twice = lambda f: jax.grad(jax.grad(f))
    for change in (lambda f: f, jax.grad, twice):
        np.testing.assert_allclose(change(likelihood)(0.6), change(by_conditionals)(0.6), rtol=1e-9)


def test_smoother_of_a_local_linear_trend():
    """The mean of a Gaussian smoother is one banded solve; its evidence, one logdet."""
    n = 25
    y = jnp.asarray(np.cumsum(np.random.default_rng(4).normal(size=n)))
    rows = jnp.stack([jnp.ones(n), jnp.full(n, -2.0), jnp.ones(n)])
    second = tj.Banded(rows, 0, 2)  # second differences; the last two rows are boundary terms

    def evidence(logarithm):
        penalty = jnp.exp(logarithm) * (second.mT @ second)
        posterior = penalty + tj.Identity(n)
        mean = tj.solve(posterior, y)
        return (tj.logdet(penalty) - tj.logdet(posterior) - y @ (y - mean)) / 2, mean

    dense = np.eye(n) - 2 * np.eye(n, k=1) + np.eye(n, k=2)
    value, mean = jax.jit(evidence)(0.7)
    posterior = np.exp(0.7) * dense.T @ dense + np.eye(n)
    np.testing.assert_allclose(mean, np.linalg.solve(posterior, y), rtol=1e-9)
    slope = jax.jit(jax.grad(lambda s: evidence(s)[0]))(0.7)
    trace = np.trace(np.linalg.solve(posterior, posterior - np.eye(n)))
    misfit = mean @ (posterior - np.eye(n)) @ mean
    np.testing.assert_allclose(slope, (n - trace - misfit) / 2, rtol=1e-8)
    assert np.isfinite(value)
