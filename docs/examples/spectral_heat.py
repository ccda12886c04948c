"""The heat equation in Legendre polynomials: banded systems, and errors that fall exponentially.

    python docs/examples/spectral_heat.py

In the basis `L_k - L_{k+2}` (Shen 1994), which vanishes at both ends, the second derivative is a
`Diagonal`. The mass matrix is `Banded` with five diagonals, so a step in time costs O(n). A steady
problem shows the convergence in the number of polynomials, and a decaying wave that in the time
step. The gradient by the conductivity goes through all steps. The script compares all three with
exact solutions, and exits with an error if one of them does not converge.
"""

from __future__ import annotations

import sys
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from numpy.polynomial import legendre  # noqa: E402

import tanjax as tj  # noqa: E402

CONDUCTIVITY, TIME = 0.3, 0.5


def matrices(n: int) -> tuple[tj.Diagonal, tj.Banded]:
    """Return stiffness and mass of `n` functions: the products of derivatives, and of values."""
    k = np.arange(n)
    stiffness = tj.Diagonal(jnp.asarray(4.0 * k + 6))
    beside = -2 / (2 * k + 5)  # of k and k + 2
    zero = np.zeros(n)
    below, above = beside, np.concatenate([zero[:2], beside])[:n]
    middle = 2 / (2 * k + 1) + 2 / (2 * k + 5)
    return stiffness, tj.Banded(jnp.asarray([above, zero, middle, zero, below]), 2, 2)


def basis(n: int, x: np.ndarray) -> np.ndarray:
    """Return the functions at points, `(points, n)`."""
    values = legendre.legvander(x, n + 1)
    return values[:, :n] - values[:, 2:]


def products_with(f: Any, n: int) -> Any:
    """Return the integrals of a function times each of the basis, by Gauss's rule."""
    x, weights = legendre.leggauss(2 * n + 20)
    return jnp.asarray(basis(n, x).T @ (weights * f(x)))


POINTS = np.linspace(-1, 1, 101)
wave = lambda x: np.sin(np.pi * x)


def steady_error(n: int) -> float:
    """Return the largest error of `u - u'' = f` with the solution `sin(πx) exp(x)`."""
    solution = lambda x: wave(x) * np.exp(x)
    f = lambda x: np.exp(x) * (np.pi**2 * np.sin(np.pi * x) - 2 * np.pi * np.cos(np.pi * x))
    stiffness, mass = matrices(n)
    coefficients = tj.solve(mass + stiffness, products_with(f, n))
    return float(np.max(np.abs(basis(n, POINTS) @ np.asarray(coefficients) - solution(POINTS))))


def end(conductivity: Any, n: int, steps: int) -> Any:
    """Return the final temperature of a decaying wave at the points (Crank and Nicolson 1947)."""
    stiffness, mass = matrices(n)
    half = conductivity * (TIME / steps / 2)
    implicit, explicit = mass + half * stiffness, mass - half * stiffness
    start = tj.solve(mass, products_with(wave, n))
    step = lambda _, c: tj.solve(implicit, explicit @ c)
    return jnp.asarray(basis(n, POINTS)) @ jax.lax.fori_loop(0, steps, step, start)


def exact(conductivity: float) -> np.ndarray:
    """Return the exact final temperature: the same wave, smaller."""
    return np.exp(-(np.pi**2) * conductivity * TIME) * wave(POINTS)


def main() -> None:
    stiffness, mass = matrices(8)
    if not isinstance(mass + stiffness, tj.Banded):
        sys.exit("the sum of a banded and a diagonal matrix is not banded")
    print("polynomials  largest error of the steady solution")
    errors = {n: steady_error(n) for n in (4, 8, 12, 16, 20, 24)}
    for n, error in errors.items():
        print(f"{n:11}  {error:.1e}")
    print("time steps   largest error of the decayed wave")
    in_time = {}
    for steps in (10, 20, 40):
        found = jax.jit(end, static_argnums=(1, 2))(CONDUCTIVITY, 24, steps)
        in_time[steps] = float(np.max(np.abs(found - exact(CONDUCTIVITY))))
        print(f"{steps:10}   {in_time[steps]:.1e}")
    energy = jax.jit(jax.grad(lambda c: jnp.sum(end(c, 24, 320) ** 2)))
    got = float(energy(CONDUCTIVITY))
    want = -2 * np.pi**2 * TIME * float(np.sum(exact(CONDUCTIVITY) ** 2))
    print(f"derivative of the energy by the conductivity: {got:.5f}, exactly {want:.5f}")
    if not (errors[24] < 1e-11 and errors[16] < 1e-4 * errors[8]):
        sys.exit("no exponential convergence in the polynomials")
    if not all(3.8 < in_time[k] / in_time[2 * k] < 4.2 for k in (10, 20)):
        sys.exit("no convergence of second order in time")
    if abs(got / want - 1) > 1e-4:
        sys.exit("the derivative is wrong")


if __name__ == "__main__":
    main()
