"""Convert a graph to the integer program and back: intervals, costs, rows, pins."""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from tanjax._errors import ScaleError

from ..graph._graph import Exponents, Magnitude, Magnitudes, ScaleGraph, Use, Value
from ..laws import _range
from ..laws._law import LARGEST, SMALLEST
from ..laws._rows import Row, rows_of
from ._assign import ANY, FREE, Assignment, AssignmentProblem, assign
from ._ends import ends_that_count

Interval = tuple[int, int]

_ROOM = 4  # bits above numbers that have only an upper bound


class Demand(NamedTuple):
    """The requirements on exponents: the numbers that they must hold, and room on both sides.

    `kept`: the numbers to hold, if no exponent holds all numbers of a value:

    - `"largest"` and `"smallest"`.
    - `"ordinary"`: the others may be infinite, as in `1 / (1 + exp(x))`.
    - `"tail"`: the ordinary numbers, even if others are lost on both sides. If nearly all numbers
      could be held, it is the smallest, as of x³ in `x**3 / (exp(x) - 1)`.
    - `"leaving"`: quantities leave with their largest entry as large as possible. So the fewest
      other entries are lost.
    - `"counting"`: the end of a value on which the results depend (`_ends.py`), even if all numbers
      could be held. It is the largest of `x` in `sqrt(sum(x * x))`, the smallest in
      `sum(1 / x**2)`.
    """

    strict: bool
    room: int  # the width of an interval is divided by it
    kept: str = "largest"


class Solved(NamedTuple):
    """A problem and its solution."""

    problem: AssignmentProblem
    solution: Assignment


_solved: contextvars.ContextVar[list[Solved] | None] = contextvars.ContextVar(
    "solved", default=None
)


@contextlib.contextmanager
def recorded() -> Iterator[list[Solved]]:
    """Record the problems solved in this context; a plan keeps only the exponents."""
    found: list[Solved] = []
    token = _solved.set(found)
    try:
        yield found
    finally:
        _solved.reset(token)


# Tried in this order, until no entry is lost.
DEMANDS = (
    Demand(False, 3), Demand(True, 3), Demand(False, 40), Demand(True, 40),
    Demand(False, 40, "leaving"), Demand(False, 40, "counting"), Demand(False, 40, "ordinary"),
    Demand(False, 40, "smallest"), Demand(True, 40, "tail"),
)  # fmt: skip


def interval(value: Value, m: Magnitudes, demand: Demand, end: int = LARGEST) -> Interval:
    """Return the exponents at which the numbers of a value are normal in its dtype.

    Underflow of only the smallest numbers is mostly harmless (the tails of an exponential). So a
    value of this kind may stay at exponent 0, unless the demand is strict.

    The interval leaves room on both sides for the numbers of the next call. XLA also needs room: it
    joins constants and takes their reciprocals. Exponent 0 is kept if the full interval includes
    it.
    """
    magnitude, dtype = m[value.index], value.aval.dtype
    low, high = _range.exponents(value, m)
    if _range.needed_by_parts(value, m) > low:
        low = min(high, math.ceil(_range.needed_by_parts(value, m)))
    room = (high - low) // demand.room
    if magnitude is not None and magnitude.low == -math.inf:  # the interval has no end
        room = min(room, _ROOM)
    low, high = (
        min(low + room, max(low, 0)) if low <= 0 <= high else low + room,
        max(high - room, min(high, 0)) if low <= 0 <= high else high - room,
    )
    if magnitude is None:
        return low, high
    smallest, largest = _range.normal_range(dtype)
    if demand.kept == "counting" and magnitude.high > -_range.ANY:
        end = end if magnitude.low > -_range.ANY else LARGEST
        return _holding(value, magnitude, end, (low, high))
    if not demand.strict and high < 0 and smallest <= magnitude.high <= largest:
        return low, 0
    if demand.kept in ("largest", "leaving", "counting") or _range.holds_together(value, m):
        return low, high
    both_ways = demand.kept == "tail" and magnitude.high > -magnitude.low / 2
    has_ordinary = smallest <= magnitude.low <= largest or (magnitude.low < smallest and both_ways)
    if demand.kept != "smallest" and low > 0 and has_ordinary:
        return 0, 0
    if abs(magnitude.low) > _range.ANY:  # unknown, or too far away to use
        return low, high
    is_near = magnitude.high - magnitude.low < 2 * (largest - smallest)
    if demand.kept == "smallest" or (demand.kept == "tail" and is_near):
        high = math.floor(magnitude.low - smallest)
        return high - jnp.finfo(dtype).nmant - 1, high
    return low, high


