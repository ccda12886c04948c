"""The solar system in float32 and SI: a year of motion, and gradients through it.

    python docs/examples/solar_system_float32.py [--output DIRECTORY]

The product of two masses is 10⁵⁴ to 10⁶⁰ kg², and float32 ends at 3.4·10³⁸. Plain JAX gets nan from
the energy and from the forces, which are its gradient. With `tj.jit` the same functions of the same
numbers agree with float64 to the precision of float32. The script compares the energy, a year of
motion in 1104 leapfrog steps, and the derivatives of a distance at the end by all initial masses,
positions and velocities. It exits with an error if anything disagrees.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from solar_system.model import YOSHIDA, G, System, read
from solar_system.picture import COLOURS

import tanjax as tj
import tanjax.numpy as tnp

DAYS, SAMPLES, STEPS = 16, 23, 16  # 23 times 16 days, a step of fourth order per day
WEIGHTS = [float(w) for w in YOSHIDA]
QUANTITIES = SimpleNamespace(G=G, square=tj.quantity(1.0, "m^2"))
NUMBERS = SimpleNamespace(G=G.value, square=1.0)


def require(condition: Any, what: str) -> None:
    """Exit with an error unless a check holds."""
    if not condition:
        raise SystemExit(f"disagreement: {what}")


# -- the physics: of quantities, or of plain arrays -------------------------------------------


def potential_energy(c: Any, mass: Any, position: Any) -> Any:
    apart = position[:, None] - position
    nowhere_zero = jnp.eye(len(mass), dtype=mass.dtype) * c.square
    distance = tnp.sqrt(tnp.sum(apart**2, axis=-1) + nowhere_zero)
    return -c.G * tnp.sum(tnp.triu(mass[:, None] * mass / distance, 1))


def energy(c: Any, system: System) -> Any:
    kinetic = tnp.sum(system.mass[:, None] * system.velocity**2) / 2
    return kinetic + potential_energy(c, system.mass, system.position)


def gravity(c: Any, mass: Any, position: Any) -> Any:
    """Return accelerations: the force is the gradient of the energy."""
    slope = tj.grad(lambda x: potential_energy(c, mass, x))(position)
    return -slope / mass[:, None]


def motion(c: Any, system: System, interval: Any) -> System:
    """Return the states after one `interval`, two, and so on; symplectic, of fourth order."""
    mass = system.mass

    def leapfrog(state: Any, step: Any) -> Any:
        position, velocity = state
        position = position + velocity * step / 2
        velocity = velocity + gravity(c, mass, position) * step
        return (position + velocity * step / 2, velocity), None

    lengths = tnp.tile(tnp.stack([w * interval / STEPS for w in WEIGHTS]), STEPS)

    @tj.checkpoint  # the gradient repeats an interval instead of storing its steps
    def sample(state: Any, _: None) -> Any:
        state, _ = tj.scan(leapfrog, state, lengths)
        return state, state

    start = (system.position, system.velocity)
    _, (positions, velocities) = tj.scan(sample, start, None, length=SAMPLES)
    return System(mass, positions, velocities)


def year(c: Any, first: int, second: int) -> Callable[..., Any]:
    """Return a function for the distance of two bodies after a year.

    It also returns the motion, and the energies before and after.
    """

    def distance(system: System, interval: Any) -> Any:
        states = motion(c, system, interval)
        last = System(system.mass, states.position[-1], states.velocity[-1])
        apart = last.position[first] - last.position[second]
        energies = tnp.stack([energy(c, system), energy(c, last)])
        return tnp.linalg.norm(apart), (states.position, energies)

    return distance


# -- three contenders -------------------------------------------------------------------------


def exact(x: Any) -> np.ndarray:
    """Return a number in SI as float64."""
    stored, scale = (x.stored, x.scale) if type(x) is tj.Quantity else (x, 0)
    return np.ldexp(np.asarray(stored).astype(np.float64), scale)


def together(names: list[str], system: System) -> tuple[list[str], System]:
    """Merge the earth and the moon into one body in their centre of mass.

    Barycentric positions in float32 have steps of 16 km, too coarse for an orbit of 384,000 km.
    """
    earth, moon = names.index("earth"), names.index("moon")
    others = np.array([i for i in range(len(names)) if i != moon])
    both = np.array([earth, moon])
    share = system.mass[both] / tnp.sum(system.mass[both])

    def centre(x: Any) -> Any:
        return x.at[earth].set(share @ x[both])[others]

    mass = system.mass.at[earth].add(system.mass[moon])[others]
    merged = System(mass, centre(system.position), centre(system.velocity))
    return [names[i] for i in others], merged


def given(system: System, dtype: Any) -> tuple[System, tj.Quantity]:
    """Return the system and the interval in a dtype, after rounding to float32."""
    with jax.enable_x64(True):
        rounded = [q.stored.astype(np.float32).astype(dtype) for q in system]
        arrays = [tj.quantity(jnp.asarray(x), q.unit) for x, q in zip(rounded, system, strict=True)]
        return System(*arrays), tj.quantity(jnp.asarray(DAYS * 86400.0, dtype), "s")


def stripped(arguments: Any) -> Any:
    """Return the same numbers in SI as plain arrays."""
    return jax.tree.map(lambda q: q.stored, arguments, is_leaf=lambda x: type(x) is tj.Quantity)


class Result:
    """The results of a program for the year, as float64."""

    def __init__(self, out: Any) -> None:
        (distance, (positions, energies)), slope = out
        self.distance, self.energies = exact(distance), exact(energies)
        self.positions = exact(positions)
        self.slope = System(*map(exact, slope))


def contenders(names: list[str], system: System, console: Console) -> tuple[Result, Result, Result]:
    """Run float32 by `tj.jit`, float64, and float32 by plain JAX."""
    bodies = names.index("earth"), names.index("mars")
    half, interval = given(system, jnp.float32)
    force = lambda mass, position: gravity(QUANTITIES, mass, position)
    view = tj.scale_graph(force)(half.mass, half.position)
    console.print("One evaluation of the forces in float32, and what tj.jit does about it:")
    view.report(file=console.file, width=max(console.width, 100))
    ours = tj.jit(tj.value_and_grad(year(QUANTITIES, *bodies), has_aux=True))
    start = time.perf_counter()
    first = Result(ours(half, interval))
    middle = time.perf_counter()
    ours(half, interval)
    again = time.perf_counter() - middle
    console.print(f"A year and its gradient: first call {middle - start:.1f} s", highlight=False)
    console.print(f"(planning and compiling), later {again * 1e3:.0f} ms\n", highlight=False)
    with jax.enable_x64(True):
        double = jax.jit(jax.value_and_grad(year(NUMBERS, *bodies), has_aux=True))
        second = Result(double(*stripped(given(system, jnp.float64))))
    plain = jax.jit(jax.value_and_grad(year(NUMBERS, *bodies), has_aux=True))
    with np.errstate(all="ignore"):
        return first, second, Result(plain(*stripped((half, interval))))


def off(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference, relative to the largest number of the second."""
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))


