"""Nested dicts of quantities and arrays, taken apart into values and put together again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tanjax.arrays import Unitful, unitful

from ._arguments import ARRAYS


def take_apart(box: Any, layout: list[Any], units: list[Any], values: list[Any]) -> bool:
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


def emptied(box: Any) -> Any:
    return {name: emptied(x) if type(x) is dict else None for name, x in box.items()}


def filled(shape: Any, values: Iterator[Any]) -> Any:
    """Values in the places of an emptied dict; the names sorted, as JAX gives dicts back."""
    found = {k: next(values) if x is None else filled(x, values) for k, x in shape.items()}
    return {name: found[name] for name in sorted(found)}


def labelled(value: Any, label: Any) -> Any:
    return value if label is None else unitful(value, label)
