"""Random programs whose results can show a fault.

Random operations often give infinity, zero or nan, which hide faults. So the generator runs a
program in the reference as it grows. If a result leaves the range of the dtype, further steps bring
it back: constants, a logarithm, a root, or a ratio. The losses of plain JAX on the way are then
visible.

    program = generate(seed=7, dtype="float32")

Sharp edges. A seed gives the same program only with the same release of NumPy.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from tanjax._typing import AnyArray

from ._judge import exact_results
from ._operations import HELPERS, OPERATIONS, ROUND, SI
from ._primitives import Unusable
from ._programs import WRAPS, Argument, Program, Step
from ._values import limits, magnitudes, sequence

SHAPES = ((), (), (1,), (3,), (3,), (4,), (2, 3), (300,))
_OUTER = 10  # entries up to which outer products are made
_NAMES = list(OPERATIONS)
_WEIGHTS = np.array([OPERATIONS[n][0] for n in _NAMES]) / sum(w for w, _ in OPERATIONS.values())


class _Maker:
    """A program under construction."""

    def __init__(self, seed: int, dtype: str) -> None:
        self.seed, self.dtype = seed, dtype
        self.random = np.random.default_rng([seed, list(_RANGES).index(dtype)])
        self.wrap = str(self.random.choice(list(WRAPS), p=_WRAP_WEIGHTS))
        self.mapped = 4 if self.wrap.startswith("vmap") else None
        shapes = SHAPES[:5] if self.mapped else SHAPES
        self.shape: tuple[int, ...] = shapes[int(self.random.integers(len(shapes)))]
        self.size = int(np.prod(self.shape))
        count = int(self.random.integers(1, 4))
        kinds = ["v" if self.shape and self.random.random() < 0.7 else "s" for _ in range(count)]
        if self.shape:
            kinds[0] = "v"
        self.arguments = [Argument(f"x{i}", k) for i, k in enumerate(kinds)]
        self.kinds = {a.name: a.kind for a in self.arguments}
        self.steps: list[Step] = []
        self.helpers: list[tuple[str, str]] = []
        self.closed: list[tuple[str, AnyArray]] = []

    def constant(self) -> str:
        r = self.random.random()
        if r < 0.4:
            return repr(float(self.random.choice(SI)))
        if r < 0.75:
            return repr(float(self.random.choice(ROUND)))
        low, high = _RANGES[self.dtype]
        return f"{10 ** self.random.uniform(low, high):.4g}"

    def whole(self, kind: str) -> str:
        name = {"index": "i", "count": "n", "flag": "b"}[kind] + "0"
        if all(a.name != name for a in self.arguments):
            self.arguments.append(Argument(name, kind))
        return name

    def helper(self) -> str:
        if self.helpers and self.random.random() < 0.5:
            return self.helpers[-1][0]
        name = f"helper{len(self.helpers)}"
        text = HELPERS[int(self.random.integers(len(HELPERS)))]
        self.helpers.append((name, text.format(name=name)))
        return name

    def array(self) -> str:
        if not self.closed:
            self.closed.append(("A0", magnitudes(self.random, self.dtype, self.shape)))
        return "A0"

    def pick(self, kind: str) -> str | None:
        """Return an earlier value, recent ones more often."""
        names = [n for n, k in self.kinds.items() if kind == "x" or k == kind]
        if not names:
            return None
        back = min(int(self.random.exponential(1.5)), len(names) - 1)
        return names[-1 - back]

    def step(self) -> None:
        """Add an operation on earlier values."""
        for _ in range(20):
            op = str(self.random.choice(_NAMES, p=_WEIGHTS))
            templates = OPERATIONS[op][1]
            signature, text = templates[int(self.random.integers(len(templates)))]
            wants, gives = signature.split(">")
            if "outer" in text and self.size > _OUTER:
                continue
            if "grad" in self.wrap and "<k>" in text:  # JAX does not reverse such loops
                continue
            operands = [self.pick(kind) for kind in wants]
            if None in operands:
                continue
            names = tuple(str(o) for o in operands)
            kinds = [self.kinds[o] for o in names]
            if gives == "x":
                gives = "v" if "v" in kinds else "s"
                if signature == "xs>x" and kinds == ["s", "v"]:
                    continue
            self.add(op, self.filled(text), names, gives)
            return

    def filled(self, text: str) -> str:
        makers = {
            "<c>": self.constant,
            "<n>": lambda: str(int(self.random.integers(2, 7))),
            "<i>": lambda: self.whole("index"),
            "<k>": lambda: self.whole("count"),
            "<b>": lambda: self.whole("flag"),
            "<h>": self.helper,
            "<a>": self.array,
        }
        return re.sub("<[a-z]>", lambda m: makers[m.group()](), text)

    def add(self, op: str, text: str, operands: tuple[str, ...], kind: str) -> None:
        name = f"v{len(self.steps)}"
        self.steps.append(Step(name, op, text, operands, kind))
        self.kinds[name] = kind

    def program(self, outputs: tuple[str, ...]) -> Program:
        used = " ".join(s.line() for s in self.steps)
        arguments = [a for a in self.arguments if a.is_float or a.name in used]
        wrap = self.wrap
        if wrap == "jvp" and not all(a.is_float for a in arguments):
            wrap = "plain"
        self.arguments = arguments
        calls = sequence(
            np.random.default_rng([self.seed, 99]),
            self.dtype,
            arguments,
            self.shape,
            self.size,
            int(self.random.integers(5, 9)),
            self.mapped,
        )
        return Program(
            self.seed,
            self.dtype,
            tuple(arguments),
            tuple(self.closed),
            tuple(self.helpers),
            tuple(self.steps),
            outputs,
            wrap,
            calls,
            traced=bool(self.random.random() < 0.5),
        )

    def home(self, name: str, at: float) -> str:
        """Add steps that bring a value of magnitude 10^`at` into the range of the dtype."""
        high = _RANGES[self.dtype][1]
        way = self.random.integers(4)
        kind = self.kinds[name]
        if way == 0:
            self.add("log", "jnp.log(jnp.abs({0}))", (name,), kind)
        elif way == 1:
            root = int(np.ceil(abs(at) / (0.8 * high)))
            self.add("real power", f"jnp.abs({{0}})**(1 / {root + 1})", (name,), kind)
        elif way == 2 and kind == "v":
            self.add("ratio", "{0} / jnp.max(jnp.abs({0}))", (name,), kind)
        else:
            count = int(np.ceil(abs(at) / (0.7 * high)))
            factor = f"{10 ** (-at / count):.3g}"
            self.add("constant", "{0}" + f" * {factor}" * count, (name,), kind)
        return self.steps[-1].name


_RANGES = {d: limits(d) for d in ("float32", "bfloat16", "float16")}
_CHANCES = {"plain": 9.0, "grad": 4, "value_and_grad": 1, "vmap": 2, "vmap_grad": 1, "jvp": 1}
_WRAP_WEIGHTS = np.array([_CHANCES.get(w, 0.7) for w in WRAPS])
_WRAP_WEIGHTS /= _WRAP_WEIGHTS.sum()


def generate(seed: int, dtype: str) -> Program:
    """Return the program of a seed."""
    for attempt in range(20):
        maker = _Maker(seed * 20 + attempt, dtype)
        for _ in range(int(maker.random.integers(1, 6))):
            maker.step()
        if not maker.steps:
            continue
        program = _brought_home(maker)
        if program is not None:
            break
    program = program or maker.program((maker.steps[-1].name,))
    return dataclasses.replace(program, seed=seed)


def _brought_home(maker: _Maker) -> Program | None:
    last = maker.steps[-1].name
    program = maker.program((last,))
    try:
        results = exact_results(program, program.calls[0])
    except Unusable:
        return None
    flat = np.concatenate([np.abs(np.ravel(r)) for r in results])
    good = flat[np.isfinite(flat) & (flat > 0)]
    if good.size == 0:
        return None
    at = float(np.log10(np.median(good)))
    low, high = _RANGES[maker.dtype]
    if not low < at < high:
        if abs(at) > 6 * high:
            return None
        last = maker.home(last, at)
    outputs = [last]
    if maker.random.random() < 0.3 and len(maker.steps) > 1:
        extra = maker.steps[int(maker.random.integers(len(maker.steps)))].name
        if extra != last:
            outputs.append(extra)
    if "grad" in maker.wrap:
        outputs = [last]
    return maker.program(tuple(outputs))
