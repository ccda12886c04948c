"""`jax.lax`: trees that come back as they came, collectives, reductions with a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tanjax.arrays import Unitful, split_unit
from tanjax.registry.quantities import labelled
from tanjax.units.signatures import Role, bind

from ._handler import common, unit_handler

_TREES = """
    stop_gradient optimization_barrier with_sharding_constraint dce_sink
    all_gather all_to_all pshuffle pswapaxes pbroadcast pcast pmax pmin pmean
    scan while_loop fori_loop cond switch map associative_scan
    custom_root custom_linear_solve platform_dependent composite
"""


@unit_handler(*(f"lax.{name}" for name in _TREES.split()))
def _as_it_is(raw: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return raw(*args, **kwargs)


@unit_handler("lax.stage")
def stage(raw: Any, x: Any) -> Unitful:
    """The number, lifted into the trace."""
    return labelled(raw(x.stored), x.label)


@unit_handler("lax.psum", "lax.psum_scatter", "lax.ppermute")
def linear_collective(raw: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Sums, and zeros where nothing arrives: not of points of a scale."""
    for leaf in jax.tree.leaves(x, is_leaf=lambda v: type(v) is Unitful):
        bind(raw.__name__, [(Role.parse("u"), split_unit(leaf)[1], "x")])
    return raw(x, *args, **kwargs)


_KEEP_UNIT = (jax.lax.add, jax.lax.max, jax.lax.min, jnp.add, jnp.maximum, jnp.minimum)


@unit_handler("lax.reduce", "lax.reduce_window")
def reduce(raw: Any, operand: Any, init: Any, computation: Any, *args: Any, **kwargs: Any) -> Any:
    """The computation gets quantities, and returns them in the operand's unit."""
    unit, (value, first) = common(raw.__name__, "u", operand, init)
    if computation in _KEEP_UNIT:  # JAX recognises these, and has faster programs for them
        return labelled(raw(value, first, computation, *args, **kwargs), unit)

    def numbers(a: Any, b: Any) -> Any:
        out = computation(labelled(a, unit), labelled(b, unit))
        return common(raw.__name__, "u", labelled(a, unit), out)[1][1]

    return labelled(raw(value, first, numbers, *args, **kwargs), unit)


@unit_handler("lax.scatter_apply")
def scatter_apply(raw: Any, operand: Any, indices: Any, func: Any, *args: Any, **kw: Any) -> Any:
    """The function gets quantities, and returns them in the operand's unit."""
    value, unit = split_unit(operand)

    def numbers(v: Any) -> Any:
        return common("scatter_apply", "u", labelled(v, unit), func(labelled(v, unit)))[1][1]

    return labelled(raw(value, indices, numbers, *args, **kw), unit)
