"""Points of scales: what a unit counts from, where its zero is no zero.

Degrees Celsius count from 273.15 K, dBm is the level of a power over one milliwatt. Such a unit has
a zero or a reference besides its factor, and that is all that stands here.

    Affine(Fraction(5463, 20))  # of degC
    Logarithmic(level=Factor(Fraction(1, 20), 1, (("ln10", Fraction(1)),)))  # of dBm

Sharp edge. A level is one of powers; 6 dB over a volt are a factor of 2, over a watt of 4.
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

    Levels are of powers; those of an amplitude (dBV) have the root of the ratio.
    """

    level: Factor
    amplitude: bool = False

    @property
    def of_ratio(self) -> Factor:
        """The step in the level of what is in the reference's unit."""
        return self.level * Factor(Fraction(1, 2)) if self.amplitude else self.level


# The levels that have a symbol of their own: steps in nepers of power ratios, 1 Np = e ** 2.
LEVELS = {
    Factor(Fraction(1, 20), 1, (("ln10", Fraction(1)),)): "dB",
    ONE: "Np",
}
