"""The first formulas: gravitation, radiation, fields, long chains, and functions of learning.

Value and gradient are two programs, because most people begin with the value alone.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

import tanjax.numpy as tnp

from .formula import CODATA, DTYPES, Formula, times


def newton(c: Any, m1: Any, m2: Any, r: Any) -> Any:
    return c.G * m1 * m2 / r**2


def planck(c: Any, nu: Any, t: Any) -> Any:
    return 2 * c.h * nu**3 / c.c**2 / (tnp.exp(c.h * nu / (c.k_B * t)) - 1)


def planck_per_terahertz(c: Any, nu: Any, t: Any) -> Any:
    return 1e12 * planck(c, 1e12 * nu, t)


def coulomb(c: Any, r: Any) -> Any:
    return c.e**2 / (4 * math.pi * c.epsilon_0 * r**2)


def coulomb_in_femtometres(c: Any, r: Any) -> Any:
    return coulomb(c, 1e-15 * r)


def fdtd(c: Any, dt: Any, dx: Any) -> Any:
    return dt / (c.epsilon_0 * dx)


def fdtd_in_attoseconds(c: Any, dt: Any, dx: Any) -> Any:
    return fdtd(c, 1e-18 * dt, 1e-9 * dx)


def norm(c: Any, x: Any) -> Any:
    return tnp.sqrt(tnp.sum(x * x))


def chain(c: Any, x: Any) -> Any:
    for _ in range(120):
        x = x * 3.24
    for _ in range(120):
        x = x / 3.24
    return x


def power(c: Any, x: Any) -> Any:
    return x**100


def power_brought_back(c: Any, x: Any) -> Any:
    return x**100 / 3.0**99


def localisation(c: Any, m: Any) -> Any:
    return c.hbar**2 / (2 * m)


def localisation_in_electronvolts(c: Any, m: Any) -> Any:
    return c.hbar**2 / (2 * c.m_e * m) / (c.e * 1e-18)


def boltzmann(c: Any, energy: Any, t: Any) -> Any:
    return tnp.exp(-energy / (c.k_B * t))


def boltzmann_in_electronvolts(c: Any, energy: Any, t: Any) -> Any:
    return jnp.exp(-energy * c.e / (c.k_B * t))


def debye(c: Any, density: Any, t: Any) -> Any:
    return tnp.sqrt(c.epsilon_0 * c.k_B * t / (density * c.e**2))


def softmax(c: Any, x: Any) -> Any:
    e = jnp.exp(x)
    return e / jnp.sum(e)


def logsumexp(c: Any, x: Any) -> Any:
    return jnp.log(jnp.sum(jnp.exp(x)))


def layer_norm(c: Any, x: Any) -> Any:
    centred = x - jnp.mean(x)
    return centred / jnp.sqrt(jnp.mean(centred**2))


LOGITS = [996.0, 1000.0, 1000.0, 996.0]  # multiples of 4: bfloat16 holds them
ACTIVATIONS = [0.25, 1.0, -1.5, -0.5, 2.0, -2.5]
DISTANCES = [1.0, 2.0, 0.75]


_FORMULAS = [
    Formula(
        "Newton's force",
        "G m₁ m₂ / r², the sun and the earth",
        newton,
        ((1.988e30, "kg"), (5.972e24, "kg"), (1.496e11, "m")),
    ),
    Formula(
        "Newton's force",
        "the same numbers",
        newton,
        (1.988e30, 5.972e24, 1.496e11),
        dtypes=DTYPES[:2],  # these numbers overflow float16
    ),
    Formula(
        "Planck's law",
        "2hν³/c² / (exp(hν/kT) − 1), 170 THz, 5800 K",
        planck,
        ((170e12, "Hz"), (5800.0, "K")),
    ),
    Formula("Planck's law", "the same, ν in THz", planck_per_terahertz, (170.0, 5800.0)),
    Formula("Coulomb at 1 fm", "e² / (4π ε₀ r²)", coulomb, ((1e-15, "m"),)),
    Formula("Coulomb at 1 fm", "the same, r in fm", coulomb_in_femtometres, (1.0,)),
    Formula(
        "FDTD factor",
        "Δt / (ε₀ Δx), 17 as, 10 nm",
        fdtd,
        ((1.7e-17, "s"), (1e-8, "m")),
    ),
    Formula("FDTD factor", "the same, in as and nm", fdtd_in_attoseconds, (17.0, 10.0)),
    Formula("norm at 1e25", "√Σx²", norm, ((times(DISTANCES, 1e25), "m"),)),
    Formula(
        "norm at 1e25",
        "the same; 2e4 in float16",
        norm,
        (times(DISTANCES, 1e25),),
        half=(times(DISTANCES, 2e4),),
    ),
    Formula("grow and shrink", "120 times · 3.24, 120 times / 3.24", chain, ([1.0, 1.5],)),
    Formula("3¹⁰⁰", "10⁵ times", power, (([3.0] * 10**5, ""),)),
    Formula("3¹⁰⁰ / 3⁹⁹", "10⁵ times", power_brought_back, ([3.0] * 10**5,)),
    Formula("ħ²/2m", "of an electron", localisation, ((CODATA.m_e.value, "kg"),)),
    Formula("ħ²/2m", "in eV nm², m in electron masses", localisation_in_electronvolts, (1.0,)),
    Formula(
        "Boltzmann factor",
        "exp(−E/kT), E/kT ≈ 3",
        boltzmann,
        ((1.25e-20, "J"), (300.0, "K")),
    ),
    Formula("Boltzmann factor", "the same, E in eV", boltzmann_in_electronvolts, (0.078, 300.0)),
    Formula(
        "Debye length",
        "√(ε₀ k T / (n e²)), of a plasma",
        debye,
        ((1e20, "1 / m3"), (1e7, "K")),
    ),
    Formula("Debye length", "the same numbers", debye, (1e20, 1e7), dtypes=DTYPES[:2]),
    Formula(
        "softmax",
        "exp(x) / Σ exp(x), logits of 1000",
        softmax,
        (LOGITS,),
        reference=lambda c, x: jax.nn.softmax(x),
        of_first=True,
    ),
    Formula(
        "softmax",
        "as `jax.nn` writes it",
        lambda c, x: jax.nn.softmax(x),
        (LOGITS,),
        of_first=True,
    ),
    Formula(
        "logsumexp",
        "log Σ exp(x), logits of 1000",
        logsumexp,
        (LOGITS,),
        reference=lambda c, x: jax.nn.logsumexp(x),
    ),
    Formula(
        "logsumexp",
        "as `jax.nn` writes it",
        lambda c, x: jax.nn.logsumexp(x),
        (LOGITS,),
        of_first=True,
    ),
    Formula(
        "layer norm",
        "(x − x̄) / √mean((x − x̄)²), x of 1e25; of 500 in float16",
        layer_norm,
        (times(ACTIVATIONS, 1e25),),
        half=(times(ACTIVATIONS, 500.0),),
        of_first=True,
    ),
]

FORMULAS = [dataclasses.replace(formula, apart=True) for formula in _FORMULAS]
