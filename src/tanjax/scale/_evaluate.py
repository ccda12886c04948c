"""Runs a scale graph on actual numbers, in a range where nothing overflows, and in the real one.

Which of a program's values leave the range of float16 is best found out by running the program.
JAX cannot: it has the range of its types, and compiles. So the graph is run in NumPy on `Wide`
arrays, equation by equation, nested graphs and loops included. The reference run notes every
value's magnitude. The simulated run does the same with every result clamped to the range (not
the precision) of its type; `losses` compares the two and says what the range alone has cost.

    reference = evaluate(graph, arguments)
    plain = evaluate(graph, arguments, simulate=True)
    losses(graph, reference, plain)  # empty: leave the program alone

A node that is too large, has no rule or has effects (callbacks, printing) is not run: what depends
on it is unknown (None), and `skipped` says why. A loop that is too long is sampled, see `_loops`.
Sharp edge: with `estimated`, the two runs saw only the first iterations; trust the magnitudes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from tanjax import _compat

from . import _loops, _rule_families  # noqa: F401 (registers the rules)
from ._graph import Magnitude, Node, ScaleGraph, Use, Value, build
from ._losses import Loss, losses
from ._numpy_rules import RULES, WORK
from ._wide import Wide, align, clamp_to, magnitude_of, measure, rounded_to, settle, wide

__all__ = ["RULES", "WORK", "Evaluation", "Event", "Loss", "evaluate", "losses", "measure"]

# How many equations are run at most, 5 µs each, and how many elementary operations of a larger
# budget stand for one more.
MOST_RUNS, _WORK_PER_RUN = 4000, 1500


class Event(NamedTuple):
    """Entries that a type could not hold: of a value, or of a use at an exponent of its own."""

    place: Value | Use
    kind: str  # "overflow" or "underflow"
    entries: int
    node: Node | None


class Skipped(NamedTuple):
    """A node that was not run, and why."""

    node: Node
    reason: str


class Evaluation(NamedTuple):
    """What a run has found.

    **Fields:** `outputs`: per output of the graph, None where unknown; `complete`: every node was
    run; `estimated`: a loop was sampled; `events`: what a simulation clamped; `plain`, `arguments`,
    `budget`: how it was run; `skipped`: nodes that were not run.
    """

    outputs: list[Wide | None]
    complete: bool
    estimated: bool
    events: list[Event]
    plain: bool = True
    arguments: tuple[Any, ...] = ()
    budget: float = 0.0
    skipped: tuple[Skipped, ...] = ()


def evaluate(
    graph: ScaleGraph,
    arguments: Sequence[Any],
    *,
    budget: float = 2e6,
    simulate: bool = False,
    plain: bool = True,
) -> Evaluation:
    """Run a graph on numbers.

    **Arguments:** `arguments`: an array, number or `Wide` per input of the graph; `budget`: about
    how many elementary operations may be spent (1e6 take some milliseconds); `simulate`: clamp
    every result to the range of its type, at exponent 0 if `plain`, else at the exponents assigned.
    Otherwise magnitudes are noted, and those that are not reached become None.
    """
    return _evaluate(graph, arguments, budget, "range" if simulate else "reference", plain)


def _evaluate(
    graph: ScaleGraph, arguments: Sequence[Any], budget: float, mode: str, plain: bool = True
) -> Evaluation:
    run = Run(len(graph.values), budget, mode, plain)
    if mode == "reference":
        for value in graph.values:
            value.magnitude = None
    with np.errstate(all="ignore"):
        run.load_constants(graph)
        for value, argument in zip(graph.inputs, arguments, strict=True):
            run.load(value, argument)
        run.graph(graph)
        outputs = [run.read(use) for use in graph.outputs]
    return Evaluation(
        outputs,
        not run.skipped,
        run.estimated,
        run.list_events(),
        plain,
        tuple(arguments),
        budget,
        tuple(run.skipped.values()),
    )


class Run:
    """The state of one run: the numbers known so far, and what is left of the budget."""

    def __init__(self, count: int, budget: float, mode: str, plain: bool) -> None:
        self.env: list[Wide | None] = [None] * count
        self.work, self.runs = budget, max(MOST_RUNS, int(budget / 3000))
        self.mode, self.plain = mode, plain
        self.estimated, self.depth = False, 0
        self.skipped: dict[int, Skipped] = {}
        self.events: dict[tuple[int, str], list[Any]] = {}
        self.inner: dict[int, ScaleGraph] = {}
        self.store = {"reference": self.note, "range": self.clamp, "precision": self.round}[mode]
        self.by_use = mode == "range" and not plain

    # -- values -----------------------------------------------------------------------------------

    def note(self, value: Value, x: Wide) -> None:
        """Keep a result of the reference, and what it says about the value's magnitude."""
        x = settle(x)
        self.env[value.index] = x
        new, old = magnitude_of(x), value.magnitude
        if old is None:
            value.magnitude = new
        elif new.low < old.low or new.high > old.high:
            value.magnitude = Magnitude(min(new.low, old.low), max(new.high, old.high), True)

    def clamp(self, value: Value, x: Wide) -> None:
        """Keep a result as its type stores it."""
        if x.array.dtype.kind in "fc":
            exponent = 0 if self.plain else value.exponent
            x = self.clamped(x, value.aval.dtype, exponent, value, value.node)
        self.env[value.index] = x

    def clamped(self, x: Wide, dtype: Any, exponent: int, place: Any, node: Any) -> Wide:
        x, over, under = clamp_to(x, dtype, exponent)
        for kind, entries in (("overflow", over), ("underflow", under)):
            if entries:
                self.events.setdefault((id(place), kind), [place, node, 0])[2] += entries
        return x

    def round(self, value: Value, x: Wide) -> None:
        """Keep a result rounded to the precision of its type, in any range."""
        if x.array.dtype.kind in "fc":
            x = settle(rounded_to(settle(x), value.aval.dtype))
        self.env[value.index] = x

    def read(self, use: Use) -> Wide | None:
        x = self.env[use.value.index]
        if self.by_use and x is not None and use.exponent != use.value.exponent:
            if x.array.dtype.kind in "fc":
                x = self.clamped(x, use.value.aval.dtype, use.exponent, use, use.node)
        return x

    def list_events(self) -> list[Event]:
        return [
            Event(place, kind, entries, node)
            for (_, kind), (place, node, entries) in self.events.items()
        ]

    def load_constants(self, graph: ScaleGraph) -> None:
        for value in graph.values:
            if value.kind == "constant":
                self.load(value, value.constant)

    def load(self, value: Value, x: Any) -> None:
        """Take an input or a constant, or only its magnitude if it is too large."""
        if isinstance(x, Wide):
            return self.store(value, x)
        size = math.prod(getattr(value.aval, "shape", ()))
        if size > self.work:
            if self.mode == "reference":
                value.magnitude = measure(x)
            return None
        self.work -= size / 2
        return self.store(value, wide(x))

    # -- nodes ------------------------------------------------------------------------------------

    def graph(self, graph: ScaleGraph) -> None:
        """Run the nodes of a graph whose inputs are in `env`."""
        env = self.env
        for node in graph.nodes:
            rule = RULES.get(node.primitive)
            if rule is None:
                self.nested(node)
                continue
            if self.by_use:
                xs = [self.read(use) for use in node.uses]
            else:
                xs = [env[use.value.index] for use in node.uses]
            if None in xs:
                self.forget(node)
                continue
            self.runs -= 1
            self.work -= (cost := _cost(node, xs))
            if self.work < 0 or self.runs < 0:
                self.work += cost
                self.skip(node, "over budget")
                continue
            try:
                results = rule(node, xs)  # type: ignore[arg-type]
            except Exception as error:  # an estimate must not stop the user's program
                self.skip(node, f"{type(error).__name__}: {error}")
                continue
            for value, result in zip(node.outputs, results, strict=True):
                self.store(value, result)

    def skip(self, node: Node, reason: str) -> None:
        self.skipped.setdefault(id(node), Skipped(node, reason))
        self.forget(node)

    def forget(self, node: Node) -> None:
        for value in node.outputs:
            self.env[value.index] = None

    def nested(self, node: Node) -> None:
        """Run a node that has jaxprs of its own, or give it up."""
        runner = _NESTED.get(node.primitive)
        if runner is None:
            self.skip(node, "no rule")
            return
        results = runner(self, node, [self.read(use) for use in node.uses])
        for value, result in zip(node.outputs, results, strict=True):
            if result is None:
                self.env[value.index] = None
            else:
                self.store(value, result)

    def body(self, graph: ScaleGraph, operands: Sequence[Wide | None]) -> list[Wide | None]:
        """The results of a nested graph on some operands."""
        for value, x in zip(graph.inputs, operands, strict=True):
            if x is None:
                self.env[value.index] = None
            else:
                self.store(value, x)
        self.graph(graph)
        return [self.read(use) for use in graph.outputs]


