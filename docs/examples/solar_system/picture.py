"""The example as a picture: orbits and forces, errors of the motion, the fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import tanjax as tj
import tanjax.numpy as tnp

from .model import Observations, from_sun

COLOURS = {
    "mercury": "#8c8c8c",
    "venus": "#e0a030",
    "earth": "#1f6f8b",
    "moon": "#b5b5b5",
    "mars": "#d1495b",
    "jupiter": "#b07d4f",
    "saturn": "#c9b458",
    "uranus": "#58b0b0",
    "neptune": "#3d5a98",
}


def _orbits(
    axes: Any, bodies: list[str], names: list[str], seen: Observations, force: tj.Quantity
) -> None:
    """Draw paths, and the direction of the force on each body at the first epoch as an arrow."""
    x = from_sun(seen.position).to("au")
    chosen = [names.index(body) for body in bodies]
    length = 0.22 * tnp.max(tnp.abs(x[:, chosen]))
    axes.plot(x[0, 0, 0], x[0, 0, 1], "o", color="#f2b705", ms=7)  # the sun
    for body, i in zip(bodies, chosen, strict=True):
        axes.plot(x[:, i, 0], x[:, i, 1], ".", color=COLOURS[body], ms=4, label=body)
        arrow = length * force[i] / tnp.linalg.norm(force[i])
        tail, tip = (np.asarray(q[:2].to_value("au")) for q in (x[0, i], x[0, i] + arrow))
        style = {"arrowstyle": "->", "color": COLOURS[body]}
        axes.annotate("", tip, tail, arrowprops=style)
    axes.set(aspect="equal", xlabel=f"x ({x.unit})", ylabel=f"y ({x.unit})")
    axes.legend(frameon=False, fontsize=7, loc="upper right")


def _errors(
    axes: Any, names: list[str], seen: Observations, errors: dict[str, tj.Quantity]
) -> None:
    """Draw distances from the ephemeris; the axes take their units from the quantities."""
    for (law, error), style in zip(errors.items(), ("--", "-"), strict=True):
        for body in ("mercury", "earth", "mars"):
            distance = error[:, names.index(body)]
            look = {"color": COLOURS[body], "lw": 1.2, "label": f"{body}, {law}"}
            axes.plot(seen.time[1:], distance, style, **look)
    axes.set(yscale="log", title="Newton's law, and with Einstein's correction")
    axes.set_xlabel(f"time ({axes.xaxis.units:P})")
    axes.set_ylabel(f"distance from the ephemeris ({axes.yaxis.units:P})")
    axes.legend(frameon=False, fontsize=7, loc="lower right")


def draw(
    path: Path,
    names: list[str],
    seen: Observations,
    force: tj.Quantity,
    errors: dict[str, tj.Quantity],
    history: dict[str, np.ndarray],
) -> None:
    """Write the picture.

    **Arguments:** `force`: that on each body at the first epoch. `errors`: distances from the
    ephemeris, times by bodies, for each law. `history`: relative errors of the mass, step by step.
    """
    figure = Figure(figsize=(10, 8.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplot_mosaic([["inner", "outer"], ["errors", "fit"]])
    with tj.bridges.matplotlib.enabled():
        _orbits(axes["inner"], ["mercury", "venus", "earth", "mars"], names, seen, force)
        _orbits(axes["outer"], ["jupiter", "saturn", "uranus", "neptune"], names, seen, force)
        _errors(axes["errors"], names, seen, errors)
    axes["inner"].set_title("Two years, a point every 16 days, and the forces' directions")
    axes["outer"].set_title("The outer planets in the same time")
    for name, relative in history.items():
        style = "--" if name.endswith("Newton") else "-"
        axes["fit"].plot(relative, style, marker=".", lw=1, ms=5, label=name)
    axes["fit"].set(xlabel="step", ylabel="|mass / mass of the ephemeris − 1|", yscale="log")
    axes["fit"].set_title("The mass of Jupiter from the motion of the others")
    axes["fit"].legend(frameon=False, fontsize=7)
    for axis in axes.values():
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
