"""The rows of a scale graph: one for each value, in the order of the program.

The table, the graph, the picture and the page show a value in the same words, which this module
makes. A row has a short name as in a printed jaxpr, the operation, the magnitude in powers of ten,
the exponent, the conversions of its readings, and the loss in plain JAX.

    >>> magnitude_in_tens(Magnitude(-35.5, 82.3, True)), power_in_tens(5000.0)
    ('2.1e-11 … 6e+24', '1.4e+1505')

The body of a loop comes before the loop's results, below a heading, one step deeper. A constant
that is one number is part of the operation; it has a row only if plain JAX loses it.

Sharp edge: this module converts logarithms to decimal numbers, never numbers to logarithms. A
magnitude of 2^5000 has no float, and is still printed as 1.4e+1505.
"""

from __future__ import annotations

import itertools
import math
import pathlib
import string
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tanjax._errors import describe
from tanjax.jaxprs import Kind, trips

from ..graph._graph import Exponents, Magnitude, Magnitudes, Node, ScaleGraph, Use, Value


class Facts(NamedTuple):
    """The findings of planning about a graph.

    **Fields:** `name`: of the function. `magnitudes`, `exponents`: of its values. `identity`: the
    program runs as it is. `method`, `seconds`, `gap`: of the assignment. `conversions`: as
    inserted, those shared counted once. `lost`: by the index of a value, `"overflow"` or
    `"underflow"` in plain JAX. `notes`: further remarks. `argument_names`, `output_names`: of the
    flat arguments and results.
    """

    name: str
    identity: bool = True
    method: str = ""
    seconds: float = 0.0
    gap: float = 0.0
    conversions: int = 0
    lost: dict[int, str] = {}  # noqa: RUF012 - never changed
    notes: tuple[str, ...] = ()
    argument_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    magnitudes: Magnitudes = ()  # empty: all are unknown
    exponents: Exponents | None = None  # None: all are 0

    def magnitude(self, value: Value) -> Magnitude | None:
        return self.magnitudes[value.index] if self.magnitudes else None

    def exponent(self, x: Value | Use) -> int:
        """Return the exponent of a value or use; for a constant, that of its first use."""
        if isinstance(x, Value) and x.kind == "constant" and x.uses:
            x = x.uses[0]
        return self.exponents.of(x) if self.exponents else 0


class Row(NamedTuple):
    """One line: a value, or with `value=None` the heading of a nested graph.

    **Fields:** `exponent`, `magnitude`: of the value; `place`: in the source; `converted`: its
    readings at other exponents; `lost`: its loss in plain JAX.
    """

    depth: int
    value: Value | None
    name: str
    operation: str
    place: str = ""
    result: str = ""
    converted: str = ""
    lost: str = ""
    exponent: int = 0
    magnitude: Magnitude | None = None

    @property
    def is_remarkable(self) -> bool:
        """True if the value is lost, scaled or converted."""
        return bool(self.lost or self.converted or self.exponent)


def rows_to_show(graph: ScaleGraph, facts: Facts) -> list[Row]:
    """Return the rows of a graph and of its nested graphs, in the order of computation."""
    return list(_Rows(graph, facts).graph(graph, 0, "input"))


