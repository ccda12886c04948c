"""Calls that `bench_scale.py` times: first calls, later ones, and runs on a million numbers.

Every row is a pair of functions without arguments, one with `jax.jit`, one with `tj.jit`, of the
same program on the same arrays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scale_programs as programs
import scale_sciences
from timing import Times
from unit_libraries import Library, ours, plain
from unit_programs import total

import tanjax as tj

Thunks = dict[str, Callable[[], Any]]

CONTENDERS: dict[str, Callable[..., Any]] = {"plain": jax.jit, "tanjax": tj.jit}
WAITING = "jax.jit, waiting"  # waits for each result before the next call
READING = "jax.jit, reading"  # reads every number of its arguments, while the program runs
BLOCK = 70  # steps of a loop that are timed together
EQUATIONS, SIZES, MANY = (50, 500), (3, 1000, 100_000), 1_000_000
KINDS = {"in range": programs.in_range, "out of range": programs.out_of_range}


def numbers(size: int) -> Any:
    """Return numbers between 1 and 2 in float32."""
    return jnp.linspace(1.0, 2.0, size, dtype=jnp.float32)


def label(kind: str, equations: int, size: int) -> str:
    """Return the name of a row."""
    return f"{kind}, {equations} equations, {size:,} numbers"


def first_calls() -> dict[str, Thunks]:
    """Trace, plan and compile a fresh function, and run it once."""
    asked = [
        (kind, make, n, size) for kind, make in KINDS.items() for n in EQUATIONS for size in SIZES
    ]
    asked.append(("out of range, a zero is written", programs.with_a_zero, 500, 1000))
    rows = {}
    for kind, make, n, size in asked:
        x = numbers(size)
        rows[label(kind, n, size)] = {
            name: lambda jit=jit, make=make, n=n, x=x: jit(make(n))(x)
            for name, jit in CONTENDERS.items()
        }
    return rows


def later_calls(fresh: bool) -> dict[str, Thunks]:
    """Return calls of compiled functions: with the same array each time, or with the last result.

    Plain JAX gives inf for a program out of range: its time is that of the compared program, not
    of a correct one.
    """
    rows: dict[str, Thunks] = {}
    for kind, make in KINDS.items():
        for n in EQUATIONS:
            for size in SIZES:
                row = rows[label(kind, n, size)] = {
                    name: _stepping(jit(make(n)), numbers(size), fresh)
                    for name, jit in CONTENDERS.items()
                }
                if fresh:
                    plain = jax.jit(make(n))
                    waiting = lambda x, f=plain: jax.block_until_ready(f(x))
                    row[WAITING] = _stepping(waiting, numbers(size), fresh)
    return rows


def _stepping(f: Callable[[Any], Any], x: Any, fresh: bool) -> Callable[[], Any]:
    if not fresh:
        return lambda: f(x)
    state = [x]

    def step() -> Any:
        state[0] = f(state[0])
        return state[0]

    return _of(f, step)


def _of(f: Callable[..., Any], call: Callable[[], Any]) -> Callable[[], Any]:
    """Return the call with its function as an attribute."""
    call.function = f  # type: ignore[attr-defined]
    return call


def grade_of(call: Callable[[], Any]) -> str:
    """Return the grade of the last plan of a function that was called with new arrays."""
    plans = getattr(getattr(call, "function", None), "plans", ())
    return plans[-1].grade if plans else ""


def quantity_calls() -> dict[str, Thunks]:
    """Return calls with a hundred quantities: the same ones, and new ones in turn."""
    rows: dict[str, Thunks] = {"the same 100 quantities": {}, "100 new quantities": {}}
    for library in (plain(), ours()):
        f, g = library.jit(total), library.jit(total)
        same, *others = [_hundred(library, i) for i in range(8)]
        rows["the same 100 quantities"][library.name] = lambda f=f, same=same: f(*same)
        rows["100 new quantities"][library.name] = _in_turn(g, others)
    return rows


def _hundred(library: Library, start: int) -> list[Any]:
    return [library.wrap(jnp.arange(3.0) + start + i, "m") for i in range(100)]


def _in_turn(f: Callable[..., Any], arguments: list[list[Any]]) -> Callable[[], Any]:
    calls = [0]

    def call() -> Any:
        calls[0] += 1
        return f(*arguments[calls[0] % len(arguments)])

    return _of(f, call)


def new_arrays() -> dict[str, Thunks]:
    """Return loops that pass their state on, and a nested dict of quantities passed on."""
    rows: dict[str, Thunks] = {}
    for name, loop in scale_sciences.states().items():
        row = rows[name] = {n: _looping(jit(loop.make()), loop) for n, jit in CONTENDERS.items()}
        f = jax.jit(loop.make())
        row[WAITING] = _looping(lambda *xs, f=f: jax.block_until_ready(f(*xs)), loop)
        row[READING] = _looping(_reading(jax.jit(loop.make())), loop)
    row = rows["a nested dict of 30 quantities"] = {}
    for library in (plain(), ours()):
        given = [
            [scale_sciences.groups_of_quantities(library.wrap, i)]
            for i in range(scale_sciences.OTHERS)
        ]
        row[library.name] = _in_turn(library.jit(lambda x: scale_sciences.squares(x)), given)
        if library.name == "plain":
            f = jax.jit(lambda x: scale_sciences.squares(x))
            row[WAITING] = _in_turn(lambda x, f=f: jax.block_until_ready(f(x)), given)
            row[READING] = _in_turn(_reading(f), given)
    return rows


def _reading(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f` with the least code that reads the exponents of its float32 arguments."""

    def call(*args: Any) -> Any:
        out = f(*args)
        bits = np.frombuffer(b"".join(jax.tree.leaves(args)), np.uint32)
        bits = bits + bits  # drops the signs
        bits.max(), bits.min()
        return out

    return call


