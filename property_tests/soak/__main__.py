"""`python -m property_tests.soak`: hunt for wrong numbers of `tj.jit` for some minutes.

python -m property_tests.soak --minutes 10
python -m property_tests.soak --seed 17 --programs 1 --dtype float16
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from ._hunt import Outcome, entry, family, hunt, report
from ._programs import DTYPES
from ._run import Tally


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m property_tests.soak", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; default 10")
    parser.add_argument("--programs", type=int, help="stop after so many seeds")
    parser.add_argument("--seed", type=int, help="the first seed; default: from the clock")
    parser.add_argument("--dtype", choices=list(DTYPES), action="append", help="default: all")
    parser.add_argument("--shrink", type=float, default=15.0, help="seconds for each failure")
    parser.add_argument("--log", type=Path, help="a file of JSON lines, one for each program")
    parser.add_argument("--eager", action="store_true", help="quantities outside of tj.jit")
    parser.add_argument("--quiet", action="store_true", help="only new families and the summary")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Hunt, and return the exit status: 0 without a failure, 1 otherwise."""
    console = console or Console()
    chosen = options(arguments)
    first = int(time.time()) % 1_000_000 if chosen.seed is None else chosen.seed
    seeds = itertools.islice(itertools.count(first), chosen.programs)
    end = time.monotonic() + 60 * chosen.minutes
    tally, families, errors, programs = Tally(), Counter[str](), 0, 0
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=chosen.quiet, transient=True) as progress:
        task = progress.add_task(f"seed {first}", total=None)
        dtypes = chosen.dtype or list(DTYPES)
        for outcome in hunt(dtypes, seeds, seconds=chosen.shrink, eager=chosen.eager):
            programs += 1
            tally.add(outcome.tally)
            errors += outcome.error is not None
            _show(console, outcome, families)
            if chosen.log is not None:
                with chosen.log.open("a") as log:
                    log.write(entry(outcome) + "\n")
            progress.update(
                task,
                description=f"seed {outcome.seed}: {programs} programs, {tally.calls} calls, "
                f"{tally.found} entries found, {sum(families.values())} failures "
                f"in {len(families)} families",
            )
            if time.monotonic() > end:
                break
    _summary(console, programs, tally, families, errors)
    return 1 if families or errors else 0


def _show(console: Console, outcome: Outcome, families: Counter[str]) -> None:
    """Print the first failure of each family in full, and no others."""
    if outcome.error is not None:
        console.rule(f"seed {outcome.seed}, {outcome.dtype}: not run")
        console.print(outcome.error, markup=False, highlight=False)
    if outcome.failure is None:
        return
    name = family(outcome.failure)
    families[name] += 1
    if families[name] == 1:
        console.rule(f"seed {outcome.seed}: {name}")
        console.print(report(outcome.failure), markup=False, highlight=False, soft_wrap=True)


def _summary(
    console: Console, programs: int, tally: Tally, families: Counter[str], errors: int
) -> None:
    if families:
        table = Table("family", "failures", title="what was found", highlight=False)
        for name, count in families.most_common():
            table.add_row(name, str(count))
        console.print(table)
    console.print(
        f"{programs} programs, {tally.calls} calls, {tally.entries} entries "
        f"({tally.sharp} judged sharply, {tally.found} right where plain JAX is wrong, "
        f"{tally.excused} wrong with a warning), {tally.unusable} not judged, {errors} not run, "
        f"{sum(families.values())} failures in {len(families)} families",
        style="bold red" if families or errors else "bold green",
        highlight=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    sys.exit(main())
