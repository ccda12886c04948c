"""The programs of `bench_scale.py`: in range, out of range, chains, time steps, networks.

Every call makes a new program, so that no cache has seen it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Program = Callable[..., Any]

GRAVITY, SUN, EARTH = 6.6743e-11, 1.98892e30, 5.9722e24
EQUATIONS_OF_A_STEP, EQUATIONS_OF_A_BLOCK = 14, 27


def in_range(n: int) -> Program:
    """Return `n` products and sums that stay near their inputs; the fixed point is 2.5."""

    def program(x: Any) -> Any:
        for _ in range(n // 4):
            x = x * 0.5
            x = x + 1.0
            x = x * 0.8
            x = x + 0.7
        return x

    return program


def out_of_range(n: int) -> Program:
    """Return `n` products and sums; every fourth leaves float32, and XLA cannot join any."""

    def program(x: Any) -> Any:
        for _ in range(n // 8):
            x = x * 1e25 + 1e24
            x = x * 1e20 + 1e30
            x = x * 1e-25 + 1.0
            x = x * 5e-21 + 0.5
        return x

    return program


def with_a_zero(n: int) -> Program:
    """Return the same, never below 0: a 0 in the result may be a number that underflowed."""
    inner = out_of_range(n)
    return lambda x: jnp.maximum(inner(x), 0.0)


def orbit(n: int) -> Program:
    """Return a planet's orbit in SI, by Newton's force between two masses; float32 overflows."""

    def program(x: Any) -> Any:
        v = jnp.array([0.0, 2.98e4, 0.0], x.dtype)
        for _ in range(n // EQUATIONS_OF_A_STEP):
            force = GRAVITY * (SUN * (EARTH * -x)) / jnp.sum(x * x) ** 1.5
            v = v + 3600.0 * (force / EARTH)
            x = x + 3600.0 * v
        return x

    return program


def there_and_back(factor: float, n: int) -> Program:
    """Return `n // 4` times `x * factor + 1`, then as often about the inverse."""

    def program(x: Any) -> Any:
        for _ in range(n // 4):
            x = x * factor + 1.0
        for _ in range(n // 4):
            x = (x - 0.5) * (1.0 / factor)
        return x

    return program


def affine(factor: float, term: float, n: int) -> Program:
    """Return `n` times `factor * x + term`, with numbers rounded to float32."""
    factor, term = float(np.float32(factor)), float(np.float32(term))

    def program(x: Any) -> Any:
        for _ in range(n):
            x = x * factor + term
        return x

    return program


def power(n: int) -> Program:
    """Return `x` to the power of `n`, step by step."""

    def program(x: Any) -> Any:
        y = x
        for _ in range(n - 1):
            y = y * x
        return y

    return program


# -- graphs for the planner -------------------------------------------------------------------


def long_chain(n: int) -> tuple[Program, list[Any]]:
    """Return products by constants, out of range every few equations."""
    return out_of_range(n), [jnp.linspace(1.0, 2.0, 3, dtype=jnp.float32)]


def network(n: int) -> tuple[Program, list[Any]]:
    """Return blocks as in a transformer on numbers near 1e30: norm, attention, a tanh layer."""
    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.normal(size=(4, 4)) / 2, jnp.float32) for _ in range(4)]
    x = jnp.asarray(rng.normal(size=(3, 4)) * 1e30, jnp.float32)

    def program(x: Any, q: Any, k: Any, v: Any, w: Any) -> Any:
        for _ in range(max(1, n // EQUATIONS_OF_A_BLOCK)):
            y = x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True))
            attention = jax.nn.softmax((y @ q) @ (y @ k).T / 2.0)
            x = x + 1e30 * jnp.tanh(attention @ (y @ v) @ w)
        return x

    return program, [x, *weights]


def time_steps(n: int) -> tuple[Program, list[Any]]:
    """Return steps of a planet's orbit in SI."""
    return orbit(n), [jnp.array([1.5e11, 1e9, 0.0], jnp.float32)]


GRAPHS = {"chain": long_chain, "blocks of a network": network, "time steps in SI": time_steps}
