"""The language of `docs/examples/quantum.py` against matrices written out, and what it refuses."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import tanjax as tj

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))

import circuits
import quantum
from circuits import count, draw
from quantum import CNOT, CZ, RX, RY, RZ, SWAP, Forward, H, X, Y, Z, nothing, unitary

PAULI = {
    RX: np.array([[0, 1], [1, 0]]), RY: np.array([[0, -1j], [1j, 0]]), RZ: np.diag([1, -1])
}  # fmt: skip
FIXED = {X: PAULI[RX], Y: PAULI[RY], Z: PAULI[RZ], H: (PAULI[RX] + PAULI[RZ]) / np.sqrt(2)}
WIRES = 3


def on(matrix, wires):
    """A matrix on some wires of three, entry by entry."""
    n, k = WIRES, len(wires)
    out = np.zeros((2**n, 2**n), complex)
    bit = lambda i, w: i >> (n - 1 - w) & 1
    index = lambda i: sum(bit(i, w) << (k - 1 - p) for p, w in enumerate(wires))
    mask = sum(1 << (n - 1 - w) for w in wires)
    for i in range(2**n):
        for j in range(2**n):
            if i & ~mask == j & ~mask:
                out[i, j] = matrix[index(i), index(j)]
    return out


def controlled(matrix, values):
    size, row = len(matrix), int("".join(map(str, values)), 2)
    out = np.eye(size * 2 ** len(values), dtype=complex)
    out[row * size : (row + 1) * size, row * size : (row + 1) * size] = matrix
    return out


def made_gates():
    """Functions of wires that make gates, their matrices, and wires."""
    turns = {g: scipy.linalg.expm(-0.35j * p) for g, p in PAULI.items()}
    for gate, matrix in turns.items():
        yield lambda w, gate=gate: gate(0.7, wires=w), matrix, (1,)
    for gate, matrix in FIXED.items():
        yield lambda w, gate=gate: gate(wires=w), matrix, (2,)
    pairs = {CNOT: controlled(FIXED[X], (1,)), CZ: controlled(FIXED[Z], (1,))}
    pairs[SWAP] = np.eye(4)[[0, 2, 1, 3]]
    for wires in ((0, 1), (2, 0), (0, 2), (2, 1)):
        for gate, matrix in pairs.items():
            yield lambda w, gate=gate: gate(wires=w), matrix, wires
    for values in ((0, 1), (1, 0)):
        both = lambda w, values=values: tj.programs.ctrl(
            lambda: nothing(RX(0.7, wires=w[2])), values, (w[0], w[1])
        )()
        yield both, controlled(turns[RX], values), (2, 0, 1)


def test_gates_on_static_and_on_traced_wires():
    made = list(made_gates())

    @jax.jit
    def matrices(places):
        static = [unitary(lambda make=m, w=w: nothing(make(w)), WIRES)() for m, _, w in made]
        moved = lambda make, w: unitary(lambda w: nothing(make(tuple(w))), WIRES)(w)
        return static, [moved(m, w) for (m, _, _), w in zip(made, places, strict=True)]

    found = matrices([jnp.array(w) for _, _, w in made])
    for (_, matrix, wires), one, other in zip(made, *found, strict=True):
        np.testing.assert_allclose(one, on(matrix, wires), atol=1e-15)
        np.testing.assert_allclose(other, on(matrix, wires), atol=1e-15)


@pytest.mark.parametrize("wires", [(0, 3), (1, 1), (-1,)], ids=str)
def test_wires_that_are_not_there(wires):
    """Known ones are refused, traced ones make the state NaN."""
    gate = CNOT if len(wires) == 2 else X
    final = quantum.run(lambda w: nothing(gate(wires=tuple(w))), quantum.ground(WIRES))
    with pytest.raises(ValueError, match="no such"):
        quantum.run(lambda: nothing(gate(wires=wires)), quantum.ground(WIRES))()
    with pytest.raises(tj.ShapeError):
        final(jnp.array(wires))
    assert jnp.all(jnp.isnan(jax.jit(final)(jnp.array(wires))))


def in_scan(a):
    jax.lax.scan(lambda a, _: (a, nothing(RX(a, wires=0))), a, length=3)


def in_compiled(a):
    jax.jit(lambda a: (RX(a, wires=0), a)[1])(a)


@pytest.mark.parametrize("circuit", [in_scan, in_compiled], ids=lambda f: f.__name__)
def test_loops_that_nobody_gave_a_meaning(circuit):
    for meaning in (quantum.run(circuit, quantum.ground(1)), count(circuit), draw(circuit, 1)):
        with pytest.raises(TypeError, match="cannot hold gates"):
            meaning(0.3)


def carried(a):
    def body(i, x, y):
        RX(x, wires=0)
        RY(y, wires=i % 2)
        CNOT(wires=(1, 0))
        return 1.3 * x, y + x

    _, y = tj.programs.for_loop(5, -1, -2)(body)(a, 2 * a)
    RX(y, wires=1)
    tj.programs.for_loop(0, 0)(lambda i, z: (RX(z, wires=0), z)[1])(a)


def test_the_adjoint_of_a_loop_with_a_state():
    """By transposing the map, and by inverse gates in the order and with the state of the loop."""
    both = lambda a: (carried(a), tj.programs.adjoint(carried)(a))[1]
    shorter = circuits.Cancel()(Forward()(both))
    found = jax.jit(lambda a: [unitary(f, 2)(a) for f in (both, Forward()(both), shorter)])(0.3)
    for matrix in found:
        np.testing.assert_allclose(matrix, np.eye(4), atol=1e-14)
    assert count(both)(0.3) == {"CNOT": 6, "RX": 8, "RY": 6}
    drawn = draw(both, 2)(0.3)
    assert [drawn.count(x) for x in ("●", "RX", "RY")] == [6, 8, 6]


def test_neighbouring_inverse_gates_cancel():
    """Not across a gate on the same wires, a loop that makes gates, or where the gate is used."""

    def circuit(a):
        CNOT(wires=(0, 1))
        X(wires=2)  # on another wire
        CNOT(wires=(0, 1))
        RX(2 * a, wires=0)
        H(wires=1)
        H(wires=1)
        RX(-(2 * a), wires=0)  # made of another product
        RZ(0.25, wires=1)
        RZ(-0.25, wires=1)
        RZ(a, wires=1)  # stays, as all that follows
        RZ(a, wires=1)
        CNOT(wires=(1, 2))
        CNOT(wires=(2, 1))
        H(wires=0)
        X(wires=0)
        H(wires=0)
        tj.programs.for_loop(0, 2)(lambda i: nothing(H(wires=2)))()
        H(wires=0)
        one, other = RY(a, wires=1), RY(-a, wires=1)
        return one.angle + other.angle

    program = tj.capture(circuit)(0.5)
    shorter = circuits.Cancel().rewrite(program)
    left = [e.name for e in shorter if e.kind == "class"]
    assert left == ["X", "RZ", "RZ", "CNOT", "CNOT", "H", "X", "H", "H", "RY", "RY"]
    distance = jax.jit(lambda a: unitary(program, 3)(a) - unitary(shorter, 3)(a))(0.5)
    np.testing.assert_allclose(distance, 0, atol=1e-15)


def test_an_angle_read_in_a_circuit_that_is_turned_around():
    """Not made yet where it is read: refused, never wrong."""
    read = lambda a: nothing(RX(RX(a, wires=0).angle, wires=0))
    with pytest.raises(tj.errors.CaptureError, match="no such field"):
        Forward()(lambda a: tj.programs.adjoint(read)(a))(0.3)
