"""What lifted code needs of its arguments beside their dimensions: other units, other exponents.

A program on numbers in metres and kilometres is right only if all are brought to one unit, and the
square root of numbers under `2^3 m` has no label of its own. Both are found while units are walked
through its jaxpr, and both are mended at its entry, so what finds them raises one of these.

    require_root(metre.scaled(3), 2)  # NeedsRoot: bring the arguments to an even exponent
"""

from __future__ import annotations

from tanjax.units import Unit


class NeedsCoherent(Exception):
    """Two operands differ by a prefix: the program is right only in coherent units."""


class NeedsRoot(Exception):
    """The power of two in a label has no such root: arguments must have other exponents."""

    def __init__(self, root: int) -> None:
        super().__init__(root)
        self.root = root


def require_equal(unit: Unit, target: Unit) -> None:
    """Raise `NeedsCoherent` where two units differ by a factor."""
    if unit != target:
        raise NeedsCoherent


def require_root(unit: Unit, root: int) -> None:
    """Raise `NeedsRoot` where the exponent of a label is not divisible by a root."""
    if unit.scale % root:
        raise NeedsRoot(root)
