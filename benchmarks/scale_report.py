"""Tables of `bench_scale.py`, on the terminal and as a page of the documentation."""

from __future__ import annotations

import datetime
from typing import Any

import unit_report
from report import machine, markdown
from rich.table import Table
from scale_calls import READING, WAITING
from scale_plans import CHAIN_HEADER, PLANNING_HEADER, Chain, Planning

INTRODUCTION = """\
This page is for readers who ask what exponents cost. It compares `tj.jit` with `jax.jit` of the
same program on the same arrays of float32. The [ten rules](scale.md#ten-rules) explain its words.
The cost of eager operations is among the [benchmarks of quantities](benchmarks_units.md).
"""

METHOD = """\
Both run in turn in one process with one thread. The table shows the median over rounds of the ratio
within a round. A row is over budget if the ratio of the best times is, too, and if both are again
in a longer run.

* **In range**: products and sums that stay near 1. The plan is the identity, so JAX's own program
  runs.
* **Out of range**: every fourth equation leaves float32, so the planner assigns exponents. Plain
  JAX returns inf here; only its time is compared.
* **First calls** trace, plan, compile and run fresh functions, with JAX's caches of operations
  warm. If the program writes a zero, as `jnp.maximum(x, 0.0)`, tanjax watches its trace for numbers
  that JAX rounds to zero. The trace then takes 1.6 times as long, before Python 3.12 four times.
  Other traces take as long as with `jax.jit`. XLA takes most of the rest: constants that are hidden
  from it become arguments of its loops, and conversions become loops. The first integer program of
  a process also imports SciPy (below).
* **Later calls** with the same array only compare it with that of the last call. With a new array
  (`x = f(x)`), tanjax checks its numbers on the host: 3 µs for an array of up to 1000 numbers,
  0.5 µs for each of several, 0.3 ns for a number. Beyond 131,072 numbers in 16 arrays, or 262,144
  in fewer, one compiled program checks all of them, after the first 100 calls. Rows whose program
  takes less than {fresh:g} µs are not judged.
* *jax.jit, waiting* is plain JAX that waits for its results. *jax.jit, reading* is plain JAX that
  reads its arguments as fast as NumPy can while its program runs. A planned call
  [checks numbers](scale.md#what-it-costs) before it hands over results, so one of these two columns
  is the least cost of this promise. A row names the grade of its plan.
* **Loops** hand their state on (`p = f(p, batch)`), so JAX may still be computing their arguments.
* **Sciences** are an MLP step, attention, a convolution and an N-body step. *Caches cold* means
  `jax.clear_caches()` before each first call.
* **Training** runs 1,000 steps in blocks of 70, by turns with plain JAX. The first ratio is the
  median over blocks. The second is that of the whole times, with planning and compilation, and has
  the budget.
* **Planning** is in processor seconds, of graphs of traced programs whose numbers leave the range
  every few equations. *graph*, *magnitudes* and *assignment* are parts of *plan*. The rest compares
  the losses of plain floating point with those of the plan. The *gap* is proven: it bounds the
  excess of the cost of conversions over the least cost. The import of SciPy is excluded.
* **Chains** are of quantities. Errors are the largest relative errors, against the same chain in
  64-bit significands, with the constants of float32. quantax was measured once, on another day and
  in its own process.
"""

PUBLISHED = """\
quantax plans eagerly, on every call. A later call of a chain takes 6,000 times as long as in plain
JAX for 10 operations, and 52,000 times for 300. Planning takes 0.8 s for 1000 operations, 0.3 ms
per operation. quantax has no term for the range of unknown numbers: 3^100 on 10⁵ elements is inf.
On the chain with the factor 0.01 it inserts one conversion per step. The compiled program then runs
2.5 - 2.9 times as long.
"""


def listing(title: str, header: list[str], rows: list[Any]) -> Table:
    """Return a table of rows as text, with values over budget in red."""
    made = Table(title=title)
    for i, name in enumerate(header):
        made.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        made.add_row(*row.values(), style="red" if getattr(row, "is_over", False) else None)
    return made


def violations(
    groups: dict[str, list[unit_report.Row]], facts: list[unit_report.Fact], chains: list[Chain]
) -> list[str]:
    """Return one line per exceeded budget."""
    rows = [row for group in groups.values() for row in group]
    found = unit_report.violations(rows, facts)
    wrong = [c for c in chains if c.is_over]
    return found + [f"{c.name}: {c.conversions} conversions, error {c.error:.0e}" for c in wrong]


def page(
    groups: dict[str, list[unit_report.Row]],
    facts: list[unit_report.Fact],
    chains: list[Chain],
    plannings: list[Planning],
    budget: dict[str, float],
    command: str,
) -> str:
    """Return the Markdown page."""
    found = violations(groups, facts, chains)
    text = [
        "# Benchmarks of the scale graph\n",
        INTRODUCTION,
        "<!-- written by benchmarks/bench_scale.py -->\n",
        f"`{command}` on {datetime.date.today().isoformat()}. `make bench` runs it, too.\n",
        machine() + "\n",
        "## Method\n",
        METHOD.format(fresh=budget["fresh_us"]),
        "## Over budget\n",
        "\n".join(f"* {line}" for line in found) + "\n" if found else "Nothing.\n",
        "## Budgets on plans and programs\n",
        markdown(["what", "measured", "budget"], [[f.name, f.measured, f.budget] for f in facts]),
    ]
    for group, rows in groups.items():
        contenders = unit_report.measured(rows, ["tanjax", WAITING, READING])
        header = unit_report.header(contenders)
        text += [f"## {group}\n", markdown(header, [row.values(contenders) for row in rows])]
    if chains:
        rows_of_chains = [chain.values() for chain in chains]
        text += ["## Chains\n", markdown(CHAIN_HEADER, rows_of_chains), PUBLISHED]
    if plannings:
        values = [row.values() for row in plannings]
        text += ["## Planning\n", markdown(PLANNING_HEADER, values)]
    return "\n".join(text)
