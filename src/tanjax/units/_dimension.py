"""Dimensions: exponents of base dimensions, interned.

Each combination of exponents has one `Dimension` object, so `a is b` tests for equal dimensions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from fractions import Fraction

# In print order; `level` is the dimension of decibels, octaves and magnitudes.
BASE = (
    "mass",
    "length",
    "time",
    "current",
    "temperature",
    "amount",
    "luminosity",
    "printing",
    "level",
)
_table: dict[tuple[tuple[str, Fraction], ...], Dimension] = {}
_lock = threading.Lock()


class Dimension:
    """A product of powers of base dimensions; immutable and interned.

    **Field:** `exponents`, pairs of a base dimension and a `Fraction`, in a fixed order.
    """

    __slots__ = ("__weakref__", "exponents")
    exponents: tuple[tuple[str, Fraction], ...]

    def __new__(cls, exponents: Iterable[tuple[str, Fraction | int]] = ()) -> Dimension:
        """Return the dimension with these exponents; those of a repeated base dimension add up."""
        total: dict[str, Fraction] = {}
        for name, power in exponents:
            if name not in BASE:
                raise ValueError(f"no base dimension {name!r}; there are {', '.join(BASE)}.")
            total[name] = total.get(name, Fraction(0)) + power
        key = tuple((name, total[name]) for name in BASE if total.get(name))
        with _lock:
            found = _table.get(key)
            if found is None:
                found = _table[key] = object.__new__(cls)
                object.__setattr__(found, "exponents", key)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Dimension is immutable.")

    def __mul__(self, other: Dimension) -> Dimension:
        return Dimension((*self.exponents, *other.exponents))

    def __truediv__(self, other: Dimension) -> Dimension:
        return self * other**-1

    def __pow__(self, power: Fraction | int) -> Dimension:
        return Dimension((name, exponent * power) for name, exponent in self.exponents)

    def __str__(self) -> str:
        return layout(self.exponents) if self.exponents else "dimensionless"

    def __repr__(self) -> str:
        return f'Dimension("{self}")'

    def __reduce__(self) -> tuple[object, ...]:
        return Dimension, (self.exponents,)

    def __copy__(self) -> Dimension:
        return self

    def __deepcopy__(self, memo: object) -> Dimension:
        return self


def power_text(symbol: str, power: Fraction) -> str:
    """Return `s2`, `m^(1/2)`; with a caret if digits would read as part of the symbol."""
    if power == 1:
        return symbol
    if power.denominator != 1:
        return f"{symbol}^({power})"
    plain = power < 10 and not symbol[-1].isdigit() and symbol[-1].isalpha()
    return f"{symbol}{power}" if plain else f"{symbol}^{power}"


def layout(symbols: Iterable[tuple[str, Fraction]]) -> str:
    """Return `kg m / s2`: the factors, then each divisor after its own slash."""
    above = [power_text(s, p) for s, p in symbols if p > 0]
    below = [power_text(s, -p) for s, p in symbols if p < 0]
    return " / ".join([" ".join(above) or "1", *below])


DIMENSIONLESS = Dimension()
