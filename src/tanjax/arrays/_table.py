"""The table of registered array types, without other imports.

The layers above read this table instead of classes. It treats your own types and foreign classes
alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from jax import Array

from tanjax._typing import Natural, Primal, Structural


@dataclasses.dataclass(frozen=True)
class ArrayType:
    """A registered array type: its four maps and its facts.

    `has_closed_form`: the type implements J⁺ᵀ. `is_own`: it derives from `AbstractArray`, and its
    instances have the methods of that class.
    """

    cls: type
    destructure: Callable[[Primal], Array]
    pushforward_of_destructure: Callable[[Primal, Structural], Natural]
    pullback_of_destructure: Callable[[Primal, Natural], Structural]
    pushforward_of_restructure: Callable[[Primal, Natural], Structural]
    pullback_of_restructure: Callable[[Primal, Structural], Natural]
    is_linear: Callable[[Primal], bool]
    is_isometric: Callable[[Primal], bool]
    is_injective: Callable[[Primal], bool]
    has_closed_form: bool
    is_own: bool


TYPES: dict[type, ArrayType] = {}


def array_type(x: object) -> ArrayType | None:
    """Return the registered array type of a value, or `None` if the value is not structured."""
    return TYPES.get(type(x))


def array_type_of(x: object) -> ArrayType:
    """Return the registered type of a structured array. **Raises:** `TypeError` for others."""
    kind = array_type(x)
    if kind is None:
        raise TypeError(f"{type(x).__name__} is not a registered array type.")
    return kind


def is_structured(x: object) -> bool:
    """True if the value is an instance of a registered array type."""
    return type(x) in TYPES


def is_own(x: object) -> bool:
    """True if the value is structured and has the methods of `AbstractArray`."""
    kind = TYPES.get(type(x))
    return kind is not None and kind.is_own


def fact(x: object, name: str) -> bool:
    """Return a fact of an array, such as `is_linear`; all facts are true of a dense array."""
    kind = TYPES.get(type(x))
    return kind is None or getattr(kind, name)(x)


def answers(x: object, query: str) -> bool:
    """True if the type of `x` implements a query itself, and does not inherit the default."""
    return is_own(x) and query in vars(type(x))


def registered_array_types() -> tuple[type, ...]:
    """Return all registered array types, in order of registration."""
    return tuple(TYPES)
