"""Realistic programs for `bench_scale.py`: networks, attention, planets, training.

Each row is a function and a way to make its arguments; those of the n-th call are new arrays of
similar magnitudes. Loops pass their state on, as training does.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

GRAVITY, SUN, UNIT_OF_LENGTH = 6.6743e-11, 1.98892e30, 1.495978707e11
OTHERS = 80  # arguments used in turn: more than are cached, so all are checked


@dataclasses.dataclass(frozen=True)
class Science:
    """A function that `make` creates on each call, and its arguments by a seed."""

    make: Callable[[], Callable[..., Any]]
    arguments: Callable[[int], tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class Loop:
    """A step `state, batch -> state`, its first state, and batches used in turn."""

    make: Callable[[], Callable[[Any, Any], Any]]
    state: Any
    batches: list[Any]


def normal(seed: int, *shape: int, size: float = 1.0, dtype: Any = jnp.float32) -> Any:
    """Return numbers of either sign, about as large as `size`."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) * size, dtype)


# -- single programs ------------------------------------------------------------------------------


def sciences() -> dict[str, Science]:
    """Return networks, a step of an N-body system, and two programs without a proof of range."""
    return {
        "an MLP step": Science(lambda: _sgd(_mlp_loss), _mlp_arguments),
        "attention": Science(
            _attention, lambda seed: tuple(normal(seed + i, 8, 128, 32) for i in range(3))
        ),
        "a convolution": Science(
            _convolution, lambda seed: (normal(seed, 4, 8, 64, 64), normal(seed + 9, 8, 8, 3, 3))
        ),
        "an N-body step, natural units": Science(
            lambda: _bodies(1.0, 1e-3), lambda seed: _system(seed, 1.0, 1.0)
        ),
        "an N-body step, SI": Science(
            lambda: _bodies(GRAVITY, 3600.0), lambda seed: _system(seed, UNIT_OF_LENGTH, SUN / 256)
        ),
        "forces between atoms": Science(
            lambda: jax.grad(_lennard_jones), lambda seed: (normal(seed, 128, 3, size=4.0),)
        ),
        "a Gaussian process": Science(
            lambda: lambda x, y: _evidence(x, y),
            lambda seed: (normal(seed, 96, 4), normal(seed + 1, 96)),
        ),
    }


def _mlp(parameters: Any, x: Any) -> Any:
    *hidden, (w, b) = parameters
    for weight, bias in hidden:
        x = jnp.tanh(x @ weight + bias)
    return x @ w + b


def _mlp_loss(parameters: Any, batch: Any) -> Any:
    x, y = batch
    return jnp.mean((_mlp(parameters, x) - y) ** 2)


def _layers(seed: int, widths: tuple[int, ...], dtype: Any = jnp.float32) -> list[Any]:
    return [
        (
            normal(seed + i, n, m, size=n**-0.5, dtype=dtype),
            normal(seed + i + 50, m, size=0.1, dtype=dtype),
        )
        for i, (n, m) in enumerate(itertools.pairwise(widths), 100)
    ]


def _mlp_arguments(seed: int) -> tuple[Any, ...]:
    return _layers(seed, (32, 64, 64, 1)), (normal(seed, 64, 32), normal(seed + 1, 64, 1))


def _sgd(loss: Callable[..., Any], rate: float = 1e-2) -> Callable[..., Any]:
    def step(parameters: Any, batch: Any) -> Any:
        gradient = jax.grad(loss)(parameters, batch)
        return jax.tree.map(lambda p, g: p - rate * g, parameters, gradient)

    return step


def _attention() -> Callable[..., Any]:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v

    return attention


def _convolution() -> Callable[..., Any]:
    def convolution(x: Any, kernel: Any) -> Any:
        return jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME"))

    return convolution


def _bodies(constant: float, step: float) -> Callable[..., Any]:
    def bodies(x: Any, v: Any, m: Any) -> Any:
        apart = x[None] - x[:, None]
        square = jnp.sum(apart**2, -1) + jnp.mean(x * x) * 1e-2  # softened: no pair is singular
        force = constant * (m[:, None, None] * m[None, :, None]) * apart / square[..., None] ** 1.5
        v = v + step * jnp.sum(force, 1) / m[:, None]
        return x + step * v, v, m

    return bodies


def _lennard_jones(x: Any) -> Any:
    apart = x[None] - x[:, None]
    itself = jnp.eye(len(x), dtype=x.dtype)
    inverse = 1 / (jnp.sum(apart**2, -1) + itself) ** 3
    return jnp.sum((inverse**2 - inverse) * (1 - itself))


