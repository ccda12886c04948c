"""The result of `view.assign()`: the chosen exponents, and a proven bound of the best cost.

A plan keeps its exponents by index, for the compiler. This module returns them by name, with the
distance from the cheapest possible cost.

    tj.scale_graph(lambda x: x * x / 1e30)(jnp.float32(1e25)).assign()
    # 1 conversion, 0 numbers out of range (presolve, 0.001 s)
    # objective 1, proven at least 1, gap 0 %
    # x 0, a 64, b 0

Sharp edges: a reading out of range costs more than all conversions together. If it is unavoidable,
`gap` (of the whole objective) says little about conversions; `excess` measures them alone.
"""

from __future__ import annotations

from typing import NamedTuple

from .._plan import Plan
from ..assign._assign import Assignment, evaluate
from ..assign._problem import Solved

SHOWN = 8  # the most exponents in a `repr`


class Reading(NamedTuple):
    """One reading of a value: `reader` is the name of the reader's result, or `"result"`."""

    value: str
    reader: str
    exponent: int


class NamedExponents(Assignment):
    """An assignment by name; a number stored as `v` stands for `v · 2^exponent`.

    `values`: a dict by name, as in the report, without constants; `uses`: a `Reading` each.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        moved = {name: e for name, e in self.values.items() if e}
        shown = ", ".join(f"{name} {e}" for name, e in list(moved.items())[:SHOWN])
        more = f", and {len(moved) - SHOWN} more" if len(moved) > SHOWN else ""
        proven = f"objective {self.objective:g}, proven at least {self.bound:g}"
        excess = f" ({100 * self.excess:.2g} % of conversions)" if self.excess > self.gap else ""
        conversions = "conversion" if self.conversions == 1 else "conversions"
        return (
            f"{self.conversions} {conversions}, {self.violations} numbers out of range "
            f"({self.method}, {self.seconds:.3f} s)\n"
            f"{proven}, gap {100 * self.gap:.2g} %{excess}\n"
            f"{shown + more or 'every exponent is 0'}"
        )


def exponents_of(plan: Plan, names: dict[int, str], solved: list[Solved]) -> NamedExponents:
    """Return the exponents of a plan, with cost and bound from the solver.

    **Arguments:** `names`: of values, by index; `solved`: the problems solved for the plan, which
    uses one of the solutions, or plain floating point.
    """
    graph, at = plan.graph, plan.exponents.of
    values = {names[v.index]: at(v) for v in graph.values if v.is_floating and v.kind != "constant"}
    uses = tuple(
        Reading(names[u.value.index], names[u.node.outputs[0].index] if u.node else "result", at(u))
        for u in graph.uses
        if u.value.is_floating and u.value.kind != "constant" and (not u.node or u.node.outputs)
    )
    return NamedExponents(values, uses, *_in_plan(plan, solved)[2:])


def _in_plan(plan: Plan, solved: list[Solved]) -> Assignment:
    """Return the solution that a plan uses; zeros if it keeps plain floating point."""
    values, uses = map(list, plan.exponents[:2])
    for _, solution in solved:
        if solution.values.tolist() == values and solution.uses.tolist() == uses:
            return solution
    if not solved:
        return Assignment(values, uses, method=plan.method)
    problem, solution = solved[0]
    zeros = 0 * solution.values, 0 * solution.uses
    cost, *counts = evaluate(problem, *zeros)
    gap = (cost - solution.bound) / cost if cost else 0.0
    found = Assignment(*zeros, cost, solution.bound, gap, gap, seconds=solution.seconds)
    return found._replace(conversions=counts[0], violations=counts[1])
