"""Choose exponents for numbers that plain floating point loses.

The planner tries several demands, the cheapest first, until no entry is lost. The first ones hold
all numbers with much room, the next with less. The last ones hold the largest, the ordinary or the
smallest numbers of values that no exponent holds. Only the results decide (`_judged.py`): exponents
that lose an entry which plain JAX has right are worse than none.

Sharp edge: one exponent belongs to a whole array, so it cannot hold entries that are too far apart.
Then plain floating point is kept, with an alarm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ._judged import Doubt, Judged, doubts_of, unholdable
from .assign import _problem
from .assign._assign import Assignment
from .graph._graph import ZERO, Exponents, Magnitude, Magnitudes, ScaleGraph
from .laws import _range
from .laws._rewrites import guarded
from .magnitudes._evaluate import rounded
from .magnitudes._evaluation import Evaluation
from .magnitudes._parts import needs_nothing

# Demands to try on a sampled loop. Each runs the sample once more: a second for long loops.
_GUESSES = 2
ROUNDS = 4  # The most rounds of saturation: each can make other equations undefined.
# Equations of all runs at exponents; promise: 10,000 that no exponents hold are planned in 2 s.
RUNS = 40_000

Doubts: TypeAlias = tuple[Doubt | None, ...]  # by result, None if plain JAX is not asked


class Chosen(NamedTuple):
    """Chosen exponents, with their cost, gap and doubts."""

    exponents: Exponents
    conversions: int = 0
    method: str = "identity"
    gap: float = 0.0
    doubts: Doubts = ()


def misfits(graph: ScaleGraph, m: Magnitudes, free_outputs: Sequence[bool]) -> int:
    """Return the number of free results that do not fit at exponent 0."""
    pairs = zip(graph.outputs, free_outputs, strict=True)
    return sum(free and not _range.fits_at_zero(use.value, m) for use, free in pairs)


def with_rounding(graph: ScaleGraph, reference: Evaluation) -> Magnitudes:
    """Return magnitudes that include rounding: the rest of a cancellation is mostly rounding."""
    if not reference.complete or reference.estimated:
        return reference.magnitudes
    pairs = zip(reference.magnitudes, rounded(graph, reference).magnitudes, strict=True)
    return [_of_both(exact, coarse) for exact, coarse in pairs]


def _of_both(exact: Magnitude | None, coarse: Magnitude | None) -> Magnitude:
    if exact is None or coarse is None or coarse.is_zero:
        return exact or coarse or ZERO  # in a branch that is not taken any exponent is right
    if not exact.is_zero and exact.low - 1 < coarse.low and coarse.high < exact.high + 1:
        return exact
    return Magnitude(coarse.low, max(exact.high, coarse.high), True)


def assigned(
    graph: ScaleGraph,
    reference: Evaluation,
    free_outputs: Sequence[bool],
    said: list[str],
    alarms: list[str],
) -> Chosen | None:
    """Return the best exponents, or None if plain floating point is as good.

    Exponents that lose an entry which plain JAX has right are worse in any case.
    """
    m = reference.magnitudes
    said += unholdable(graph, m)
    plain = Judged.of(graph, reference, free_outputs)
    tries = _Tries(graph, reference, free_outputs, plain, RUNS)
    judged, solution, exponents = tries.best(_problem.DEMANDS)
    missing = misfits(graph, m, free_outputs)
    is_worse = (
        judged.endless or judged.worse or (judged.lost and judged.lost >= plain.lost + missing)
    )
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
    m = with_rounding(graph, reference)
    hidden = guarded(graph, m, exponents)
    exponents = exponents._replace(guarded=exponents.guarded | hidden)
    can_ask = judged.lost and not plain.endless  # an endless plain JAX gives no answer
    doubts = doubts_of(reference, judged, free_outputs) if can_ask else ()
    method = "guarded" if _is_zero(exponents) else solution.method
    return Chosen(exponents, solution.conversions, method, solution.gap, doubts)


def _is_zero(e: Exponents) -> bool:
    """True if all exponents are 0, and the plan only guards nodes."""
    return bool(e.guarded) and not (e.saturated or any(e.values) or any(e.uses))


@dataclasses.dataclass
class _Tries:
    """One program and its numbers, and the trials of exponents for them."""

    graph: ScaleGraph
    reference: Evaluation
    free_outputs: Sequence[bool]
    plain: Judged
    left: int  # equations that may still be run

    def best(self, demands: Sequence[_problem.Demand]) -> tuple[Judged, Assignment, Exponents]:
        """Return the exponents that lose the fewest entries; stop at the first without a loss."""
        found: tuple[Judged, Assignment, Exponents] | None = None
        graph, m = self.graph, with_rounding(self.graph, self.reference)
        alone = needs_nothing(graph, m)
        if self.reference.estimated:  # no run shows the harmless small numbers: hold all
            demands = [demand for demand in demands if demand.strict][:_GUESSES]
        for demand in demands:
            solution = _problem.assign_exponents(graph, m, self.free_outputs, demand, alone)
            judged, exponents = self.defined(_problem.exponents_of(graph, solution))
            if found is None or judged.badness < found[0].badness:
                found = judged, solution, exponents
            if judged.is_right or self.left <= 0:
                break
        assert found is not None
        return found

    def judged(self, exponents: Exponents) -> Judged:
        self.left -= sum(1 for _ in self.graph.walk())
        return Judged.of(self.graph, self.reference, self.free_outputs, exponents, self.plain)

    def defined(self, exponents: Exponents) -> tuple[Judged, Exponents]:
        """Judge exponents, with the largest number instead of infinities if that helps.

        A gradient of an occupation has `1 / (exp(x) + 1)**2 * exp(x)`, which is 0 · inf in the
        tail; with the largest number it is 0. In `1 / (exp(x) + 1)` infinity is right. Before that,
        products of many numbers whose parts leave the range get separate exponents.
        """
        best = self.judged(exponents), exponents
        judged = best[0]
        for _ in range(ROUNDS):
            new, parts = judged.undefined - exponents.saturated, judged.parts
            if best[0].is_right or not (new or parts) or self.left <= 0:
                break
            if parts:  # guarded nodes have none
                exponents = exponents._replace(guarded=exponents.guarded | parts)
            else:
                exponents = exponents._replace(saturated=exponents.saturated | new)
            judged = self.judged(exponents)
            if judged.badness < best[0].badness:
                best = judged, exponents
        return best
