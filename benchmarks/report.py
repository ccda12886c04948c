"""Tables of the benchmark, on the terminal and as a page of the documentation."""

from __future__ import annotations

import dataclasses
import datetime
import platform
from typing import Any

import jax
import jaxlib
import numpy as np
from rich.table import Table

import tanjax as tj


@dataclasses.dataclass
class Row:
    """One cell at one size."""

    structure: str
    operation: str
    n: int
    hand_us: float
    ratio: float
    ratio_of_minima: float
    dense: float
    scratch: dict[str, int]

    def values(self) -> list[str]:
        """Return the row as text."""
        return [
            f"{self.structure} {self.operation}",
            str(self.n),
            f"{self.hand_us:,.0f}",
            f"{self.ratio:.2f}",
            f"{self.ratio_of_minima:.2f}",
            f"{self.dense:,.1f}",
            *(_kib(self.scratch[name]) for name in ("tanjax", "hand", "dense")),
        ]


@dataclasses.dataclass
class Micro:
    """The costs before any arithmetic."""

    construct: dict[str, float]
    eager: dict[str, float]
    trace: dict[str, dict[str, float]]
    mirror: dict[int, float]


CELL_HEADER = ["cell", "n", "hand, µs", "tanjax / hand", "of minima", "dense / hand"]
SCRATCH_HEADER = [f"scratch {name}, KiB" for name in ("tanjax", "hand", "dense")]


def _kib(size: int) -> str:
    return f"{size / 1024:,.1f}"


def over_time(row: Row, budget: dict[str, Any]) -> bool:
    """True if a row exceeds the budget, by the median of ratios and by the ratio of minima."""
    limit = budget["time_ratio"]
    return row.n in budget["sizes"] and min(row.ratio, row.ratio_of_minima) > limit


def over_scratch(row: Row, budget: dict[str, Any]) -> bool:
    """True if a row needs more scratch memory than its budget."""
    limit = budget["scratch_ratio"] * row.scratch["hand"] + budget["scratch_slack_bytes"]
    return row.n in budget["sizes"] and row.scratch["tanjax"] > limit


def violations(rows: list[Row], small: Micro, budgets: dict[str, Any]) -> list[str]:
    """Return one line per exceeded budget."""
    cells, limits = budgets["cells"], budgets["micro"]
    found = []
    for row in rows:
        name = f"{row.structure} {row.operation}, n = {row.n}"
        if over_time(row, cells):
            found.append(f"{name}: {row.ratio:.2f} × hand (budget {cells['time_ratio']})")
        if over_scratch(row, cells):
            ours, hand = _kib(row.scratch["tanjax"]), _kib(row.scratch["hand"])
            found.append(f"{name}: {ours} KiB of scratch, hand {hand} KiB")
    for name, value in small.construct.items():
        if value > limits["construct_us"]:
            found.append(f"construct {name}: {value:.2f} µs (budget {limits['construct_us']})")
    for n, ratio in small.mirror.items():
        if ratio > cells["time_ratio"]:
            found.append(f"construct Symmetric, n = {n}: {ratio:.2f} × hand")
    for name, value in small.eager.items():
        if not name.startswith("jnp") and value > limits["eager_us"]:
            found.append(f"eager {name}: {value:.1f} µs (budget {limits['eager_us']})")
    for name, values in small.trace.items():
        if values["tanjax warm"] > limits["trace_ms"]:
            warm = values["tanjax warm"]
            found.append(f"trace {name}: {warm:.1f} ms (budget {limits['trace_ms']})")
    return found


# -- the terminal ------------


def cell_table(rows: list[Row], budget: dict[str, Any]) -> Table:
    """Return the cells, with values over budget in red."""
    table = Table(title="value and gradient under jit, float32")
    for i, title in enumerate([*CELL_HEADER, *SCRATCH_HEADER]):
        table.add_column(title, justify="left" if i == 0 else "right")
    for row in rows:
        values = row.values()
        if over_time(row, budget):
            values[3] = f"[red]{values[3]}[/red]"
        if over_scratch(row, budget):
            values[6] = f"[red]{values[6]}[/red]"
        table.add_row(*values, end_section=row.operation == "logdet")
    return table


def micro_table(small: Micro, budget: dict[str, Any]) -> Table:
    """Return construction, eager calls and tracing."""
    table = Table(title="before any arithmetic")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("budget", justify="right")
    for what, measured, limit in micro_rows(small, budget):
        table.add_row(what, measured, limit)
    return table


