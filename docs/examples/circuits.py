"""Quantum circuits as captured programs: counted, drawn, shortened, differentiated, fitted.

    python docs/examples/circuits.py

`quantum.py` defines gates and runs them on state vectors. This script adds three more meanings of
circuits, of about twenty lines each, and uses them. It compares gradients of expectation values
with the parameter-shift rule, transformed programs with their unitary matrices, and the ground
state of a hydrogen molecule with exact diagonalisation. The script exits with an error if they
disagree.
"""

from __future__ import annotations

import collections
import itertools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from quantum import (  # noqa: E402
    CNOT,
    CZ,
    RX,
    RY,
    RZ,
    SWAP,
    Circuit,
    Forward,
    Gate,
    H,
    Meaning,
    Rotation,
    X,
    applied,
    as_state,
    expectation,
    ground,
    is_gate,
    makes_gates,
    nothing,
    run,
    unitary,
)  # fmt: skip

import tanjax as tj  # noqa: E402

# -- other meanings of a circuit -----------------------------------------------------------------


class Cancel(tj.programs.Interpreter):
    """Drop pairs of a gate and its inverse without another gate on their wires in between."""

    dropped: frozenset[Any] = frozenset()

    def run(self, program: tj.programs.Program, *args: Any, **kwargs: Any) -> Any:
        before, self.dropped = self.dropped, inverse_pairs(program)
        out = super().run(program, *args, **kwargs)
        self.dropped = before
        return out

    @tj.programs.handles(Gate)
    def gate(self, equation, *args: Any, **kwargs: Any) -> Any:
        return equation in self.dropped or self.default(equation, *args, **kwargs)


def inverse_pairs(program: tj.programs.Program) -> frozenset[Any]:
    """Return the gates of a program that cancel; loops and branches with gates separate them."""
    value = value_names(program)
    used = {x for e in program for x in e.inputs} | set(program.outputs)
    kept: list[Any] = []
    dropped: set[Any] = set()
    for e in program:
        if not is_gate(e):
            kept += [e] if any(map(makes_gates, e.programs.values())) else []
            continue
        last = next((g for g in reversed(kept) if meet(g, e)), None)
        if last is None or not used.isdisjoint(last.outputs + e.outputs):
            kept.append(e)
        elif are_inverse(last, e, value):
            kept.remove(last)
            dropped |= {last, e}
        else:
            kept.append(e)
    return frozenset(dropped)


def value_names(program: tj.programs.Program) -> Callable[[Any], Any]:
    """Return a function that names the value of an operand; equal names mean equal values."""
    known: dict[Any, Any] = {}
    table: dict[Any, str] = {}
    name = lambda x: known.get(x, getattr(x, "value", x))
    for e in program:
        if e.kind == "primitive" and not e.programs and len(e.outputs) == 1:
            key = e.name, repr(e.params), tuple(map(name, e.inputs))
            known[e.outputs[0]] = table.setdefault(key, f"value {len(table)}")
            if e.name == "neg":
                known[e.outputs[0]] = Opposite(key[2][0])
    return name


class Opposite(NamedTuple):
    """The name of a negated value: `of` is the name of the value itself."""

    of: Any


def meet(a: Any, b: Any) -> bool:
    """True if two gates may have a wire in common."""
    wires = [np.ravel(e.params.get("wires", ())).tolist() for e in (a, b)]
    return not all(wires) or not set(wires[0]).isdisjoint(wires[1])


def are_inverse(a: Any, b: Any, name: Callable[[Any], Any]) -> bool:
    """True if gate `b` undoes the gate `a` before it."""
    if a.target is not b.target or a.params != b.params:
        return False
    before, after = [name(x) for x in a.inputs], [name(x) for x in b.inputs]
    if issubclass(a.target, Rotation):
        x, y = before.pop(0), after.pop(0)
        literal = is_number(x) and is_number(y) and x == -y
        if not literal and Opposite(x) != y and Opposite(y) != x:
            return False
    return before == after


