"""Systems of definite tridiagonal matrices against LAPACK: value and gradient.

    python benchmarks/definite_bands.py

The table of docs/pages/factorizations.md: ratios to `jax.lax.linalg.tridiagonal_solve`, which
exchanges rows and eliminates again in each direction, for `tj.solve` with and without
`definite=True`. Medians of ratios, in one process.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip  first of all

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from timing import interleave

import tanjax as tj

ROWS, COLUMNS = (64, 512, 4096), (1, 4, 8, 16, 64)


def by_lapack(diag: Any, off: Any, b: Any) -> Any:
    below, above = jnp.pad(off, (1, 0)), jnp.pad(off, (0, 1))
    return jnp.sum(jnp.sin(lax.linalg.tridiagonal_solve(below, diag, above, b)))


def ours(definite: bool) -> Any:
    def loss(diag: Any, off: Any, b: Any) -> Any:
        return jnp.sum(jnp.sin(tj.solve(tj.SymTridiagonal(diag, off, definite), b)))

    return loss


def main() -> None:
    losses = {"LAPACK": by_lapack, "definite": ours(True), "plain": ours(False)}
    print("rows columns definite plain (both / LAPACK)")
    for n in ROWS:
        for k in COLUMNS:
            rng = np.random.default_rng(0)
            numbers = rng.uniform(2.5, 3.5, n), rng.uniform(-1, 1, n - 1), rng.normal(size=(n, k))
            args = [jnp.asarray(x, jnp.float32) for x in numbers]
            runs = {name: jax.jit(jax.value_and_grad(f, (0, 1, 2))) for name, f in losses.items()}
            values = {name: run(*args) for name, run in runs.items()}
            for other in values.values():
                jax.tree.map(
                    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3),
                    other, values["LAPACK"],
                )  # fmt: skip
            call = lambda run, args=args: lambda: jax.block_until_ready(run(*args))
            times = interleave({name: call(run) for name, run in runs.items()}, 25)
            ratios = [times.ratio(name, "LAPACK") for name in ("definite", "plain")]
            print(f"{n:4} {k:7}", *(f"{r:8.2f}" for r in ratios), flush=True)


if __name__ == "__main__":
    main()
