"""The grammar of units: `kg m / s2`, `kg·m²·s⁻¹`, `m^(1/2)`, `1/s`.

Products are read from left to right and a slash divides by the next factor alone, as in pint and
in arithmetic: `J / K mol` is `(J / K) mol`; write `J / K / mol` or `J / (K mol)`.

    expression:  factor ((times | "/" | "per" | space) factor)*      times: "*" "·" "⋅" "×"
    factor:      (number | name | level "(" expression ")" | "(" expression ")") power?
    power:       ("^" | "**") exponent | superscripts | digits right after a name
    exponent:    a signed number, or a fraction in parentheses

A level directly before a parenthesis takes its content as the reference: `dB(mW)` is dBm, but
`dB (mW)` is a product. `dBm/Hz` is the level over 1 mW/Hz. Algebra on units makes no such level.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from tanjax._errors import UnitError, message

from ._factor import ONE, Factor
from ._points import LEVEL, Logarithmic
from ._unit import Unit, make, one

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<number>(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)
      | (?P<name>\[\w+\]|[%‰°′″]\w*|Δ?°?[^\W\d][\w∞]*|Δ°)(?P<power>[+-]\d+)?
      | (?P<sign>\*\*|[-+^*/()·⋅×])""",
    re.VERBOSE,
)
_SUPERSCRIPTS = re.compile("[⁺⁻⁰¹²³⁴-⁹]+")
_LOWERED = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
# Unicode has two signs for some letters: ohm, angstrom, mu.
_LETTERS = str.maketrans({"\u2126": "Ω", "\u212b": "Å", "μ": "µ", "−": "-", "⁄": "/"})

Lookup = Callable[[str], Unit | None]


class UnknownName(Exception):
    """Raised for a name that the look-up does not have."""


class _Reader:
    """The tokens of a text and the place of the next one."""

    def __init__(self, text: str, look_up: Lookup) -> None:
        self.text, self.look_up, self.place = text, look_up, 0
        lowered = _SUPERSCRIPTS.sub(lambda m: f"^({m[0].translate(_LOWERED)})", text)
        self.tokens = self._split(lowered.translate(_LETTERS))

    def error(self, what: str, hint: str = "") -> UnitError:
        return UnitError(message(f"{self.text!r} is not a unit: {what}.", hint=hint))

    def _split(self, text: str) -> list[tuple[str, str]]:
        tokens, at = [], 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.error(f"the character {text[at]!r} has no meaning")
            at = match.end()
            if match["name"]:
                word, kind = match["name"], "call" if text[at : at + 1] == "(" else "name"
                tokens.append(("sign", "/") if word == "per" else (kind, word))
                if match["power"]:
                    tokens += [("sign", "^"), ("number", match["power"])]
            elif match["number"]:
                tokens.append(("number", match["number"]))
            elif match["sign"]:
                sign = {"**": "^", "·": "*", "⋅": "*", "×": "*"}.get(match["sign"], match["sign"])
                tokens.append(("sign", sign))
        return tokens

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.place] if self.place < len(self.tokens) else ("end", "the end")

    def take(self, *signs: str) -> str | None:
        """Take and return the next token if it is one of these signs."""
        kind, text = self.peek()
        if kind == "sign" and text in signs:
            self.place += 1
            return text
        return None

    def expression(self) -> tuple[Factor, Unit]:
        number, unit = self.factor()
        while True:
            sign = self.take("*", "/")
            kind, text = self.peek()
            if sign is None and not (kind in ("name", "call", "number") or text == "("):
                return number, unit
            next_number, next_unit = self.factor()
            if sign == "/" and isinstance(unit.point, Logarithmic) and next_number == ONE:
                unit = _per(unit, next_unit)
            elif sign == "/":
                number, unit = number / next_number, unit / next_unit
            else:
                number, unit = number * next_number, unit * next_unit

    def factor(self) -> tuple[Factor, Unit]:
        negative = self.take("-") is not None
        number, unit = self.atom()
        while self.take("^"):
            power = self.exponent()
            try:
                number, unit = number**power, unit**power
            except ValueError as error:
                raise self.error(str(error)) from None
        return (Factor(-1) * number if negative else number), unit

    def atom(self) -> tuple[Factor, Unit]:
        kind, text = self.peek()
        self.place += 1
        if kind == "number":
            if not Fraction(text):
                raise self.error("a unit is not zero")
            return Factor(Fraction(text)), one
        if kind in ("name", "call"):
            unit = self.look_up(text)
            if unit is None:
                raise UnknownName(text)
            if kind == "call" and unit.dimension is LEVEL and unit.is_linear:
                return ONE, self.level_over_reference(unit)
            return ONE, unit
        if text == "(":
            inside = self.expression()
            if not self.take(")"):
                raise self.error("a parenthesis is not closed")
            return inside
        raise self.error(
            f"a unit is missing before {text!r}" if kind == "sign" else "it ends early"
        )

    def level_over_reference(self, level: Unit) -> Unit:
        """The unit `dB(...)`: a scale of levels over a reference of powers."""
        number, reference = self.atom()
        if number != ONE or not reference.is_linear or reference.dimension is LEVEL:
            raise self.error(f"a level of {level} is over a unit")
        if reference.is_one:
            return level
        symbols = ((f"{level}({reference})", Fraction(1)),)
        point = Logarithmic(level.factor)
        return make(reference.dimension, reference.factor, symbols, point)

    def exponent(self) -> Fraction:
        if self.take("("):
            power = self.signed()
            while sign := self.take("*", "/"):
                other = self.signed()
                if sign == "/" and not other:
                    raise self.error("a power is divided by zero")
                power = power / other if sign == "/" else power * other
            if not self.take(")"):
                raise self.error("the parenthesis of a power is not closed")
            return power
        return self.signed()

    def signed(self) -> Fraction:
        sign = self.take("+", "-")
        kind, text = self.peek()
        if kind != "number":
            raise self.error(f"a power must be a number, not {text}")
        self.place += 1
        power = Fraction(text)
        return -power if sign == "-" else power


def _per(level: Unit, other: Unit) -> Unit:
    """A level with its reference divided by another unit: dBm/Hz is over 1 mW/Hz."""
    if not other.is_linear or other.dimension is LEVEL:
        return level / other  # raises
    simple = len(other.symbols) == 1 and other.symbols[0][1] > 0
    symbols = ((f"{level}/{other}" if simple else f"{level}/({other})", Fraction(1)),)
    dimension, factor = (level.dimension / other.dimension, level.factor / other.factor)
    return make(dimension, factor, symbols, level.point)


def evaluate(text: str, look_up: Lookup) -> tuple[Factor, Unit]:
    """Return the number and the unit whose product a text is.

    **Raises:** `UnitError` for a text outside of the grammar, `UnknownName` for an unknown name.
    """
    reader = _Reader(text, look_up)
    if not reader.tokens:
        return ONE, one
    value = reader.expression()
    if reader.place < len(reader.tokens):
        raise reader.error(f"{reader.peek()[1]!r} is out of place")
    return value
