"""The scale graph: a jaxpr with an integer exponent on every floating value.

A stored number `v` with exponent `s` stands for `v · 2^s`. An equation says how the exponents of
its operands and results belong together (`x * y`: they add up; `x + y`: they agree); where a value
is wanted at another exponent than it has, it is converted, by a multiplication with a power of two,
which is exact. A nested jaxpr (jit, scan, while, cond, remat, custom rules, shard_map) is a nested
graph whose values are tied to those outside by equalities, so that a loop's carry is a cycle.

    graph = build(jax.make_jaxpr(lambda x: x * x + 1)(2.0))
    [node.primitive for node in graph.nodes]  # ['mul', 'add']

A graph is built once per trace and never changed. What is computed from it stands beside it:
magnitudes in a list, by the index of a value, and exponents in an `Exponents`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, final

import jax.numpy as jnp
import numpy as np

from tanjax import _compat, _jaxprs
from tanjax._jaxpr_types import Aval, JaxEquation, JaxVariable, OpenJaxpr, Params, Readable, Steps
from tanjax._typing import AnyArray, DType

from . import _lu
from ._expansions import expansion, is_expanded
from ._folding import folded_number
from ._lu import Factors

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
        """Whether every entry is zero: any exponent will do."""
        return self.low > self.high


ZERO = Magnitude(math.inf, -math.inf, True)


@dataclasses.dataclass(eq=False, slots=True, repr=False)
class Value:
    """One array of the program: where it is defined.

    **Fields:** `index`: its place in `graph.values` of the outermost graph; `kind`: `"input"` (of
    the whole program), `"constant"` (number known at planning time: in `constant`), `"inner"` (an
    argument of a nested graph) or `"result"` (of `node`); `computed`: how often it is computed;
    `uses`: who reads it; `restored`: a constant that did not fit in its dtype, with the number as
    it was written; `is_floating`: whether it has an exponent at all, real or complex; `size`.
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
        # Asked for thirty times per equation: 0.03 us each instead of 0.3 and 3.
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
    def source(self) -> str:
        """The line of the user's program, `file:line (function)`; empty if JAX does not say."""
        return _compat.source_of(self.equation)


