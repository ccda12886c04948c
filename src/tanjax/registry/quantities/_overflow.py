"""Calls on quantities whose numbers may leave the range of their dtype.

A function of quantities is called on stored numbers. Where these are near one, nothing can happen,
and nothing is done but to look (once per quantity; results of arithmetic carry an estimate). Where
they are not, three things may go wrong: operands with different powers of two have to meet at one
that fits them all (`_meeting.py`); the function itself may overflow, then it runs through the scale
graph, which returns an exponent with each result; and a result may need another label.

    if not has_headroom(args):
        return through_graph(call)(*args)

Sharp edges. Tracers, integers and structured arrays are never looked at. Functions that look at
numbers themselves (`unique`) cannot run through a graph: they are called as they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax._dtype_range import range_of
from tanjax._typing import Function
from tanjax.arrays import (
    Unitful,
    bits_in,
    bits_of,
    measure,
    measure_pure,
    note_bits,
    settle,
    shift,
    unitful,
)
from tanjax.units import Unit, one

_SEQUENCES = (list, tuple)
# What a traced function raises that looks at numbers: JAX's errors of types are `TypeError`s.
NEEDS_VALUES = (TypeError, jax.errors.JAXIndexError)

# Functions whose results are some of the numbers that they are given: nothing to fear.
SELECTING = frozenset(
    name
    for names in (
        "reshape ravel transpose permute_dims matrix_transpose swapaxes moveaxis rollaxis squeeze",
        "expand_dims broadcast_to broadcast_arrays atleast_1d atleast_2d atleast_3d take",
        "take_along_axis flip fliplr flipud roll rot90 repeat tile copy sort argsort max min amax",
        "amin nanmax nanmin argmax argmin nanargmax nanargmin nonzero count_nonzero sign isfinite",
        "isnan isinf negative positive abs absolute fabs real imag conj conjugate diagonal diag",
        "triu tril split array_split hsplit vsplit dsplit unstack zeros_like empty_like shape ndim",
        "size unique partition lexsort signbit iscomplex isreal iscomplexobj isrealobj resize",
        "delete trim_zeros",
    )
    for name in names.split()
)
# And those that choose among operands which have met.
CHOOSING = SELECTING | frozenset(
    name
    for names in (
        "maximum minimum fmax fmin clip clamp where concatenate stack hstack vstack dstack append",
        "column_stack insert searchsorted digitize isin array_equal array_equiv equal not_equal",
        "less less_equal greater greater_equal eq ne lt le gt ge",
    )
    for name in names.split()
)


def has_headroom(values: Iterable[PyTree], spread: bool = False, stretch: float = 0.0) -> bool:
    """Whether a product of two of these values, or a sum, surely stays in range: 0.1 us each.

    **Arguments:** `spread`: whether all entries of an array are added up; `stretch`: log2 of the
    conversions before. Whether it is so is worked out once per quantity and kept beside its bits.
    """
    place = 3 if spread else 2
    for value in values:
        if type(value) is Unitful:
            try:
                if value._bits[place] < stretch:
                    return False
            except (TypeError, IndexError):  # nobody has looked, or there are only bounds
                if _room(value)[place] < stretch:
                    return False
        elif type(value) in _SEQUENCES and not has_headroom(value, spread, stretch):
            return False
    return True


Place = tuple[Any, Any]  # of an argument: position or name, index in a sequence or None


def holds_pure(
    args: Sequence[PyTree], kwargs: dict[str, PyTree], places: Iterable[Place], degree: float
) -> bool:
    """Whether pure numbers beside quantities, to the power of `degree`, are in range: 1 us each."""
    top = _top(args) if not kwargs else min(_top(args), _top(kwargs.values()))
    for slot, index in places:
        value = args[slot] if type(slot) is int else kwargs[slot]
        bits = measure_pure(value if index is None else value[index])
        if bits is not None and (bits[1] * degree > top or -bits[0] * degree > top):
            return False
    return True


def _top(values: Iterable[PyTree]) -> float:
    """The binary logarithm of a large number that each of the known quantities might hold."""
    top = math.inf
    for value in values:
        if type(value) is Unitful:
            span = range_of(value.dtype) if value._bits is not None else None
            if span is not None and span.highest - 2 < top:
                top = span.highest - 2
        elif type(value) in _SEQUENCES:
            top = min(top, _top(value))
    return top


def measure_all(values: Iterable[PyTree]) -> None:
    """Replace the bounds that quantities carry by what their numbers are: 2.5 us each."""
    for value in values:
        if type(value) is Unitful:
            bits = measure(value.stored)
            if bits is not None:
                note_bits(value, bits)
        elif type(value) in _SEQUENCES:
            measure_all(value)


_ENDLESS = (math.inf, -math.inf, math.inf, math.inf)
_CROWDED = (math.inf, -math.inf, -math.inf, -math.inf)


def _room(q: Unitful) -> Any:
    """The bits of a quantity, and by how many digits it may grow; kept with the quantity."""
    bits, span = bits_of(q), range_of(q.dtype)
    if bits is None or span is None:  # of tracers the labels alone are known
        return _ENDLESS if not q.label.scale else _CROWDED
    room = -math.inf
    if bits[0] > bits[1]:
        room = math.inf
    elif not q.label.scale:
        room = span.highest - 2 - 2 * max(-bits[0], bits[1])
    note_bits(q, (*bits[:2], room, room - math.log2(max(math.prod(q.shape), 1))))
    return q._bits


def has_headroom_at(values: Iterable[PyTree], degree: float, spread: bool) -> bool:
    """As `has_headroom`, where more than two values are multiplied with one another."""
    place = 3 if spread else 2
    for value in values:
        if type(value) is Unitful:
            bits = value._bits
            if bits is None or len(bits) == 2:
                bits = _room(value)
            if bits[place] < (degree - 2) * max(-bits[0], bits[1]):
                return False
        elif type(value) in _SEQUENCES and not has_headroom_at(value, degree, spread):
            return False
    return True


def through_graph(call: Function) -> Function:
    """`call` of plain arrays, through the scale graph.

    **Returns:** what `call` returns; a result with an exponent is a quantity in `2^exponent`.
    """
    from tanjax.scale import scaled_call

    name = getattr(call, "__name__", "a function")

    def run(*values: PyTree, **named: PyTree) -> PyTree:
        leaves, tree = jax.tree.flatten((values, named))
        if any(isinstance(x, jax.core.Tracer) for x in leaves):
            return call(*values, **named)
        places = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array | np.ndarray)]
        trees: list[PyTree] = []

        def on_arrays(*arrays: PyTree) -> list[PyTree]:
            full = list(leaves)
            for i, x in zip(places, arrays, strict=True):
                full[i] = x
            args, kwargs = tree.unflatten(full)
            results, out = jax.tree.flatten(call(*args, **kwargs))
            trees[:] = [out]
            return results

        try:
            results, exponents = scaled_call(name, on_arrays, [leaves[i] for i in places])
        except NEEDS_VALUES:
            return call(*values, **named)
        pairs = zip(results, exponents, strict=True)
        done = [unitful(x, one.scaled(e)) if e else x for x, e in pairs]
        return jax.tree.unflatten(trees[0], done)

    return run


def graphed(raw: Function, degree: float, spread: bool) -> Function:
    """`raw`, through the scale graph where its numbers are near the ends of the range."""

    @functools.wraps(raw)
    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if needs_graph((*args, *kwargs.values()), degree, spread):
            return through_graph(raw)(*args, **kwargs)
        return raw(*args, **kwargs)

    call.ungraphed = raw  # type: ignore[attr-defined]
    return call


def labelled(result: PyTree, unit: Unit) -> Unitful:
    """A result of `through_graph` under a label."""
    if type(result) is Unitful:
        return settle(result.stored, unit.scaled(result.label.scale))
    return settle(result, unit) if unit.scale else unitful(result, unit)


def plain_result(result: PyTree) -> PyTree:
    """Results without a unit, at exponent 0."""
    if type(result) is Unitful:
        return shift(result.stored, result.label.scale)
    return like(result, map(plain_result, result)) if isinstance(result, list | tuple) else result


def like(result: PyTree, items: Iterable[Any]) -> PyTree:
    """A sequence of the class of another, which may be a named tuple; of no sequence a list."""
    if hasattr(result, "_fields"):
        return type(result)(*items)
    return type(result)(items) if isinstance(result, list | tuple) else list(items)


def needs_graph(values: Iterable[PyTree], degree: float = 2.0, spread: bool = False) -> bool:
    """As `has_headroom`, of plain numbers: whether a function of them may leave the range."""
    for value in values:
        if type(value) in _SEQUENCES:
            if needs_graph(value, degree, spread):
                return True
            continue
        bits = measure(value)
        if bits is None or bits[0] > bits[1] or not hasattr(value, "dtype"):
            continue
        span = range_of(value.dtype)
        if span is not None:
            room = span.highest - 2 - (math.log2(value.size) if spread and value.size > 1 else 0)
            if max(-bits[0], bits[1]) * degree > room:
                return True
    return False


def distance(a: Unit, b: Unit) -> float:
    """By how many binary digits a number changes from one unit to another."""
    if not (a.is_linear and b.is_linear) or a.dimension is not b.dimension:
        return 0.0
    low, high = bits_in((0, 0), a, b)
    return max(-low, high)


def unscale(result: PyTree) -> PyTree:
    """Results at exponent 0 wherever their dtype holds them there."""
    if type(result) is Unitful and result.label.scale:
        bits, label = bits_of(result), result.label
        span = range_of(result.dtype)
        if bits is None or span is None:
            return result
        if span.holds(bits[0] + label.scale, bits[1] + label.scale):
            return unitful(shift(result.stored, label.scale), label.plain)
        return result
    return like(result, map(unscale, result)) if isinstance(result, list | tuple) else result


def without_exponents(
    args: Sequence[PyTree], kwargs: dict[str, PyTree], inner: dict[Any, int]
) -> tuple[PyTree, PyTree]:
    """Arguments without the powers of two that are in `inner`."""
    return _changed(args, kwargs, inner, lambda q, e: unitful(q.stored, q.label.scaled(-e)))


def shifted(call: Function, inner: dict[Any, int]) -> Function:
    """`call` of numbers that are multiplied by a power of two first, inside of the graph."""
    if not inner:
        return call

    def on_stored(*args: PyTree, **kwargs: PyTree) -> PyTree:
        args, kwargs = _changed(args, kwargs, inner, shift)
        return call(*args, **kwargs)

    return on_stored


def _changed(
    args: Sequence[PyTree], kwargs: dict[str, PyTree], places: dict[Any, int], change: Function
) -> tuple[PyTree, PyTree]:
    """Arguments with `change(value, exponent)` at some places."""
    args, kwargs = list(args), dict(kwargs)
    for place, exponent in places.items():
        slot, index = place if type(place) is tuple else (place, None)
        holder: Any = args if type(slot) is int else kwargs
        if index is not None:
            holder[slot] = list(holder[slot])
            holder, slot = holder[slot], index
        holder[slot] = change(holder[slot], exponent)
    return args, kwargs
