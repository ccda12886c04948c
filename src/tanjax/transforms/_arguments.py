"""What a compiled function has to know of its arguments before it looks at their numbers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def copied(x: Any) -> Any:
    return x.copy() if hasattr(x, "copy") and hasattr(x, "dtype") else x


def static_arguments(
    fun: Callable[..., Any], options: dict[str, Any]
) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
    """Positions and names of static arguments, each found from the other as `jax.jit` does."""
    numbers, names = options.get("static_argnums"), options.get("static_argnames")
    if numbers is None and names is None:
        return None
    places = () if numbers is None else (numbers,) if isinstance(numbers, int) else tuple(numbers)
    called = () if names is None else (names,) if isinstance(names, str) else tuple(names)
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return places, called
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if numbers is None:
        places = tuple(i for i, p in enumerate(positional) if p in called)
    if names is None:
        called = tuple(positional[i] for i in places if -len(positional) <= i < len(positional))
    return places, called


def signature(x: Any) -> Any:
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval
    return (x.shape, x.dtype) if hasattr(x, "dtype") else type(x)


def is_finite(x: Any) -> bool:
    known = getattr(x, "is_finite", None)  # of an array on several hosts
    if known is not None:
        return bool(known)
    if not hasattr(x, "dtype") or not jax.numpy.issubdtype(x.dtype, jax.numpy.inexact):
        return True
    if not isinstance(x, jax.Array):
        return bool(np.isfinite(x).all())
    from tanjax.scale import _measure

    return _measure.is_finite(x)


def is_on_several_hosts(x: Any) -> bool:
    """Whether this process holds only a part of an argument, or none of it."""
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return not x.is_fully_addressable


@functools.cache  # asked when a program has run: nothing changes afterwards
def are_several() -> bool:
    """Whether this process is one of several."""
    return jax.process_count() > 1


def all_finite(out: Any) -> bool:
    return all(map(is_finite, jax.tree.leaves(out)))
