"""Run one function of plain arrays through a scale graph immediately."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import jax

from tanjax._dtype_range import limits
from tanjax._errors import ScaleWarning, message, outside
from tanjax._typing import Function

from ._plan import Plan, plan
from .graph._build import build
from .graph._graph import Magnitudes, Value
from .graph._literals import trace
from .replay._replay import replay


def scaled_call(
    name: str, fun: Function, arguments: Sequence[jax.Array]
) -> tuple[list[jax.Array], list[int]]:
    """Return the results of `fun` on plain arrays, each stored at an exponent that holds it.

    **Arguments:** `name`: for the warning; `fun`: of plain arrays, which returns an array or a flat
    list of arrays.
    **Returns:** the arrays and their exponents: a result is `array · 2^exponent`.
    **Warns:** `ScaleWarning` if entries of a result are lost, because no exponent holds all of
    them.
    """
    closed, _, restored, notes = trace(lambda: jax.jit(fun).trace(*arguments), fun, arguments)
    free = [True] * len(closed.out_avals)
    found = plan(closed, arguments, free, graph=build(closed, restored), notes=notes)
    _warn(name, found)
    return run(found, arguments), found.output_exponents


def run(found: Plan, arguments: Sequence[jax.Array]) -> list[jax.Array]:
    """Compile and run a planned program; return its results, stored at the plan's exponents.

    **Arguments:** `found`: the plan; `arguments`: plain arrays, one per input of its graph.
    """
    return jax.jit(replay(found.graph, found.exponents))(list(arguments))  # type: ignore[no-any-return]


def _warn(name: str, found: Plan) -> None:
    values = [use.value for use in found.graph.outputs]
    stored = zip(values, found.output_exponents, strict=True)
    gone = [v for v, exponent in stored if _vanishes(v, found.magnitudes, exponent)]
    said = [*found.alarms, *found.unseen, *map(_too_wide, gone)]
    if said:
        text = message(f"{name}: {said[0]}", hint="use a wider dtype, or arrays of their own.")
        warnings.warn(text, ScaleWarning, stacklevel=outside())


def _too_wide(value: Value) -> str:
    return f"no exponent of {value.aval.dtype} holds every number of the result."


def _vanishes(value: Value, m: Magnitudes, exponent: int) -> bool:
    """True if the least number of a result is stored as 0, or with almost no digits.

    Subnormal numbers of float16 count as numbers, down to four bits.
    """
    found = m[value.index]
    if not value.is_floating or found is None or found.is_zero or not found.exact:
        return False
    room = limits(value.aval.dtype)
    least = 16 * room.step or room.bottom
    return found.low - exponent < math.log2(least)
