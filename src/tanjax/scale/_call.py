"""Running one function of plain arrays through a scale graph, here and now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from ._plan import Plan, plan
from .graph._literals import trace
from .replay._replay import replay


def scaled_call(fun: Callable[..., Any], arguments: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The results of `fun` on plain arrays, each stored at an exponent that holds it.

    **Arguments:** `fun`: of plain arrays, which returns an array or a flat list of arrays.
    **Returns:** the arrays and their exponents: a result is `array · 2^exponent`.
    """
    closed, _, restored, notes = trace(lambda: jax.jit(fun).trace(*arguments), fun, arguments)
    free = [True] * len(closed.out_avals)
    found = plan(closed, arguments, free, restored=restored, notes=notes)
    return run(found, arguments), found.output_exponents


def run(found: Plan, arguments: Sequence[Any]) -> list[Any]:
    """The results of a planned program on plain arrays, compiled."""
    return jax.jit(replay(found.graph, found.exponents))(list(arguments))  # type: ignore[no-any-return]