def _cost(node: Node, xs: list[Any]) -> float:
    work = WORK.get(node.primitive, 1.0)
    if callable(work):
        return work(node, xs)
    size = 0
    for value in node.outputs:
        size += math.prod(value.aval.shape)
    for x in xs:
        size += x.array.size
    return work * size / 2


# -- nested graphs --------------------------------------------------------------------------------

Runner = Callable[[Run, Node, list[Any]], list[Any]]


def _call(run: Run, node: Node, xs: list[Any]) -> list[Any]:
    return run.body(node.graphs[0], xs)


def _cond(run: Run, node: Node, xs: list[Any]) -> list[Any]:
    if xs[0] is None:
        return [None] * len(node.outputs)
    taken = min(max(int(xs[0].array), 0), len(node.graphs) - 1)
    return run.body(node.graphs[taken], xs[1:])


def _scan(run: Run, node: Node, xs: list[Any]) -> list[Any]:
    constants, carries = _compat.scan_counts(node.params)
    fixed, carry, rows = (
        xs[:constants],
        xs[constants : constants + carries],
        xs[constants + carries :],
    )
    length = node.params["length"]
    order = range(length - 1, -1, -1) if node.params["reverse"] else range(length)
    stacked: list[list[Any]] = []

    def step(carry: list[Any], i: int) -> list[Any] | None:
        row = [None if x is None else Wide(x.array[order[i]], x.exponent) for x in rows]
        out = run.body(node.graphs[0], [*fixed, *carry, *row])
        if out and all(x is None for x in out):
            return None
        stacked.append(out[carries:])
        return out[:carries]

    done = _loops.run_loop(run, node.graphs[:1], carry, step, length)
    if done is None:
        return [None] * len(node.outputs)
    missing = length - len(stacked)
    if missing and stacked:
        stacked += [stacked[-1]] * missing
    if node.params["reverse"]:
        stacked.reverse()
    columns = zip(*stacked, strict=True) if stacked else [()] * (len(node.outputs) - carries)
    avals = [v.aval for v in node.outputs[carries:]]
    return [*done, *itertools.starmap(_stack, zip(columns, avals, strict=True))]


