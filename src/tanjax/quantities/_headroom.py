"""Checks before each call that its numbers surely stay in the range of their dtype.

Quantities store the distance to the ends of the range beside their bits, so the check takes 0.1 us
each. Values without a dtype or a unit are measured at each call: a Python number takes the dtype of
its partners, which may not hold it.

    need = needed(name, spread, operands, where, arguments, stretch)
    need is None or need.is_met(args, kwargs)

Sharp edges. The check never measures tracers and structured arrays. It measures plain arrays only
if the function is elementwise or selects.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from jaxtyping import PyTree

from tanjax._dtype_range import range_of
from tanjax.units import Unit
from tanjax.units.signatures import Operand

from ._conversion import bits_in
from ._quantity import Unitful, bits_of, note_bits
from ._range import Bits, measure, measure_pure

_SEQUENCES = (list, tuple)

# Functions that return some of the numbers they are given cannot overflow.
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
# Functions that select among operands converted to one unit.
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
    """True if a product or a sum of two of these values surely stays in range: 0.1 us each.

    **Arguments:** `spread`: True if the function sums all entries of an array; `stretch`: log2 of
    the conversions before. The result is computed once per quantity and cached beside its bits.
    """
    place = 3 if spread else 2
    for value in values:
        if type(value) is Unitful:
            try:
                if value._bits[place] < stretch:
                    return False
            except (TypeError, IndexError):  # not measured yet, or only bounds are known
                if _room(value)[place] < stretch:
                    return False
        elif type(value) in _SEQUENCES and not has_headroom(value, spread, stretch):
            return False
    return True


Slot: TypeAlias = int | str  # the position or the name of an argument
Place = tuple[Slot, int | None]  # an argument, and the index if it is a sequence
Spot: TypeAlias = (
    Any  # of an operand: its slot, or a tuple of that of a sequence and the index in it
)


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
        return (
            has_headroom(args, self.spread, self.stretch)
            and (not kwargs or has_headroom(kwargs.values(), self.spread, self.stretch))
            and (not self.places or self._holds_numbers(args, kwargs))
        )

    def is_seen(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> bool:
        """As `is_met`, after measuring the numbers: propagated bits are only bounds."""
        measure_all(args)
        measure_all(kwargs.values())
        return self.is_met(args, kwargs)

    def _holds_numbers(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> bool:
        """True if the dtypes of quantities hold the numbers of other arguments: 1 us each."""
        top = _top(args) if not kwargs else min(_top(args), _top(kwargs.values()))
        for place in self.places:
            value = value_at(args, kwargs, *place)
            bits = bits_of(value) if type(value) is Unitful else measure_pure(value)
            if not _is_below(top, bits, self.degree, self.stretch):
                return False
        return True


def needed(
    name: str,
    spread: bool,
    operands: Sequence[Operand],
    where: Sequence[PyTree],
    given: tuple[Sequence[PyTree], dict[str, PyTree]],
    stretch: float,
) -> Need | None:
    """Return the conditions of a call; `None` for `max(q)`, but not for `max(q, initial=1)`.

    **Arguments:** `operands`: role, unit and name of each; `where`: their places in `given`.
    """
    if len(operands) == 1:
        return None if name in SELECTING else Need(spread, stretch, (), 2.0)
    chooses, places = name in CHOOSING, []
    for (role, unit, _), place in zip(operands, where, strict=True):
        slot, index = place if type(place) is tuple else (place, None)
        value = value_at(*given, slot, index)
        is_pure = unit is None and role.letter != "-" and (chooses or not spread)
        if is_pure or is_number(value):
            places.append((slot, index))
    return Need(spread, stretch, tuple(places), 1.0 if chooses else 2.0)


def value_at(
    args: Sequence[PyTree], kwargs: dict[str, PyTree], slot: Slot, index: int | None
) -> PyTree:
    """Return an argument, or an item of an argument that is a sequence."""
    value = args[slot] if isinstance(slot, int) else kwargs[slot]
    return value if index is None else value[index]


def is_number(value: PyTree) -> bool:
    """True if a value is a quantity of a Python number: it takes the dtype of its partners."""
    return type(value) is Unitful and is_weak(value.stored)


def is_weak(stored: PyTree) -> bool:
    """True if a number is a Python number or is weakly typed, so that its dtype does not count."""
    return not hasattr(stored, "dtype") or getattr(stored, "weak_type", False)


def numbers_fit(values: Sequence[PyTree], stretch: float = 0.0) -> bool:
    """True if the dtypes of quantities hold the Python numbers among them."""
    numbers = [bits_of(v) for v in _flat(values) if is_number(v)]
    top = _top(values) if numbers else math.inf
    return all(_is_below(top, bits, 2.0, stretch) for bits in numbers)


def _is_below(top: float, bits: Bits | None, degree: float, stretch: float) -> bool:
    """True if a power of numbers stays within a range."""
    return bits is None or max(bits[1], -bits[0]) * degree + stretch <= top


def stretch_of(values: Sequence[PyTree]) -> float:
    """Return by how many binary digits numbers change if quantities share one unit."""
    labels = {v.label for v in _flat(values) if type(v) is Unitful}
    pairs = itertools.combinations(labels, 2) if len(labels) > 1 else ()
    return max((distance(a, b) for a, b in pairs), default=0.0)


def _flat(values: Iterable[PyTree]) -> Iterator[PyTree]:
    for value in values:
        if type(value) in _SEQUENCES:
            yield from _flat(value)
        else:
            yield value


def _top(values: Iterable[PyTree]) -> float:
    """Return log2 of a large number that each of the measured quantities can hold."""
    top = math.inf
    for value in _flat(values):
        span = range_of(value.dtype) if type(value) is Unitful and value._bits else None
        if span is not None and span.highest - 2 < top:
            top = span.highest - 2
    return top


def measure_all(values: Iterable[PyTree]) -> None:
    """Replace the bounds that quantities carry by measured values: 2.5 us each."""
    for value in values:
        if type(value) is Unitful:
            bits = measure(value.stored)
            if bits is not None:
                note_bits(value, bits)
        elif type(value) in _SEQUENCES:
            measure_all(value)


_ENDLESS = (math.inf, -math.inf, math.inf, math.inf)
_CROWDED = (math.inf, -math.inf, -math.inf, -math.inf)


def _room(q: Unitful) -> tuple[float, ...]:
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


def has_headroom_at(
    values: Iterable[PyTree], degree: float, spread: bool, stretch: float = 0.0
) -> bool:
    """As `has_headroom`, for products of more than two values."""
    place = 3 if spread else 2
    for value in values:
        if type(value) is Unitful:
            bits = value._bits
            if bits is None or len(bits) == 2:
                bits = _room(value)
            if bits[place] < (degree - 2) * max(-bits[0], bits[1]) + stretch:
                return False
        elif type(value) in _SEQUENCES and not has_headroom_at(value, degree, spread, stretch):
            return False
    return True


def needs_graph(values: Iterable[PyTree], degree: float = 2.0, spread: bool = False) -> bool:
    """True if a function of plain numbers may leave the range; as `has_headroom`."""
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
    """Return by how many binary digits a number changes from one unit to another."""
    if not (a.is_linear and b.is_linear) or a.dimension is not b.dimension:
        return 0.0
    low, high = bits_in((0, 0), a, b)
    return max(-low, high)
