"""The solar system as point masses: its data and its physics, in quantities.

Forces and motion follow from the gradient of the energy. Only Einstein's correction, for a light
body near the sun, is written by hand.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import tanjax as tj
import tanjax.numpy as tnp

FOLDER = Path(__file__).parent
G = tj.units.constants.gravitational_constant
C = tj.units.constants.speed_of_light

# Three leapfrog steps of these lengths make one step of fourth order (Yoshida 1990).
_OUTER = 1 / (2 - 2 ** (1 / 3))
YOSHIDA = np.array([_OUTER, 1 - 2 * _OUTER, _OUTER])


class System(NamedTuple):
    """Masses of `n` bodies, their positions and velocities, `n` by 3."""

    mass: tj.Quantity
    position: tj.Quantity
    velocity: tj.Quantity


class Observations(NamedTuple):
    """Positions at times, `times` by `n` by 3."""

    time: tj.Quantity
    position: tj.Quantity


def read() -> tuple[list[str], System, Observations]:
    """Read the names, the state at the first epoch, and the positions at all epochs."""
    with (FOLDER / "bodies.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    names = [row.pop("name") for row in rows]
    table = np.array([[float(x) for x in row.values()] for row in rows])
    gm = table[:, 0] * tj.unit("m^3 / s^2")
    position, velocity = table[:, 1:4] * tj.unit("m"), table[:, 4:] * tj.unit("m / s")
    with (FOLDER / "positions.csv").open(newline="") as lines:
        seen = list(csv.DictReader(lines))
    days = np.array([float(row["day"]) for row in seen[:: len(names)]]) * tj.units.day
    xyz = np.array([[float(row[f"{axis}_m"]) for axis in "xyz"] for row in seen])
    observed = xyz.reshape(-1, len(names), 3) * tj.unit("m")
    return names, System((gm / G).to("kg"), position, velocity), Observations(days, observed)


def potential_energy(mass: Any, position: Any) -> Any:
    """Return the energy of gravitation, with every pair once."""
    apart = position[:, None] - position
    nowhere_zero = jnp.eye(len(mass)) * tj.unit("m^2")  # the distance from itself is 0
    distance = tnp.sqrt(tnp.sum(apart**2, axis=-1) + nowhere_zero)
    return -G * tnp.sum(tnp.triu(mass[:, None] * mass / distance, 1))


def total_energy(system: System) -> Any:
    """Return the sum of kinetic and potential energy."""
    kinetic = tnp.sum(system.mass[:, None] * system.velocity**2) / 2
    return kinetic + potential_energy(system.mass, system.position)


def gravity(mass: Any, position: Any) -> Any:
    """Return the acceleration of every body: the force is the gradient of the energy."""
    return -tj.grad(potential_energy, argnums=1)(mass, position) / mass[:, None]


def newton(mass: Any, position: Any) -> Any:
    """Return the same accelerations by Newton's law, written by hand."""
    apart = position - position[:, None]
    cubed = tnp.sum(apart**2, axis=-1) ** 1.5 + jnp.eye(len(mass)) * tj.unit("m^3")
    return G * tnp.sum(mass[:, None] * apart / cubed[:, :, None], axis=1)


def einstein(mass: Any, position: Any, velocity: Any) -> Any:
    """Return the correction of accelerations by general relativity, of first order, for the sun.

    **Source:** IERS Conventions 2010, equation 10.12, with both parameters 1, as in general
    relativity.
    """
    r, v = position - position[0], velocity - velocity[0]
    distance = tnp.linalg.norm(r.at[0].set(1.0 * tj.units.au), axis=-1, keepdims=True)
    gm = G * mass[0]
    radial = 4 * gm / distance - tnp.sum(v**2, axis=-1, keepdims=True)
    along = 4 * tnp.sum(r * v, axis=-1, keepdims=True)
    return gm / (C**2 * distance**3) * (radial * r + along * v)


def leapfrog(system: System, step: Any, relativity: bool) -> System:
    """Drift for half a step, kick, drift: a symplectic step of second order."""
    mass, position, velocity = system
    position = position + velocity * step / 2
    acceleration = gravity(mass, position)
    if relativity:  # depends on the velocity: use that in the middle of the kick
        middle = velocity + acceleration * step / 2
        acceleration = acceleration + einstein(mass, position, middle)
    velocity = velocity + acceleration * step
    return System(mass, position + velocity * step / 2, velocity)


def motion(system: System, interval: Any, samples: int, steps: int, relativity: bool) -> System:
    """Return the states after one `interval`, two, and so on, by `steps` steps of fourth order."""
    lengths = tnp.tile(YOSHIDA * interval / steps, steps)

    def step(state: System, length: Any) -> tuple[System, None]:
        return leapfrog(state, length, relativity), None

    @tj.checkpoint  # the gradient repeats an interval instead of storing its steps
    def sample(state: System, _: None) -> tuple[System, System]:
        state, _ = tj.scan(step, state, lengths)
        return state, state

    return tj.scan(sample, system, None, length=samples)[1]


def from_sun(position: Any) -> Any:
    """Return heliocentric positions: the origin of barycentric ones depends on the masses."""
    return position - position[..., :1, :]