def _stack(column: Sequence[Any], aval: Any) -> Wide | None:
    if not column:
        return wide(np.zeros(aval.shape, aval.dtype))
    if any(x is None for x in column):
        return None
    arrays, power = align(list(column))
    return Wide(np.stack(arrays), power)


def _while(run: Run, node: Node, xs: list[Any]) -> list[Any]:
    p = node.params
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    tested, fixed, carry = xs[:first], xs[first:second], xs[second:]
    test, body = node.graphs
    stopped = False

    def step(carry: list[Any], i: int) -> list[Any] | None:
        nonlocal stopped
        (more,) = run.body(test, [*tested, *carry])
        if more is None:
            return None
        if not np.any(more.array):
            stopped = True
            return carry
        return run.body(body, [*fixed, *carry])

    done = _loops.run_loop(run, node.graphs, carry, step, None, lambda: stopped)
    return [None] * len(node.outputs) if done is None else done


def _linear_solve(run: Run, node: Node, xs: list[Any]) -> list[Any]:
    """`custom_linear_solve` gives what its `solve` function returns."""
    counts = node.params["const_lengths"]
    start = counts.matvec + counts.vecmat
    operands = [*xs[start : start + counts.solve], *xs[sum(counts) :]]
    return _apart(run, node, lambda: node.params["jaxprs"].solve, operands)


def _expanded(run: Run, node: Node, xs: list[Any]) -> list[Any]:
    """A primitive of JAX 0.12 that is defined by a function: traced for this run."""
    inner = node.params["_prim"]
    return _apart(run, node, lambda: jax.make_jaxpr(inner.expand)(*inner.in_avals), xs)


def _apart(run: Run, node: Node, jaxpr: Callable[[], Any], xs: list[Any]) -> list[Any]:
    """Run a jaxpr that is not part of the graph, so that none of its values has an exponent."""
    graph = run.inner.get(id(node))
    if graph is None:
        graph = run.inner[id(node)] = build(jaxpr())
    outer = run.env, run.store, run.by_use
    run.env, run.by_use = [None] * len(graph.values), False
    if outer[2]:
        run.store = lambda value, x: run.env.__setitem__(value.index, settle(x))
    run.load_constants(graph)
    out = run.body(graph, xs)
    run.env, run.store, run.by_use = outer
    return out


_NESTED: dict[str, Runner] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
    "call_hi_primitive": _expanded,
}
for _name in (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "call",
    "remat",
    "remat2",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "custom_vmap_call",
    "composite",
    "eval_jaxpr",
    "tanjax_linear",
):
    _NESTED[_name] = _call


def unsupported(names: Sequence[str]) -> list[str]:
    """Those of the primitives that cannot be run on numbers."""
    return sorted(n for n in names if n not in RULES and n not in _NESTED)