class _Rows:
    """A walk through a graph that yields its rows."""

    def __init__(self, graph: ScaleGraph, facts: Facts) -> None:
        self.facts = facts
        self.names = names_of(graph, facts)
        outputs = itertools.zip_longest(graph.outputs, facts.output_names[: len(graph.outputs)])
        self.results = {use.value.index: name or "result" for use, name in outputs}

    def name(self, value: Value) -> str:
        return self.names[value.index]

    def graph(self, graph: ScaleGraph, depth: int, kind: str) -> Iterator[Row]:
        for value in graph.inputs:
            yield self.row(value, depth, kind)
        shown: set[int] = set()
        yield from self.constants(graph.constants, depth, shown)
        for node in graph.nodes:
            yield from self.constants([use.value for use in node.uses], depth, shown)
            operation = self.operation(node)
            for number, inner in enumerate(node.graphs):
                yield Row(depth + 1, None, "", heading(node, number), node.source)
                yield from self.graph(inner, depth + 1, "argument")
            for value in node.outputs:
                yield self.row(value, depth, operation)

    def constants(self, values: list[Value], depth: int, shown: set[int]) -> Iterator[Row]:
        for value in values:
            if value.kind == "constant" and value.index not in shown:
                shown.add(value.index)
                row = self.row(value, depth, "constant")
                if row.lost or _number(value) is None:
                    yield row

    def row(self, value: Value, depth: int, operation: str) -> Row:
        place = value.node.source if value.node else ""
        result, lost = self.results.get(value.index, ""), self.facts.lost.get(value.index, "")
        converted = self.converted(value)
        own = self.facts.exponent(value), self.facts.magnitude(value)
        return Row(depth, value, self.name(value), operation, place, result, converted, lost, *own)

    def operation(self, node: Node) -> str:
        operands = list(map(self.operand, node.uses))
        if len(operands) > 4:
            operands[3:] = ["…"]
        called = node.params.get("name", "") if node.graphs else ""
        return " ".join(filter(None, (node.primitive, called, *operands)))

    def operand(self, use: Use) -> str:
        """Return a name; a number, which has no row, shows the exponent of its reading."""
        exponent = self.facts.exponent(use)
        has_row = _number(use.value) is None or not exponent
        return self.name(use.value) + ("" if has_row else f" at 2^{exponent}")

    def converted(self, value: Value) -> str:
        """Return the conversions of a value by reader: `×2^-24 in c, d`.

        Constants are converted once, when the program is planned, and left out here.
        """
        readers: dict[int, list[str]] = {}
        at = self.facts.exponent
        for use in value.uses if value.kind != "constant" else ():
            if shift := at(value) - at(use):
                reader = self.name(use.node.outputs[0]) if use.node else "result"
                readers.setdefault(shift, []).append(reader)
        return "; ".join(
            f"×2^{shift} in {', '.join(dict.fromkeys(names))}" for shift, names in readers.items()
        )


PLAIN = 7  # the rank of a value that is not remarkable


def ranks_of(rows: list[Row]) -> dict[int, int]:
    """Return the rank of each value, 0 the most important, by the number of its row.

    The first rank has values where a loss begins. Then come results, inputs, other values that are
    lost, converted or scaled, and their neighbours.
    """
    values = [number for number, row in enumerate(rows) if row.value]
    lost = {row.value.index for row in rows if row.value and row.lost}
    ranks = {number: _rank(rows[number], lost) for number in values}
    for n, number in enumerate(values):
        near = values[max(n - 1, 0) : n + 2]
        if ranks[number] == PLAIN and any(rows[other].is_remarkable for other in near):
            ranks[number] = PLAIN - 1
    return ranks


def _rank(row: Row, lost: set[int]) -> int:
    value = row.value
    assert value is not None
    operands = value.node.uses if value.node else ()
    is_passed_on = value.kind == "inner" or any(use.value.index in lost for use in operands)
    begins = row.lost and not is_passed_on
    reasons = (begins, row.result, value.kind == "input", row.lost, row.converted, row.exponent)
    return next((rank for rank, reason in enumerate(reasons) if reason), PLAIN)


def heading(node: Node, number: int) -> str:
    """Return the role of a nested graph: `scan, 365 times`, `cond, branch 2 of 3`."""
    if node.kind is Kind.WHILE:
        return f"while, {('condition', 'body')[number]}"
    if node.kind is Kind.BRANCH:
        return f"cond, branch {number + 1} of {len(node.graphs)}"
    if node.kind is Kind.SCAN:
        return f"scan, {trips(node.equation):.0f} times"
    return " ".join(filter(None, (node.primitive, str(node.params.get("name", "")))))


