"""Bounds through loops and branches.

A loop's body is not run as often as the loop. Three passes show how its carry grows, and the growth
is extrapolated:

- If a carry gains the same number of bits in each pass (`x = 2 x`), it gains them in every
  iteration.
- If it gains the same amount (`x = x + dx`), it grows linearly.
- If it gains fewer bits in each pass, it grows like a power of the number of iterations.
- If it gains more bits in each pass, it is not extrapolated. A carry that could square itself in
  each step mostly does not, and an infinite bound would make all later bounds infinite.

A carry may grow because another one grows. The next round finds that growth, because the other
carry then has its whole range.

    graph = build(jax.make_jaxpr(lambda x: lax.fori_loop(0, 100, lambda i, x: 2 * x, x))(1.0))
    bound(graph, [1.0])
    found[graph.outputs[0].value.index].high  # 100.0

Sharp edges: all of this is an estimate. The number of iterations of a `while` is known only if its
condition compares a counter with a known number; otherwise nothing is extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Protocol

from tanjax._jaxpr_types import JaxEquation
from tanjax.jaxprs import LOOPS, Branches, Kind, Loop, Nested

from ..graph._graph import ScaleGraph
from ..laws._comparisons import limit_of
from ..numbers._interval_record import (
    Record,
    Records,
    is_worst_case,
    log_add,
    log_subtract,
    union,
)

# Growth below this many bits per iteration is rounding.
_STILL = 1e-9

Step = Callable[[Records], Records]


class AbstractBounds(Protocol):
    """The records of a graph as loops and branches read and change them. The class is `Bounds`."""

    records: Records
    depth: int

    def run(self, graph: ScaleGraph, inputs: Records) -> Records: ...


class BoundNested(Nested["Record | None"]):
    """The meaning of loops and branches: records in, records out."""

    enters = (*LOOPS, Kind.BRANCH)

    def __init__(self, bounds: AbstractBounds) -> None:
        self.bounds = bounds

    def scan(self, eqn: JaxEquation, loop: Loop) -> Records:
        count, length, carry = len(loop.carry), loop.length or 0, loop.carry

        def step(c: Records) -> Records:
            return self.bounds.run(loop.body, [*loop.fixed, *c, *loop.rows])[:count]

        if is_worst_case() and length > _FOLLOWED:
            carry = _without_integers(loop)
        results = _iterate(self.bounds, step, carry, length)
        outputs = [self.bounds.records[use.value.index] for use in loop.body.outputs]
        return [*results, *outputs[count:]]

    def while_(self, eqn: JaxEquation, loop: Loop) -> Records:
        bounds, carry = self.bounds, loop.carry
        bounds.run(loop.test, [*loop.tested, *carry])
        trips = _trips(bounds, loop.test)
        if is_worst_case() and not 0 < trips <= _FOLLOWED:
            carry = _without_integers(loop)
        results = _iterate(bounds, lambda c: bounds.run(loop.body, [*loop.fixed, *c]), carry, trips)
        bounds.run(loop.test, [*loop.tested, *results])
        return results

    def cond(self, eqn: JaxEquation, branches: Branches) -> Records:
        found = [self.bounds.run(graph, branches.operands) for graph in branches.programs]
        return [_union(*records) for records in zip(*found, strict=True)]


def _without_integers(loop: Loop) -> Records:
    """Return a carry with unknown integers: the bounds of a counter grow with each iteration."""
    values = loop.body.inputs[len(loop.fixed) :]
    return [r if v.is_floating else None for r, v in zip(loop.carry, values, strict=False)]


def _union(*records: Record | None) -> Record | None:
    return None if None in records else reduce(union, records)  # type: ignore[arg-type]


def _trips(bounds: AbstractBounds, test: ScaleGraph) -> float:
    """Return the most iterations of a `while` that compares a counter; 0 if unknown."""
    # `counter < limit`, or a count-down `counter > 0`, whose first value is the limit.
    limit = limit_of(test.outputs[0].value.node)
    record = None if limit is None or limit.is_floating else bounds.records[limit.index]
    if record is None or record.high >= 31.0:
        return 0.0
    return 2.0**record.high + 1.0


def _iterate(bounds: AbstractBounds, step: Step, start: Records, trips: float) -> Records:
    """Return the carry over all iterations, after a last pass with that whole range.

    A carry that grows is held at its whole range. The others then start again, because they may
    grow with it. Within another loop there is only one round, so nesting does not multiply rounds.
    """
    if is_worst_case():
        return _all_iterations(bounds, step, start, trips)
    held: dict[int, Record | None] = {}

    def with_held(carry: Records) -> Records:
        return [held.get(i, r) for i, r in enumerate(carry)]

    bounds.depth += 1
    for _ in range(3 if bounds.depth == 1 else 1):
        passes = [with_held(start)]
        passes += [with_held(step(passes[0]))]
        if all(map(_covers, *passes)):
            bounds.depth -= 1
            return passes[0]
        passes += [with_held(step(passes[1]))]
        passes += [with_held(step(passes[2]))]
        carries = [_continued(*c, trips=trips) for c in zip(*passes, strict=True)]
        grown = {i: r for i, (r, grows) in enumerate(carries) if grows}
        held.update(grown)
        if not grown:
            break
    wide = with_held([r for r, _ in carries])
    step(wide)
    bounds.depth -= 1
    return wide


# If a bound must hold, so many iterations are followed one by one: each costs 10 us per equation of
# the body. A longer loop, or a loop inside another, tries a few, after which the carry may settle.
_FOLLOWED, _TRIES = 32, 3


def _all_iterations(bounds: AbstractBounds, step: Step, start: Records, trips: float) -> Records:
    """Return the carry over all iterations, without extrapolation; None where it still grows."""
    bounds.depth += 1
    whole = list(start)
    is_short = 0 < trips <= (_FOLLOWED if bounds.depth == 1 else _TRIES)
    for _ in range(int(trips) if is_short else _TRIES):
        found = step(whole)
        if all(map(_covers, whole, found)):
            break
        whole = [_union(*pair) for pair in zip(whole, found, strict=True)]
    else:
        found = step(whole)
        while not is_short and not all(map(_covers, whole, found)):
            pairs = zip(whole, found, strict=True)
            whole = [a if _covers(a, b) else None for a, b in pairs]
            found = step(whole)
    bounds.depth -= 1
    return whole


def _covers(a: Record | None, b: Record | None) -> bool:
    """True if record `a` includes record `b`. An unknown record includes everything."""
    if a is None or b is None:
        return a is None
    return (
        a.plus_low <= b.plus_low + _STILL
        and a.plus_high >= b.plus_high - _STILL
        and a.minus_low <= b.minus_low + _STILL
        and a.minus_high >= b.minus_high - _STILL
        and a.zero >= b.zero
    )


def _continued(*passes: Record | None, trips: float) -> tuple[Record | None, bool]:
    """Return the range of a carry over all iterations, and True if it grows after three passes.

    **Arguments:** `passes`: its range at the start and after each of three passes.
    """
    whole = _union(*passes)
    if whole is None or trips <= 3 or whole.high == -math.inf:
        return whole, False
    known = [r for r in passes if r is not None]
    up = _growth([r.high for r in known], trips)
    lows = [-r.low for r in known]
    down = _growth(lows, trips, numbers=False)
    if whole.has_plus and whole.has_minus:
        # With both signs, a fall of the lower bound alone is due to cancellation.
        falls = _growth([-r.high for r in known], trips, numbers=False)
        down = min(down, falls)
    wide = Record(
        whole.plus_low - down,
        whole.plus_high + up,
        whole.minus_low - down,
        whole.minus_high + up,
        whole.zero,
        whole.grid - down,
        whole.cancelled,
    )
    return wide, up > 0.0 or down > 0.0


def _growth(bounds: list[float], trips: float, *, numbers: bool = True) -> float:
    """Return the growth of a bound, in bits, over all iterations after the third."""
    _, b, c, d = bounds  # the first bound is that of the start, which may be zero
    if not (math.isfinite(b) and math.isfinite(c) and math.isfinite(d)):
        return 0.0
    before, now = c - b, d - c
    if now <= _STILL:
        return 0.0
    if numbers and before > _STILL:
        amount, last = log_subtract(c, b), log_subtract(d, c)
        if last <= amount + 1e-6:  # the same amount each time
            return log_add(d, last + math.log2(trips - 3)) - d
    if now > before * (1 + 1e-6) + _STILL:
        return 0.0  # faster and faster
    if now < before * 0.999:  # like a power of the number of iterations
        return now / math.log2(4 / 3) * math.log2(trips / 3)
    return now * (trips - 3)
