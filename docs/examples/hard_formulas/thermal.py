"""Heat: occupations on grids whose last entries vanish, powers of temperatures, small particles.

Grids have an entry in the tail. If exp(E/kT) is 10³⁵⁰, the occupation is 0 in every dtype and in
float64, and so is its gradient. The other entries must stay right. The references use forms such as
`1 - exp(-x)`, because the plain form gives inf/inf in float64.

No grid is symmetric about a level, or has an entry at the peak of a spectrum. There terms cancel in
the gradient by T or by that entry: even correctly rounded arithmetic with unlimited exponents is 14
units off.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tanjax.numpy as tnp

from .formula import both
from .plasmas import EV, U


def saha(c: Any, t: Any, density: Any, energy: Any) -> Any:
    """Return the ratio of ions to atoms in hydrogen, by the density of electrons."""
    states = (2 * math.pi * c.m_e * c.k_B * t / c.h**2) ** 1.5
    return states / density * tnp.exp(-energy / (c.k_B * t))


def sackur_tetrode(c: Any, mass: Any, t: Any, pressure: Any) -> Any:
    """Return the entropy of an atom, in units of k."""
    states = (2 * math.pi * mass * c.k_B * t / c.h**2) ** 1.5
    return tnp.log(states * c.k_B * t / pressure) + 2.5


def fermi(c: Any, energy: Any, level: Any, t: Any) -> Any:
    return 1 / (tnp.exp((energy - level) / (c.k_B * t)) + 1)


def fermi_reference(c: Any, energy: Any, level: Any, t: Any) -> Any:
    return jax.nn.sigmoid((level - energy) / (c.k_B * t))


def bose(c: Any, energy: Any, t: Any) -> Any:
    return 1 / tnp.expm1(energy / (c.k_B * t))


def bose_reference(c: Any, energy: Any, t: Any) -> Any:
    x = energy / (c.k_B * t)
    return jnp.exp(-x) / -jnp.expm1(-x)


def planck(c: Any, nu: Any, t: Any) -> Any:
    return 2 * c.h * nu**3 / c.c**2 / tnp.expm1(c.h * nu / (c.k_B * t))


def planck_reference(c: Any, nu: Any, t: Any) -> Any:
    return 2 * c.h * nu**3 / c.c**2 * bose_reference(c, c.h * nu, t)


def debye_heat(c: Any, debye: Any, t: Any) -> Any:
    """Return the heat capacity of a mole, integrated over 32 midpoints."""
    x = np.asarray((np.arange(32) + 0.5) / 32, t.dtype) * (debye / t)
    root = x**2 / (2 * tnp.sinh(x / 2))
    return 9 * c.N_A * c.k_B * (t / debye) ** 2 * tnp.mean(root**2)


def speeds(c: Any, v: Any, mass: Any, t: Any) -> Any:
    """Return Maxwell's and Boltzmann's distribution of speeds."""
    kt = c.k_B * t
    norm = 4 * math.pi * (mass / (2 * math.pi * kt)) ** 1.5
    return norm * v**2 * tnp.exp(-mass * v**2 / (2 * kt))


def langevin(c: Any, moment: Any, field: Any, t: Any) -> Any:
    x = moment * field / (c.k_B * t)
    return 1 / tnp.tanh(x) - 1 / x


def boltzmann_entropy(c: Any, numbers: Any) -> Any:
    """Return k (N ln N − Σ n ln n), Boltzmann's −kH, of numbers in cells."""
    total = tnp.sum(numbers)
    return -c.k_B * tnp.sum(numbers * tnp.log(numbers / total))


def lennard_jones(c: Any, r: Any, depth: Any, size: Any) -> Any:
    """Return the force between two atoms."""
    ratio = size / r
    return 24 * depth / r * (2 * ratio**12 - ratio**6)


def kolmogorov(c: Any, viscosity: Any, dissipation: Any) -> Any:
    return (viscosity**3 / dissipation) ** 0.25


LEVELS = [-1.0, 0.5, 1.5, 2.5, 800.0]  # of kT at 300 K
KT = 1.380649e-23 * 300

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
        "Fermi and Dirac",
        "1 / (exp((E−μ)/kT) + 1), a grid and 20 eV",
        fermi,
        [([(x + 2.75) * KT for x in LEVELS], "J"), (2.75 * KT, "J"), (300.0, "K")],
        "in eV",
        units=(EV, EV, 1.0),
        reference=fermi_reference,
    ),
    *both(
        "Bose and Einstein",
        "1 / expm1(E/kT), a grid and 20 eV",
        bose,
        [([0.5 * KT, KT, 2 * KT, 3 * KT, 800 * KT], "J"), (300.0, "K")],
        "in eV",
        units=(EV, 1.0),
        reference=bose_reference,
    ),
    *both(
        "Planck's spectrum",
        "2hν³/c² / expm1(hν/kT), a grid and 5·10¹⁶ Hz, 2900 K",
        planck,
        [([3e13, 5e13, 1e14, 5e16], "Hz"), (2900.0, "K")],
        "ν in THz, T in kK, in nW/m²/sr/Hz",
        units=(1e12, 1e3),
        per=1e-9,
        reference=planck_reference,
    ),
    *both(
        "Debye's heat",
        "9R (T/θ)³ ∫ (x²/(2 sinh x/2))² dx to θ/T, aluminium at 4 K; at 27 K in float16",
        debye_heat,
        [(428.0, "K"), (4.0, "K")],
        "the same, in mJ/mol/K",
        units=(1.0, 1.0),
        per=1e-3,
        half=[(428.0, "K"), (27.0, "K")],
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
        "Langevin's magnetism",
        "coth x − 1/x, x = μB/kT, 1000 Bohr magnetons, 1 T",
        langevin,
        [(9.274e-21, "J / T"), (1.0, "T"), (300.0, "K")],
        "μ in 10⁻²¹ J/T",
        units=(1e-21, 1.0, 1.0),
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
