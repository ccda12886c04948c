"""A random program: steps that are lines of Python, and a sequence of calls.

A failure must be a script that anybody can run, so a program *is* its text: every step is a line,
and the hunt runs exactly the lines that it prints. Steps keep their operands apart from their text,
so that the shrinker can remove them.

    program.source()   # def make(dtype): ... return f
    program.build(jnp.float32)

Sharp edges. Text must not depend on shapes: the shrinker makes arrays smaller.
"""

from __future__ import annotations

import dataclasses
import functools
import textwrap

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax._typing import AnyArray, Function

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float16": jnp.float16}


@dataclasses.dataclass(frozen=True)
class Step:
    """`name = text` with the operands filled in; `kind` is "v" for an array, "s" for a scalar."""

    name: str
    op: str
    text: str
    operands: tuple[str, ...]
    kind: str

    def line(self) -> str:
        return f"{self.name} = {self.text.format(*self.operands)}"


@dataclasses.dataclass(frozen=True)
class Argument:
    """A parameter of the program: `kind` as of a step, or "index", "count", "flag"."""

    name: str
    kind: str

    @property
    def is_float(self) -> bool:
        return self.kind in ("v", "s")


@dataclasses.dataclass(frozen=True)
class Call:
    """The arguments of a call; `same` is the earlier call whose array objects it repeats."""

    values: tuple[AnyArray, ...]
    mode: str
    same: int | None = None


WRAPS = {
    "plain": "f",
    "grad": "jax.grad(lambda *a: jnp.sum(f(*a)), {floats})",
    "value_and_grad": "jax.value_and_grad(lambda *a: jnp.sum(f(*a)), {floats})",
    "vmap": "jax.vmap(f, {axes})",
    "vmap_grad": "jax.vmap(jax.grad(lambda *a: jnp.sum(f(*a)), {floats}), {axes})",
    "jvp": "lambda *a: jax.jvp(f, a, tuple(jnp.ones_like(x) for x in a))",
    "jit": "jax.jit(f)",
    "tj": "lambda *a: tj.jit(f)(*a)",
}


@dataclasses.dataclass(frozen=True)
class Program:
    """A program with its dtype and its sequence of arguments.

    `closed`: arrays that the function closes over; `helpers`: definitions before it; `traced`: True
    if plain JAX runs the same function before `tj.jit` does.
    """

    seed: int
    dtype: str
    arguments: tuple[Argument, ...]
    closed: tuple[tuple[str, AnyArray], ...]
    helpers: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    wrap: str
    calls: tuple[Call, ...]
    traced: bool = False
    units: tuple[str, ...] = ()  # of the arguments; empty in programs on bare numbers
    eager: bool = False  # True for a run outside of `tj.jit`

    def live(self) -> tuple[Step, ...]:
        """Return the steps that an output needs."""
        needed, kept = set(self.outputs), []
        for step in reversed(self.steps):
            if step.name in needed:
                kept.append(step)
                needed |= set(step.operands)
        return tuple(reversed(kept))

    def source(self) -> str:
        """Return the program as a function of the dtype."""
        text = "\n".join(s.line() for s in self.live())
        lines = [f"{n} = jnp.array({numbers(v)}, dtype)" for n, v in self.closed if n in text]
        for name, helper in self.helpers:
            if name in text:
                lines += helper.splitlines()
        lines.append(f"def f({', '.join(a.name for a in self.arguments)}):")
        body = [*text.splitlines(), f"return {', '.join(self.outputs)}"]
        lines += [textwrap.indent(line, "    ") for line in body]
        floats = tuple(i for i, a in enumerate(self.arguments) if a.is_float)
        axes = tuple(0 if a.is_float else None for a in self.arguments)
        wrap = WRAPS[self.wrap].format(floats=floats, axes=axes)
        if self.units:
            lines = [*_WITH_UNITS.splitlines(), *lines]
            wrap = wrap.replace("jax.grad", "grad").replace("jnp.", "np_.")
        lines.append(f"return {wrap}")
        head = "def make(dtype, quantities=False):" if self.units else "def make(dtype):"
        return f"{head}\n" + textwrap.indent("\n".join(lines), "    ") + "\n"

    def build(self, dtype: DTypeLike, *, bare: bool = False) -> PyTree:
        """Return a new function; `bare`: of numbers, for a program on quantities."""
        make = _compiled(self.source())
        return make(dtype, True) if self.units and not bare else make(dtype)

    def arrays(self) -> list[tuple[PyTree, ...]]:
        """Return the arguments of every call as JAX arrays; calls that repeat share them."""
        made: list[tuple[PyTree, ...]] = []
        for call in self.calls:
            if call.same is not None and call.same < len(made):
                made.append(made[call.same])
            else:
                made.append(tuple(self.array(i, v) for i, v in enumerate(call.values)))
        return made

    def array(self, place: int, value: PyTree) -> PyTree:
        """Return one argument for JAX."""
        argument = self.arguments[place]
        if self.units:
            return eval(self.argument_text(place, value), _space() | {"dtype": DTYPES[self.dtype]})
        if argument.is_float:
            return jnp.asarray(np.asarray(value).astype(DTYPES[self.dtype]))
        return jnp.asarray(value, bool if argument.kind == "flag" else jnp.int32)

    def argument_text(self, place: int, value: PyTree) -> str:
        """Return an argument as Python text."""
        if not self.units:
            last = ", dtype)" if self.arguments[place].is_float else ")"
            return f"jnp.array({numbers(value)}{last}"
        held, power = scaled(value, self.dtype)
        scale = f", scale={power}" if power else ""
        return f"tj.Quantity(jnp.array({numbers(held)}, dtype), {self.units[place]!r}{scale})"

    def script(self, expected: list[PyTree]) -> str:
        """Return a standalone script that shows every call."""
        calls = []
        for call, want in zip(self.calls, expected, strict=True):
            given = ", ".join(self.argument_text(i, v) for i, v in enumerate(call.values))
            again = "" if call.same is None else f", the very arrays of call {call.same}"
            calls.append(f"    (({given},), {want!r}),  # {call.mode}{again}")
        return (_CALLS + (_EAGER if self.eager else _PLANNED)).format(
            source=self.source(),
            dtype=self.dtype,
            calls="\n".join(calls),
            same=[c.same for c in self.calls],
            make="make(dtype, True)" if self.units else "make(dtype)",
            first="f" if self.traced else "make(dtype, True)" if self.units else "make(dtype)",
        )


