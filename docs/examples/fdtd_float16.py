"""Light on a sheet of glass in float16: Maxwell's equations in SI, on a grid, with a gradient.

    python docs/examples/fdtd_float16.py [--output DIRECTORY]

A pulse of infrared light meets a dielectric slab. Yee's scheme steps the fields with the SI values
of `ε₀` and `μ₀`, cells of 20 nm and steps of 33 as: in float16 all of these numbers are zero.
Quantities hold them, and `tj.jit` finds exponents at which no number overflows or underflows. It
can only sample a loop of 1,200 steps, and warns about that.

So the example checks the results. It compares fields, reflection, transmission, and the derivative
of the transmitted energy by the permittivity with float64, with Airy's formula, and with plain JAX
in float16. It exits with an error if anything disagrees.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import tanjax as tj
import tanjax.numpy as tnp

EPSILON_0, MU_0, C = (getattr(tj.units.constants, name) for name in ("epsilon_0", "mu_0", "c"))
CELLS, SOURCE, BEFORE, BEHIND = 140, 10, 30, 115
SLAB = slice(60, 84)
CELL = 20e-9  # m
STEP = CELL / C.value / 2  # s. A wave takes two steps per cell, so the edges absorb it exactly.
FREQUENCY, WIDTH, PEAK = 200e12, 3.5e-15, 9e-15  # Hz, s, s
PERMITTIVITY = 4.0  # relative, of the slab
STEPS, EVERY = 1200, 20  # the steps, and the interval of steps between stored fields
SHOWN = np.linspace(130e12, 270e12, 71)  # Hz, where the pulse has enough energy


class Setup(NamedTuple):
    """The arguments: each step adds a number of `wave` (V/m) to the field at the source.

    The others are cell and step in m and s, the relative permittivity of the slab, two constants.
    """

    wave: Any
    dx: Any
    dt: Any
    permittivity: Any
    epsilon_0: Any = EPSILON_0
    mu_0: Any = MU_0


class Run(NamedTuple):
    """Results in SI as float64: fields at two places, all fields, the energy, its derivative."""

    before: np.ndarray
    behind: np.ndarray
    everywhere: np.ndarray
    energy: float
    slope: float


def fields(setup: Setup) -> tuple[Any, Any, Any]:
    """Return the electric field before and behind the slab, and everywhere at some steps."""
    glass = np.zeros(CELLS, bool)
    glass[SLAB] = True
    one = jnp.ones((), jnp.asarray(setup.permittivity).dtype)
    relative = jnp.where(glass, setup.permittivity, one)
    to_e = setup.dt / (setup.epsilon_0 * relative[1:-1] * setup.dx)
    to_h = setup.dt / (setup.mu_0 * setup.dx)

    def step(state: Any, drive: Any) -> Any:
        e, h, left, right = state
        h = h + to_h * (e[1:] - e[:-1])
        inner = e[1:-1] + to_e * (h[1:] - h[:-1])
        # The field next to an edge reaches the edge after two steps.
        new = tnp.concatenate([left[:1], inner, right[:1]]).at[SOURCE].add(drive)
        left, right = tnp.stack([left[1], new[1]]), tnp.stack([right[1], new[-2]])
        return (new, h, left, right), (new[BEFORE], new[BEHIND])

    @tj.checkpoint  # the gradient repeats these steps instead of storing their fields
    def steps(state: Any, drives: Any) -> Any:
        state, seen = tj.scan(step, state, drives)
        return state, (*seen, state[0])

    no_field = 0 * setup.wave[0]
    start = (
        tnp.broadcast_to(no_field, (CELLS,)),
        tnp.broadcast_to(no_field * to_h, (CELLS - 1,)),
        tnp.broadcast_to(no_field, (2,)),
        tnp.broadcast_to(no_field, (2,)),
    )
    _, (before, behind, everywhere) = tj.scan(steps, start, setup.wave.reshape(-1, EVERY))
    return before.reshape(-1), behind.reshape(-1), everywhere


def transmitted(permittivity: Any, setup: Setup) -> tuple[Any, Any]:
    """Return the energy behind the slab per area, and all fields."""
    seen = fields(setup._replace(permittivity=permittivity))
    impedance = tnp.sqrt(setup.mu_0 / setup.epsilon_0)
    return tnp.sum(seen[1] ** 2) * setup.dt / impedance, seen


def pulse(steps: int) -> np.ndarray:
    """Return the source, with 12 binary digits after the point, which float16 holds."""
    t = np.arange(steps) * STEP - PEAK
    wave = np.exp(-((t / WIDTH) ** 2)) * np.sin(2 * np.pi * FREQUENCY * t)
    return np.round(wave * 2**12) / 2**12


def setup(dtype: Any, permittivity: float, steps: int) -> Setup:
    """Return the problem in quantities of a dtype."""
    with jax.enable_x64(True):
        numbers = ((pulse(steps), "V / m"), (CELL, "m"), (STEP, "s"))
        wide = [tj.quantity(jnp.asarray(x, jnp.float64), unit) for x, unit in numbers]
        return Setup(*[q.astype(dtype) for q in wide], jnp.asarray(permittivity, dtype))


def bare(setup: Setup) -> Setup:
    """Return the same numbers without units, for plain JAX."""
    constants = {"epsilon_0": EPSILON_0.value, "mu_0": MU_0.value}
    arrays = [jnp.asarray(exact(x), setup.permittivity.dtype) for x in setup[:4]]
    return Setup(*arrays, **constants)


def exact(x: Any) -> np.ndarray:
    """Return a number in SI as float64."""
    stored, scale = (x.stored, x.scale) if type(x) is tj.Quantity else (x, 0)
    return np.ldexp(np.asarray(stored).astype(np.float64), scale)


def run(program: Any, given: Setup) -> Run:
    (energy, seen), slope = program(given.permittivity, given)
    numbers = [*seen, energy, slope]
    return Run(*map(exact, numbers))  # type: ignore[arg-type]


def spectrum(field: np.ndarray) -> np.ndarray:
    """Return the Fourier transform at the frequencies of the picture."""
    t = np.arange(len(field)) * STEP
    return np.exp(-2j * np.pi * SHOWN[:, None] * t) @ field


def ratio(field: np.ndarray, incident: np.ndarray) -> np.ndarray:
    """Return the share of the energy at each frequency; nan for a failed run."""
    with np.errstate(invalid="ignore"):
        return np.abs(spectrum(field) / spectrum(incident)) ** 2


def airy(permittivity: float) -> np.ndarray:
    """Return the transmission of a slab at normal incidence, by Airy's formula."""
    n = np.sqrt(permittivity)
    thickness = (SLAB.stop - SLAB.start) * CELL
    finesse = ((n * n - 1) / n) ** 2 / 4
    return 1 / (1 + finesse * np.sin(2 * np.pi * SHOWN * n * thickness / C.value) ** 2)