@dataclasses.dataclass(eq=False, slots=True, repr=False)
class ScaleGraph:
    """A jaxpr as nodes and values.

    **Fields:** `inputs`, `constants` (of the jaxpr) and `nodes` in order; `outputs`: the uses that
    leave; `values` and `uses`: all of them, also those of nested graphs (shared with those).
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
        """Every node, also of nested graphs; a node comes before those nested in it."""
        for node in self.nodes:
            yield node
            for inner in node.graphs:
                yield from inner.walk()


Magnitudes = Sequence[Magnitude | None]  # by the index of a value; None where nothing is known


class Exponents(NamedTuple):
    """The powers of two at which a program is run, and what else is done to it.

    **Fields:** `values`, `uses`: by index; `guarded`: the indices of nodes whose results must be
    hidden from XLA's simplifier (`_rewrites.py`); `saturated`: of those that read
    the largest number where an operand is infinite: their product with 0 is 0.
    """

    values: tuple[int, ...]
    uses: tuple[int, ...]
    guarded: frozenset[int] = frozenset()
    saturated: frozenset[int] = frozenset()

    @classmethod
    def none(cls, graph: ScaleGraph) -> Exponents:
        """The program as it is."""
        return cls((0,) * len(graph.values), (0,) * len(graph.uses))

    def of(self, x: Value | Use) -> int:
        return (self.uses if type(x) is Use else self.values)[x.index]


def is_floating(aval: object) -> bool:
    return is_inexact(getattr(aval, "dtype", None))


@functools.cache  # it is asked some twenty times per equation: 0.1 us instead of 0.7
def is_inexact(dtype: DType | None) -> bool:
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.inexact))


# The parameters under which a primitive keeps its jaxpr, and the primitives that run it once on
# their operands; others with a jaxpr among their parameters (a reduction's) have no nested graph.
_KEYS = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")
CALLS: set[str] = set()


def nested_jaxprs(equation: JaxEquation) -> tuple[Steps, ...]:
    """The jaxprs that an equation runs: body of a loop, branches, callee."""
    params, name = equation.params, equation.primitive.name
    if name == "tanjax_linear":
        closed: Jaxpr = _compat.linear_jaxpr(equation)
        return (closed,)
    if is_expanded(equation):
        return (expansion(equation),)
    if name == "while":
        return params["cond_jaxpr"], params["body_jaxpr"]
    if name == "cond":
        return tuple(params["branches"])
    if name == "custom_linear_solve":
        return (params["jaxprs"].solve,)
    for key in _KEYS if name in CALLS or name == "scan" else ():
        inner = params.get(key)
        if inner is not None and hasattr(getattr(inner, "jaxpr", inner), "eqns"):
            return (inner,)
    return ()


def callee_uses(node: Node) -> list[Use]:
    """The operands that are the arguments of the nested graph of a call."""
    if node.primitive != "custom_linear_solve":
        return node.uses
    counts = node.params["const_lengths"]
    start = counts.matvec + counts.vecmat
    return [*node.uses[start : start + counts.solve], *node.uses[sum(counts) :]]


# How often the body of a `while` loop is assumed to run, where nothing better is known.
ASSUMED_TRIPS = 100.0


def trips(equation: JaxEquation) -> float:
    """How often the nested jaxprs of an equation run for each time that the equation does."""
    if equation.primitive.name == "scan":
        return float(equation.params["length"])
    return ASSUMED_TRIPS if equation.primitive.name == "while" else 1.0


def is_late(use: Use) -> bool:
    """Whether a reading is by the second, fourth, ... equation that reads the value."""
    readers = list(dict.fromkeys(id(u.node) for u in use.value.uses))
    return readers.index(id(use.node)) % 2 == 1


def number_of(value: Value) -> Any:
    """The one number that every entry of a value is known to be at planning time, or None."""
    while value.constant is None and value.node is not None:
        if value.node.primitive not in ("broadcast_in_dim", "convert_element_type", "copy"):
            return None
        value = value.node.uses[0].value
    if value.constant is None or not value.size or not isinstance(value.aval.dtype, np.dtype):
        return None
    array = np.asarray(value.constant)
    wide = np.complex128 if np.iscomplexobj(array) else np.float64
    numbers = np.unique(array.astype(wide))
    return numbers[0].item() if len(numbers) == 1 and np.isfinite(numbers[0]) else None


class _Builder:
    """Makes the graphs of a jaxpr and of those nested in it, over one list of values."""

    def __init__(self, restored: Mapping[int, AnyArray]) -> None:
        self.values: list[Value] = []
        self.uses: list[Use] = []
        self.nodes = 0
        self.restored = restored

    def constant(self, v: JaxVariable, number: AnyArray) -> Value:
        new = self.value(v.aval, "constant", 0.0, constant=self.restored.get(id(v), number))
        new.restored = id(v) in self.restored
        return new

    def computed(self, v: JaxVariable, number: np.ndarray) -> Value:
        """A constant that the trace computes from others, one for each reading."""
        new = self.value(v.aval, "constant", 0.0, constant=number)
        new.restored = number.dtype != v.aval.dtype
        return new

    def value(self, aval: Aval, kind: str, computed: float, **more: Any) -> Value:
        new = Value(len(self.values), aval, kind, computed, **more)
        self.values.append(new)
        return new

    def use(self, value: Value, node: Node | None, position: int) -> Use:
        new = Use(len(self.uses), value, node, position)
        self.uses.append(new)
        value.uses.append(new)
        return new

    def graph(
        self, jaxpr: Jaxpr, consts: Sequence[AnyArray], kind: str, computed: float
    ) -> ScaleGraph:
        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        inputs = [self.value(v.aval, kind, computed) for v in jaxpr.invars]
        constants = [self.constant(v, c) for v, c in zip(jaxpr.constvars, consts, strict=True)]
        body = _Body(self, computed)
        body.known.update(zip(jaxpr.invars, inputs, strict=True))
        body.known.update(zip(jaxpr.constvars, constants, strict=True))
        body.run(jaxpr)
        outputs = [self.use(body.read(v), None, i) for i, v in enumerate(jaxpr.outvars)]
        return ScaleGraph(inputs, constants, body.nodes, outputs, self.values, self.uses)

    def nested(self, equation: JaxEquation, computed: float) -> tuple[ScaleGraph, ...]:
        often = computed * trips(equation)
        return tuple(
            self.graph(inner, getattr(inner, "consts", ()), "inner", often)
            for inner in nested_jaxprs(equation)
        )


class _Body:
    """The nodes of one graph while they are made, and what its variables stand for.

    **Fields:** `known`: values by variable; `numbers`: those that the trace computes from numbers;
    `factors`: the parts of packed factorisations (`_lu.py`).
    """

    def __init__(self, builder: _Builder, computed: float) -> None:
        self.builder, self.computed = builder, computed
        self.nodes: list[Node] = []
        self.known: dict[JaxVariable, Value] = {}
        self.numbers: dict[JaxVariable, np.ndarray] = {}
        self.factors: dict[JaxVariable, Factors] = {}

    def read(self, v: JaxVariable) -> Value:
        if hasattr(v, "val"):  # a literal carries its value
            return self.builder.constant(v, v.val)
        if v in self.numbers:
            return self.builder.computed(v, self.numbers[v])
        return self.known[v]

    def number(self, v: JaxVariable) -> np.ndarray | None:
        if not hasattr(v, "val"):
            return self.numbers.get(v)
        return None if v.aval.shape else np.asarray(self.builder.restored.get(id(v), v.val))

    def run(self, jaxpr: OpenJaxpr) -> None:
        for equation in _jaxprs.needed_equations(jaxpr):
            found = folded_number(equation, list(map(self.number, equation.invars)))
            if found is not None:
                self.numbers[equation.outvars[0]] = found
            elif not self.entered(equation):
                self.add(equation)

    def add(self, equation: JaxEquation) -> None:
        name = "closed_call" if is_expanded(equation) else equation.primitive.name
        name = _lu.NAME if name == "lu" else name
        node = Node(self.builder.nodes, equation, name, [], [], computed=self.computed)
        self.builder.nodes += 1
        new = self.builder.value
        for i, v in enumerate(equation.invars):
            factors = None if hasattr(v, "val") else self.factors.get(v)
            part = factors.part_for(equation) if factors else None
            node.uses.append(self.builder.use(part or self.read(v), node, i))
        node.graphs = self.builder.nested(equation, self.computed)
        avals = [v.aval for v in equation.outvars]
        if name == _lu.NAME:
            avals += [avals[0], avals[0]]
        node.outputs = [new(aval, "result", self.computed, node=node) for aval in avals]
        self.known.update(zip(equation.outvars, node.outputs, strict=False))
        if name == _lu.NAME:
            self.factors[equation.outvars[0]] = Factors(node.outputs[0], *node.outputs[-2:])
        self.nodes.append(node)

    def entered(self, equation: JaxEquation) -> bool:
        """Run a call here that takes or returns a factorisation, so that its readers are seen."""
        handed = [v for v in equation.invars if not hasattr(v, "val") and v in self.factors]
        call = _lu.called(equation) if handed or _lu.hands_out(equation) else None
        if call is None or any(self.factors[v].part_for(equation) for v in handed):
            return False
        inner, places = call
        jaxpr: Jaxpr = getattr(inner, "jaxpr", inner)
        body = _Body(self.builder, self.computed)
        body.nodes = self.nodes
        for v, i in zip(jaxpr.invars, places, strict=True):
            outside = equation.invars[i]
            body.known[v] = self.read(outside)
            if outside in handed:
                body.factors[v] = self.factors[outside]
        for v, c in zip(jaxpr.constvars, getattr(inner, "consts", ()), strict=True):
            body.known[v] = self.builder.constant(v, c)
        body.run(jaxpr)
        for v, inner in zip(equation.outvars, jaxpr.outvars, strict=True):
            self.known[v] = body.read(inner)
            if not hasattr(inner, "val") and inner in body.factors:
                self.factors[v] = body.factors[inner]
        return True


def build(closed: Readable, restored: Mapping[int, AnyArray] | None = None) -> ScaleGraph:
    """The scale graph of a closed jaxpr. Equations on which nothing depends are left out.

    **Arguments:** `restored`: numbers of constants that did not fit in their dtype
    (`_literals.py`), by the `id` of their place in the jaxpr.
    """
    return _Builder(restored or {}).graph(closed, closed.consts, "input", 1.0)
