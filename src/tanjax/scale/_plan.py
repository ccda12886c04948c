"""Whether a program needs exponents, which, and for which inputs that holds.

First law: nothing is done unless it is needed. The program is run on its numbers in a wide range,
then once more with every value rounded and clamped as by its dtype; if the results are the same,
the plan is the identity, and the program runs as it is. Only otherwise are exponents assigned, and
the same comparison shows whether they hold.

A program that is too large to be run is bounded in log2 instead. Bounds overestimate, so an alarm
is checked on numbers where that can be afforded (`ALARM_BUDGET`).

Sharp edges. A plan holds for the numbers that it was made for; for others there are windows
(`scale/windows`), or it is compared with them (`seen_right`). An estimated plan can be wrong: its
caller asks its windows first (`is_estimate`).
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

BUDGET = 2e7  # elements · operations that are run on numbers without second thoughts: 20 ms
ALARM_BUDGET = 3e8  # and where the bounds say that something leaves the range: about a second

log = logging.getLogger("tanjax.scale")


class Plan(NamedTuple):
    """The exponents of a graph, and what is to be said about them.

    **Fields:** `graph`, `magnitudes`, `exponents`; `identity`: the program runs as it is;
    `is_estimate`: not everything was run on numbers; `lost`: by index of a value, what plain JAX
    would do there; `has_effects`: it prints or calls back; `conversions`, `method`, `gap`,
    `seconds`: of the assignment; `is_confirmed`: plain JAX was seen to miss what is estimated, or
    must; `expected`: how many entries of each result are finite, not zero, not nan, if known;
    `free_outputs`: as given; `grade`: how it is known that later calls lose nothing, `"proved"`,
    `"flagged"`, `"looked at"` or `"unchecked"`; `looks`: on how many calls it was looked at;
    `alarms`: what is wrong in the results all the same; `doubts`: what plain JAX is asked for then;
    `unseen`: equations of whose numbers nothing is known, unless windows say that they do no harm.
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
        """Whether an alarm tells of the program whatever its numbers, so that it is said once."""
        return alarm.endswith(f"({NO_RULE}).")

    def is_missed(self, results: Arrays) -> bool:
        """Whether results of plain JAX are all zero where this estimate has something else."""
        pairs = zip(self.graph.outputs, results, strict=True)
        return any(
            use.value.is_floating
            and (m := self.magnitudes[use.value.index]) is not None
            and not m.is_zero
            and measure(x).is_zero
            for use, x in pairs
        )

    def is_short(self, results: Arrays) -> bool:
        """Whether results are nan, infinite, or zero, where other numbers are known to be right."""
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
        """The same of each entry, where it is more than rounding; None if nobody can tell.

        `(1e20 + 1e30) - 1e30` is 0 in any range, its product with infinity nan, and what is mostly
        rounding may be 0 as well.

        **Arguments:** `exact`: of `run`; `plain`: whether results are plain JAX's, at exponent 0.
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
        """The identity instead: plain JAX was run, and nothing was missing."""
        said = "bounds or a sampled loop raised a false alarm: plain JAX was run, and is right."
        return self._replace(
            exponents=Exponents.none(self.graph), identity=True, notes=(*self.notes, said),
            lost={}, conversions=0, method="identity", gap=0.0,
        )  # fmt: skip

    def kept_plain(self, results: Arrays, planned: Callable[[], Arrays]) -> Plan | None:
        """The identity, if results of plain JAX have entries right that this plan loses.

        XLA may have rewritten the program: `sqrt(x * x)` to `abs(x)`, as with JAX 0.10.
        **Arguments:** `planned`: gives the results of this plan.
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
    """The plan with what is known of these numbers if it loses none of them; None otherwise.

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
    if not guarded(graph, m, at) <= at.guarded:  # of these numbers, XLA would join others
        return None
    expected = _expected(graph, reference, Chosen(at))
    found = plan._replace(magnitudes=m, expected=expected)
    if plan.identity and all(_range.is_held(v, m) for v in graph.values):
        return None if any(_range.needed_by_parts(v, m) > 0 for v in graph.values) else found
    if not plan.identity and _strays(plan, m):
        return None
    free, is_held = plan.free_outputs, functools.partial(_range.holds_together, magnitudes=m)
    if not plan.identity and not all(is_held(u.value) for u in graph.outputs):
        # Something is lost at any exponent: plain JAX may have it.
        plain = Judged.of(graph, reference, free)
        return found if Judged.of(graph, reference, free, at, plain).is_right else None
    simulated = simulate(graph, reference, None if plan.identity else at)
    return None if losses(graph, reference, simulated, free=free) else found


def _strays(plan: Plan, m: Magnitudes) -> bool:
    """Whether a number leaves the range at its exponent that was in it for the last numbers.

    That a factor happens to be 0 now, or nearly, is no excuse: other exponents hold it. Nor is that
    none held the last numbers.
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
    closed: Jaxpr,
    arguments: Sequence[Argument],
    free_outputs: Sequence[bool],
    *,
    graph: ScaleGraph | None = None,
    notes: Sequence[str] = (),
    thorough: bool = False,
    hide: bool = False,
) -> Plan:
    """Plan a closed jaxpr: about 10 µs per equation if nothing is out of range.

    **Arguments:** `closed`: the jaxpr; `arguments`: arrays; a `Magnitude` or a `ShapeDtypeStruct`
    where there are no numbers; `free_outputs`: which results may leave at exponents of their own;
    `graph`: of the jaxpr, with the constants that tracing lost; `notes`: of tracing;
    `thorough`: run on numbers what a first plan only estimated; `hide`: every product and quotient
    from XLA, because it made infinities.
    **Returns:** the plan, the identity if nothing is lost; it never raises where no exponents hold
    the numbers: `alarms` say what is wrong then.
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
    """The arguments that can be run; None for others."""
    return [None if isinstance(x, Magnitude) else x for x in known_numbers(arguments)]


def _hidden(graph: ScaleGraph, solved: Chosen | None) -> Chosen:
    solved = solved or Chosen(Exponents.none(graph))
    exponents = solved.exponents._replace(guarded=all_guarded(graph))
    return solved._replace(exponents=exponents, method="guarded")


def _expected(
    graph: ScaleGraph, reference: Evaluation, solved: Chosen
) -> tuple[tuple[int, int, int], ...] | None:
    """Per result how many entries are finite, not zero, not nan, as they are stored.

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
    """The choice for a program that loses no number: None, or results hidden from XLA."""
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
    """Whether bounds alone show that plain JAX overflows, and which exponents do not.

    It does where even the smallest numbers of a value are too large; exponents follow if all that
    is known of any value fits its dtype at one. That saves running 500 equations on 100,000
    numbers, which takes longer than to compile them.
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
    """Where plain JAX would lose something that its results need; empty if it would not."""
    m = reference.magnitudes
    out = {v: _what(v, m) for v in graph.values if not _range.fits_at_zero(v, m)}
    out.update((v, "overflow") for v in graph.values if _range.needed_by_parts(v, m) > 0)
    if misfits(graph, m, free_outputs):
        return out
    if reference.complete:
        # Numbers too far apart for any exponent "fit" as well as they can: results may show it.
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
