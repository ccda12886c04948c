"""Quality and time of plans: chains of known results, graphs of real programs.

    python benchmarks/scale_plans.py [--check]

This file assigns random programs that wander out of range, the worst case. `bench_scale.py`
measures the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scale_programs as programs

import tanjax as tj
from tanjax.scale import _plan
from tanjax.scale.assign import _assign, _problem

PARTS = {"build": _plan, "evaluate": _plan, "bound": _plan, "assign_exponents": _problem}


@dataclasses.dataclass
class Chain:
    """One chain: the inserted conversions, and the largest relative error of the result."""

    name: str
    operations: int
    size: int
    conversions: int
    error: float
    plain_error: float
    published: str
    limit: int | None = None

    def values(self) -> list[str]:
        """Return the row as text."""
        limit = "" if self.limit is None else str(self.limit)
        errors = [_error(self.error), _error(self.plain_error)]
        name = f"{self.name}, {self.size:,} numbers"
        return [name, str(self.operations), str(self.conversions), limit, *errors, self.published]

    @property
    def is_over(self) -> bool:
        """True if there are more conversions than the budget allows, or the result is wrong."""
        limit = self.limit is not None and self.conversions > self.limit
        return limit or not self.error < max(1e-5, 4 * min(self.plain_error, 1e-3))


def _error(error: float) -> str:
    return f"{error:.0e}" if np.isfinite(error) else "**inf**"


CHAIN_HEADER = [
    "chain",
    "operations",
    "conversions",
    "budget",
    "error",
    "plain float32",
    "quantax: conversions, result",
]

# Name, operations, count of numbers, the program of a number, quantax in our measurements
CASES: list[tuple[str, int, int, Callable[[Any], Any], str]] = [
    ("x·0.01 + 5e6", 2000, 3, programs.affine(0.01, 5e6, 1000), "one per step, right"),
    ("x·1.02 + 0.3", 100, 3, programs.affine(1.02, 0.3, 50), "51, right"),
    ("x·1.02 + 0.3", 1000, 3, programs.affine(1.02, 0.3, 500), "506, right"),
    ("x·1.02 + 0.3", 1000, 100_000, programs.affine(1.02, 0.3, 500), "1, right"),
    ("x·1e3 + 1e-4", 1000, 3, programs.affine(1e3, 1e-4, 500), "500, right"),
    ("x·1e3 + 1e-4", 1000, 100_000, programs.affine(1e3, 1e-4, 500), "500, inf"),
    ("x^50 at 3", 49, 100_000, programs.power(50), "0, right"),
    ("x^100 at 3", 99, 100_000, programs.power(100), "0, inf"),
]  # fmt: skip
LIMITS = {"x·0.01 + 5e6": 0}


def chains() -> list[Chain]:
    """Run every chain of quantities: results may keep their exponents, errors are to 64 bits."""
    found = []
    for name, operations, size, program, published in CASES:
        three = name.startswith("x^")
        x = (
            np.full(size, 3.0, np.float32)
            if three
            else np.linspace(1.0, 2.0, size, dtype=np.float32)
        )
        exact = program(x.astype(np.longdouble))
        f = tj.jit(lambda q, program=program: program(q.value) * tj.unit("m"))
        result = f(jnp.asarray(x) * tj.unit("m"))
        stored = np.asarray(result.stored).astype(np.longdouble)
        got = np.ldexp(stored, result.label.scale)
        theirs = np.asarray(jax.jit(program)(x)).astype(np.longdouble)
        errors = [float(np.max(np.abs(y - exact) / np.abs(exact))) for y in (got, theirs)]
        conversions = f.plans[-1].conversions
        found.append(
            Chain(name, operations, size, conversions, *errors, published, LIMITS.get(name))
        )
    return found


@dataclasses.dataclass
class Planning:
    """One graph: processor seconds in all and in parts, and the report of the integer program."""

    name: str
    equations: int
    trace: float
    total: float
    parts: dict[str, float]
    plan: Any

    @property
    def magnitudes(self) -> float:
        return self.parts.get("evaluate", 0.0) + self.parts.get("bound", 0.0)

    @property
    def assignment(self) -> float:
        return self.parts.get("assign_exponents", 0.0)

    def values(self) -> list[str]:
        """Return the row as text."""
        plan, parts = self.plan, [self.parts["build"], self.magnitudes, self.assignment]
        return [
            self.name,
            f"{self.equations:,}",
            *(f"{seconds:.2f} s" for seconds in (self.trace, self.total, *parts)),
            f"{1e6 * self.total / self.equations:.0f} µs",
            plan.method,
            str(plan.conversions),
            f"{100 * plan.gap:.1f} %",
        ]


PLANNING_HEADER = [
    "program",
    "equations",
    "JAX's trace",
    "plan",
    "graph",
    "magnitudes",
    "assignment",
    "per equation",
    "method",
    "conversions",
    "gap",
]


@contextlib.contextmanager
def clocked() -> Iterator[Counter[str]]:
    """Count processor seconds in the parts of the planner, as other jobs share the machine."""
    spent: Counter[str] = Counter()
    kept = {name: getattr(module, name) for name, module in PARTS.items()}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] += time.process_time() - start

        return call

    for name, module in PARTS.items():
        setattr(module, name, timed(name, kept[name]))
    try:
        yield spent
    finally:
        for name, module in PARTS.items():
            setattr(module, name, kept[name])


def planning(name: str, equations: int, rounds: int) -> Planning:
    """Plan one graph several times; the times are those of the fastest."""
    program, arguments = programs.GRAPHS[name](equations)
    start = time.process_time()
    closed = jax.make_jaxpr(program)(*arguments)
    traced = time.process_time() - start
    best: Planning | None = None
    for _ in range(rounds):
        with clocked() as parts:
            start = time.process_time()
            plan = _plan.plan(closed, arguments, [False])
            seconds = time.process_time() - start
        if best is None or seconds < best.total:
            count = sum(1 for _ in plan.graph.walk())
            best = Planning(name, count, traced, seconds, dict(parts), plan)
    assert best is not None
    return best


def growth(rows: list[Planning]) -> dict[str, float]:
    """Return for each program how planning time per equation grows to its largest graph.

    The base is the graph of about a thousand equations.
    """
    found = {}
    for name in dict.fromkeys(row.name for row in rows):
        mine = [row for row in rows if row.name == name]
        first = min(mine, key=lambda row: abs(row.equations - 1000))
        last = max(mine, key=lambda row: row.equations)
        found[name] = (last.total / last.equations) / (first.total / first.equations)
    return found


# -- programs that wander out of range at random -----------------------------------------------

HOSTILE_HEADER = ["equations", "assignment", "per equation", "method", "conversions", "violations",
                  "gap", "of conversions"]  # fmt: skip
SECONDS = {1000: 0.1, 10_000: 1.0}  # processor seconds of a quiet core, by equations
GAP, GROWTH = 0.01, 2.0  # proven gap; growth per equation, from 1000 to the largest


@dataclasses.dataclass
class Hostile:
    """One random program: the processor seconds of this thread, and its assignment."""

    equations: int
    seconds: float
    found: Any

    def values(self) -> list[str]:
        """Return the row as text."""
        found, each = self.found, 1e6 * self.seconds / self.equations
        counts = [f"{found.conversions:,}", f"{found.violations:,}"]
        gaps = [f"{100 * found.gap:.4f} %", f"{100 * found.excess:.0f} %"]
        return [f"{self.equations:,}", f"{self.seconds:.3f} s", f"{each:.0f} µs", found.method,
                *counts, *gaps]  # fmt: skip

    @property
    def is_over(self) -> bool:
        limit = SECONDS.get(self.equations)
        return self.found.gap > GAP or (limit is not None and self.seconds > limit)


def hostile_rows(sizes: tuple[int, ...] = (1000, 3000, 10_000, 30_000)) -> list[Hostile]:
    """Assign one random program of each size three times; the time is that of the fastest."""
    import hostile_programs

    rows = []
    for size in sizes:
        problem = hostile_programs.problem_of(*hostile_programs.hostile(size))
        best: Hostile | None = None
        for _ in range(3):
            start = time.thread_time()
            found = _assign.assign(problem)
            row = Hostile(size, time.thread_time() - start, found)
            best = row if best is None or row.seconds < best.seconds else best
        assert best is not None
        rows.append(best)
        jax.clear_caches()
    return rows


def main() -> int:
    """Run the random programs; return 1 if over budget."""
    rows = hostile_rows()
    print(" | ".join(HOSTILE_HEADER))
    for row in rows:
        print(" | ".join(row.values()), "OVER BUDGET" if row.is_over else "")
    each = [row.seconds / row.equations for row in rows]
    print(f"per equation, largest to smallest: {each[-1] / each[0]:.2f} × (budget {GROWTH:g} ×)")
    over = each[-1] > GROWTH * each[0] or any(row.is_over for row in rows)
    return int(over and "--check" in sys.argv)


if __name__ == "__main__":
    sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests" / "support"))
    sys.exit(main())
