"""`jax.lax`: functions that keep trees, collectives, reductions with a function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._typing import Function
from tanjax.quantities import Quantity, is_quantity, labelled, split_unit
from tanjax.units.signatures import Role, bind

from ._handler import common, unit_handler

_TREES = """
    stop_gradient optimization_barrier with_sharding_constraint dce_sink
    all_gather all_to_all pshuffle pswapaxes pbroadcast pcast pmax pmin pmean
    scan while_loop fori_loop cond switch map associative_scan
    custom_root custom_linear_solve platform_dependent composite
"""


@unit_handler(*(f"lax.{name}" for name in _TREES.split()))
def _as_it_is(raw: Function, *args: PyTree, **kwargs: PyTree) -> PyTree:
    return raw(*args, **kwargs)


@unit_handler("lax.stage")
def stage(raw: Function, x: PyTree) -> Quantity:
    """Lift a number into the trace."""
    return labelled(raw(x.stored), x.label)


@unit_handler("lax.psum", "lax.psum_scatter", "lax.ppermute")
def linear_collective(raw: Function, x: PyTree, *args: PyTree, **kwargs: PyTree) -> PyTree:
    """Sum, with zeros where no value arrives; raises for points of a scale."""
    for leaf in jax.tree.leaves(x, is_leaf=is_quantity):
        bind(raw.__name__, [(Role.parse("u"), split_unit(leaf)[1], "x")])
    return raw(x, *args, **kwargs)


_KEEP_UNIT = (jax.lax.add, jax.lax.max, jax.lax.min, jnp.add, jnp.maximum, jnp.minimum)


@unit_handler("lax.reduce", "lax.reduce_window")
def reduce(
    raw: Function,
    operand: PyTree,
    init: PyTree,
    computation: Function,
    *args: PyTree,
    **kwargs: PyTree,
) -> PyTree:
    """Reduce by a computation that gets quantities and returns them in the operand's unit."""
    unit, (value, first) = common(raw.__name__, "u", operand, init)
    if computation in _KEEP_UNIT:  # JAX has faster programs for these
        return labelled(raw(value, first, computation, *args, **kwargs), unit)

    def numbers(a: PyTree, b: PyTree) -> PyTree:
        out = computation(labelled(a, unit), labelled(b, unit))
        return common(raw.__name__, "u", labelled(a, unit), out)[1][1]

    return labelled(raw(value, first, numbers, *args, **kwargs), unit)


@unit_handler("lax.scatter_apply")
def scatter_apply(
    raw: Function, operand: PyTree, indices: PyTree, func: Function, *args: PyTree, **kw: PyTree
) -> PyTree:
    """Update entries by a function that gets quantities and returns them in the operand's unit."""
    value, unit = split_unit(operand)

    def numbers(v: PyTree) -> PyTree:
        return common("scatter_apply", "u", labelled(v, unit), func(labelled(v, unit)))[1][1]

    return labelled(raw(value, indices, numbers, *args, **kw), unit)
