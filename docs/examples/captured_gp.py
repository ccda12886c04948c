"""The Gaussian process of `gaussian_process.py`, captured: its costs, and the savings of passes.

    python docs/examples/captured_gp.py

The script captures the marginal likelihood and prints its cost by equation. Then it runs two
passes. One shares a factorisation between `solve` and `logdet`. The other reorders a forecast,
written as in a textbook with an inverse and products of large matrices. The last program is the
Kalman filter of `kalman.py`, which needs the factors of one matrix four times per step.

The script counts factorisations in the program and after XLA's own passes. Times are the fastest of
interleaved runs. It exits with an error if a new program disagrees with the function.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import kalman  # noqa: E402
import numpy as np  # noqa: E402
from co2 import model  # noqa: E402
from co2.record import read_record  # noqa: E402
from rich import box  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import tanjax as tj  # noqa: E402

FACTORS = ("lu", "cholesky", "eigh")
LAPACK = re.compile(r'custom_call_target="lapack_\w*(?:getrf|potrf|syevd)\w*"')
STRIDE, ROUNDS = 2, 11


def factorisations(jaxpr: Any) -> int:
    """Return the number of factorisations that a jaxpr runs, with all iterations of loops."""
    count = 0
    for eqn in jaxpr.eqns:
        name, times = eqn.primitive.name, eqn.params.get("length", 1)
        inner = [v for v in eqn.params.values() if hasattr(v, "eqns")]
        inner = [] if name == "custom_linear_solve" else inner  # these use existing factors
        count += (times if name == "scan" else 1) * sum(
            factorisations(getattr(j, "jaxpr", j)) for j in inner
        )
        count += name in FACTORS
    return count


def fastest(run: Callable[..., Any], others: Callable[..., Any], *args: Any) -> tuple[float, float]:
    """Return the milliseconds of the fastest runs of two functions, run in turn."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for f in (run, others):
        jax.block_until_ready(f(*args))
    for _ in range(ROUNDS):
        for f, found in zip((run, others), seconds, strict=True):
            began = time.perf_counter()
            jax.block_until_ready(f(*args))
            found.append(time.perf_counter() - began)
    first, second = (1e3 * min(found) for found in seconds)
    return first, second


def compare(title: str, program: Any, rewritten: Any, args: Any, console: Console) -> None:
    """Print counts and times before and after a pass, for the value, and with the gradient."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in ("flops\n(value)", "factorisations\nas written", "after XLA", "eager", "compiled"):
        table.add_column(name, justify="right")
    flops = [tj.programs.passes.cost(p).total.flops for p in (program, rewritten)]
    for what, derive in (("value", lambda f: f), ("with gradient", jax.value_and_grad)):
        functions = [derive(program), derive(rewritten)]
        traced = [jax.jit(f).trace(*args) for f in functions]
        compiled = [t.lower().compile() for t in traced]
        results = (jax.tree.leaves(f(*args)) for f in reversed(compiled))
        for got, want in zip(*results, strict=True):
            if not np.allclose(got, want, rtol=1e-7, atol=1e-7 * np.max(np.abs(want))):
                raise SystemExit(f"{title}: {what} disagrees")
        fast = fastest(*compiled, *args)
        eager = fastest(*functions, *args) if what == "value" else None
        for i, name in enumerate(("as written", "rewritten")):
            written = factorisations(traced[i].jaxpr.jaxpr)
            left = len(LAPACK.findall(compiled[i].as_text()))
            table.add_row(
                f"{what}, {name}",
                f"{flops[i] / 1e6:.1f} M" if eager else "",
                str(written),
                str(left),
                f"{eager[i]:.2f} ms" if eager else "",
                f"{fast[i]:.2f} ms",
                end_section=bool(i),
            )
    console.print(table)


def forecast(year: Any, y: Any, at: Any) -> Callable[[Any], Any]:
    """Return the mean of the process at other times, written as in a textbook."""
    phi, phi_at, y = model.features(year), model.features(at), jnp.asarray(y)

    def mean(theta: Any) -> Any:
        p = model.Parameters(*theta)
        weights = tj.Diagonal(model.variances(p))
        k = model.low_rank_update(model.noise_variance(p, year), weights.diag, phi)
        return jnp.sum(phi_at @ (weights @ phi.T) @ tj.inv(tj.destructure(k)) @ y)

    return mean


def main() -> None:
    console = Console(width=118)
    record = read_record()
    year, ppm = record.year[::STRIDE], record.ppm[::STRIDE]
    y, theta = ppm - ppm.mean(), jnp.asarray(model.START)

    likelihood = model.likelihood(model.low_rank_update, year, y)
    program = tj.capture(likelihood)(theta)
    table = tj.programs.passes.cost(program)
    dear = [row for row in table if row.flops > 0.01 * table.total.flops]
    console.print(f"The likelihood of {y.size} weeks in {len(program)} equations; dear are")
    console.print(tj.programs.passes.CostTable(program.name, dear))
    console.print(f"of {table.total.flops / 1e6:.1f} million operations in all.\n")
    shared = tj.programs.passes.share_factorizations.rewrite(program)
    title = "Gaussian process, likelihood: share_factorizations"
    compare(title, program, shared, (theta,), console)

    at = np.linspace(1958, 2008, 500)
    mean = tj.capture(forecast(year[::4], y[::4], at))(theta)
    ordered = tj.programs.passes.reassociate.rewrite(mean)
    compare("Gaussian process, forecast: reassociate", mean, ordered, (theta,), console)

    ys = kalman.observations()
    p = jnp.asarray(0.5), jnp.full(kalman.SENSORS, -1.0)
    loss = lambda q, r: -kalman.kalman(kalman.model(q, r), ys)[0]
    step = tj.capture(loss)(*p)
    once = tj.programs.passes.share_factorizations.rewrite(step)
    compare("Kalman filter: share_factorizations", step, once, p, console)


if __name__ == "__main__":
    main()
