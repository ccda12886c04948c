"""A quantum circuit as a captured program against one written by hand in JAX.

    python benchmarks/bench_circuits.py [--write PAGE]

Ten wires, fifty rotations and fifty controlled gates: the time to capture the circuit, and, for
the final state and for the gradient of a mean, to trace, to compile and to run. By hand, a gate is
a `jnp.tensordot` of its matrix with axes of the state. Minima of some runs, in one process.
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 "
    + os.environ.get("XLA_FLAGS", "")
)
import argparse
import pathlib
import sys
import time
from typing import Any

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "docs" / "examples"))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import quantum  # noqa: E402

import tanjax as tj  # noqa: E402

WIRES, LAYERS = 10, 5
TURNS = (quantum.RX, quantum.RY, quantum.RZ)
START, END = "<!-- times -->", "<!-- end of times -->"


def circuit(angles: Any) -> None:
    for k in range(LAYERS):
        for w in range(WIRES):
            TURNS[k % 3](angles[k, w], wires=w)
        for w in range(WIRES):
            quantum.CNOT(wires=(w, (w + 1) % WIRES))


def ours(angles: Any) -> Any:
    return quantum.run(circuit, quantum.ground(WIRES, jnp.complex64))(angles)


def by_hand(angles: Any) -> Any:
    state = quantum.ground(WIRES, jnp.complex64).reshape((2,) * WIRES)
    cnot = jnp.eye(4, dtype=jnp.complex64)[jnp.array([0, 1, 3, 2])].reshape(2, 2, 2, 2)
    for k in range(LAYERS):
        for w in range(WIRES):
            c, s = jnp.cos(angles[k, w] / 2) + 0j, jnp.sin(angles[k, w] / 2) + 0j
            matrix = (
                jnp.array([[c, -1j * s], [-1j * s, c]]),
                jnp.array([[c, -s], [s, c]]),
                jnp.array([[c - 1j * s, 0], [0, c + 1j * s]]),
            )[k % 3]
            state = jnp.moveaxis(jnp.tensordot(matrix, state, [[1], [w]]), 0, w)
        for w in range(WIRES):
            both = [w, (w + 1) % WIRES]
            state = jnp.moveaxis(jnp.tensordot(cnot, state, [[2, 3], both]), [0, 1], both)
    return state.reshape(-1)


def mean(state: Any) -> Any:
    """A function of the state that has a gradient for every angle."""
    return jnp.vdot(state, np.cos(np.arange(2**WIRES)).astype(np.float32) * state).real


def least(f: Any, times: int) -> float:
    """The shortest time of some calls, in milliseconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        f()
        found.append(time.perf_counter() - start)
    return 1e3 * min(found)


def row(name: str, f: Any, angles: Any) -> str:
    trace = least(lambda: jax.jit(lambda a: f(a)).trace(angles), 5)
    lowered = jax.jit(f).lower(angles)
    start = time.perf_counter()
    compiled = lowered.compile()
    compiling = 1e3 * (time.perf_counter() - start)
    run = least(lambda: jax.block_until_ready(compiled(angles)), 200)
    return f"| {name} | {trace:.0f} | {compiling:.0f} | {run:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=pathlib.Path, help="page whose table is replaced")
    options = parser.parse_args()
    angles = jnp.linspace(0.1, 2, LAYERS * WIRES, dtype=jnp.float32).reshape(LAYERS, WIRES)
    if not np.allclose(ours(angles), by_hand(angles), atol=1e-6):
        sys.exit("the states differ")
    program = lambda: len(tj.capture(circuit)(angles))
    size, capture = program(), least(lambda: tj.capture(circuit)(angles), 5)
    lines = [f"| JAX {jax.__version__}, ms | trace | compile | run |", "|---|---|---|---|"]
    lines.append(f"| the circuit alone, captured ({size} equations) | {capture:.0f} | | |")
    for what, of in (
        ("state", lambda f: f),
        ("gradient", lambda f: jax.grad(lambda a: mean(f(a)))),
    ):
        lines.append(row(f"{what}, captured and run", of(ours), angles))
        lines.append(row(f"{what}, by hand", of(by_hand), angles))
    print("\n".join(lines))
    if options.write:
        page = options.write.read_text()
        before, rest = page.split(START)
        after = rest.split(END)[1]
        options.write.write_text(f"{before}{START}\n\n" + "\n".join(lines) + f"\n\n{END}{after}")


if __name__ == "__main__":
    main()
