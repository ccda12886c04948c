"""Value, gradient, time and scratch memory of likelihoods, measured side by side."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.table import Table


@dataclasses.dataclass
class Measured:
    """A compiled likelihood with its gradient, and its costs."""

    name: str
    run: Callable[[Any], tuple[Any, Any]]
    value: float
    gradient: np.ndarray
    scratch: int  # bytes
    seconds: list[float] = dataclasses.field(default_factory=list)

    @property
    def milliseconds(self) -> float:
        """The median time of a value and its gradient."""
        return 1e3 * statistics.median(self.seconds)


def compiled(name: str, function: Callable[[Any], Any], theta: np.ndarray) -> Measured:
    """Compile value and gradient, and evaluate them once."""
    start = jnp.asarray(theta)
    run = jax.jit(jax.value_and_grad(function)).lower(start).compile()
    value, gradient = run(start)
    scratch = run.memory_analysis().temp_size_in_bytes
    return Measured(name, run, float(value), np.asarray(gradient), scratch)


def time_interleaved(candidates: list[Measured], theta: np.ndarray, rounds: int) -> None:
    """Time all candidates in turn, so that other load on the machine slows all of them."""
    start = jnp.asarray(theta)
    for _ in range(rounds):
        for candidate in candidates:
            began = time.perf_counter()
            jax.block_until_ready(candidate.run(start))
            candidate.seconds.append(time.perf_counter() - began)


def gradient_difference(a: Measured, b: Measured) -> float:
    """Return the largest relative difference of two gradients, over their components."""
    return float(np.max(np.abs(a.gradient - b.gradient) / np.abs(b.gradient)))


def disagreements(candidates: list[Measured], reference: Measured) -> list[str]:
    """Describe the candidates that differ from the reference: values by 1e-9, gradients by 1e-7."""
    wrong = []
    for c in candidates:
        value = abs(c.value - reference.value) / abs(reference.value)
        gradient = gradient_difference(c, reference)
        if not (value < 1e-9 and gradient < 1e-7):
            wrong.append(f"{c.name}: value differs by {value:.1e}, gradient by {gradient:.1e}")
    return wrong


def comparison(title: str, candidates: list[Measured], reference: Measured) -> Table:
    """Return the measurements as a table; gradients and speeds are relative to the reference."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("covariance")
    for column in ("value", "gradient\ndiffers by", "value and\ngradient", "speed", "scratch"):
        table.add_column(column, justify="right")
    for c in candidates:
        same = c is reference
        faster = reference.milliseconds / c.milliseconds
        table.add_row(
            c.name,
            f"{c.value:.4f}",
            "" if same else f"{gradient_difference(c, reference):.0e}",
            f"{c.milliseconds:.1f} ms",
            f"{faster:.1f} ×",
            f"{c.scratch / 1e6:.1f} MB",
        )
    return table
