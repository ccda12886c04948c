"""Quantum mechanics: ħ² is 1e-68, which no dtype of 32 bits holds."""

from __future__ import annotations

import math
from typing import Any

import tanjax.numpy as tnp

from .formula import both
from .plasmas import EV, U


def casimir(c: Any, distance: Any) -> Any:
    return math.pi**2 * c.hbar * c.c / (240 * distance**4)


def gamow(c: Any, mass: Any, energy: Any) -> Any:
    """Return the probability that two protons meet, by their reduced mass."""
    return tnp.exp(-(c.e**2) / (2 * c.epsilon_0 * c.hbar) * tnp.sqrt(mass / (2 * energy)))


def tunnelling(c: Any, barrier: Any, energy: Any, width: Any) -> Any:
    return tnp.exp(-2 * width * tnp.sqrt(2 * c.m_e * (barrier - energy)) / c.hbar)


def london(c: Any, density: Any) -> Any:
    return tnp.sqrt(c.m_e / (c.mu_0 * density * c.e**2))


def degeneracy(c: Any, density: Any) -> Any:
    """Return the pressure of non-relativistic neutrons."""
    return (3 * math.pi**2) ** (2 / 3) / 5 * c.hbar**2 / c.m_n * (density / c.m_n) ** (5 / 3)


FORMULAS = [
    *both(
        "Casimir pressure",
        "π²ħc / (240 d⁴), 100 nm",
        casimir,
        [(1e-7, "m")],
        "d in nm, in Pa",
        units=(1e-9,),
    ),
    *both(
        "Gamow factor",
        "exp(−e²/(2ε₀ħ) √(m/2E)), two protons, 100 keV",
        gamow,
        [(8.363e-28, "kg"), (1e5 * EV, "J")],
        "m in u, E in keV",
        units=(U, 1e3 * EV),
    ),
    *both(
        "Tunnelling",
        "exp(−2d√(2m(V−E)) / ħ), 1 eV and 0.2 nm",
        tunnelling,
        [(4.5 * EV, "J"), (3.5 * EV, "J"), (2e-10, "m")],
        "in eV and nm",
        units=(EV, EV, 1e-9),
    ),
    *both(
        "London's depth",
        "√(m / (μ₀ n e²)), 10²⁹ electrons in a cubic metre",
        london,
        [(1e29, "1 / m3")],
        "n in 10²⁸/m³, in nm",
        units=(1e28,),
        per=1e-9,
    ),
    *both(
        "Pressure of neutrons",
        "(3π²)^(2/3)/5 ħ²/m (ρ/m)^(5/3), 10¹⁸ kg/m³",
        degeneracy,
        [(1e18, "kg / m3")],
        "ρ in 10¹⁷ kg/m³, in 10³² Pa",
        units=(1e17,),
        per=1e32,
    ),
]