def _holding(value: Value, m: Magnitude, end: int, both: Interval) -> Interval:
    """Return the exponents that hold the numbers of a value at one end, or at either end.

    They hold all digits, so that numbers added to them are held as well. `both`: the exponents that
    hold both ends, if there are any.
    """
    smallest, largest = _range.range_of(value)
    digits = jnp.finfo(value.aval.dtype).nmant + 1
    low, high = both
    if end != LARGEST:
        low = min(low, math.ceil(m.low - largest) + digits)
    if end == SMALLEST:
        return low, max(low, math.floor(m.low - smallest))
    return low, max(high, math.floor(m.high - smallest) - digits)


def problem_of(
    graph: ScaleGraph, m: Magnitudes, free_outputs: Sequence[bool], demand: Demand
) -> AssignmentProblem:
    """Return the integer program of a graph.

    **Arguments:** `free_outputs`: per output, True if it may leave at an exponent other than 0. It
    does so only if its numbers leave the range at 0.
    """
    values, uses, count = graph.values, graph.uses, len(graph.values)
    low, high = np.full(count, -ANY), np.full(count, ANY)
    ends = ends_that_count(graph) if demand.kept == "counting" else {}
    value_pin, use_pin = np.full(count, FREE), np.full(len(uses), FREE)
    cost = np.zeros(count)
    for v in values:
        if not v.is_floating:
            value_pin[v.index] = 0
            continue
        low[v.index], high[v.index] = interval(v, m, demand, ends.get(v.index, LARGEST))
        if v.kind != "constant":
            cost[v.index] = max(1.0, v.size * v.computed)
        if v.kind == "input":
            value_pin[v.index] = 0
    for use, free in zip(graph.outputs, free_outputs, strict=True):
        if not free or _range.fits_at_zero(use.value, m):
            use_pin[use.index] = 0
        elif demand.kept == "leaving" and not _range.holds_together(use.value, m):
            i = use.value.index
            high[i] = min(high[i], low[i] + 1)
    for use in uses:
        if not use.value.is_floating:
            use_pin[use.index] = 0
    rows: list[tuple[tuple[int, int], ...]] = []
    for node in graph.walk():
        for row in rows_of(node, m):
            if len(row) == 1:
                thing = row[0][1]
                (use_pin if type(thing) is Use else value_pin)[thing.index] = 0
            elif row:
                rows.append(_numbered(row, count))
    use_value = np.array([u.value.index for u in uses], dtype=np.int64)
    return AssignmentProblem(low, high, value_pin, cost, use_value, use_pin, rows)


def _round(low: int, high: int) -> int:
    """Return the multiple of the largest power of two in the middle half of an interval without 0.

    Numbers of similar size then leave at the same exponent: one structure for many steps.
    """
    quarter, step = (high - low) // 4, 1
    low, high = low + quarter, high - quarter
    while -(-low // (2 * step)) * 2 * step <= high:
        step *= 2
    return -(-low // step) * step


def _numbered(row: Row, count: int) -> tuple[tuple[int, int], ...]:
    return tuple((c, x.index + count if type(x) is Use else x.index) for c, x in row)


Alone = tuple[Sequence[Value], Sequence[Use]]


def assign_exponents(
    graph: ScaleGraph,
    m: Magnitudes,
    free_outputs: Sequence[bool],
    demand: Demand,
    alone: Alone = ((), ()),
) -> Assignment:
    """Solve for the exponents of a graph.

    **Arguments:** `alone`: values and uses that stay at exponent 0 (`_parts.needs_nothing`).
    """
    problem = problem_of(graph, m, free_outputs, demand)
    problem.value_pin[[value.index for value in alone[0]]] = 0
    problem.use_pin[[use.index for use in alone[1]]] = 0
    for use in graph.outputs:
        together = demand.kept != "leaving" or _range.holds_together(use.value, m)
        if problem.use_pin[use.index] == FREE and together:
            problem.use_pin[use.index] = _round(*_range.exponents(use.value, m))
    solution = assign(problem)
    _verify(problem, solution)
    record = _solved.get()
    if record is not None:
        record.append(Solved(problem, solution))
    return solution


def _verify(problem: AssignmentProblem, solution: Assignment) -> None:
    """Raise `ScaleError` if a solution breaks a row, which would change results. 1 us per row."""
    exponents = [*solution.values.tolist(), *solution.uses.tolist()]
    pins = [*problem.value_pin.tolist(), *problem.use_pin.tolist()]
    broken = sum(sum(c * exponents[i] for c, i in row) != 0 for row in problem.rows)
    broken += sum(p not in (FREE, e) for p, e in zip(pins, exponents, strict=True))
    if broken:
        raise ScaleError(
            f"the assignment ({solution.method}) breaks {broken} of its {len(pins)} constraints."
        )


def exponents_of(graph: ScaleGraph, solution: Assignment) -> Exponents:
    """Return a solution as the exponents of a graph."""
    pairs = zip(graph.values, solution.values.tolist(), strict=True)
    read = zip(graph.uses, solution.uses.tolist(), strict=True)
    return Exponents(
        tuple(e if value.is_floating else 0 for value, e in pairs),
        tuple(e if use.value.is_floating else 0 for use, e in read),
    )
