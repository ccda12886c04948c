"""Arguments of random programs, and their changes from call to call.

Faults of a planner depend on magnitudes and sequences. Examples are numbers over the whole range of
a dtype, one huge entry in the tail, and a call that differs from the last one only in a flag.
Numbers are chosen by their logarithm and are exact in the dtype, so that the reference has the
same.

    values = ordinary(random, "float32", "v", (3,))
    change(random, "drift", values, ...)
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._typing import Shape

from ._programs import DTYPES, Argument, Call

MODES = (
    "repeat",
    "same values",
    "drift",
    "drift",
    "jump",
    "jump",
    "swap",
    "switch",
    "switch",
    "tail",
    "zero",
    "special",
    "back",
    "ordinary",
    "wide",
    "exact",
)


def limits(dtype: str) -> tuple[float, float]:
    """Return log10 of the smallest normal and the largest number."""
    info = jnp.finfo(DTYPES[dtype])
    return float(np.log10(float(info.tiny))) + 0.1, float(np.log10(float(info.max))) - 0.1


def held(x: PyTree, dtype: str) -> PyTree:
    """Return the nearest numbers of the dtype, in float64; subnormal ones are zero, as in XLA."""
    with np.errstate(all="ignore"):
        out = np.asarray(x, np.float64).astype(DTYPES[dtype]).astype(np.float64)
    return np.where(np.abs(out) < float(jnp.finfo(DTYPES[dtype]).tiny), 0.0, out)


def _signs(random: np.random.Generator, shape: Shape) -> PyTree:
    if random.random() < 0.7:
        return np.ones(shape)
    return random.choice([-1.0, 1.0], shape)


def magnitudes(random: np.random.Generator, dtype: str, shape: Shape) -> PyTree:
    """Return numbers in the range of the dtype: near 1, of one magnitude, or spread out."""
    low, high = limits(dtype)
    center = random.normal(0, 0.7) if random.random() < 0.4 else random.uniform(low, high)
    spread = random.choice([0.2, 0.2, 0.5, 3.0, high / 2, high - low])
    powers = np.clip(center + spread * random.uniform(-0.5, 0.5, shape), low, high)
    return held(_signs(random, shape) * 10.0**powers, dtype)


def ordinary(random: np.random.Generator, dtype: str, shape: Shape) -> PyTree:
    """Return numbers near 1."""
    return held(_signs(random, shape) * 10.0 ** random.uniform(-0.5, 0.5, shape), dtype)


def first(
    random: np.random.Generator, dtype: str, argument: Argument, shape: tuple[int, ...], size: int
) -> PyTree:
    """Return an argument of a first call."""
    if argument.is_float:
        return magnitudes(random, dtype, shape if argument.kind == "v" else shape[:0])
    return _whole(random, argument, size)


def _whole(random: np.random.Generator, argument: Argument, size: int) -> PyTree:
    if argument.kind == "flag":
        return np.bool_(random.integers(2))
    return np.int32(random.integers(0, max(size, 1) if argument.kind == "index" else 7))


def sequence(
    random: np.random.Generator,
    dtype: str,
    arguments: PyTree,
    shape: Shape,
    size: int,
    length: int,
    mapped: PyTree,
) -> tuple[Call, ...]:
    """Return calls, each a change of the one before; `mapped`: a leading axis of every float."""
    lead = () if mapped is None else (mapped,)

    def new(argument: Argument) -> PyTree:
        if not argument.is_float:
            return _whole(random, argument, size)
        own = lead + (shape if argument.kind == "v" else ())
        return magnitudes(random, dtype, own)

    calls = [Call(tuple(new(a) for a in arguments), "first")]
    while len(calls) < length:
        mode = str(random.choice(MODES))
        last = calls[-1].values
        if mode in ("repeat", "back"):
            same = len(calls) - 1 if mode == "repeat" else int(random.integers(len(calls)))
            calls.append(Call(calls[same].values, mode, same))
            continue
        if mode == "same values":
            calls.append(Call(last, mode))
            continue
        fresh = tuple(new(a) for a in arguments)
        chosen = random.random(len(arguments)) < 0.6
        if not chosen.any():
            chosen[:] = True
        calls.append(Call(_changed(random, mode, dtype, arguments, last, fresh, chosen), mode))
    return tuple(calls)


def _changed(
    random: np.random.Generator,
    mode: str,
    dtype: str,
    arguments: PyTree,
    last: PyTree,
    fresh: PyTree,
    chosen: PyTree,
) -> PyTree:
    floats = [i for i, a in enumerate(arguments) if a.is_float]
    if mode == "swap":
        pairs = [(i, j) for i in floats for j in floats if i < j and _alike(last[i], last[j])]
        out = list(last)
        if pairs:
            i, j = pairs[int(random.integers(len(pairs)))]
            out[i], out[j] = out[j], out[i]
        return tuple(out)
    factor = float(random.uniform(1.5, 8.0)) ** random.choice([-1, 1])
    return tuple(
        _entry(random, mode, dtype, a, x, new, change, factor)
        for a, x, new, change in zip(arguments, last, fresh, chosen, strict=True)
    )


def _entry(
    random: np.random.Generator,
    mode: str,
    dtype: str,
    argument: Argument,
    x: PyTree,
    new: PyTree,
    change: bool,
    factor: float,
) -> PyTree:
    """Return one argument of the next call."""
    if not argument.is_float:
        return new if change or mode == "switch" else x
    if mode == "switch" or not change:
        return x
    if mode == "drift":
        with np.errstate(all="ignore"):
            moved = held(x * factor, dtype)
        return np.where(np.isfinite(moved), moved, x)
    if mode == "ordinary":
        return ordinary(random, dtype, np.shape(x))
    if mode == "wide":
        low, high = limits(dtype)
        return held(
            _signs(random, np.shape(x)) * 10 ** random.uniform(low, high, np.shape(x)), dtype
        )
    if mode == "exact":
        if random.random() < 0.3:
            return np.ones(np.shape(x))
        return held(2.0 ** random.integers(-20, 20, np.shape(x)), dtype)
    if mode in ("tail", "zero", "special"):
        what = {
            "tail": 10 ** (limits(dtype)[1] * random.uniform(0.7, 1)),
            "zero": 0.0,
            "special": float(random.choice([np.inf, -np.inf, np.nan])),
        }[mode]
        out = np.array(x, np.float64)
        out[np.unravel_index(int(random.integers(max(out.size, 1))), out.shape)] = what
        return held(out, dtype)
    return new  # a jump


def _alike(x: PyTree, y: PyTree) -> bool:
    return np.shape(x) == np.shape(y)
