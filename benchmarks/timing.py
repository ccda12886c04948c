"""Fair timing on a shared machine.

Contenders run in turn within one process, so that a slow moment affects all of them. Results are
ratios within a round, and their median over rounds.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


@dataclasses.dataclass
class Times:
    """Seconds per call, one number per round and contender."""

    rounds: dict[str, list[float]]

    def median(self, name: str) -> float:
        """Return the median time of a contender."""
        return statistics.median(self.rounds[name])

    def ratio(self, name: str, base: str) -> float:
        """Return the median of the ratios within rounds."""
        pairs = zip(self.rounds[name], self.rounds[base], strict=False)
        return statistics.median(a / b for a, b in pairs)

    def ratio_of_minima(self, name: str, base: str) -> float:
        """Return the ratio of the best times: a cross-check that noise hardly moves."""
        return min(self.rounds[name]) / min(self.rounds[base])


def interleave(
    functions: dict[str, Callable[[], Any]],
    rounds: int,
    span: float = 4e-3,
    few: dict[str, int] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    steps: int = 0,
) -> Times:
    """Time functions in turn; each turn repeats a function for about `span` seconds.

    **Arguments:** `few`: contenders that only take part in the given number of first rounds.
    `clock`: `time.process_time` for calls that run in Python alone, as it ignores other jobs on
    the core. `steps`: repeat each so often instead, the first time unmeasured: the steps of a
    loop, where some are queued while others run.
    """
    if steps:
        repeats = dict.fromkeys(functions, steps)
        for function in functions.values():
            _repeat(function, 2 * steps, clock)
    else:
        repeats = {name: max(1, int(span / _once(f, clock))) for name, f in functions.items()}
    names, taken = list(functions), {name: list[float]() for name in functions}
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            if i < (few or {}).get(name, rounds):
                taken[name].append(_repeat(functions[name], repeats[name], clock))
    return Times(taken)


def _once(function: Callable[[], Any], clock: Callable[[], float]) -> float:
    jax.block_until_ready(function())
    return max(1e-9, _repeat(function, 1, clock))


def _repeat(function: Callable[[], Any], count: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(count):
        out = function()
    jax.block_until_ready(out)
    return (clock() - start) / count


def compiled_gradient(loss: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, int]:
    """Return the compiled value-and-gradient for the first argument, and its scratch in bytes."""
    function = jax.jit(jax.value_and_grad(loss))
    scratch = function.lower(*args).compile().memory_analysis().temp_size_in_bytes
    return lambda: function(*args), int(scratch)


def check_agreement(outputs: dict[str, Any], base: str, tolerance: float) -> None:
    """Raise unless every contender gives the value and the gradient of `base`."""
    expected = [np.asarray(x, np.float64) for x in jax.tree.leaves(outputs[base])]
    for name, output in outputs.items():
        got = [np.asarray(x, np.float64) for x in jax.tree.leaves(output)]
        for e, g in zip(expected, got, strict=True):
            error = np.max(np.abs(e - g)) / np.max(np.abs(e))
            if not (e.shape == g.shape and error < tolerance):
                raise AssertionError(f"{name} disagrees with {base}: relative error {error:.1e}")
