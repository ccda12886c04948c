"""Systems of units: one unit for each dimension.

A system is a list of base units. The unit of any other dimension is a product of their powers,
found by exact linear algebra. A system can set constants to one (natural units). These constants
join the base: a length is a power of eV times `hbar c`, and a conversion drops the constants.

    >>> from tanjax.units import systems, unit
    >>> systems.cgs.unit_of(unit("N")), systems.natural.convert(1.0, unit("kg"))
    (Unit("dyn"), (5.609588603804452e+35, Unit("eV")))
    >>> UnitSystem("galactic", ["km", "solMass", "Myr"]).unit_of(unit("m/s"))
    Unit("km / Myr")

Sharp edge: a number in natural units has lost its dimension. Pass it to `restore` as `to_unit`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

from tanjax._errors import UnitError, message

from ._conversion import conversion, describe
from ._dimension import Dimension
from ._parse import unit
from ._unit import Unit, one


class UnitSystem:
    """A system of units, read when it is first used.

    **Arguments:** `name`; `units`: independent base units; `constants`: units that the system
    sets to one (`"hbar"`); `derived`: units to print instead of the equal product of base units.

    **Raises:** `UnitError` at first use if base units and constants are not independent.
    """

    def __init__(
        self,
        name: str,
        units: Sequence[str | Unit],
        constants: Sequence[str | Unit] = (),
        derived: Sequence[str | Unit] = (),
    ) -> None:
        """Make a system with this name."""
        self.name = name
        self._texts = tuple(units), tuple(constants), tuple(derived)

    @functools.cached_property
    def units(self) -> tuple[Unit, ...]:
        """The base units."""
        return tuple(unit(u) for u in self._texts[0])

    @functools.cached_property
    def constants(self) -> tuple[Unit, ...]:
        """The constants that the system sets to one."""
        return tuple(unit(u) for u in self._texts[1])

    @functools.cached_property
    def _derived(self) -> dict[Dimension, Unit]:
        found = {unit(u).dimension: unit(u) for u in self._texts[2]}
        for dimension, shown in found.items():
            if shown != self._product(dimension)[0]:
                raise UnitError(f"{shown} is not coherent in the system {self.name}.")
        return found

    def unit_of(self, what: Unit | Dimension | str) -> Unit:
        """Return the unit of a dimension in this system, constants included.

        **Raises:** `UnitError` if the system has no unit of this dimension.
        """
        dimension = what if isinstance(what, Dimension) else unit(what).dimension
        shown = self._derived.get(dimension)
        return self._product(dimension)[0] if shown is None else shown

    def convert(self, value: float, from_unit: Unit | str) -> tuple[float, Unit]:
        """Convert a number to this system, and drop the constants from its unit.

        **Raises:** `UnitError` for points of a scale and dimensions that the system lacks.
        """
        given = unit(from_unit)
        full = self.unit_of(given)
        multiplier, divisor = conversion(given, full)
        kept = self._product(full.dimension)[1] if self.constants else full
        return value * multiplier / divisor, kept

    def restore(self, value: float, from_unit: Unit | str, to_unit: Unit | str) -> float:
        """Convert a number of this system to any unit, and put the constants back.

        **Raises:** `UnitError` if `to_unit` without the constants has not `from_unit`'s dimension.
        """
        given, wanted = unit(from_unit), unit(to_unit)
        full, kept = self._product(wanted.dimension)
        if given.dimension is not kept.dimension:
            raise UnitError(
                message(
                    f"{self.name}: {describe(given)} does not stand for {describe(wanted)}.",
                    f"{wanted} is counted in {kept} there.",
                )
            )
        multiplier, divisor = conversion(given, kept)
        value = value * multiplier / divisor
        multiplier, divisor = conversion(full, wanted)
        return value * multiplier / divisor

    @functools.cache  # noqa: B019 - systems are few and live as long as modules
    def _product(self, dimension: Dimension) -> tuple[Unit, Unit]:
        """Return the unit of a dimension with the constants, and without them."""
        parts = (*self.units, *self.constants)
        powers = _solve([u.dimension for u in parts], dimension)
        if powers is None:
            raise UnitError(
                message(
                    f"the system {self.name} has no unit of {dimension}.",
                    f"its base: {', '.join(str(u) for u in parts)}",
                )
            )
        full = kept = one
        for part, power in zip(parts, powers, strict=True):
            full = full * part**power
            if part in self.units:
                kept = kept * part**power
        return full, kept

    def __repr__(self) -> str:
        return f"UnitSystem({self.name!r}, {[str(u) for u in self.units]})"


def _solve(base: Sequence[Dimension], wanted: Dimension) -> list[Fraction] | None:
    """Return the powers of base dimensions whose product is `wanted`; None if none exist.

    The method is elimination on exact fractions.

    **Raises:** `UnitError` if the base is not independent.
    """
    names = sorted({n for d in (*base, wanted) for n, _ in d.exponents})
    columns = [dict(d.exponents) for d in (*base, wanted)]
    rows = [[column.get(name, Fraction(0)) for column in columns] for name in names]
    for k in range(len(base)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            raise UnitError(f"base units are not independent: {', '.join(map(str, base))}.")
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(len(rows)):
            if i != k and rows[i][k]:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    if any(row[-1] for row in rows[len(base) :]):
        return None
    return [rows[k][-1] for k in range(len(base))]


SI = UnitSystem(
    "SI",
    ["m", "kg", "s", "A", "K", "mol", "cd"],
    derived=["N", "J", "W", "Pa", "C", "V", "F", "ohm", "S", "Wb", "T", "H"],
)
cgs = UnitSystem(
    "cgs",
    ["cm", "g", "s", "abA", "K", "mol", "cd"],
    derived=["dyn", "erg", "Ba", "P", "abV", "abC"],
)
# Heaviside-Lorentz: charge is a number.
natural = UnitSystem("natural", ["eV"], constants=["hbar", "c", "k_B", "epsilon_0"])
planck = UnitSystem(
    "Planck",
    ["planck_length", "planck_mass", "planck_time", "planck_current", "planck_temperature"],
)
astronomical = UnitSystem("astronomical", ["au", "solMass", "d", "A", "K", "mol", "cd"])
atomic = UnitSystem(
    "atomic",
    ["bohr", "m_e", "a_u_time", "a_u_current", "a_u_temp"],
    derived=["hartree"],
)
