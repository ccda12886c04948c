"""From a name to a unit: the small table first, the catalogue when a name is not in it.

The first name that needs pint's catalogue loads it (0.2 s), as exact rationals. Each unit is built
once, from its definition, under its printed symbol. That is the symbol of the catalogue, or the
name in full if prefix and symbol together read as another unit ("min" is no milli-inch).

Sharp edge: this module uses the private `_units` and `_prefixes` of pint's registry. pint has no
public way to a definition as it was written.
"""

from __future__ import annotations

import functools
import re
import threading
from fractions import Fraction
from typing import Any

from tanjax._errors import UnitError, message

from . import _format, _table
from ._dimension import BASE, DIMENSIONLESS, Dimension
from ._factor import ONE, Factor
from ._grammar import evaluate
from ._points import LEVEL, Affine, Logarithmic
from ._unit import Symbols, Unit, make, one

PI = Factor(1, 1, (("π", Fraction(1)),))
LOGARITHMS = {
    10: Factor(1, 1, (("ln10", Fraction(1)),)),
    2: Factor(1, 1, (("ln2", Fraction(1)),)),
}
_lock = threading.RLock()
_known: dict[str, Unit | None] = {}


def named(name: str) -> Unit | None:
    """Return the unit of one name, with optional prefix and digits as its power; else None."""
    try:
        return _known[name]
    except KeyError:
        pass  # look up outside of the handler, so that an error shows no KeyError
    with _lock:
        found = _known[name] = _look_up(name)
    return found


def remember(name: str, unit: Unit) -> Unit:
    """Give a unit to a name without one, and return the unit."""
    with _lock:
        _format.LONG.setdefault(name, name)
        _known[name] = unit
    return unit


def _look_up(name: str) -> Unit | None:
    if name in _table.ALIASES:
        return evaluate(_table.ALIASES[name], named)[1]
    for step in (_from_table, _difference, _with_prefix, _power_in_table, from_catalogue, _power):
        found = step(name)
        if found is not None:
            return found
    return None


def _entry(symbol: str, long: str) -> Symbols:
    """Return a symbol for printing, and remember its name in full."""
    _format.LONG.setdefault(symbol, long)
    return ((symbol, Fraction(1)),)


def _from_table(name: str) -> Unit | None:
    definition = _table.DEFINITIONS.get(name)
    if definition is None:
        return None
    return _defined(definition)


@functools.cache
def _defined(definition: _table.Definition) -> Unit:
    symbols, text = _entry(definition.symbol, definition.names[0]), definition.text
    head, _, rest = text.partition(" ")
    if head in ("level", "over", "amplitude"):
        reference, _, step = rest.rpartition(" ")
        level = LOGARITHMS[10] * Factor(Fraction(step))
        if head == "level":
            return make(LEVEL, level, symbols)
        _, unit = evaluate(reference, named)
        point = Logarithmic(level, head == "amplitude")
        return make(unit.dimension, unit.factor, symbols, point)
    if text == "π":
        return make(DIMENSIONLESS, PI, symbols)
    number, unit = evaluate(text, _base_or_named)
    return make(unit.dimension, number * unit.factor, symbols)


def _base_or_named(name: str) -> Unit | None:
    """Return the unit of a name or of a base dimension, `[length]`: definitions name both."""
    if name[1:-1] in BASE and name[0] == "[":
        dimension = name[1:-1]
        return make(
            Dimension([(dimension, 1)]), ONE, ((_format.BASE_SYMBOLS[dimension], Fraction(1)),)
        )
    return named(name)


def _difference(name: str) -> Unit | None:
    """Return the linear unit of the differences of a scale: `delta_degC` or `Δ°C`; else None."""
    for mark in ("delta_", "Δ"):
        if name.startswith(mark):
            rest = name.removeprefix(mark)
            point = _from_table(rest) or from_catalogue(rest)  # digits: a power of the difference
            if point is not None and not point.is_linear:
                unit, symbol = point.delta, point.delta.symbols[0][0]
                long = "delta_" + _format.LONG[point.symbols[0][0]]
                _format.LONG.setdefault(symbol, long)
                return unit
    return None


