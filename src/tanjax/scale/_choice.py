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
from typing import NamedTuple

from ._judged import Doubt, Judged, doubts_of, unholdable
from .assign import _problem
from .assign._assign import Assignment
from .graph._graph import Exponents, Magnitudes, ScaleGraph
from .magnitudes._evaluate import Evaluation, with_rounding
from .magnitudes._parts import needs_nothing
from .numbers import _range
from .replay._rewrites import guarded

ROUNDS = 4  # of equations that become undefined once others are not


class Solved(NamedTuple):
    """Exponents, and what is known of them."""

    exponents: Exponents
    conversions: int = 0
    method: str = "identity"
    gap: float = 0.0
    doubts: tuple[Doubt | None, ...] = ()


def misfits(graph: ScaleGraph, m: Magnitudes, free_outputs: Sequence[bool]) -> int:
    """How many results could leave at an exponent, and do not fit without."""
    pairs = zip(graph.outputs, free_outputs, strict=True)
    return sum(free and not _range.fits_at_zero(use.value, m) for use, free in pairs)


def assigned(
    graph: ScaleGraph,
    reference: Evaluation,
    free_outputs: Sequence[bool],
    time_limit: float,
    said: list[str],
    alarms: list[str],
) -> Solved | None:
    """Exponents that hold, or None if none are better than plain floating point.

    Exponents that lose an entry which plain JAX has right are worse, whatever else they hold.
    """
    m = reference.magnitudes
    said += unholdable(graph, m)
    plain = Judged.of(graph, reference, free_outputs)
    tries = _Tries(graph, reference, free_outputs, plain, time_limit)
    judged, solution, exponents = tries.best(_problem.DEMANDS)
    missing = misfits(graph, m, free_outputs)
    is_worse = judged.worse or (judged.lost and judged.lost >= plain.lost + missing)
    if is_worse:
        said.append("no exponents hold these numbers together: plain floating point is kept.")
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
    m = with_rounding(graph, reference)
    exponents = exponents._replace(guarded=guarded(graph, m, exponents))
    doubts = doubts_of(reference, judged, free_outputs) if judged.lost else ()
    return Solved(exponents, solution.conversions, solution.method, solution.gap, doubts)


class _Tries(NamedTuple):
    """One program and its numbers, for which exponents are tried."""

    graph: ScaleGraph
    reference: Evaluation
    free_outputs: Sequence[bool]
    plain: Judged
    time_limit: float

    def best(self, demands: Sequence[_problem.Demand]) -> tuple[Judged, Assignment, Exponents]:
        """The exponents that lose least, by the first demand at which nothing is lost."""
        found: tuple[Judged, Assignment, Exponents] | None = None
        graph, start = self.graph, time.thread_time()
        m = with_rounding(graph, self.reference)
        alone = needs_nothing(graph, m)
        for demand in demands:
            left = self.time_limit - (time.thread_time() - start)
            left = max(self.time_limit / 10, left)
            free = self.free_outputs
            solution = _problem.assign_exponents(graph, m, free, demand, left, alone)
            judged, exponents = self.defined(_problem.exponents_of(graph, solution))
            if found is None or judged.badness < found[0].badness:
                found = judged, solution, exponents
            if judged.badness == (0, 0):
                break
        assert found is not None
        return found

    def judged(self, exponents: Exponents) -> Judged:
        return Judged.of(self.graph, self.reference, self.free_outputs, exponents, self.plain)

    def defined(self, exponents: Exponents) -> tuple[Judged, Exponents]:
        """What exponents do, with the largest number instead of infinities where that helps.

        A gradient of an occupation has `1 / (exp(x) + 1)**2 * exp(x)`, which is 0 · inf in the
        tail; with the largest number it is 0. In `1 / (exp(x) + 1)` infinity is right.
        """
        best = self.judged(exponents), exponents
        judged = best[0]
        for _ in range(ROUNDS):
            new = judged.undefined - exponents.saturated
            if best[0].badness == (0, 0) or not new:
                break
            exponents = exponents._replace(saturated=exponents.saturated | new)
            judged = self.judged(exponents)
            if judged.badness < best[0].badness:
                best = judged, exponents
        return best
