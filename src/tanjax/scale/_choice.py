"""Choosing exponents for numbers that plain floating point loses.

Several demands are tried, the cheapest first, until nothing is lost: exponents at which all numbers
fit with room to spare, with less room, the largest, the ordinary or the smallest numbers of values
that no exponent holds. What counts is the results (`_judged.py`): exponents that lose an entry
which plain JAX has right are worse than none.

Sharp edge: one exponent belongs to a whole array, so that entries which are too far apart cannot be
had together; then plain floating point is kept, and an alarm says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._judged import Judged, unholdable
from .assign import _problem
from .assign._assign import Assignment
from .graph._graph import Node, ScaleGraph
from .magnitudes._evaluate import Evaluation
from .magnitudes._parts import needs_nothing
from .numbers import _range
from .replay._rewrites import guard


class Solved(NamedTuple):
    """What is known of an assignment of exponents."""

    conversions: int = 0
    method: str = "identity"
    gap: float = 0.0


def misfits(graph: ScaleGraph, free_outputs: Sequence[bool]) -> int:
    """How many results could leave at an exponent, and do not fit without."""
    pairs = zip(graph.outputs, free_outputs, strict=True)
    return sum(free and not _range.fits_at_zero(use.value) for use, free in pairs)


def assigned(
    graph: ScaleGraph,
    reference: Evaluation,
    arguments: Sequence[Any],
    free_outputs: Sequence[bool],
    time_limit: float,
    said: list[str],
    alarms: list[str],
) -> Solved | None:
    """Exponents that hold, or None if none are better than plain floating point.

    Exponents that lose an entry which plain JAX has right are worse, whatever else they hold.
    """
    said += unholdable(graph)
    plain = Judged.of(graph, reference, arguments, None)
    tries = _Tries(graph, reference, arguments, free_outputs, plain, time_limit)
    judged, solution = tries.best(_problem.DEMANDS)
    if judged.badness != (0, 0) and (hot := _tails(graph)):
        for node in hot:
            node.saturated = True
        other = tries.best(_problem.DEMANDS[-2:])
        if other[0].badness < judged.badness:
            judged, solution = other
        else:
            for node in hot:
                node.saturated = False
    missing = misfits(graph, free_outputs)
    is_worse = judged.worse or (judged.lost and judged.lost >= plain.lost + missing)
    if is_worse:
        said.append("no exponents hold these numbers together: plain floating point is kept.")
        _problem.clear(graph)
        for node in graph.walk():
            node.saturated = False
        judged = plain
    elif judged.lost:
        said.append(
            "some numbers are lost at any exponents: their range is too wide for the dtype."
        )
    if judged.lost:
        alarms.append(f"{judged.lost} entries of the results are wrong: {' '.join(said[-2:])}")
    if is_worse:
        return None
    if solution.method == "propagation":
        said.append(
            "the integer program ran out of time; exponents were propagated instead, so there may "
            "be more conversions than needed."
        )
    _problem.write(graph, solution.values, solution.uses)
    guard(graph)
    return Solved(solution.conversions, solution.method, solution.gap)


class _Tries(NamedTuple):
    """One program and its numbers, for which exponents are tried."""

    graph: ScaleGraph
    reference: Evaluation
    arguments: Sequence[Any]
    free_outputs: Sequence[bool]
    plain: Judged
    time_limit: float

    def best(self, demands: Sequence[_problem.Demand]) -> tuple[Judged, Assignment]:
        """The exponents that lose least, by the first demand at which nothing is lost."""
        found: tuple[Judged, Assignment] | None = None
        graph, alone, start = self.graph, needs_nothing(self.graph), time.thread_time()
        for demand in demands:
            left = self.time_limit - (time.thread_time() - start)
            left = max(self.time_limit / 10, left)
            solution = _problem.assign_exponents(graph, self.free_outputs, demand, left, alone)
            judged = Judged.of(graph, self.reference, self.arguments, self.plain)
            if found is None or judged.badness < found[0].badness:
                found = judged, solution
            if judged.badness == (0, 0):
                break
        assert found is not None
        return found


def _tails(graph: ScaleGraph) -> list[Node]:
    """Exponentials with entries so large that no exponent holds them beside the others.

    `exp(x) / (exp(x) + 1)**2` is inf / inf for these; at the largest number instead, it is 0.
    """
    return [
        node
        for node in graph.walk()
        if node.primitive in ("exp", "exp2", "expm1") and not _range.holds_together(node.outputs[0])
    ]