def require(condition: Any, what: str) -> None:
    """Exit with an error unless a check holds."""
    if not condition:
        raise SystemExit(f"disagreement: {what}")


class Comparison(NamedTuple):
    """One contender with the slab, and the fields without a slab in float64."""

    slab: Run
    empty: Run

    @property
    def transmission(self) -> np.ndarray:
        return ratio(self.slab.behind, self.empty.behind)

    @property
    def reflection(self) -> np.ndarray:
        return ratio(self.slab.before - self.empty.before, self.empty.before)


def contenders(steps: int, console: Console) -> tuple[Comparison, Comparison, Comparison]:
    """Run float16 with exponents, float64, and float16 in plain JAX."""
    problem = setup(jnp.float16, PERMITTIVITY, steps)
    # A check of 1,200 steps takes seconds per call; the comparison of contenders replaces it.
    ours = tj.jit(tj.value_and_grad(transmitted, has_aux=True), check="off")
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", tj.errors.ScaleWarning)
        half = run(ours, problem)
    took = time.perf_counter() - start
    run(ours, problem)
    again = time.perf_counter() - start - took
    factor = tj.scale_graph(lambda dt, dx: dt / (EPSILON_0 * dx))(problem.dt, problem.dx)
    console.print("The factor of the electric field, and what tj.jit does about it:")
    factor.report(file=console.file, width=console.width)
    console.print(f"{steps} steps and their gradient: first call {took:.1f} s", highlight=False)
    console.print(f"(planning and compiling), later {again * 1e3:.0f} ms", highlight=False)
    for warning in said:
        first = str(warning.message).splitlines()[0]
        console.print(f"ScaleWarning: {first}\n", highlight=False, soft_wrap=True)
    with jax.enable_x64(True):
        program = tj.jit(tj.value_and_grad(transmitted, has_aux=True))
        double, empty = (run(program, setup(jnp.float64, p, steps)) for p in (PERMITTIVITY, 1.0))
    plain = jax.jit(jax.value_and_grad(transmitted, has_aux=True))
    with np.errstate(all="ignore"):
        bad = run(plain, bare(problem))
    return tuple(Comparison(x, empty) for x in (half, double, bad))  # type: ignore[return-value]


