"""Two forms of a rule of a transition, converted to the form of operations.

An operation's pullback gets one cotangent, that of its output, here a `Transition`. Authors prefer
the cotangents of the states and of the output as arguments. If cotangents are as large as the
state, they prefer to rewrite them in place.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._errors import CotangentError, message
from tanjax._typing import Function
from tanjax.arrays import is_structured

from ._discharge import discharge
from ._jax_refs import is_ref
from ._refs import StructuredRef, freeze, new_ref


def from_state_rule(rule: Function) -> Function:
    """Convert a rule whose pullback takes `(*state_bars, out_bar)`."""

    @functools.wraps(rule)
    def with_transition(*before: PyTree, **statics: PyTree) -> PyTree:
        after, pullback = rule(*before, **statics)

        def pullback_of_transition(bar: PyTree) -> PyTree:
            return pullback(*bar.state, bar.out)

        return after, pullback_of_transition

    return with_transition


def from_inplace_rule(rule: Function, *, others: Sequence[bool], order: Sequence[int]) -> Function:
    """Convert a rule whose pullback takes `(*state_bar_refs, out_bar)` and mutates the Refs.

    **Arguments:** `others`: True for each argument that is not mutated; `order`: the state of each
    mutated argument, in the order of arguments.
    """
    name = rule.__name__

    @functools.wraps(rule)
    def with_transition(*before: PyTree, **statics: PyTree) -> PyTree:
        after, pullback = rule(*before, **statics)

        def on_refs(state_bars: PyTree, out_bar: PyTree) -> PyTree:
            # A Ref of a cotangent; integers have none, and keep JAX's `float0`.
            refs = jax.tree.map(
                lambda x: x if _is_float0(x) else new_ref(x), state_bars, is_leaf=is_structured
            )
            rest = _as_tuple(name, pullback(*refs, out_bar), sum(others))
            return jax.tree.map(
                lambda x: x if _is_float0(x) else freeze(x), refs, is_leaf=_is_memory
            ), rest

        on_refs.__name__ = name

        def pullback_of_transition(bar: PyTree) -> PyTree:
            states, rest = discharge(on_refs)(bar.state, bar.out)
            mutated, unmutated = iter(order), iter(rest)
            return tuple(next(unmutated) if o else states[next(mutated)] for o in others)

        return after, pullback_of_transition

    return with_transition


def _is_float0(x: PyTree) -> bool:
    return not _is_memory(x) and getattr(x, "dtype", None) == _compat.float0


def _is_memory(x: PyTree) -> bool:
    return type(x) is StructuredRef or is_ref(x)


def _as_tuple(name: str, bars: PyTree, count: int) -> tuple[PyTree, ...]:
    if bars is None:
        return (None,) * count
    found = bars if isinstance(bars, tuple) else (bars,)
    if len(found) != count:
        raise CotangentError(
            message(
                f"{name}: the pullback must return the cotangents of the arguments that are not "
                "mutated.",
                f"expected: {count}",
                f"got: {len(found)}",
                hint="those of the mutated ones are what it leaves in their Refs.",
            )
        )
    return found
