"""The units that load without the catalogue: SI, and units in daily use with it.

A program that writes `"km/h"` should not wait 0.2 s for three thousand definitions. This table
repeats definitions of the catalogue (pint's) under the same names; a test compares all of them. The
last group has units of astronomy and chemistry that the catalogue lacks.
"""

from __future__ import annotations

from typing import NamedTuple


class Definition(NamedTuple):
    """A unit: symbol, names (the name in full first), definition, True if it takes prefixes."""

    symbol: str
    names: tuple[str, ...]
    text: str
    prefixed: bool


PREFIXES = {
    symbol: (name, power)
    for symbol, name, power in [
        ("q", "quecto", -30),
        ("r", "ronto", -27),
        ("y", "yocto", -24),
        ("z", "zepto", -21),
        ("a", "atto", -18),
        ("f", "femto", -15),
        ("p", "pico", -12),
        ("n", "nano", -9),
        ("µ", "micro", -6),
        ("m", "milli", -3),
        ("c", "centi", -2),
        ("d", "deci", -1),
        ("da", "deca", 1),
        ("h", "hecto", 2),
        ("k", "kilo", 3),
        ("M", "mega", 6),
        ("G", "giga", 9),
        ("T", "tera", 12),
        ("P", "peta", 15),
        ("E", "exa", 18),
        ("Z", "zetta", 21),
        ("Y", "yotta", 24),
        ("R", "ronna", 27),
        ("Q", "quetta", 30),
    ]
}
BY_NAME = {name: (symbol, power) for symbol, (name, power) in PREFIXES.items()} | {
    "u": ("µ", -6),
    "deka": ("da", 1),
}

_ROWS = """
m    | metre meter          | +[length]
s    | second sec           | +[time]
A    | ampere amp           | +[current]
K    | kelvin               | +[temperature]
mol  | mole                 | +[amount]
cd   | candela              | +[luminosity]
g    | gram                 | +1e-3 [mass]
rad  | radian               | +1
π    | pi                   | π
sr   | steradian            | +1
Hz   | hertz                | +1/s
N    | newton               | +kg m/s^2
Pa   | pascal               | +N/m^2
J    | joule                | +N m
W    | watt                 | +J/s
C    | coulomb              | +A s
V    | volt                 | +J/C
F    | farad                | +C/V
Ω    | ohm                  | +V/A
S    | siemens              | +A/V
Wb   | weber                | +V s
T    | tesla                | +Wb/m^2
H    | henry                | +Wb/A
lm   | lumen                | +cd sr
lx   | lux                  | +lm/m^2
Bq   | becquerel            | +1/s
Gy   | gray                 | +J/kg
Sv   | sievert              | +J/kg
kat  | katal                | +mol/s
eV   | electron_volt electronvolt | +1.602176634e-19 J
L    | litre liter l        | +1e-3 m^3
bar  | bar                  | +1e5 Pa
cal  | calorie              | +4.184 J
M    | molar                | +mol/L
t    | metric_ton tonne     | 1e3 kg
min  | minute               | 60 s
h    | hour hr              | 3600 s
d    | day                  | 86400 s
week | week                 | 604800 s
yr   | year a julian_year   | 31557600 s
deg  | degree               | π/180
arcmin | arcminute          | π/10800
arcsec | arcsecond          | π/648000
%    | percent              | 0.01
ppm  | ppm                  | 1e-6
Å    | angstrom ångström    | 1e-10 m
atm  | atmosphere standard_atmosphere | 101325 Pa
"""
# IAU 2015 resolutions B2 and B3 (nominal values) with the constant of gravitation of CODATA 2022.
_OWN_ROWS = """
Jy        | jansky           | +1e-26 W/m^2/Hz
solMass   | solar_mass M_sun | 1.3271244e20/6.67430e-11 kg
solRad    | solar_radius R_sun | 6.957e8 m
solLum    | solar_luminosity L_sun | 3.828e26 W
earthMass | earth_mass M_earth | 3.986004e14/6.67430e-11 kg
earthRad  | earth_radius R_earth | 6.3781e6 m
jupiterMass | jupiter_mass M_jup | 1.2668653e17/6.67430e-11 kg
jupiterRad | jupiter_radius R_jup | 7.1492e7 m
mag       | magnitude        | +level -1/5
pH_scale  | acidity          | over mol/L -1/2
dex       | dex              | level 1/2
dBV       | decibel_volt     | amplitude V 1/20
dBmV      | decibel_millivolt | amplitude mV 1/20
dBµV      | decibel_microvolt dBuV | amplitude µV 1/20
Torr      | Torr             | +101325/760 Pa
dioptre   | dioptre diopter  | +1/m
ppb       | ppb              | 1e-9
"""
# A name with another meaning in the catalogue, and the number one.
ALIASES = {"°": "deg", "dimensionless": "1"}


def _read(rows: str) -> list[Definition]:
    found = []
    for row in rows.strip().splitlines():
        symbol, names, text = (part.strip() for part in row.split("|"))
        found.append(
            Definition(symbol, tuple(names.split()), text.lstrip("+"), text.startswith("+"))
        )
    return found


SHARED, OWN = _read(_ROWS), _read(_OWN_ROWS)
DEFINITIONS = {
    name: definition
    for definition in SHARED + OWN
    for name in (definition.symbol, *definition.names)
}
# Names of units in the catalogue that also read as a prefix and a unit.
TAKEN = frozenset(["hbar"])
# Names that pint reads differently: with `mc` as micro, it reads SI's millicandela as a microday.
DIFFERENT = frozenset(["mcd"])
# Symbols shown instead of the catalogue's.
SHOWN = {"year": "yr", "liter": "L"}
# British spelling in names in full.
SPELLING = {"meter": "metre", "liter": "litre"}
