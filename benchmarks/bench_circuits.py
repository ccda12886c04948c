"""A quantum circuit as a captured program against one written by hand in JAX.

    python benchmarks/bench_circuits.py [--write PAGE]

Ten wires, fifty rotations and fifty controlled gates: the time to capture the circuit, and the
times to trace, compile and run the final state and the gradient of a mean. By hand, a gate is a
`jnp.tensordot` of its matrix with axes of the state. Minima of some runs, in one process.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip  first of all

import argparse
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "docs" / "examples"))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import quantum  # noqa: E402
from quantum import nothing  # noqa: E402

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
    """Return a function of the state that has a gradient for every angle."""
    return jnp.vdot(state, np.cos(np.arange(2**WIRES)).astype(np.float32) * state).real


def seconds(f: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(f())
    return time.perf_counter() - start


def least(calls: Sequence[Any], times: int) -> list[float]:
    """Return the shortest times of some calls, made in turns, in milliseconds."""
    found = [[seconds(f) for f in calls] for _ in range(times)]
    return [1e3 * min(column) for column in zip(*found, strict=True)]


def rows(names: Sequence[str], functions: Sequence[Any], angles: Any) -> list[str]:
    tracing = lambda f: lambda: jax.jit(lambda a: f(a)).trace(angles).jaxpr.consts
    trace = least([tracing(f) for f in functions], 5)
    lowered = [jax.jit(f).lower(angles) for f in functions]
    compiled: list[Any] = []
    compiling = [1e3 * seconds(lambda one=one: compiled.append(one.compile())) for one in lowered]
    run = least([lambda f=f: f(angles) for f in compiled], 200)
    table = zip(names, trace, compiling, run, strict=True)
    return [f"| {name} | {t:.0f} | {c:.0f} | {r:.2f} |" for name, t, c, r in table]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=pathlib.Path, help="page whose table is replaced")
    options = parser.parse_args()
    angles = jnp.linspace(0.1, 2, LAYERS * WIRES, dtype=jnp.float32).reshape(LAYERS, WIRES)
    capture = lambda: nothing(tj.capture(circuit)(angles))
    first = 1e3 * seconds(capture)
    if not np.allclose(ours(angles), by_hand(angles), atol=1e-6):
        sys.exit("the states differ")
    lines = [f"| JAX {jax.__version__}, ms | trace | compile | run |", "|---|---|---|---|"]
    lines.append(f"| the circuit captured, the first time in a process | {first:.0f} | | |")
    lines.append(f"| the circuit captured again | {least([capture], 5)[0]:.0f} | | |")
    for what, of in (
        ("state", lambda f: f),
        ("gradient", lambda f: jax.grad(lambda a: mean(f(a)))),
    ):
        names = f"{what}, captured and run", f"{what}, by hand"
        lines += rows(names, (of(ours), of(by_hand)), angles)
    print("\n".join(lines))
    if options.write:
        page = options.write.read_text()
        before, rest = page.split(START)
        after = rest.split(END)[1]
        options.write.write_text(f"{before}{START}\n\n" + "\n".join(lines) + f"\n\n{END}{after}")


if __name__ == "__main__":
    main()
