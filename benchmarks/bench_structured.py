"""Structured operations against hand-written and dense JAX: `make bench`.

    python benchmarks/bench_structured.py [--quick] [--check] [--write docs/pages/benchmarks.md]

Value and gradient under `jit` for the cells (`cells.py`), scratch memory of the compiled
programs, and the cost of a call before any arithmetic (`micro.py`). One process, one thread.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip  first of all

import argparse
import pathlib
import sys
import time
import tomllib
from typing import Any

import micro
import report
from cells import CELLS, COLUMNS, STRUCTURES, make_cell
from rich.console import Console
from rich.progress import Progress
from timing import check_agreement, compiled_gradient, interleave

import tanjax as tj

HERE = pathlib.Path(__file__).parent
SLOW = ("eigh", "svd", "sqrtm", "funm_multiply")  # seconds per call
TOLERANCE = 1e-3  # float32, relative to the largest entry


def main() -> int:
    """Measure, print, optionally write the page; return 1 if `--check` finds a budget exceeded."""
    options = parse()
    budgets = tomllib.loads((HERE / "budgets.toml").read_text())
    with Progress() as progress, tj.densify("error"):  # no cell may densify
        rows = measure_cells(options, budgets["cells"], progress)
        small = measure_micro(progress)
    violations = report.violations(rows, small, budgets)
    console = Console(width=120)
    console.print(report.cell_table(rows, budgets["cells"]))
    console.print(report.micro_table(small, budgets["micro"]))
    for line in violations:
        console.print(f"[red]over budget:[/red] {line}")
    if options.write:
        page = report.page(rows, small, violations, budgets, " ".join(sys.argv))
        options.write.write_text(page, encoding="utf-8")
    return int(options.check and bool(violations))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, sizes 64 and 512")
    parser.add_argument("--sizes", type=int, nargs="+", help="default: 64 512 2048")
    parser.add_argument("--structures", nargs="+", choices=sorted({s for s, _ in CELLS}))
    parser.add_argument("--columns", type=int, default=COLUMNS, help="of the right-hand side")
    parser.add_argument("--rounds", type=int, help="default: 15, or 5 with --quick")
    parser.add_argument("--write", type=pathlib.Path, help="write a Markdown page")
    parser.add_argument("--check", action="store_true", help="exit with 1 if over budget")
    options = parser.parse_args()
    options.sizes = options.sizes or ([64, 512] if options.quick else [64, 512, 2048])
    options.rounds = options.rounds or (5 if options.quick else 15)
    return options


def measure_cells(
    options: argparse.Namespace, budget: dict[str, Any], progress: Progress
) -> list[report.Row]:
    """Return one row per cell and size; a row over its time budget is measured again, longer."""
    wanted = [(s, o) for s, o in CELLS if options.structures is None or s in options.structures]
    todo = [(structure, operation, n) for structure, operation in wanted for n in options.sizes]
    bar, rows = progress.add_task("cells", total=len(todo)), []
    for structure, operation, n in todo:
        progress.update(bar, description=f"{structure} {operation} {n}")
        rows.append(measure_cell(structure, operation, n, options, budget))
        progress.advance(bar)
    return rows


def measure_cell(
    structure: str, operation: str, n: int, options: argparse.Namespace, budget: dict[str, Any]
) -> report.Row:
    cell = make_cell(structure, operation, n, options.columns)
    compiled = {k: compiled_gradient(loss, cell.arguments[k]) for k, loss in cell.losses.items()}
    functions = {name: function for name, (function, _) in compiled.items()}
    check_agreement({name: f() for name, f in functions.items()}, "hand", TOLERANCE)
    rounds = 3 if n > 1024 and operation in SLOW else options.rounds
    times = interleave(functions, rounds, few={"dense": 3}, clock=time.process_time)
    over = n in budget["sizes"] and times.ratio("tanjax", "hand") > budget["time_ratio"]
    if over and rounds == options.rounds:
        pair = {name: functions[name] for name in ("tanjax", "hand")}
        again = interleave(pair, 3 * options.rounds, clock=time.process_time)
        times.rounds.update(again.rounds)
    return report.Row(
        structure,
        operation,
        n,
        hand_us=times.median("hand") * 1e6,
        ratio=times.ratio("tanjax", "hand"),
        ratio_of_minima=times.ratio_of_minima("tanjax", "hand"),
        dense=times.median("dense") / times.median("hand"),
        scratch={name: scratch for name, (_, scratch) in compiled.items()},
    )


def measure_micro(progress: Progress) -> report.Micro:
    bar = progress.add_task("constructing, calling, tracing", total=len(STRUCTURES) + 2)
    construct, eager = micro.construct_us(), micro.eager_us()
    mirror = micro.mirror_ratio()
    progress.advance(bar, 2)
    trace = {}
    for structure in STRUCTURES:
        trace[structure] = {
            f"{contender} {'cold' if cold else 'warm'}": micro.trace_ms(
                structure, cold=cold, contender=contender
            )
            for cold in (False, True)
            for contender in ("tanjax", "hand")
        }
        progress.advance(bar)
    return report.Micro(construct, eager, trace, mirror)


if __name__ == "__main__":
    sys.exit(main())