def _with_prefix(name: str) -> Unit | None:
    if name in _table.TAKEN:
        return None
    for prefixes in (_table.PREFIXES, _table.BY_NAME):
        for prefix, (other, power) in prefixes.items():
            definition = _table.DEFINITIONS.get(name.removeprefix(prefix))
            if not name.startswith(prefix) or definition is None or not definition.prefixed:
                continue
            symbolic = prefixes is _table.PREFIXES
            if (name.removeprefix(prefix) in _symbols(definition)) != (symbolic or prefix == "u"):
                continue
            symbol, long = (prefix, other) if symbolic else (other, _table.PREFIXES[other][0])
            return _prefixed(_defined(definition), symbol, long, Factor(Fraction(10) ** power))
    return None


def _symbols(definition: _table.Definition) -> tuple[str, ...]:
    """The names that take a prefix's symbol: the unit's symbol, and its names of one letter."""
    return (definition.symbol, *(name for name in definition.names if len(name) <= 1))


def _prefixed(unit: Unit, prefix: str, long_prefix: str, factor: Factor) -> Unit:
    """Return a multiple of a unit, under prefix and symbol if these read back as the multiple."""
    symbol = unit.symbols[0][0]
    long = long_prefix + _format.LONG.get(symbol, symbol)
    shown = long if prefix + symbol in _table.TAKEN else prefix + symbol
    value = factor * unit.factor
    return make(unit.dimension, value, _entry(shown, long))


def _split_digits(name: str) -> tuple[str, int] | None:
    match = re.fullmatch(r"(.*\D)([1-9]\d?)", name)
    return (match[1], int(match[2])) if match else None


def _power_in_table(name: str) -> Unit | None:
    parts = _split_digits(name)
    if parts is None:
        return None
    unit = _from_table(parts[0]) or _with_prefix(parts[0])
    return None if unit is None else unit ** parts[1]


def _power(name: str) -> Unit | None:
    parts = _split_digits(name)
    unit = named(parts[0]) if parts else None
    return unit ** parts[1] if unit is not None and parts else None


@functools.cache
def registry() -> Any:
    """The catalogue of pint, with exact rationals for numbers."""
    import pint

    return pint.UnitRegistry(non_int_type=Fraction)


def from_catalogue(name: str) -> Unit | None:
    """Return the unit of a name in pint's catalogue, with its prefixes, aliases and plurals."""
    candidates = registry().parse_unit_name(name)
    if not candidates:  # pint's files have the Greek letter or the micro sign
        candidates = registry().parse_unit_name(name.replace("µ", "μ"))
    if not candidates:
        return None
    prefix, canonical, _ = candidates[0]
    if prefix and canonical in name and _has_prefix(canonical):
        raise UnitError(f"{name}: a unit has one prefix, and {canonical} has it already.")
    unit = catalogued(canonical)
    if not prefix:
        return unit
    if not unit.is_linear:
        raise UnitError(
            f"{name}: a prefix means nothing before {unit}, whose zero is a convention."
        )
    definition = registry()._prefixes[prefix]
    factor = Factor(Fraction(definition.converter.scale))
    shared = _table.DEFINITIONS.get(canonical)
    if shared is not None and shared.prefixed and definition.name in _table.BY_NAME:
        return _prefixed(unit, _table.BY_NAME[definition.name][0], definition.name, factor)
    short = (definition.defined_symbol or definition.name).replace("μ", "µ")
    base = registry()._units[canonical]
    symbol = unit.symbols[0][0]
    long = definition.name + _format.LONG.get(symbol, symbol)
    # A symbol must read back as this unit: `m` and `in` together are minutes.
    for shown in (short + symbol, definition.name + base.name):
        read = registry().parse_unit_name(shown) if shown.isidentifier() else ()
        if read and read[0][:2] == (prefix, canonical) and shown not in _table.DEFINITIONS:
            return make(unit.dimension, factor * unit.factor, _entry(shown, long))
    return make(unit.dimension, factor * unit.factor, _entry(long, long))


