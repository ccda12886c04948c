"""`python -m tanjax`: check a package, list the rules.

python -m tanjax check tanjax_rules -k solve --jobs 4
python -m tanjax rules tanjax_rules
python -m tanjax rules --algebra --markdown
python -m tanjax rules --markdown
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import importlib
import multiprocessing
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tanjax import registry

from ._algebra import algebra_markdown, algebra_tables
from ._cases import Check, checks_of
from ._record import CheckResult
from ._support import support_markdown

DEFAULT = "tanjax_rules"


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Run a command; return exit status 0 for success, 1 after a failure, 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m tanjax", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="check the rules and array types of packages")
    check.add_argument("packages", nargs="*", default=[DEFAULT], metavar="PACKAGE")
    check.add_argument("-k", dest="pattern", default="", help="only checks whose name contains it")
    check.add_argument("--quiet", action="store_true", help="only failures and the last line")
    check.add_argument("-j", "--jobs", type=int, default=1, help="how many processes (1)")
    rules = commands.add_parser(
        "rules", help="list operations, types, rules and where they come from"
    )
    rules.add_argument("packages", nargs="*", metavar="PACKAGE", help="only what these register")
    rules.add_argument("--algebra", action="store_true", help="the type that each pair returns")
    rules.add_argument(
        "--markdown", action="store_true", help="as a page: of support, or with --algebra"
    )
    options = parser.parse_args(arguments)
    # A console whose output is a file would limit tables to 80 columns.
    console = console or Console(width=None if Console().is_terminal else 160)
    if options.command == "rules" and options.algebra:
        return show_algebra(console, options.markdown)
    if options.command == "rules" and options.markdown:
        print(support_markdown(), end="")
        return 0
    if options.command == "rules":
        return list_rules(console, options.packages)
    jax.config.update("jax_enable_x64", True)
    return check_packages(
        console, options.packages, options.pattern, options.quiet, jobs=options.jobs
    )


# -- check ---------------------------------------------------------------------------------------


def check_packages(
    console: Console, packages: Sequence[str], pattern: str, quiet: bool, jobs: int = 1
) -> int:
    """Check packages, with a progress bar and a table; return 1 if a check failed."""
    started, checks, failures = time.perf_counter(), list[Check](), list[tuple[str, str]]()
    for package in packages:
        try:
            found = checks_of(package)
        except Exception as error:
            failures.append((package, f"{type(error).__name__}: {error}"))
            continue
        chosen = [c for c in found if pattern.lower() in c.name.lower()]
        if not chosen:
            failures.append((package, f"no check of {package} has {pattern!r} in its name"))
        checks += chosen
    rows = _run(console, checks, failures, quiet, jobs)
    if rows and not quiet:
        console.print(_results_table(rows))
    for name, text in failures:
        console.print(f"\n[bold red]FAILED[/] {name}", highlight=False)
        console.print(text, markup=False, highlight=False)
    for check, result, _ in rows:
        for text in result.warnings if result else ():
            console.print(f"[yellow]warning[/] {check.name}: {text}", highlight=False)
    scalars = sum(r.scalars for _, r, _ in rows if r)
    console.print(
        f"{len(checks)} checks, {len(failures)} failed, {scalars} scalars compared, "
        f"{time.perf_counter() - started:.0f} s",
        style="bold red" if failures else "bold green",
        highlight=False,
    )
    return 1 if failures else 0


Row = tuple[Check, CheckResult | None, float]


def _run(
    console: Console, checks: list[Check], failures: list[tuple[str, str]], quiet: bool, jobs: int
) -> list[Row]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    rows: list[Row] = []
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=quiet, transient=True
    ) as progress:
        task = progress.add_task("checking", total=len(checks))
        for check, (result, failure, seconds) in zip(checks, _outcomes(checks, jobs), strict=True):
            progress.update(task, description=check.name[:48].ljust(48))
            if result is None:
                failures.append((check.name, failure))
            rows.append((check, result, seconds))
            progress.advance(task)
    return rows


Outcome = tuple[CheckResult | None, str, float]


def _outcomes(checks: list[Check], jobs: int) -> Iterator[Outcome]:
    """Run checks in order, here or in several processes."""
    if jobs <= 1:
        yield from map(_outcome, checks)
        return
    # JAX is not safe to fork; a fresh process finds its checks again by package and name.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from pool.map(_elsewhere, [(c.package, c.place) for c in checks])


def _outcome(check: Check) -> Outcome:
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return check.run(), "", time.perf_counter() - started
    except Exception as error:
        return None, f"{type(error).__name__}: {error}", time.perf_counter() - started


def _elsewhere(where: tuple[str, int]) -> Outcome:
    package, place = where
    jax.config.update("jax_enable_x64", True)
    return _outcome(_found(package)[place])


_found = functools.cache(checks_of)


def _results_table(rows: list[Row]) -> Table:
    table = Table("check", "derivative", title="tanjax check", highlight=False)
    for name in ("stages", "scalars", "worst error", "seconds"):
        table.add_column(name, justify="right")
    table.add_column("result")
    for check, result, seconds in rows:
        if result is None:
            table.add_row(check.name, "", "", "", "", f"{seconds:.1f}", "[bold red]failed[/]")
            continue
        note = f" (skipped: {', '.join(result.skipped)})" if result.skipped else ""
        note += "".join(f" ({text})" for text in result.notes)
        table.add_row(
            check.name,
            result.derivative,
            str(len(result.stages)),
            str(result.scalars),
            f"{result.worst_error:.0e}",
            f"{seconds:.1f}",
            f"[green]ok[/]{note}",
        )
    return table


# -- rules ---------------------------------------------------------------------------------------


def list_rules(console: Console, packages: Sequence[str] = ()) -> int:
    """Print all registrations and rule packs, or those of some packages.

    **Returns:** 1 if a package registers nothing.
    """
    for name in packages:
        importlib.import_module(name)
    packs = registry.packs()
    table = Table("operation", "types", "kind", "origin", title="registrations", highlight=False)
    for op in registry.operations():
        for types, kind, origin in registrations(op):
            if not packages or any(_of(origin, name) for name in packages):
                table.add_row(op.name, types, kind, origin)
    console.print(table)
    found = Table("pack", "version", "module", "state", title="rule packs", highlight=False)
    for pack in packs:
        if packages and not any(_of(pack.module, name) for name in packages):
            continue
        state = f"[red]skipped: {pack.error}[/]" if pack.error else "[green]loaded[/]"
        found.add_row(pack.origin, pack.version or "(source tree)", pack.module, state)
    console.print(found)
    return 0 if table.row_count else 1


def show_algebra(console: Console, markdown: bool) -> int:
    """Print the closed algebra: the result type for every pair of array types."""
    if markdown:
        print(algebra_markdown(), end="")
        return 0
    for title, (head, *rows) in algebra_tables():
        table = Table(*head, title=title, highlight=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    return 0


def _of(origin: str, package: str) -> bool:
    """True if an origin such as `tanjax:linalg: my_rules.solve.rule` is inside a package."""
    return f".{package}." in f".{origin.split(': ')[-1]}."


def registrations(op: registry.Operation) -> list[tuple[str, str, str]]:
    """Return the registrations of an operation: types, kind and origin."""
    rows = [("any (dense)" if op.dense else "any", "implementation (generic)", op.origin)]
    if op.generic is None:
        rows = []
    tables: tuple[tuple[str, Any], ...] = (
        ("implementation", op.implementations),
        ("natural rule", op.rules),
        ("natural pushforward", op.pushforwards),
        ("opt-out", op.opt_outs),
    )
    for kind, table in tables:
        for row in table.rows.values():
            types = ", ".join(c.__name__ for c in row.signature) or "any"
            by_ad = getattr(row.entry, "differentiate", False)
            rows.append((types, f"{kind}, AD" if by_ad else kind, row.origin))
    return rows
