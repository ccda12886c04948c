"""Charges that move, radiate and collide: e⁴ is 7e-76 and e⁶ is 2e-113."""

from __future__ import annotations

import math
from typing import Any

import tanjax.numpy as tnp

from .formula import both

EV = 1.602176634e-19  # J
U = 1.66054e-27  # kg


def larmor(c: Any, acceleration: Any) -> Any:
    return c.e**2 * acceleration**2 / (6 * math.pi * c.epsilon_0 * c.c**3)


def synchrotron(c: Any, gamma: Any, field: Any) -> Any:
    return c.e**4 * gamma**2 * field**2 / (6 * math.pi * c.epsilon_0 * c.m_e**2 * c.c)


def bremsstrahlung(c: Any, t: Any, density: Any) -> Any:
    """Return the power that a volume of hydrogen radiates, with a Gaunt factor of 1."""
    charge = c.e**2 / (4 * math.pi * c.epsilon_0)
    speed = tnp.sqrt(2 * math.pi * c.k_B * t / (3 * c.m_e))
    return speed * 32 * math.pi * charge**3 * density**2 / (3 * c.h * c.m_e * c.c**3)


def plasma_frequency(c: Any, density: Any) -> Any:
    return tnp.sqrt(density * c.e**2 / (c.epsilon_0 * c.m_e)) / (2 * math.pi)


def bethe(c: Any, density: Any, beta: Any, ionisation: Any) -> Any:
    """Return the force that stops a proton among electrons."""
    rest = c.m_e * c.c**2
    charge = c.e**2 / (4 * math.pi * c.epsilon_0)
    logarithm = tnp.log(2 * rest * beta**2 / (ionisation * (1 - beta**2)))
    return 4 * math.pi * density * charge**2 / (rest * beta**2) * (logarithm - beta**2)


def rutherford(c: Any, energy: Any, angle: Any) -> Any:
    """Return the cross section of gold for alpha particles."""
    length = 2 * 79 * c.e**2 / (16 * math.pi * c.epsilon_0 * energy)
    return length**2 / tnp.sin(angle / 2) ** 4


def klein_nishina(c: Any, energy: Any, angle: Any) -> Any:
    rest = c.m_e * c.c**2
    radius = c.e**2 / (4 * math.pi * c.epsilon_0 * rest)
    p = 1 / (1 + energy / rest * (1 - tnp.cos(angle)))
    return radius**2 / 2 * p**2 * (p + 1 / p - tnp.sin(angle) ** 2)


def kramers(c: Any, coefficient: Any, density: Any, t: Any) -> Any:
    return coefficient * density * t**-3.5


def debye_hueckel(c: Any, ions: Any, t: Any) -> Any:
    """Return the logarithm of the activity of an ion in water."""
    permittivity = 78.5 * c.epsilon_0
    screening = tnp.sqrt(2 * c.N_A * c.e**2 * ions / (permittivity * c.k_B * t))
    return -(c.e**2) * screening / (8 * math.pi * permittivity * c.k_B * t)


FORMULAS = [
    *both(
        "Larmor's power",
        "e²a² / (6πε₀c³), of the electron of hydrogen",
        larmor,
        [(9e22, "m / s2")],
        "a in 10²² m/s², in nW",
        units=(1e22,),
        per=1e-9,
    ),
    *both(
        "Synchrotron power",
        "e⁴γ²B² / (6πε₀m²c), γ = 10⁴",
        synchrotron,
        [(1e4, ""), (1.45, "T")],
        "γ in thousands, in nW",
        units=(1e3, 1.0),
        per=1e-9,
    ),
    *both(
        "Bremsstrahlung",
        "√(2πkT/3m) 32π (e²/4πε₀)³ n² / (3hmc³), a plasma of 10⁷ K",
        bremsstrahlung,
        [(1e7, "K"), (1e20, "1 / m3")],
        "T in MK, n in 10²⁰/m³, in W/m³",
        units=(1e6, 1e20),
    ),
    *both(
        "Plasma frequency",
        "√(n e² / (ε₀m)) / 2π, of the ionosphere",
        plasma_frequency,
        [(1e12, "1 / m3")],
        "n in 10¹²/m³, in MHz",
        units=(1e12,),
        per=1e6,
    ),
    *both(
        "Bethe and Bloch",
        "4πn/(mc²β²) (e²/4πε₀)² (ln(2mc²β² / (I(1−β²))) − β²), a proton in water",
        bethe,
        [(3.34e29, "1 / m3"), (0.5, ""), (75 * EV, "J")],
        "n in 10²⁹/m³, I in eV, in MeV/cm",
        units=(1e29, 1.0, EV),
        per=1e8 * EV,
    ),
    *both(
        "Rutherford's cross section",
        "(2Ze² / (16πε₀E))² / sin⁴(θ/2), 5 MeV on gold",
        rutherford,
        [(5e6 * EV, "J"), (1.5, "")],
        "E in MeV, in 10⁻²⁸ m²",
        units=(1e6 * EV, 1.0),
        per=1e-28,
    ),
    *both(
        "Klein and Nishina",
        "r²/2 P² (P + 1/P − sin²θ), P = 1/(1 + E/mc² (1−cos θ)), r = e²/(4πε₀mc²), 662 keV",
        klein_nishina,
        [(662e3 * EV, "J"), (1.0, "")],
        "E in MeV, in 10⁻³⁰ m²",
        units=(1e6 * EV, 1.0),
        per=1e-30,
    ),
    *both(
        "Kramers' opacity",
        "κ₀ρT^(−7/2), the centre of the sun",
        kramers,
        [(1.5e20, "m**5 * K**3.5 / kg**2"), (1.5e5, "kg / m3"), (1.57e7, "K")],
        "10²⁰, g/cm³, MK",
        units=(1e20, 1e3, 1e6),
        per=1.0,
    ),
    *both(
        "Debye and Hückel",
        "−e²κ / (8πεkT), κ = √(2N_A e² I / (εkT)), 0.1 mol/l of salt in water",
        debye_hueckel,
        [(100.0, "mol / m3"), (298.0, "K")],
        "I in mol/l",
        units=(1000.0, 1.0),
    ),
]
