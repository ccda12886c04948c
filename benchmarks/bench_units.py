"""Quantities against plain JAX and other unit libraries: `make bench`.

    python benchmarks/bench_units.py [--quick] [--check] [--write docs/pages/benchmarks_units.md]

Eager operations on three numbers and on large matrices, calls of compiled functions, tracing,
optimised programs and the time to import. One process, one thread.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip  first of all

import argparse
import dataclasses
import pathlib
import sys
import tomllib
import warnings
from collections.abc import Callable
from typing import Any

import jax
import unit_calls as calls
import unit_programs as programs
import unit_report as report
from rich.console import Console
from rich.progress import Progress
from timing import interleave
from unit_libraries import Library, installed

HERE = pathlib.Path(__file__).parent
SECTIONS = ("eager", "compiled", "trace", "facts")
DISTURBED = 1.3  # on a quiet machine medians and best times agree better than that
SLOW = 3  # rounds of first calls, which take as long as a compilation
Thunks = dict[str, Callable[[], Any]]


def main() -> int:
    """Measure, print, optionally write the page; return 1 if `--check` finds a budget exceeded."""
    options = parse()
    budget = tomllib.loads((HERE / "budgets.toml").read_text())["units"]
    libraries, missing = installed()
    console = Console(width=120)
    for line in missing:
        console.print(f"[bold yellow]NOT MEASURED:[/bold yellow] {line}")
    contenders = [library.name for library in libraries[1:]]
    if "compiled" in options.sections or "trace" in options.sections:
        contenders.insert(1, "jax.jit")
    groups = measure(libraries, options, budget)
    facts = measure_facts(libraries, options, budget) if "facts" in options.sections else []
    for group, rows in groups.items():
        console.print(report.table(group, rows, contenders))
    console.print(report.fact_table(facts))
    found = report.violations([row for rows in groups.values() for row in rows], facts)
    for line in found:
        console.print(f"[red]over budget:[/red] {line}")
    if options.write:
        versions = ", ".join(f"{x.name} {x.version}" for x in libraries[2:])
        versions = f"Compared with {versions}." if versions else ""
        command = "python " + " ".join(sys.argv)
        page = report.page(groups, facts, contenders, versions, missing, command)
        options.write.write_text(page, encoding="utf-8")
    return int(options.check and bool(found))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, our library alone")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--rounds", type=int, help="default: 15, or 5 with --quick")
    parser.add_argument("--write", type=pathlib.Path, help="write a Markdown page")
    parser.add_argument("--check", action="store_true", help="exit with 1 if over budget")
    options = parser.parse_args()
    options.rounds = options.rounds or (5 if options.quick else 15)
    return options


def measure(
    libraries: list[Library], options: argparse.Namespace, budget: dict[str, float]
) -> dict[str, list[report.Row]]:
    """Measure every row of every requested section."""
    groups: dict[str, list[tuple[str, Thunks, float | None, int]]] = {}
    if options.quick:
        libraries = libraries[:2]
    rounds, few = options.rounds, min(SLOW, options.rounds)
    if "eager" in options.sections:
        eager = budget["eager_ratio"]
        for group, table in calls.GROUPS.items():
            thunks = eager_thunks(libraries, table)
            groups[group] = [(name, row, eager, rounds) for name, row in thunks.items()]
    with_ours = with_plain_jit(libraries)
    if "compiled" in options.sections:
        limits = dict.fromkeys(programs.JUDGED, budget["compiled_ratio"])
        rows = by_row(with_ours, programs.compiled_calls)
        groups["Compiled calls"] = [(n, r, limits.get(n), rounds) for n, r in rows.items()]
    if "trace" in options.sections:
        limits = {
            "trace, 500 operations": budget["trace_ratio"],
            "trace of the gradient, 500 operations": budget["gradient_ratio"],
        }
        rows = by_row(with_ours, programs.traces)
        groups["Tracing and first calls"] = [
            (n, r, limits.get(n), few if n.startswith("first") else rounds) for n, r in rows.items()
        ]
    with Progress() as progress:
        bar = progress.add_task("", total=sum(map(len, groups.values())))
        return {
            group: [measure_row(group, *row, progress, bar) for row in rows]
            for group, rows in groups.items()
        }


def with_plain_jit(libraries: list[Library]) -> list[Library]:
    """Return the libraries, and ours compiled by `jax.jit` as one more."""
    plain, ours, *others = libraries
    return [plain, ours, dataclasses.replace(ours, name="jax.jit", jit=jax.jit), *others]


def eager_thunks(libraries: list[Library], table: dict[str, calls.Call]) -> dict[str, Thunks]:
    """Return eager calls by row and library, without those that a library lacks."""
    operands = {library.name: library.operands() for library in libraries}
    rows: dict[str, Thunks] = {name: {} for name in table}
    for row, call in table.items():
        for name, given in operands.items():
            thunk = lambda call=call, given=given: call(given)
            if name in ("plain", "tanjax") or works(thunk):
                rows[row][name] = thunk
    return rows


def by_row(libraries: list[Library], make: Callable[[Library], Thunks]) -> dict[str, Thunks]:
    """Return the result of `make` for each library, by row, without rows that raise."""
    rows: dict[str, Thunks] = {}
    for library in libraries:
        for row, thunk in make(library).items():
            if library.name in ("plain", "tanjax") or works(thunk):
                rows.setdefault(row, {})[library.name] = thunk
    return rows


def works(thunk: Callable[[], Any]) -> bool:
    """True if a call of another library returns; libraries fail in many ways."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            jax.block_until_ready(thunk())
    except Exception:  # any class: unknown names, unknown rules, wrong units
        return False
    return True


