"""Random programs on quantities: the same function on numbers with units, and on bare numbers.

Units give a second judge: without its units, a program of lengths, masses and times in SI is the
same arithmetic, which the reference can run. Results that are quantities store a power of two if
they need one, so here no result is beyond the dtype. Some programs run outside of `tj.jit`: each
operation chooses the powers of two of its results.

    program = generate_quantities(seed=7, dtype="float16")

Sharp edges. Only coherent units: with km for m the bare numbers would differ.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from tanjax._typing import Function

from ._programs import Argument, Call, Program, Step
from ._values import sequence

Dimension = tuple[Fraction, ...]  # powers of length, mass, time
_NONE: Dimension = (Fraction(0),) * 3
UNITS: dict[str, Dimension] = {
    "m": (Fraction(1), Fraction(0), Fraction(0)),
    "kg": (Fraction(0), Fraction(1), Fraction(0)),
    "s": (Fraction(0), Fraction(0), Fraction(1)),
    "m / s": (Fraction(1), Fraction(0), Fraction(-1)),
    "J": (Fraction(2), Fraction(1), Fraction(-2)),
}
_OF_G: Dimension = (Fraction(3), Fraction(-1), Fraction(-2))

Power: TypeAlias = int | Fraction

# Text, the powers of the first and second operand in the result, and the requirement: "same"
# dimensions, "array" operand, "number" without dimension.
TEMPLATES: tuple[tuple[str, str, Power, Power, str], ...] = (
    ("arithmetic", "{0} * {1}", 1, 1, ""),
    ("arithmetic", "{0} / {1}", 1, -1, ""),
    ("arithmetic", "1 / {0}", -1, 0, ""),
    ("arithmetic", "{0} + {1}", 1, 0, "same"),
    ("arithmetic", "{0} - 0.37 * {1}", 1, 0, "same"),
    ("constant", "6.626e-34 * {0}", 1, 0, ""),
    ("constant", "{0} / 1.38e-23", 1, 0, ""),
    ("constant", "G * {0}", 1, 0, "G"),
    ("constant", "G * {0} / {1}**2", 1, -2, "G"),
    ("integer power", "{0}**2", 2, 0, ""),
    ("integer power", "{0}**-3", -3, 0, ""),
    ("root", "np_.sqrt(np_.abs({0}))", Fraction(1, 2), 0, ""),
    ("root", "np_.sqrt({0} * {0} + {1} * {1})", 1, 0, "same"),
    ("root", "np_.hypot({0}, {1})", 1, 0, "same"),
    ("real power", "np_.abs({0})**1.5", Fraction(3, 2), 0, ""),
    ("choice", "np_.maximum({0}, {1})", 1, 0, "same"),
    ("choice", "np_.where({0} > {1}, {0}, {1})", 1, 0, "same"),
    ("reduction", "np_.sum({0})", 1, 0, "array"),
    ("reduction", "np_.mean({0})", 1, 0, "array"),
    ("reduction", "np_.max(np_.abs({0}))", 1, 0, "array"),
    ("reduction", "np_.linalg.norm({0})", 1, 0, "array"),
    ("reduction", "np_.sum({0} * {1})", 1, 1, "array"),
    ("indexing", "{0}[0]", 1, 0, "array"),
    ("running", "np_.cumsum({0})", 1, 0, "running"),
    ("exp", "np_.exp(-np_.abs({0} / {1}))", 0, 0, "same"),
    ("log", "np_.log(np_.abs({0} / {1}))", 0, 0, "same"),
    ("exp", "np_.tanh({0})", 0, 0, "number"),
    ("log", "np_.log1p(np_.abs({0}))", 0, 0, "number"),
)
# Quantities with pure numbers. Outside of `tj.jit` no operation gives plain numbers, which would be
# JAX's own.
PURE: tuple[tuple[str, str, Power, Power, str], ...] = (
    ("pure", "1 - {0}", 1, 0, "number"),
    ("pure", "{0} + 2.5", 1, 0, "number"),
    ("pure", "3 * {0}", 1, 0, ""),
    ("pure", "np_.maximum({0}, 1.0)", 1, 0, "number"),
    ("pure", "np_.where({0} > 7, {0}, 0.5)", 1, 0, "number"),
    ("pure", "np_.hypot({0}, 2)", 1, 0, "number"),
    ("pure", "np_.sqrt(1 + {0}**2)", 1, 0, "number"),
    ("pure", "np_.sum({0}, initial=2.0)", 1, 0, "vector of numbers"),
    ("pure", "{0}.at[0].set(3)", 1, 0, "vector of numbers"),
    ("pure", "np_.multiply({0}, 70000)", 1, 0, ""),
    ("pure", "np_.divide(1e-6, {0})", -1, 0, ""),
    ("pure", "np_.minimum({0}, 1e5)", 1, 0, "number"),
    ("pure", "{0} - 2.5e5", 1, 0, "number"),
    ("constant", "np_.maximum({0}, 1e5 * (G / G))", 1, 0, "number"),
    ("constant", "np_.hypot({0} * G, 3e-3 * G)", 1, 0, "number times G"),
)
_EAGER = (*(t for t in TEMPLATES if t[0] not in ("exp", "log")), *PURE)


class _Maker:
    """A program on quantities under construction."""

    def __init__(self, seed: int, dtype: str, eager: bool = False) -> None:
        self.random = np.random.default_rng([seed, 11 if eager else 7])
        self.dtype = dtype
        self.templates = _EAGER if eager else TEMPLATES
        units = [*UNITS, "1", "1"] if eager else [*UNITS]
        shapes = ((), (), (3,), (4,), (300,))
        self.shape: tuple[int, ...] = shapes[int(self.random.integers(len(shapes)))]
        self.steps: list[Step] = []
        count = int(self.random.integers(2, 4))
        kinds = ["v" if self.shape and self.random.random() < 0.7 else "s" for _ in range(count)]
        self.arguments = [Argument(f"q{i}", k) for i, k in enumerate(kinds)]
        self.units = [str(self.random.choice(units)) for _ in kinds]
        self.known = {
            a.name: (a.kind, UNITS.get(u, _NONE))
            for a, u in zip(self.arguments, self.units, strict=True)
        }

    def pick(self, allowed: Function) -> str | None:
        names = [n for n, value in self.known.items() if allowed(*value)]
        if not names:
            return None
        back = min(int(self.random.exponential(1.5)), len(names) - 1)
        return names[-1 - back]

    def step(self) -> None:
        """Add an operation whose dimensions fit."""
        templates = self.templates
        op, text, first, second, asks = templates[int(self.random.integers(len(templates)))]
        array, pure = asks in ("array", "running", "vector of numbers"), "number" in asks
        a = self.pick(lambda kind, d: (not array or kind == "v") and (not pure or d == _NONE))
        if a is None:
            return
        kind, dimension = self.known[a]
        operands = [a]
        if "{1}" in text:
            b = self.pick(
                lambda k, d: (not array or k == "v") and (asks != "same" or d == dimension)
            )
            if b is None:
                return
            operands.append(b)
            kind = max(kind, self.known[b][0])
        other = self.known[operands[-1]][1]
        powers = tuple(first * x + second * y for x, y in zip(dimension, other, strict=True))
        if asks.endswith("G"):
            powers = tuple(x + g for x, g in zip(powers, _OF_G, strict=True))
        name = f"v{len(self.steps)}"
        gives = "s" if "np_.sum" in text or asks == "array" else kind
        self.steps.append(Step(name, op, text, tuple(operands), gives))
        self.known[name] = (gives, powers)


def generate_quantities(seed: int, dtype: str, eager: bool = False) -> Program:
    """Return the program of a seed; `eager`: for a run outside of `tj.jit`."""
    maker = _Maker(seed, dtype, eager)
    while len(maker.steps) < 2 + seed % 4:
        maker.step()
    size = int(np.prod(maker.shape))
    calls = sequence(maker.random, dtype, maker.arguments, maker.shape, size, 6, None)
    if dtype == "float16":  # quantities of any magnitude, by whole arrays
        powers = maker.random.integers(-40, 40, (len(calls), len(maker.arguments)))
        powers[:, maker.random.random(len(maker.arguments)) < 0.4] = 0
        calls = tuple(_scaled(call, power) for call, power in zip(calls, powers, strict=True))
    return Program(
        seed,
        dtype,
        tuple(maker.arguments),
        (),
        (),
        tuple(maker.steps),
        (maker.steps[-1].name,),
        "plain" if eager else str(maker.random.choice(["plain", "plain", "grad"])),
        calls,
        traced=False,
        units=tuple(maker.units),
        eager=eager,
    )


def _scaled(call: Call, powers: np.ndarray) -> Call:
    if call.same is not None:
        return dataclasses.replace(call, same=None)
    values = tuple(np.ldexp(v, int(p)) for v, p in zip(call.values, powers, strict=True))
    return dataclasses.replace(call, values=values)