def off(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference, relative to the largest number of the second."""
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))


def compare(half: Comparison, double: Comparison, plain: Comparison, console: Console) -> None:
    """Print the table, and check it."""
    table = Table("", "float64", "float16, tj.jit", "differs", "float16, jax.jit")
    names = ("field before the slab", "field behind the slab", "field everywhere")
    for name, a, b, c in zip(names, half.slab, double.slab, plain.slab, strict=False):
        sizes = [f"{np.max(np.abs(x)):.4f} V/m" for x in (b, a, c)]
        table.add_row(name, sizes[0], sizes[1], f"{off(a, b):.1e}", sizes[2])
        require(off(a, b) < 0.02, name)
    for name, unit in (("energy", "J/m²"), ("slope", "J/m² per unit of permittivity")):
        a, b, c = (float(getattr(x.slab, name)) for x in (half, double, plain))
        table.add_row(f"{name} ({unit})", f"{b:.4e}", f"{a:.4e}", f"{abs(a / b - 1):.1e}", f"{c}")
        require(abs(a / b - 1) < 0.01, name)
        require(not np.isfinite(c), f"plain float16 should fail, but its {name} is {c}")
    for name in ("transmission", "reflection"):
        a, b, c = (getattr(x, name) for x in (half, double, plain))
        shown = [f"{x.min():.3f} … {x.max():.3f}" for x in (b, a, c)]
        table.add_row(name, shown[0], shown[1], f"{np.max(np.abs(a - b)):.1e}", shown[2])
        require(np.max(np.abs(a - b)) < 0.02, name)
    by_airy = np.max(np.abs(half.transmission - airy(PERMITTIVITY)))
    table.add_row("transmission by Airy's formula", "", "", f"{by_airy:.1e}", "")
    require(by_airy < 0.02, "Airy's formula")
    console.print(table)


def draw(path: Path, half: Comparison, double: Comparison) -> None:
    """Draw the field in space and time, its error, and the spectra."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    time_fs = len(half.slab.everywhere) * EVERY * STEP * 1e15
    extent = (0, CELLS * CELL * 1e6, 0, time_fs)
    look = {"origin": "lower", "aspect": "auto", "extent": extent, "cmap": "RdBu"}
    image = left.imshow(half.slab.everywhere, vmin=-1, vmax=1, **look)
    figure.colorbar(image, ax=left, label="electric field (V/m)")
    left.set(title="float16 with tj.jit", xlabel="x (µm)", ylabel="time (fs)")
    error = half.slab.everywhere - double.slab.everywhere
    image = middle.imshow(error, vmin=-0.01, vmax=0.01, **look)
    figure.colorbar(image, ax=middle, label="difference from float64 (V/m)")
    middle.set(title="and its error", xlabel="x (µm)")
    for axis in (left, middle):
        axis.axvspan(SLAB.start * CELL * 1e6, SLAB.stop * CELL * 1e6, color="0.5", alpha=0.2, lw=0)
    f = SHOWN / 1e12
    right.plot(f, airy(PERMITTIVITY), color="0.6", lw=4, label="T, Airy's formula")
    right.plot(f, half.transmission, color="#1f6f8b", label="T, float16")
    right.plot(f, double.transmission, "k:", lw=1, label="T, float64")
    right.plot(f, half.reflection, color="#d1495b", label="R, float16")
    right.set(title="plain JAX has nan", xlabel="frequency (THz)", ylim=(0, 1.05))
    right.legend(frameon=False, fontsize=7)
    right.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description="Light on a sheet of glass in float16.")
    parser.add_argument("--output", type=Path, default=Path("tanjax_demo"), help="for the picture")
    path = parser.parse_args().output / "fdtd_float16.png"
    console = Console()
    logger = logging.getLogger("tanjax.scale")  # logs the plans
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.StreamHandler(sys.stdout))
    half, double, plain = contenders(STEPS, console)
    compare(half, double, plain, console)
    draw(path, half, double)
    console.print(f"picture: {path.resolve()}", soft_wrap=True)


if __name__ == "__main__":
    main()
