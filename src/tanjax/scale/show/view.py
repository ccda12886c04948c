"""The view of a planned scale graph that users get."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, NamedTuple

from tanjax._typing import AnyArray

from .._plan import Plan, plan
from ..assign._problem import recorded
from ..graph._build import build
from ..graph._graph import Jaxpr, ScaleGraph
from ..numbers._hosts import Argument
from ._exponents import NamedExponents, exponents_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ._rows import Facts


class Source(NamedTuple):
    """The parts of a scale graph: a program, its numbers, and their names."""

    name: str
    closed: Jaxpr
    arguments: tuple[Argument, ...]
    free_outputs: tuple[bool, ...]
    restored: dict[int, AnyArray]
    notes: tuple[str, ...]
    argument_names: tuple[str, ...]
    output_names: tuple[str, ...]


class GraphView:
    """The scale graph of a function for given arguments: the result of `tj.scale_graph(f)(*args)`.

    It is planned on its first use. `print(view)` shows the table; a notebook shows it as a page.
    """

    def __init__(self, traced: Source) -> None:
        self._traced = traced
        self._plan: Plan | None = None

    def assign(self, *, thorough: bool = False) -> NamedExponents:
        """Estimate magnitudes and solve for exponents, again if there is a plan.

        **Arguments:** `thorough`: run large programs on numbers, too, instead of bounding them.
        **Returns:** integers by name, with objective, bound and gap.
        """
        t = self._traced
        with recorded() as solved:
            self._plan = plan(
                t.closed,
                t.arguments,
                t.free_outputs,
                graph=build(t.closed, t.restored),
                notes=t.notes,
                thorough=thorough,
            )
        from ._rows import names_of

        names = names_of(self._plan.graph, self._facts())
        return exponents_of(self._plan, names, solved)

    @property
    def plan(self) -> Plan:
        """The plan: `identity`, `conversions`, `method`, `gap`, `notes` and more."""
        if self._plan is None:
            self.assign()  # sets `_plan`
        assert self._plan is not None
        return self._plan

    @property
    def graph(self) -> ScaleGraph:
        """The graph itself: nodes, values, uses; numbers about them are in the plan."""
        return self.plan.graph

    def report(self, *, file: IO[str] | None = None, width: int | None = None) -> str:
        """Return a table: value, source line, magnitude, exponent, loss in plain JAX.

        With `file`, the table is printed there too, in colour on a terminal.
        """
        from ._report import report

        return report(self.graph, self._facts(), file=file, width=width)

    def show(self) -> None:
        """Print the report to the terminal."""
        self.report(file=sys.stdout)

    def to_dot(self) -> str:
        """Return the graph in the language of Graphviz."""
        from ._dot import to_dot

        return to_dot(self.graph, self._facts())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the magnitudes of all values against the range of their dtype: Matplotlib `Axes`."""
        from ._draw import plot

        return plot(self.graph, self._facts(), ax)

    def to_html(self) -> str:
        """Return a whole HTML page with picture and table."""
        from ._html import to_html

        return to_html(self.graph, self._facts())

    def _repr_html_(self) -> str:
        from ._html import to_fragment

        return to_fragment(self.graph, self._facts())

    def __str__(self) -> str:
        return self.report()

    def __repr__(self) -> str:
        state = "not planned" if self._plan is None else self._plan.method
        count = len(self._traced.closed.eqns)
        return f"<scale graph of {self._traced.name}: {count} equations, {state}>"

    def _facts(self) -> Facts:
        from ._rows import Facts

        plan, t = self.plan, self._traced
        return Facts(
            name=t.name,
            magnitudes=plan.magnitudes,
            exponents=plan.exponents,
            identity=plan.identity,
            method=plan.method,
            seconds=plan.seconds,
            gap=plan.gap,
            conversions=plan.conversions,
            lost=plan.lost,
            notes=plan.notes,
            argument_names=t.argument_names,
            output_names=t.output_names,
        )
