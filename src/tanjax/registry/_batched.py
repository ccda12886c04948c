"""Calls with a batch among their arguments.

Implementations and rules are written for one matrix. After dispatch, this module finds the leading
axes of structured arguments and maps the call over them. Dense arguments take part as the operation
declares (`core_ndims`).

Sharp edge: without a declaration, a dense argument may have one array per member of the batch or
one for all. The operation then accepts only scalars as dense arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._errors import ShapeError, describe, message
from tanjax._typing import Function, Shape
from tanjax.arrays import batch_of, broadcast, counted, is_structured, over_batches
from tanjax.quantities import Quantity

from ._declaration import Declaration
from ._table import is_static_value


def call(
    op: Declaration, function: Function, args: Sequence[PyTree], statics: dict[str, PyTree]
) -> PyTree:
    """Return `function(*args)`, mapped over the batches among the arguments of a call of `op`."""
    batches = batches_of(op, args)
    if batches is None:
        return function(*args)
    if op.batched is not None:
        return op.batched(op, *args, **statics)
    fixed = {i: a for i, a in enumerate(args) if is_static_value(a)}
    places = [i for i in range(len(args)) if i not in fixed]

    def one(*moving: PyTree) -> PyTree:
        given = {**fixed, **dict(zip(places, moving, strict=True))}
        return function(*(given[i] for i in range(len(args))))

    moving = [_scalar(op, args[i], batches[i]) for i in places]
    shapes = [batches[i] for i in places]
    return counted(over_batches(op.name, one, moving, shapes), broadcast(op.name, shapes))


def batches_of(op: Declaration, args: Sequence[PyTree]) -> list[Shape] | None:
    """Return the leading axes of every argument, or `None` without a batch of structured arrays."""
    if not any(map(_has_structure, args)):
        return None
    batches = [_batch(op, i, a) for i, a in enumerate(args)]
    if not any(batches):
        return None
    if op.core_ndims is None and op.batched is None:
        for a, name in zip(args, op.names_for(len(args)), strict=True):
            if _is_dense(a) and not is_static_value(a) and jnp.ndim(_number(a)):
                raise _unknown(op.name, name, a)
    return batches


def cores(op: Declaration, args: Sequence[PyTree]) -> list[PyTree]:
    """Replace dense arguments by shapes without a batch, for `check`; keep those that broadcast."""
    if op.elementwise:
        return list(args)
    batches = [_batch(op, i, a) for i, a in enumerate(args)]
    broadcast(op.name, batches)

    def core(x: PyTree, batch_ndim: int) -> PyTree:
        if is_static_value(x) or not _is_dense(x):
            return x
        x = _number(x)
        return jax.ShapeDtypeStruct(jnp.shape(x)[batch_ndim:], jnp.result_type(x))

    return [core(a, len(b)) for a, b in zip(args, batches, strict=True)]


def is_batched(op: Declaration, args: Sequence[PyTree]) -> bool:
    """True if an argument of the call is a batch."""
    return batches_of(op, args) is not None


def _batch(op: Declaration, place: int, x: PyTree) -> Shape:
    if _is_dense(x):
        if op.core_ndims is None or is_static_value(x):
            return ()
        shape = jnp.shape(_number(x))
        core_ndim = op.core_ndims[min(place, len(op.core_ndims) - 1)]
        return shape[: max(0, len(shape) - core_ndim)]
    if is_structured(x):
        return batch_of(x)
    inner = [v for v in jax.tree.leaves(x, is_leaf=is_structured) if batch_of(v)]
    if inner and op.batched is not None:
        return batch_of(inner[0])
    if inner:
        raise ShapeError(
            message(
                f"{op.name}: an argument holds a batch of arrays.",
                f"got: {describe(inner[0])}",
                hint=f"map the operation: `jax.vmap(tj.{op.name})(...)`.",
            )
        )
    return ()


def _is_dense(x: PyTree) -> bool:
    """True if an argument is one dense array, of numbers or of quantities."""
    if type(x) is Quantity:
        return not is_structured(x.stored)
    return not is_structured(x) and jax.tree_util.all_leaves([x])


def _has_structure(x: PyTree) -> bool:
    if is_structured(x):
        return not _is_dense(x)
    return any(map(is_structured, jax.tree.leaves(x, is_leaf=is_structured)))


def _number(x: PyTree) -> PyTree:
    return x.stored if type(x) is Quantity else x


def _scalar(op: Declaration, x: PyTree, batch: Shape) -> PyTree:
    """Squeeze one number per member of a batch, `(..., 1, 1)`, for an elementwise operation."""
    if op.elementwise and batch and _is_dense(x) and jnp.shape(_number(x))[-2:] == (1, 1):
        return jax.tree.map(functools.partial(jnp.squeeze, axis=(-2, -1)), x)
    return x


def _unknown(op: str, name: str, x: PyTree) -> ShapeError:
    return ShapeError(
        message(
            f"{op}: there is a batch of structured arrays, and `{name}` is dense.",
            f"got: {describe(x)}",
            "why: the operation does not say how many dimensions one such argument has.",
            hint="declare `@tj.operation(core_ndims=...)`, or map it: "
            f"`jax.vmap({op}, in_axes=...)`.",
        )
    )
