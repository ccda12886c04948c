"""Units of measurement as objects that are cheap to compare and to multiply.

Every operation on quantities reads units, so each unit computes its properties once. Units are
*interned* and *immortal*: the same value under the same name is one object for the life of the
process. A product is therefore one dictionary look-up by `id` (0.1 us), and equality is mostly
identity.

    >>> from tanjax.units import unit
    >>> unit("N") * unit("m"), unit("N") == unit("kg m / s2"), unit("m") / unit("km")
    (Unit("N m"), True, Unit("m / km"))

Equality and hash are those of the value (dimension, exact factor, zero point); the name is only for
print. Degrees Celsius and dBm are *points* of a scale, not multiples of a unit. Their `is_linear`
is False, their `delta` is the linear unit of differences, and they have no products.

Sharp edges. Angles are ratios (radian is 1). Decibels have a dimension of their own, `level`. Only
`convert` changes them to plain ratios.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn, SupportsFloat, TypeAlias

import numpy as np

from tanjax._errors import UnitError, message
from tanjax._typing import AnyArray

from . import _format
from ._dimension import DIMENSIONLESS, Dimension
from ._factor import ONE, Factor
from ._points import LEVEL, LEVELS, Affine, Logarithmic

Symbols = tuple[tuple[str, Fraction], ...]
_table: dict[object, Unit] = {}
_values: dict[object, int] = {}
_lock = threading.RLock()


Numbers: TypeAlias = AnyArray  # a number of Python, or an array of any class


def make_quantity(x: Numbers, unit: Unit) -> Numbers:
    """Return `x * unit`; `tanjax.quantities` replaces this function."""
    raise UnitError(f"no quantities yet: import tanjax to multiply {type(x).__name__} by {unit}.")


def set_quantity_hook(function: Callable[[Numbers, Unit], Numbers]) -> None:
    """Set the function that returns `x * unit` for any `x` that is not a unit."""
    global make_quantity
    make_quantity = function  # type: ignore[assignment]


class Unit:
    """A unit of measurement; immutable and interned. `tj.unit` and algebra make units.

    **Fields:** `dimension`; `factor`: the exact ratio to the coherent SI unit; `symbols`: pairs of
    a symbol and its power; `is_dimensionless`; `is_one`: True for the number one; `is_linear`:
    False for points of a scale (`degC`, `dBm`); `delta`: the unit of differences, the unit itself
    if it is linear; `inverse`: `1 / delta`; `point`: the scale's zero or reference, None if linear;
    `scale` and `plain`: this unit is `2^scale · plain`. `scale` is 0 for the units that people
    write.
    """

    __slots__ = (
        "_conversions",
        "_powers",
        "_products",
        "_quotients",
        "_value",
        "delta",
        "dimension",
        "factor",
        "inverse",
        "is_dimensionless",
        "is_linear",
        "is_one",
        "plain",
        "point",
        "scale",
        "symbols",
    )
    dimension: Dimension
    factor: Factor
    symbols: Symbols
    is_dimensionless: bool
    is_one: bool
    is_linear: bool
    delta: Unit
    inverse: Unit
    point: Affine | Logarithmic | None
    plain: Unit
    scale: int
    _conversions: dict[int, tuple[float, float]]
    _powers: dict[SupportsFloat, Unit]
    _products: dict[int, Unit]
    _quotients: dict[int, Unit]
    _value: int

    def __init__(self) -> None:
        raise TypeError("units are made by tj.unit(text), and from others by * / **.")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Unit is immutable.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Unit is immutable.")

    @property
    def name(self) -> str:
        """The name in full: `kilogram metre / second²`."""
        return _format.long_name(self.plain.symbols)

    def __mul__(self, other: Numbers) -> Numbers:
        try:
            return self._products[id(other)]  # units are immortal: their ids are never reused
        except KeyError:
            pass
        return self._multiply(other)

    def _multiply(self, other: Numbers) -> Numbers:
        if type(other) is not Unit:
            _refuse_text(other, self)
            return make_quantity(other, self)
        if self.is_linear and other.is_linear:
            # Merge equal symbols at the place of the first, and drop those that cancel.
            total: dict[str, Fraction] = {}
            for symbol, power in self.symbols + other.symbols:
                total[symbol] = total.get(symbol, Fraction(0)) + power
            symbols = tuple((s, p) for s, p in total.items() if p)
            new = make(self.dimension * other.dimension, self.factor * other.factor, symbols)
        elif self.symbols and other.symbols:
            raise _no_product(f"({self}) * ({other})", other if self.is_linear else self)
        else:
            new = self if self.symbols else other
        self._products[id(other)] = new
        return new

    def __rmul__(self, other: Numbers) -> Numbers:
        _refuse_text(other, self)
        return make_quantity(other, self)

    def __truediv__(self, other: Numbers) -> Numbers:
        try:
            return self._quotients[id(other)]
        except KeyError:
            pass
        return self._divide(other)

    def _divide(self, other: Numbers) -> Numbers:
        if type(other) is not Unit:
            _refuse_text(other, self)
            return make_quantity(1 / other, self)
        if not (self.is_linear and other.is_linear) and other.symbols:
            raise _no_product(f"({self}) / ({other})", other if self.is_linear else self)
        new = self._quotients[id(other)] = self._multiply(other.inverse)
        return new

    def __rtruediv__(self, other: Numbers) -> Numbers:
        _refuse_text(other, self)
        if not self.is_linear:
            raise _no_product(f"1 / {self}", self)
        return make_quantity(other, self.inverse)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Numbers, **kwargs: object
    ) -> Numbers:
        """Return a quantity for `array * unit` and `array *= unit` of NumPy."""
        first, other = inputs if len(inputs) == 2 else (None, None)
        of_unit = first is self
        match ufunc.__name__ if method == "__call__" else "":
            case "multiply":
                return self * other if of_unit else self.__rmul__(first)
            case "divide":
                return self / other if of_unit else self.__rtruediv__(first)
            case "equal" | "not_equal":
                return (first is other) is (ufunc.__name__ == "equal")  # units are interned
        return NotImplemented

    def __pow__(self, power: SupportsFloat) -> Unit:
        try:
            return self._powers[power]
        except (KeyError, TypeError):
            pass
        return self._raise(power)

    def _raise(self, power: SupportsFloat) -> Unit:
        exact = exact_power(power, f"the unit {self}")
        if not self.is_linear and exact not in (0, 1):
            raise _no_product(f"{self} ** {exact}", self)
        if exact == 1:
            new = self
        else:
            try:
                factor = self.factor**exact
            except ValueError as error:
                raise UnitError(f"{self} ** {exact}: {error}") from None
            if (self.scale * exact).denominator != 1:
                raise UnitError(f"{self!r} ** {exact} has no whole power of two.")
            symbols = tuple((s, p * exact) for s, p in self.symbols if exact)
            new = make(self.dimension**exact, factor, symbols)
        self._powers[power] = new
        return new

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Unit and self._value == other._value)

    def __hash__(self) -> int:
        return self._value

    def __str__(self) -> str:
        return _format.short(self.plain.symbols)

    def __repr__(self) -> str:
        return f'Unit("{f"2^{self.scale} " if self.scale else ""}{self}")'

    def _repr_latex_(self) -> str:
        return f"${self:L}$"

    def __format__(self, spec: str) -> str:
        return _format.format_unit(self.plain.symbols, spec)

    def scaled(self, exponent: int) -> Unit:
        """Return `2^exponent` of this unit: the label of numbers stored smaller by that factor."""
        return self * _power_of_two(exponent) if exponent else self

    def divisible(self, root: int) -> Unit:
        """Return this label at the nearest exponent that `root` divides; the lower one of two."""
        rest = self.scale % root
        return self.scaled(root - rest if 2 * rest > root else -rest) if rest else self

    def __reduce__(self) -> tuple[object, ...]:
        point: object = self.point and (type(self.point), tuple(self.point))
        names = {s: _format.LONG[s] for s, _ in self.plain.symbols if s in _format.LONG}
        return _restore, (self.dimension, self.factor, self.symbols, point, names)

    def __copy__(self) -> Unit:
        return self

    def __deepcopy__(self, memo: object) -> Unit:
        return self


_set = object.__setattr__


def make(
    dimension: Dimension,
    factor: Factor,
    symbols: Symbols,
    point: Affine | Logarithmic | None = None,
) -> Unit:
    """Return the unit with this value under this name; make it only if it does not exist."""
    # Sorted in print order, so that one text is one object.
    symbols = tuple(sorted(symbols, key=lambda pair: (pair[0] != TWO, pair[1] < 0)))
    key = (dimension, factor, symbols, point)
    with _lock:
        found = _table.get(key)
        if found is None:
            found = _table[key] = _new(dimension, factor, symbols, point)
            # Set after the unit is in the table, where the inverse of the inverse finds it.
            _set(found, "inverse", _inverse(found.delta))
    return found


def _inverse(unit: Unit) -> Unit:
    symbols = tuple((symbol, -power) for symbol, power in unit.symbols)
    return make(unit.dimension**-1, unit.factor**-1, symbols)


# The symbol of the power of two in the label of a scaled quantity. It has an exponent like any
# other symbol, so products and powers of units treat it alike. It is not printed.
TWO = "2^"


@functools.cache
def _power_of_two(exponent: int) -> Unit:
    """The unit 2^exponent: a number with a name of its own."""
    return make(DIMENSIONLESS, Factor(Fraction(2) ** exponent), ((TWO, Fraction(exponent)),))


def _split(unit: Unit) -> tuple[int, Unit]:
    """Return the exponent of the power of two in a unit, and the unit without it."""
    scale = int(dict(unit.symbols).get(TWO, 0))
    if not scale:
        return 0, unit
    rest = tuple((symbol, power) for symbol, power in unit.symbols if symbol != TWO)
    return scale, make(unit.dimension, unit.factor * Factor(Fraction(2) ** -scale), rest)


def _new(
    dimension: Dimension, factor: Factor, symbols: Symbols, point: Affine | Logarithmic | None
) -> Unit:
    """Make a unit with all of its properties. The caller holds the lock."""
    unit = object.__new__(Unit)
    linear = point is None
    for name, value in {
        "dimension": dimension,
        "factor": factor,
        "symbols": symbols,
        "point": point,
        "is_linear": linear,
        "is_dimensionless": dimension is DIMENSIONLESS,
        "is_one": dimension is DIMENSIONLESS and factor == ONE and linear,
        "_value": _values.setdefault((dimension, factor, point), len(_values)),
        "_products": {},
        "_quotients": {},
        "_powers": {},
        "_conversions": {},
        "delta": unit if point is None else _delta(dimension, factor, symbols[0][0], point),
    }.items():
        _set(unit, name, value)
    for name, value in zip(("scale", "plain"), _split(unit), strict=True):
        _set(unit, name, value)
    return unit


def _delta(dimension: Dimension, factor: Factor, symbol: str, point: Affine | Logarithmic) -> Unit:
    """The linear unit of the differences of two points of a scale."""
    if isinstance(point, Affine):
        return make(dimension, factor, (("Δ" + symbol, Fraction(1)),))
    name = LEVELS.get(point.level, "Δ" + symbol)
    return make(LEVEL, point.level, ((name, Fraction(1)),))


def _restore(
    dimension: Dimension,
    factor: Factor,
    symbols: Symbols,
    point: tuple[type, tuple[object, ...]] | None,
    names: dict[str, str],
) -> Unit:
    """Return the interned unit of a pickle, which brings the names in full of its symbols."""
    for symbol, name in names.items():
        _format.LONG.setdefault(symbol, name)
    return make(dimension, factor, symbols, point and point[0](*point[1]))


def coherent(unit: Unit) -> Unit:
    """Return the unit of the same dimension in SI base units, with factor 1: `m / s` for `km/h`."""
    symbols = tuple((_format.BASE_SYMBOLS[name], p) for name, p in unit.dimension.exponents)
    return make(unit.dimension, ONE, symbols)


def exact_power(power: Any, base: str = "a unit") -> Fraction:
    """Return a power as an exact fraction. **Raises:** `UnitError` if it is not a simple one."""
    if isinstance(power, int | Fraction):
        return Fraction(power)
    try:
        near = Fraction(float(power)).limit_denominator(64)
        # Compare in the precision of the power: a float32 third is not a float64 third.
        if not isinstance(power, str) and type(power)(float(near)) == power:
            return near
    except (TypeError, ValueError, OverflowError):
        pass
    raise UnitError(
        message(
            f"{base} cannot be raised to the power {power!r}.",
            hint="the power of a unit is an integer or a simple fraction known before tracing, "
            "such as 2, 0.5 or Fraction(1, 3).",
        )
    )


def _refuse_text(x: Numbers, unit: Unit) -> None:
    if isinstance(x, str | bytes):
        raise UnitError(
            message(
                f"cannot multiply the text {x!r} and the unit {unit}.",
                hint=f"a text becomes a unit by tj.unit({x!r}), a quantity by tj.quantity({x!r}).",
            )
        )


def _no_product(what: str, unit: Unit) -> UnitError:
    """The error for a product with points of a scale."""
    reason = f"{unit} counts from a zero that is a convention, so its multiples mean nothing"
    hint = f"use {unit.delta} for differences, or `.to(...)` a unit that starts at zero"
    if isinstance(unit.point, Affine):
        hint = "use delta_degC (or another delta_...) for differences, kelvin for temperatures"
    return UnitError(message(f"{what} is not a unit.", reason + ".", hint=hint + "."))


one = make(DIMENSIONLESS, ONE, ())
