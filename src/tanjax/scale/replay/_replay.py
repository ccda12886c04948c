"""Running a scale graph: the same primitives on stored numbers, with conversions between them.

Equations whose exponents are all zero are bound as they were, nested jaxprs included, so that a
program that a plan does not touch is the same program. A conversion is one multiplication by a
power of two, made where the value is and shared by all who want that exponent; constants are
converted here and now.

    graph = build(jax.make_jaxpr(lambda x: x + 1)(2.0))
    replay(graph, Exponents.none(graph))([np.float32(2.0)])  # [Array(3., dtype=float32)]

Sharp edge: equal numbers share a barrier, so a constant may be hidden from XLA where one of its
readers would not need that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tanjax import _compat
from tanjax._dtype_range import limits
from tanjax._jaxpr_types import Aval
from tanjax._typing import AnyArray, DType

from ..graph._graph import Exponents, Node, ScaleGraph, Use, Value, callee_uses
from ..laws._law import LAWS
from ..laws._powers_of_two import convert, hidden
from ..magnitudes._evaluate import TAILS
from ..magnitudes._parts import plain_parts
from ._rewrites import apart, opaque

# Stored numbers while a program is run: arrays, random keys, constants as they were traced.
Array: TypeAlias = AnyArray
Arrays: TypeAlias = list[Array]
Columns: TypeAlias = tuple[Array, ...]  # the carry of a loop, or its rows
Number: TypeAlias = tuple[Aval, complex]  # a constant of one entry: its aval, what is stored


@runtime_checkable
class Watcher(Protocol):
    """Who is told of every conversion and equation (`_flags.py`)."""

    def converted(self, before: jax.Array, after: jax.Array) -> None: ...
    def computed(self, node: Node, operands: Arrays, results: Arrays) -> None: ...


def replay(graph: ScaleGraph, e: Exponents) -> Callable[[Sequence[Array]], Arrays]:
    """The program of a graph: from inputs to outputs, stored at these exponents."""
    return lambda arguments: _run(graph, arguments, e)


def is_untouched(node: Node, e: Exponents) -> bool:
    """Whether an equation is run as it was: no exponent, conversion or restored constant in it."""
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
            return folded(value, wanted) if _is_power(use) else self.constant(value, wanted)
        has = self.exponents.of(value)
        key = (value.index, wanted if value.is_floating else has)
        if key not in self.arrays:
            self.arrays[key] = convert(self.arrays[value.index, has], has - wanted)
            if self.watch:
                self.watch.converted(self.arrays[value.index, has], self.arrays[key])
        return self.arrays[key]

    def as_it_is(self, use: Use) -> Array:
        return use.value.constant if use.value.kind == "constant" else self.read(use)

    def constant(self, value: Value, exponent: int) -> Array:
        """A constant that XLA does not join with others: `1e-30·(1e-20·x)` became 0.

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
        """Put the numbers that `constant` is going to be asked for behind one barrier.

        XLA hands each of them to its kernels as an array of its own, 0.07 us apiece at every call:
        five made a call of 4 us a tenth longer, one array of all makes it 2 % longer. Safe because
        a slice of what is hidden is hidden (`hidden`).
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
    """Of a constant the aval, and the number at an exponent; None of what XLA may know: 0, 1."""
    number = np.asarray(folded(value, exponent)).item()
    return None if abs(number) in (0.0, 1.0) else (value.aval, number)


def _is_power(use: Use) -> bool:
    """Whether a constant is the power of `x**c`, which XLA joins with no factors.

    Of a hidden one it makes kernels: `1 / x**c` is `x**-c`. An N-body step compiled in 184 ms
    instead of 151, and plain JAX's in 119.
    """
    return use.node is not None and use.node.primitive == "pow" and use.position == 1


def folded(value: Value, exponent: int) -> Array:
    """A constant as stored at an exponent."""
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
    """The same, here and now: `watch` is told of every conversion and equation (`_flags.py`)."""
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
        as_it_was and (is_plain or not _joins(node)) and not (watch and node.graphs)
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


def _joins(node: Node) -> bool:
    """Whether XLA would join a constant with those of other equations, and round once for all.

    120 products with 3.24, 60 of them untouched, were 22 units in the last place off.
    """
    constant = any(u.value.kind == "constant" and u.value.is_floating for u in node.uses)
    return constant and node.primitive in ("mul", "div")


def _results(node: Node, operands: Arrays, e: Exponents, watch: Watcher | None) -> Arrays:
    if node.primitive in NESTED:
        return NESTED[node.primitive](node, operands, e)
    if node.graphs:
        inner = [operands[use.position] for use in callee_uses(node)]
        return _run(node.graphs[0], inner, e, watch)
    of_constant = node.primitive == "div" and node.uses[1].value.kind == "constant"
    if of_constant or (node.primitive == "div" and node.index in e.guarded):
        operands = apart(*operands)
    if node.index in e.saturated:
        count = TAILS[node.primitive]
        operands = [*map(_tail, operands[:count]), *operands[count:]]
    law = LAWS.get(node.primitive)
    special = law and law.replay
    results = special(node, operands, e) if special else _compat.bind(node.equation, operands)
    return list(map(opaque, results)) if node.index in e.guarded else results


def _tail(x: jax.Array) -> jax.Array:
    """The largest number instead of infinity, and 0 of what vanishes: their product is 0.

    Subnormal numbers of float16 are numbers, as in `_stored.py`.
    """
    info = jnp.finfo(x.dtype)
    if not limits(x.dtype).step:
        vanished = lax.lt(lax.abs(x), lax.full_like(x, info.smallest_normal))
        x = lax.select(vanished, lax.full_like(x, 0), x)
    return lax.clamp(lax.full_like(x, info.min), x, lax.full_like(x, info.max))


# -- nested graphs ------------------------------------------------------------------------------


def _remat(node: Node, operands: Arrays, e: Exponents) -> Arrays:
    """Recomputed as before; what may be saved was decided when the gradient was traced."""
    body = lambda *args: _run(node.graphs[0], args, e)
    barrier = node.params.get("prevent_cse", True)
    again = jax.checkpoint(body, prevent_cse=barrier, policy=node.params.get("policy"))
    return again(*operands)  # type: ignore[no-any-return]


def _scan(node: Node, operands: Arrays, e: Exponents) -> Arrays:
    params, loop = node.params, _compat.Loop.of(node.params)
    _, fixed, start, rows = loop.cut(operands)

    def step(carry: Columns, xs: Columns) -> tuple[Columns, Columns]:
        out = _run(node.graphs[0], [*fixed, *carry, *xs], e)
        return tuple(out[: loop.carries]), tuple(out[loop.carries :])

    carry, ys = lax.scan(
        step,
        tuple(start),
        tuple(rows),
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*carry, *ys]


def _while(node: Node, operands: Arrays, e: Exponents) -> Arrays:
    """Under `jax.vmap` the test may have a result per row; rows that are done keep their state."""
    test, body = node.graphs
    of_test, of_body, start, _ = _compat.Loop.of(node.params).cut(operands)
    going = lambda state: _run(test, [*of_test, *state], e)[0]
    step = lambda state: tuple(_run(body, [*of_body, *state], e))
    if not test.outputs[0].value.aval.shape:
        return list(lax.while_loop(going, step, tuple(start)))

    def step_of_rows(state: Columns) -> Columns:
        rows, pairs = going(state), zip(step(state), state, strict=True)
        return tuple(_select_rows(rows, new, old) for new, old in pairs)

    out = lax.while_loop(lambda state: jnp.any(going(state)), step_of_rows, tuple(start))
    return list(out)


def _select_rows(rows: Array, new: Array, old: Array) -> Array:
    """The rows of `new` where a mask over the leading axes is true, those of `old` elsewhere."""
    mask = lax.broadcast_in_dim(rows, new.shape, tuple(range(rows.ndim)))
    return lax.select(mask, new, old)


def _cond(node: Node, operands: Arrays, e: Exponents) -> Arrays:
    branches = [lambda *args, b=branch: _run(b, args, e) for branch in node.graphs]
    index, *others = operands
    return list(lax.switch(index.astype(np.int32), branches, *others))


def _shard_map(node: Node, operands: Arrays, e: Exponents) -> Arrays:
    params = node.params
    mapped = jax.shard_map(
        lambda *args: tuple(_run(node.graphs[0], args, e)),
        mesh=params["mesh"],
        in_specs=tuple(params["in_specs"]),
        out_specs=tuple(params["out_specs"]),
        axis_names=frozenset(params["newly_manual_axes"]),
        check_vma=params["check_vma"],
    )
    return list(mapped(*operands))


NESTED = {
    "remat": _remat,
    "remat2": _remat,
    "checkpoint": _remat,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "shard_map": _shard_map,
}
