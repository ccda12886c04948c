"""Quantities in checks: numbers to compare, and units that must be the right ones.

Comparisons are made on plain numbers. A quantity is stripped where its unit has been compared with
the one that it must have; a natural cotangent of a quantity must be in the inverse unit.
"""

from __future__ import annotations

from typing import Any

import jax

from tanjax import arrays
from tanjax._errors import UnitError, message
from tanjax.arrays import Unitful


def is_quantity(x: Any) -> bool:
    """Whether a value is a quantity."""
    return type(x) is Unitful


def numbers(tree: Any) -> Any:
    """A tree with the values of its quantities."""
    return jax.tree.map(lambda x: x.value if is_quantity(x) else x, tree, is_leaf=is_quantity)


def values_type(x: Any) -> type:
    """The type of the numbers: of a quantity that of its value."""
    return type(x.value if is_quantity(x) else x)


def unit_of_cotangent(x: Any) -> Any:
    """The unit that a natural cotangent of an array must be in; `None` for plain arrays."""
    return x.unit.inverse if is_quantity(x) else None


def unit_of_tangent(x: Any) -> Any:
    """The unit that a natural tangent of an array must be in; `None` for plain arrays."""
    return x.unit.delta if is_quantity(x) else None


def labelled(value: Any, unit: Any) -> Any:
    """A value in a unit; plain if there is none."""
    return value if unit is None else arrays.quantity(value, unit)


def stripped(what: str, x: Any, unit: Any) -> Any:
    """The dense numbers of an array, which must be in a unit. **Raises:** `UnitError`."""
    got = x.unit if is_quantity(x) else None
    empty = isinstance(x, arrays.Zero)  # it has every unit
    if (not empty and (got is None) != (unit is None)) or (got is not None and got != unit):
        raise UnitError(message(f"{what} has the wrong unit.", f"expected: {unit}", f"got: {got}"))
    return arrays.destructure(x.value if is_quantity(x) else x)
