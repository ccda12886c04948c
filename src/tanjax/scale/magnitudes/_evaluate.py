"""Run a scale graph on actual numbers, in a range without overflow, and in the real one.

The best way to find the values that leave the range of float16 is to run the program. JAX cannot
do this: it has the range of its types, and compiles. So this module runs the graph in NumPy on
`Wide` arrays, equation by equation, nested graphs and loops included. There are three runs:

- The reference notes the magnitude of every value.
- The rounded run also rounds every result to the mantissa of its type.
- The simulated run also clamps every result to the range of its type.

`losses` compares the three, and returns the errors that the range causes.

    reference = evaluate(graph, arguments)
    losses(graph, reference, simulate(graph, reference))  # empty: leave the program alone

A later run reuses a result of an earlier run if the operands are the same objects. At exponents
that hold all numbers, a simulated run has the results of the rounded run, and only checks the
range.

A node that is too large, has no rule or has effects (callbacks, printing) is not run. Its results
and all that depend on them are unknown (None), and `skipped` has the reason. A loop that is too
long is sampled, see `_loops`.

Sharp edge: with `estimated`, the two runs saw only the first iterations; trust the magnitudes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from ..graph._graph import Exponents, Magnitude, Magnitudes, Node, ScaleGraph, Use, Value, is_late
from ..laws._by_jax import WITHOUT_LAW
from ..laws._law import LAWS, Law, Many, applied, law_of, work_of
from ..laws._linalg import products_leave
from ..laws._range import is_garbled, is_reciprocal, vanishes
from ..laws._reductions import parts_leave, parts_overflow, parts_vanish
from ..numbers._measure import measure
from ..numbers._stored import Clamped, clamp_to, rounded_to, saturated
from ..numbers._wide import Wide, beyond, inverse, magnitude_of, normalised, wide
from ._evaluation import (
    ENDLESS,
    NO_RULE,
    OVER_BUDGET,
    PARTS,
    UNDEFINED,
    Evaluation,
    Event,
    Given,
    Place,
    Skipped,
)
from ._nested import can_run, run_nested

# The most equations to run, 5 µs each, and the elementary operations of a larger budget that pay
# for one more.
MOST_RUNS, _WORK_PER_RUN = 4000, 1500
# The extra cost of an equation, and of each entry, if each number has an exponent of its own.
_SPREAD_RUNS, _SPREAD_WORK = 3, 6

_KEPT = 10_000_000  # the most numbers of a run to keep for later runs: 80 MB


def evaluate(
    graph: ScaleGraph,
    arguments: Sequence[Given],
    *,
    budget: float = 2e6,
    begun: Evaluation | None = None,
) -> Evaluation:
    """Run a graph on numbers, in a wide range: the reference.

    **Arguments:** `arguments`: an array, number or `Wide` per input of the graph; `budget`: the
    approximate limit of elementary operations (1e6 take some milliseconds); `begun`: an earlier
    reference of the same arguments with a smaller budget.
    """
    found = _run(graph, arguments, Run(graph, budget, "reference", base=begun))
    return found._replace(beyond=found.beyond or (begun is not None and begun.beyond))


def simulate(
    graph: ScaleGraph,
    reference: Evaluation,
    exponents: Exponents | None = None,
    *,
    wider: bool = False,
) -> Evaluation:
    """Run a graph again with every result rounded and clamped as its type does.

    **Arguments:** `reference`: the same run in a wide range; `exponents`: those of the stored
    numbers, None for the program as it is; `wider`: keep numbers that overflow float16, as XLA does
    where it computes in float32.
    """
    if exponents is None and "stored" in reference.again:
        return reference.again["stored"]
    base = rounded(graph, reference)
    run = Run(graph, reference.budget, "stored", reference.magnitudes, exponents, base)
    run.must_end, run.is_wider = not base.estimated, wider
    found = _run(graph, reference.arguments, run)
    if exponents is None:  # plain JAX: simulated twice
        reference.again["stored"] = found
    return found


def rounded(graph: ScaleGraph, reference: Evaluation) -> Evaluation:
    """Run a graph again with every result rounded as in its type, in a wide range; once."""
    if "rounded" not in reference.again:
        run = Run(graph, reference.budget, "rounded", base=reference)
        reference.again["rounded"] = _run(graph, reference.arguments, run)
    return reference.again["rounded"]


def _run(graph: ScaleGraph, arguments: Sequence[Given], run: Run) -> Evaluation:
    budget, before = run.work, beyond.count
    with np.errstate(all="ignore"):
        run.load_constants(graph)
        for value, argument in zip(graph.inputs, arguments, strict=True):
            run.load(value, argument)
        run.graph(graph)
        outputs = [run.read(use) for use in graph.outputs]
    return Evaluation(
        outputs,
        run.magnitudes,
        not run.skipped and not run.refused,
        run.estimated,
        run.list_events(),
        run.exponents,
        tuple(arguments),
        budget,
        tuple(run.skipped.values()),
        beyond.count > before,
        {},
        run.env if sum(x.array.size for x in run.env if x is not None) <= _KEPT else None,
    )


class Run:
    """The state of one run: the numbers known so far, and the remaining budget."""

    def __init__(
        self,
        graph: ScaleGraph,
        budget: float,
        mode: str,
        magnitudes: Magnitudes | None = None,
        exponents: Exponents | None = None,
        base: Evaluation | None = None,
    ) -> None:
        self.base = None if base is None else base.env
        self.env: list[Wide | None] = [None] * len(graph.values)
        self.work, self.runs = budget, max(MOST_RUNS, int(budget / 3000))
        self.mode, self.exponents = mode, exponents
        self.magnitudes = list(magnitudes or [None] * len(graph.values))
        self.estimated, self.refused, self.depth = False, False, 0
        self.is_wider = False  # keep numbers that overflow float16
        self.must_end = False  # True if every loop ends in a wide range, within the same budget
        self.skipped: dict[int, Skipped] = {}
        self.events: dict[tuple[int, str], list[Any]] = {}
        self.store = {
            "reference": self.note,
            "rounded": lambda value, x: self.note(value, coarse(value, x)),
            "stored": lambda value, x: self.clamp(value, coarse(value, x)),
        }[mode]
        self.by_use = exponents is not None
        self.around: list[Node] = []  # Nodes whose graphs are being run.
        self.apart: dict[int, Wide] = {}  # By value: the numbers that its late readers may see.

    # -- values -----------------------------------------------------------------------------------

    def note(self, value: Value, x: Wide) -> None:
        """Keep a result of the reference, and extend the value's magnitude by it."""
        if x.extent is None:
            x = normalised(x)
        self.env[value.index] = x
        if type(x.exponent) is not int:
            self.runs -= _SPREAD_RUNS
            self.work -= _SPREAD_WORK * x.array.size
        new, old = magnitude_of(x), self.magnitudes[value.index]
        if old is None:
            self.magnitudes[value.index] = new
        elif new.low < old.low or new.high > old.high:
            both = Magnitude(min(new.low, old.low), max(new.high, old.high), True)
            self.magnitudes[value.index] = both

    def clamp(self, value: Value, x: Wide) -> None:
        """Keep a result as its type stores it; a constant is converted for each of its readers."""
        if x.array.dtype.kind in "fc" and not (self.by_use and value.kind == "constant"):
            exponent, dtype = self.exponent(value), value.aval.dtype
            if is_reciprocal(value) and self.inverts(value.node, exponent):
                power = self.clamped(inverse(x), dtype, -exponent, value, value.node)
                x = inverse(power.value)
            x, _, _, apart = self.clamped(x, dtype, exponent, value, value.node)
            if vanishes(value, self.magnitudes, exponent) and np.any(x.array):
                self.count(value, "underflow", value.node, x.array.size)
                x = Wide(np.zeros_like(x.array), 0)
            if is_garbled(value, self.magnitudes, exponent):
                self.count(value, "overflow", value.node, x.array.size)
                x = Wide(np.full_like(x.array, np.nan), 0)
            self.apart.pop(value.index, None)
            if apart is not None and value.node and len(value.uses) > 1:
                self.apart[value.index] = apart
        self.env[value.index] = x

    def exponent(self, x: Value | Use) -> int:
        return 0 if self.exponents is None else self.exponents.of(x)

    def inverts(self, node: Any, exponent: int) -> bool:
        """True if `1 / y` is computed first: only if the exponents follow from each other."""
        power = node.params.get("y", 0)  # a sigmoid, `1 / (1 + exp(-x))`, has none
        return bool(exponent == power * self.exponent(node.uses[0]))

    def clamped(self, x: Wide, dtype: Any, exponent: int, place: Place, node: Any) -> Clamped:
        found = clamp_to(x, dtype, exponent, wider=self.is_wider)
        for kind, entries in (("overflow", found.overflowed), ("underflow", found.flushed)):
            if entries:
                self.count(place, kind, node, entries)
        return found

    def count(self, place: Place, kind: str, node: Node | None, entries: int) -> None:
        self.events.setdefault((id(place), kind), [place, node, 0])[2] += entries

    def read(self, use: Use) -> Wide | None:
        x = self.env[use.value.index]
        if self.apart and use.value.index in self.apart and is_late(use):
            x = self.apart[use.value.index]
        if not self.by_use or x is None or x.array.dtype.kind not in "fc":
            return x
        if self.exponent(use) == self.exponent(use.value) and use.value.kind != "constant":
            return x
        return self.clamped(x, use.value.aval.dtype, self.exponent(use), use, use.node).value

    def operands(self, node: Node) -> list[Any]:
        """Return the operands of an equation, without infinities if the node is saturated."""
        xs = [self.read(use) for use in node.uses]
        if self.exponents is not None and node.index in self.exponents.saturated:
            for i, use in enumerate(node.uses[: law_of(node).tails]):
                x = xs[i]
                if x is not None:
                    xs[i] = saturated(x, use.value.aval.dtype, self.exponent(use))
        return xs

    def count_undefined(self, node: Node, xs: list[Any], result: Wide) -> None:
        """Note results that are nan because of the range: `0 * inf`, `0 / 0`, `inf / inf`."""
        entries = np.count_nonzero(np.isnan(result.array))
        if entries > max(np.count_nonzero(np.isnan(x.array)) for x in xs):
            self.count(node.outputs[0], UNDEFINED, node, int(entries))

    def list_events(self) -> list[Event]:
        return [
            Event(place, kind, entries, node)
            for (_, kind), (place, node, entries) in self.events.items()
        ]

    def load_constants(self, graph: ScaleGraph) -> None:
        for value in graph.values:
            if value.kind == "constant":
                self.load(value, value.constant)

    def load(self, value: Value, x: Given) -> None:
        """Take an input or a constant, or only its magnitude if it is too large."""
        if isinstance(x, Wide):
            return self.store(value, x)
        if x is None:  # unknown
            self.refused = True
            return None
        size = math.prod(getattr(value.aval, "shape", ()))
        if size > self.work:  # NumPy would have to copy it to float64
            self.refused = True
            if self.mode == "reference":
                self.magnitudes[value.index] = measure(x)
            return None
        self.work -= size / 2
        known = None if self.base is None else self.base[value.index]
        return self.store(value, wide(x)) if known is None else self.again(value, known)

    def never_ends(self, node: Node) -> None:
        """Note a loop whose test never becomes false, because of the range."""
        self.count(node.outputs[0], ENDLESS, node, 1)

    # -- nodes ------------------------------------------------------------------------------------

    def graph(self, graph: ScaleGraph) -> None:
        """Run the nodes of a graph whose inputs are in `env`."""
        env = self.env
        for node in graph.nodes:
            law = LAWS.get(node.primitive, WITHOUT_LAW)
            if law.evaluate is None:
                self.nested(node)
                continue
            uses = node.uses
            one_by_one = self.by_use or self.apart
            xs = self.operands(node) if one_by_one else [env[use.value.index] for use in uses]
            if None in xs:
                self.forget(node)
                continue
            self.runs -= 1
            self.work -= (cost := work_of(node, law, xs))
            if self.work < 0 or self.runs < 0:
                self.work += cost
                self.skip(node, OVER_BUDGET)
                continue
            try:
                known = self.known(node, xs)
                results = known or applied(node, law, xs)  # type: ignore[arg-type]
            except Exception as error:  # an estimate must not stop the user's program
                told = f"{type(error).__name__}: {error}"
                self.skip(node, NO_RULE if law is WITHOUT_LAW else told)
                continue
            if self.by_use and law.tails:
                self.count_undefined(node, xs, results[0])
            if self.mode == "stored" and law.many and node.outputs[0].is_floating:
                results = self.by_parts(node, law, xs, results)
            store = self.again if results is known else self.store
            for value, result in zip(node.outputs, results, strict=True):
                store(value, result)

    def known(self, node: Node, xs: Sequence[Wide | None]) -> list[Any] | None:
        """Return the results of an earlier run, if its operands were the same objects.

        It takes 2 us for an equation on few numbers instead of 8, and 0.02 ms instead of 1 on
        200,000. This is safe for two reasons: no code writes to a `Wide`, and an equation is
        deterministic.
        """
        if (base := self.base) is None:
            return None
        for use, x in zip(node.uses, xs, strict=True):
            if x is not base[use.value.index]:
                return None
        results = [base[value.index] for value in node.outputs]
        return None if None in results else results

    def again(self, value: Value, x: Wide) -> None:
        """Keep a result of an earlier run, which is already rounded if this run rounds."""
        (self.clamp if self.mode == "stored" else self.store)(value, x)

    def by_parts(self, node: Node, law: Law, xs: list[Any], results: list[Wide]) -> list[Wide]:
        """Return the results of a sum or product of many parts, and count parts out of range."""
        exponent, kind = self.exponent(node.outputs[0]), "overflow"
        if law.many is Many.SOLVED:
            found, entries = products_leave(
                node, xs, results[0], (self.exponent(node.uses[1]), exponent)
            )
            results = [found]
        elif law.many is not Many.FACTORS:
            results, entries = parts_overflow(node, law, xs, results, exponent)
            if not entries:
                results, entries = parts_vanish(node, law, xs, results, exponent)
                kind = "underflow"
        elif self.is_wider or self.is_apart(node):
            return results
        else:
            kind, (results, entries) = PARTS, parts_leave(node, xs, results)
        if entries:
            self.count(node.outputs[0], kind, node, entries)
        return results

    def is_apart(self, node: Node) -> bool:
        """True if a product is replayed with separate mantissas and exponents."""
        if (at := self.exponents) is None:
            return False
        touched = any(map(at.of, node.outputs)) or any(map(at.of, node.uses))
        return touched or node.index in at.guarded

    def skip(self, node: Node, reason: str) -> None:
        if node.outputs:  # a node without results, such as printing, makes no value unknown
            if id(node) not in self.skipped:
                sources = [n.source for n in (node, *reversed(self.around))]
                self.skipped[id(node)] = Skipped(node, reason, next(filter(None, sources), ""))
            self.forget(node)

    def forget(self, node: Node) -> None:
        for value in node.outputs:
            self.env[value.index] = None

    def nested(self, node: Node) -> None:
        """Run a node that has nested jaxprs, or skip it."""
        if not can_run(node.primitive):
            self.skip(node, NO_RULE)
            return
        self.around.append(node)
        results = run_nested(self, node, [self.read(use) for use in node.uses])
        self.around.pop()
        for value, result in zip(node.outputs, results, strict=True):
            if result is None:
                self.env[value.index] = None
            else:
                self.store(value, result)

    def body(self, graph: ScaleGraph, operands: Sequence[Wide | None]) -> list[Wide | None]:
        """Return the results of a nested graph on some operands."""
        for value, x in zip(graph.inputs, operands, strict=True):
            if x is None:
                self.env[value.index] = None
            else:
                self.store(value, x)
        self.graph(graph)
        return [self.read(use) for use in graph.outputs]


def coarse(value: Value, x: Wide) -> Wide:
    """Round a result to the precision of its type, in any range."""
    if x.array.dtype.kind not in "fc":
        return x
    return normalised(rounded_to(normalised(x), value.aval.dtype))


def unsupported(names: Iterable[str] | None = None) -> list[str]:
    """Return the primitives that cannot be run on numbers: among `names`, or all of `jax.lax`."""
    if names is None:
        names = {p.name for key, p in vars(jax.lax).items() if key.endswith("_p")}
    run = {name for name, law in LAWS.items() if law.evaluate}
    return sorted(n for n in set(names) - run if not can_run(n))