def _evidence(x: Any, y: Any) -> Any:
    apart = jnp.sum((x[None] - x[:, None]) ** 2, -1)
    return y @ jnp.linalg.solve(jnp.exp(-0.5 * apart) + 0.1 * jnp.eye(len(x), dtype=x.dtype), y)


def _system(seed: int, length: float, mass: float) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    m = jnp.asarray(mass * rng.uniform(0.5, 2.0, 256), jnp.float32)
    speed = 1.0 if mass == 1.0 else 3e4
    return normal(seed, 256, 3, size=length), normal(seed + 1, 256, 3, size=speed), m


# -- new arrays at each call -----------------------------------------------------------------------


def states() -> dict[str, Loop]:
    """Return loops with a cheap step, so that the check of the arguments dominates the time."""
    parameters = [normal(i, 10_000) for i in range(100)]
    return {
        "100 parameters of 10,000 numbers and a batch": Loop(
            lambda: lambda p, x: [q - 1e-3 * (q * jnp.mean(x)) for q in p],
            parameters,
            [normal(i, 1000) for i in range(OTHERS)],
        ),
        "one array of 160,000 numbers": Loop(
            lambda: lambda x, b: jnp.tanh(x) * 1.1 + 0.01 * b,
            normal(0, 160_000),
            [jnp.float32(1.0 + i) for i in range(OTHERS)],
        ),
        "100 parameters fitted to 200,000 numbers that stay": Loop(
            lambda: lambda p, data: p - 1e-3 * data[0].T @ (data[0] @ p - data[1]) / len(data[1]),
            normal(0, 100),
            [(normal(1, 2000, 100), normal(2, 2000))],
        ),
    }


def groups_of_quantities(wrap: Callable[[Any, str], Any], seed: int) -> Any:
    """Return a dict of five dicts of six quantities."""
    units = ("m", "s", "m", "s", "m", "s")
    return {
        f"group {i}": {
            f"{unit} {k}": wrap(normal(seed + 6 * i + k, 2000) ** 2 + 1.0, unit)
            for k, unit in enumerate(units)
        }
        for i in range(5)
    }


def squares(groups: Any) -> Any:
    """Return for every quantity of a nested dict a result in its own unit."""
    return jax.tree.map(
        lambda x: (x * x + x * x * 0.5) / x, groups, is_leaf=lambda x: not isinstance(x, dict)
    )


# -- training --------------------------------------------------------------------------------------


def trainings() -> dict[str, Loop]:
    """Return Adam in float32, SGD in float16, and a network that solves a differential equation.

    Each has an ordinary size, and a size so small that a step takes little longer than its start.
    """
    return _trainings(128, 256) | {f"{n}, small": x for n, x in _trainings(64, 64, 32).items()}


def _trainings(width: int, batch: int, points: int = 64) -> dict[str, Loop]:
    widths = (16, width, width, 1)
    batches = [(normal(i, batch, 16), normal(i + 99, batch, 1)) for i in range(OTHERS)]
    half = [jax.tree.map(lambda x: x.astype(jnp.float16), b) for b in batches]
    line = jnp.linspace(0.01, 1.0, batch, dtype=jnp.float32)
    shifted = [line + 0.001 * i for i in range(OTHERS)]
    state = _moments(_layers(0, (1, points, points, 1)))
    return {
        "Adam in float32": Loop(lambda: _adam(_mlp_loss), _moments(_layers(0, widths)), batches),
        "SGD in float16": Loop(lambda: _sgd(_mlp_loss), _layers(0, widths, jnp.float16), half),
        "a PINN": Loop(lambda: _adam(_residual), state, shifted),
    }


def _moments(parameters: Any) -> Any:
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    return parameters, zeros, zeros, jnp.int32(0)


def _adam(loss: Callable[..., Any], rate: float = 1e-3) -> Callable[..., Any]:
    def step(state: Any, batch: Any) -> Any:
        p, m, v, t = state
        g = jax.grad(loss)(p, batch)
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        first, second = 1 - 0.9 ** t.astype(jnp.float32), 1 - 0.999 ** t.astype(jnp.float32)
        moved = jax.tree.map(
            lambda p, m, v: p - rate * (m / first) / (jnp.sqrt(v / second) + 1e-8), p, m, v
        )
        return moved, m, v, t

    return step


def _residual(parameters: Any, points: Any) -> Any:
    """Return the residual of `u' = -u`, `u(0) = 1`, at the points of a batch."""
    u = lambda t: 1.0 + t * _mlp(parameters, t.reshape(1, 1))[0, 0]
    return jnp.mean(jax.vmap(lambda t: (jax.grad(u)(t) + u(t)) ** 2)(points))