def _has_prefix(canonical: str) -> bool:
    """True if pint stores a prefixed unit as a unit of its own, as it does after the first use."""
    return any(p and p + c == canonical for p, c, _ in registry().parse_unit_name(canonical))


@functools.cache
def catalogued(canonical: str) -> Unit:
    """A unit of the catalogue by its canonical name."""
    definition = registry()._units[canonical]
    shared = _table.DEFINITIONS.get(canonical)
    if shared is not None and shared in _table.SHARED:
        return _defined(shared)
    if canonical.startswith("delta_") and canonical.removeprefix("delta_") in registry()._units:
        return catalogued(canonical.removeprefix("delta_")).delta
    long = canonical
    for american, british in _table.SPELLING.items():
        long = re.sub(rf"(?<![a-z]){american}|{american}(?![a-z])", british, long)
    symbols = _entry(_shown(canonical, definition.defined_symbol), long)
    converter = definition.converter
    dimension, factor = _value(definition)
    if hasattr(converter, "logbase"):
        base = 10 if converter.logbase == 10 else 2 if converter.logbase == 2 else 0
        level = LOGARITHMS.get(base, ONE) / Factor(2 * Fraction(converter.logfactor))
        if dimension is DIMENSIONLESS:  # decibel, neper, octave: levels of plain ratios
            return make(LEVEL, level, symbols)
        return make(dimension, factor, symbols, Logarithmic(level))
    offset = Fraction(getattr(converter, "offset", 0))
    return make(dimension, factor, symbols, Affine(offset) if offset else None)


def _shown(canonical: str, symbol: str | None) -> str:
    """The symbol to print: the catalogue's if it reads back as this unit, else the name."""
    if symbol and symbol not in _table.DEFINITIONS:
        symbol = symbol.replace("μ", "µ")
        read = registry().parse_unit_name(symbol)
        if read and read[0][:2] == ("", canonical):
            return symbol
    return canonical


_DIMENSIONS = {
    "[length]": "length",
    "[time]": "time",
    "[current]": "current",
    "[luminosity]": "luminosity",
    "[mass]": "mass",
    "[substance]": "amount",
    "[temperature]": "temperature",
    "[printing_unit]": "printing",
}


def _value(definition: Any) -> tuple[Dimension, Factor]:
    """Return dimension and factor from the parsed definition, or from its text if it has roots."""
    if definition.is_base:
        (name,) = definition.reference
        if name == "[]":
            return DIMENSIONLESS, ONE
        scale = Factor(Fraction(1, 1000)) if name == "[mass]" else ONE
        return Dimension([(_DIMENSIONS[name], 1)]), scale
    scale = definition.converter.scale
    if isinstance(scale, float):  # pint took a root of the number
        text = definition.raw.split("=")[1].split(";")[0]
        number, unit = evaluate(text, named)
        return unit.dimension, number * unit.factor
    total = one
    for name, power in definition.reference.items():
        # The reference may name a unit by alias or with a prefix.
        part = named(name)
        if part is None:
            raise UnitError(f"the catalogue defines a unit by {name!r}, which it does not have.")
        total = total * (part.delta ** Fraction(power))
    return total.dimension, Factor(Fraction(scale)) * total.factor


@functools.cache
def known_names() -> list[str]:
    """Every name of the table and of the catalogue, without prefixes."""
    return sorted({*_table.DEFINITIONS, *registry()._units})


def nearest_names(text: str) -> list[str]:
    """Up to four names of units that look like the text."""
    import difflib

    near = difflib.get_close_matches(text, known_names(), n=4, cutoff=0.7)
    folded = [name for name in known_names() if name.casefold() == text.casefold()]
    return list(dict.fromkeys(folded + near))[:4]


def unknown(name: str, text: str) -> UnitError:
    """The error for a name that is no unit."""
    near = nearest_names(name)
    place = "" if name == text else f" in {text!r}"
    hint = f"did you mean {', '.join(near)}?" if near else "names are those of pint's catalogue."
    return UnitError(message(f"no unit is called {name!r}{place}.", hint=hint))
