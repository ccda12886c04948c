"""Whether a plan is right for all numbers of some magnitudes, not only for those it was seen on.

A plan is made by looking at the numbers of one call. The next call has others, and looking at each
of them costs more than the call. So bounds that hold for *any* numbers are run through the graph,
from windows on the magnitudes of its inputs, of either sign and with zeros: where every stored
number stays within the normal range of its dtype, nothing is lost, whatever comes.

    proves(graph, Exponents.none(graph), [Window(-20.0, 20.0)] * 2)  # of x * y + 1: True

Sharp edges. A proof says nothing of inf and nan among the inputs, so its windows ask for finite
numbers. It fails where a cancellation may leave anything (one unit in the last place of the smaller
operand is assumed), in long loops whose carry grows, and behind functions without a bound.
Integers may have any value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .graph._graph import Exponents, Magnitude, Node, ScaleGraph, Use, Value, callee_uses
from .magnitudes._intervals import Bounds
from .numbers import _range
from .numbers._extremes import Window
from .numbers._interval_record import Record, is_worst_case, worst_case
from .replay._rewrites import guarded

# Bits that rounding and the inner steps of functions may need: bounds are of exact arithmetic.
_MARGIN = 0.5
# How far windows reach beyond the numbers that were seen, in bits: the farthest that is proved.
_DISTANCES = (40.0, 16.0, 6.0, 2.0, 0.5, 0.0)
_NARROW = 2.0
_MEANINGLESS = 2.0**20  # bits: of what any integer may decide


def widest(
    graph: ScaleGraph,
    e: Exponents,
    seen: Sequence[Magnitude | None],
    distances: Sequence[float] = _DISTANCES,
) -> list[Window | None] | None:
    """The widest proved windows around magnitudes of the inputs; None if there are none.

    **Arguments:** `seen`: per input; None where it is not floating.
    **Returns:** per input a window, None where it may be anything.
    **Cost:** about 10 µs per equation and distance.
    """
    bounds = Bounds(graph, True)
    with worst_case():
        return _widest(bounds, graph, e, seen, distances)


def expected(
    graph: ScaleGraph,
    e: Exponents,
    seen: Sequence[Magnitude | None],
    distances: Sequence[float] = _DISTANCES[:-1],
) -> list[Window | None] | None:
    """Windows in which a plan is expected to be right: no proof, but loops are continued.

    For plans that are estimates themselves. None where even bounds say too little.
    """
    found = _widest(Bounds(graph, False), graph, e, seen, distances)
    return found and [w and w._replace(finite=False) for w in found]


class Beyond(NamedTuple):
    """The values that bounds cannot keep in their range: too large ones, and too small ones.

    `fatal`: too small ones by which is divided; `unknown`: those whose bound means nothing, such as
    that of 0.9 to the power of any integer.
    """

    large: set[int]
    small: set[int]
    fatal: set[int]
    unknown: set[int]

    def holds(self, other: Beyond | None) -> bool:
        """Whether no value leaves its range there that does not here."""
        return self.bears(other) and other is not None and other.small <= self.small

    def bears(self, other: Beyond | None) -> bool:
        """The same, but for small numbers that may be zero as well."""
        return other is not None and other.large <= self.large and other.fatal <= self.fatal


def beyond(graph: ScaleGraph, e: Exponents, windows: Sequence[Window | None]) -> Beyond | None:
    """The values that bounds cannot keep in their range; None where they say nothing."""
    bounds = Bounds(graph, False)
    if not _bounded(bounds, graph, windows):
        return None
    pairs = zip(graph.values, bounds.records, strict=True)
    known = [(v, r) for v, r in pairs if r is not None and v.is_floating and v.kind != "constant"]
    small = [v for v, r in known if not _is_above(v, r, e)]
    return Beyond(
        {v.index for v, r in known if not _is_below(v, r, e)},
        {v.index for v in small},
        {v.index for v in small if any(map(_divides, v.uses))},
        {v.index for v, r in known if r.high > _MEANINGLESS},
    )


# Whose operand, at this place, must not be zero; so it is with negative powers.
_DIVIDED = {"div": 1, "rem": 1, "rsqrt": 0, "log": 0, "pow": 0, "triangular_solve": 0}


def _divides(use: Use) -> bool:
    """Whether a zero in the place of a small number makes an infinity or nan."""
    if use.node is None:
        return False
    if use.node.primitive == "integer_pow":
        return bool(use.node.params["y"] < 0)
    return _DIVIDED.get(use.node.primitive) == use.position


def narrow(graph: ScaleGraph, seen: Sequence[Magnitude | None]) -> list[Window | None]:
    """Windows closely around what was seen, where nothing better is known."""
    pairs = zip(graph.inputs, seen, strict=True)
    found = [None if m is None else _around(v, m, _NARROW) for v, m in pairs]
    return [w and w._replace(finite=False) for w in found]


# What keeps an integer a number, or picks one; anything else may decide by it.
_ARITHMETIC = "add", "sub", "mul", "neg", "abs", "pow", "integer_pow", "min", "max", "clamp"
_CHOICES = "lt", "le", "gt", "ge", "eq", "ne", "select_n"
_FORMS = "convert_element_type", "broadcast_in_dim", "reshape", "squeeze", "copy"
_COUNTS = {*_ARITHMETIC, *_CHOICES, *_FORMS}


def counting(graph: ScaleGraph) -> dict[int, int]:
    """The integer arguments that decide little, such as the number of a step, by their place.

    **Returns:** in how many bits one may grow until it is another number: four if it becomes
    floating numbers or leaves, one if it picks a number, as of a schedule, by comparison. Others
    end loops, take branches or entries.
    """
    found = {i: _bits(x) for i, x in enumerate(graph.inputs) if _is_whole(x)}
    return {i: bits for i, bits in found.items() if bits}


def _is_whole(value: Value) -> bool:
    return getattr(getattr(value.aval, "dtype", None), "kind", "") in ("i", "u")


def _bits(value: Value) -> int:
    pending, reached, bits = [value], set[int](), 4
    while pending:
        value = pending.pop()
        if value.is_floating or value.index in reached:
            continue
        reached.add(value.index)
        for node in [use.node for use in value.uses if use.node is not None]:
            if node.graphs and node.primitive not in ("scan", "while", "cond"):
                pairs = zip(node.graphs[0].inputs, callee_uses(node), strict=True)
                pending += [inner for inner, use in pairs if use.value is value]
            elif node.primitive not in _COUNTS:
                return 0
            elif _picks_numbers(value, node):
                bits = 1
            pending += node.outputs
    return bits


def _picks_numbers(value: Value, node: Node) -> bool:
    """Whether a truth picks a floating number, or becomes one."""
    is_truth = value.aval.dtype.kind == "b"
    return is_truth and any(x.is_floating for x in node.outputs)


def _widest(
    bounds: Bounds,
    graph: ScaleGraph,
    e: Exponents,
    seen: Sequence[Magnitude | None],
    distances: Sequence[float],
) -> list[Window | None] | None:
    def at(distance: float) -> list[Window | None] | None:
        pairs = zip(graph.inputs, seen, strict=True)
        found = [None if m is None else _around(v, m, distance) for v, m in pairs]
        return found if _holds(bounds, graph, e, found) else None

    first, *between, last = distances
    if (found := at(first)) is not None:
        return found
    if (closest := at(last)) is None:  # where these do not hold no wider ones do
        return None
    return next((found for d in between if (found := at(d)) is not None), closest)


def proves(graph: ScaleGraph, e: Exponents, windows: Sequence[Window | None]) -> bool:
    """Whether nothing leaves its range for any finite inputs in these windows."""
    with worst_case():
        return _holds(Bounds(graph, True), graph, e, windows)


def _around(value: Value, m: Magnitude, distance: float) -> Window:
    """A window of normal numbers that holds those seen, and zeros."""
    smallest, largest = _range.normal_range(value.aval.dtype)
    if m.is_zero:
        return Window(-distance, distance, True)
    low, high = max(m.low - distance, smallest), min(m.high + distance, largest)
    return Window(min(low, m.low), max(high, m.high), True)


def _holds(
    bounds: Bounds, graph: ScaleGraph, e: Exponents, windows: Sequence[Window | None]
) -> bool:
    if not _bounded(bounds, graph, windows):
        return False
    pairs = zip(graph.values, bounds.records, strict=True)
    return all(_fits(v, r, e) for v, r in pairs) and _is_apart(graph, e, bounds)


def _bounded(bounds: Bounds, graph: ScaleGraph, windows: Sequence[Window | None]) -> bool:
    """Run bounds on inputs in these windows; false if they are beyond the range of a float."""
    try:
        given = [
            bounds.argument(None if w is None else Magnitude(w.low, w.high), value)
            for w, value in zip(windows, graph.inputs, strict=True)
        ]
        bounds.run(graph, given)
    except OverflowError:
        return False
    return True


def _is_below(value: Value, r: Record, e: Exponents) -> bool:
    """Whether no number of a value is too large at any of its exponents."""
    if r.high == -math.inf:
        return True
    margin = 0.0 if value.node is None else _MARGIN
    lowest = min([e.of(value), *map(e.of, value.uses)])
    return r.high - lowest <= _range.range_of(value)[1] - margin


def _is_above(value: Value, r: Record, e: Exponents) -> bool:
    """Whether none is expected to be too small; of what a cancellation leaves nothing is known."""
    if r.cancelled or r.low == -math.inf:
        return True
    return r.low - max([e.of(value), *map(e.of, value.uses)]) >= _range.range_of(value)[0]


def _fits(value: Value, r: Record | None, e: Exponents) -> bool:
    """Whether every number of a value is normal at each of its exponents."""
    if not value.is_floating:
        return True
    if r is None:
        return not is_worst_case()
    exponents = [e.of(value), *map(e.of, value.uses)]
    if value.kind == "constant" and not any(exponents):
        return not value.restored  # the number that was written, or one that tracing lost
    if r.high == -math.inf:
        return True  # zeros
    if not _is_below(value, r, e):
        return False
    if not is_worst_case():
        return _is_above(value, r, e)
    margin = 0.0 if value.node is None else _MARGIN
    return r.low - max(exponents) >= _range.range_of(value)[0] + margin


def _products_fit(node: Node, e: Exponents, bounds: Bounds) -> bool:
    """Whether the products that a contraction adds up are normal, each by itself."""
    if node.primitive not in _range.CONTRACTIONS or not node.outputs[0].is_floating:
        return True
    low = 0.0
    for use in node.uses[:2]:
        r = bounds.records[use.value.index]
        if r is None or not is_worst_case():
            return not is_worst_case()
        low += r.low - e.of(use)
    return low >= _range.normal_range(node.outputs[0].aval.dtype)[0] + _MARGIN


def _is_apart(graph: ScaleGraph, e: Exponents, bounds: Bounds) -> bool:
    """Whether XLA joins no numbers that the plan does not hide from it, see `_rewrites.py`."""
    if not all(_products_fit(node, e, bounds) for node in graph.walk()):
        return False
    found = [None if r is None else Magnitude(r.low, r.high) for r in bounds.records]
    return guarded(graph, found, e) <= e.guarded
