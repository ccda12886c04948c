"""A Gaussian process trained on four devices, in one process or in several, with one result.

    python docs/examples/four_devices.py

The arguments of several processes are coordinator, number of processes, and index:

    python docs/examples/four_devices.py 127.0.0.1:9000 2 0 &
    python docs/examples/four_devices.py 127.0.0.1:9000 2 1

The weeks of the CO₂ record of Mauna Loa are sharded over the devices. So are the rows of the
covariance, a diagonal plus waves of fitted amplitudes. No device ever gets the rows of another: the
compiled step only sums small arrays over the devices. In one process the script also compares the
result with that of a single device. It exits with an error if anything disagrees.
"""

from __future__ import annotations

import re
import sys
from typing import Any, NamedTuple

import jax

DEVICES = 4
coordinator, processes, process = sys.argv[1:] or ("", "1", "0")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", DEVICES // int(processes))
if coordinator:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, int(processes), int(process))

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from co2.record import read_record  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

import tanjax as tj  # noqa: E402

HARMONICS, STEPS, RATE = 4, 40, 0.1


class Parameters(NamedTuple):
    """Logarithms of the noise and of the amplitude of each wave, on every device."""

    noise: Any
    amplitudes: Any


def waves(year: np.ndarray) -> np.ndarray:
    """Return a trend and the harmonics of a year, `(n, 2 + 2 HARMONICS)`."""
    turns = 2 * np.pi * year[:, None] * np.arange(1, HARMONICS + 1)
    slow = np.stack([np.ones_like(year), year - 1980], 1) / [1, 20]
    return np.concatenate([slow, np.cos(turns), np.sin(turns)], axis=1)


def loss(p: Parameters, basis: jax.Array, y: jax.Array) -> jax.Array:
    """Return the negative logarithm of the marginal likelihood, per week."""
    noise = jnp.exp(p.noise) * jnp.ones_like(y)
    covariance = tj.LowRankUpdate(tj.Diagonal(noise), basis * jnp.exp(p.amplitudes))
    return (y @ tj.solve(covariance, y) + tj.logdet(covariance)) / (2 * y.shape[0])


def step(p: Parameters, basis: jax.Array, y: jax.Array) -> tuple[Parameters, jax.Array]:
    """Take one step down the gradient."""
    value, bar = jax.value_and_grad(loss)(p, basis, y)
    return jax.tree.map(lambda v, g: v - RATE * g, p, bar), value


def train(devices: list[Any]) -> tuple[list[float], str]:
    """Train on some devices; return the loss at every step, and the program of a step."""
    mesh = Mesh(np.array(devices), ("rows",), axis_types=(AxisType.Auto,))
    rows, everywhere = NamedSharding(mesh, P("rows")), NamedSharding(mesh, P())
    record = read_record()
    count = len(record.year) // DEVICES * DEVICES
    year, y = record.year[:count], record.ppm[:count] - 350.0
    here = lambda v: jax.make_array_from_callback(v.shape, rows, lambda index: v[index])
    basis, y = here(waves(year)), here(y)
    start = Parameters(np.zeros(()), np.zeros(basis.shape[1]))
    p = jax.tree.map(
        lambda v: jax.make_array_from_callback(v.shape, everywhere, lambda index: v[index]), start
    )
    compiled = jax.jit(step, donate_argnums=0).lower(p, basis, y).compile()
    losses = []
    for _ in range(STEPS):
        p, value = compiled(p, basis, y)
        losses.append(float(value))
    return losses, compiled.as_text()


def main() -> None:
    losses, program = train(jax.devices())
    sent = sorted(set(re.findall(r" (all-\w+|collective-\w+|reduce-scatter)\(", program)))
    print(f"{len(jax.devices())} devices of {jax.process_count()} processes, sent by: {sent}")
    print(f"loss per week: {losses[0]:.9f} at first, {losses[-1]:.9f} after {STEPS} steps")
    if sent != ["all-reduce"]:
        sys.exit("rows were sent to other devices")
    if jax.process_count() == 1:
        alone, _ = train(jax.devices()[:1])
        error = max(abs(a - b) for a, b in zip(losses, alone, strict=True))
        print(f"on one device: {alone[-1]:.9f}, the largest difference of a step is {error:.0e}")
        if error > 1e-9:
            sys.exit("one device finds something else")


if __name__ == "__main__":
    main()
