"""The cost of a call before any arithmetic: constructing, eager dispatch, tracing."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from typing import Any

import hand
import jax
import jax.numpy as jnp
from cells import make_cell
from timing import interleave

import tanjax as tj


def fastest_us(function: Callable[[], Any], number: int = 2000, repeat: int = 25) -> float:
    """Return the best time of a call in microseconds."""
    function()
    return min(timeit.repeat(function, number=number, repeat=repeat)) / number * 1e6


def construct_us() -> dict[str, float]:
    """Time the construction of each array type from `jax.Array`s, n = 4.

    `Symmetric`, `Hermitian` and `Triangular` are omitted: they project their data. That costs the
    compiled projection (tens of microseconds), and one to two more to check it.
    """
    v, m, thin = jnp.ones(4), jnp.eye(4), jnp.ones((4, 2))
    d, factor = tj.Diagonal(v), jnp.ones(())
    makers: dict[str, Callable[[], Any]] = {
        "Diagonal": lambda: tj.Diagonal(v),
        "Kronecker": lambda: tj.Kronecker(m, m),
        "LowRank": lambda: tj.LowRank(thin, thin),
        "LowRankUpdate": lambda: tj.LowRankUpdate(d, thin, None),
        "BlockDiagonal": lambda: tj.BlockDiagonal(m, m),
        "Scaled": lambda: tj.Scaled(d, factor),
        "Fill": lambda: tj.Fill(factor, (4, 4)),
        "Identity": lambda: tj.Identity(4),
        "Zero": lambda: tj.Zero((4, 4)),
    }
    return {name: fastest_us(make) for name, make in makers.items()}


def mirror_ratio() -> dict[int, float]:
    """Return the time of `Symmetric` of an array relative to mirroring by hand, by size."""
    found = {}
    for n in (512, 2048):
        x = jnp.ones((n, n)) + jnp.arange(float(n))
        makers = {"tanjax": lambda x=x: tj.Symmetric(x).data, "hand": lambda x=x: hand.mirror(x)}
        found[n] = interleave(makers, 15).ratio("tanjax", "hand")
    return found


def eager_us() -> dict[str, float]:
    """Time `D @ x` and similar calls on four entries, outside `jit`, and the same in `jnp`."""
    v = jnp.arange(1.0, 5.0)
    d = tj.Diagonal(v)
    jitted = jax.jit(jnp.multiply)
    calls = {
        "Diagonal @ x": lambda: d @ v,
        "tj.solve(Diagonal, x)": lambda: tj.solve(d, v),
        "tj.logdet(Diagonal)": lambda: tj.logdet(d),
        "Diagonal + Diagonal": lambda: d + d,
        "jnp: v * v": lambda: v * v,
        "jnp: jitted v * v": lambda: jitted(v, v),
    }
    return {name: fastest_us(call) for name, call in calls.items()}


def trace_ms(structure: str, *, cold: bool, contender: str = "tanjax") -> float:
    """Time a trace of value and gradient of a solve, n = 64, best of fresh functions.

    `cold` clears the caches of operations and of JAX, as in the first call of a program.
    """
    cell = make_cell(structure, "solve", 64)
    args, loss = cell.arguments[contender], cell.losses[contender]
    times = []
    for _ in range(3 if cold else 12):
        if cold:
            jax.clear_caches()
            for op in tj.rules.operations():
                op._forget()
        fresh = lambda *a: loss(*a)
        start = time.perf_counter()
        jax.jit(jax.value_and_grad(fresh)).trace(*args)
        times.append(time.perf_counter() - start)
    return min(times) * 1e3
