"""Checks before each call that its numbers surely stay in the range of their dtype.

Quantities store the distance to the ends of the range beside their bits, so the check takes 0.1 us
each. Values without a dtype or a unit are measured at each call: a Python number takes the dtype of
its partners, which may not hold it.

    need = needed(is_kept, spread, operands, places, values, targets)
    need is None or need.is_met(args, kwargs)

A function whose numbers may leave the range runs through the scale graph, which returns an exponent
with each result: `through_graph(call)(*args)`.

Sharp edges. The check never measures tracers and structured arrays. It measures plain arrays only
if the function is elementwise or computes no numbers. Functions that need concrete values
(`unique`) cannot run through a graph and are called directly.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax._dtype_range import range_of
from tanjax._typing import Function
from tanjax.units import Unit, one
from tanjax.units.signatures import Operand

from ._conversion import bits_in
from ._operands import SEQUENCES, Place, flat, is_weak, take
from ._quantity import Quantity, bits_of, note_bits, unitful
from ._range import measure, measure_pure

# A traced function that needs concrete values raises these: JAX's type errors are `TypeError`s.
NEEDS_VALUES = (TypeError, jax.errors.JAXIndexError)


def has_headroom(
    values: Iterable[PyTree], degree: float = 2.0, spread: bool = False, stretch: float = 0.0
) -> bool:
    """True if a product or a sum of two of these values surely stays in range: 0.1 us each.

    **Arguments:** `degree`: how many numbers a function multiplies; `spread`: True if it sums all
    entries of an array; `stretch`: log2 of the conversions before. The result is computed once per
    quantity and cached beside its bits.
    """
    place = 3 if spread else 2
    for value in values:
        if type(value) is Quantity:
            bits = value._bits
            try:
                room = bits[place]
            except (TypeError, IndexError):  # not measured yet, or only bounds are known
                bits = _room(value)
                room = bits[place]
            if degree != 2.0:
                room -= (degree - 2) * max(-bits[0], bits[1])
            if room < stretch:
                return False
        elif type(value) in SEQUENCES and not has_headroom(value, degree, spread, stretch):
            return False
    return True


def fits(values: Sequence[PyTree], degree: float, spread: bool) -> bool:
    """True if a function of these values, brought to one unit, surely stays in range."""
    labels = {v.label for v in flat(values) if type(v) is Quantity}
    pairs = itertools.combinations(labels, 2) if len(labels) > 1 else ()
    stretch = max((distance(a, b) for a, b in pairs), default=0.0)
    if not has_headroom(values, degree, spread, stretch):
        return False
    numbers = [v for v in flat(values) if _is_number(v)]
    return not numbers or _hold(values, numbers, 2.0, stretch)


class Need(NamedTuple):
    """The conditions that a call puts on its numbers.

    **Fields:** `spread`: True if the function sums all entries of an array; `stretch`: log2 of the
    conversions before; `places`: the numbers to measure at each call; `degree`: their power.
    """

    spread: bool
    stretch: float
    places: tuple[Place, ...]
    degree: float

    def is_met(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> bool:
        """True if a call surely stays in range."""
        if not has_headroom(args, 2.0, self.spread, self.stretch):
            return False
        named = kwargs.values()
        if kwargs and not has_headroom(named, 2.0, self.spread, self.stretch):
            return False
        if not self.places:
            return True
        numbers = take(args, kwargs, self.places)  # 1 us each
        return _hold((*args, *named), numbers, self.degree, self.stretch)

    def is_seen(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> bool:
        """As `is_met`, after measuring the numbers (2.5 us each): propagated bits are bounds."""
        for value in flat((*args, *kwargs.values())):
            bits = measure(value.stored) if type(value) is Quantity else None
            if bits is not None:
                note_bits(value, bits)
        return self.is_met(args, kwargs)


def needed(
    is_kept: bool,
    spread: bool,
    operands: Sequence[Operand],
    places: Sequence[Place],
    values: Sequence[PyTree],
    targets: Sequence[Unit | None],
) -> Need | None:
    """Return the conditions of a call; `None` for `max(q)`, but not for `max(q, initial=1)`.

    **Arguments:** `is_kept`, `spread`: see `Signature` and `Need`; `operands`: role, unit and name
    of each; `places`, `values`, `targets`: their places, their values, and the units they need.
    """
    if len(operands) == 1 and is_kept:
        return None
    stretch, measured = 0.0, []
    for (role, unit, _), place, value, to in zip(operands, places, values, targets, strict=True):
        if to is not None and to is not unit:
            stretch = max(stretch, distance(unit if isinstance(unit, Unit) else one, to))
        is_pure = unit is None and role.letter != "-" and (is_kept or not spread)
        if len(operands) > 1 and (is_pure or _is_number(value)):
            measured.append(place)
    return Need(spread, stretch, tuple(measured), 1.0 if is_kept else 2.0)


def _is_number(value: PyTree) -> bool:
    """True if a value is a quantity of a Python number: it takes the dtype of its partners."""
    return type(value) is Quantity and is_weak(value.stored)


def _hold(
    values: Iterable[PyTree], numbers: Iterable[PyTree], degree: float, stretch: float
) -> bool:
    """True if the dtypes of the measured quantities among values hold powers of some numbers."""
    spans = [range_of(v.dtype) for v in flat(values) if type(v) is Quantity and v._bits]
    top = min((span.highest - 2 for span in spans if span is not None), default=math.inf)
    for x in numbers:
        bits = bits_of(x) if type(x) is Quantity else measure_pure(x)
        if bits is not None and max(bits[1], -bits[0]) * degree + stretch > top:
            return False
    return True


_ENDLESS = (math.inf, -math.inf, math.inf, math.inf)
_CROWDED = (math.inf, -math.inf, -math.inf, -math.inf)


def _room(q: Quantity) -> tuple[float, ...]:
    """Return the bits of a quantity and by how many digits it may grow; cached in the quantity."""
    bits, span = bits_of(q), range_of(q.dtype)
    if bits is None or span is None:  # only labels are known of tracers
        return _ENDLESS if not q.label.scale else _CROWDED
    room = -math.inf
    if bits[0] > bits[1]:
        room = math.inf
    elif not q.label.scale:
        room = span.highest - 2 - 2 * max(-bits[0], bits[1])
    note_bits(q, (*bits[:2], room, room - math.log2(max(math.prod(q.shape), 1))))
    return q._bits


def needs_graph(values: Iterable[PyTree], degree: float = 2.0, spread: bool = False) -> bool:
    """True if a function of plain numbers may leave the range; as `has_headroom`."""
    for value in flat(values):
        bits = measure(value)
        span = range_of(value.dtype) if bits and hasattr(value, "dtype") else None
        if bits is None or span is None or bits[0] > bits[1]:
            continue
        room = span.highest - 2 - (math.log2(value.size) if spread and value.size > 1 else 0)
        if max(-bits[0], bits[1]) * degree > room:
            return True
    return False


def distance(a: Unit, b: Unit) -> float:
    """Return by how many binary digits a number changes from one unit to another."""
    if not (a.is_linear and b.is_linear) or a.dimension is not b.dimension:
        return 0.0
    low, high = bits_in((0, 0), a, b)
    return max(-low, high)


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
