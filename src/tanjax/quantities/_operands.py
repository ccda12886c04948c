"""The operands of a call: their roles, their units, and their places among the arguments.

An operand is an argument with a role in the unit signature, or an item of a sequence with a role.
`take` reads operands by their places, `put` replaces them. `pattern` is the key of a call: it holds
everything about the arguments that the meaning of their units depends on, and no numbers.

Sharp edge. A key holds no shapes and no dtypes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import jax
from jaxtyping import PyTree

from tanjax._dtype_range import range_of
from tanjax.units.signatures import ANY, Found, Operand, Role, unexpected

from ._quantity import Quantity, is_quantity, stored_of

SEQUENCES = (list, tuple)
NO_ROLE = Role("-")
Slot: TypeAlias = int | str  # the position or the name of an argument
Place: TypeAlias = tuple[Slot, int | None]  # an argument, and the index if it is a sequence
Arguments: TypeAlias = tuple[list[PyTree], dict[str, PyTree]]


def flat(values: Iterable[PyTree]) -> Iterator[PyTree]:
    """Yield values, and the items of sequences among them."""
    for value in values:
        if type(value) in SEQUENCES:
            yield from flat(value)
        else:
            yield value


def unit_of(value: PyTree) -> Found:
    """Return the unit of a value: `ANY` for a literal zero, `None` for plain values."""
    kind = type(value)
    if kind is Quantity:
        return value.label
    if (kind is int or kind is float) and value == 0:
        return ANY
    return None


def operands_of(
    function: str, given: Iterable[tuple[Slot, str, Role, PyTree]]
) -> tuple[list[Operand], list[Place]]:
    """Return role, unit and name of each operand, and its place.

    **Arguments:** `given`: slot, name, role and value of each argument.
    **Raises:** `UnitError` if an argument without a role is a quantity.
    """
    operands: list[Operand] = []
    places: list[Place] = []
    for slot, name, role, value in given:
        items: Iterable[tuple[str, int | None, PyTree]] = [(name, None, value)]
        if type(value) in SEQUENCES and (role.sequence or any(map(is_quantity, value))):
            items = [(f"{name}[{i}]", i, item) for i, item in enumerate(value)]
        for label, index, item in items:
            if role is NO_ROLE:
                if is_quantity(item):
                    raise unexpected(function, name, item.label)
            elif item is not None and type(item) is not str:  # `left="extrapolate"`
                operands.append((role, unit_of(item), label))
                places.append((slot, index))
    return operands, places


def take(
    args: Sequence[PyTree], kwargs: dict[str, PyTree], places: Iterable[Place]
) -> list[PyTree]:
    """Return the values at some places of the arguments."""
    values = []
    for slot, index in places:
        value = args[slot] if type(slot) is int else kwargs[slot]  # type: ignore[index]
        values.append(value if index is None else value[index])
    return values


def put(
    args: Sequence[PyTree],
    kwargs: dict[str, PyTree],
    places: Iterable[Place],
    values: Iterable[PyTree],
) -> Arguments:
    """Return the arguments with other values at some places; sequences become lists."""
    new_args, new_kwargs = list(args), dict(kwargs)
    copied = set()
    for (slot, index), value in zip(places, values, strict=True):
        holder: Any = new_args if type(slot) is int else new_kwargs
        if index is None:
            holder[slot] = value
        else:
            if slot not in copied:
                holder[slot] = list(holder[slot])
                copied.add(slot)
            holder[slot][index] = value
    return new_args, new_kwargs


def pattern(values: PyTree) -> tuple[PyTree, ...]:
    """Return the key that the meaning of a call depends on."""
    key: list[PyTree] = []
    for value in values:
        kind = type(value)
        if kind is Quantity:
            label, stored = id(value.label), value.stored  # immortal: ids are never reused
            key.append(-label if is_weak(stored) else label)
            key.append(type(stored))  # structured arrays have other functions
        elif kind in SEQUENCES:
            key.append(pattern(value))
        elif (kind is int or kind is float) and value == 0:
            key.append(0)  # the literal zero has every unit
        else:
            key.append(kind)
    return tuple(key)


def is_weak(stored: PyTree) -> bool:
    """True if a number is a Python number or is weakly typed, so that its dtype does not count."""
    return not hasattr(stored, "dtype") or getattr(stored, "weak_type", False)


def narrowest(given: PyTree) -> Any:
    """Return the floating dtype with the least range among arrays, `None` without any."""
    arrays = map(stored_of, jax.tree.leaves(given, is_leaf=is_quantity))
    dtypes = [x.dtype for x in arrays if hasattr(x, "dtype") and range_of(x.dtype)]
    return min(dtypes, key=lambda d: range_of(d).highest, default=None)  # type: ignore[union-attr]
