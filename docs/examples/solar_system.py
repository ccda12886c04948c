"""The solar system in SI units: energy, forces, tides, motion, and the mass of Jupiter from it.

    python docs/examples/solar_system.py [--output DIRECTORY]

Masses, positions and velocities are JPL's (`solar_system/SOURCE.md`). Forces are the gradient of
the energy, tides the Jacobian of the accelerations. The derivatives give them their units.

The script compares two years of motion with the ephemeris. Then it fits the mass of Jupiter, 30 %
wrong at first, to the motion of the other bodies, with Newton's law and with Einstein's correction
to it. It exits with an error if anything disagrees.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import track  # noqa: E402
from rich.table import Table  # noqa: E402
from solar_system import picture  # noqa: E402
from solar_system.model import (  # noqa: E402
    G,
    Observations,
    System,
    from_sun,
    gravity,
    motion,
    newton,
    potential_energy,
    read,
    total_energy,
)

import tanjax as tj  # noqa: E402
import tanjax.numpy as tnp  # noqa: E402

STEPS = 128  # per 16 days: one every three hours
DESCENT_STEPS = 12


def require(condition: Any, what: str) -> None:
    """Exit with an error unless a check holds."""
    if not condition:
        raise SystemExit(f"disagreement: {what}")


def differs(a: Any, b: Any) -> float:
    """Return the largest difference of two quantities, relative to the second's largest entry."""
    return float(tnp.max(tnp.abs(a - b)) / tnp.max(tnp.abs(b)))


def energy_and_its_gradient(names: list[str], system: System, console: Console) -> tj.Quantity:
    """Check one gradient of the energy: the forces, the momenta and the specific energies."""
    energy, slope = tj.value_and_grad(total_energy)(system)
    console.print(f"total energy: {energy.to('J'):.6e}", highlight=False)
    console.print("its gradient, in units that tanjax derives:")
    for field, name in (("position", "N"), ("velocity", "kg m / s"), ("mass", "J / kg")):
        derivative = getattr(slope, field)
        console.print(f"  by {field:8} {derivative.unit} = {name}", highlight=False)
        derivative.to(name)  # raises if it is not
    momentum = system.mass[:, None] * system.velocity
    require(differs(slope.velocity, momentum) < 1e-14, "the gradient by velocity is the momentum")
    force = -slope.position.to("N")
    by_hand = (system.mass[:, None] * newton(system.mass, system.position)).to("N")
    require(differs(force, by_hand) < 1e-12, "forces by tj.grad and by Newton's law")
    total = tnp.max(tnp.abs(tnp.sum(force, axis=0)) / tnp.max(tnp.abs(force)))
    require(total < 1e-13, "action and reaction")
    table = Table("body", "mass (kg)", "force (N)", "by hand, differs", title="\nForces")
    for i, name in enumerate(names):
        norm = tnp.linalg.norm(force[i])
        off = tnp.linalg.norm(force[i] - by_hand[i]) / norm
        row = (system.mass[i].to_value("kg"), norm.to_value("N"), float(off))
        table.add_row(name, f"{row[0]:.4e}", f"{row[1]:.4e}", f"{row[2]:.0e}")
    console.print(table)
    return force


def tides(names: list[str], system: System, console: Console) -> None:
    """Check the Jacobian of accelerations by positions: every body's tide on every other."""
    jacobian = tj.jacobian(gravity, argnums=1)(system.mass, system.position).to("1 / s^2")
    n = len(names)
    own = jacobian[np.arange(n), :, np.arange(n)]  # n by 3 by 3
    size = tnp.linalg.norm(own, axis=(1, 2))
    trace = tnp.abs(tnp.trace(own, axis1=1, axis2=2)) / size
    require(tnp.max(trace) < 1e-12, "Laplace: the trace of a tidal tensor is zero")
    require(differs(own.mT, own) < 1e-12, "a tidal tensor is symmetric")
    shift = tnp.max(tnp.abs(tnp.sum(jacobian, axis=2)), axis=(1, 2)) / size
    require(tnp.max(shift) < 1e-12, "nothing changes if everything moves")
    hessian = tj.hessian(potential_energy, argnums=1)(system.mass, system.position)
    by_energy = -hessian / system.mass[:, None, None, None]
    require(differs(by_energy, jacobian) < 1e-12, "the Jacobian is the Hessian of the energy")
    earth, moon, sun = (names.index(name) for name in ("earth", "moon", "sun"))
    table = Table("tide", f"size ({size.unit})", "|trace|/size", title="\nTidal tensors")
    table.add_row("all on the earth", f"{size[earth].value:.3e}", f"{float(trace[earth]):.0e}")
    by = {body: tnp.linalg.norm(jacobian[earth, :, body]) for body in (moon, sun)}
    for body, tide in by.items():
        table.add_row(f"{names[body]} on the earth", f"{tide.value:.3e}", "")
    console.print(table)
    away = tnp.linalg.norm(system.position[moon] - system.position[earth]).to("km")
    ratio = float(by[moon] / by[sun])
    console.print(f"the moon, {away:.0f} away and so near its perigee, has {ratio:.2f} times")
    console.print("the sun's tide\n")


