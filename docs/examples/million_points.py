"""A Gaussian process on a million points of the geoid, fitted by gradients of its exact likelihood.

    python docs/examples/million_points.py [--size ROWS_AND_COLUMNS]

The data are the heights of the geoid over the ellipsoid on a grid of 5 arc minutes, 1001 by 1001
(`data/`: the model EGM96 of measured gravity, rounded to centimetres). A product covariance on a
grid is a Kronecker product, and noise adds a multiple of the identity. `tj.solve` and `tj.logdet`
of that sum are exact, by the eigenvectors of two matrices of 1001 rows.

Noise that differs from point to point has no exact form. Then conjugate gradients solve one system
with the sum as preconditioner, and Lanczos quadrature estimates the determinant. The script prints
results, seconds, and the peak memory. It exits with an error if a result is wrong.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import lineax  # noqa: E402
import numpy as np  # noqa: E402
import scipy.optimize  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import tanjax as tj  # noqa: E402
from tanjax.bridges.matfree import Lanczos  # noqa: E402

RECORD = Path(__file__).parent / "data" / "egm96_geoid.npz"
STEP = 5 / 60  # degrees
START = np.log([30.0, 5.0, 5.0, 0.1])  # metres, degrees, degrees, metres
NAMES = ("deviation (m)", "length in latitude (°)", "length in longitude (°)", "noise (m)")
MAX_ITERATIONS = 60
ROUNDING = 0.01 / 12**0.5  # metres: the standard deviation of rounding to centimetres


def read_geoid(size: int) -> np.ndarray:
    """Read the heights in metres: `size` rows from south to north, columns from west to east."""
    differences = np.load(RECORD)["second_differences"].astype(np.int32)
    heights = differences.cumsum(axis=0).cumsum(axis=1) / 100
    return heights[:size, :size]


# -- the model -------------------------------------------------------------------------------------


def matern(distance: jax.Array) -> jax.Array:
    """Return the Matérn covariance of smoothness 5/2."""
    d = jnp.sqrt(5.0) * distance
    return (1 + d + d**2 / 3) * jnp.exp(-d)


def axis_covariance(size: int, length: jax.Array) -> tj.Symmetric:
    """Return the covariance along one axis of the grid."""
    at = STEP * jnp.arange(size)
    return tj.Symmetric(matern(jnp.abs(at[:, None] - at) / length))


def signal_covariance(theta: jax.Array, shape: tuple[int, int]) -> tj.Kronecker:
    """Return the covariance of the heights without noise."""
    deviation, latitude, longitude, _ = jnp.exp(theta)
    rows, columns = shape
    north = axis_covariance(rows, latitude)
    return tj.Kronecker(deviation**2 * north, axis_covariance(columns, longitude))


def covariance(theta: jax.Array, shape: tuple[int, int]) -> tj.tangents.Sum:
    """Return the covariance of the record: two small matrices and a number."""
    signal = signal_covariance(theta, shape)
    return signal + tj.Scaled(tj.Identity(signal.shape[0]), jnp.exp(2 * theta[3]))


def negative_log_likelihood(theta: jax.Array, heights: jax.Array) -> jax.Array:
    """Return the exact `-log p(heights)`, after subtraction of the mean."""
    y = (heights - jnp.mean(heights)).reshape(-1)
    squares, logdet = tj.linalg.inv_quad_logdet(covariance(theta, heights.shape), y)
    return (squares + logdet + y.size * jnp.log(2 * jnp.pi)) / 2


# -- measuring -------------------------------------------------------------------------------------


class Timed(NamedTuple):
    """A result and its seconds."""

    value: Any
    seconds: float


def timed(f: Callable[..., Any], *args: Any) -> Timed:
    """Run a function and wait for it."""
    start = time.perf_counter()
    value = jax.block_until_ready(f(*args))
    return Timed(value, time.perf_counter() - start)


def peak_memory() -> float:
    """Return the peak memory of this process in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def check(what: str, holds: bool) -> None:
    """Exit with an error if a check does not hold."""
    if not holds:
        raise SystemExit(f"not as it must be: {what}")


# -- the parts -------------------------------------------------------------------------------------


