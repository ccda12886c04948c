"""Running one function of plain arrays through a scale graph, here and now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from ._literals import Crushed, restored_literals, wide_trace
from ._plan import Plan, plan
from ._replay import replay


def trace(
    fun: Callable[..., Any], arguments: Sequence[Any]
) -> tuple[Any, dict[int, Any], tuple[str, ...]]:
    """The closed jaxpr of `fun`, the constants that tracing crushed, and what is to be said."""
    with Crushed() as crushed:
        closed = jax.make_jaxpr(fun)(*arguments)
    return closed, *restored_constants(closed, fun, arguments, crushed.seen)


def restored_constants(
    closed: Any, fun: Callable[..., Any], arguments: Sequence[Any], seen: bool
) -> tuple[dict[int, Any], tuple[str, ...]]:
    """Constants as they were written, if a number was crushed while `closed` was traced."""
    if not seen:
        return {}, ()
    try:
        found = restored_literals(closed, wide_trace(fun, list(arguments)))
    except Exception:  # the function is not made for float64: whatever it raises says no more
        found = None
    if found is not None:
        return found, ()
    return {}, (
        "a constant does not fit in the dtype of its partner and was rounded to 0 or inf while "
        "tracing; write it as a quantity, or multiply in two steps.",
    )


def scaled_call(fun: Callable[..., Any], arguments: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The results of `fun` on plain arrays, each stored at an exponent that holds it.

    **Arguments:** `fun`: of plain arrays, which returns an array or a flat list of arrays.
    **Returns:** the arrays and their exponents: a result is `array · 2^exponent`.
    """
    closed, restored, notes = trace(fun, arguments)
    free = [True] * len(closed.out_avals)
    found = plan(closed, arguments, free, restored=restored, notes=notes)
    return run(found, arguments), found.output_exponents


def run(found: Plan, arguments: Sequence[Any]) -> list[Any]:
    """The results of a planned program on plain arrays, compiled."""
    return jax.jit(replay(found.graph))(list(arguments))  # type: ignore[no-any-return]
