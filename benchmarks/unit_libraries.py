"""The contenders of `bench_units.py`: plain JAX, tanjax, and other unit libraries if installed."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import tanjax as tj
import tanjax.numpy


@dataclasses.dataclass(frozen=True)
class Library:
    """One library for units, and the operands of every call in it."""

    name: str
    version: str
    xp: Any  # the counterparts of `jax.numpy`, its `linalg` and its `fft`
    linalg: Any
    fft: Any
    wrap: Callable[[Any, str], Any]  # an array, and the name of a unit
    to: Callable[[Any, str], Any]
    jit: Callable[..., Any]
    grad: Callable[..., Any]

    def operands(self) -> Operands:
        """Return the operands of the eager calls, in this library."""
        return Operands(self)


class Operands:
    """Three numbers, a 3 × 3 matrix and a large one, each in the units of the calls."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.xp, self.linalg, self.fft = library.xp, library.linalg, library.fft
        self.to, self.wrap = library.to, library.wrap
        wrap = library.wrap
        numbers, matrix = jnp.array([3.0, 1.0, 2.0]), jnp.eye(3) + 0.25
        large = jnp.ones((1000, 1000)) / 4
        self.numbers, self.index, self.mask = numbers, jnp.array([0, 2]), numbers > 1.5
        self.x, self.y = wrap(numbers, "m"), wrap(numbers + 1.0, "m")
        self.km, self.s = wrap(numbers, "km"), wrap(numbers, "s")
        self.pure = wrap(numbers / 4.0, "1")
        self.low, self.high = wrap(jnp.float32(1.5), "m"), wrap(jnp.float32(2.5), "m")
        self.a, self.b, self.f = wrap(matrix, "m"), wrap(matrix.T, "s"), wrap(numbers, "N")
        self.large, self.large2 = wrap(large, "m"), wrap(large + 1.0, "m")


def plain() -> Library:
    """Return `jax.numpy` on numbers, the base of all comparisons."""
    factor = {"km": 1e-3, "m": 1.0}
    return Library(
        "plain",
        jax.__version__,
        jnp,
        jnp.linalg,
        jnp.fft,
        wrap=lambda array, unit: jnp.asarray(array),
        to=lambda x, unit: x * factor[unit],
        jit=jax.jit,
        grad=jax.grad,
    )


def ours() -> Library:
    """Return tanjax."""
    units = {name: tj.unit(name) for name in ("m", "km", "s", "N", "cm", "mm")} | {
        "1": tj.units.one
    }
    xp = tanjax.numpy
    return Library(
        "tanjax",
        tj.__version__,
        xp,
        xp.linalg,
        xp.fft,
        wrap=lambda array, unit: array * units[unit],
        to=lambda q, unit: q.to(units[unit]),
        jit=tj.jit,
        grad=tj.grad,
    )


def unxt() -> Library:
    """Return unxt, through quaxed: JAX's functions in quax."""
    import quaxed
    import quaxed.numpy as xp
    import unxt

    units = {name: unxt.unit(name) for name in ("m", "km", "s", "N")} | {"1": unxt.unit("")}
    return Library(
        "unxt",
        importlib.metadata.version("unxt"),
        xp,
        xp.linalg,
        xp.fft,
        wrap=lambda array, unit: unxt.Quantity(array, units[unit]),
        to=lambda q, unit: q.uconvert(units[unit]),
        jit=jax.jit,
        grad=quaxed.grad,
    )


def saiunit() -> Library:
    """Return saiunit."""
    import saiunit

    units = {
        "m": saiunit.meter,
        "km": saiunit.kmeter,
        "s": saiunit.second,
        "N": saiunit.newton,
        "1": saiunit.UNITLESS,
    }
    return Library(
        "saiunit",
        importlib.metadata.version("saiunit"),
        saiunit.math,
        saiunit.linalg,
        saiunit.fft,
        wrap=lambda array, unit: saiunit.Quantity(array, unit=units[unit]),
        to=lambda q, unit: q.to(units[unit]),
        jit=jax.jit,
        grad=saiunit.autograd.grad,
    )


def installed() -> tuple[list[Library], list[str]]:
    """Return the contenders that can be imported, and for each other one the reason."""
    found, missing = [plain(), ours()], []
    for make in (unxt, saiunit):
        try:
            found.append(make())
        except ImportError as error:
            missing.append(f"{make.__name__} is not installed ({error}); its column is missing.")
    return found, missing
