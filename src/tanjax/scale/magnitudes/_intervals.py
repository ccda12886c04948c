"""Bounds on the magnitudes of values that are too large, or too unknown, to be computed.

Planning must cost less than the program. So this module runs bounds on logarithms through the
graph instead of numbers, with the signs (`_interval_record`). Each primitive has a rule. A nested
graph is bounded like its parent, and the bounds of branches are united. A few passes through a
loop's body show how much its carry grows (`_interval_loops`).

    graph = build(jax.make_jaxpr(lambda x: jnp.exp(-x * x))(jnp.ones(10**6)))
    found = bound(graph, [Magnitude(-5.0, 3.0)])
    found[graph.outputs[0].value.index].high  # 0.0

Sharp edges. Bounds hold for exact arithmetic, except where they would be useless: sums of k terms
of mixed signs are assumed to grow by √k, and loops to continue as they begin. A cancellation leaves
no lower bound. Later rules then assume that entries are no smaller than the smallest operand, and
the reported lower bound is unknown (-inf). With `cancellation=True` it is the least that a
cancellation can leave, a unit in the last place. This bound always holds, but it is very low.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tanjax._typing import AnyArray, DType
from tanjax.jaxprs import KINDS

from ..graph._graph import ZERO, Magnitude, Magnitudes, Node, ScaleGraph, Value
from ..laws._law import LAWS, law_of
from ..numbers._extremes import is_on_host
from ..numbers._hosts import Argument
from ..numbers._interval_record import (
    INDICATOR,
    INFINITY,
    MANTISSA,
    NOTHING,
    Record,
    Records,
    span,
)
from ..numbers._measure import measure
from ._interval_loops import BoundNested


def bound(
    graph: ScaleGraph,
    arguments: Sequence[Argument],
    measured: Magnitudes | None = None,
    *,
    cancellation: bool = False,
) -> Magnitudes:
    """Return the magnitudes of the floating values of a graph; None for values without a bound.

    **Arguments:** `arguments`: for each input an array (measured), a `Magnitude` or None (unknown).
    `measured`: magnitudes known from numbers, which are kept and used. `cancellation`: lower
    bounds, and bounds of quotients, allow for the worst cancellation.
    **Cost:** about 10 µs per equation, and several times that within loops.
    """
    # With tens of thousands of small records, the collector searches all of JAX's objects again and
    # again, which doubles the time. The records hold no references, so they form no cycles.
    collects = gc.isenabled()
    gc.disable()
    try:
        bounds = Bounds(graph, cancellation, measured)
        pairs = zip(arguments, graph.inputs, strict=True)
        bounds.run(graph, [bounds.argument(x, value) for x, value in pairs])
        return bounds.filled(graph)
    finally:
        if collects:
            gc.enable()


def unsupported() -> list[str]:
    """Return the primitives of `jax.lax` without a rule: their results are unknown."""
    bounded = {
        name for name, law in LAWS.items() if law.bound or KINDS.get(name) in BoundNested.enters
    }
    return sorted(
        {p.name for p in vars(jax.lax).values() if hasattr(p, "multiple_results")} - bounded
    )


class Bounds:
    """The records of all values of a graph, filled in by running it on records."""

    def __init__(
        self, graph: ScaleGraph, cancellation: bool, measured: Magnitudes | None = None
    ) -> None:
        self.records: Records = [None] * len(graph.values)
        self.cancellation = cancellation
        self.depth = 0  # of loops
        self.kinds: dict[DType | None, tuple[str, int, Record | None]] = {}
        self.measured = measured or [None] * len(graph.values)
        self.magnitudes = list(self.measured)
        for value in graph.values:
            if value.kind == "constant":
                self.records[value.index] = self.argument(value.constant, value)

    def argument(self, x: Argument, value: Value) -> Record | None:
        """Return the record of an input or constant, and note its magnitude as measured."""
        if x is None or self.kind(value.aval.dtype)[0] not in "fciub":  # random keys
            return self.finished(None, value)
        if isinstance(x, Magnitude):
            magnitude, record = x, span(x.low, x.high) if not x.is_zero else NOTHING
        else:
            magnitude, record = _record_of(x)
        if self.magnitudes[value.index] is None:
            self.magnitudes[value.index] = magnitude
        return self.finished(record, value)

    def kind(self, dtype: Any) -> tuple[str, int, Record | None]:
        """Return the letter of a dtype, the bits of its mantissa and the range of its integers."""
        if dtype not in self.kinds:
            letter = getattr(dtype, "kind", "V")  # random keys and tokens have none
            if dtype is not None and jax.numpy.issubdtype(dtype, np.floating):
                letter = "f"
            whole = None
            if letter in "iu":
                bits = 8.0 * dtype.itemsize - (letter == "i")
                whole = span(0.0, bits)._replace(grid=0.0)
                if letter == "u":
                    whole = Record(0.0, bits, zero=True, grid=0.0)
            elif letter == "b":
                whole = INDICATOR
            self.kinds[dtype] = letter, MANTISSA.get(str(dtype), 4), whole
        return self.kinds[dtype]

    def finished(self, r: Record | None, value: Value) -> Record | None:
        """Return a record as it is kept: within its integer range, with a grid, as measured."""
        dtype = getattr(value.aval, "dtype", None)
        letter, bits, whole = self.kinds.get(dtype) or self.kind(dtype)
        if whole is not None:
            return r if r is not None and r.high <= whole.high else whole
        measured = self.measured[value.index]
        if r is None or not (r.plus_high < INFINITY and r.minus_high < INFINITY):
            if measured is None:
                return None
            r = span(measured.low, measured.high)
        elif letter == "c":
            r = span(r.low, r.high, zero=r.zero)._replace(grid=r.grid, cancelled=r.cancelled)
        if measured is not None:
            r = _within(r, measured)
        plus_low, plus_high, minus_low, minus_high, zero, grid, cancelled = r
        low = plus_low if plus_low < minus_low else minus_low
        if not -INFINITY < low < INFINITY:
            return r
        if not self.cancellation:
            own = low
        elif letter == "c":
            own = grid = -INFINITY  # the smaller part may have any size
        else:
            own = math.floor(low) - bits + 1.0
        grid = own if own > grid else grid
        return Record(plus_low, plus_high, minus_low, minus_high, zero, grid, cancelled)

    def run(self, graph: ScaleGraph, inputs: Records) -> Records:
        """Return the records of a graph's outputs, given those of its inputs."""
        records = self.records
        for value, record in zip(graph.inputs, inputs, strict=True):
            records[value.index] = self.finished(record, value)
        for node in graph.nodes:
            operands = [records[use.value.index] for use in node.uses]
            results = self.results(node, operands)
            for value, record in zip(node.outputs, results, strict=True):
                records[value.index] = self.finished(record, value)
        return [records[use.value.index] for use in graph.outputs]

    def results(self, node: Node, operands: Records) -> Records:
        if node.kind in BoundNested.enters:
            nested = BoundNested(self)
            return nested.enter(node.equation, node.graphs, operands)
        law = law_of(node)
        if law.bound is not None:
            if law.real_only and any(use.value.aval.dtype.kind == "c" for use in node.uses):
                return [None] * len(node.outputs)
            return law.bound(node, operands)
        if node.graphs:
            callee, given = node.graphs[0], [operands[use.position] for use in node.given[0]]
            sizes = len(callee.inputs), len(callee.outputs)
            if sizes == (len(given), len(node.outputs)):
                return self.run(callee, given)
        return [None] * len(node.outputs)

    def filled(self, graph: ScaleGraph) -> Magnitudes:
        found = self.magnitudes
        for value, r in zip(graph.values, self.records, strict=True):
            if found[value.index] is not None or r is None:
                continue
            if self.kind(value.aval.dtype)[0] in "fc":
                soft = r.cancelled and not self.cancellation
                found[value.index] = Magnitude(-INFINITY if soft else r.low, r.high)
        return found


