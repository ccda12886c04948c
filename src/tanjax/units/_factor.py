"""Exact conversion factors.

Units multiply, divide and raise factors to powers before a program needs a number. A float would
lose a digit each time: `km ** 0.5` squared would not be `km`, nor 180 degrees `π`. Every factor of
a unit is a rational number to a rational power times powers of a few constants (`π`, `ln 2`,
`ln 10`). A `Factor` stores it in a unique form:

    sign · radicand ** (1 / root) · π ** a · ln10 ** b · ln2 ** c

where `radicand` is a positive fraction and `root` is as small as possible. Equality of factors is
equality of fields.

Sharp edge: no sums. Offsets of temperature scales are rational and are added as fractions.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property

# 60 digits: the error of a product of roots stays far below the 17 digits of a float.
_DIGITS = Context(prec=60, Emax=10**9, Emin=-(10**9))
_CONSTANTS = {
    "π": Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640629"),
    "ln10": Context(prec=70).ln(Decimal(10)),
    "ln2": Context(prec=70).ln(Decimal(2)),
}


def integer_root(n: int, k: int) -> int | None:
    """Return the integer `r` with `r**k == n`, or None, by Newton's iteration from above."""
    if n < 2 or k == 1:
        return n
    r = 1 << -(-n.bit_length() // k)
    while True:
        better = ((k - 1) * r + n // r ** (k - 1)) // k
        if better >= r:
            return r if r**k == n else None
        r = better


def _reduce(radicand: Fraction, root: int) -> tuple[Fraction, int]:
    """Return the same number with the smallest root: 4 ** (1/2) is 2 ** (1/1)."""
    p = 2
    while p <= root:
        if root % p == 0:
            top = integer_root(radicand.numerator, p)
            bottom = integer_root(radicand.denominator, p) if top is not None else None
            if top is not None and bottom is not None:
                radicand, root = Fraction(top, bottom), root // p
                continue
        p += 1
    return radicand, root


class Factor:
    """The exact ratio of a unit to the coherent unit of its dimension; immutable."""

    def __init__(
        self,
        radicand: Fraction | int = 1,
        root: int = 1,
        constants: tuple[tuple[str, Fraction], ...] = (),
    ) -> None:
        """`sign(radicand) |radicand| ** (1 / root)` times powers of named constants."""
        number = Fraction(radicand)
        if not number:
            raise ValueError("a unit cannot be zero times another.")
        self.sign = 1 if number > 0 else -1
        self.radicand, self.root = _reduce(abs(number), root) if root > 1 else (abs(number), 1)
        self.constants = tuple(sorted((name, power) for name, power in constants if power))
        self._key = (self.sign, self.radicand, self.root, self.constants)
        self._hash = hash(self._key)

    @property
    def is_rational(self) -> bool:
        """True if the number is a fraction."""
        return self.root == 1 and not self.constants

    @property
    def fraction(self) -> Fraction:
        """The number as a fraction; only if `is_rational`."""
        if not self.is_rational:
            raise ValueError(f"{self} is not rational.")
        return self.sign * self.radicand

    def __mul__(self, other: Factor) -> Factor:
        root = math.lcm(self.root, other.root)
        number = self.radicand ** (root // self.root) * other.radicand ** (root // other.root)
        powers = dict(self.constants)
        for name, power in other.constants:
            powers[name] = powers.get(name, Fraction(0)) + power
        return Factor(self.sign * other.sign * number, root, tuple(powers.items()))

    def __truediv__(self, other: Factor) -> Factor:
        return self * other ** Fraction(-1)

    def __pow__(self, power: Fraction | int) -> Factor:
        power = Fraction(power)
        if self.sign < 0 and power.denominator % 2 == 0:
            raise ValueError(f"{self} has no real power {power}.")
        sign = self.sign if power.numerator % 2 else 1
        return Factor(
            sign * self.radicand**power.numerator,
            self.root * power.denominator,
            tuple((name, exponent * power) for name, exponent in self.constants),
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Factor) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _float(self) -> float:
        try:
            if self.is_rational:
                return float(self.fraction)
        except OverflowError:
            return self.sign * math.inf
        c = _DIGITS
        number = c.divide(Decimal(self.radicand.numerator), Decimal(self.radicand.denominator))
        if self.root > 1:
            number = c.power(number, c.divide(Decimal(1), Decimal(self.root)))
        for name, power in self.constants:
            exponent = c.divide(Decimal(power.numerator), Decimal(power.denominator))
            number = c.multiply(number, c.power(_CONSTANTS[name], exponent))
        return self.sign * float(number)

    def __float__(self) -> float:
        """The nearest float."""
        return self._float

    def __repr__(self) -> str:
        number = f"({self.radicand})^(1/{self.root})" if self.root > 1 else str(self.radicand)
        powers = [n if p == 1 else f"{n}^({p})" for n, p in self.constants]
        return " ".join([("-" if self.sign < 0 else "") + number, *powers])

    def __reduce__(self) -> tuple[object, ...]:
        return Factor, (self.sign * self.radicand, self.root, self.constants)


ONE = Factor()
