"""Nested dicts of quantities and arrays, taken apart into values and put together again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, TypeAlias

from jaxtyping import PyTree

from tanjax._typing import Primal
from tanjax.quantities import Quantity, unitful
from tanjax.units import Unit

from ._arguments import ARRAYS

Box: TypeAlias = dict[Any, PyTree]  # nested, by names that can be sorted
Units: TypeAlias = list[Unit | None]  # of leaves, None of plain leaves
Layout: TypeAlias = list[tuple[Hashable, ...]]  # differs if two forms differ


def take_apart(box: Box, layout: Layout, units: Units, values: list[Primal]) -> bool:
    """Collect the leaves of nested dicts; return true if all are quantities or arrays of JAX."""
    layout.append((len(units), *box))  # so that no two trees have one layout
    for x in box.values():
        kind = type(x)
        if kind is Quantity:
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
    """Put values into the places of an emptied dict, with sorted names as in JAX's dicts."""
    found = {k: next(values) if x is None else filled(x, values) for k, x in shape.items()}
    return {name: found[name] for name in sorted(found)}


def labelled(value: Primal, label: Unit | None) -> Primal:
    return value if label is None else unitful(value, label)
