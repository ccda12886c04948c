"""What the library knows of array types: one table, which nothing else has to be imported for.

Everything above asks this table, and nothing ever asks for the class itself: a type of one's own
and a class of somebody else's are the same thing here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from jax import Array

from tanjax._typing import Natural, Primal, Structural


@dataclasses.dataclass(frozen=True)
class ArrayType:
    """What the library knows of a registered array type: its four maps and its facts.

    `has_closed_form`: its author says what J⁺ᵀ is. `is_own`: it derives from `AbstractArray`, so
    that its instances have the methods of one.
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
    """The registered array type of a value, or `None` if the value is not structured."""
    return TYPES.get(type(x))


def array_type_of(x: object) -> ArrayType:
    """The registered type of a structured array."""
    kind = array_type(x)
    if kind is None:
        raise TypeError(f"{type(x).__name__} is not a registered array type.")
    return kind


def is_structured(x: object) -> bool:
    """Whether the value is an instance of a registered array type."""
    return type(x) in TYPES


def is_own(x: object) -> bool:
    """Whether the value is structured and has the methods of `AbstractArray`."""
    kind = TYPES.get(type(x))
    return kind is not None and kind.is_own


def fact(x: object, name: str) -> bool:
    """A fact of any array, such as `is_linear`; a dense one has them all."""
    kind = TYPES.get(type(x))
    return kind is None or getattr(kind, name)(x)


def answers(x: object, query: str) -> bool:
    """Whether the author of the type of `x` wrote a query, rather than inherit its default."""
    return is_own(x) and query in vars(type(x))


def registered_array_types() -> tuple[type, ...]:
    """Every registered array type, in order of registration."""
    return tuple(TYPES)
