"""Tables of `bench_units.py`, on the terminal and as a page of the documentation."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from report import machine, markdown
from rich.table import Table


@dataclasses.dataclass
class Row:
    """One row: the time of plain JAX, and the relative time of each library."""

    group: str
    name: str
    plain_us: float
    ratios: dict[str, float]
    minima: dict[str, float]
    budget: float | None = None

    @property
    def is_over(self) -> bool:
        """True if tanjax exceeds the budget, by the median of ratios and by the ratio of minima."""
        if self.budget is None:
            return False
        return min(self.ratios["tanjax"], self.minima["tanjax"]) > self.budget

    def values(self, contenders: list[str]) -> list[str]:
        """Return the row as text."""
        ratios = [f"{self.ratios[c]:.2f}" if c in self.ratios else "-" for c in contenders]
        budget = "" if self.budget is None else f"{self.budget:g}"
        return [self.name, _time(self.plain_us), *ratios, budget]


@dataclasses.dataclass
class Fact:
    """A fact about the programs, or a single number."""

    name: str
    measured: str
    budget: str
    is_over: bool


def _time(us: float) -> str:
    return f"{us:.1f} µs" if us < 1000 else f"{us / 1000:.1f} ms"


def violations(rows: list[Row], facts: list[Fact]) -> list[str]:
    """Return one line per exceeded budget."""
    found = [
        f"{r.group}, {r.name}: {r.ratios['tanjax']:.2f} × plain JAX (budget {r.budget:g})"
        for r in rows
        if r.is_over
    ]
    return found + [f"{f.name}: {f.measured} (budget {f.budget})" for f in facts if f.is_over]


def measured(rows: list[Row], contenders: list[str]) -> list[str]:
    """Return the contenders that have a number in some row."""
    return [c for c in contenders if any(c in row.ratios for row in rows)]


def table(group: str, rows: list[Row], contenders: list[str]) -> Table:
    """Return one group, with values over budget in red."""
    contenders = measured(rows, contenders)
    made = Table(title=group)
    for i, title in enumerate(header(contenders)):
        made.add_column(title, justify="left" if i == 0 else "right")
    for row in rows:
        values = row.values(contenders)
        if row.is_over:
            place = 2 + contenders.index("tanjax")
            values[place] = f"[red]{values[place]}[/red]"
        made.add_row(*values)
    return made


def header(contenders: list[str]) -> list[str]:
    """Return the titles of the columns."""
    return ["what", "plain JAX", *(f"{c}, ×" for c in contenders), "budget, ×"]


def fact_table(facts: list[Fact]) -> Table:
    """Return facts that are not ratios."""
    made = Table(title="programs and import")
    for title in ("what", "measured", "budget"):
        made.add_column(title)
    for fact in facts:
        made.add_row(fact.name, fact.measured, fact.budget)
    return made


INTRODUCTION = """\
This page is for readers who ask what units cost. It compares quantities with plain JAX and with
other unit libraries: eager calls, compiled calls, and traces.
"""

METHOD = """\
All contenders run in turn in one process with one thread, with three numbers per array in float32.
The table shows the median over rounds of the ratio to plain JAX within a round. A row is over
budget if the ratio of the best times is, too, and if both are again in a longer run. The benchmark
repeats rows whose median and best times disagree.

* Plain JAX computes with bare numbers and converts nothing. So rows that convert kilometres to
  metres include the price of the conversion.
* `-`: the library lacks the function or refuses the call.
* **tanjax** uses `tanjax.numpy`, `tj.jit` and `tj.grad`. The column *jax.jit* is plain `jax.jit` on
  our quantities.
* **unxt** runs through `quaxed`, and **saiunit** through its own `math`, `linalg`, `fft` and
  `autograd`. `jax.jit` compiles both.
* `1 argument` to `100 arguments, 100 results` call functions that were compiled before. Traces are
  of fresh functions, with JAX's caches of operations warm. A trace is mostly JAX's own work, so a
  ratio near 1 means that quantities add no visible time.
"""


def page(
    groups: dict[str, list[Row]],
    facts: list[Fact],
    contenders: list[str],
    versions: str,
    missing: list[str],
    command: str,
) -> str:
    """Return the Markdown page."""
    rows: list[Any] = [row for group in groups.values() for row in group]
    found = violations(rows, facts)
    text = [
        "# Benchmarks of quantities\n",
        INTRODUCTION,
        "<!-- written by benchmarks/bench_units.py -->\n",
        f"`{command}` on {datetime.date.today().isoformat()}. `make bench` runs it, too.\n",
        f"{machine()} {versions}\n",
        *(f"{line}\n" for line in missing),
        "## Method\n",
        METHOD,
        "## Over budget\n",
        "\n".join(f"* {line}" for line in found) + "\n" if found else "Nothing.\n",
        "## Programs and import\n",
        markdown(["what", "measured", "budget"], [[f.name, f.measured, f.budget] for f in facts]),
    ]
    for group, lines in groups.items():
        shown = measured(lines, contenders)
        values = [row.values(shown) for row in lines]
        text += [f"## {group}\n", markdown(header(shown), values)]
    return "\n".join(text)
