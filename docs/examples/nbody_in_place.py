"""The solar system, moved in place: a simulation that overwrites its state, and its gradient.

    python docs/examples/nbody_in_place.py

Positions and velocities are quantities in Refs. The leapfrog adds to them, step after step, in one
memory each, as in a textbook. JAX differentiates this program: the distance of the earth and Mars
in a year, by all present positions, velocities and masses.

A functional version must give the same numbers, finite differences must agree, and the energy must
stay constant. The script exits with an error if anything disagrees. Masses, positions and
velocities are JPL's (`solar_system/SOURCE.md`).
"""

from __future__ import annotations

import re
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from solar_system.model import G, System, read, total_energy  # noqa: E402

import tanjax as tj  # noqa: E402
import tanjax.numpy as tnp  # noqa: E402

STEPS = 365 * 4
STEP = 6.0 * tj.units.hour


def gravity(mass: Any, position: Any) -> Any:
    """Return the acceleration of every body by Newton's law."""
    apart = position - position[:, None]
    itself = jnp.eye(len(mass))
    squared = tnp.sum(apart**2, axis=-1) + itself * tj.unit("m^2")  # zero nowhere
    # Mask the mass, too: in the gradient, a body 1 m from itself would exceed all others.
    return G * tnp.sum(((1 - itself) * mass / squared**1.5)[:, :, None] * apart, axis=1)


@tj.inplace(mutates=("position", "velocity"))
def move(position: Any, velocity: Any, mass: Any, step: Any, *, steps: int) -> None:
    """Move `n` bodies by some steps: overwrite their positions and velocities, `n` by 3."""

    def leapfrog(_: Any, nothing: None) -> None:
        position[...] += velocity[...] * (step / 2)
        velocity[...] += gravity(mass, position[...]) * step
        position[...] += velocity[...] * (step / 2)

    jax.lax.fori_loop(0, steps, leapfrog, None)


def moved(system: System, step: Any, steps: int) -> System:
    """Move the bodies in functional style: every step makes a new state."""

    def leapfrog(state: System, _: None) -> tuple[System, None]:
        mass, position, velocity = state
        position = position + velocity * (step / 2)
        velocity = velocity + gravity(mass, position) * step
        return System(mass, position + velocity * (step / 2), velocity), None

    return tj.scan(leapfrog, system, None, length=steps)[0]


def require(condition: Any, what: str) -> None:
    """Exit with an error unless a check holds."""
    if not condition:
        raise SystemExit(f"disagreement: {what}")


def differs(a: Any, b: Any) -> float:
    """Return the largest difference of two quantities, relative to the second's largest entry."""
    return float(tnp.max(tnp.abs(a - b)) / tnp.max(tnp.abs(b)))


def run(names: list[str], system: System, console: Console) -> System:
    """Run a year on Refs; check the energy, the functional version, and the memory."""
    position, velocity = tj.new_ref((system.position, system.velocity))
    before = total_energy(system)
    require(move(position, velocity, system.mass, STEP, steps=STEPS) is None, "it returns nothing")
    after = System(system.mass, position[...], velocity[...])
    drift = abs(float(total_energy(after) / before - 1))
    in_functions = jax.jit(lambda s: moved(s, STEP, STEPS))(system)
    off = differs(after.position, in_functions.position)
    console.print(f"{STEPS} steps of {STEP:.0f} in place, {len(names)} bodies", highlight=False)
    console.print(f"energy {before.to('J'):.6e}, constant to {drift:.0e}", highlight=False)
    console.print(f"positions differ from those in functions by {off:.0e}", highlight=False)
    require(drift < 1e-6, "the energy is conserved")
    require(off < 1e-12, "in place and in functions")
    call = jax.jit(lambda p, v, m: [x for x in [move(p, v, m, STEP, steps=STEPS)] if x])
    compiled = call.lower(position, velocity, system.mass).compile()
    shared = compiled.memory_analysis().alias_size_in_bytes
    state = after.position.value.nbytes + after.velocity.value.nbytes
    copies = re.findall(rf"= f64\[{len(names)},3\]\S* copy\(", compiled.as_text())
    console.print(f"state {state} bytes, written in place {shared}, copied {len(copies)} times\n")
    require(shared == state, "all of the state is written in place")
    return after


def gradient(names: list[str], system: System, console: Console) -> None:
    """Differentiate the later distance of the earth and Mars by the present state."""
    earth, mars = names.index("earth"), names.index("mars")
    distance = lambda position: tnp.linalg.norm(position[earth] - position[mars]).to("m")

    @tj.refs.discharge
    def in_place(system: System) -> Any:
        position, velocity = tj.new_ref((system.position, system.velocity))
        move(position, velocity, system.mass, STEP, steps=STEPS)
        return distance(position[...])

    in_functions = lambda system: distance(moved(system, STEP, STEPS).position)
    value, slope = tj.jit(tj.value_and_grad(in_place))(system)
    _, expected = tj.jit(tj.value_and_grad(in_functions))(system)
    table = Table("body", title=f"The earth will be {value.to('au'):.6f} from Mars; this, by")
    units = {"position": "m / m", "velocity": "m / (m / s)", "mass": "m / kg"}
    for field, unit in units.items():
        table.add_column(f"{field} ({unit})", justify="right")
        off = differs(getattr(slope, field), getattr(expected, field))
        require(off < 1e-9, f"gradients by {field}, in place and in functions")
        getattr(slope, field).to(unit)  # raises if it is not
    for i, name in enumerate(names):
        sizes = [tnp.linalg.norm(getattr(slope, f)[i]).to_value(u) for f, u in units.items()]
        table.add_row(name, *(f"{float(size):.3e}" for size in sizes))
    console.print(table)
    # Finite differences for a faster earth along its way.
    along = system.velocity[earth] / tnp.linalg.norm(system.velocity[earth])
    shift = 1e-2 * tj.unit("m / s") * along

    def after(sign: int) -> Any:
        faster = system.velocity.at[earth].add(sign * shift)
        return in_place(system._replace(velocity=faster))

    by_differences = (after(+1) - after(-1)) / (2 * tnp.linalg.norm(shift))
    by_gradient = tnp.sum(slope.velocity[earth] * along)
    console.print(f"by the speed of the earth along its way: {by_gradient.to('s'):.6e},")
    console.print(f"by finite differences {by_differences.to('s'):.6e}", highlight=False)
    require(differs(by_gradient, by_differences) < 1e-6, "gradient and finite differences")


def mistake(system: System, console: Console) -> None:
    """Check that a value in the wrong unit raises before tanjax writes to the memory."""
    position = tj.new_ref(system.position)
    try:
        position[...] += system.velocity
    except tj.UnitError as error:
        console.print("\nA step without its time:", highlight=False)
        console.print(str(error), style="italic", highlight=False)
    else:
        raise SystemExit("a velocity was added to a position")
    require(differs(position[...], system.position) == 0, "nothing was written")


def main() -> None:
    console = Console()
    names, system, _ = read()
    run(names, system, console)
    gradient(names, system, console)
    mistake(system, console)


if __name__ == "__main__":
    main()
