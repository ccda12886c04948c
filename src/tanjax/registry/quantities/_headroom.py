"""Whether the numbers of a call surely stay in the range of their dtype, asked before each call.

Quantities keep how far they are from the ends of it beside their bits, so that this takes 0.1 us
each. What has no dtype, or no unit, is looked at anew: Python's numbers take the dtype of what they
meet, which may not hold them.

    need = needed(name, spread, operands, where, arguments, stretch)
    need is None or need.is_met(args, kwargs)

Sharp edges. Tracers and structured arrays are never looked at; plain arrays only where a function
works entry by entry, or chooses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from jaxtyping import PyTree

from tanjax._dtype_range import range_of
from tanjax.arrays import Bits, Unitful, bits_in, bits_of, measure, measure_pure, note_bits
from tanjax.units import Unit
from tanjax.units.signatures import Operand

_SEQUENCES = (list, tuple)

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


Slot: TypeAlias = int | str  # of an argument: its position or its name
Place = tuple[Slot, int | None]  # of an argument; with the index in a sequence that is one
Spot: TypeAlias = (
    Any  # of an operand: its slot, or a tuple of that of a sequence and the index in it
)


class Need(NamedTuple):
    """What a call asks of its numbers.

    **Fields:** `spread`: whether all entries of an array are added up; `stretch`: log2 of the
    conversions before; `places`: of numbers that are looked at anew; `degree`: their power.
    """

    spread: bool
    stretch: float
    places: tuple[Place, ...]
    degree: float

    def is_met(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> bool:
        """Whether a call surely stays in range."""
        return (
            has_headroom(args, self.spread, self.stretch)
            and (not kwargs or has_headroom(kwargs.values(), self.spread, self.stretch))
            and (not self.places or self._holds_numbers(args, kwargs))
        )

    def is_seen(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> bool:
        """The same once the numbers were looked at: what is propagated are bounds."""
        measure_all(args)
        measure_all(kwargs.values())
        return self.is_met(args, kwargs)

    def _holds_numbers(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> bool:
        """Whether the dtypes of quantities hold numbers of others: 1 us each."""
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
    """What a call asks of its numbers; `None` of those of `max(q)`, but not of `max(q, initial=1)`.

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
    """An argument, or an item of a sequence that is one."""
    value = args[slot] if isinstance(slot, int) else kwargs[slot]
    return value if index is None else value[index]


def is_number(value: PyTree) -> bool:
    """Whether a value is a quantity of one of Python's numbers: it takes the dtype of others."""
    return type(value) is Unitful and is_weak(value.stored)


def is_weak(stored: PyTree) -> bool:
    """Whether a number is one of Python's, or came of some, so that its dtype does not count."""
    return not hasattr(stored, "dtype") or getattr(stored, "weak_type", False)


def numbers_fit(values: Sequence[PyTree], stretch: float = 0.0) -> bool:
    """Whether the dtypes of quantities hold those of Python's numbers among them."""
    numbers = [bits_of(v) for v in _flat(values) if is_number(v)]
    top = _top(values) if numbers else math.inf
    return all(_is_below(top, bits, 2.0, stretch) for bits in numbers)


def _is_below(top: float, bits: Bits | None, degree: float, stretch: float) -> bool:
    """Whether a power of numbers stays below the end of a range, and above the other."""
    return bits is None or max(bits[1], -bits[0]) * degree + stretch <= top


def stretch_of(values: Sequence[PyTree]) -> float:
    """By how many binary digits numbers change if quantities of a dimension meet in one unit."""
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
    """The binary logarithm of a large number that each of the known quantities might hold."""
    top = math.inf
    for value in _flat(values):
        span = range_of(value.dtype) if type(value) is Unitful and value._bits else None
        if span is not None and span.highest - 2 < top:
            top = span.highest - 2
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


def _room(q: Unitful) -> tuple[float, ...]:
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


def has_headroom_at(
    values: Iterable[PyTree], degree: float, spread: bool, stretch: float = 0.0
) -> bool:
    """As `has_headroom`, where more than two values are multiplied with one another."""
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
