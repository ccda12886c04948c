"""Stars, black holes and the universe: products of 1e30 kg and 1e-11, and powers of them."""

from __future__ import annotations

import math
from typing import Any

import tanjax.numpy as tnp

from .formula import both

M_SUN = 1.98841e30  # kg
R_SUN = 6.957e8  # m
L_SUN = 3.828e26  # W
YEAR = 3.15576e7  # s
MEGAPARSEC = 3.0857e22  # m


def chandrasekhar(c: Any, electrons: Any, m_h: Any) -> Any:
    """Return the limit by electrons per nucleon, with Lane and Emden's constant for n = 3."""
    planck = (c.hbar * c.c / c.G) ** 1.5
    return 2.01824 * math.sqrt(3 * math.pi) / 2 * planck * (electrons / m_h) ** 2


def hawking_temperature(c: Any, m: Any) -> Any:
    return c.hbar * c.c**3 / (8 * math.pi * c.G * m * c.k_B)


def hawking_lifetime(c: Any, m: Any) -> Any:
    return 5120 * math.pi * c.G**2 * m**3 / (c.hbar * c.c**4)


def thomson(c: Any) -> Any:
    """Return the cross section of an electron for light."""
    radius = c.e**2 / (4 * math.pi * c.epsilon_0 * c.m_e * c.c**2)
    return 8 * math.pi / 3 * radius**2


def eddington(c: Any, m: Any) -> Any:
    return 4 * math.pi * c.G * m * c.m_p * c.c / thomson(c)


def strain(c: Any, m1: Any, m2: Any, distance: Any, frequency: Any) -> Any:
    """Return the amplitude of gravitational waves of two masses, by their chirp mass."""
    total = m1 + m2
    length = c.G * total / c.c**2 * (m1 * m2 / total**2) ** 0.6
    return 4 * length / distance * (math.pi * frequency * length / c.c) ** (2 / 3)


def jeans(c: Any, t: Any, density: Any, molecule: Any) -> Any:
    thermal = (5 * c.k_B * t / (c.G * molecule)) ** 1.5
    return thermal * tnp.sqrt(3 / (4 * math.pi * density))


def bondi(c: Any, m: Any, density: Any, speed: Any) -> Any:
    return math.pi * c.G**2 * m**2 * density / speed**3


def age(c: Any, hubble: Any, matter: Any) -> Any:
    """Return the age of a flat universe of matter and a cosmological constant."""
    rest = tnp.sqrt(1 - matter)
    return 2 * tnp.arcsinh(rest / tnp.sqrt(matter)) / (3 * hubble * rest)


def star(c: Any, radius: Any, t: Any) -> Any:
    """Return the luminosity of a star, with Stefan's and Boltzmann's constant written out."""
    sigma = 2 * math.pi**5 * c.k_B**4 / (15 * c.h**3 * c.c**2)
    return 4 * math.pi * radius**2 * sigma * t**4


FORMULAS = [
    *both(
        "Chandrasekhar mass",
        "ω √(3π)/2 (ħc/G)^(3/2) / (μ m_H)², white dwarfs",
        chandrasekhar,
        [(0.5, ""), (1.6735e-27, "kg")],
        "in solar masses, m_H in u",
        units=(1.0, 1.66054e-27),
        per=M_SUN,
    ),
    *both(
        "Hawking temperature",
        "ħc³ / (8πGMk), the sun",
        hawking_temperature,
        [(M_SUN, "kg")],
        "M in solar masses, T in nK",
        units=(M_SUN,),
        per=1e-9,
    ),
    *both(
        "Hawking lifetime",
        "5120 πG²M³ / (ħc⁴), 2·10¹¹ kg",
        hawking_lifetime,
        [(2e11, "kg")],
        "M in 10¹¹ kg, in 10⁹ years",
        units=(1e11,),
        per=1e9 * YEAR,
    ),
    *both(
        "Eddington luminosity",
        "4πGMm_p c / σ_T, σ_T = 8π/3 (e² / (4πε₀m_e c²))², the sun",
        eddington,
        [(M_SUN, "kg")],
        "in solar masses and luminosities",
        units=(M_SUN,),
        per=L_SUN,
    ),
    *both(
        "Gravitational wave",
        "4r/d (πfr/c)^(2/3), r = GM/c² (m₁m₂/M²)^(3/5), M = m₁+m₂, GW150914",
        strain,
        [(36 * M_SUN, "kg"), (29 * M_SUN, "kg"), (410 * MEGAPARSEC, "m"), (100.0, "Hz")],
        "solar masses, Gpc; strain in 10⁻²¹",
        units=(M_SUN, M_SUN, 1000 * MEGAPARSEC, 1.0),
        per=1e-21,
    ),
    *both(
        "Jeans mass",
        "(5kT / (Gm))^(3/2) √(3 / (4πρ)), H₂ at 10 K",
        jeans,
        [(10.0, "K"), (3e-17, "kg / m3"), (3.347e-27, "kg")],
        "ρ in 10⁻¹⁷ kg/m³, m in u, in solar masses",
        units=(1.0, 1e-17, 1.66054e-27),
        per=M_SUN,
    ),
    *both(
        "Bondi accretion",
        "πG²M²ρ / v³, ten suns",
        bondi,
        [(10 * M_SUN, "kg"), (1e-21, "kg / m3"), (1e4, "m / s")],
        "solar masses, 10⁻²¹ kg/m³, km/s; in 10⁻¹¹ suns a year",
        units=(M_SUN, 1e-21, 1e3),
        per=1e-11 * M_SUN / YEAR,
    ),
    *both(
        "Age of the universe",
        "2 asinh(√((1−Ω)/Ω)) / (3H₀√(1−Ω)), Planck 2018",
        age,
        [(2.184e-18, "1 / s"), (0.315, "")],
        "H₀ in km/s/Mpc, in 10⁹ years",
        units=(1e3 / MEGAPARSEC, 1.0),
        per=1e9 * YEAR,
    ),
    *both(
        "Luminosity of a star",
        "4πR²σT⁴, σ = 2π⁵k⁴ / (15h³c²), the sun",
        star,
        [(R_SUN, "m"), (5772.0, "K")],
        "solar radii and luminosities, T in kK",
        units=(R_SUN, 1e3),
        per=L_SUN,
    ),
]
