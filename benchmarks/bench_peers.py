"""Structured operations beside lineax, CoLA and TensorFlow Probability, if installed.

    python benchmarks/bench_peers.py [--quick] [--check] [--write docs/pages/benchmarks_peers.md]

The cells of `bench_structured.py` in the libraries of `peers.py`: value and gradient under `jit`,
in turn, in one process with one thread. Gradients are compared with hand-written JAX first.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip  first of all

import argparse
import dataclasses
import datetime
import logging
import pathlib
import sys
import time
import tomllib
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import peers
import report
from cells import CELLS, Cell, make_cell
from rich.console import Console
from rich.table import Table
from timing import check_agreement, interleave

import tanjax as tj

HERE = pathlib.Path(__file__).parent
TOLERANCE = 1e-3  # float32, relative to the largest entry
LONG = 0.3  # seconds: a slower cell is measured in three rounds
# Projections of any parameters, and of any gradient, onto those of the structure.
ONTO: dict[str, Callable[[Any], Any]] = {
    "Symmetric": lambda p: ((p[0] + p[0].T) / 2,),
    "Batch": lambda p: ((p[0] + p[0].mT) / 2,),
    "Triangular": lambda p: (jnp.tril(p[0]),),
}


@dataclasses.dataclass
class Row:
    """One cell at one size: the times of peers relative to ours, or the reason for none."""

    cell: Cell
    ours_us: float
    peers: dict[str, str]
    best: str = ""
    ratio: float = 0.0  # ours to the best peer's, the median of the ratios within rounds
    ratio_of_minima: float = 0.0

    def values(self, names: list[str]) -> list[str]:
        """Return the row as text."""
        ours = [f"{self.ratio:.2f}", f"{self.ratio_of_minima:.2f}"] if self.best else ["–", "–"]
        told = (self.peers.get(name, "–") for name in names)
        return [str(self.cell), str(self.cell.n), f"{self.ours_us:,.0f}", *told, *ours]


def main() -> int:
    """Measure, print, optionally write the page; return 1 if `--check` finds a faster peer."""
    options = parse()
    logging.getLogger("absl").setLevel(logging.ERROR)  # TFP logs where it is slow
    warnings.simplefilter("ignore")
    limit = tomllib.loads((HERE / "budgets.toml").read_text())["peers"]["time_ratio"]
    libraries, notes = peers.libraries(), dict[str, str]()
    present = [p for p in libraries if p.cells]
    rows = []
    with tj.densify("error"):
        for structure, operation in CELLS:
            takers = [p for p in present if (structure, operation) in p.cells]
            if takers and (options.structures is None or structure in options.structures):
                for n in options.sizes:
                    cell = make_cell(structure, operation, n)
                    rows.append(measure(cell, takers, notes, options.rounds))
                    print(*rows[-1].values([p.name for p in present]), sep="  ", flush=True)
    slower = [row for row in rows if row.cell.n >= 512 and is_over(row, limit)]
    lines = [f"{r.cell}, n = {r.cell.n}: {r.ratio:.2f} × {r.best}" for r in slower]
    show(rows, present, libraries, lines)
    if options.write:
        command = " ".join(sys.argv)
        options.write.write_text(page(rows, libraries, notes, lines, limit, command), "utf-8")
    return int(options.check and bool(lines))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, n = 512")
    parser.add_argument("--sizes", type=int, nargs="+", help="default: 512 2048")
    parser.add_argument("--structures", nargs="+", choices=sorted({s for s, _ in CELLS}))
    parser.add_argument("--rounds", type=int, help="default: 15, or 5 with --quick")
    parser.add_argument("--write", type=pathlib.Path, help="write a Markdown page")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a peer is faster")
    options = parser.parse_args()
    options.sizes = options.sizes or ([512] if options.quick else [512, 2048])
    options.rounds = options.rounds or (5 if options.quick else 15)
    return options


def is_over(row: Row, limit: float) -> bool:
    """True if the best peer is faster, by the median of ratios and by the ratio of minima."""
    return bool(row.best) and min(row.ratio, row.ratio_of_minima) > limit


# -- measuring -------------------------------------------------------------------------------------


def measure(cell: Cell, takers: list[peers.Peer], notes: dict[str, str], rounds: int) -> Row:
    """Return a row; contenders whose gradient is not that of the structure are not timed."""
    reference = compiled(cell.losses["hand"], cell.arguments["hand"])()
    functions = {"tanjax": compiled(ours(cell), cell.arguments["hand"])}
    check_agreement({"hand": reference, "tanjax": functions["tanjax"]()}, "hand", TOLERANCE)
    told: dict[str, str] = {}
    for peer in takers:
        loss = peer.cells[cell.structure, cell.operation]
        function, what = judged(loss, cell, reference)
        if function is None:
            told[peer.name] = what.split(":")[0]
            notes[f"{peer.name}, {cell}"] = what
        else:
            functions[peer.name], told[peer.name] = function, what
    times = timed(functions, rounds)
    row = Row(cell, times.median("tanjax") * 1e6, told)
    for name in set(functions) - {"tanjax"}:
        row.peers[name] = f"{1 / times.ratio('tanjax', name):.2f}{told[name]}"
    if len(functions) > 1:
        row.best = min(set(functions) - {"tanjax"}, key=times.median)
        row.ratio = times.ratio("tanjax", row.best)
        row.ratio_of_minima = times.ratio_of_minima("tanjax", row.best)
    return row


def ours(cell: Cell) -> peers.Loss:
    """Return our loss of plain arrays; it makes the array inside, as JAX does at a call."""
    kind, loss = jax.tree.structure(cell.arguments["tanjax"][0]), cell.losses["tanjax"]
    return lambda p, b, w: loss(jax.tree.unflatten(kind, jax.tree.leaves(p)), b, w)


def judged(loss: peers.Loss, cell: Cell, reference: Any) -> tuple[Callable[[], Any] | None, str]:
    """Return a compiled right gradient and a mark for projected ones, or the fault."""
    arguments, onto = cell.arguments["hand"], ONTO.get(cell.structure)
    try:
        function = compiled(loss, arguments)
        output = function()
    except Exception as error:  # any error of a library is reported
        return None, f"error: {type(error).__name__}: {str(error).splitlines()[0][:120]}"
    if agrees(output, reference):
        return function, ""
    if onto is not None:
        projected = compiled(lambda p, b, w: loss(onto(p), b, w), arguments)
        if agrees(projected(), reference):
            return projected, " †"
    return None, "wrong: its value or gradient is not that of hand-written code"


def agrees(output: Any, reference: Any) -> bool:
    """True if value and gradient are those of hand-written code."""
    try:
        check_agreement({"hand": reference, "peer": output}, "hand", TOLERANCE)
    except AssertionError:
        return False
    return True


def compiled(loss: peers.Loss, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    """Return a call of the compiled value and gradient."""
    function = jax.jit(jax.value_and_grad(loss))
    return lambda: function(*arguments)


def timed(functions: dict[str, Callable[[], Any]], rounds: int) -> Any:
    """Time all of them in turn; those slower than three times ours in three rounds only."""
    took = {name: _seconds(f) for name, f in functions.items()}
    rounds = 3 if took["tanjax"] > LONG else rounds
    few = {name: 3 for name, t in took.items() if t > 3 * took["tanjax"]}
    return interleave(functions, rounds, few=few, clock=time.process_time)


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


# -- report ----------------------------------------------------------------------------------------

INTRODUCTION = """\
This page is for readers who choose between tanjax, lineax, CoLA and TensorFlow Probability. It
compares the times of gradients of structured operations.
"""

METHOD = """\
The cells are those of the [benchmarks](benchmarks.md), in the libraries that have them. Each
contender makes its operator of the same arrays within the compiled program. All run in turn in one
process with one thread, in processor time. The benchmark first compares their gradients with
hand-written JAX. A number is the time of the library divided by that of tanjax, the median of the
ratios within rounds: above 1, tanjax is faster. `tanjax / best` is the time of tanjax divided by
that of the fastest library.

