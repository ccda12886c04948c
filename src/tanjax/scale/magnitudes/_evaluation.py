"""The findings of a run of a scale graph on numbers (`_evaluate.py` runs it)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from tanjax._typing import AnyArray

from ..graph._graph import Exponents, Magnitude, Magnitudes, Node, ScaleGraph, Use, Value
from ..numbers._wide import Wide

OVER_BUDGET, UNDEFINED, PARTS = "over budget", "undefined", "parts"
ENDLESS = "endless"  # a loop that ends in a wide range, and not in the range of its dtypes
NO_RULE = "no rule"  # to run a primitive

# The form of an input: an array, a number, a `Wide`, or None if it is unknown.
Given: TypeAlias = AnyArray
Numbers: TypeAlias = list[Wide | None]  # the numbers of several arrays, None where unknown
Place: TypeAlias = Value | Use  # where numbers are stored


class Event(NamedTuple):
    """Entries that a type could not hold, in a value or in a use at an exponent of its own."""

    place: Place
    kind: str  # "overflow", "underflow", "undefined" (0 · inf), "parts" of a product, "endless"
    entries: int
    node: Node | None


class Skipped(NamedTuple):
    """A node that was not run, the reason, and the user's line, or that of the call around it."""

    node: Node
    reason: str
    source: str


class Evaluation(NamedTuple):
    """The findings of a run.

    **Fields:** `outputs`: per output of the graph, None where unknown; `magnitudes`: of the values
    that were reached; `complete`: every node was run; `estimated`: a loop was sampled; `events`:
    entries that a simulation clamped; `exponents` (None: the program as it is), `arguments`,
    `budget`: the inputs of the run; `skipped`: nodes that were not run; `beyond`: some numbers
    overflowed or underflowed even the wide range; `again`: a cache of further runs on the same
    arguments; `env`: the numbers of all values, None if there are too many to keep.
    """

    outputs: Numbers
    magnitudes: Magnitudes
    complete: bool
    estimated: bool
    events: list[Event]
    exponents: Exponents | None
    arguments: tuple[Given, ...]
    budget: float
    skipped: tuple[Skipped, ...]
    beyond: bool
    again: dict[str, Evaluation]
    env: Sequence[Wide | None] | None


class AbstractRun(Protocol):
    """The state of a run as loops and branches read and change it. The class is `Run`."""

    work: float
    runs: int
    mode: str
    magnitudes: list[Magnitude | None]
    estimated: bool
    depth: int
    must_end: bool

    def body(self, graph: ScaleGraph, operands: Sequence[Wide | None]) -> Numbers: ...
    def never_ends(self, node: Node) -> None: ...
    def skip(self, node: Node, reason: str) -> None: ...