def follow(
    names: list[str], system: System, seen: Observations, console: Console
) -> dict[str, tj.Quantity]:
    """Compare two years of motion, by Newton's law and with Einstein, with the ephemeris."""
    errors, samples = {}, len(seen.time) - 1
    table = Table(
        "body", title=f"\nLargest error in {float(seen.time[-1].to_value('day')):.0f} days"
    )
    for name, relativity in (("Newton", False), ("with Einstein", True)):
        run = tj.jit(lambda s, h, r=relativity: motion(s, h, samples, STEPS, r))
        states = run(system, seen.time[1])
        apart = from_sun(states.position) - from_sun(seen.position[1:])
        errors[name] = tnp.linalg.norm(apart, axis=-1).to("km")
        table.add_column(f"{name} (km)", justify="right")
        if not relativity:
            energies = tj.vmap(total_energy)(states)
            drift = differs(energies, tnp.full_like(energies, total_energy(system)))
            console.print(f"{samples * STEPS * 3} leapfrog steps: energy constant to {drift:.0e}")
            require(drift < 1e-10, "the energy is conserved")
    for i, body in enumerate(names[1:], start=1):
        table.add_row(body, *(f"{float(tnp.max(e[:, i]).value):.1f}" for e in errors.values()))
    console.print(table)
    console.print("With Einstein, Mercury's error is that of the step, of fourth order; the moon's")
    console.print("too, and the shape of the earth. Asteroids, Pluto and rounding are the rest.\n")
    mercury = [float(tnp.max(e[:, names.index("mercury")]).value) for e in errors.values()]
    require(mercury[1] < mercury[0] / 20, "Einstein's correction explains Mercury")
    return errors


def residual_by_mass(names: list[str], system: System, seen: Observations, relativity: bool) -> Any:
    """Return the misfit of every body except Jupiter as a function of Jupiter's mass."""
    jupiter = names.index("jupiter")
    others = [i for i in range(1, len(names)) if i != jupiter]
    samples = len(seen.time) - 1

    def residual(mass: Any) -> Any:
        masses = system.mass.at[jupiter].set(mass)
        states = motion(system._replace(mass=masses), seen.time[1], samples, STEPS, relativity)
        apart = from_sun(states.position) - from_sun(seen.position[1:])
        return apart[:, others]

    return residual


def fit(
    names: list[str], system: System, seen: Observations, console: Console
) -> dict[str, np.ndarray]:
    """Fit Jupiter's mass to the motion of the others, by gradient descent and Gauss-Newton."""
    true = system.mass[names.index("jupiter")]
    start, history = 1.3 * true, {}
    table = Table("law", "method", "mass (kg)", "relative error", title="\nThe mass of Jupiter")
    for law, relativity in (("Newton", False), ("with Einstein", True)):
        residual = residual_by_mass(names, system, seen, relativity)
        loss = lambda mass, residual=residual: tnp.mean(residual(mass) ** 2)
        # Measuring so many steps takes 10 s per derivative, and float64 holds their numbers.
        slope = tj.jit(tj.grad(loss), scale=False)
        linear = tj.jit(lambda mass, f=residual: (f(mass), tj.jacfwd(f)(mass)), scale=False)
        by_mass = linear(start)[1]
        # 0.8 of the rate that reaches a parabola's minimum: every step leaves a fifth of the error.
        rate = 0.8 / (2 * tnp.mean(by_mass**2))
        console.print(f"{law}: slope in {slope(start).unit}, rate {rate:.2e}", highlight=False)
        masses = [start]
        for _ in track(range(DESCENT_STEPS), f"{law}: descent", console=console):
            masses.append(masses[-1] - rate * slope(masses[-1]))
        history[f"gradient descent, {law}"] = masses
        masses = [start]
        for _ in range(3):
            misfit, by_mass = linear(masses[-1])
            masses.append(masses[-1] - tnp.sum(by_mass * misfit) / tnp.sum(by_mass**2))
        history[f"Gauss-Newton, {law}"] = masses
    for name, masses in history.items():
        method, law = name.split(", ")
        off = float(masses[-1] / true - 1)
        table.add_row(law, method, f"{masses[-1].to_value('kg'):.8e}", f"{off:+.1e}")
        require(abs(off) < (1e-4 if law == "Newton" else 2e-6), f"the mass of Jupiter, {name}")
    console.print(table, f"the ephemeris has {true.to('kg'):.8e}", highlight=False)
    of_g = tj.units.constants.uncertainty("gravitational_constant") / G.value
    console.print(f"(all masses in kg share the uncertainty of G, {of_g:.1e} of it)\n")
    return {k: np.array([abs(float(m / true - 1)) for m in v]) for k, v in history.items()}


def mistake(system: System, console: Console) -> None:
    """Check the error for a learning rate without its unit: J/kg cannot be subtracted from kg."""
    slope = tj.grad(total_energy)(system).mass
    try:
        system.mass - 1e-3 * slope
    except tj.UnitError as error:
        console.print("A learning rate without a unit:", highlight=False)
        console.print(str(error), style="italic", highlight=False)
    else:
        raise SystemExit("a step of the wrong dimension went unnoticed")


def main() -> None:
    parser = argparse.ArgumentParser(description="The solar system in quantities.")
    parser.add_argument("--output", type=Path, default=Path("tanjax_demo"), help="for the picture")
    path = parser.parse_args().output / "solar_system.png"
    console = Console()
    names, system, seen = read()
    force = energy_and_its_gradient(names, system, console)
    tides(names, system, console)
    errors = follow(names, system, seen, console)
    history = fit(names, system, seen, console)
    mistake(system, console)
    picture.draw(path, names, seen, force, errors, history)
    console.print(f"picture: {path.resolve()}", soft_wrap=True)


if __name__ == "__main__":
    main()