def measure_row(
    group: str,
    name: str,
    thunks: Thunks,
    budget: float | None,
    rounds: int,
    progress: Progress,
    bar: Any,
) -> report.Row:
    """Measure one row; if over its budget, or disturbed, measure it again, longer."""
    progress.update(bar, description=name)
    few = {other: max(5, rounds // 2) for other in thunks if other not in ("plain", "tanjax")}
    times = interleave(thunks, rounds, span=2e-3, few=few)
    row = make_row(group, name, times, budget)
    if row.is_over or row.ratios["tanjax"] > DISTURBED * row.minima["tanjax"]:
        pair = {name: thunks[name] for name in ("plain", "tanjax")}
        times.rounds.update(interleave(pair, 4 * rounds, span=2e-3).rounds)
        row = make_row(group, name, times, budget)
    progress.advance(bar)
    return row


def make_row(group: str, name: str, times: Any, budget: float | None) -> report.Row:
    others = [other for other in times.rounds if other != "plain"]
    return report.Row(
        group,
        name,
        times.median("plain") * 1e6,
        {other: times.ratio(other, "plain") for other in others},
        {other: times.ratio_of_minima(other, "plain") for other in others},
        budget,
    )


def measure_facts(
    libraries: list[Library], options: argparse.Namespace, budget: dict[str, float]
) -> list[report.Fact]:
    """Compare optimised programs of ours and of plain JAX, and measure the import."""
    plain, ours = libraries[:2]
    facts = []
    for what, gradient in (("50 operations", False), ("their gradient", True)):
        expected = programs.operation_counts(plain, gradient)
        got = programs.operation_counts(ours, gradient)
        same = expected == got
        text = f"{sum(got.values())} operations" + ("" if same else f", plain {expected}: {got}")
        facts.append(report.Fact(f"optimised program of {what}", text, "as plain JAX", not same))
    seconds, limit = programs.import_seconds(3 if options.quick else 7), budget["import_seconds"]
    facts.append(
        report.Fact(
            "import tanjax beyond import jax", f"{seconds:.2f} s", f"{limit:g} s", seconds > limit
        )
    )
    return facts


if __name__ == "__main__":
    sys.exit(main())