def kind_of(value: Value) -> str:
    """Return dtype and shape: `float32[3,2]`."""
    return describe(value.aval)


def place_in_short(place: str) -> str:
    """Shorten `/data/orbit.py:12:8 (step.<locals>.force)` to `orbit.py:12 (force)`."""
    where, _, function = place.partition(" (")
    line = ":".join(pathlib.PurePath(where).name.split(":")[:2])  # without the column
    inside = function.rstrip(")").rpartition("<locals>.")[2]
    return line + (f" ({inside})" if inside else "")


def magnitude_in_tens(magnitude: Magnitude | None) -> str:
    """Format as `2e-11 … 6e+24`; `~` marks a bound or an estimate, `?` an unknown magnitude."""
    if magnitude is None:
        return "?"
    if magnitude.is_zero:
        return "0"
    low, high = power_in_tens(magnitude.low), power_in_tens(magnitude.high)
    about = "" if magnitude.exact else "~"
    return about + (low if low == high else f"{low} … {high}")


def power_in_tens(log2: float) -> str:
    """Format `2^log2` in decimals, of any size: `power_in_tens(5000.0) == "1.4e+1505"`."""
    if math.isinf(log2) or math.isnan(log2):
        return {math.inf: "∞", -math.inf: "0"}.get(log2, "?")
    log10 = log2 * math.log10(2.0)
    power = math.floor(log10)
    digits = float(f"{10.0 ** (log10 - power):.1f}")
    if digits == 10.0:
        digits, power = 1.0, power + 1
    return f"{digits * 10.0**power:g}" if -4 < power < 5 else f"{digits:g}e{power:+d}"


def summary(graph: ScaleGraph, facts: Facts) -> list[str]:
    """Return the facts about the whole graph, one line each, notes at the end."""
    equations = sum(1 for _ in graph.walk())
    kinds = sorted({str(v.aval.dtype) for v in graph.values if v.is_floating})
    lines = [f"{facts.name}: {_count(equations, 'equation')} in {', '.join(kinds) or 'no float'}"]
    counts = {kind: list(facts.lost.values()).count(kind) for kind in ("overflow", "underflow")}
    lost = " and ".join(f"{_count(n, 'value')} would {kind}" for kind, n in counts.items() if n)
    lines.append(f"in plain JAX: {lost or 'nothing is lost'}")
    if facts.identity:
        lines.append("plan: the program is run as it is")
    else:
        how = f"{facts.method}, gap {100 * facts.gap:.2g} %, " if facts.method else ""
        lines.append(
            f"plan: {_count(facts.conversions, 'conversion')} ({how}{facts.seconds:.2g} s)"
        )
    return [*lines, *(f"note: {note}" for note in facts.notes)]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def names_of(graph: ScaleGraph, facts: Facts) -> dict[int, str]:
    """Return a name for every value: of the argument, the number of a constant, or letters."""
    pairs = zip(graph.inputs, facts.argument_names, strict=False)
    names = {value.index: name for value, name in pairs if name}
    taken = set(names.values())
    letters = (name for name in _letters() if name not in taken)
    for value in graph.values:  # in the order in which the graph was built, body before result
        if value.index not in names:
            number = _number(value)
            names[value.index] = next(letters) if number is None else number
    return names


def _letters() -> Iterator[str]:
    """Yield all short names: a, b, …, z, aa, ab and so on."""
    for length in itertools.count(1):
        yield from map("".join, itertools.product(string.ascii_lowercase, repeat=length))


def _number(value: Value) -> str | None:
    """Return a constant that is a single number, in four digits; None for all other values."""
    is_number = isinstance(getattr(value.aval, "dtype", None), np.dtype)  # not a random key
    if value.kind != "constant" or value.aval.shape or not is_number:
        return None
    number = np.asarray(value.constant)[()]
    if not value.is_floating:
        return str(number)
    wide = complex(number) if np.iscomplexobj(number) else float(number)
    return f"{wide:.4g}"