def errors(a: Result, b: Result) -> np.ndarray:
    """Return differences of heliocentric positions, relative to the distance from the sun."""
    x, y = (r.positions - r.positions[:, :1] for r in (a, b))
    return np.linalg.norm(x - y, axis=-1)[:, 1:] / np.linalg.norm(y, axis=-1)[:, 1:]


def compare(
    names: list[str], ours: Result, double: Result, plain: Result, console: Console
) -> None:
    """Print the tables, and check them."""
    table = Table("after a year", "float64", "float32, tj.jit", "differs", "float32, jax.jit")
    rows = [
        ("energy (J)", *(r.energies[1] for r in (double, ours, plain)), 1e-5),
        ("earth to mars (m)", *(r.distance for r in (double, ours, plain)), 1e-4),
    ]
    units = ("m/kg", "1", "s")
    # The acceleration of a body is its force, proportional to its mass, divided by its mass. So the
    # slopes by the masses of the earth and of mars are small differences with few float32 digits.
    kept = np.array([name not in ("earth", "mars") for name in names])
    for field, unit in zip(System._fields, units, strict=True):
        slopes = [getattr(r.slope, field)[kept] for r in (double, ours, plain)]
        name = f"its slope by {field} ({unit}), largest"
        table_rows = [float(np.max(np.abs(s))) for s in slopes]
        rows.append((name, *table_rows, 1e-4))
        require(off(slopes[1], slopes[0]) < 1e-4, name)
    for name, b, a, c, allowed in rows:
        relative = abs(float(a) / float(b) - 1)
        table.add_row(name, f"{b:.7e}", f"{a:.7e}", f"{relative:.1e}", f"{c}")
        require(relative < allowed, name)
        require(not np.isfinite(c), f"plain float32 should fail, but its {name} is {c}")
    console.print(table)
    table = Table("body", "differs from float64, of its distance from the sun", "in km")
    relative = errors(ours, double)[-1]
    apart = [np.linalg.norm(r.positions[-1] - r.positions[-1, 0], axis=-1)[1:] for r in (double,)]
    for name, error, distance in zip(names[1:], relative, apart[0], strict=True):
        table.add_row(name, f"{error:.1e}", f"{error * distance / 1e3:.0f}")
        require(error < 1e-4, f"the path of {name}")
    console.print(table)
    console.print("The last digit of a position is 16 km at the earth, and 2208 sums are rounded.")


