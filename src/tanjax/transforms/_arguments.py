"""What a compiled function has to know of its arguments before it looks at their numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax


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
    """Whether a number or an array has neither inf nor nan."""
    if not hasattr(x, "dtype") or not jax.numpy.issubdtype(x.dtype, jax.numpy.inexact):
        return True
    from tanjax.scale import _measure

    if isinstance(x, jax.Array) and not _measure.is_on_host(x):
        return bool(jax.numpy.isfinite(x).all())
    # By NumPy where it can: JAX compiles two programs per shape for it, 50 ms of a first call.
    return _measure.inside(x, _measure.ANYWHERE._replace(finite=True))


def all_finite(out: Any) -> bool:
    return all(map(is_finite, jax.tree.leaves(out)))
