"""A language of quantum circuits in captured programs; `circuits.py` shows it at work.

A circuit is a Python function that makes gates and returns nothing. Gates are classes with the
metaclass `tj.programs.CaptureMeta`, so each is an equation of `tj.capture(circuit)`, in their
order, also in `tj.programs.for_loop`, `tj.cond`, `tj.programs.adjoint` and `tj.programs.ctrl`. An
interpreter gives a circuit its meaning. `Run` moves a state vector through Kronecker products.
`Forward` makes the gates of adjoint sub-circuits backwards and inverted.

    def bell(angle):
        H(wires=0)
        tj.programs.ctrl(lambda: nothing(RX(angle, wires=1)), wires=(0,))()

    state = run(bell, ground(2))(0.3)

Sharp edges. Wire 0 is the slowest index of a state. A traced wire costs a permutation of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tanjax as tj

Circuit = Callable[..., None]


def nothing(_: Any) -> None:
    """Return None for any value, as a circuit does."""


# -- gates -------------------------------------------------------------------------------------


class Gate(metaclass=tj.programs.CaptureMeta):
    """A gate without parameters that is its own inverse; `wires` may be traced integers."""

    symbols: tuple[str, ...] = ()  # the drawing on each of its wires

    def __init__(self, *, wires: Any) -> None:
        self.wires = wires if isinstance(wires, tuple) else (wires,)

    def matrix(self, dtype: Any) -> Any:
        """Return the unitary matrix, of shape `(2**k, 2**k)` on `k` wires."""
        raise NotImplementedError

    @classmethod
    def inverse(cls, **named: Any) -> Gate:
        """Make the inverse of the gate with these arguments."""
        return cls(**named)


class X(Gate):
    def matrix(self, dtype: Any) -> Any:
        return tj.Permutation(jnp.array([1, 0]), dtype)


class Y(Gate):
    def matrix(self, dtype: Any) -> Any:
        return jnp.array([[0, -1j], [1j, 0]], dtype)


class Z(Gate):
    def matrix(self, dtype: Any) -> Any:
        return tj.Diagonal(jnp.array([1, -1], dtype))


class H(Gate):
    def matrix(self, dtype: Any) -> Any:
        return jnp.array([[1, 1], [1, -1]], dtype) * 0.5**0.5


class CNOT(X):
    symbols = ("●", "X")

    def matrix(self, dtype: Any) -> Any:
        return tj.programs.ctrl(super().matrix(dtype))


class CZ(Z):
    symbols = ("●", "Z")

    def matrix(self, dtype: Any) -> Any:
        return tj.programs.ctrl(super().matrix(dtype))


class SWAP(Gate):
    symbols = ("x", "x")

    def matrix(self, dtype: Any) -> Any:
        return tj.Permutation(jnp.array([0, 2, 1, 3]), dtype)


class Rotation(Gate):
    """A gate with an angle; the opposite angle gives its inverse."""

    def __init__(self, angle: Any, *, wires: Any) -> None:
        super().__init__(wires=wires)
        self.angle = angle

    def half(self, dtype: Any) -> tuple[Any, Any]:
        """Return cosine and sine of half the angle."""
        angle = jnp.asarray(self.angle) / 2
        return jnp.cos(angle).astype(dtype), jnp.sin(angle).astype(dtype)

    @classmethod
    def inverse(cls, angle: Any, **named: Any) -> Gate:
        return cls(-angle, **named)


class RX(Rotation):
    def matrix(self, dtype: Any) -> Any:
        c, s = self.half(dtype)
        return jnp.array([[c, -1j * s], [-1j * s, c]])


class RY(Rotation):
    def matrix(self, dtype: Any) -> Any:
        c, s = self.half(dtype)
        return jnp.array([[c, -s], [s, c]])


class RZ(Rotation):
    def matrix(self, dtype: Any) -> Any:
        c, s = self.half(dtype)
        return tj.Diagonal(jnp.array([c - 1j * s, c + 1j * s]))


def is_gate(equation: Any) -> bool:
    """True if an equation of a captured circuit makes a gate."""
    return equation.kind == "class" and issubclass(equation.target, Gate)


def makes_gates(program: tj.programs.Program) -> bool:
    """True if a program, or a loop or branch in it, makes a gate."""
    return any(is_gate(e) or any(map(makes_gates, e.programs.values())) for e in program)


class Meaning(tj.programs.Interpreter):
    """The base of meanings; it rejects equations with gates inside and no handler."""

    def default(self, equation, *args: Any, **kwargs: Any) -> Any:
        if any(map(makes_gates, equation.programs.values())):
            known = "`tj.cond`, `for_loop`, `adjoint`, `ctrl` of `tj.programs` and Python"
            raise TypeError(f"{equation.name}: cannot hold gates. Build circuits with {known}.")
        return super().default(equation, *args, **kwargs)


# -- a state vector ------------------------------------------------------------------------------


def apply(matrix: Any, wires: Sequence[Any], state: Any) -> Any:
    """Apply a gate to a state of `2**n` amplitudes, by a Kronecker product with identities."""
    n, k = len(state).bit_length() - 1, len(wires)
    if any(isinstance(w, jax.Array) for w in wires):
        return apply_traced(matrix, wires, state)
    if not set(wires) <= set(range(n)) or len(set(wires)) != k:
        raise ValueError(f"a gate on wires {tuple(wires)} of {n}: there are no such {k}.")
    first, before = wires[0], identity(wires[0], state)
    if tuple(wires) == tuple(range(first, first + k)):
        return tj.Kronecker(*before, matrix, *identity(n - first - k, state)) @ state
    moved = jnp.moveaxis(state.reshape((2,) * n), wires, range(k))
    moved = tj.Kronecker(matrix, *identity(n - k, state)) @ moved.reshape(-1)
    return jnp.moveaxis(moved.reshape((2,) * n), range(k), wires).reshape(-1)


def apply_traced(matrix: Any, wires: Sequence[Any], state: Any) -> Any:
    """Apply a gate to traced wires; wires out of range give NaN."""
    n, k = len(state).bit_length() - 1, len(wires)
    places = jnp.stack([jnp.asarray(w, int) for w in wires])
    others = jnp.ones(n, bool).at[places].set(False)
    order = jnp.concatenate([places, jnp.nonzero(others, size=n - k)[0]])
    bits = (np.arange(2**n)[:, None] >> np.arange(n)[::-1]) & 1
    shuffle = tj.Permutation(bits @ (1 << (n - 1 - order)), state.dtype)  # moves them to the front
    new = shuffle.T @ (tj.Kronecker(matrix, *identity(n - k, state)) @ (shuffle @ state))
    fits = (jnp.sum(others) == n - k) & jnp.all((places >= 0) & (places < n))
    return jnp.where(fits, new, jnp.nan)


def identity(count: int, state: Any) -> list[Any]:
    """Return the factor of `count` idle wires: an identity, or no factor for no wires."""
    return [tj.Identity(2**count, state.dtype)] if count else []


class Run(Meaning):
    """Run a circuit on a state vector; wire 0 is the slowest index.

    Loops and branches carry the state beside their own values. A sub-circuit is a linear map, and
    `tj.programs.adjoint` transposes this map.
    """

    def __init__(self, state: Any) -> None:
        self.state = state
        self.controls: list[tuple[Any, Any]] = []

    def carrying(self, f: Any) -> Any:
        """Turn a function that makes gates into one that also takes and returns the state."""

        def carried(state: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            before, self.state = self.state, state
            out = f(*args, **kwargs)
            after, self.state = self.state, before
            return after, out

        return carried

    @tj.programs.handles(Gate)
    def gate(self, equation, *args: Any, **kwargs: Any) -> Gate:
        gate = self.default(equation, *args, **kwargs)
        matrix, wires = gate.matrix(self.state.dtype), gate.wires
        for values, places in self.controls:
            matrix, wires = tj.programs.ctrl(matrix, control=values), (*places, *wires)
        self.state = apply(matrix, wires, self.state)
        return gate

    @tj.programs.handles(tj.programs.for_loop)
    def for_loop(self, equation, body, start, stop, step, *state: Any) -> Any:
        def once(i: Any, quantum: Any, state: Any) -> Any:
            quantum, out = self.carrying(body)(quantum, i, *state)
            return quantum, as_state(out, state)

        self.state, out = tj.programs.for_loop(start, stop, step)(once)(self.state, state)
        return out[0] if len(state) == 1 else out

    @tj.programs.handles(tj.cond)
    def cond(self, equation, predicate, *branches: Any) -> Any:
        true, false, *operands = branches
        taken = self.carrying(true), self.carrying(false)
        self.state, out = tj.cond(predicate, *taken, self.state, *operands)
        return out

    @tj.programs.handles(tj.programs.adjoint)
    def adjoint(self, equation, f: Any, *args: Any, **kwargs: Any) -> None:
        self.state = tj.programs.adjoint(lambda q: self.carrying(f)(q, *args, **kwargs)[0])(
            self.state
        )

    @tj.programs.handles(tj.programs.ctrl)
    def ctrl(self, equation, f: Any, values, wires: Any, *args: Any, **kwargs: Any) -> None:
        self.controls.append((values, wires))
        f(*args, **kwargs)
        self.controls.pop()


def as_state(out: Any, state: Sequence[Any]) -> tuple[Any, ...]:
    """Return the result of a loop's body as a tuple like its state."""
    return (out,) if len(state) == 1 else tuple(out or ())


