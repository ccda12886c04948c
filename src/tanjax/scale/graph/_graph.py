"""The scale graph: a jaxpr with an integer exponent on every floating value.

A stored number `v` with exponent `s` stands for `v · 2^s`. An equation relates the exponents of its
operands and results: in `x * y` they add up, in `x + y` they agree. If a reader needs a value at
another exponent, the value is converted: an exact multiplication by a power of two. A nested jaxpr
(jit, scan, while, cond, remat, custom rules, shard_map) is a nested graph. Equalities tie its
values to those outside, so a loop's carry is a cycle.

    graph = build(jax.make_jaxpr(lambda x: x * x + 1)(2.0))
    [node.primitive for node in graph.nodes]  # ['mul', 'add']

A graph is built once per trace and never changed. Results computed from it are stored separately:
magnitudes in a list, by the index of a value, and exponents in an `Exponents`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, final

import jax.numpy as jnp

from tanjax import _compat
from tanjax._jaxpr_types import Aval, JaxEquation, Params
from tanjax._typing import AnyArray, DType
from tanjax.jaxprs import KINDS, LOOPS, Kind, Loop, given

# Open, or closed over its constants: `getattr(jaxpr, "jaxpr", jaxpr)` is open.
Jaxpr: TypeAlias = Any


class Magnitude(NamedTuple):
    """`2^low <= |x| <= 2^high` for every entry of a value that is neither zero nor non-finite.

    `exact`: measured on the numbers themselves; otherwise bounds or an estimate.
    """

    low: float
    high: float
    exact: bool = False

    @property
    def is_zero(self) -> bool:
        """True if every entry is zero: then any exponent is right."""
        return self.low > self.high


ZERO = Magnitude(math.inf, -math.inf, True)


@dataclasses.dataclass(eq=False, slots=True, repr=False)
class Value:
    """One array of the program, at its definition.

    **Fields:** `index`: its place in `graph.values` of the outermost graph; `kind`: `"input"` (of
    the whole program), `"constant"` (number known at planning time: in `constant`), `"inner"` (an
    argument of a nested graph) or `"result"` (of `node`); `computed`: how often it is computed;
    `uses`: its readings; `restored`: the constant overflowed or underflowed in its dtype, and
    `constant` is the number as written; `is_floating`: real or complex, so that it has an exponent;
    `size`: the number of entries.
    """

    index: int
    aval: Aval
    kind: str
    computed: float = 1.0
    constant: AnyArray | None = None
    node: Node | None = None
    uses: list[Use] = dataclasses.field(default_factory=list)
    restored: bool = False
    is_floating: bool = dataclasses.field(init=False)
    size: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        # Read thirty times per equation: 0.03 us each instead of 0.3 and 3.
        self.is_floating = is_floating(self.aval)
        self.size = math.prod(getattr(self.aval, "shape", ()))

    def __repr__(self) -> str:
        return f"<{self.kind} {self.index}: {self.aval}>"


@final
@dataclasses.dataclass(eq=False, slots=True, repr=False)
class Use:
    """One reading of a value. `node` is None for a graph's output."""

    index: int
    value: Value
    node: Node | None
    position: int

    def __repr__(self) -> str:
        return f"<use {self.index} of {self.value}>"


@dataclasses.dataclass(eq=False, slots=True, repr=False)
class Node:
    """One equation: operands are `uses`, results `outputs`; `graphs` are its nested jaxprs."""

    index: int
    equation: JaxEquation
    primitive: str
    uses: list[Use]
    outputs: list[Value]
    graphs: tuple[ScaleGraph, ...] = ()
    computed: float = 1.0

    def __repr__(self) -> str:
        return f"<{self.primitive}: {len(self.uses)} uses, {len(self.outputs)} outputs>"

    @property
    def params(self) -> Params:
        return self.equation.params

    @property
    def kind(self) -> Kind | None:
        """The way in which nested graphs are run; None without nested graphs."""
        return KINDS.get(self.primitive)

    @property
    def is_loop(self) -> bool:
        return self.kind in LOOPS

    @property
    def is_call(self) -> bool:
        """True if the node has a nested graph that runs exactly once for any operands."""
        return bool(self.graphs) and not self.is_loop and self.kind is not Kind.BRANCH

    @property
    def given(self) -> list[Sequence[Use]]:
        """The operands that are the arguments of each nested graph."""
        return given(self.equation, self.uses)

    @property
    def returning(self) -> Sequence[ScaleGraph]:
        """The nested graphs whose results are those of the node: not the test of a loop."""
        return self.graphs[-1:] if self.is_loop else self.graphs

    @property
    def carried(self) -> list[tuple[Use, Value]]:
        """Pairs of a result of a loop's body and its argument in the next iteration."""
        if not self.is_loop:
            return []
        loop = self.loop
        results = loop.body.outputs[: len(loop.carry)]
        return list(zip(results, loop.body.inputs[len(loop.fixed) :], strict=False))

    @property
    def loop(self) -> Loop:
        """The node as a loop, with graphs for its programs and uses for its operands."""
        return Loop.of(self.equation, self.uses, self.graphs)

    @property
    def source(self) -> str:
        """The line of the user's program, `file:line (function)`; empty if JAX has none."""
        return _compat.source_of(self.equation)


@dataclasses.dataclass(eq=False, slots=True, repr=False)
class ScaleGraph:
    """A jaxpr as nodes and values.

    **Fields:** `inputs`, `constants` (of the jaxpr) and `nodes` in order; `outputs`: the uses that
    leave the graph; `values` and `uses`: those of this graph and of all nested graphs, which share
    the two lists.
    """

    inputs: list[Value]
    constants: list[Value]
    nodes: list[Node]
    outputs: list[Use]
    values: list[Value]
    uses: list[Use]

    def __repr__(self) -> str:
        return f"<scale graph: {len(self.nodes)} nodes, {len(self.values)} values>"

    def walk(self) -> Iterator[Node]:
        """Yield every node, also of nested graphs; a node comes before those nested in it."""
        for node in self.nodes:
            yield node
            for inner in node.graphs:
                yield from inner.walk()


Magnitudes = Sequence[Magnitude | None]  # by the index of a value; None where unknown


class Exponents(NamedTuple):
    """The powers of two at which a program is run, and its guarded and saturated nodes.

    **Fields:** `values`, `uses`: by index; `guarded`: the indices of nodes whose results must be
    hidden from XLA's simplifier (`_rewrites.py`); `saturated`: the indices of nodes that replace an
    infinite operand by the largest number, so that its product with 0 is 0.
    """

    values: tuple[int, ...]
    uses: tuple[int, ...]
    guarded: frozenset[int] = frozenset()
    saturated: frozenset[int] = frozenset()

    @classmethod
    def none(cls, graph: ScaleGraph) -> Exponents:
        """Return exponent 0 everywhere: the program as it is."""
        return cls((0,) * len(graph.values), (0,) * len(graph.uses))

    def of(self, x: Value | Use) -> int:
        return (self.uses if type(x) is Use else self.values)[x.index]


def is_floating(aval: object) -> bool:
    return is_inexact(getattr(aval, "dtype", None))


@functools.cache  # called about twenty times per equation: 0.1 us instead of 0.7
def is_inexact(dtype: DType | None) -> bool:
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.inexact))


def is_late(use: Use) -> bool:
    """True if the reader is the second, fourth, ... equation that reads the value."""
    readers = list(dict.fromkeys(id(u.node) for u in use.value.uses))
    return readers.index(id(use.node)) % 2 == 1
