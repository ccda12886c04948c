"""Captured programs against plain JAX: capture, reading, replay, rewriting; also without capture.

    python benchmarks/bench_capture.py [--quick] [--check] [--write PAGE]

All calls run in Python, so times are processor time, which ignores other jobs on the core.
Ratios are medians of ratios within rounds. One process, one thread.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip  first of all

import argparse
import dataclasses
import pathlib
import platform
import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import capture_programs as programs
import jax
from capture_programs import fresh, plain_trace
from rich.console import Console
from rich.table import Table
from timing import Times, interleave

import tanjax as tj

HERE = pathlib.Path(__file__).parent
HEADER = ["what", "time, ms", "compared with", "time, ms", "ratio", "budget"]
HIGHER = ["equation", "plain trace, ms", "captured, ms", "more per equation, ms"]
GATE = "The cost of a call without capture"

Calls = dict[str, Callable[[], Any]]


@dataclasses.dataclass
class Row:
    """One comparison; `budget` of the ratio, 0 for none."""

    group: str
    name: str
    seconds: float
    base: str
    base_seconds: float
    ratio: float
    budget: float = 0.0

    def values(self) -> list[str]:
        """Return the row as text."""
        ms = [f"{s * 1e3:,.2f}" if s else "" for s in (self.seconds, self.base_seconds)]
        budget = f"≤ {self.budget:g}" if self.budget else ""
        return [self.name, ms[0], self.base, ms[1], f"{self.ratio:.2f}", budget]


@dataclasses.dataclass
class Higher:
    """A higher-order equation, or some nested ones."""

    name: str
    plain: float
    captured: float
    count: int

    @property
    def more(self) -> float:
        """The seconds per equation beyond JAX's own trace."""
        return (self.captured - self.plain) / self.count

    def values(self) -> list[str]:
        """Return the row as text."""
        return [self.name, *(f"{s * 1e3:.2f}" for s in (self.plain, self.captured, self.more))]


def main() -> int:
    """Measure, print, optionally write the page; return 1 if `--check` finds a budget exceeded."""
    options = parse()
    budget = tomllib.loads((HERE / "budgets.toml").read_text())["capture"]
    rows = [
        row
        for name, f in ((programs.ALGEBRA, programs.algebra), (programs.LOOPS, programs.loops))
        for row in compare(name, f, options, budget)
    ]
    higher = list(higher_order(options))
    gates = [gate(*calls, options) for calls in programs.calls_without_gate()]
    console = Console(width=120)
    for title, header, lines in tables(rows, higher, gates):
        table = Table(*header, title=title)
        for line in lines:
            table.add_row(*line)
        console.print(table)
    found = violations(rows, higher, gates, budget)
    for line in found:
        console.print(f"[red]over budget:[/red] {line}")
    if options.write:
        options.write.write_text(page(rows, higher, gates), encoding="utf-8")
    return int(options.check and bool(found))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--write", type=pathlib.Path, help="write a Markdown page")
    parser.add_argument("--check", action="store_true", help="exit with 1 if over budget")
    options = parser.parse_args()
    options.rounds = 3 if options.quick else 11
    return options


def timed(calls: Calls, options: argparse.Namespace, span: float = 20e-3) -> Times:
    """Return the processor time of some calls in turn."""
    return interleave(calls, options.rounds, span, clock=time.process_time)


def compare(
    group: str, f: Callable[..., Any], options: argparse.Namespace, budget: dict[str, float]
) -> Iterator[Row]:
    """Compare capture, reading, replay and rewriting of one function with plain JAX."""
    args = programs.arguments()
    program = tj.capture(f)(*args)
    again = lambda: tj.programs.Program(program._traced)
    interpreter = tj.programs.Interpreter()
    gradient = lambda g: plain_trace(jax.grad(fresh(g), (0, 1, 2)), args)
    compiled, replayed = jax.jit(f), jax.jit(program)
    base, capture = "jax.make_jaxpr", "capture"
    wanted: list[tuple[Calls, list[tuple[str, str, float]]]] = [
        (
            {
                base: plain_trace(f, args),
                capture: lambda: tj.capture(fresh(f))(*args),
                "trace of the replay, the first": lambda: plain_trace(again(), args)(),
                "trace of the replay, later": plain_trace(program, args),
                "typed replay, traced": plain_trace(interpreter(program), args),
                "view and print": lambda: str(again()),
                "rewrite": lambda: interpreter.rewrite(program),
            },
            [
                (capture, base, budget["capture_ratio"]),
                ("trace of the replay, the first", base, budget["replay_ratio"]),
                ("trace of the replay, later", base, budget["replay_ratio"]),
                ("typed replay, traced", base, 0),
                ("view and print", capture, 0),
                ("rewrite", capture, budget["rewrite_ratio"]),
            ],
        ),
        (
            {"trace of jax.grad": gradient(f), "of the replay, warm": gradient(program)},
            [("of the replay, warm", "trace of jax.grad", budget["gradient_ratio"])],
        ),
        (
            {"eager function": lambda: f(*args), "eager replay": lambda: program(*args)},
            [("eager replay", "eager function", 0)],
        ),
        (
            {"compiled": lambda: compiled(*args), "replay, compiled": lambda: replayed(*args)},
            [("replay, compiled", "compiled", budget["run_ratio"])],
        ),
    ]
    for calls, pairs in wanted:
        times = timed(calls, options)
        for name, other, most in pairs:
            best = [min(times.rounds[k]) for k in (name, other)]
            yield Row(group, name, best[0], other, best[1], times.ratio(name, other), most)
    ours, plain = (_operations(f, args) for f in (replayed, compiled))
    name = f"operations compiled: {ours} of the replay, {plain} of the function"
    yield Row(group, name, 0, "", 0, ours / plain, budget["operations_ratio"])