def run(circuit: Circuit, start: Any) -> Callable[..., Any]:
    """Return the state after a circuit, as a function of the circuit's arguments."""

    def final(*args: Any, **kwargs: Any) -> Any:
        machine = Run(start)
        machine(circuit)(*args, **kwargs)
        return machine.state

    return final


def ground(wires: int, dtype: Any = complex) -> Any:
    """Return the state with all wires 0."""
    return jnp.zeros(2**wires, dtype).at[0].set(1)


def unitary(circuit: Circuit, wires: int) -> Callable[..., Any]:
    """Return the matrix of a circuit, from a batch of its columns."""
    columns = lambda *args: jax.vmap(lambda q: run(circuit, q)(*args), out_axes=1)
    return lambda *args: columns(*args)(jnp.eye(2**wires, dtype=complex))


PAULI = {"I": lambda d: tj.Identity(2, d)} | {g.__name__: g(wires=0).matrix for g in (X, Y, Z)}


def applied(words: dict[str, float], state: Any) -> Any:
    """Apply a sum of Pauli words, `{"ZZI": 0.5, …}`, to a state."""
    product = lambda word: tj.Kronecker(*(PAULI[p](state.dtype) for p in word))
    return sum(c * (product(w) @ state) for w, c in words.items())


def expectation(words: dict[str, float], state: Any) -> Any:
    """Return the real mean of a sum of Pauli words in a state."""
    return jnp.vdot(state, applied(words, state)).real