def fit(heights: jax.Array, console: Console) -> np.ndarray:
    """Return the hyper-parameters of maximum likelihood, by L-BFGS-B."""
    run = jax.jit(jax.value_and_grad(negative_log_likelihood)).lower(START, heights).compile()
    start = time.perf_counter()
    result = scipy.optimize.minimize(
        lambda theta: tuple(map(np.asarray, run(jnp.asarray(theta), heights))),
        START,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MAX_ITERATIONS},
    )
    seconds = time.perf_counter() - start
    table = Table(title="maximum likelihood, exact")
    table.add_column("")
    table.add_column("start", justify="right")
    table.add_column("fitted", justify="right")
    for name, *values in zip(NAMES, np.exp(START), np.exp(result.x), strict=True):
        table.add_row(name, *(f"{v:.4g}" for v in values))
    table.add_row("−log p", f"{run(START, heights)[0]:.0f}", f"{result.fun:.0f}")
    console.print(table)
    console.print(
        f"{result.nfev} values with gradient in {seconds:.0f} s, "
        f"{seconds / result.nfev:.1f} s each; peak memory {peak_memory():.2f} GiB\n"
    )
    check(
        "the noise is that of rounding to centimetres", abs(np.exp(result.x[3]) - ROUNDING) < 2e-4
    )
    check("the optimiser ends", result.success or result.nit == MAX_ITERATIONS)
    return result.x


def uneven_noise(theta: np.ndarray, heights: jax.Array, console: Console) -> None:
    """Solve one system with noise that differs from point to point, by preconditioned CG."""
    rows, columns = heights.shape
    signal = signal_covariance(theta, heights.shape)
    uneven = jnp.linspace(1.0, 3.0, rows)[:, None] * jnp.ones(columns)
    noise = jnp.exp(2 * theta[3]) * uneven.reshape(-1)
    a = tj.tangents.Sum(signal, tj.Diagonal(noise))
    like = tj.factorize(
        tj.tangents.Sum(signal, tj.Scaled(tj.Identity(noise.size), jnp.mean(noise)))
    )
    y = (heights - jnp.mean(heights)).reshape(-1)
    solver = lineax.CG(rtol=1e-4, atol=1e-4)
    solve = jax.jit(lambda a, y, p: tj.solve(a, y, solver=solver, options={"preconditioner": p}))
    x, seconds = timed(solve, a, y, like)
    residual = float(jnp.max(jnp.abs(a @ x - y)))
    console.print(
        f"noise that differs: one system by preconditioned CG in {seconds:.0f} s with compilation, "
        f"largest residual {residual:.1e} m"
    )
    check("CG solves the system", residual < 0.1)


def estimated_determinant(
    theta: np.ndarray, heights: jax.Array, order: int, console: Console
) -> None:
    """Compare the determinant by Lanczos quadrature with the exact one, for noise of one metre.

    Eigenvalues range from one to millions, so the estimate has a bias beyond its standard error.
    """
    a = covariance(jnp.asarray(theta).at[3].set(0.0), heights.shape)
    exact = float(jax.jit(tj.logdet)(a))
    estimator = Lanczos(order, samples=3, key=jax.random.key(0))
    (value, error), seconds = timed(jax.jit(lambda a: estimator.estimate(a)), a)
    console.print(
        f"log det with noise of 1 m: {exact:.6g} exactly; {float(value):.6g} ± {float(error):.1g} "
        f"by Lanczos of order {order} with 3 vectors in {seconds:.0f} s: "
        f"biased by {(float(value) - exact) / heights.size:.2g} per point"
    )
    check("the estimate is a number", bool(np.isfinite(value)))


def main(arguments: list[str] | None = None) -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1001, help="rows and columns of the grid")
    parser.add_argument("--order", type=int, default=40, help="of the Lanczos iteration")
    given = parser.parse_args(arguments)
    console = Console()
    heights = jnp.asarray(read_geoid(given.size))
    console.print(
        f"{heights.size:,} heights, {float(heights.min()):.1f} to {float(heights.max()):.1f} m; "
        f"their covariance would take {heights.size**2 * 8 / 2**40:.2g} TiB\n"
    )
    theta = fit(heights, console)
    uneven_noise(theta, heights, console)
    estimated_determinant(theta, heights, given.order, console)
    console.print(f"peak memory of all: {peak_memory():.2f} GiB")


if __name__ == "__main__":
    main()
