"""Formulas of other fields, called with other magnitudes again and again, against float64."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.ode import odeint

import tanjax as tj

pytestmark = pytest.mark.core

ELECTRON, BOLTZMANN, AVOGADRO = 1.602176634e-19, 1.380649e-23, 6.02214076e23
LEVELS, GRID = np.arange(12.0) ** 1.5, np.stack(np.meshgrid(*[np.arange(2.0)] * 3), -1)


def occupied(x, k):
    """Twelve sites that bind together, in mol/l."""
    part = lambda k: jnp.sum(x**12 / (k**12 + x**12))
    return part(k), jax.grad(part)(k)


def current(voltage, inside, outside):
    """Through a membrane (Goldman, Hodgkin, Katz)."""
    u = voltage * ELECTRON / (BOLTZMANN * 310.0)
    flow = (inside - outside * jnp.exp(-u)) / (1 - jnp.exp(-u))
    return 1e-8 * ELECTRON * AVOGADRO * u * flow


def heat_capacity(energies, temperature):
    beta = 1 / (BOLTZMANN * temperature)
    log_sum = lambda beta: jnp.log(jnp.sum(jnp.exp(-beta * energies)))
    return BOLTZMANN * beta**2 * jax.grad(jax.grad(log_sum))(beta)


def forces(x):
    """Of atoms in a noble gas (Lennard-Jones)."""
    apart = ~np.eye(len(x), dtype=bool)

    def energy(x):
        square = jnp.sum((x[:, None] - x[None]) ** 2, -1)
        sixth = (3.4e-10**2 / jnp.where(apart, square, 1.0)) ** 3
        return jnp.sum(jnp.where(apart, 2 * 1.65e-21 * (sixth**2 - sixth), 0.0))

    return -jax.grad(energy)(x)


def density(covariance, x):
    """The logarithm of a normal distribution."""
    root = jnp.linalg.cholesky(covariance)
    z = jax.scipy.linalg.solve_triangular(root, x, lower=True)
    return -0.5 * jnp.sum(z**2) - jnp.sum(jnp.log(jnp.diagonal(root)))


def conductance(r):
    return 1 / jnp.sqrt(jnp.sum(1 / r**2)), jnp.max(1 / r) / jnp.sum(1 / r)


SPREAD = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.5]])
ATOMS = GRID.reshape(-1, 3) + 0.02 * np.arange(24.0).reshape(8, 3) % 0.07
PROGRAMS = {
    "enzymes": (occupied, [([1e-9, 5e-9], 4e-9), ([1e-3, 1.0], 0.01), ([1e-12, 3e-12], 2e-12)]),
    "physiology": (current, [(-0.07, 10.0, 140.0), (0.5, 1e-4, 2.0), (-2.0, 3.0, 3.0)]),
    "heat": (heat_capacity, [(1e-21 * LEVELS, 300), (1e-26 * LEVELS, 1e-3), (1e-19 * LEVELS, 9e3)]),
    "gases": (forces, [(3.8e-10 * ATOMS,), (1e-8 * ATOMS,), (3.6e-10 * ATOMS,)]),
    "statistics": (density, [(SPREAD, [1.0, 2, 3]), (1e-36 * SPREAD, [1e-18, 2e-18, 3e-18])]),
    "circuits": (conductance, [([1.0, 2e3],), ([1e-30, 1e30],), ([1e-3, 1e25],)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_formula_of_another_field(name):
    f, calls = PROGRAMS[name]
    compiled = tj.jit(f)
    for call in calls:
        given = [jnp.asarray(x, jnp.float32) for x in call]
        with jax.enable_x64(True):
            want = jax.jit(f)(*[jnp.asarray(x, jnp.float64) for x in given])
        for got, exact in zip(
            jax.tree.leaves(compiled(*given)), jax.tree.leaves(want), strict=True
        ):
            exact = np.asarray(exact)
            room = 1e-4 * np.abs(exact).max() if name == "gases" else 1e-37
            np.testing.assert_allclose(np.asarray(got, float), exact, rtol=1e-3, atol=room)


def test_threads_with_other_magnitudes_do_not_disturb_each_other():
    compiled, wrong = tj.jit(lambda m, r: 6.6743e-11 * m * m / r**2), []
    numbers = [(1.0, 1.0), (2e30, 1.5e11), (1e-20, 1e-10), (5e24, 7e6), (1e15, 1e15)]

    def work(first):
        for i in range(10):
            m, r = numbers[(first + i) % len(numbers)]
            got = float(compiled(jnp.float32(m), jnp.float32(r)))
            if not np.isclose(got, 6.6743e-11 * m * m / r**2, rtol=1e-5):
                wrong.append((m, r, got))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_polynomials_with_columns_of_coefficients_are_planned():
    f = tj.jit(lambda p, x: jnp.polyval(p, x) / 1e30)
    p = jnp.array([[1.0, 2.0], [0.0, 1e10], [3.0, 4.0]], jnp.float32)
    np.testing.assert_allclose(f(p, jnp.float32(1e25)), [1e20, 2e20], rtol=1e-5)
    rows = jnp.array([1e25, 2e25, 1e24], jnp.float32)
    got = f(p[:, :, None], rows)
    np.testing.assert_allclose(got, [[1e20, 4e20, 1e18], [2e20, 8e20, 2e18]], rtol=1e-5)


@pytest.mark.usefixtures("float32")
def test_an_adaptive_solver_whose_error_estimate_overflows_gives_the_decay():
    times = jnp.array([0.0, 1e-12, 3e-12])
    decay = lambda y, k: odeint(lambda y, t: -k * y, y, times)
    got = tj.jit(decay)(jnp.float32(1e20), jnp.float32(1e12))
    np.testing.assert_allclose(got, 1e20 * np.exp([-0.0, -1.0, -3.0]), rtol=1e-5)


def test_a_search_that_overflows_is_planned_though_rounding_decides_its_last_step():
    """Right is 1e25 or 1e26; plain JAX stops at 1e20, five steps early."""
    search = lambda x: jax.lax.while_loop(lambda c: c * c < 1e50, lambda c: c * 10.0, x)
    got = tj.jit(search)(jnp.float32(1.0))
    assert 0.9e25 < got < 1.1e26
