"""Running a scale graph: the same primitives on stored numbers, with conversions between them.

Equations whose exponents are all zero are bound as they were, nested jaxprs included, so that a
program that a plan does not touch is the same program. A conversion is one multiplication by a
power of two, made where the value is and shared by all readers at that exponent. The replay
converts constants itself, by NumPy.

    graph = build(jax.make_jaxpr(lambda x: x + 1)(2.0))
    replay(graph, Exponents.none(graph))([np.float32(2.0)])  # [Array(3., dtype=float32)]

A watched program hands each number to a `Watcher`, which collects a flag, or extremes, inside the
program: loops carry them, branches return them.

Sharp edge: equal numbers share a barrier, so a constant may be hidden from XLA although one of its
readers does not need that.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tanjax import _compat
from tanjax._dtype_range import limits
from tanjax._jaxpr_types import Aval, JaxEquation
from tanjax._typing import AnyArray, DType
from tanjax.jaxprs import LOOPS, Branches, Kind, Loop, Nested

from ..graph._graph import Exponents, Node, ScaleGraph, Use, Value
from ..laws._law import law_of
from ..laws._powers_of_two import convert, hidden
from ..laws._rewrites import apart, is_power, joins_constant, opaque
from ..magnitudes._parts import plain_parts

# Stored numbers while a program is run: arrays, random keys, constants as they were traced.
Array: TypeAlias = AnyArray
Arrays: TypeAlias = list[Array]
Columns: TypeAlias = tuple[Array, ...]  # the carry of a loop, or its rows
Number: TypeAlias = tuple[Aval, complex]  # a constant of one entry: its aval and stored number


class Watcher(Protocol):
    """A reader of every number of a graph, which raises a flag (`scale/windows`).

    A flag is an array of booleans, or of numbers whose largest count.
    """

    def entered(self, value: Value, x: Array) -> None:
        """Note an argument of a nested graph."""

    def converted(self, value: Value, before: jax.Array, after: jax.Array) -> None:
        """Note that a value is read at another exponent."""

    def computed(self, node: Node, operands: Arrays, results: Arrays) -> None:
        """Note that an equation was run."""

    @property
    def asked(self) -> Collection[int]:
        """Return the indices of the values that are watched."""

    def fresh(self) -> Watcher:
        """Return a watcher of a nested graph."""

    def note(self, flag: jax.Array) -> None:
        """Join the flag of a nested graph."""

    def besides(self, graphs: Sequence[ScaleGraph]) -> jax.Array:
        """Return the flag of graphs that are not run."""

    def raised(self) -> jax.Array:
        """Return the flag."""


Flags: TypeAlias = tuple[jax.Array, ...]  # the flag of a nested graph; empty if it is not watched


def replay(graph: ScaleGraph, e: Exponents) -> Callable[[Sequence[Array]], Arrays]:
    """Return the program of a graph.

    **Arguments:** `e`: the exponents of its values and uses.
    **Returns:** a function from inputs to outputs, both stored at these exponents.
    """
    return lambda arguments: _run(graph, arguments, e)


def is_untouched(node: Node, e: Exponents) -> bool:
    """True if an equation runs as it was: without exponent, conversion or restored constant."""
    if node.index in e.guarded or node.index in e.saturated or any(map(e.of, node.outputs)):
        return False
    if any(e.of(u) or u.value.restored for u in node.uses):
        return False
    return all(
        not (any(map(e.of, inner.inputs)) or any(map(e.of, inner.outputs)))
        and not any(c.restored for c in inner.constants)
        and all(is_untouched(n, e) for n in inner.nodes)
        for inner in node.graphs
    )


class _Environment:
    """The arrays of one graph while it runs; conversions are kept with their value."""

    __slots__ = ("arrays", "exponents", "numbers", "watch")

    def __init__(self, exponents: Exponents, watch: Watcher | None = None) -> None:
        self.exponents, self.watch = exponents, watch
        self.arrays: dict[tuple[int, int], Array] = {}
        self.numbers: dict[Number, jax.Array] = {}  # constants behind their barriers

    def write(self, value: Value, array: Array) -> None:
        self.arrays[value.index, self.exponents.of(value)] = array

    def read(self, use: Use) -> Array:
        value, wanted = use.value, self.exponents.of(use)
        if value.kind == "constant":
            return folded(value, wanted) if is_power(use) else self.constant(value, wanted)
        has = self.exponents.of(value)
        key = (value.index, wanted if value.is_floating else has)
        if key not in self.arrays:
            self.arrays[key] = convert(self.arrays[value.index, has], has - wanted)
            if self.watch:
                self.watch.converted(value, self.arrays[value.index, has], self.arrays[key])
        return self.arrays[key]

    def as_it_is(self, use: Use) -> Array:
        return use.value.constant if use.value.kind == "constant" else self.read(use)

    def constant(self, value: Value, exponent: int) -> Array:
        """Return a constant that XLA does not join with others: `1e-30·(1e-20·x)` became 0.

        Equal numbers share a barrier, which takes 40 us to trace and compile.
        """
        constant = folded(value, exponent)
        if not value.is_floating:
            return constant
        if value.size != 1:
            plain = np.all(np.isin(np.abs(constant), (0.0, 1.0)))
            return constant if plain else lax.optimization_barrier(constant)
        key = _hidden_number(value, exponent)
        if key is None:
            return constant
        if key not in self.numbers:
            self.numbers[key] = hidden(constant)
        return self.numbers[key]

    def hide(self, uses: Iterable[Use]) -> None:
        """Put the numbers that `constant` will return for these uses behind one barrier.

        XLA passes each of them to its kernels as an array of its own, 0.07 us apiece at every call.
        Five made a call of 4 us a tenth longer, one array of all makes it 2 % longer. This is safe
        because a slice of a hidden array is hidden (`hidden`).
        """
        found: dict[DType, dict[Number, None]] = {}
        for use in uses:
            value = use.value
            if value.kind == "constant" and value.is_floating and value.size == 1:
                key = _hidden_number(value, self.exponents.of(use))
                if key is not None:
                    found.setdefault(value.aval.dtype, {})[key] = None
        for dtype, keys in found.items():
            if len(keys) > 1:
                row = np.array([*(number for _, number in keys), 0], dtype)  # of one number is none
                parts = lax.split(lax.optimization_barrier(row), [1] * len(row))
                pairs = zip(keys, parts[:-1], strict=True)
                self.numbers |= {key: lax.reshape(part, key[0].shape) for key, part in pairs}


def _hidden_number(value: Value, exponent: int) -> Number | None:
    """Return a constant's aval and number at an exponent; None for 0 and 1, which XLA may know."""
    number = np.asarray(folded(value, exponent)).item()
    return None if abs(number) in (0.0, 1.0) else (value.aval, number)