class Forward(Meaning):
    """Make the same gates without `adjoint`: adjoint sub-circuits backwards, with inverse gates."""

    sense = 1  # -1: gates backwards; 0: no gates, only the values that they need
    made: tuple[Any, ...] = ()  # functions that make the remaining gates, the last first

    def turned(self, sense: int, f: Any) -> Any:
        def turned(*args: Any, **kwargs: Any) -> Any:
            before, self.sense = self.sense, sense
            try:
                return f(*args, **kwargs)
            finally:
                self.sense = before

        return turned

    def run(self, *args: Any, **kwargs: Any) -> Any:
        before, self.made = self.made, ()
        out = super().run(*args, **kwargs)
        for make in self.made:
            make()
        self.made = before
        return out

    def later(self, backward: Any, forward: Any) -> Any:
        """Postpone gates if they go backwards; compute their values now."""
        if self.sense > 0:
            return forward()
        if self.sense < 0:
            self.made = (backward, *self.made)
        return self.turned(0, forward)()

    @tj.programs.handles(Gate)
    def gate(self, equation, *args: Any, **kwargs: Any) -> Any:
        make = lambda: self.sense and self.default(equation, *args, **kwargs)
        return self.later(lambda: equation.target.inverse(*args, **kwargs), make)

    @tj.programs.handles(tj.cond, tj.programs.ctrl)
    def branches(self, equation, *args: Any, **kwargs: Any) -> Any:
        again = lambda: tj.programs.Interpreter.default(self, equation, *args, **kwargs)
        return self.later(again, again)

    @tj.programs.handles(tj.programs.adjoint)
    def adjoint(self, equation, f: Any, *args: Any, **kwargs: Any) -> None:
        turned = lambda sense: self.turned(sense, f)(*args, **kwargs)
        self.later(lambda: turned(1), lambda: turned(-self.sense))

    @tj.programs.handles(tj.programs.for_loop)
    def for_loop(self, equation, body, start, stop, step, *state: Any) -> Any:
        forward = lambda: tj.programs.for_loop(start, stop, step)(body)(*state)
        ahead = lambda state, i: (as_state(body(i, *state), state), state)

        def backward() -> None:
            last = range(start, stop, step)[::-1]
            if not state:
                tj.programs.for_loop(last.start, last.stop, last.step)(body)()
            elif last:  # each iteration needs its own state: a pass without gates collects them
                indices = jnp.arange(start, stop, step)
                states = tj.scan(self.turned(0, ahead), state, indices)[1]
                at = lambda k: jax.tree.map(lambda x: x[k], (indices, *states))
                tj.programs.for_loop(len(last) - 1, -1, -1)(lambda k: nothing(body(*at(k))))()

        return self.later(backward, forward if state or self.sense > 0 else lambda: ())
