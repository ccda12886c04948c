"""Function arguments that close over arrays."""

from __future__ import annotations

import functools
import types

import jax

from tanjax import _compat
from tanjax._typing import Function


def closes_over_tracers(function: Function) -> bool:
    """True if a callable closes over JAX tracers, which no rule can see."""
    held = [c.cell_contents for c in getattr(function, "__closure__", None) or () if _filled(c)]
    if isinstance(function, functools.partial):
        held += [function.func, *function.args, *function.keywords.values()]
    held += [getattr(function, "__self__", None), getattr(function, "__wrapped__", None)]
    leaves = jax.tree.leaves(held)
    return any(
        isinstance(v, _compat.Tracer)
        or (callable(v) and v is not function and closes_over_tracers(v))
        for v in leaves
    )


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