def folded(value: Value, exponent: int) -> Array:
    """Return a constant as stored at an exponent."""
    if not value.is_floating or not (exponent or value.restored):
        return value.constant
    dtype = value.aval.dtype
    wide = np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64
    number = np.asarray(value.constant).astype(wide)
    with np.errstate(over="ignore", under="ignore"):
        if wide is np.complex128:
            number = np.ldexp(number.real, -exponent) + 1j * np.ldexp(number.imag, -exponent)
        else:
            number = np.ldexp(number, -exponent)
        return number.astype(dtype)


def run_watched(
    graph: ScaleGraph, arguments: Sequence[Array], e: Exponents, watch: Watcher
) -> Arrays:
    """Run a graph at once, and pass every number to `watch`."""
    return _run(graph, arguments, e, watch)


def _run(
    graph: ScaleGraph, arguments: Sequence[Array], e: Exponents, watch: Watcher | None = None
) -> Arrays:
    env = _Environment(e, watch)
    for value, array in zip(graph.inputs, arguments, strict=True):
        env.write(value, array)
    for value in graph.constants:
        env.write(value, folded(value, e.of(value)))
    untouched = [is_untouched(node, e) for node in graph.nodes]
    plain = plain_parts(graph, untouched)
    bound = [
        as_it_was and (is_plain or not joins_constant(node)) and not _enters(watch, node)
        for node, as_it_was, is_plain in zip(graph.nodes, untouched, plain, strict=True)
    ]
    env.hide(
        use
        for node, as_is in zip(graph.nodes, bound, strict=True)
        if not as_is
        for use in node.uses
    )
    for node, as_it_is in zip(graph.nodes, bound, strict=True):
        if as_it_is:
            results = _compat.bind(node.equation, list(map(env.as_it_is, node.uses)))
            # Parts of a packed factorisation are the array itself (`_lu.py`).
            results += results[:1] * (len(node.outputs) - len(results))
        else:
            results = _results(node, list(map(env.read, node.uses)), e, watch)
        if watch:
            watch.computed(node, list(map(env.read, node.uses)), results)
        for value, array in zip(node.outputs, results, strict=True):
            env.write(value, array)
    return [env.read(use) for use in graph.outputs]


