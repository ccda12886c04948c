"""The likelihood of a Gaussian process on a million points, beside CoLA and linear_operator.

    python benchmarks/million_peers.py [--size 1001] [--python LIBRARY=/path/to/python ...]

The task is value and gradient by four hyper-parameters of the exact negative log likelihood of
`docs/examples/million_points.py`: a Kronecker product of two Matérn covariances plus equal noise,
on the record stored there, in float64. Each library runs in its own process, in its own ways for
such a sum. CoLA runs as documented, by `inv` and `logdet` with its default choice, which has no
gradient: the value alone. linear_operator uses the eigenvectors of its
`KroneckerProductAddedDiagLinearOperator`. The best of five later calls counts. The output names
each library that is not installed, fails, or takes longer than `--limit`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
START = np.log([30.0, 5.0, 5.0, 0.1])  # metres, degrees, degrees, metres
STEP = 5 / 60  # degrees

Likelihood = Callable[[Any], tuple[float, Any]]  # value and gradient by the hyper-parameters


def heights(size: int) -> np.ndarray:
    """Return the record in metres without its mean, one axis after the other."""
    record = np.load(ROOT / "docs/examples/data/egm96_geoid.npz")["second_differences"]
    found = record.astype(np.int32).cumsum(axis=0).cumsum(axis=1)[:size, :size] / 100
    return (found - found.mean()).reshape(-1)


def tanjax(size: int) -> Likelihood:
    """The likelihood of the example."""
    sys.path.insert(0, str(ROOT / "docs/examples"))
    import jax
    import million_points

    y = jax.numpy.asarray(heights(size).reshape(size, size))
    run = jax.jit(jax.value_and_grad(million_points.negative_log_likelihood))
    return lambda theta: run(jax.numpy.asarray(theta), y)


def cola(size: int) -> Likelihood:
    """Use `cola.linalg.inv` and `logdet` of the sum, declared positive definite.

    The value alone: its Lanczos is a `while_loop`, which JAX does not differentiate in reverse.
    """
    import cola as library
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    y, at = jnp.asarray(heights(size)), STEP * jnp.arange(size)

    def matern(length: Any) -> Any:
        d = jnp.sqrt(5.0) * jnp.abs(at[:, None] - at) / length
        return library.ops.Dense((1 + d + d**2 / 3) * jnp.exp(-d))

    def negative(theta: Any) -> Any:
        deviation, latitude, longitude, noise = jnp.exp(theta)
        north = library.ops.Dense(deviation**2 * matern(latitude).to_dense())
        signal = library.ops.Kronecker(north, matern(longitude))
        # In CoLA 0.0.7 `signal + c * I_like(signal)` is ambiguous, and a `ScalarMul` of a traced
        # number is on another device.
        equal = library.ops.Diagonal(noise**2 * jnp.ones_like(y))
        a = library.PSD(library.ops.Sum(signal, equal))
        squares = y @ (library.linalg.inv(a) @ y)
        return (squares + library.linalg.logdet(a) + y.size * jnp.log(2 * jnp.pi)) / 2

    run = jax.jit(negative)
    return lambda theta: (run(jnp.asarray(theta)), np.full(4, np.nan))


def linear_operator(size: int) -> Likelihood:
    """Use `inv_quad_logdet` of the Kronecker product plus a constant diagonal."""
    import torch
    from linear_operator import operators

    torch.set_default_dtype(torch.float64)
    y, at = torch.tensor(heights(size)), STEP * torch.arange(size)

    def matern(length: Any) -> Any:
        d = 5.0**0.5 * (at[:, None] - at).abs() / length
        return operators.DenseLinearOperator((1 + d + d**2 / 3) * torch.exp(-d))

    def run(start: Any) -> tuple[float, Any]:
        theta = torch.tensor(np.asarray(start), requires_grad=True)
        deviation, latitude, longitude, noise = torch.exp(theta)
        north = operators.DenseLinearOperator(deviation**2 * matern(latitude).to_dense())
        signal = operators.KroneckerProductLinearOperator(north, matern(longitude))
        diagonal = operators.ConstantDiagLinearOperator((noise**2)[None], diag_shape=y.numel())
        squares, logdet = (signal + diagonal).inv_quad_logdet(y[:, None], logdet=True)
        value = (squares + logdet + y.numel() * np.log(2 * np.pi)) / 2
        value.backward()
        return float(value.detach()), theta.grad.numpy()

    return run


LIBRARIES = {"tanjax": tanjax, "CoLA": cola, "linear_operator": linear_operator}


def measure(name: str, size: int) -> dict[str, Any]:
    """Return value, gradient, seconds of each call, and the peak memory."""
    run = LIBRARIES[name](size)
    seconds: list[float] = []
    while len(seconds) < 6 and sum(seconds) < 60:  # five more calls, or a slow one
        shift = 1e-3 * len(seconds)
        start = time.perf_counter()
        value, gradient = run(START + shift)
        gradient = np.asarray(gradient, float)
        seconds.append(time.perf_counter() - start)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "value": float(value), "gradient": gradient.tolist(), "seconds": seconds, "GiB": held
    }  # fmt: skip


def main() -> None:
    """Measure one library, or all of them, each in its own process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=1001, help="rows and columns of the grid")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a library")
    parser.add_argument("--python", action="append", default=[], help="LIBRARY=its interpreter")
    parser.add_argument("--only", choices=LIBRARIES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(measure(given.only, given.size)))
        return
    pythons = dict(text.split("=", 1) for text in given.python)
    for name in LIBRARIES:
        command = [pythons.get(name, sys.executable), __file__, "--only", name]
        command += ["--size", str(given.size)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=given.limit, check=False
            )
        except subprocess.TimeoutExpired:
            print(f"{name:16} no result in {given.limit:g} s")
            continue
        if done.returncode:
            print(f"{name:16} {(done.stderr.strip().splitlines() or [done.returncode])[-1]}")
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        first, *others = found["seconds"]
        second = min(others, default=first)
        print(
            f"{name:16} {second:7.2f} s (first {first:.1f}), {found['GiB']:.2f} GiB, "
            f"-log p {found['value']:.6g}, gradient {np.round(found['gradient'], 3).tolist()}"
        )


if __name__ == "__main__":
    main()
