"""Plan a program: decide if it needs exponents, and choose them.

First law: a program that loses no number runs unchanged. The planner runs it on its numbers in a
wide range, then again with every value rounded and clamped to its dtype. If the results are the
same, the plan is the identity. Otherwise exponents are assigned, and the same comparison checks
them.

If a program is too large to run, the planner bounds its values in log2. Bounds overestimate, so an
alarm is checked on numbers within `ALARM_BUDGET`.

Sharp edges. A plan is valid for the numbers of its call. For other numbers, use windows
(`scale/windows`) or a comparison (`seen_right`). An estimated plan can be wrong: its caller checks
its windows first (`is_estimate`).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from operator import lt
from typing import NamedTuple

from ._choice import Chosen, Doubts, assigned, misfits
from ._judged import Arrays, Judged, fitting, lacks, left_of, right_in, unknown_primitives, unseen
from .graph._build import build
from .graph._graph import Exponents, Jaxpr, Magnitude, Magnitudes, ScaleGraph, Use, Value
from .laws import _range
from .laws._rewrites import all_guarded, guarded
from .magnitudes._evaluate import evaluate, rounded, simulate
from .magnitudes._evaluation import NO_RULE, PARTS, Evaluation, Given
from .magnitudes._intervals import bound
from .magnitudes._loops import ends_soon
from .magnitudes._losses import losses
from .numbers._hosts import Argument, known_numbers
from .numbers._measure import count_numbers, measure
from .show._progress import progress

BUDGET = 2e7  # elements · operations to run on numbers in any case: 20 ms
ALARM_BUDGET = 3e8  # the same if bounds raise an alarm: about a second

log = logging.getLogger("tanjax.scale")


class Plan(NamedTuple):
    """The exponents of a graph, with notes and alarms.

    **Fields:** `graph`, `magnitudes`, `exponents`; `identity`: the program runs as it is;
    `is_estimate`: not everything was run on numbers; `lost`: by index of a value, `"overflow"` or
    `"underflow"` in plain JAX; `has_effects`: the program prints or calls back; `conversions`,
    `method`, `gap`, `seconds`: of the assignment; `is_confirmed`: plain JAX loses estimated
    numbers, by a run or by bounds; `expected`: per result the numbers of entries that are finite,
    not zero, not nan, if known; `free_outputs`: as given; `grade`: the check of later calls,
    `"proved"`, `"flagged"`, `"looked at"` or `"unchecked"`; `looks`: the number of calls with a
    look; `alarms`: remaining errors of the results; `doubts`: entries that plain JAX may still have
    right; `unseen`: messages about equations with unknown numbers, unless windows prove them
    harmless.
    """

    graph: ScaleGraph
    magnitudes: Magnitudes
    exponents: Exponents
    identity: bool
    is_estimate: bool
    lost: dict[int, str]
    notes: tuple[str, ...]
    has_effects: bool = False
    conversions: int = 0
    method: str = "identity"
    gap: float = 0.0
    doubts: Doubts = ()
    seconds: float = 0.0
    is_confirmed: bool = False
    expected: tuple[tuple[int, int, int], ...] | None = None
    free_outputs: tuple[bool, ...] = ()
    grade: str = "looked at"
    looks: int = 1
    alarms: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @staticmethod
    def is_of_program(alarm: str) -> bool:
        """True if an alarm is about the program, not its numbers: then tanjax warns once."""
        return alarm.endswith(f"({NO_RULE}).")

    def is_missed(self, results: Arrays) -> bool:
        """True if a result of plain JAX is all zero, and this estimate of it is not."""
        pairs = zip(self.graph.outputs, results, strict=True)
        return any(
            use.value.is_floating
            and (m := self.magnitudes[use.value.index]) is not None
            and not m.is_zero
            and measure(x).is_zero
            for use, x in pairs
        )

    def is_short(self, results: Arrays) -> bool:
        """True if results have fewer finite, nonzero or non-nan entries than expected."""
        found = zip(self.graph.outputs, self.expected or (), results, strict=False)
        return any(
            any(map(lt, count_numbers(x), count))
            for use, count, x in found
            if use.value.is_floating
        )

    def run(self, arguments: Sequence[Argument]) -> Evaluation:
        """Run the program on these arguments in a wide range, for `misses`."""
        return evaluate(self.graph, _numbers(arguments), budget=BUDGET)

    def misses(self, results: Arrays, exact: Evaluation, *, plain: bool = False) -> bool | None:
        """True if the results lost an entry that is more than rounding; None if unknown.

        `(1e20 + 1e30) - 1e30` is 0 in any range, and its product with infinity is nan. An entry
        that is mostly rounding may be 0 as well.

        **Arguments:** `exact`: of `run`; `plain`: the results are plain JAX's, at exponent 0.
        """
        runs = exact.outputs, rounded(self.graph, exact).outputs
        found = list[bool | None]()
        given = zip(self.graph.outputs, self.expected or (), results, *runs, strict=False)
        for use, count, x, a, b in given:
            is_seen = not exact.estimated and getattr(x, "is_fully_addressable", True)
            if use.value.is_floating and is_seen and a is not None and b is not None:
                found.append(lacks(x, a, b, 0 if plain else self.exponents.of(use)))
            elif use.value.is_floating:
                found.append(True if count_numbers(x)[0] < count[0] else None)
        return True if True in found else None if None in found else False

    def believed(self) -> Plan:
        """Return the identity: plain JAX was run, and lost no number."""
        said = "bounds or a sampled loop raised a false alarm: plain JAX was run, and is right."
        return self._replace(
            exponents=Exponents.none(self.graph), identity=True, notes=(*self.notes, said),
            lost={}, conversions=0, method="identity", gap=0.0,
        )  # fmt: skip

    def kept_plain(self, results: Arrays, planned: Callable[[], Arrays]) -> Plan | None:
        """Return the identity, if plain JAX has entries right that this plan loses; else None.

        XLA may have rewritten the program: `sqrt(x * x)` to `abs(x)`, as with JAX 0.10.
        **Arguments:** `planned`: returns the results of this plan.
        """
        saved, wrong = right_in(results, self.doubts, planned)
        if not saved:
            return None
        said = "no exponents hold these numbers together: plain floating point is kept."
        alarms = (f"{wrong} entries of the results are wrong: {said}",) if wrong else ()
        return self.believed()._replace(
            notes=(*self.notes, said), alarms=(*alarms, *self.alarms[1:]), doubts=()
        )

    @property
    def output_exponents(self) -> list[int]:
        return list(map(self.exponents.of, self.graph.outputs))


def seen_right(plan: Plan, arguments: Sequence[Argument]) -> Plan | None:
    """Return the plan with the magnitudes of these numbers if it loses none; None otherwise.

    **Arguments:** `plan`: of other numbers; `arguments`: those of a call.
    **Cost:** about 10 µs per equation.
    """
    graph, at = plan.graph, plan.exponents
    reference = plan.run(arguments)
    if not reference.complete or reference.estimated or unseen(graph, reference):
        return None
    m = reference.magnitudes

    def leaves_well(use: Use) -> bool:
        low, high = _range.exponents(use.value, m)
        return not use.value.is_floating or low <= at.of(use) <= high

    pairs = zip(graph.outputs, plan.free_outputs, strict=True)
    if any(free and not leaves_well(use) for use, free in pairs):
        return None
    if not guarded(graph, m, at) <= at.guarded:  # these numbers need more guarded nodes
        return None
    expected = _expected(graph, reference, Chosen(at))
    found = plan._replace(magnitudes=m, expected=expected)
    if plan.identity and all(_range.is_held(v, m) for v in graph.values):
        return None if any(_range.needed_by_parts(v, m) > 0 for v in graph.values) else found
    if not plan.identity and _strays(plan, m):
        return None
    free, is_held = plan.free_outputs, functools.partial(_range.holds_together, magnitudes=m)
    if not plan.identity and not all(is_held(u.value) for u in graph.outputs):
        # Some entries are lost at any exponent: plain JAX may have them right.
        plain = Judged.of(graph, reference, free)
        return found if Judged.of(graph, reference, free, at, plain).is_right else None
    simulated = simulate(graph, reference, None if plan.identity else at)
    return None if losses(graph, reference, simulated, free=free) else found


def _strays(plan: Plan, m: Magnitudes) -> bool:
    """True if a value leaves the range at its exponent, and its last numbers did not.

    A factor that is now 0, or nearly 0, excuses no loss: other exponents hold the value. It is also
    True if no exponent held the last numbers.
    """
    at, before = plan.exponents, plan.magnitudes

    def fits(value: Value, found: Magnitudes) -> bool:
        low, high = _range.exponents(value, found)
        return low <= at.of(value) <= high

    return any(
        not fits(value, m) and (fits(value, before) or not _range.holds_together(value, before))
        for value in plan.graph.values
        if value.is_floating and _range.holds_together(value, m)
    )


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Disable garbage collections: a graph has many small objects, and keeps all of them.

    Collections took a fifth of the time at 10,000 equations, and grow faster than linearly.
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
    closed: Jaxpr,
    arguments: Sequence[Argument],
    free_outputs: Sequence[bool],
    *,
    graph: ScaleGraph | None = None,
    notes: Sequence[str] = (),
    thorough: bool = False,
    hide: bool = False,
) -> Plan:
    """Plan a closed jaxpr: about 10 µs per equation if no number is out of range.

    **Arguments:** `closed`: the jaxpr; `arguments`: arrays; a `Magnitude` or a `ShapeDtypeStruct`
    for unknown numbers; `free_outputs`: per result, True if it may leave at an exponent of its own;
    `graph`: of the jaxpr, with the constants that tracing lost; `notes`: of tracing; `thorough`:
    run on numbers the parts that a first plan only estimated; `hide`: hide every product and
    quotient from XLA, because XLA's rewrites made infinities.
    **Returns:** the plan, the identity if no number is lost. It does not raise if no exponents hold
    the numbers: `alarms` then describe the errors.
    """
    start, given = time.perf_counter(), known_numbers(arguments)
    graph = graph or build(closed)
    said, alarms, count = [*notes, *unknown_primitives(graph)], list[str](), len(graph.uses)
    with progress(count, "planning") as advance:
        reference = _magnitudes(graph, _numbers(given), given, thorough)
        advance(count // 2)
        m, free = reference.magnitudes, tuple(free_outputs)
        lost = lost_in_plain(graph, reference, free)
        advance(count // 8)
        ask = graph, reference, free, said, alarms
        solved = assigned(*ask) if lost else _as_it_is(graph, m, said)
        solved = _hidden(graph, solved) if hide else solved
        advance(count // 4)
    done, is_short = solved or Chosen(Exponents.none(graph)), alarms or (lost and solved is None)
    found = Plan(
        graph,
        m,
        done.exponents,
        solved is None,
        not reference.complete or reference.estimated,
        {v.index: what for v, what in lost.items()},
        tuple(said),
        bool(closed.effects),
        *done[1:],
        seconds=time.perf_counter() - start,
        expected=None if is_short else _expected(graph, reference, done),
        is_confirmed=not reference.complete and bool(lost) and _is_settled(graph, m),
        free_outputs=free,
        alarms=tuple(alarms),
        unseen=tuple(unseen(graph, reference, done.exponents if lost else None)),
    )
    log.info("planned %d uses: %s, %.3f s", count, found.method, found.seconds)
    return found


def _numbers(arguments: Sequence[Argument]) -> list[Given]:
    """Return the arguments that can be run; None for others."""
    return [None if isinstance(x, Magnitude) else x for x in known_numbers(arguments)]


def _hidden(graph: ScaleGraph, solved: Chosen | None) -> Chosen:
    solved = solved or Chosen(Exponents.none(graph))
    exponents = solved.exponents._replace(guarded=all_guarded(graph))
    return solved._replace(exponents=exponents, method="guarded")


def _expected(
    graph: ScaleGraph, reference: Evaluation, solved: Chosen
) -> tuple[tuple[int, int, int], ...] | None:
    """Return, per result, the numbers of stored entries that are finite, not zero, not nan.

    None unless all are known.
    """
    if not reference.complete or reference.estimated:
        return None
    counts = []
    for use, result in zip(graph.outputs, reference.outputs, strict=True):
        if not use.value.is_floating:
            counts.append((0, 0, 0))
            continue
        if result is None:
            return None
        finite, nonzero = fitting(result, use.value.aval.dtype, solved.exponents.of(use))
        numbers = left_of(result, result)[1]
        counts.append((int(finite.sum()), int(nonzero.sum()), int(numbers.sum())))
    return tuple(counts)


def _as_it_is(graph: ScaleGraph, m: Magnitudes, said: list[str]) -> Chosen | None:
    """Return the choice for a program that loses no number: None, or guarded nodes."""
    none = Exponents.none(graph)
    if not (found := guarded(graph, m, none)):
        return None
    said.append(
        "XLA joins denominators and constant factors (x / y / z to x / (y * z)), here to a number "
        "out of range: their results are hidden from it."
    )
    return Chosen(none._replace(guarded=found), method="guarded")


def _magnitudes(
    graph: ScaleGraph,
    arguments: list[Given],
    given: Sequence[Argument],
    thorough: bool,
    begun: Evaluation | None = None,
) -> Evaluation:
    budget = ALARM_BUDGET if thorough else BUDGET
    reference = evaluate(graph, arguments, budget=budget, begun=begun)
    if reference.complete and not reference.estimated:
        return reference
    m = reference.magnitudes if reference.complete else bound(graph, given, reference.magnitudes)
    is_alarming = any(_range.is_alarming(v, m) for v in graph.values)
    can_be_run = ends_soon(graph) if reference.complete else not _is_settled(graph, m)
    if not thorough and is_alarming and can_be_run:
        return _magnitudes(graph, arguments, given, True, reference)
    return reference._replace(magnitudes=m)


def _is_settled(graph: ScaleGraph, magnitudes: Magnitudes) -> bool:
    """True if bounds alone show that plain JAX overflows, and give exponents that do not.

    Plain JAX overflows if even the smallest numbers of a value are too large. Bounds give exponents
    if every value is bounded and fits its dtype at some exponent. Then the program need not run:
    500 equations on 100,000 numbers take longer to run than to compile.
    """
    found = False
    for value in graph.values:
        m = magnitudes[value.index]
        if value.is_floating and (m is None or not m.is_zero):
            if m is None or m.low == -math.inf or not _range.holds_together(value, magnitudes):
                return False
            found = found or m.low > _range.normal_range(value.aval.dtype)[1]
    return found


def lost_in_plain(
    graph: ScaleGraph,
    reference: Evaluation,
    free_outputs: Sequence[bool],
) -> dict[Value, str]:
    """Return the values that plain JAX loses, if its results need them; otherwise no value."""
    m = reference.magnitudes
    out = {v: _what(v, m) for v in graph.values if not _range.fits_at_zero(v, m)}
    out.update((v, "overflow") for v in graph.values if _range.needed_by_parts(v, m) > 0)
    if misfits(graph, m, free_outputs):
        return out
    if reference.complete:
        # Numbers too far apart for any exponent count as fitting, but results may lose them.
        out = {v: _what(v, m) for v in graph.values if not _range.is_normal(v, m)} | out
        if not (out or any(_range.parts_may_leave(v, m) for v in graph.values)):
            return {}
        simulated = simulate(graph, reference)
        parts = [e.node.outputs[0] for e in simulated.events if e.kind == PARTS and e.node]
        out = dict.fromkeys(parts, "overflow") | out
        return out if losses(graph, reference, simulated, free=free_outputs) else {}
    return out if any(_range.is_alarming(v, m) for v in graph.values) else {}


def _what(value: Value, magnitudes: Magnitudes) -> str:
    _, largest = _range.normal_range(value.aval.dtype)
    m = magnitudes[value.index]
    assert m is not None
    return "overflow" if m.high > largest else "underflow"
