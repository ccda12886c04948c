"""`unit("km/h")` and `parse_quantity("3 km/h")`: texts as units and as numbers with units."""

from __future__ import annotations

import ast
import re
import threading
from fractions import Fraction

from jaxtyping import PyTree

from tanjax._errors import UnitError, message

from . import _names
from ._factor import ONE, Factor
from ._grammar import UnknownName, evaluate
from ._unit import Unit, make

_texts: dict[object, Unit] = {}
_lock = threading.Lock()


def unit(text: object) -> Unit:
    """Return the unit of a text such as `"kg m / s2"`, of a `Unit`, or of `1 / unit`.

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
        return _texts[text]
    except (KeyError, TypeError):
        pass
    of_one, stored = getattr(text, "_quantity_unit", None), getattr(text, "stored", None)
    if type(of_one) is Unit and isinstance(stored, int | float) and stored == 1:
        return of_one  # `1 / metre` is a quantity; here it means a unit
    number, found = _read(text)
    if number != ONE:
        raise UnitError(
            message(
                f"{text!r} is a quantity, not a unit.",
                hint=f"use tj.quantity({text!r}), or multiply: number * tj.unit(...); a unit of "
                f"one's own is made by tj.units.define('name', {text!r}).",
            )
        )
    _texts[str(text)] = found
    return found


# Numbers that the grammar does not read: lists, inf and nan, a leading sign.
_NUMBER = re.compile(
    r"""\s*( \[[-+\w.,\s\[\]]*\] | [-+]?\s*(?:nan|inf(?:inity)?)\b | \+(?=[\s\d.]) )(.*)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def parse_quantity(text: str) -> tuple[float | list[PyTree], Unit]:
    """Return the number and the unit of a text: `"3 km"` is `(3.0, km)`; `"[1, 2] m"` is a list.

    **Raises:** `UnitError`, as `unit`.
    """
    match = _NUMBER.match(text) if isinstance(text, str) else None
    if match is None:
        number, found = _read(text, quantity=True)
        return float(number), found
    head, rest = match[1].replace(" ", ""), match[2]
    if head == "+":
        return parse_quantity(rest)
    if head[0] != "[":
        return float(head), unit(rest.strip(" *"))
    try:
        numbers = ast.literal_eval(match[1])
    except (SyntaxError, ValueError):
        raise UnitError(f"{text!r}: {match[1]!r} is no list of numbers.") from None
    return numbers, unit(rest.strip(" *"))


def define(name: str, text: str) -> Unit:
    """Define a unit: after `define("smoot", "1.7018 m")`, `unit("smoot")` returns it.

    **Raises:** `UnitError` if another unit has the name, or if it is not an identifier.
    """
    number, whole = _read(text)
    if not (isinstance(name, str) and name.isidentifier() and whole.is_linear):
        raise UnitError(f"define: {name!r} cannot be the name of {text!r}.")
    symbols = ((name, Fraction(1)),)
    new = make(whole.dimension, number * whole.factor, symbols)
    known = _names.named(name)
    if known is not None and known != new:
        raise UnitError(f"define: {name!r} is a unit already, of {known.dimension}.")
    return _names.remember(name, known or new)


def _read(text: object, quantity: bool = False) -> tuple[Factor, Unit]:
    if not isinstance(text, str):
        raise UnitError(
            message(
                f"{type(text).__name__} is not a unit.",
                hint="give a text such as 'kg m / s2', or a unit such as tj.units.metre; a number "
                "times a unit becomes one by `tj.units.define('name', '1.5 m')`.",
            )
        )
    try:
        return evaluate(text, _names.named)
    except UnknownName as error:
        raise _names.unknown(str(error), text) from None