def _results(node: Node, operands: Arrays, e: Exponents, watch: Watcher | None) -> Arrays:
    if node.kind in _Inside.enters:
        flags: Flags = (watch.fresh().raised(),) if _enters(watch, node) else ()  # type: ignore[union-attr]
        inside = _Inside(e, watch, flags)
        flags, results = inside.enter(node.equation, node.graphs, operands)
        for flag in flags:
            watch.note(flag)  # type: ignore[union-attr]
        return results
    if node.graphs:
        inner = [operands[use.position] for use in node.given[0]]
        if watch:
            _enter(watch, node.graphs[0], inner)
        return _run(node.graphs[0], inner, e, watch)
    law, is_guarded = law_of(node), node.index in e.guarded
    operands = apart(node, operands, is_guarded)
    if node.index in e.saturated:
        operands = [*map(_tail, operands[: law.tails]), *operands[law.tails :]]
    results = law.replay(node, operands, e) if law.replay else _compat.bind(node.equation, operands)
    return list(map(opaque, results)) if is_guarded else results


def _tail(x: jax.Array) -> jax.Array:
    """Replace infinities by the largest number and vanishing numbers by 0: their product is 0.

    Subnormal numbers of float16 stay, as in `_stored.py`.
    """
    info = jnp.finfo(x.dtype)
    if not limits(x.dtype).step:
        vanished = lax.lt(lax.abs(x), lax.full_like(x, info.smallest_normal))
        x = lax.select(vanished, lax.full_like(x, 0), x)
    return lax.clamp(lax.full_like(x, info.min), x, lax.full_like(x, info.max))


# -- nested graphs ------------------------------------------------------------------------------


# The flags of the nested graphs of a node, and its results.
Results: TypeAlias = tuple[Flags, Arrays]


