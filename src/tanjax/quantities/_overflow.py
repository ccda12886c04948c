"""Calls on quantities whose numbers may leave the range of their dtype.

A function of quantities is called on stored numbers. Near one they cannot overflow, and the only
cost is the check (`_headroom.py`). Elsewhere three things may go wrong:

- Operands with different powers of two need a common one that fits them all (`_meeting.py`).
- The function itself may overflow. It then runs through the scale graph, which returns an exponent
  with each result.
- A result may need another label.

    if not need.is_met(args, kwargs):
        return through_graph(call)(*args)

Sharp edges. The check never measures tracers, integers and structured arrays. Functions that need
concrete values (`unique`) cannot run through a graph and are called directly.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax._dtype_range import range_of
from tanjax._typing import Function
from tanjax.units import Unit, one

from ._headroom import Spot, needs_graph
from ._quantity import Unitful, bits_of, is_quantity, unitful
from ._range import shift
from ._scaling import settle

_SEQUENCES = (list, tuple)
# A traced function that needs concrete values raises these: JAX's type errors are `TypeError`s.
NEEDS_VALUES = (TypeError, jax.errors.JAXIndexError)


def through_graph(call: Function) -> Function:
    """Return `call` of plain arrays, run through the scale graph.

    **Returns:** the result of `call`; a result with an exponent is a quantity in `2^exponent`.
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
    """Return `raw`, run through the scale graph if its numbers are near the ends of the range."""

    @functools.wraps(raw)
    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if needs_graph((*args, *kwargs.values()), degree, spread):
            return through_graph(raw)(*args, **kwargs)
        return raw(*args, **kwargs)

    call.ungraphed = raw  # type: ignore[attr-defined]
    return call


def labelled(result: PyTree, unit: Unit) -> Unitful:
    """Label a result of `through_graph`."""
    if is_quantity(result):
        return settle(result.stored, unit.scaled(result.label.scale))
    return settle(result, unit) if unit.scale else unitful(result, unit)


def plain_result(result: PyTree) -> PyTree:
    """Return results without a unit, at exponent 0."""
    if is_quantity(result):
        return shift(result.stored, result.label.scale)
    return like(result, map(plain_result, result)) if isinstance(result, list | tuple) else result


def like(result: PyTree, items: Iterable[PyTree]) -> PyTree:
    """Return a sequence of the class of another, also a named tuple; a list by default."""
    if hasattr(result, "_fields"):
        return type(result)(*items)
    return type(result)(items) if isinstance(result, list | tuple) else list(items)


def unscale(result: PyTree) -> PyTree:
    """Return results at exponent 0 wherever their dtype holds them there."""
    if is_quantity(result) and result.label.scale:
        bits, label = bits_of(result), result.label
        span = range_of(result.dtype)
        if bits is None or span is None:
            return result
        if span.holds(bits[0] + label.scale, bits[1] + label.scale):
            return unitful(shift(result.stored, label.scale), label.plain)
        return result
    return like(result, map(unscale, result)) if isinstance(result, list | tuple) else result


def without_exponents(
    args: Sequence[PyTree], kwargs: dict[str, PyTree], inner: dict[Spot, int]
) -> tuple[PyTree, PyTree]:
    """Return arguments without the powers of two in `inner`."""
    return _changed(args, kwargs, inner, lambda q, e: unitful(q.stored, q.label.scaled(-e)))


def shifted(call: Function, inner: dict[Spot, int]) -> Function:
    """Return `call` with numbers multiplied by a power of two first, inside of the graph."""
    if not inner:
        return call

    def on_stored(*args: PyTree, **kwargs: PyTree) -> PyTree:
        args, kwargs = _changed(args, kwargs, inner, shift)
        return call(*args, **kwargs)

    return on_stored


def _changed(
    args: Sequence[PyTree], kwargs: dict[str, PyTree], places: dict[Spot, int], change: Function
) -> tuple[PyTree, PyTree]:
    """Return arguments with `change(value, exponent)` at some places."""
    args, kwargs = list(args), dict(kwargs)
    for place, exponent in places.items():
        slot, index = place if type(place) is tuple else (place, None)
        holder: Any = args if type(slot) is int else kwargs
        if index is not None:
            holder[slot] = list(holder[slot])
            holder, slot = holder[slot], index
        holder[slot] = change(holder[slot], exponent)
    return args, kwargs
