"""One attempt to draw windows: bounds that hold for any numbers, and errors of underflow.

A number can overflow: `Bounds` limits its size. A number can also underflow. It is then off by at
most the smallest normal number, and the laws of the primitives propagate this absolute error
(`laws/_vanish.py`). The error is harmless if it stays below the last digit of the other operand of
a sum, or below the smallest number that a result can hold. Otherwise its source becomes *told*: the
program checks that this number did not underflow.

    x -> exp(-x) * 1e30: an error of 2^-126 becomes 2^-26 in the result: harmful
    x -> 1 + exp(-x):    an error of 2^-126 is below the last digit of 1: harmless

If bounds are useless (a divisor near zero, the carry of a loop), a window on that value replaces
them, drawn around its numbers in the look.

Sharp edge. The numbers of the look give an estimate of how much products amplify an error
(`_reach`). They also give an estimate of the size of sums of both signs, whose rounding may excuse
an error (`_fall_of`). The largest entry of such a sum is checked if it may fall, and always if the
sum has few entries. Overflow is never estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from tanjax._dtype_range import limits, normal_range
from tanjax.jaxprs import Kind

from ..graph._graph import Exponents, Magnitude, Magnitudes, Node, ScaleGraph, Use, Value
from ..laws import _range
from ..laws._law import vanish_of
from ..laws._vanish import CONVERTED, HARMFUL, Operand, terms
from ..magnitudes._intervals import Bounds
from ..numbers._extremes import Window
from ..numbers._interval_record import INFINITY, Record, clipped, log_add, raised, span
from ._choices import FEW, Choices
from ._errors import EXACT, NEVER, Off, digits_of, is_sum, most

MARGIN = 0.5  # Bits that rounding and the inner steps of functions may need.
# The least reach of windows downwards (bits), if a smaller entry costs accuracy only: data around
# zero come closer to it on each call.
DOWNWARDS = 16.0
DIVISORS = 4.0  # the same for a divisor: a smaller divisor makes all later values larger
SLACK = 4.0  # bits of allowed amplification of errors beyond that of the look


class Impossible(Exception):
    """No window holds the numbers of the look."""


class Inner(NamedTuple):
    """A window on a value inside the program, in log2; None for an end that is not checked.

    **Fields:** `high`, `low`: ends of all entries; `peak`: the least size of the largest entry;
    `spares_zero`: the largest entry may also be zero, if the operands are zero.
    """

    high: float | None = None
    low: float | None = None
    peak: float | None = None
    spares_zero: bool = False


class Attempt(Bounds):
    """Bounds in the worst case, windows inside, and errors of numbers that underflow.

    **Arguments:** `seen`: the magnitudes of all values in a look; `distance`: the reach of windows,
    in bits; `free`: results that may leave at exponents of their own; `told`: values that are
    checked not to underflow; `suspects`: values whose errors are harmful, unless a sum of them is
    checked to be large; `divisors`: values that are divided by; `choices`: values that a caller
    chooses.

    **Fields** after `start`: `inner`: the windows inside, by index of a value; `harmful`: sources
    of harmful errors.
    """

    def __init__(
        self,
        graph: ScaleGraph,
        e: Exponents,
        seen: Magnitudes,
        distance: float,
        free: frozenset[int],
        told: Collection[int],
        suspects: frozenset[int],
        divisors: Collection[int],
        choices: Choices,
    ) -> None:
        self.inner: dict[int, Inner] = {}
        self.harmful: set[int] = set()
        self.graph, self.e, self.seen = graph, e, seen
        self.distance, self._free = distance, free
        self._told, self._suspects, self._divisors = told, suspects, divisors
        self._choices = choices
        self._off: dict[int, Off] = {}
        self._excused: dict[int, Off] = {}  # the same, with errors below the rounding of sums
        self._absorbed: dict[int, bool] = {}
        self._infinite: dict[int, float] = {}  # by value: above this size it may be infinite
        self._fall: dict[int, float] = {}  # by value: the possible fall of its largest entry, bits
        super().__init__(graph, True)

    def start(self, arguments: Sequence[Magnitude | None]) -> tuple[Window | None, ...]:
        """Run, and return the windows of the arguments. **Raises:** `Impossible`."""
        windows = [
            None if m is None else self._window(v, m)
            for v, m in zip(self.graph.inputs, arguments, strict=True)
        ]
        for v, m, w in zip(self.graph.inputs, arguments, windows, strict=True):
            if m is not None and w is not None:
                self._fall[v.index] = 0.0 if m.is_zero else m.high - max(w.low, w.peak)
        given = [self._of_argument(v, w) for v, w in zip(self.graph.inputs, windows, strict=True)]
        self.run(self.graph, given)
        self._follow(self.graph)
        for use in self.graph.outputs:
            if use.value.is_floating:
                self._leaves(use.value)
        return tuple(windows)

    # -- windows -----------------------------------------------------------------------------------

    def _window(self, v: Value, m: Magnitude) -> Window:
        """Return the window of an argument at this distance."""
        low, high = self._ends(v)
        room = limits(v.aval.dtype)
        least = low - digits_of(v) + 1 if room.step else low
        if m.is_zero:
            return Window(least, min(high, self.distance), True)
        if m.high > high:
            raise Impossible
        top, down = min(m.high + self.distance, high), max(self.distance, DOWNWARDS)
        if v.index in self._divisors:
            bottom = max(least, m.low - max(self.distance, DIVISORS))
            return Window(bottom, top, True, nonzero=True)
        bottom = max(least, m.low - down)
        # A bias may pass through zero (benchmark: 1,000 steps of SGD in float16, one look).
        peak = max(bottom, m.high - (self.distance if v.size >= FEW else down))
        return Window(bottom, top, True, peak=peak)

    def has_vanished(self, index: int) -> bool:
        """True if numbers of a value underflowed in the look."""
        m, low = self.seen[index], self._ends(self.graph.values[index])[0]
        return m is not None and m.exact and not m.is_zero and m.low < low

    def _of_argument(self, v: Value, w: Window | None) -> Record | None:
        if w is None:
            return self.argument(None, v)
        return Record(w.low, w.high, w.low, w.high, not w.nonzero)

    def _ends(self, v: Value) -> tuple[float, float]:
        """Return the least and the largest true number that is normal in every reading."""
        low, high = normal_range(v.aval.dtype)
        if _range.is_reciprocal(v):
            low, high = max(low, -high), min(high, -low)
        at = [self.e.of(v), *map(self.e.of, v.uses)]
        margin = (v.aval.dtype.kind == "c") + (0.0 if v.kind == "input" else MARGIN)
        return low + max(at) + margin, high + min(at) - margin

    def _exact(self, v: Value) -> Magnitude | None:
        """Return the magnitude of a value if its numbers were measured and are not all zero."""
        m = self.seen[v.index]
        return m if m is not None and m.exact and not m.is_zero else None

    def finished(self, r: Record | None, value: Value) -> Record | None:
        """Draw the windows of a value, and return its record within them."""
        r = super().finished(r, value)
        if not value.is_floating or value.kind == "input":
            return r
        if value.kind == "constant":
            self._holds_constant(value, r)
            return r
        if r is not None and r.is_empty:  # infinities and nan that the program itself makes
            return r
        _, high = self._ends(value)
        if r is not None and r.high > high and self._is_absorbed(value, r):
            r = clipped(r, high)
            self._infinite[value.index] = min(high, self._infinite.get(value.index, high))
        if r is None or r.high > high:
            r = self._capped(r, value, high)
        if value.index in self._divisors:
            r = self._floored(r, value)
        return r

    def _holds_constant(self, value: Value, r: Record | None) -> None:
        """Raise `Impossible` if tracing or an exponent loses a constant."""
        moved = [self.e.of(value), *map(self.e.of, value.uses)]
        if r is None or r.high == NEVER or not (any(moved) or value.restored):
            return
        low, high = self._ends(value)
        if not (low - MARGIN <= r.low and r.high <= high + MARGIN):
            raise Impossible

    def _capped(self, r: Record | None, value: Value, high: float) -> Record:
        """Watch the upper end of a value that may overflow, and return its record below it."""
        m = self.seen[value.index]
        high += MARGIN  # the check sees the numbers themselves, not bounds on them
        if m is not None and m.exact and m.high > high:
            raise Impossible
        reach = max(self.distance, DOWNWARDS)
        cap = high if m is None or m.is_zero else min(high, m.high + reach)
        self._watch(value, high=cap)
        return span(NEVER, cap)._replace(cancelled=True) if r is None else clipped(r, cap)

    def _floored(self, r: Record, value: Value) -> Record:
        """Watch the lower end of a divisor that may come too near to zero; return its record."""
        m = self._exact(value)
        if m is None:
            return r
        low, high = self._ends(value)
        is_far = r.low < min(m.low - max(self.distance, DOWNWARDS), -high / 2)
        if not (r.zero or r.low < low or is_far):
            return r
        floor = max(m.low - max(self.distance, DIVISORS), low - MARGIN)
        if floor > m.low:
            raise Impossible
        self._watch(value, low=floor)
        return raised(r, floor)

    def _floor_error(self, value: Value) -> None:
        """Watch the lower end of a divisor that may be as small as its error."""
        m, r = self._exact(value), self.records[value.index]
        off = self._off[value.index]
        floor = off.size + digits_of(value)
        if m is None or r is None or floor <= r.low:
            return
        if floor > m.low:
            self.harmful |= off.sources
            return
        self._watch(value, low=floor)
        self.records[value.index] = raised(r, floor)

    def _watch(self, v: Value, **ends: Any) -> None:
        """Check one more end of a value. A second call replaces the end by a narrower one."""
        self.inner[v.index] = self.inner.get(v.index, Inner())._replace(**ends)

    # -- infinities that only divide ---------------------------------------------------------------

    def _is_absorbed(self, v: Value, r: Record) -> bool:
        """True if an infinity only divides: `1 / (1 + exp(1000))` is 0, which is right.

        The sum of two infinities with different signs is nan, so all numbers must be positive.
        """
        if r.has_minus:
            return False
        if v.index not in self._absorbed:
            self._absorbed[v.index] = bool(v.uses) and all(map(self._absorbs, v.uses))
        return self._absorbed[v.index]

    def _absorbs(self, use: Use) -> bool:
        node = use.node
        if node is None or node.graphs or len(node.outputs) != 1:
            return False
        if any(other.value is use.value for other in node.uses if other is not use):
            return False
        power = vanish_of(node).infinite(node, use.position)
        if power is None or power <= 0.0:
            return power is not None
        out = node.outputs[0]
        if out.index not in self._absorbed:
            self._absorbed[out.index] = bool(out.uses) and all(map(self._absorbs, out.uses))
        return self._absorbed[out.index]

    def _infinity(self, node: Node) -> tuple[float, bool]:
        """Return the effect of an infinite operand on the result: a logarithm and a flag.

        If the flag is False, the result may be infinite above this size. If it is True, the result
        is zero, and this is the largest true result. The logarithm is infinite without an effect.
        """
        for use in node.uses:
            above = self._infinite.get(use.value.index)
            power = None if above is None else vanish_of(node).infinite(node, use.position)
            if above is None or power is None or power == 0.0:
                continue
            others = [self._reach(u) for u in node.uses if u is not use and u.value.is_floating]
            return power * above + (max(others, default=0.0) if power < 0 else 0.0), power < 0
        return INFINITY, False

    # -- errors ------------------------------------------------------------------------------------

    def _follow(self, graph: ScaleGraph) -> None:
        """Give each result of a graph its error, from those of its inputs."""
        for node in graph.nodes:
            if node.is_loop:
                self._follow_loop(node)
            else:
                for given, inner in zip(node.given, node.graphs, strict=False):
                    self._hand_in(given, inner)
                    self._follow(inner)
            for i, value in enumerate(node.outputs):
                if value.is_floating:
                    self._fall[value.index] = self._fall_of(node, i)
                    self._off[value.index] = self._error(node, i, self._of)
                    self._follow_excused(node, i)
                    if value.index in self._divisors:
                        self._floor_error(value)
                    self._forget_rounding(node, value)
            if not node.graphs and not all(v.is_floating for v in node.outputs):
                self._decides(node)

    def _of(self, use: Use) -> Off:
        return self._off.get(use.value.index, EXACT)

    def _with_excused(self, use: Use) -> Off:
        return self._excused.get(use.value.index) or self._of(use)

    def _hand_in(self, uses: Sequence[Use], inner: ScaleGraph) -> None:
        """Give the arguments of a nested graph the errors of the operands."""
        for use, v in zip(uses, inner.inputs, strict=False):
            self._off[v.index] = self._of(use)
            if use.value.index in self._excused:
                self._excused[v.index] = self._excused[use.value.index]
            self._fall[v.index] = self._fall.get(use.value.index, 0.0)

    def _follow_loop(self, node: Node) -> None:
        """Follow the errors of a loop's carry: harmful if they grow faster than linearly."""
        body = node.graphs[-1]
        self._hand_in(node.given[-1], body)
        for _, v in node.carried:
            self._fall[v.index] = max(self._fall.get(v.index, 0.0), 2 * self.distance)
        self._follow(body)
        length = node.loop.length or 0  # 0 for a while
        pairs = [(v, u) for u, v in node.carried if v.is_floating]
        grown = {v.index: self._grown(v, u, length) for v, u in pairs}
        if any(self._of(u).size > self._off[v.index].size for v, u in pairs):
            self._off |= grown
            self._follow(body)
            for v, u in pairs:
                if not length or self._of(u).size > grown[v.index].size + 1.0 / length:
                    self.harmful |= self._of(u).sources
        if node.kind is Kind.WHILE:
            test, tested = node.graphs[0], len(node.loop.tested)
            self._hand_in(node.uses[:tested], test)
            for (_, v), w in zip(node.carried, test.inputs[tested:], strict=True):
                self._off[w.index] = self._off.get(v.index, EXACT)
            self._follow(test)

    def _grown(self, v: Value, u: Use, length: int) -> Off:
        """Return the error of a carry after all iterations, if each adds the same as the first."""
        before, after = self._off[v.index], self._of(u)
        if not after.size > before.size:
            return before
        grown = after.size + math.log2(max(length, 1)) + 1  # twice that leaves room to grow
        return Off(grown, before.sources | after.sources, False)

    # -- how far sums may fall -----------------------------------------------------------------

    def _fall_of(self, node: Node, place: int) -> float:
        """Return how far below the look the largest entry of a result may fall, in bits.

        This is an estimate. It assumes that sums do not cancel more than in the look. It also
        assumes that branches and masks are the same as in the look.
        """
        if node.graphs:
            outs = [g.outputs[place] for g in node.returning if place < len(g.outputs)]
            return max((self._fall.get(u.value.index, 0.0) for u in outs), default=0.0)
        vanish, m = vanish_of(node), self.seen[node.outputs[place].index]
        falls = [self._fall.get(u.value.index, 0.0) for u in node.uses if u.value.is_floating]
        if vanish.is_part or self._choices.choose(node):  # it may be the smallest entry
            r = self.records[node.outputs[place].index]
            falls.append(INFINITY if m is None or r is None else m.high - r.low)
        if vanish.moves or vanish.is_sum:
            return max(falls, default=0.0)
        power = vanish.infinite(node, 0) if len(falls) == 1 else None
        return sum(falls) * max(abs(power or 1.0), 1.0)

    # -- errors of results -------------------------------------------------------------------------

    def _follow_excused(self, node: Node, place: int) -> None:
        """Restore an excused error if some entries are picked: they may be the smallest.

        If bounds make the error larger than the rounding of the array, they are too wide to use.
        """
        value, picks = node.outputs[place], self._choices.pick(node)
        if not (picks or value.index in self._choices.picked):
            return
        own = self._of_parts(node, value)
        uses = [g.outputs[place] for g in node.returning if place < len(g.outputs)]
        if own == EXACT and not any(u.value.index in self._excused for u in uses or node.uses):
            return
        if picks:
            off = most((own, *map(self._with_excused, node.uses)))
            masks = [m.high for u in node.uses if (m := self._mask(node, u))]
            off = off._replace(size=off.size + sum(masks))
        else:
            off = most((own, self._error(node, place, self._with_excused)))
        m, floor = self.seen[value.index], off.size + digits_of(value)
        if picks and not self._stays_large(value, off, floor):
            self._off[value.index] = off
        elif picks or (m is not None and floor <= m.high):
            self._excused[value.index] = off

    def _of_parts(self, node: Node, v: Value) -> Off:
        """Return the error of the smaller part of a complex number, unless the flag checks both."""
        vanish = vanish_of(node)
        is_made = v.aval.dtype.kind == "c" and not (node.graphs or vanish.moves or vanish.is_sum)
        if not is_made or (vanish.is_product and v.index in self._told):
            return EXACT
        return Off(self._ends(v)[0], frozenset((v.index,)), False)

    def _mask(self, node: Node, use: Use) -> Magnitude | None:
        """Return the magnitude of a mask that multiplies; None if the operand is no mask."""
        is_mask = vanish_of(node).is_product and use.value.index in self._choices.chosen
        return self._exact(use.value) if is_mask else None

    def _error(self, node: Node, place: int, of: Callable[[Use], Off]) -> Off:
        """Return the error of the entries of a result because of numbers that underflow."""
        out = node.outputs[place]
        r = self.records[out.index]
        if node.graphs:
            return most(of(g.outputs[place]) for g in node.returning if place < len(g.outputs))
        own = self._own(node, out, r)
        left, is_zero = self._infinity(node)
        if is_zero and out.index not in self._told:
            own = Off(max(own.size, left), own.sources | {out.index}, own.is_whole)
        elif left < INFINITY:
            self._infinite[out.index] = left
        uses = [u for u in node.uses if u.value.is_floating]
        given = most(map(of, uses))
        if given.size == NEVER:
            return own
        vanish = vanish_of(node)
        high = r.high if r is not None else self._ends(out)[1]
        size = vanish.error(node, [self._operand(u, of(u)) for u in uses], high)
        if (size == INFINITY or math.isnan(size)) and of != self._of:
            return Off(INFINITY, own.sources | given.sources)
        if vanish.adds and not vanish.moves and size == INFINITY:  # a factorisation
            given = most(of(u) for u in uses if not self._excuses(u.value, of(u)))
        if size == INFINITY or math.isnan(size):
            self.harmful |= given.sources
            return own
        is_whole = given.is_whole and own.is_whole and vanish.keeps_zeros
        if any(vanish.divides(node, u.position) and of(u).size > NEVER for u in uses):
            is_whole = False
        both = max(size, own.size) if is_whole else log_add(size, own.size)
        return Off(both, own.sources | given.sources, is_whole)

    def _own(self, node: Node, v: Value, r: Record | None) -> Off:
        """Return the error of a result that underflows itself, unless the flag checks it."""
        low, _ = self._ends(v)
        vanish = vanish_of(node)
        uses = [u for u in node.uses if u.value.is_floating]
        if vanish is HARMFUL and uses:  # its inner steps are unknown
            return Off(INFINITY, frozenset((v.index,)))
        if vanish.moves:  # only a use at another exponent can underflow
            given = [self.e.of(u) for u in uses]
            if max(self.e.of(v), *map(self.e.of, v.uses), NEVER) <= min(given, default=0):
                return EXACT
        if v.index in self._told or not node.uses or (r is not None and r.high == NEVER):
            return EXACT
        if vanish is CONVERTED and not uses:
            return EXACT
        is_small = r is None or r.low < low
        if not is_small:
            high = r.high if r is not None else INFINITY
            is_small = vanish.least(node, [self._operand(u, EXACT) for u in uses], high) < low
        if not is_small:
            return EXACT
        half = bool(limits(v.aval.dtype).step)  # subnormal numbers count, and have fewer digits
        count = terms(node) if vanish.adds and not vanish.moves else 1
        size = low - digits_of(v) if half else low + math.log2(max(1, count))
        return Off(size, frozenset((v.index,)), not (half or vanish.adds) or vanish.moves)

    def _operand(self, use: Use, off: Off) -> Operand:
        r = self.records[use.value.index]
        is_positive = r is not None and not r.has_minus
        return Operand(off.size, self._least(use), self._reach(use), is_positive)

    def _reach(self, use: Use) -> float:
        """Return the factor with which an operand amplifies an error, in log2.

        It is a bound, or the largest number of the look plus the distance.
        """
        v, m = use.value, self._exact(use.value)
        r = self.records[v.index]
        top = r.high if r is not None else normal_range(v.aval.dtype)[1]
        if m is None or v.index in self._choices.monomials:
            return top
        if limits(v.aval.dtype).step:
            return min(top, m.high + self.distance)
        return min(top, max(m.high, 0.0) + self.distance + SLACK)

    def _least(self, use: Use) -> float:
        """Return a lower bound on the nonzero entries of an operand."""
        r, m = self.records[use.value.index], self._exact(use.value)
        is_divisor = use.value.index in self._divisors
        if r is None or (r.zero and is_divisor):
            return NEVER
        if m is None or r.zero or not is_divisor:
            return r.low
        return max(r.low, min(m.low, 0.0) - self.distance - SLACK)

    # -- harmless errors ---------------------------------------------------------------------------

    def _forget_rounding(self, node: Node, v: Value) -> None:
        """Forget an error below the last digit; watch that it stays so for a sum of many terms."""
        off, m = self._off[v.index], self._exact(v)
        if off.size == NEVER:
            return
        vanish, floor = vanish_of(node), off.size + digits_of(v)
        largest = max((u.value.size for u in node.uses), default=0)
        is_reduction = vanish.adds and not vanish.moves and FEW * v.size <= largest
        is_reduction = is_reduction and not self._suspects.isdisjoint(off.sources)
        if self._is_firm(v, off):
            self._off[v.index] = EXACT
        elif self._excuses(v, off):
            self._excused[v.index] = most((off, self._excused.get(v.index, EXACT)))
            self._off[v.index] = EXACT
        elif is_reduction and m is not None and floor <= m.low - DIVISORS:
            self._watch(v, low=floor)
            self.records[v.index] = raised(self.records[v.index] or span(floor, m.high), floor)
            self._off[v.index] = EXACT

    def _is_firm(self, v: Value, off: Off) -> bool:
        """True if an error is below the last digit of every entry."""
        r = self.records[v.index]
        return r is not None and not r.zero and off.size <= r.low - digits_of(v)

    def _falls(self, off: Off) -> bool:
        """True if a source underflows though no operand is nearly zero, as a tail does.

        Then the sum of a later call may be much smaller than in the look.
        """
        nodes = [self.graph.values[i].node for i in off.sources]
        return any(n is None or bool(n.graphs) or vanish_of(n).falls for n in nodes)

    def _excuses(self, v: Value, off: Off) -> bool:
        """True if an error is below the rounding of a sum of numbers of both signs.

        A sum of n terms is rounded n times, by the square root of n units. If the sum of a later
        call may be too small for that, its largest entry is checked.
        """
        m, r = self.seen[v.index], self.records[v.index]
        if m is None or m.is_zero or not is_sum(v):
            return False
        if r is None or not (r.has_plus and r.has_minus):
            return False
        floor = off.size + digits_of(v)
        if v.node and not v.node.graphs:
            floor -= math.log2(max(1, terms(v.node))) / 2
        return self._stays_large(v, off, floor)

    def _stays_large(self, v: Value, off: Off, floor: float) -> bool:
        """True if the largest entry is above a floor. It is watched if it may fall."""
        m = self.seen[v.index]
        if m is None or m.is_zero or floor + (0.0 if m.exact else 12.0) > m.high:
            return False
        if v.size < FEW or self._falls(off) or floor > m.high - self._fall[v.index]:
            before = self.inner.get(v.index, Inner())
            floor = max(floor, floor if before.peak is None else before.peak)
            spares = off.sources <= {v.index} and (before.peak is None or before.spares_zero)
            self._watch(v, peak=floor, spares_zero=spares)
        return True

    def _decides(self, node: Node) -> None:
        """Mark errors as harmful if they may decide truths or integers."""
        uses = [u for u in node.uses if u.value.is_floating]
        for u in uses:
            off = self._of(u)
            if off.size == NEVER:
                continue
            others = [self._from_zero(o) for o in uses if o is not u and self._of(o) == EXACT]
            is_apart = any(least > off.size + 24 for least in others)
            # Except for equality, a sum of both signs is close to another number only by chance.
            by_chance = not vanish_of(node).equates and self._excuses(u.value, off)
            if not (is_apart or by_chance):
                self.harmful |= off.sources

    def _from_zero(self, use: Use) -> float:
        """Return the least size of all entries of an operand, in log2."""
        r = self.records[use.value.index]
        return NEVER if r is None or r.zero else r.low

    def _leaves(self, v: Value) -> None:
        """Mark the error of a result as harmful, unless the result cannot hold numbers so small.

        A free result holds smaller numbers at an exponent of its own. If no exponent holds all of
        its numbers, only numbers that underflow in plain JAX may underflow here.
        """
        off, low = self._off.get(v.index, EXACT), self._ends(v)[0]
        if off.size == NEVER or self._is_firm(v, off):
            return
        if v.index in self._free:
            low = min(low, normal_range(v.aval.dtype)[0])
            low = NEVER if _range.holds_together(v, self.seen) else low
        if off.size > (low if off.is_whole else low - digits_of(v)):
            self.harmful |= off.sources
