"""Loops of the scale graph: run to their end, or sampled where that would take too long.

A loop of 100,000 steps is too slow in Python while the user waits for a compilation. It rarely has
to run: after some dozens of steps the magnitudes of its values settle, or grow in a regular way. A
sampled loop runs its first steps, and compares the magnitudes after a quarter, a half and all of
them. It then extrapolates each value's bounds to the end:

    settled                       nothing changes
    equal growth per doubling     a power of the step (sums): extrapolated per doubling
    equal growth per step         geometric: extrapolated per step
    small irregular growth        extrapolated as a straight line of values

Growth faster than geometric is not extrapolated: the loop is then unknown.

Sharp edge: the results of a sampled loop are those of its last sampled step, moved to the
extrapolated magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tanjax.jaxprs import Kind, trips

from ..graph._graph import Magnitude, Magnitudes, Node, ScaleGraph, Value
from ..laws._forms import is_float
from ..numbers._wide import Wide, magnitude_of, normalised
from ._evaluation import AbstractRun, Numbers

# The share of the remaining budget that a loop may take, outermost and inside another loop.
_SHARE, _INNER_SHARE = 0.9, 0.1
_FEWEST = 8  # The least steps that show growth: snapshots after 2, 4 and 8.
# The assumed length of a `while` loop that does not end, relative to the sampled steps.
_FURTHER = 4

# If bounds raise an alarm, a program of at most so many equations, all steps counted, is run to its
# end: 50 ms, and the same again for every assignment.
_SOON = 5_000

Step = Callable[[Numbers, int], Numbers | None]


def run_loop(
    run: AbstractRun,
    node: Node,
    carry: Numbers,
    step: Step,
    length: int | None,
    stopped: Callable[[], bool] = lambda: False,
) -> Numbers | None:
    """Return the carry after a loop, or None if it is unknown.

    **Arguments:** `step`: returns the next carry; `length`: the number of steps, None if only
    `stopped` decides.
    """
    runs, work = run.runs, run.work
    share = _INNER_SHARE if run.depth else _SHARE
    run.depth += 1
    try:
        early: list[_Snapshot] = []
        planned, i = None, 0
        while i != length:
            following = step(carry, i)
            if following is None:
                return None
            if stopped():
                return following
            carry, i = following, i + 1
            if i == 2:
                planned = _planned(share, runs, work, runs - run.runs, work - run.work, length)
            if planned and i in (planned // 4, planned // 2):
                early.append(_snapshot(run.magnitudes, node.graphs, carry))
            if i == planned and length is None and run.must_end:
                run.never_ends(node)
                return None
            if i == planned:
                end = length if length is not None else _FURTHER * i
                run.estimated = True
                sound = run.mode != "reference" or _continue_values(
                    run.magnitudes, node.graphs, early, i, end
                )
                moved = _continue_carry(carry, early, i, end) if sound else None
                if moved is None:
                    run.skip(node, "a long loop whose values grow faster than geometrically")
                return moved
        return carry
    finally:
        run.depth -= 1


def ends_soon(graph: ScaleGraph) -> bool:
    """True if all loops of a program certainly end after a few thousand equations."""
    return _equations(graph) <= _SOON


def _equations(graph: ScaleGraph) -> float:
    """Return the most equations that a graph runs; infinity if it holds a `while` loop."""
    total = 0.0
    for node in graph.nodes:
        inner = sum(map(_equations, node.graphs))
        total += 1 + inner * trips(node.equation)
        if node.kind is Kind.WHILE:
            return math.inf
    return total


def _planned(
    share: float, runs: int, work: float, ran: int, worked: float, length: int | None
) -> int | None:
    """Return the steps to run, given the cost of the first two; None: run to the end."""
    most = share * min(2 * runs / max(ran, 1), 2 * work / max(worked, 1.0))
    if length is not None and length <= most:
        return None
    steps = max(_FEWEST, int(most) // 4 * 4)
    return steps if length is None or steps < length else None


# -- extrapolation of the sample ------------------------------------------------------------------


class _Snapshot(NamedTuple):
    values: list[Magnitude | None]
    carry: list[Magnitude | None]


def _values(graphs: Sequence[ScaleGraph]) -> Iterator[Value]:
    """Yield the values computed in some graphs and in those nested in them."""
    for graph in graphs:
        yield from graph.inputs
        for node in graph.nodes:
            yield from node.outputs
            yield from _values(node.graphs)


def _snapshot(m: Magnitudes, graphs: Sequence[ScaleGraph], carry: Numbers) -> _Snapshot:
    return _Snapshot([m[v.index] for v in _values(graphs)], _measures(carry))


def _measures(carry: Numbers) -> list[Magnitude | None]:
    return [magnitude_of(x) if x is not None and is_float(x) else None for x in carry]


def growth(first: float, second: float, third: float, steps: int, end: int) -> float | None:
    """Return the growth of a bound in log2 until step `end`.

    **Arguments:** the bound after a quarter, a half and all of `steps`.
    **Returns:** None if the growth is faster than geometric.
    """
    if not (math.isfinite(first) and math.isfinite(second) and math.isfinite(third)):
        return 0.0
    early, late = second - first, third - second
    if late <= 1e-9 or end <= steps:
        return 0.0
    total = early + late
    even = abs(late - 2 * early) < 0.1 * min(1.0, total) * total
    if even or (late > 4 and 1.6 * early < late < 2.6 * early):
        return 2 * late / steps * (end - steps)
    if late <= 1.3 * early:
        return late * math.log2(end / steps)
    if late > 4:
        return None
    gained = (1 - 2.0**-late) * 2 * (end - steps) / steps  # relative to the value at `steps`
    return math.log2(1 + gained)


def _continue_values(
    magnitudes: list[Magnitude | None],
    graphs: Sequence[ScaleGraph],
    early: list[_Snapshot],
    steps: int,
    end: int,
) -> bool:
    """Widen the magnitudes of a loop's values to those at its end; False if that fails."""
    values = list(_values(graphs))
    changes = []
    for value, one, two in zip(values, *(s.values for s in early), strict=True):
        three = magnitudes[value.index]
        if not (one and two and three and value.is_floating):
            continue
        up = growth(one.high, two.high, three.high, steps, end)
        down = growth(-one.low, -two.low, -three.low, steps, end)
        if up is None or down is None:
            return False
        if up or down:
            changes.append((value, Magnitude(three.low - down, three.high + up, True)))
    for value, magnitude in changes:
        magnitudes[value.index] = magnitude
    return True


def _continue_carry(carry: Numbers, early: list[_Snapshot], steps: int, end: int) -> Numbers | None:
    """Return the carry, moved to its magnitude at the end; None if that fails."""
    moved = []
    for x, one, two, three in zip(carry, *(s.carry for s in early), _measures(carry), strict=True):
        if one and two and three:
            up = growth(one.high, two.high, three.high, steps, end)
            down = growth(-one.high, -two.high, -three.high, steps, end)
            if up is None or down is None:
                return None
            x = normalised(Wide(x.array, x.exponent + round(up - down)))
        moved.append(x)
    return moved
