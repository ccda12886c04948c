"""Heat: occupations on grids whose last entries vanish, powers of temperatures, small particles.

Grids have an entry in the tail: where exp(E/kT) is 10³⁵⁰, the occupation is 0 in every dtype and in
float64, and so is its gradient; the other entries must not suffer from it. Their references are
written with `1 - exp(-x)` and its like, because float64 has inf/inf there.
"""

from __future__ import annotations

import math
from typing import Any

import tanjax.numpy as tnp

from .formula import both
from .plasmas import EV, U


def saha(c: Any, t: Any, density: Any, energy: Any) -> Any:
    """The ratio of ions to atoms in hydrogen, by the density of electrons."""
    states = (2 * math.pi * c.m_e * c.k_B * t / c.h**2) ** 1.5
    return states / density * tnp.exp(-energy / (c.k_B * t))


def sackur_tetrode(c: Any, mass: Any, t: Any, pressure: Any) -> Any:
    """The entropy of an atom, in units of k."""
    states = (2 * math.pi * mass * c.k_B * t / c.h**2) ** 1.5
    return tnp.log(states * c.k_B * t / pressure) + 2.5


def speeds(c: Any, v: Any, mass: Any, t: Any) -> Any:
    """Maxwell's and Boltzmann's distribution of speeds."""
    kt = c.k_B * t
    norm = 4 * math.pi * (mass / (2 * math.pi * kt)) ** 1.5
    return norm * v**2 * tnp.exp(-mass * v**2 / (2 * kt))


def boltzmann_entropy(c: Any, numbers: Any) -> Any:
    """k (N ln N − Σ n ln n), Boltzmann's −kH, of numbers in cells."""
    total = tnp.sum(numbers)
    return -c.k_B * tnp.sum(numbers * tnp.log(numbers / total))


def lennard_jones(c: Any, r: Any, depth: Any, size: Any) -> Any:
    """The force between two atoms."""
    ratio = size / r
    return 24 * depth / r * (2 * ratio**12 - ratio**6)


def kolmogorov(c: Any, viscosity: Any, dissipation: Any) -> Any:
    return (viscosity**3 / dissipation) ** 0.25


FORMULAS = [
    *both(
        "Saha's equation",
        "(2πmkT/h²)^(3/2) / n exp(−E/kT), hydrogen at 50,000 K",
        saha,
        [(5e4, "K"), (1e26, "1 / m3"), (13.6 * EV, "J")],
        "T in kK, n in 10²⁶/m³, E in eV",
        units=(1e3, 1e26, EV),
    ),
    *both(
        "Sackur and Tetrode",
        "ln((2πmkT/h²)^(3/2) kT/p) + 5/2, argon",
        sackur_tetrode,
        [(39.95 * U, "kg"), (300.0, "K"), (101325.0, "Pa")],
        "m in u, p in kPa",
        units=(U, 1.0, 1e3),
    ),
    *both(
        "Maxwell and Boltzmann",
        "4π (m/2πkT)^(3/2) v² exp(−mv²/2kT), a grid and 12.5 km/s, nitrogen",
        speeds,
        [([100.0, 150.0, 200.0, 250.0, 12500.0], "m / s"), (28.01 * U, "kg"), (300.0, "K")],
        "m in u, in s/km",
        units=(1.0, U, 1.0),
        per=1e-3,
    ),
    *both(
        "Boltzmann's H",
        "−k Σ n ln(n/N), a mole in four cells",
        boltzmann_entropy,
        [([3e23, 2e23, 8e22, 2.2e22], "")],
        "n in 10²³, in J/K",
        units=(1e23,),
    ),
    *both(
        "Lennard-Jones force",
        "24ε/r (2(σ/r)¹² − (σ/r)⁶), argon",
        lennard_jones,
        [([3.4e-10, 6.8e-10, 1.36e-9], "m"), (1.65e-21, "J"), (3.4e-10, "m")],
        "in nm and 10⁻²¹ J, in pN",
        units=(1e-9, 1e-21, 1e-9),
        per=1e-12,
    ),
    *both(
        "Kolmogorov scale",
        "(ν³/ε)^(1/4), air",
        kolmogorov,
        [(1.5e-5, "m2 / s"), (1e-3, "m2 / s3")],
        "in mm²/s, W/t and mm",
        units=(1e-6, 1e-3),
        per=1e-3,
    ),
]