def micro_rows(small: Micro, budget: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, measured value and budget, as text."""
    rows = [
        (f"construct {k}", f"{v:.2f} µs", f"{budget['construct_us']:g} µs")
        for k, v in small.construct.items()
    ]
    rows += [
        (f"construct Symmetric, n = {n}, / hand", f"{ratio:.2f}", "")
        for n, ratio in small.mirror.items()
    ]
    rows += [
        (f"eager {k}", f"{v:.1f} µs", "" if k.startswith("jnp") else f"{budget['eager_us']:g} µs")
        for k, v in small.eager.items()
    ]
    for structure, values in small.trace.items():
        rows += [
            (
                f"trace solve and gradient, {structure}, {k}",
                f"{v:.1f} ms",
                f"{budget['trace_ms']:g} ms" if k == "tanjax warm" else "",
            )
            for k, v in values.items()
        ]
    return rows


# -- the page ------------

INTRODUCTION = """\
This page is for readers who ask what the generality of structured arrays costs. It compares
operations on array types with JAX that is written by hand for the structure, and with dense JAX.
Other pages measure [other libraries](benchmarks_peers.md), [quantities](benchmarks_units.md), the
[scale graph](benchmarks_scale.md), [mutation](benchmarks_mutation.md),
[captured programs](benchmarks_capture.md) and [PyTorch](benchmarks_torch.md).
"""

METHOD = """\
A cell is the value and gradient by the structure's own parameters, under `jit`, in float32. The
loss is a fixed inner product with the result, for
`sin_matmul` with its sines.

* The right-hand side has 64 columns, the low-rank update rank 8, and `Kronecker` two balanced
  factors. Blocks have 64 rows, and `Sparse` has eight places a row. A `Batch` is `n / 16` definite
  matrices of 16 rows.
* The loss of `logdet` is the result itself. Spectral cells compute $f(A) b$ by eigenvectors or
  singular vectors, or $A^{1/2} b$. The function $f$ is an exponential or a logarithm.
* **hand**: plain JAX, written for the structure (`benchmarks/hand.py`), with a `jax.custom_vjp` if
  that is faster than `jax.grad`. For `Symmetric` (positive definite here) it factors by Cholesky
  once, and symmetrises thin factors before it multiplies them. For `Triangular` it uses one mask.
  Its gradient is symmetric for `Symmetric` and masked for `Triangular`, as ours is.
* **dense**: the program forms the matrix from the parameters and calls `jnp`. Three rounds only.
* **tanjax**: `jax.value_and_grad` of the operation on the array type.

All contenders run in turn in one process with one thread. The benchmark compares their gradients
first. Times are processor time, which stands still while other jobs have the core. The ratio is
the median of the ratios within rounds. The ratio of the best times stands beside it. Scratch is
`temp_size_in_bytes` of the compiled program. A cell is over budget if both ratios are. Cells below
n = 512 are not judged: there the call costs as much as the arithmetic.

`Symmetric` has the promise `definite=True` here. Without it, `solve` and `logdet` use LU, with
twice the arithmetic.
"""


OVERHEADS = """\
Two causes are known. Python takes the instance of a compiled call apart and builds the gradient,
which costs up to 1 µs more than for a tuple. `Diagonal logdet` shows this: its program is that of
the hand-written code, and takes 8 µs. Small excesses are the noise of a busy machine: run it again.
"""


def page(
    rows: list[Row], small: Micro, found: list[str], budgets: dict[str, Any], command: str
) -> str:
    """Return the Markdown page."""
    cells, limits = budgets["cells"], budgets["micro"]
    text = [
        "# Benchmarks\n",
        INTRODUCTION,
        "<!-- written by benchmarks/bench_structured.py -->\n",
        f"`{command}` on {datetime.date.today().isoformat()}.\n",
        machine() + "\n",
        "## Method\n",
        METHOD,
        "## Structured operations\n",
        f"Budgets at n = {' and '.join(map(str, cells['sizes']))}: time at most "
        f"{cells['time_ratio']} × hand, scratch at most {cells['scratch_ratio']} × hand.\n",
        markdown([*CELL_HEADER, *SCRATCH_HEADER], [row.values() for row in rows]),
        "## Before any arithmetic\n",
        "Arrays have four entries. Times are the best of 25. `trace` is "
        "`jax.jit(jax.value_and_grad(f)).trace` of a fresh function. A warm trace has used the "
        "operations before, a cold one begins with empty caches.\n",
        markdown(["what", "measured", "budget"], [list(r) for r in micro_rows(small, limits)]),
        "## Over budget\n",
        OVERHEADS,
        "\n".join(f"* {line}" for line in found) + "\n" if found else "Nothing.\n",
    ]
    return "\n".join(text)


def machine() -> str:
    """Return versions and processor, without naming the machine."""
    cpu = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            cpu = next(s.split(":")[1].strip() for s in lines if s.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (
        f"tanjax {tj.__version__}, JAX {jax.__version__}, jaxlib {jaxlib.__version__}, "
        f"NumPy {np.__version__}, Python {platform.python_version()}; {cpu}, one thread, "
        "two cores shared with other jobs."
    )


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown, the first column to the left."""
    align = [":--", *["--:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, align, *rows]) + "\n"
