"""The fit as a picture: the record with its forecast, the years around 1998, and the residuals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .model import Posterior
from .record import Record

SEEN, UNSEEN, CURVE = "#222222", "#d1495b", "#1f6f8b"


def _band(axes: Any, year: np.ndarray, p: Posterior, mean: float) -> None:
    middle, width = np.asarray(p.mean) + mean, 1.96 * np.asarray(p.total_std)
    axes.fill_between(
        year, middle - width, middle + width, color=CURVE, alpha=0.25, lw=0, label="95 % band"
    )
    axes.plot(year, middle, color=CURVE, lw=1, label="posterior mean", zorder=4)


def _points(axes: Any, record: Record, colour: str, size: float, label: str) -> None:
    axes.plot(record.year, record.ppm, ".", color=colour, ms=size, label=label, zorder=3)


def draw(
    path: Path,
    seen: Record,
    unseen: Record,
    mean: float,
    curve: tuple[np.ndarray, Posterior],
    residuals: tuple[np.ndarray, np.ndarray],
) -> None:
    """Write the picture.

    **Arguments:** `curve`: times, and the posterior at these times. `residuals`: those of the seen
    and of the unseen weeks, in ppm.
    """
    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplot_mosaic([["all", "all"], ["zoom", "residuals"]], height_ratios=[1.25, 1])
    year, p = curve
    for name, size in (("all", 1.2), ("zoom", 2.5)):
        _band(axes[name], year, p, mean)
        _points(axes[name], seen, SEEN, size, "measured, used")
        _points(axes[name], unseen, UNSEEN, size, "measured, held out")
        axes[name].set_ylabel("CO₂ (ppm)")
    axes["all"].set(xlim=(year[0], year[-1]), xlabel="year")
    axes["all"].set_title("Weekly CO₂ at Mauna Loa: Gaussian process with its forecast")
    axes["all"].legend(loc="upper left", frameon=False, markerscale=6)
    inside = (year > 1995) & (year < 2005)
    low, high = (np.asarray(p.mean)[inside] + mean).min() - 3, p.mean[inside].max() + mean + 4
    axes["zoom"].set(xlim=(1995, 2005), ylim=(low, high), xlabel="year")
    axes["zoom"].set_title("From the last weeks used into the forecast")
    axes["residuals"].axhline(0, color=CURVE, lw=1)
    for record, residual, colour in zip((seen, unseen), residuals, (SEEN, UNSEEN), strict=True):
        axes["residuals"].plot(record.year, residual, ".", color=colour, ms=1.5)
    axes["residuals"].set(xlabel="year", ylabel="measured − mean (ppm)")
    axes["residuals"].set_title(f"Residuals: std {residuals[0].std():.2f} ppm where used")
    for axis in axes.values():
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
