"""A Gaussian process on the CO₂ record of Mauna Loa, with a covariance that is never formed.

    python docs/examples/gaussian_process.py [--output DIRECTORY]

The script fits nine hyper-parameters to the weeks before 1998 by maximum marginal likelihood. It
compares value, gradient, time and memory with dense JAX, forecasts the held-out weeks, and draws
the result. Then it does the same with an array type defined in this example
(`co2/feature_covariance.py`), and measures the effect of each of its parts. It exits with an error
if anything disagrees.
"""

from __future__ import annotations

import argparse
import importlib
import warnings
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import scipy.optimize  # noqa: E402
from co2 import feature_covariance, measure, model, picture  # noqa: E402
from co2.record import Record, read_record  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: E402

import tanjax as tj  # noqa: E402

HELD_OUT_FROM = 1998.0
FORECAST_UNTIL = 2008.0
MAX_ITERATIONS = 200


def fit(name: str, likelihood: measure.Measured, console: Console) -> np.ndarray:
    """Minimise the negative log marginal likelihood by L-BFGS-B; return the hyper-parameters."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TextColumn("−log p = {task.fields[value]:.3f}"), console=console
    ) as bar:
        task = bar.add_task(f"fit {name}", total=MAX_ITERATIONS, value=likelihood.value)

        def advance(intermediate_result: Any) -> None:
            bar.update(task, advance=1, value=float(intermediate_result.fun))

        result = scipy.optimize.minimize(
            lambda theta: tuple(map(np.asarray, likelihood.run(jnp.asarray(theta)))),
            model.START,
            jac=True,
            method="L-BFGS-B",
            callback=advance,
            options={"maxiter": MAX_ITERATIONS},
        )
        bar.update(task, completed=result.nit, total=result.nit, value=float(result.fun))
    if not result.success:
        raise SystemExit(f"the optimiser stopped early: {result.message}")
    console.print(f"{result.nit} iterations, {result.nfev} evaluations of value and gradient\n")
    return result.x


def require_agreement(candidates: list[measure.Measured], reference: measure.Measured) -> None:
    """Exit with an error unless all candidates give the reference's value and gradient."""
    if wrong := measure.disagreements(candidates, reference):
        raise SystemExit(f"disagreement with {reference.name}:\n" + "\n".join(wrong))


def compare_with_dense(seen: Record, y: np.ndarray, console: Console) -> measure.Measured:
    """Compare the covariance in types of tanjax with plain JAX, on every week of the fit."""
    ours = measure.compiled(
        "tj.LowRankUpdate",
        model.likelihood(model.low_rank_update, seen.year, y),
        model.START,
    )
    dense = measure.compiled(
        "dense JAX, Cholesky", model.dense_likelihood(seen.year, y), model.START
    )
    measure.time_interleaved([dense, ours], model.START, rounds=5)
    title = f"Marginal likelihood of {y.size} weeks, {model.features(seen.year).shape[1]} features"
    console.print(measure.comparison(title, [dense, ours], dense), "")
    require_agreement([ours], dense)
    return ours


def forecast(
    theta: np.ndarray, seen: Record, unseen: Record, y: np.ndarray, path: Path, console: Console
) -> None:
    """Report the errors of the fit on both parts of the record, and draw it."""
    mean = float(seen.ppm.mean())
    grid = np.arange(seen.year[0], FORECAST_UNTIL, 1 / 52)
    at = [
        model.posterior(model.low_rank_update, theta, seen.year, y, year)
        for year in (seen.year, unseen.year, grid)
    ]
    residuals = [
        record.ppm - mean - np.asarray(p.mean)
        for record, p in zip((seen, unseen), at[:2], strict=True)
    ]
    for name, r, p in zip(("used", "held out"), residuals, at[:2], strict=True):
        inside = np.mean(np.abs(r) < 1.96 * np.asarray(p.total_std))
        rms = np.sqrt(np.mean(r**2))
        console.print(f"{r.size} weeks {name}: rms {rms:.2f} ppm, {inside:.1%} in the 95 % band")
    for name, value in model.Parameters(*theta)._asdict().items():
        shown = value if name == "noise_growth" else np.exp(value)
        unit = "years" if name.endswith("length") else "ppm" if name.endswith("std") else ""
        console.print(f"  {name:12} {shown:7.3f} {unit}", highlight=False)
    picture.draw(path, seen, unseen, mean, (grid, at[2]), (residuals[0], residuals[1]))
    console.print(f"picture: {path.resolve()}\n", soft_wrap=True)


def build_up(seen: Record, y: np.ndarray, console: Console) -> None:
    """Measure a custom array type, part by part, on every fourth week.

    The closed forms of the second stage are `apply`, `transposed`, `diagonal` and
    `pullback_of_destructure`.
    """
    year, y = seen.year[::4], y[::4]
    plain, own = feature_covariance.PlainCovariance, feature_covariance.FeatureCovariance
    stages = [
        ("to_dense alone", plain, None),
        ("+ four closed forms", own, None),
        ("+ solve", own, "co2.feature_solve"),
        ("+ logdet, inv", own, "co2.feature_logdet"),
        ("+ rules of its own", own, "co2.feature_rules"),
    ]
    measured = []
    for name, cls, rules in stages:
        if rules:
            importlib.import_module(rules)  # registers implementations
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", tj.DensifyWarning)
            likelihood = model.likelihood(cls, year, y)
            measured.append(measure.compiled(name, likelihood, model.START))
        for warning in caught:
            console.print(f"{name}: {str(warning.message).splitlines()[0]}", soft_wrap=True)
    measure.time_interleaved(measured, model.START, rounds=7)
    title = f"A type of one's own, part by part, on {y.size} weeks"
    console.print("", measure.comparison(title, measured, measured[0]), "")
    require_agreement(measured[1:], measured[0])


def fit_own_type(
    ours: measure.Measured, theta: np.ndarray, seen: Record, y: np.ndarray, console: Console
) -> None:
    """Repeat the fit with the type of this example; raise if any operation densifies."""
    likelihood = model.likelihood(feature_covariance.FeatureCovariance, seen.year, y)
    with tj.densify("error"):
        own = measure.compiled("FeatureCovariance", likelihood, model.START)
    measure.time_interleaved([ours, own], model.START, rounds=15)
    title = f"Shipped types and a type of one's own, on {y.size} weeks"
    console.print(measure.comparison(title, [ours, own], ours), "")
    require_agreement([own], ours)
    theirs = fit("FeatureCovariance", own, console)
    value, again = (float(ours.run(jnp.asarray(t))[0]) for t in (theta, theirs))
    if not np.isclose(value, again, rtol=1e-6):
        raise SystemExit(f"the two fits differ: −log p = {value:.6f} and {again:.6f}")
    console.print(f"both fits agree: −log p = {value:.4f} and {again:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit a Gaussian process to the CO₂ record.")
    parser.add_argument("--output", type=Path, default=Path("tanjax_demo"), help="for the picture")
    path = parser.parse_args().output / "mauna_loa.png"
    console = Console()
    record = read_record()
    seen = record.where(record.year < HELD_OUT_FROM)
    unseen = record.where(record.year >= HELD_OUT_FROM)
    y = seen.ppm - seen.ppm.mean()
    ours = compare_with_dense(seen, y, console)
    theta = fit("tj.LowRankUpdate", ours, console)
    forecast(theta, seen, unseen, y, path, console)
    build_up(seen, y, console)
    fit_own_type(ours, theta, seen, y, console)


if __name__ == "__main__":
    main()
