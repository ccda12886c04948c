"""Whether a program needs exponents, which, and for which inputs that holds.

First law: nothing is done unless it is needed. The program is run on its numbers in a wide range,
then once more with every value clamped to the range of its dtype; if the results are the same, the
plan is the identity, and the program runs as it is. Only otherwise are exponents assigned, and the
same comparison shows whether they hold.

What is too large to be run is bounded in log2 instead. Bounds overestimate, so an alarm is checked
on numbers where that can be afforded (`ALARM_BUDGET`).

Sharp edges. A plan holds for the numbers that it was made for; for others it is proved
(`_proof.py`) or compared with them (`is_right`). An estimated plan can be wrong; who runs it looks
at its results now and then (`is_estimate`).
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _hosts
from ._choice import Solved, assigned, misfits
from ._judged import unknown_primitives, unseen
from .assign import _problem
from .graph._graph import Magnitude, ScaleGraph, Use, Value, build
from .magnitudes._evaluate import Evaluation, evaluate
from .magnitudes._intervals import bound
from .magnitudes._losses import losses
from .numbers import _range
from .numbers._measure import count_nonzero, is_finite, measure
from .numbers._stored import clamp_to
from .replay._rewrites import guard, guard_all
from .show._progress import progress

BUDGET = 2e6  # elements · operations that are run on numbers without second thoughts: 5 ms
ALARM_BUDGET = 3e8  # and where the bounds say that something leaves the range: about a second
TIME_LIMIT = 1.0  # seconds for the integer program

log = logging.getLogger("tanjax.scale")


class Plan(NamedTuple):
    """The exponents of a graph (in the graph), and what is to be said about them.

    **Fields:** `identity`: the program runs as it is; `is_estimate`: not everything was run on
    numbers; `lost`: by index of a value, what plain JAX would do there; `has_effects`: it prints or
    calls back; `conversions`, `method`, `gap`, `seconds`: of the assignment; `is_confirmed`: plain
    JAX was seen to miss what is estimated, or must; `expected`: how many entries of each result are
    not zero, if all are known and finite; `free_outputs`: as given; `grade`: what is known of the
    numbers of the last call, `"proved"`, `"seen"` or `"guessed"`; `looks`: on how many calls it was
    compared with the numbers; `alarms`: what may be wrong in the results all the same.
    """

    graph: ScaleGraph
    identity: bool
    is_estimate: bool
    lost: dict[int, str]
    notes: tuple[str, ...]
    has_effects: bool = False
    conversions: int = 0
    method: str = "identity"
    gap: float = 0.0
    seconds: float = 0.0
    is_confirmed: bool = False
    expected: tuple[int, ...] | None = None
    free_outputs: tuple[bool, ...] = ()
    grade: str = "seen"
    looks: int = 1
    alarms: tuple[str, ...] = ()

    def is_missed(self, results: Sequence[Any]) -> bool:
        """Whether results of plain JAX are all zero where this estimate has something else."""
        pairs = zip(self.graph.outputs, results, strict=True)
        return any(
            use.value.is_floating
            and use.value.magnitude is not None
            and not use.value.magnitude.is_zero
            and measure(x).is_zero
            for use, x in pairs
        )

    def is_short(self, results: Sequence[Any]) -> bool:
        """Whether results are not finite, or zero, where something else is known to be right."""
        counts = self.expected or ()
        return any(
            not is_finite(x) or (count and count_nonzero(x) < count)
            for count, x in zip(counts, results, strict=True)
        )

    def believed(self) -> Plan:
        """The identity instead: plain JAX was run, and nothing was missing."""
        _problem.clear(self.graph)
        said = "bounds or a sampled loop raised a false alarm: plain JAX was run, and is right."
        return self._replace(
            identity=True, notes=(*self.notes, said), lost={}, conversions=0,
            method="identity", gap=0.0,
        )  # fmt: skip

    @property
    def exponents(self) -> tuple[tuple[int, ...], ...]:
        """All of them: two plans of one program with the same exponents are the same program."""
        exponents = ((v.exponent, *(u.exponent for u in v.uses)) for v in self.graph.values)
        marks = ((node.guarded, node.saturated) for node in self.graph.walk())
        return (*exponents, *marks)

    @property
    def output_exponents(self) -> list[int]:
        return [use.exponent for use in self.graph.outputs]


def identity(
    closed: Any, free_outputs: Sequence[bool], restored: Mapping[int, Any], notes: Sequence[str]
) -> Plan:
    """The plan that does nothing, before any number was looked at."""
    graph = build(closed, restored)
    effects = bool(closed.effects)
    return Plan(graph, True, False, {}, tuple(notes), effects, free_outputs=tuple(free_outputs))


def look_cost(graph: ScaleGraph) -> float:
    """About how many seconds it takes to run a graph on numbers twice, on a quiet machine."""
    equations = sum(node.computed for node in graph.walk())
    numbers = sum(value.size * value.computed for value in graph.values)
    return 15e-6 * equations + 5e-9 * numbers


def _leaves_well(use: Use) -> bool:
    """Whether a result that may have any exponent fits at that which it has."""
    low, high = _range.exponents(use.value)
    return not use.value.is_floating or low <= use.exponent <= high


def is_right(plan: Plan, arguments: Sequence[Any]) -> bool:
    """Whether a plan loses nothing of these numbers: False also where that cannot be said.

    **Cost:** about 10 µs per equation. The graph is left as it was.
    """
    graph = plan.graph
    magnitudes = [value.magnitude for value in graph.values]
    try:
        arguments = _numbers(arguments)
        reference = evaluate(graph, arguments, budget=BUDGET)
        if not reference.complete or reference.estimated or unseen(reference):
            return False
        pairs = zip(graph.outputs, plan.free_outputs, strict=True)
        if any(free and not _leaves_well(use) for use, free in pairs):
            return False
        if plan.identity and all(map(_range.is_normal, graph.values)):
            return not any(_range.needed_by_parts(v) > 0 for v in graph.values)
        simulated = evaluate(graph, arguments, budget=BUDGET, simulate=True, plain=plan.identity)
        return not losses(graph, reference, simulated, free=plan.free_outputs)
    finally:
        for value, magnitude in zip(graph.values, magnitudes, strict=True):
            value.magnitude = magnitude


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collections: a graph is many small objects, all of which are kept.

    They took a fifth of the time at 10,000 equations, and more than in proportion.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@_uncollected()
def plan(
    closed: Any,
    arguments: Sequence[Any],
    free_outputs: Sequence[bool],
    *,
    restored: Mapping[int, Any] | None = None,
    notes: Sequence[str] = (),
    thorough: bool = False,
    hide: bool = False,
    time_limit: float = TIME_LIMIT,
) -> Plan:
    """Plan a closed jaxpr: about 10 µs per equation if nothing is out of range.

    **Arguments:** `arguments`: arrays; a `Magnitude` or a `ShapeDtypeStruct` where there are no
    numbers; `free_outputs`: per result, whether it may leave at an exponent of its own (quantities
    may); `restored`: see `_literals.py`; `thorough`: run on numbers what a first plan only
    estimated; `hide`: every product and quotient from XLA, because it made infinities.
    """
    start, given = time.perf_counter(), _hosts.known_numbers(arguments)
    arguments = _numbers(given)
    graph = build(closed, restored)
    said, alarms = [*notes, *unknown_primitives(graph)], list[str]()
    count = len(graph.uses)
    with progress(count, "planning") as advance:
        reference = _magnitudes(graph, arguments, given, thorough)
        advance(count // 2)
        lost = lost_in_plain(graph, reference, arguments, free_outputs)
        advance(count // 8)
        if lost:
            solved = assigned(graph, reference, arguments, free_outputs, time_limit, said, alarms)
        else:
            solved = _as_it_is(graph, said)
        solved = _hidden(graph, solved) if hide else solved
        advance(count // 4)
    found = Plan(
        graph,
        solved is None,
        not reference.complete or reference.estimated,
        {v.index: what for v, what in lost.items()},
        tuple(said),
        bool(closed.effects),
        *(solved or Solved()),
        seconds=time.perf_counter() - start,
        expected=None if alarms or (lost and solved is None) else _expected(graph, reference),
        is_confirmed=not reference.complete and bool(lost) and _is_settled(graph),
        free_outputs=tuple(free_outputs),
        alarms=(*alarms, *unseen(reference)),
    )
    log.info("planned %d uses: %s, %.3f s", count, found.method, found.seconds)
    return found


def _numbers(arguments: Sequence[Any]) -> list[Any]:
    """The arguments that can be run; None for others."""
    return [None if isinstance(x, Magnitude) else x for x in _hosts.known_numbers(arguments)]


def _hidden(graph: ScaleGraph, solved: Solved | None) -> Solved:
    guard_all(graph)
    return (solved or Solved())._replace(method="guarded")


def _expected(graph: ScaleGraph, reference: Evaluation) -> tuple[int, ...] | None:
    """Per result how many entries are not zero; None unless all are known, finite, and fit."""
    if not reference.complete or reference.estimated:
        return None
    counts = []
    for use, result in zip(graph.outputs, reference.outputs, strict=True):
        m, dtype = use.value.magnitude, use.value.aval.dtype
        if not use.value.is_floating:
            counts.append(0)
            continue
        if m is None or result is None or not np.isfinite(result.array).all():
            return None
        if m.high - use.exponent > _range.normal_range(dtype)[1]:
            return None
        counts.append(int(np.count_nonzero(clamp_to(result, dtype, use.exponent).value.array)))
    return tuple(counts)


def _as_it_is(graph: ScaleGraph, said: list[str]) -> Solved | None:
    """What a program needs in which no number is lost: nothing, or protection from XLA."""
    if not guard(graph):
        return None
    said.append(
        "XLA joins denominators and constant factors (x / y / z to x / (y * z)), here to a number "
        "out of range: their results are hidden from it."
    )
    return Solved(method="guarded")


def _magnitudes(
    graph: ScaleGraph, arguments: Sequence[Any], given: Sequence[Any], thorough: bool
) -> Evaluation:
    budget = ALARM_BUDGET if thorough else BUDGET
    reference = evaluate(graph, arguments, budget=budget)
    if reference.complete:
        return reference
    bound(graph, given)
    if not thorough and any(map(_alarming, graph.values)) and not _is_settled(graph):
        for value in graph.values:
            value.magnitude = None
        return _magnitudes(graph, arguments, given, True)
    return reference


def _is_settled(graph: ScaleGraph) -> bool:
    """Whether bounds alone show that plain JAX overflows, and which exponents do not.

    It does where even the smallest numbers of a value are too large; exponents follow if all that
    is known of any value fits its dtype at one. That saves running 500 equations on 100,000
    numbers, which takes longer than to compile them.
    """
    found = False
    for value in graph.values:
        m = value.magnitude
        if value.is_floating and (m is None or not m.is_zero):
            if m is None or m.low == -math.inf or not _range.holds_together(value):
                return False
            found = found or m.low > _range.normal_range(value.aval.dtype)[1]
    return found


def _alarming(value: Value) -> bool:
    """Whether all numbers of a value may leave the range, or some of them be too large."""
    m = value.magnitude
    if m is None or m.is_zero or not value.is_floating:
        return False
    smallest, largest = _range.normal_range(value.aval.dtype)
    return m.high > largest or m.high < smallest


def lost_in_plain(
    graph: ScaleGraph,
    reference: Evaluation,
    arguments: Sequence[Any],
    free_outputs: Sequence[bool],
) -> dict[Value, str]:
    """Where plain JAX would lose something that its results need; empty if it would not."""
    out = {v: _what(v) for v in graph.values if not _range.fits_at_zero(v)}
    out.update((v, "overflow") for v in graph.values if _range.needed_by_parts(v) > 0)
    if misfits(graph, free_outputs):
        return out
    if reference.complete:
        # Numbers too far apart for any exponent "fit" as well as they can: results may show it.
        out = {v: _what(v) for v in graph.values if not _range.is_normal(v)} | out
        if not out:
            return {}
        simulated = evaluate(graph, arguments, budget=reference.budget, simulate=True)
        return out if losses(graph, reference, simulated) else {}
    return out if any(map(_alarming, graph.values)) else {}


def _what(value: Value) -> str:
    _, largest = _range.normal_range(value.aval.dtype)
    assert value.magnitude is not None
    return "overflow" if value.magnitude.high > largest else "underflow"
