"""The cost of a program, equation by equation: a table to read, rows to compute with.

    table = tj.programs.passes.cost(tj.capture(f)(x))
    print(table)
    table.total.flops, table.rows[0].name

Bodies of loops, branches and calls have rows of their own below their equation; a row counts all
its runs. Sharp edges. Counts are those of the program as written, before XLA fuses and simplifies
it. A loop whose number of trips depends on data counts as one trip, and `≥` marks it. A branch
counts as its most expensive case.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tanjax._errors import CaptureError, describe, message
from tanjax.jaxprs import Kind, names_of

from .._equations import Body
from .._print import classes
from .._program import Program
from ._flops import Cost, cost_of_equation, trips
from ._keys import is_branch

if TYPE_CHECKING:
    from rich.table import Table

_WIDTH = 110
# Equations that run their programs; derivatives and maps run programs made from theirs.
_OPEN = (
    *names_of(Kind.SCAN, Kind.WHILE, Kind.BRANCH, Kind.JIT, Kind.CHECKPOINT),
    *("while_loop", "fori_loop", "for_loop", "switch", "map"),
)


@dataclasses.dataclass(frozen=True)
class CostRow:
    """One equation of a program.

    **Fields:** `depth`, the number of enclosing programs; `name` with the array types of the call;
    `type` of its results; `cost`, of all its runs; `times`, the number of runs (`None` if it
    depends on data); `lost`, the array types that it densifies; `source`; `kind`.
    """

    depth: int
    name: str
    type: str
    cost: Cost
    times: int | None
    lost: tuple[str, ...]
    source: str
    kind: str

    @property
    def flops(self) -> float:
        """The number of operations, of all runs."""
        return self.cost.flops

    @property
    def bytes(self) -> float:
        """The number of bytes read and written, of all runs."""
        return self.cost.bytes


class CostTable:
    """The rows of `tj.programs.passes.cost`: iterable, and printed as a table.

    **Fields:** `rows`; `total`, the `Cost` of the program.
    """

    def __init__(self, name: str, rows: list[CostRow]) -> None:
        self.name, self.rows = name, rows
        self.total = sum((row.cost for row in rows if not row.depth), Cost())

    def __iter__(self) -> Iterator[CostRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for name in ("equation", "gives"):
            table.add_column(name, overflow="fold")
        for name in ("runs", "flops", "bytes"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("becomes dense")
        table.add_column("line", overflow="fold")
        for row in self.rows:
            # The file without its folder.
            path, _, rest = row.source.partition(":")
            cells = [
                "  " * row.depth + row.name, row.type, _times(row.times), *_numbers(row.cost),
                ", ".join(row.lost), f"{path.rsplit('/', 1)[-1]}:{rest}" if row.source else "",
            ]  # fmt: skip
            table.add_row(*map(Text, cells), style="bold red" if row.lost else "")
        table.add_section()
        table.add_row("total", "", "", *_numbers(self.total), "", "", style="bold")
        return table

    def __str__(self) -> str:
        from rich.console import Console

        buffer = io.StringIO()
        Console(file=buffer, width=_WIDTH, color_system=None, force_jupyter=False).print(self)
        return "\n".join(line.rstrip() for line in buffer.getvalue().strip("\n").splitlines())

    def __repr__(self) -> str:
        return str(self)


def cost(program: Program) -> CostTable:
    """Count the operations of every equation of a program.

    **Arguments:** `program`: of `tj.capture`. **Returns:** a `CostTable`; print it, or compute with
    its `rows` and `total`.
    **Cost:** every equation is lowered, none compiled: some 10 ms each.
    **Raises:** `CaptureError` if the argument is no program.
    """
    if not isinstance(program, Program):
        raise CaptureError(
            message(
                "passes.cost: it takes a captured program.",
                f"got: {describe(program)}",
                hint="write `tj.programs.passes.cost(tj.capture(f)(x))`.",
            )
        )
    return CostTable(program.name, list(_rows(program, 0, 1, True)))


def _rows(program: Body, depth: int, times: int | None, exact: bool) -> Iterator[CostRow]:
    for equation in program:
        builds = equation.kind in ("construct", "field")  # from numbers, or it takes one out
        own = (Cost() if builds else cost_of_equation(equation.eqn)).times(times or 1)
        given = classes(equation)
        title = f"{equation.name}[{given[0]}]" if given else equation.name
        outs = ", ".join(v.type for v in equation.outputs if v is not None)
        inside = equation.programs if equation.name in _OPEN else {}
        count = trips(equation) if inside else 1
        yield CostRow(
            depth, title, outs, own if exact else own._replace(exact=False), times,
            equation.lost, equation.source, equation.kind,
        )  # fmt: skip
        for name, body in inside.items():
            if is_branch(equation):
                yield CostRow(depth + 1, f"{name}:", "", Cost(), times, (), "", "branch")
            more = None if times is None or count is None else times * count
            runs = more if more is not None else (times or 1) * (count or 1)
            yield from (
                row if more is not None else dataclasses.replace(row, times=None)
                for row in _rows(body, depth + 1, runs, exact and more is not None)
            )


def _times(count: int | None) -> str:
    return "?" if count is None else "" if count == 1 else str(count)


def _numbers(cost: Cost) -> tuple[str, str]:
    least = "" if cost.exact else "≥ "
    flops, size = (least + _short(x) if x else least.strip() for x in cost[:2])
    return flops, size


def _short(x: float) -> str:
    for unit in ("", " k", " M", " G", " T"):
        if x < 1000 or unit == " T":
            return f"{x:.0f}{unit}" if x >= 100 or not unit else f"{x:.3g}{unit}"
        x /= 1000
    return ""
