"""Nested dicts of quantities and arrays, taken apart into values and put together again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, TypeAlias

from jaxtyping import PyTree

from tanjax._typing import Primal
from tanjax.arrays import Unitful, unitful
from tanjax.units import Unit

from ._arguments import ARRAYS

Box: TypeAlias = dict[Any, PyTree]  # nested, by names that can be sorted
Units: TypeAlias = list[Unit | None]  # of leaves, None of plain ones
Layout: TypeAlias = list[tuple[Hashable, ...]]  # what tells two forms apart


def take_apart(box: Box, layout: Layout, units: Units, values: list[Primal]) -> bool:
    """Collect what nested dicts hold; whether that is nothing but quantities and arrays of JAX."""
    layout.append((len(units), *box))  # so that no two trees have one layout
    for x in box.values():
        kind = type(x)
        if kind is Unitful:
            units.append(x._quantity_unit)
            values.append(x.stored)
        elif kind is dict:
            if not take_apart(x, layout, units, values):
                return False
        elif kind in ARRAYS:
            units.append(None)
            values.append(x)
        else:
            return False
    return True


def emptied(box: Box) -> Box:
    return {name: emptied(x) if type(x) is dict else None for name, x in box.items()}


def filled(shape: Box, values: Iterator[Primal]) -> Box:
    """Values in the places of an emptied dict; the names sorted, as JAX gives dicts back."""
    found = {k: next(values) if x is None else filled(x, values) for k, x in shape.items()}
    return {name: found[name] for name in sorted(found)}


def labelled(value: Primal, label: Unit | None) -> Primal:
    return value if label is None else unitful(value, label)
