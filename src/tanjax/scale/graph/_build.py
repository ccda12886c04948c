"""Build the scale graph of a jaxpr, and of its nested jaxprs, over one list of values.

The builder computes equations of numbers alone (`laws/_folding.py`). A primitive that stands for a
program becomes a nested graph of that program (`_expansions.py`). A factorisation packed into one
array is split into its factors (`_lu.py`).

    graph = build(jax.make_jaxpr(lambda x: x * x + 1)(2.0))
    [node.primitive for node in graph.nodes]  # ['mul', 'add']
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tanjax._jaxpr_types import Aval, JaxEquation, JaxVariable, OpenJaxpr, Readable
from tanjax._jaxprs import needed_equations
from tanjax._typing import AnyArray
from tanjax.jaxprs import opened, trips

from ..laws import _lu
from ..laws._expansions import law_name, nested_jaxprs
from ..laws._folding import folded_number
from ._graph import Jaxpr, Node, ScaleGraph, Use, Value


class _Builder:
    """Builds the graphs of a jaxpr and of its nested jaxprs, over one list of values."""

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
        """Return a constant that the trace computes from others; each reading has its own."""
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

    def graph(self, program: Jaxpr, kind: str, computed: float) -> ScaleGraph:
        jaxpr, consts = opened(program)
        inputs = [self.value(v.aval, kind, computed) for v in jaxpr.invars]
        constants = [self.constant(v, c) for v, c in zip(jaxpr.constvars, consts, strict=True)]
        body = _Body(self, computed)
        body.known.update(zip(jaxpr.invars, inputs, strict=True))
        body.known.update(zip(jaxpr.constvars, constants, strict=True))
        body.run(jaxpr)
        outputs = [self.use(body.read(v), None, i) for i, v in enumerate(jaxpr.outvars)]
        return ScaleGraph(inputs, constants, body.nodes, outputs, self.values, self.uses)


class _Body:
    """The nodes of one graph under construction, and the values of its variables.

    **Fields:** `known`: values by variable; `numbers`: those that the trace computes from numbers;
    `factors`: the parts of packed factorisations (`_lu.py`).
    """

    def __init__(self, builder: _Builder, computed: float) -> None:
        self.builder, self.computed = builder, computed
        self.nodes: list[Node] = []
        self.known: dict[JaxVariable, Value] = {}
        self.numbers: dict[JaxVariable, np.ndarray] = {}
        self.factors: dict[JaxVariable, _lu.Factors] = {}

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
        for equation in needed_equations(jaxpr):
            found = folded_number(equation, list(map(self.number, equation.invars)))
            if found is not None:
                self.numbers[equation.outvars[0]] = found
            elif not self.entered(equation):
                self.add(equation)

    def add(self, equation: JaxEquation) -> None:
        name = law_name(equation)
        node = Node(self.builder.nodes, equation, name, [], [], computed=self.computed)
        self.builder.nodes += 1
        new = self.builder.value
        for i, v in enumerate(equation.invars):
            factors = None if hasattr(v, "val") else self.factors.get(v)
            part = factors.part_for(equation) if factors else None
            node.uses.append(self.builder.use(part or self.read(v), node, i))
        often = self.computed * trips(equation)
        graph = self.builder.graph
        node.graphs = tuple(graph(inner, "inner", often) for inner in nested_jaxprs(equation))
        avals = [v.aval for v in equation.outvars]
        if name == _lu.NAME:
            avals += [avals[0], avals[0]]
        node.outputs = [new(aval, "result", self.computed, node=node) for aval in avals]
        self.known.update(zip(equation.outvars, node.outputs, strict=False))
        if name == _lu.NAME:
            self.factors[equation.outvars[0]] = _lu.Factors(node.outputs[0], *node.outputs[-2:])
        self.nodes.append(node)

    def entered(self, equation: JaxEquation) -> bool:
        """Inline a call that takes or returns a factorisation, so that its readers are visible.

        Return True if the call was inlined.
        """
        handed = [v for v in equation.invars if not hasattr(v, "val") and v in self.factors]
        call = _lu.called(equation) if handed or _lu.hands_out(equation) else None
        if call is None or any(self.factors[v].part_for(equation) for v in handed):
            return False
        program, given = call
        jaxpr, consts = opened(program)
        body = _Body(self.builder, self.computed)
        body.nodes = self.nodes
        for v, outside in zip(jaxpr.invars, given, strict=True):
            body.known[v] = self.read(outside)
            if outside in handed:
                body.factors[v] = self.factors[outside]
        for v, c in zip(jaxpr.constvars, consts, strict=True):
            body.known[v] = self.builder.constant(v, c)
        body.run(jaxpr)
        for v, inner in zip(equation.outvars, jaxpr.outvars, strict=True):
            self.known[v] = body.read(inner)
            if not hasattr(inner, "val") and inner in body.factors:
                self.factors[v] = body.factors[inner]
        return True


def build(closed: Readable, restored: Mapping[int, AnyArray] | None = None) -> ScaleGraph:
    """Build the scale graph of a closed jaxpr, without equations whose results are unused.

    **Arguments:** `closed`: the jaxpr; `restored`: numbers of constants that did not fit in their
    dtype (`_literals.py`), by the `id` of their place in the jaxpr.
    """
    return _Builder(restored or {}).graph(closed, "input", 1.0)