@dataclasses.dataclass(frozen=True)
class _Inside(Nested[Array]):
    """The replay of nested graphs; watched graphs return flags beside their results."""

    enters = (Kind.CHECKPOINT, *LOOPS, Kind.BRANCH, Kind.DEVICES)

    e: Exponents
    watch: Watcher | None
    flags: Flags  # not raised

    def run(
        self, graph: ScaleGraph, arguments: Sequence[Array], before: Flags
    ) -> tuple[Array, ...]:
        """Return the flags of a graph or `before`, and its results, in one tuple."""
        if not self.flags:
            return tuple(_run(graph, arguments, self.e))
        watch = self.watch.fresh()  # type: ignore[union-attr]
        _enter(watch, graph, arguments)
        results = _run(graph, arguments, self.e, watch)
        return (lax.max(before[0], watch.raised()), *results)

    def besides(self, graphs: Sequence[ScaleGraph]) -> Flags:
        """Return the flags of graphs that are not run."""
        return (self.watch.besides(graphs),) if self.flags else ()  # type: ignore[union-attr]

    def cut(self, results: Sequence[Array]) -> Results:
        """Separate flags from results."""
        count = len(self.flags)
        return tuple(results[:count]), list(results[count:])

    def checkpoint(self, eqn: JaxEquation, program: ScaleGraph, values: Sequence[Array]) -> Results:
        """Recompute as before; the trace of the gradient decided which values are saved."""
        body = lambda *args: self.run(program, args, self.flags)
        barrier = eqn.params.get("prevent_cse", True)
        again = jax.checkpoint(body, prevent_cse=barrier, policy=eqn.params.get("policy"))
        return self.cut(again(*values))

    def scan(self, eqn: JaxEquation, loop: Loop) -> Results:
        carries = len(self.flags) + len(loop.carry)

        def step(carry: Columns, xs: Columns) -> tuple[Columns, Columns]:
            flags, before = self.cut(carry)
            out = self.run(loop.body, [*loop.fixed, *before, *xs], flags)
            return out[:carries], out[carries:]

        last, ys = loop.scan(step, (*self.flags, *loop.carry), tuple(loop.rows))
        return self.cut([*last, *ys])

    def while_(self, eqn: JaxEquation, loop: Loop) -> Results:
        """Run a loop; under `jax.vmap` the test may differ by row, and finished rows keep theirs.

        A watched test runs once more with each step, and on the last state.
        """
        of_rows = bool(loop.test.outputs[0].value.aval.shape)
        is_watched = bool(self.flags) and _is_watched(loop.test, self.watch)

        def going(state: Columns) -> Array:
            return _run(loop.test, [*loop.tested, *self.cut(state)[1]], self.e)[0]

        def flagged(state: Columns) -> Flags:
            flags, carry = self.cut(state)
            return self.run(loop.test, [*loop.tested, *carry], flags)[:1] if is_watched else flags

        def step(state: Columns) -> Columns:
            _, carry = self.cut(state)
            out = self.run(loop.body, [*loop.fixed, *carry], flagged(state))
            if not of_rows:
                return out
            (flags, after), rows = self.cut(out), going(state)
            return (*flags, *(_select_rows(rows, *pair) for pair in zip(after, carry, strict=True)))

        goes_on = (lambda state: jnp.any(going(state))) if of_rows else going
        out = lax.while_loop(goes_on, step, (*self.flags, *loop.carry))
        return flagged(out), self.cut(out)[1]

    def cond(self, eqn: JaxEquation, branches: Branches) -> Results:
        def run(branch: ScaleGraph, *args: Array) -> tuple[Array, ...]:
            others = [g for g in branches.programs if g is not branch]
            return self.run(branch, args, self.besides(others))

        runs = [functools.partial(run, branch) for branch in branches.programs]
        index = branches.index.astype(np.int32)
        return self.cut(lax.switch(index, runs, *branches.operands))

    def devices(self, eqn: JaxEquation, program: ScaleGraph, values: Sequence[Array]) -> Results:
        """Give each device its own flag; the flags leave as a row."""
        params, count = eqn.params, len(self.flags)
        axes = tuple(params["newly_manual_axes"])

        def on_device(*args: Array) -> Columns:
            flags, out = self.cut(self.run(program, args, self.flags))
            return (*(lax.expand_dims(flag, (0,)) for flag in flags), *out)

        mapped = jax.shard_map(
            on_device,
            mesh=params["mesh"],
            in_specs=tuple(params["in_specs"]),
            out_specs=(*[jax.sharding.PartitionSpec(axes)] * count, *params["out_specs"]),
            axis_names=frozenset(params["newly_manual_axes"]),
            check_vma=params["check_vma"],
        )
        flags, out = self.cut(mapped(*values))
        return tuple(jnp.max(flag, 0) for flag in flags), out


def _enters(watch: Watcher | None, node: Node) -> bool:
    return any(_is_watched(graph, watch) for graph in node.graphs)


def _is_watched(graph: ScaleGraph, watch: Watcher | None) -> bool:
    """True if a value of a graph is watched, or one of a graph inside it."""
    if watch is None:
        return False
    values = itertools.chain(graph.inputs, *(n.outputs for n in graph.nodes))
    return any(v.index in watch.asked for v in values) or any(
        _enters(watch, node) for node in graph.nodes
    )


def _enter(watch: Watcher, graph: ScaleGraph, arguments: Sequence[Array]) -> None:
    for value, x in zip(graph.inputs, arguments, strict=True):
        watch.entered(value, x)


def _select_rows(rows: Array, new: Array, old: Array) -> Array:
    """Return the rows of `new` where a mask over the leading axes is true, else those of `old`."""
    mask = lax.broadcast_in_dim(rows, new.shape, tuple(range(rows.ndim)))
    return lax.select(mask, new, old)