def draw(path: Path, names: list[str], ours: Result, double: Result) -> None:
    """Draw orbits, errors over time, and the gradient body by body."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    au = tj.units.constants.astronomical_unit.value
    x, y = ((r.positions - r.positions[:, :1]) / au for r in (ours, double))
    left.plot(0, 0, "o", color="#f2b705", ms=7)
    days = DAYS * np.arange(1, SAMPLES + 1)
    for i, name in enumerate(names[1:], start=1):
        look = {"color": COLOURS[name]}
        if name in ("mercury", "venus", "earth", "mars"):
            left.plot(y[:, i, 0], y[:, i, 1], "o", mfc="none", ms=6, **look)
            left.plot(x[:, i, 0], x[:, i, 1], ".", ms=4, label=name, **look)
        middle.plot(days, errors(ours, double)[:, i - 1], lw=1.2, label=name, **look)
    left.set(aspect="equal", xlabel="x (au)", ylabel="y (au)")
    left.set_title("float32 (dots), float64 (circles)")
    left.legend(frameon=False, fontsize=7, loc="upper right")
    middle.axhline(np.finfo(np.float32).eps, color="0.6", ls=":", lw=1)
    middle.set(
        yscale="log", xlabel="time (days)", title="distance from float64 / distance from sun"
    )
    middle.legend(frameon=False, fontsize=7, ncols=2)
    places = np.arange(len(names))
    for r, width, colour, label in (
        (double, 0.8, "0.8", "float64"),
        (ours, 0.4, "#1f6f8b", "float32"),
    ):
        right.bar(
            places, np.linalg.norm(r.slope.velocity, axis=-1), width, color=colour, label=label
        )
    right.set_xticks(places, names, rotation=60, fontsize=7)
    right.set(yscale="log", ylabel="s", title="slope of earth–mars by first velocities")
    right.legend(frameon=False, fontsize=7)
    figure.suptitle(
        "A year in SI with tj.jit; plain JAX in float32 has nan everywhere", fontsize=10
    )
    for axis in (left, middle, right):
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description="The solar system in float32.")
    parser.add_argument("--output", type=Path, default=Path("tanjax_demo"), help="for the picture")
    path = parser.parse_args().output / "solar_system_float32.png"
    console = Console()
    logger = logging.getLogger("tanjax.scale")  # logs the plans
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.StreamHandler(sys.stdout))
    with jax.enable_x64(True):
        names, system = together(*read()[:2])
    ours, double, plain = contenders(names, system, console)
    compare(names, ours, double, plain, console)
    draw(path, names, ours, double)
    console.print(f"picture: {path.resolve()}", soft_wrap=True)


if __name__ == "__main__":
    main()
