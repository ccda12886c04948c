"""Draw windows around the numbers of a look; inside them a plan loses no number.

    windows = find(graph, Exponents.none(graph), magnitudes_of_arguments, magnitudes)
    windows.arguments  # [Window(low=-38.0, high=42.0, ...)]: per argument
    windows.inner  # {7: Inner(low=-4.0, ...)}: the divisor of x / (y - z)

`find` tries several distances from the numbers of the look, the widest first. Windows on arguments
alone are *proved*; windows on values inside are *flagged*: the program has to check them.

Sharp edges. Integers may have any value. Bounds hold for exact arithmetic. Rounding may put an
entry a few units in the last place outside; a margin allows for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..graph._graph import Exponents, Magnitude, Magnitudes, Node, ScaleGraph
from ..laws._law import vanish_of
from ..laws._rewrites import guarded
from ..laws._vanish import Vanish
from ..numbers._extremes import Window
from ..numbers._interval_record import worst_case
from ._attempt import Attempt, Impossible, Inner
from ._choices import Choices, choices_of

# Bits that windows reach beyond the look. Wide windows save looks at later calls (promise 3 holds
# for any width). Each distance costs 10 us per equation at the first call.
DISTANCES = (40.0, 12.0, 3.0)
ROUNDS = 8  # Repetitions of an attempt; each can make sources of harmful errors told.
# The cost of a wide check relative to the numbers that it reads: a reduction takes as long as the
# arithmetic on a thousand numbers.
_CHECK = 1e3


class Windows(NamedTuple):
    """The windows of a plan.

    **Fields:** `arguments`: a window for each argument, None for an unrestricted one; `inner`:
    windows of values inside, by index; `told`: values that must not lose digits, which the flag
    checks; `hidden`: nodes whose results must be hidden from XLA's simplifier.
    """

    arguments: tuple[Window | None, ...]
    inner: dict[int, Inner]
    told: frozenset[int]
    hidden: frozenset[int]

    @property
    def are_proved(self) -> bool:
        """True if the arguments alone decide, and JAX's own program may run."""
        return not (self.inner or self.told or self.hidden)


def find(
    graph: ScaleGraph,
    exponents: Exponents,
    arguments: Sequence[Magnitude | None],
    seen: Magnitudes,
    distances: Sequence[float] = DISTANCES,
    *,
    free_outputs: Sequence[bool] = (),
) -> Windows | None:
    """Return the widest proved windows around numbers, or else the cheapest flagged ones.

    **Arguments:** `exponents`: of the plan; `arguments`: the magnitudes of the arguments, None if
    they are not floating; `seen`: those of all values in the same look; `distances`: bits that
    windows may reach beyond them, the widest first; `free_outputs`: per result, True if it may
    leave at an exponent of its own, so that a new plan holds numbers that would underflow in it.
    **Returns:** None if there are no windows: then each call needs a look.
    **Cost:** about 15 µs per equation and attempt, with at most three attempts and their rounds.
    """
    if exponents.saturated:
        return None
    divisors, choices = divisors_of(graph), choices_of(graph, arguments)
    pairs = zip(graph.outputs, free_outputs, strict=False)
    free = frozenset(use.value.index for use, is_free in pairs if is_free)
    best: tuple[float, Windows] | None = None
    for distance in distances:
        found = _Try(graph, exponents, arguments, seen, distance, free).windows(divisors, choices)
        if found is None:
            continue
        if found.are_proved:
            return found
        cost = _cost(graph, found)
        # A wide window with a few more checks is worth more than a narrow one.
        if best is None or cost < best[0] / 2:
            best = cost, found
    return best and best[1]


class _Try(NamedTuple):
    """The arguments of `find`, at one distance."""

    graph: ScaleGraph
    exponents: Exponents
    arguments: Sequence[Magnitude | None]
    seen: Magnitudes
    distance: float
    free: frozenset[int]

    def windows(self, divisors: frozenset[int], choices: Choices) -> Windows | None:
        """Return the windows at this distance; None if there are none."""
        graph, e = self.graph, self.exponents
        told = suspects = frozenset[int]()
        for _ in range(ROUNDS):
            try:
                with worst_case():
                    how = self.distance, self.free, told, suspects, divisors, choices
                    run = Attempt(graph, e, self.seen, *how)
                    arguments = run.start(self.arguments)
            except (OverflowError, Impossible):
                return None
            if any(map(run.has_vanished, told)):
                return None
            if not run.harmful:
                found = [None if r is None else Magnitude(r.low, r.high) for r in run.records]
                hidden = guarded(graph, found, e) - e.guarded
                return Windows(arguments, dict(run.inner), told, hidden)
            if run.harmful <= told:
                return None
            if not run.harmful <= suspects:
                suspects |= run.harmful
            elif all(_can_be_told(graph, i) for i in run.harmful):
                told |= run.harmful
            else:
                return None
        return None


def _can_be_told(graph: ScaleGraph, index: int) -> bool:
    node = graph.values[index].node
    if node is None or node.graphs:
        return node is None
    vanish = vanish_of(node)
    return vanish.moves or vanish.flag is not None


def _cost(graph: ScaleGraph, windows: Windows) -> float:
    checked = [graph.values[i] for i in {*windows.inner, *windows.told}]
    return sum(v.size * v.computed + _CHECK for v in checked) + _CHECK * bool(windows.hidden)


def divisors_of(graph: ScaleGraph) -> frozenset[int]:
    """Return the values that divide, directly or after moves, roots and powers."""
    found: set[int] = set()
    for node in reversed(list(graph.walk())):
        vanish = vanish_of(node)
        reached = not node.graphs and any(v.index in found for v in node.outputs)
        for use in node.uses:
            passes = reached and not vanish.adds and _keeps_zeros(vanish, node, use.position)
            if use.value.is_floating and (passes or vanish.divides(node, use.position)):
                found.add(use.value.index)
    return frozenset(found)


def _keeps_zeros(vanish: Vanish, node: Node, position: int) -> bool:
    power = vanish.infinite(node, position)
    return vanish.moves or (power is not None and power > 0)
