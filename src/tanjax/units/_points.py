"""Points of scales: the zero or the reference of units that are not multiples.

Degrees Celsius count from 273.15 K, dBm is the level of a power over one milliwatt. Such a unit has
a zero or a reference besides its factor. This module stores both.

    Affine(Fraction(5463, 20))  # of degC
    Logarithmic(level=Factor(Fraction(1, 20), 1, (("ln10", Fraction(1)),)))  # of dBm

Sharp edge. Levels are levels of powers: 6 dB over a volt are a factor of 2, over a watt of 4.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ._dimension import Dimension
from ._factor import ONE, Factor

LEVEL = Dimension([("level", 1)])


class Affine(NamedTuple):
    """A scale whose zero is `offset` coherent units above the true one (degrees Celsius)."""

    offset: Fraction


class Logarithmic(NamedTuple):
    """A scale of levels over a reference, in steps of `level` nepers (dBm over 1 mW).

    Levels are levels of powers. An amplitude (dBV) has the square root of the ratio of powers.
    """

    level: Factor
    amplitude: bool = False

    @property
    def of_ratio(self) -> Factor:
        """The step of the level for ratios of numbers in the reference's unit."""
        return self.level * Factor(Fraction(1, 2)) if self.amplitude else self.level


# Levels with a symbol of their own: steps in nepers of power ratios, 1 Np = e ** 2.
LEVELS = {
    Factor(Fraction(1, 20), 1, (("ln10", Fraction(1)),)): "dB",
    ONE: "Np",
}
