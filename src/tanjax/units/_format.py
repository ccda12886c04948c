"""Texts of units: `kg m / s2`, `kg·m/s²`, LaTeX, and names in full.

`tj.unit` reads these texts, so symbols are those of the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from tanjax._errors import UnitError

from ._dimension import layout

Symbols = Iterable[tuple[str, Fraction]]
BASE_SYMBOLS = {
    "mass": "kg",
    "length": "m",
    "time": "s",
    "current": "A",
    "temperature": "K",
    "amount": "mol",
    "luminosity": "cd",
    "printing": "pixel",
    "level": "Np",
}
# The name in full of each symbol; a unit that gets a symbol adds its own, and so does a pickle.
LONG = {
    "kg": "kilogram",
    "m": "metre",
    "s": "second",
    "A": "ampere",
    "K": "kelvin",
    "mol": "mole",
    "cd": "candela",
    "Np": "neper",
}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LATEX = {"µ": r"\mu ", "Ω": r"\Omega ", "°": r"{}^{\circ}", "%": r"\%", "_": r"\_"} | {
    "Å": r"\AA ",
    "Δ": r"\Delta ",
    "π": r"\pi ",
    "ħ": r"\hbar ",
    "α": r"\alpha ",
    "γ": r"\gamma ",
    "ε": r"\epsilon ",
    "σ": r"\sigma ",
    "λ": r"\lambda ",
    "ζ": r"\zeta ",
    "ρ": r"\rho ",
    "Φ": r"\Phi ",
    "∞": r"\infty ",
}


def short(symbols: Symbols) -> str:
    """Return `kg m / s2`; the number one is `1`."""
    return layout(tuple(symbols))


def _joined(symbols: Symbols, power: Callable[[str, Fraction], str], times: str, by: str) -> str:
    pairs = tuple(symbols)
    above = times.join(power(s, p) for s, p in pairs if p > 0) or "1"
    return by.join([above, *(power(s, -p) for s, p in pairs if p < 0)])


def _unicode_power(symbol: str, power: Fraction) -> str:
    if power == 1:
        return symbol
    if power.denominator != 1:
        return f"{symbol}^({power})"
    return symbol + str(power).translate(_RAISED)


def _latex_power(symbol: str, power: Fraction) -> str:
    text = r"\mathrm{" + "".join(_LATEX.get(c, c) for c in symbol) + "}"
    return text if power == 1 else f"{text}^{{{power}}}"


def _long_power(symbol: str, power: Fraction) -> str:
    return _unicode_power(LONG.get(symbol, symbol), power)


def long_name(symbols: Symbols) -> str:
    """Return `kilogram metre / second²`."""
    return _joined(symbols, _long_power, " ", " / ")


def format_unit(symbols: Symbols, spec: str) -> str:
    """Format a unit: none or `~`, `P` (Unicode), `L` (LaTeX, without dollars)."""
    style = spec.replace("~", "")
    if style == "":
        return short(symbols)
    if style == "P":
        return _joined(symbols, _unicode_power, "·", "/")
    if style == "L":
        return _joined(symbols, _latex_power, r"\,", "/")
    raise UnitError(f"no format {spec!r} for units: there are '' (kg m / s2), 'P' and 'L'.")