* **–**: the library lacks the operator or the operation. No library has `Dense svd`.
* **†**: the library's gradient leaves the structure: it is not symmetric, or not triangular. The
  timed program projects the parameters first, so that an optimiser stays inside.
* CoLA chooses iterative methods from a million entries on. The benchmark asks for the direct ones.
* lineax solves for vectors. Its cells are `jax.vmap` over the columns, with one factorisation.
"""


def show(
    rows: list[Row], present: list[peers.Peer], libraries: list[peers.Peer], lines: list[str]
) -> None:
    """Print the table on the terminal."""
    console, names = Console(width=120), [p.name for p in present]
    table = Table(title="time of peers / tanjax, value and gradient under jit, float32")
    for title in header(names):
        table.add_column(title, justify="left" if title == "cell" else "right")
    for row in rows:
        table.add_row(*row.values(names))
    console.print(table)
    for peer in libraries:
        console.print(peer.version or f"[red]{peer.name}[/red]", peer.reason)
    for line in lines:
        console.print(f"[red]a peer is faster:[/red] {line}")


def header(names: list[str]) -> list[str]:
    """Return the titles of the columns."""
    return ["cell", "n", "tanjax, µs", *names, "tanjax / best", "of minima"]


def page(
    rows: list[Row],
    libraries: list[peers.Peer],
    notes: dict[str, str],
    lines: list[str],
    limit: float,
    command: str,
) -> str:
    """Return the Markdown page."""
    names = [p.name for p in libraries if p.cells]
    versions = ", ".join(p.version for p in libraries if p.cells) or "none"
    text = [
        "# Benchmarks beside other libraries\n",
        INTRODUCTION,
        "<!-- written by benchmarks/bench_peers.py -->\n",
        f"`{command}` on {datetime.date.today().isoformat()}.\n",
        f"{report.machine()} Peers: {versions}.\n",
        "## Method\n",
        METHOD,
        "## Times\n",
        report.markdown(header(names), [row.values(names) for row in rows]),
        "## What did not run\n",
        "\n".join(not_run(libraries, notes)) + "\n",
        "## Where a peer is faster\n",
        f"A peer is faster if both ratios, of medians and of minima, are above {limit}.\n",
        "\n".join(f"* {line}" for line in lines) + "\n" if lines else "Nowhere.\n",
        "## How to run it\n",
        HOW,
    ]
    return "\n".join(text)


def not_run(libraries: list[peers.Peer], notes: dict[str, str]) -> list[str]:
    """Return libraries without cells, and cells without a time, with the reasons."""
    absent = [f"* {p.name}: {p.reason}." for p in libraries if p.reason]
    cells = [f"* {name}: {what}." for name, what in sorted(notes.items())]
    return absent + cells or ["Everything that the libraries have ran."]


HOW = """\
    pip install -e '.[bench-peers]'
    python benchmarks/bench_peers.py

`make bench` runs the comparison if a peer is installed, and prints a line if not. It needs a
nightly build of TensorFlow Probability: release 0.25 does not import beside JAX 0.12
(`jax.interpreters.xla.pytype_aval_mappings`). CoLA 0.0.7 installs a package that shadows another of
the same name (`plum`), so use a separate environment.
"""


if __name__ == "__main__":
    sys.exit(main())
