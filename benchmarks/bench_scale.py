"""Planned programs against plain JAX: `make bench`.

    python benchmarks/bench_scale.py [--quick] [--check] [--write docs/pages/benchmarks_scale.md]

The first sections time first and later calls of `tj.jit`, of synthetic and realistic programs.
Others time training loops, compiled programs on a million numbers, and the planning of graphs of up
to 30,000 equations, or count the conversions in chains. `--sections` picks some. One
process, one thread.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip  first of all

import argparse
import pathlib
import subprocess
import sys
import tomllib
from collections.abc import Callable
from typing import Any

import jax
import scale_calls as calls
import scale_plans as plans
import scale_programs as programs
import scale_report as report
import scale_sciences
import unit_report
from rich.console import Console
from rich.progress import Progress
from timing import interleave

HERE = pathlib.Path(__file__).parent
SECTIONS = ("first", "later", "new", "sciences", "training", "run", "chains", "planning")
JUDGED_SIZE = 500  # equations of the programs whose first calls have a budget
PLANNED = (100, 1000, 3000, 10_000, 30_000)
COLUMNS = ["tanjax", calls.WAITING, calls.READING]
IN_BLOCKS = ("Loops with new arrays",)  # of so many steps that each block includes a check
DISTURBED = 1.3  # on a quiet machine medians and best times agree better than that
Groups = dict[str, list[unit_report.Row]]


def main() -> int:
    """Measure, print, optionally write the page; return 1 if `--check` finds a budget exceeded."""
    options = parse()
    budget = tomllib.loads((HERE / "budgets.toml").read_text())["scale"]
    groups = measure_calls(options, budget)
    if "sciences" in options.sections:
        groups |= first_calls_of_sciences(options, budget)
    chains = plans.chains() if "chains" in options.sections else []
    plannings = measure_planning(options) if "planning" in options.sections else []
    facts = [*facts_of_programs(options), *facts_of_training(options, budget)]
    facts += facts_of_plans(plannings, budget)
    console = Console(width=140)
    for group, rows in groups.items():
        console.print(unit_report.table(group, rows, COLUMNS))
    console.print(report.listing("Chains", plans.CHAIN_HEADER, chains))
    console.print(report.listing("Planning", plans.PLANNING_HEADER, plannings))
    console.print(unit_report.fact_table(facts))
    found = report.violations(groups, facts, chains)
    for line in found:
        console.print(f"[red]over budget:[/red] {line}")
    if options.write:
        command = "python " + " ".join(sys.argv)
        page = report.page(groups, facts, chains, plannings, budget, command)
        options.write.write_text(page, encoding="utf-8")
    return int(options.check and bool(found))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, graphs up to 3000")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--rounds", type=int, help="default: 15, or 5 with --quick")
    parser.add_argument("--write", type=pathlib.Path, help="write a Markdown page")
    parser.add_argument("--check", action="store_true", help="exit with 1 if over budget")
    options = parser.parse_args()
    options.rounds = options.rounds or (5 if options.quick else 15)
    return options


def measure_calls(options: argparse.Namespace, budget: dict[str, float]) -> Groups:
    """Measure every row of every requested section."""
    later = budget["later_ratio"]
    judged = lambda name, grade: (
        first_ratio(name, budget) if f"{JUDGED_SIZE} equations" in name else None
    )
    always = lambda limit: lambda name, grade: limit
    fresh = lambda name, grade: budget[
        "flagged_ratio" if grade == "flagged" or "quantities" in name else "fresh_ratio"
    ]
    # Title, rows, the budget of a row, the number of rounds, the least time that is judged
    todo: list[tuple[str, str, Callable[[], dict[str, calls.Thunks]], Any, int, float]] = [
        ("first", "First calls", calls.first_calls, judged, max(5, options.rounds // 3), 0.0),
        ("later", "Later calls, the same array", lambda: calls.later_calls(False), always(later),
         options.rounds, 0.0),
        ("later", "Later calls, a new array each time", lambda: calls.later_calls(True),
         fresh, options.rounds, budget["fresh_us"]),
        ("later", "Calls with 100 quantities", calls.quantity_calls,
         lambda name, _: later if name.startswith("the same") else None, options.rounds, 0.0),
        ("new", "Loops with new arrays", calls.new_arrays, fresh, options.rounds,
         budget["fresh_us"]),
        ("sciences", "Sciences, the same arrays", lambda: calls.science_calls(False),
         always(later), options.rounds, 0.0),
        ("sciences", "Sciences, new arrays each time", lambda: calls.science_calls(True),
         fresh, options.rounds, budget["fresh_us"]),
        ("run", "Compiled programs on 10⁶ numbers", calls.runs, always(budget["run_ratio"]),
         options.rounds, 0.0),
    ]  # fmt: skip
    groups: Groups = {}
    for section, title, make, limit, rounds, least in todo:
        if section in options.sections:
            groups[title] = measure_group(title, make(), limit, rounds, least)
    return groups


def first_ratio(name: str, budget: dict[str, float]) -> float:
    """Return the budget of a first call: two programs are compiled if numbers leave the range."""
    is_out = name.startswith("out of range") or name.endswith("SI")
    return budget["first_out_ratio" if is_out else "first_ratio"]


def measure_group(
    title: str,
    rows: dict[str, calls.Thunks],
    limit: Callable[[str, str], float | None],
    rounds: int,
    least_us: float,
) -> list[unit_report.Row]:
    """Measure the rows of one table. Programs faster than `least_us` are not judged."""
    found, steps = [], calls.BLOCK if title in IN_BLOCKS else 0
    with Progress() as progress:
        for name, thunks in progress.track(rows.items(), description=title):
            times = interleave(thunks, rounds, span=2e-3, steps=steps)
            grade = calls.grade_of(thunks["tanjax"])
            allowed, name = limit(name, grade), f"{name} ({grade})" if grade else name
            row = make_row(title, name, times, allowed, least_us)
            if row.is_over or row.ratios["tanjax"] > DISTURBED * row.minima["tanjax"]:
                times = interleave(thunks, 3 * rounds, span=2e-3, steps=steps)
                row = make_row(title, name, times, allowed, least_us)
            found.append(row)
    return found


def make_row(
    title: str, name: str, times: Any, limit: float | None, least_us: float
) -> unit_report.Row:
    plain_us = times.median("plain") * 1e6
    others = [other for other in times.rounds if other != "plain"]
    ratios = {other: times.ratio(other, "plain") for other in others}
    minima = {other: times.ratio_of_minima(other, "plain") for other in others}
    limit = limit if plain_us >= least_us else None
    return unit_report.Row(title, name, plain_us, ratios, minima, limit)


def first_calls_of_sciences(options: argparse.Namespace, budget: dict[str, float]) -> Groups:
    """Measure first calls with JAX's caches of traces and operations warm, and cleared."""
    groups: Groups = {}
    for cold in (False, True):
        title = f"Sciences, first calls, caches {'cold' if cold else 'warm'}"
        times = calls.first_times(max(3, options.rounds // 3), cold=cold)
        groups[title] = [
            make_row(title, name, t, first_ratio(name, budget), 0.0) for name, t in times.items()
        ]
    return groups


def facts_of_training(
    options: argparse.Namespace, budget: dict[str, float]
) -> list[unit_report.Fact]:
    """Count the plans of ordinary loops of 1,000 steps, and measure their slowdown."""
    if "training" not in options.sections:
        return []
    facts = []
    for name, loop in scale_sciences.trainings().items():
        times, plans_made = calls.training(loop)
        made, looks = len(plans_made), sum(plan.looks for plan in plans_made)
        ratio = times.ratio("tanjax", "plain")
        in_all = sum(times.rounds["tanjax"]) / sum(times.rounds["plain"])
        step_us = 1e6 * times.median("plain") / calls.BLOCK
        measured = (
            f"{plans_made[-1].grade}; plans: {made}, looks: {looks}, {ratio:.2f} × a step of "
            f"{step_us:.0f} µs, {in_all:.2f} × with the first call"
        )
        is_long = step_us >= budget["long_step_us"]
        limit = budget["long_training_ratio" if is_long else "training_ratio"]
        over = max(made, looks) > 1 or in_all > limit
        allowed = f"1, {limit:g} × with the first call"
        facts.append(unit_report.Fact(f"1,000 steps of {name}", measured, allowed, over))
    return facts


def measure_planning(options: argparse.Namespace) -> list[plans.Planning]:
    """Return one row per program and size."""
    sizes = [n for n in PLANNED if n <= 3000 or not options.quick]
    todo = [(name, n) for name in programs.GRAPHS for n in sizes]
    plans.planning("chain", 100, 1)  # imports
    found = []
    with Progress() as progress:
        for name, n in progress.track(todo, description="planning"):
            found.append(plans.planning(name, n, 3 if n <= 10_000 else 1))
            jax.clear_caches()
    return found


def facts_of_programs(options: argparse.Namespace) -> list[unit_report.Fact]:
    if "run" not in options.sections:
        return []
    same_text, same_bits = calls.identical()
    facts = [
        unit_report.Fact(what, "identical" if same else "different", "identical", not same)
        for what, same in (("StableHLO in range", same_text), ("results in range", same_bits))
    ]
    seconds = scipy_seconds(3)
    return [*facts, unit_report.Fact("import of SciPy's HiGHS", f"{seconds:.2f} s", "", False)]


_IMPORT = """
import time, jax, scipy
start = time.perf_counter()
import scipy.optimize, scipy.sparse
print(time.perf_counter() - start)
"""


def scipy_seconds(rounds: int) -> float:
    """Return the start cost of the first integer program of a process, best of some."""
    run = lambda: subprocess.run(
        [sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True
    )
    return min(float(run().stdout) for _ in range(rounds))


def facts_of_plans(rows: list[plans.Planning], budget: dict[str, float]) -> list[unit_report.Fact]:
    """Return facts on assignments of about 10,000 equations, and on the growth of planning."""
    facts = []
    seconds, gap, most = (budget[k] for k in ("assignment_seconds", "assignment_gap", "growth"))
    for row in rows:
        if 5000 < row.equations < 20_000:
            name = f"assignment, {row.name}, {row.equations:,} equations"
            measured = f"{row.assignment:.2f} s, gap {100 * row.plan.gap:.1f} %"
            over = row.assignment > seconds or row.plan.gap > gap
            facts.append(unit_report.Fact(name, measured, f"{seconds:g} s, {100 * gap:g} %", over))
    for name, ratio in plans.growth(rows).items():
        what = f"planning per equation, {name}, largest to 1000"
        facts.append(unit_report.Fact(what, f"{ratio:.2f} ×", f"{most:g} ×", ratio > most))
    return facts


if __name__ == "__main__":
    sys.exit(main())