def is_number(x: Any) -> bool:
    """True if the name of a value is the value itself, a number."""
    return isinstance(x, float | int | np.generic)


class Count(Meaning):
    """Count gates, also in loops with static bounds; of two branches take the larger counts."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.times, self.controls = 1, 0

    @tj.programs.handles(Gate)
    def gate(self, equation, *args: Any, **kwargs: Any) -> Gate:
        self.counts["C" * self.controls + equation.name] += self.times
        return self.default(equation, *args, **kwargs)

    @tj.programs.handles(tj.programs.for_loop)
    def for_loop(self, equation, body, *bounds_and_state: Any) -> Any:
        start, stop, step, *state = bounds_and_state
        before, self.times = self.times, self.times * len(range(start, stop, step))
        out = body(start, *state)
        self.times = before
        return out

    @tj.programs.handles(tj.cond)
    def cond(self, equation, predicate, true, false, *operands: Any) -> Any:
        before, out = self.counts.copy(), true(*operands)
        taken, self.counts = self.counts, before
        false(*operands)
        self.counts |= taken
        return out

    @tj.programs.handles(tj.programs.ctrl)
    def ctrl(self, equation, f, values, wires: Any, *args: Any) -> None:
        self.controls += len(wires)
        f(*args)
        self.controls -= len(wires)


def count(circuit: Circuit) -> Callable[..., dict[str, int]]:
    """Return the number of gates of each kind in a circuit, without running it."""

    def counted(*args: Any) -> dict[str, int]:
        counter = Count()
        jax.eval_shape(counter(Forward()(circuit)), *args)
        return dict(sorted(counter.counts.items()))

    return counted


class Draw(Meaning):
    """Draw a circuit column by column, with unrolled loops and taken branches."""

    def __init__(self, wires: int) -> None:
        self.rows = [f"{w}: ─" for w in range(wires)]
        self.controls: dict[int, str] = {}

    @tj.programs.handles(Gate)
    def gate(self, equation, *args: Any, **kwargs: Any) -> Gate:
        gate = self.default(equation, *args, **kwargs)
        angle = f"({float(gate.angle):.2f})" if isinstance(gate, Rotation) else ""
        symbols = gate.symbols or (type(gate).__name__ + angle,)
        self.column(self.controls | dict(zip(map(int, gate.wires), symbols, strict=True)))
        return gate

    def column(self, symbols: dict[int, str]) -> None:
        first, last = min(symbols), max(symbols)
        texts = {w: symbols.get(w, "│") for w in range(first, last + 1)}
        start, width = max(len(self.rows[w]) for w in texts), max(map(len, texts.values()))
        for w, text in texts.items():
            self.rows[w] = self.rows[w].ljust(start, "─") + text.center(width, "─") + "─"

    @tj.programs.handles(tj.programs.for_loop)
    def for_loop(self, equation, body, *bounds_and_state: Any) -> Any:
        start, stop, step, *state = bounds_and_state
        for i in range(int(start), int(stop), int(step)):
            state = as_state(body(i, *state), state)
        return state[0] if len(state) == 1 else tuple(state)

    @tj.programs.handles(tj.cond)
    def cond(self, equation, predicate, true, false, *operands: Any) -> Any:
        return (true if predicate else false)(*operands)

    @tj.programs.handles(tj.programs.ctrl)
    def ctrl(self, equation, f, values, wires: Any, *args: Any) -> None:
        before = self.controls
        self.controls = before | {int(w): "○●"[v] for w, v in zip(wires, values, strict=True)}
        f(*args)
        self.controls = before


def draw(circuit: Circuit, wires: int) -> Callable[..., str]:
    """Return the text of a circuit for concrete arguments."""

    def drawn(*args: Any) -> str:
        pen = Draw(wires)
        pen(Forward()(circuit))(*args)
        length = max(map(len, pen.rows))
        return "\n".join(row.ljust(length, "─") for row in pen.rows)

    return drawn


# -- circuits ------------------------------------------------------------------------------------

# H₂ in the STO-3G basis at 0.7414 Å after Jordan and Wigner, in hartree; wires 0 and 1 are the
# bonding orbital (McClean et al. 2020, "OpenFermion"). Its energy without correlation is -1.11676.
HYDROGEN = {
    "IIII": -0.09706626816762845,
    "ZIII": 0.1714128264477689, "IZII": 0.1714128264477689,
    "IIZI": -0.22343153690813597, "IIIZ": -0.22343153690813597,
    "ZZII": 0.16868898170361205, "IIZZ": 0.17441287612261608,
    "ZIZI": 0.12062523483390425, "IZIZ": 0.12062523483390425,
    "ZIIZ": 0.16592785033770352, "IZZI": 0.16592785033770352,
    "XXYY": -0.045302615503799264, "XYYX": 0.045302615503799264,
    "YXXY": 0.045302615503799264, "YYXX": -0.045302615503799264,
}  # fmt: skip
HARTREE_FOCK = -1.1167593073964


def entangled(angles: Any) -> None:
    """Layers of rotations and a chain of controlled gates, in loops over traced wires."""
    layers, wires = angles.shape

    @tj.programs.for_loop(0, layers)
    def layer(k: Any) -> None:
        tj.programs.for_loop(0, wires)(lambda i: nothing(RY(angles[k, i], wires=i)))()
        tj.programs.for_loop(0, wires - 1)(lambda i: nothing(CNOT(wires=(i, i + 1))))()

    layer()


def mixed(angles: Any) -> None:
    """A circuit with loops, a branch, controlled and adjoint parts."""
    H(wires=0)
    entangled(angles)
    part = lambda a: nothing((RX(a, wires=1), CZ(wires=(0, 1))))
    tj.programs.ctrl(part, control=(0,), wires=(2,))(angles[0, 0])
    first = lambda: nothing(RZ(angles[0, 1], wires=1))
    tj.cond(angles[0, 2] > 0, first, lambda: nothing(SWAP(wires=(0, 2))))
    tj.programs.adjoint(lambda a: (CNOT(wires=(2, 0)), part(a))[1])(angles[1, 1])


def word_rotation(angle: Any, word: str) -> None:
    """Apply `exp(-i angle/2 P)` for a Pauli word `P`: change the basis, rotate, change back."""
    wires = [w for w, p in enumerate(word) if p != "I"]

    def basis() -> None:
        for w in wires:
            if word[w] != "Z":
                H(wires=w) if word[w] == "X" else RX(jnp.pi / 2, wires=w)
        for a, b in itertools.pairwise(wires):
            CNOT(wires=(a, b))

    basis()
    RZ(angle, wires=wires[-1])
    tj.programs.adjoint(basis)()


def hydrogen(angles: Any) -> None:
    """Unitary coupled clusters: excite the electrons of the bond alone and together."""
    X(wires=0)
    X(wires=1)
    for angle, word in zip(angles, ("YZXI", "IYZX", "YXXX"), strict=True):
        word_rotation(angle, word)


# -- checks and the fit --------------------------------------------------------------------------


def shift_rule(value: Callable[[Any], Any], angles: Any) -> Any:
    """Return the gradient by two evaluations for each angle, in one batch.

    Each angle must be in one gate only.
    """
    shifts = jnp.eye(angles.size, dtype=angles.dtype).reshape(-1, *angles.shape) * (jnp.pi / 2)
    both = jax.vmap(value)(angles + shifts) - jax.vmap(value)(angles - shifts)
    return both.reshape(angles.shape) / 2


def check(name: str, error: Any, most: float) -> None:
    """Print an error, and exit if it is too large."""
    print(f"{name}: {float(error):.0e}")
    if not error <= most:
        sys.exit(f"{name}: more than {most}")


def gradients(dtype: Any) -> Any:
    """Return the difference of `tj.grad` and the parameter-shift rule, compiled and mapped."""
    batch = jnp.asarray(np.random.default_rng(0).uniform(-3, 3, (2, 2, 3)), dtype)
    start = ground(3, np.result_type(dtype, np.complex64))
    words = {"ZXI": 0.7, "IYZ": -0.4, "ZIZ": 1.0}
    value = lambda angles: expectation(words, run(entangled, start)(angles))
    error = lambda angles: tj.grad(value)(angles) - shift_rule(value, angles)
    return jnp.max(jnp.abs(jax.jit(jax.vmap(error))(batch)))


def distance(a: Circuit, b: Circuit, angles: Any, wires: int) -> Any:
    """Return the largest difference between the matrices of two circuits."""
    both = jax.jit(lambda angles: unitary(a, wires)(angles) - unitary(b, wires)(angles))
    return jnp.max(jnp.abs(both(angles)))


def fit() -> None:
    """Fit the angles of least energy (variational eigensolver); check by diagonalisation."""
    columns = jax.vmap(lambda q: applied(HYDROGEN, q), out_axes=1)(jnp.eye(16, dtype=complex))
    exact = np.linalg.eigvalsh(columns)[0]
    energy = lambda angles: expectation(HYDROGEN, run(hydrogen, ground(4))(angles))
    optimizer = optax.adam(0.1)

    @jax.jit
    def step(angles: Any, state: Any) -> Any:
        value, bar = tj.value_and_grad(energy)(angles)
        updates, state = optimizer.update(bar, state)
        return optax.apply_updates(angles, updates), state, value

    angles = jnp.zeros(3)
    state = optimizer.init(angles)
    for i in range(121):
        angles, state, value = step(angles, state)
        if i == 0:
            check("energy of H₂ without correlation, off by", abs(value - HARTREE_FOCK), 1e-9)
        if i % 40 == 0:
            print(f"step {i:3}: energy {value:.8f}, exact ground energy {exact:.8f}")
    check("energy of the fit above the exact one", value - exact, 1e-6)


def check_programs(angles: Any) -> None:
    """Compare the matrices of adjoint and controlled circuits."""
    adjoint, controlled = tj.programs.adjoint(mixed), lambda f: tj.programs.ctrl(f, wires=(3,))
    back = lambda a: (mixed(a), adjoint(a))[1]
    pairs = {
        "a circuit and then its adjoint": (back, lambda a: None, 3),
        "the same with inverse gates": (Forward()(back), lambda a: None, 3),
        "the adjoint of the adjoint": (tj.programs.adjoint(adjoint), mixed, 3),
        "the adjoint of the controlled": (
            tj.programs.adjoint(controlled(mixed)),
            controlled(adjoint),
            4,
        ),
    }
    for name, (one, other, wires) in pairs.items():
        check(f"{name}, off", distance(one, other, angles, wires), 1e-12)


def check_cancelling() -> None:
    """Shorten a program with parts that undo each other, and check its state."""
    longer = lambda angles: (hydrogen(angles), tj.programs.adjoint(hydrogen)(0.5 * angles))[1]
    program = Forward().rewrite(tj.capture(longer)(jnp.ones(3)))
    shorter = Cancel().rewrite(program)
    before, after = (sum(map(is_gate, p)) for p in (program, shorter))
    print(f"gates of a program: {before}, and {after} without inverse pairs")
    error = distance(program, shorter, jnp.array([0.3, 0.2, 0.1]), 4)
    check("the state of the shorter program, off", error, 1e-12)
    if after >= before:
        sys.exit("nothing was cancelled")


def main() -> None:
    angles = jnp.asarray(np.random.default_rng(1).uniform(0, 3, (2, 3)))
    print(draw(mixed, 3)(angles))
    print("gates:", ", ".join(f"{n} {name}" for name, n in count(mixed)(angles).items()))
    check_programs(angles)
    check_cancelling()
    check("gradients in float64, off the parameter-shift rule", gradients(jnp.float64), 1e-10)
    check("gradients in float32, off the parameter-shift rule", gradients(jnp.float32), 1e-5)
    fit()


if __name__ == "__main__":
    main()
