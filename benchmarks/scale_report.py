"""Tables of `bench_scale.py`, on the terminal and as a page of the documentation."""

from __future__ import annotations

import datetime
from typing import Any

import unit_report
from report import machine, markdown
from rich.table import Table
from scale_calls import READING, WAITING
from scale_plans import CHAIN_HEADER, PLANNING_HEADER, Chain, Planning

METHOD = """\
`tj.jit` against `jax.jit` of the same program on the same arrays of float32, in turn in one
process with one thread; the ratio is taken within a round, and the median over rounds stands in
the table. A row is over budget if the ratio of the best times is, too, and if both are again in a
longer run.

* **in range**: products and sums that stay near 1. The plan is the identity, the program that
  runs is JAX's own.
* **out of range**: every fourth equation leaves float32, so exponents are assigned. Plain JAX
  gives inf; its time is that of the program we compare with, not of one that is right.
* **First calls** are of fresh functions, with JAX's caches of operations warm: trace, plan,
  compile, run. Where *a zero is written*, as in `jnp.maximum(x, 0.0)`, the trace is watched for
  numbers that are rounded to zero, and takes 1.6 times as long, before Python 3.12 four times;
  others are traced at the speed of `jax.jit`. Of the rest, XLA takes most: constants that are
  hidden from it become arguments of its loops, and conversions loops of their own. Where SciPy's
  integer program is needed for the first time in a process, its import comes on top (below).
* **Later calls** with the same array compare the argument with that of the last call. With a new
  one (`x = f(x)`), its numbers are looked at on the host to see whether the plan is right for
  them: about 3 µs for an array of up to 1000 numbers, 0.5 µs for each of several, 0.3 ns for a
  number, and a wait for those that are still being computed, which JAX alone leaves in its queue;
  *jax.jit, waiting* is plain JAX that waits, too, for its results. That is judged where the program
  itself takes {fresh:g} µs or more. Beyond
  131,072 numbers in 16 arrays, or 262,144 in fewer, one compiled program looks at all of them,
  after the first 100 calls.
* *jax.jit, reading* is plain JAX that starts its program and, while that runs, reads every number
  of its arguments as fast as NumPy can. No result is handed over before the numbers behind it were
  looked at, but for those that a loop hands back, so that one of these two columns is the least
  that this promise costs. The grade of the plan stands beside the name of a row: a flagged plan
  may take longer.
* **Loops** hand their state on (`p = f(p, batch)`), so that each call has arrays that may still
  be computed. **Sciences** are an MLP step, attention, a convolution and an N-body step; *caches
  cold* means `jax.clear_caches()` before each first call.
* **Training** runs 1,000 steps in blocks of 70, by turns with plain JAX; the ratio is the median
  over blocks, the second one that of the whole times, with compilation and planning, which has the
  budget.
* **Planning**: processor seconds, of graphs of traced programs with numbers out of range every
  few equations. *graph*, *magnitudes* and *assignment* are parts of *plan*; the rest is the
  comparison of what plain floating point would lose with what the plan does. The *gap* is proven:
  how far the cost of the conversions may be above the least possible. The import of SciPy is not
  in it.
* **Chains**: of quantities. Errors are the largest relative ones, against the same chain in
  64-bit significands, with the constants as float32 has them. quantax was measured once, on
  another day and in its own process; its numbers are quoted, not repeated.

Eager operations on quantities keep themselves in range, too; what they cost stands under
[benchmarks of quantities](benchmarks_units.md).
"""

PUBLISHED = """\
quantax plans eagerly, on every call, so that a later call of a chain takes 6,000 times as long as
in plain JAX for 10 operations and 52,000 times for 300. For 1000 operations it takes 0.8 s to
plan, 0.3 ms per operation. It has no term for the range of numbers it does not know: 3^100 on 10⁵
elements is inf. On the chain with the factor 0.01 it inserts one conversion per step, and the
compiled program runs 2.5 - 2.9 times as long.
"""


def listing(title: str, header: list[str], rows: list[Any]) -> Table:
    """Rows that know their text, with what is over budget in red."""
    made = Table(title=title)
    for i, name in enumerate(header):
        made.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        made.add_row(*row.values(), style="red" if getattr(row, "is_over", False) else None)
    return made


def violations(
    groups: dict[str, list[unit_report.Row]], facts: list[unit_report.Fact], chains: list[Chain]
) -> list[str]:
    """One line per exceeded budget."""
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
    """The Markdown page."""
    found = violations(groups, facts, chains)
    text = [
        "# Benchmarks of the scale graph\n",
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
