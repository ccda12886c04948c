"""Physical constants as quantities: CODATA's values, and the nominal ones of astronomy.

    >>> from tanjax.units import constants
    >>> constants.c, constants.uncertainty("c")
    (Quantity(299792458.0, "m / s"), 0.0)

Every name of CODATA is an attribute in snake case (`constants.neutron_mass`). Common constants also
have a symbol (`c`, `h`, `hbar`, `G`, `e`, `m_e`, `k_B`, `N_A`, `epsilon_0`, …). Values and release
of CODATA are those of `scipy.constants`. The first use imports scipy.

Nominal constants, exact by convention. Sun, Earth and Jupiter: IAU 2015 resolution B3 (Mamajek et
al., arXiv:1510.07674): `nominal_solar_mass_parameter`, `nominal_solar_radius`, and so on; masses
are the mass parameters divided by CODATA's constant of gravitation. `astronomical_unit`: IAU 2012
resolution B2. `parsec`: 648000/π astronomical units, IAU 2015 resolution B2. `julian_year`: 365.25
days of 86400 s.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any

from . import _unit
from ._parse import unit

_SYMBOLS = {
    "speed_of_light": "speed of light in vacuum",
    "c": "speed of light in vacuum",
    "h": "Planck constant",
    "hbar": "reduced Planck constant",
    "gravitational_constant": "Newtonian constant of gravitation",
    "G": "Newtonian constant of gravitation",
    "e": "elementary charge",
    "m_e": "electron mass",
    "m_p": "proton mass",
    "m_n": "neutron mass",
    "k_B": "Boltzmann constant",
    "N_A": "Avogadro constant",
    "epsilon_0": "vacuum electric permittivity",
    "vacuum_permittivity": "vacuum electric permittivity",
    "mu_0": "vacuum mag. permeability",
    "vacuum_permeability": "vacuum mag. permeability",
    "sigma": "Stefan-Boltzmann constant",
    "a_0": "Bohr radius",
    "R": "molar gas constant",
    "R_inf": "Rydberg constant",
    "alpha": "fine-structure constant",
    "standard_gravity": "standard acceleration of gravity",
    "g_0": "standard acceleration of gravity",
    "m_u": "atomic mass constant",
    "mu_B": "Bohr magneton",
    "E_h": "Hartree energy",
}
_NOMINAL = {
    "nominal_solar_mass_parameter": (1.3271244e20, "m3 / s2"),
    "nominal_solar_radius": (6.957e8, "m"),
    "nominal_solar_irradiance": (1361.0, "W / m2"),
    "nominal_solar_luminosity": (3.828e26, "W"),
    "nominal_solar_effective_temperature": (5772.0, "K"),
    "nominal_earth_mass_parameter": (3.986004e14, "m3 / s2"),
    "nominal_earth_equatorial_radius": (6.3781e6, "m"),
    "nominal_earth_polar_radius": (6.3568e6, "m"),
    "nominal_jupiter_mass_parameter": (1.2668653e17, "m3 / s2"),
    "nominal_jupiter_equatorial_radius": (7.1492e7, "m"),
    "nominal_jupiter_polar_radius": (6.6854e7, "m"),
    "astronomical_unit": (149597870700.0, "m"),
    "parsec": (648000 * 149597870700 / math.pi, "m"),
    "julian_year": (31557600.0, "s"),
}
_MASSES = {
    "solar_mass": "nominal_solar_mass_parameter",
    "earth_mass": "nominal_earth_mass_parameter",
    "jupiter_mass": "nominal_jupiter_mass_parameter",
}


@functools.cache
def _codata() -> dict[str, tuple[float, str, float]]:
    """Return value, unit and uncertainty by CODATA's own names."""
    from scipy.constants import physical_constants

    return physical_constants


@functools.cache
def _codata_names() -> dict[str, str]:
    """Map our names, in snake case and by symbol, to CODATA's names."""
    return {_snake(name): name for name in _codata()} | _SYMBOLS


def _snake(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_").lower()


@functools.cache
def _entry(name: str) -> tuple[float, str, float] | None:
    """Return value, unit and standard uncertainty; None for an unknown name."""
    if name in _NOMINAL:
        return (*_NOMINAL[name], 0.0)
    if name in _MASSES:
        parameter = _NOMINAL[_MASSES[name]][0]
        value, _, uncertainty = _codata()["Newtonian constant of gravitation"]
        return parameter / value, "kg", parameter / value * (uncertainty / value)
    codata = _codata_names().get(name)
    return None if codata is None else _codata()[codata]


def uncertainty(name: str) -> float:
    """Return the standard uncertainty of a constant in its own unit; 0 if it is exact.

    **Raises:** `AttributeError` if no constant has that name.
    """
    entry = _entry(name)
    if entry is None:
        raise _unknown(name)
    return entry[2]


def _unknown(name: str) -> AttributeError:
    import difflib

    near = difflib.get_close_matches(name, __dir__(), n=4)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return AttributeError(f"module 'tanjax.units.constants' has no constant {name!r}{hint}")


def __getattr__(name: str) -> Any:
    """Return a constant as a quantity with a Python float."""
    if name.startswith("__"):
        raise AttributeError(f"module 'tanjax.units.constants' has no attribute {name!r}")
    entry = _entry(name)
    if entry is None:
        raise _unknown(name)
    # Not cached: the hook of quantities may change.
    return _unit.make_quantity(float(entry[0]), unit(entry[1]))


def __dir__() -> list[str]:
    """Every name of a constant that is an identifier."""
    names = {*_NOMINAL, *_MASSES, *_codata_names(), "uncertainty"}
    return sorted(name for name in names if name.isidentifier())