def _looping(f: Callable[..., Any], loop: scale_sciences.Loop) -> Callable[[], Any]:
    state, calls = [loop.state], [0]

    def step() -> Any:
        calls[0] += 1
        state[0] = f(state[0], loop.batches[calls[0] % len(loop.batches)])
        return state[0]

    return _of(f, step)


def science_calls(fresh: bool) -> dict[str, Thunks]:
    """Return later calls of realistic programs: the same arrays, or new ones in turn."""
    rows: dict[str, Thunks] = {}
    for name, science in scale_sciences.sciences().items():
        given = [science.arguments(1000 * i) for i in range(scale_sciences.OTHERS if fresh else 1)]
        rows[name] = {
            n: _in_turn(jit(science.make()), given) for n, jit in CONTENDERS.items()
        }  # fmt: skip
    return rows


def first_times(rounds: int, *, cold: bool) -> dict[str, Times]:
    """Time first calls of realistic programs, with JAX's caches warm, or cleared before."""
    found = {}
    for name, science in scale_sciences.sciences().items():
        given, taken = science.arguments(0), {n: list[float]() for n in CONTENDERS}
        for i in range(rounds + 1):
            order = list(CONTENDERS.items())[:: 1 if i % 2 else -1]
            for n, jit in order:
                if cold:
                    jax.clear_caches()
                start = time.perf_counter()
                jax.block_until_ready(jit(science.make())(*given))
                taken[n].append(time.perf_counter() - start)
        found[name] = Times(
            {n: times[1:] for n, times in taken.items()}
        )  # the first call includes imports
    return found


def training(loop: scale_sciences.Loop, steps: int = 1000) -> tuple[Times, list[Any]]:
    """Time blocks of steps of a training loop in turn; return the times and all plans."""
    functions = {name: jit(loop.make()) for name, jit in CONTENDERS.items()}
    thunks = {name: _looping(f, loop) for name, f in functions.items()}
    taken = {name: list[float]() for name in thunks}
    for i in range(steps // BLOCK):
        for name in list(thunks)[:: 1 if i % 2 else -1]:
            start = time.perf_counter()
            for _ in range(BLOCK):
                out = thunks[name]()
            jax.block_until_ready(out)
            taken[name].append(time.perf_counter() - start)
    return Times(taken), functions["tanjax"].plans


def runs() -> dict[str, Thunks]:
    """Run 50 equations on a million numbers; a planned program, and one that needs no plan."""
    x = numbers(MANY)
    to_and_fro = programs.there_and_back
    rows = {
        "in range: the plan is the identity": (programs.in_range(50), programs.in_range(50)),
        "x c + 1 and back, c = 1e6, against c = 1.02": (to_and_fro(1.02, 50), to_and_fro(1e6, 50)),
        "0.01 x + 5e6, against plain JAX": (programs.affine(0.01, 5e6, 25),) * 2,
    }  # fmt: skip
    return {
        name: {"plain": _bound(jax.jit(a), x), "tanjax": _bound(tj.jit(b), x)}
        for name, (a, b) in rows.items()
    }


def _bound(f: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    return lambda: f(x)


def identical(size: int = 1000) -> tuple[bool, bool]:
    """True if a program in range is lowered to the same StableHLO; true if bits are equal."""
    x = numbers(size)
    theirs, mine = jax.jit(programs.in_range(500)), tj.jit(programs.in_range(500))
    same_text = theirs.lower(x).as_text() == mine.lower(x).as_text()
    return same_text, np.asarray(theirs(x)).tobytes() == np.asarray(mine(x)).tobytes()