def _within(r: Record, m: Magnitude) -> Record:
    """Return a record cut to measured bounds."""
    if m.is_zero:
        return NOTHING
    plus = max(r.plus_low, m.low), min(r.plus_high, m.high)
    minus = max(r.minus_low, m.low), min(r.minus_high, m.high)
    if plus[0] > plus[1]:
        plus = INFINITY, -INFINITY
    if minus[0] > minus[1]:
        minus = INFINITY, -INFINITY
    if plus[0] > minus[1] and minus[0] > plus[1] and plus[1] == minus[1]:
        return span(m.low, m.high)  # if bounds contradict the numbers, the numbers are right
    return Record(*plus, *minus, r.zero, r.grid, r.cancelled and not m.exact)


def _record_of(x: AnyArray) -> tuple[Magnitude, Record]:
    """Return the magnitude and the record of numbers."""
    if isinstance(x, (bool, int, float)) or getattr(x, "ndim", 1) == 0:
        return _record_of_number(x)
    m = measure(x)
    if m.is_zero:
        return m, NOTHING
    dtype = getattr(x, "dtype", None)
    if dtype is not None and dtype.kind == "c":
        return m, span(m.low, m.high)
    if not isinstance(x, jax.Array) or is_on_host(x):
        x = np.asarray(x)  # elsewhere, `x > 0` is computed where the data is
    zero, plus, minus = bool((x == 0).any()), bool((x > 0).any()), bool((x < 0).any())
    none = (INFINITY, -INFINITY)
    sizes = (m.low, m.high)
    return m, Record(*(sizes if plus else none), *(sizes if minus else none), zero)


def _record_of_number(x: AnyArray) -> tuple[Magnitude, Record]:
    if getattr(getattr(x, "dtype", None), "kind", "f") == "c":
        m = measure(x)
        return m, NOTHING if m.is_zero else span(m.low, m.high)
    number = float(x)
    if number == 0.0:
        return ZERO, NOTHING
    if not math.isfinite(number):
        return ZERO, Record(grid=INFINITY)
    size = math.log2(abs(number))
    m = Magnitude(size, size, True)
    return m, Record(size, size) if number > 0 else Record(INFINITY, -INFINITY, size, size)