_MOVES = ("bitcast", "constant", "copy", "get-tuple-element", "parameter", "tuple")


def _operations(compiled: Any, args: tuple[Any, ...]) -> int:
    """Count the operations of a compiled program that compute a result.

    XLA numbers them, and their order can change the count by one fusion.
    """
    text = compiled.lower(*args).compile().as_text()
    found = re.findall(r"=\s+[^=]*?\s([a-z][\w-]*)\(", text)
    return sum(name not in _MOVES for name in found)


def higher_order(options: argparse.Namespace) -> Iterator[Higher]:
    """Measure every function alone, then scans in scans."""
    _, *args = programs.arguments()
    found = {name: (f, 1) for name, f in programs.single().items()}
    found |= {f"{k} scans, nested": (programs.nested(k), k) for k in programs.DEPTHS}
    for name, (f, count) in found.items():
        calls = {
            "plain": plain_trace(f, tuple(args)),
            "captured": lambda f=f: tj.capture(fresh(f))(*args),
        }
        times = timed(calls, options)
        plain = min(times.rounds["plain"])
        yield Higher(name, plain, plain * times.ratio("captured", "plain"), count)


def gate(
    name: str, call: Callable[[], Any], bare: Callable[[], Any], options: argparse.Namespace
) -> tuple[str, float, float]:
    """Return the seconds of a call with and without the check for a capture."""
    rounds = argparse.Namespace(rounds=5 * options.rounds)
    times = timed({"gate": call, "bare": bare}, rounds, span=5e-3)
    without = min(times.rounds["bare"])
    return name, without * times.ratio("gate", "bare"), without


def violations(
    rows: list[Row], higher: list[Higher], gates: list[Any], budget: dict[str, float]
) -> list[str]:
    """Return one line per exceeded budget."""
    found = [f"{r.group}: {r.name}: {r.ratio:.2f}" for r in rows if 0 < r.budget < r.ratio]
    found += [
        f"{h.name}: {h.more * 1e3:.2f} ms per equation"
        for h in higher
        if h.more * 1e3 > budget["higher_order_ms"]
    ]
    name, with_gate, without = gates[0]
    if (with_gate - without) * 1e9 > budget["gate_ns"]:
        found.append(f"{name}: {(with_gate - without) * 1e9:.0f} ns")
    return found


def tables(
    rows: list[Row], higher: list[Higher], gates: list[Any]
) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield titles, headings and lines."""
    for group in dict.fromkeys(row.group for row in rows):
        yield group, HEADER, [row.values() for row in rows if row.group == group]
    yield "Higher-order equations", HIGHER, [h.values() for h in higher]
    lines = [
        [name, *(f"{s * 1e9:,.0f}" for s in (bare, with_gate, with_gate - bare))]
        for name, with_gate, bare in gates
    ]
    yield GATE, ["call", "without the gate, ns", "as it is, ns", "more, ns"], lines


def page(rows: list[Row], higher: list[Higher], gates: list[Any]) -> str:
    """Return the page of the documentation."""
    lines = [
        "# Benchmarks of captured programs",
        "",
        "This page is for readers who capture, replay or rewrite programs. It compares captured "
        "programs with plain JAX.",
        "",
        "Written by `python benchmarks/bench_capture.py --write docs/pages/benchmarks_capture.md`.",
        f"tanjax {tj.__version__}, JAX {jax.__version__}, Python {platform.python_version()}, one "
        "thread of a CPU.",
        "",
        "Times are processor time, the best of some calls in turn. A ratio is the median of the "
        "ratios within a round, and moves by a tenth from run to run. For higher-order equations "
        "and calls, the second time is this ratio times the first.",
        "",
        "Each trace is of a new function, whose operations have been called before. The gradient "
        "of a replay is warm: JAX caches the derivative of the program. The last table times a "
        "call whose work takes no time, without a capture. It compares the call with the same "
        "function without the test for a capture.",
        "",
    ]
    for title, header, values in tables(rows, higher, gates):
        lines += [f"## {title}", "", "| " + " | ".join(header) + " |"]
        lines.append("| --- |" + " ---: |" * (len(header) - 1))
        lines += ["| " + " | ".join(row) + " |" for row in values]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