_IMPORTS = """\
import jax, jax.numpy as jnp, numpy as np, tanjax as tj, tanjax.numpy as tnp
nan, inf = float("nan"), float("inf")
"""
_WITH_UNITS = """\
np_, grad, unit = (tnp, tj.grad, tj.unit) if quantities else (jnp, jax.grad, lambda u: 1.0)
G = 6.6743e-11 * unit("m3 / kg / s2")
"""
_CALLS = """\
import jax, jax.numpy as jnp, numpy as np, tanjax as tj, tanjax.numpy as tnp, warnings
warnings.simplefilter("always")
nan, inf = float("nan"), float("inf")

{source}
dtype = jnp.{dtype}
calls = [  # arguments, and what is right
{calls}
]
"""
_PLANNED = """\
same = {same}  # calls with the very arrays of an earlier one
f = {make}
plain, J = jax.jit({first}), tj.jit(f)
given = []
for i, ((args, want), s) in enumerate(zip(calls, same)):
    given.append(args if s is None else given[s])
    print("call", i, "\\n  plain", plain(*given[-1]), "\\n  tj   ", J(*given[-1]))
    print("  fresh", tj.jit({make})(*given[-1]), "\\n  want ", want)
"""


_EAGER = """\
f = {make}
for i, (args, want) in enumerate(calls):
    print("call", i, "\\n  tj   ", f(*args), "\\n  want ", want)
"""


def numbers(x: PyTree) -> str:
    """Return numbers as text that Python reads back."""
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        return repr(x.tolist())
    return repr(x.astype(np.float64).tolist())


@functools.cache
def _space() -> dict[str, PyTree]:
    space: dict[str, PyTree] = {}
    exec(_IMPORTS, space)
    return space


@functools.lru_cache(maxsize=64)
def _compiled(source: str) -> Function:
    space = dict(_space())
    exec(compile(source, "<soak>", "exec"), space)
    return space["make"]


def scaled(value: PyTree, dtype: str) -> tuple[np.ndarray, int]:
    """Return numbers and a power of two: 0 if the dtype holds them all."""
    value = np.asarray(value, np.float64)
    sizes = np.abs(value[np.isfinite(value) & (value != 0)])
    if not sizes.size:
        return value, 0
    info = jnp.finfo(DTYPES[dtype])
    low, high = float(info.tiny), 0.5 * float(info.max)
    if sizes.max() < high and sizes.min() > low:
        return value, 0
    power = int(np.floor(np.log2(sizes.max()) - np.log2(high)))
    return np.ldexp(value, -power), power
