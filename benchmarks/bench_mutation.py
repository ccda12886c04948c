"""Refs against plain functional JAX: memory and copies of compiled programs, and some times.

    python benchmarks/bench_mutation.py [--quick] [--check] [--write PAGE]

Gradients of micro-batches into buffers, n indexed reads and writes in reverse mode, calls that
write to their arguments, a Cholesky factorisation with and without its rule. Memory is XLA's count
for the compiled program. One process, one thread.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip  first of all

import argparse
import dataclasses
import pathlib
import platform
import sys
import tomllib
from typing import Any

import jax
import mutation_programs as programs
from rich.console import Console
from rich.table import Table
from timing import interleave

import tanjax as tj

HERE = pathlib.Path(__file__).parent
HEADER = ["program", "scratch", "new output", "in place", "copies", "time, ms"]


@dataclasses.dataclass
class Row:
    """The memory of one compiled program, in sizes of the parameters or of the array."""

    group: str
    program: str
    scratch: float
    new: float
    aliased: float
    copies: int
    seconds: float  # the best: noise moves it least

    def values(self) -> list[str]:
        """Return the row as text."""
        memory = [f"{x:.2f}" for x in (self.scratch, self.new, self.aliased)]
        return [self.program, *memory, str(self.copies), f"{self.seconds * 1e3:,.2f}"]


def main() -> int:
    """Measure, print, optionally write the page; return 1 if `--check` finds a budget exceeded."""
    options = parse()
    budget = tomllib.loads((HERE / "budgets.toml").read_text())["mutation"]
    rows = [row for group in programs.groups(options.quick) for row in measure(group, options)]
    console = Console(width=120)
    for group in dict.fromkeys(row.group for row in rows):
        table = Table(*HEADER, title=group)
        for row in rows:
            if row.group == group:
                table.add_row(*row.values())
        console.print(table)
    found = violations(rows, budget)
    for line in found:
        console.print(f"[red]over budget:[/red] {line}")
    if options.write:
        options.write.write_text(page(rows), encoding="utf-8")
    return int(options.check and bool(found))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, small sizes")
    parser.add_argument("--write", type=pathlib.Path, help="write a Markdown page")
    parser.add_argument("--check", action="store_true", help="exit with 1 if over budget")
    options = parser.parse_args()
    options.rounds = 3 if options.quick else 9
    return options


def measure(group: programs.Group, options: argparse.Namespace) -> list[Row]:
    """Compile every program of a group, read its memory, and time the calls in turn."""
    found, calls = {}, {}
    for name, (function, args) in group.programs.items():
        compiled = function.lower(*args()).compile()
        found[name] = compiled
        calls[name] = lambda compiled=compiled, args=args: compiled(*args())
    times = interleave(calls, options.rounds, span=20e-3)
    return [
        Row(
            group.name,
            name,
            *memory(compiled, group.size),
            min(times.rounds[name]),
        )
        for name, compiled in found.items()
    ]


def memory(compiled: Any, size: int) -> tuple[float, float, float, int]:
    """Return scratch, new outputs and aliased bytes in units of `size`, and the copies."""
    found = compiled.memory_analysis()
    aliased, out = found.alias_size_in_bytes, found.output_size_in_bytes
    copies = sum(" copy(" in line for line in compiled.as_text().splitlines())
    return found.temp_size_in_bytes / size, (out - aliased) / size, aliased / size, copies


def violations(rows: list[Row], budget: dict[str, float]) -> list[str]:
    """Return one line per exceeded budget."""
    found = []
    by_name = {(row.group, row.program): row for row in rows}
    scan = by_name[programs.BUFFERS, "into Refs, scan"]
    if scan.scratch > budget["buffer_scratch"] or scan.aliased < 0.999:
        found.append(f"{scan.program}: scratch {scan.scratch:.2f}, in place {scan.aliased:.2f}")
    for row in rows:
        is_call = row.group == programs.CALLS and row.program.startswith("Refs")
        if is_call and (row.copies or row.scratch > 0.01 or row.aliased < 0.999):
            found.append(f"{row.program}: {row.copies} copies, scratch {row.scratch:.2f}")
    for row in rows:
        by_rule = row.group.startswith(programs.CHOLESKY) and row.program == "by the rule"
        if by_rule and row.scratch > budget["cholesky_scratch"]:
            found.append(f"Cholesky by its rule: scratch {row.scratch:.2f}")
    small, large = (
        by_name[f"{programs.INDEXED}, n = {n:,}", "tj.refs.discharge"] for n in programs.LENGTHS
    )
    growth = large.seconds / small.seconds / (programs.LENGTHS[1] / programs.LENGTHS[0])
    if jax.__version_info__ >= (0, 12) and growth > budget["indexed_growth"]:
        found.append(f"indexed reads and writes: time per step grows by {growth:.1f}")
    return found


def page(rows: list[Row]) -> str:
    """Return the page of the documentation."""
    lines = [
        "# Benchmarks of mutation",
        "",
        "This page is for readers who write to memory. It compares Refs with plain functional JAX.",
        "",
        "Written by `python benchmarks/bench_mutation.py --write "
        "docs/pages/benchmarks_mutation.md`.",
        f"tanjax {tj.__version__}, JAX {jax.__version__}, Python {platform.python_version()}, one "
        "thread of a CPU.",
        "",
        "Memory and copies are those of the compiled program. Memory is in sizes of the "
        "parameters, or of the array. Copies of single numbers count, too. Times are the best of "
        "some calls in turn, and include the allocation of donated arguments. Other work on the "
        "machine moves them: trust ratios of two or more.",
        "",
    ]
    for group in dict.fromkeys(row.group for row in rows):
        lines += [f"## {group}", "", "| " + " | ".join(HEADER) + " |"]
        lines.append("| --- |" + " ---: |" * (len(HEADER) - 1))
        lines += ["| " + " | ".join(row.values()) + " |" for row in rows if row.group == group]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
