"""`unit("km/h")` and `parse_quantity("3 km/h")`: texts as units and as numbers with units."""

from __future__ import annotations

import threading
from typing import Any

from tanjax._errors import UnitError, message

from . import _names
from ._factor import ONE, Factor
from ._grammar import UnknownName, evaluate
from ._unit import Unit

_texts: dict[str, Unit] = {}
_lock = threading.Lock()


def unit(text: str | Unit) -> Unit:
    """The unit that a text names, `"kg m / s2"`; a `Unit` is returned as it is.

    Names, aliases and prefixes are those of pint's catalogue, and of astronomy (`solMass`, `Jy`,
    `mag`). A slash divides by the next factor alone: `J / K / mol`, or `J / (K mol)`.

    **Raises:** `UnitError` for an unknown name (with the nearest ones), a number in front, or a
    text that cannot be read.

    >>> unit("km/h"), unit("kg·m²·s⁻¹"), unit("m^(1/2)")
    (Unit("km / h"), Unit("kg m2 / s"), Unit("m^(1/2)"))
    """
    if type(text) is Unit:
        return text
    try:
        return _texts[text]  # type: ignore[index]
    except (KeyError, TypeError):
        pass
    number, found = _read(text)
    if number != ONE:
        raise UnitError(
            message(
                f"{text!r} is a quantity, not a unit.",
                hint=f"use tj.quantity({text!r}), or multiply: number * tj.unit(...).",
            )
        )
    _texts[str(text)] = found
    return found


def parse_quantity(text: str) -> tuple[float, Unit]:
    """The number and the unit of a text: `"3 km"` is `(3.0, km)`.

    **Raises:** `UnitError`, as `unit`.
    """
    number, found = _read(text, quantity=True)
    return float(number), found


def _read(text: Any, quantity: bool = False) -> tuple[Factor, Unit]:
    if not isinstance(text, str):
        raise UnitError(
            message(
                f"{type(text).__name__} is not a unit.",
                hint="give a text such as 'kg m / s2', or a unit such as tj.units.metre.",
            )
        )
    try:
        return evaluate(text, _names.named)
    except UnknownName as error:
        raise _names.unknown(str(error), text) from None
