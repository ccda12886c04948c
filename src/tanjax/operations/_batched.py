"""Reductions of a batch of structured arrays, and the meaning of their axes.

Other operations on matrices are simply mapped over a batch. A sum, a norm and an inner product
reduce all axes of an array, also those of the batch, or the axes that the caller names.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import ShapeError, describe, message
from tanjax._typing import AnyArray, Axis, Function, Natural, Order, Scalar
from tanjax.arrays import AbstractArray, batch_of, densified, leading, over_batches
from tanjax.registry import Operation

from . import _checks as checks, _norms as norms


def total(op: Operation, a: AbstractArray, *, axis: Axis = None) -> Natural:
    """Sum a batch over all entries, or along axes; over the batch alone it keeps a type."""
    batch = a.batch_shape
    if axis is None:
        return jnp.sum(over_batches(op.name, op, (a,), (batch,)))
    axes, count = _axes(op.name, a, axis), len(batch)
    core = tuple(i - count for i in axes if i >= count)
    lead = tuple(i for i in axes if i < count)
    if not core:
        return _sum_of_arrays(a, lead)
    inner: Axis = core[0] if len(core) == 1 else core
    if len(core) == a.ndim - count:
        inner = None
    sums = over_batches(op.name, lambda x: op(x, axis=inner), (a,), (batch,))
    return jnp.sum(sums, axis=lead)


def _sum_of_arrays(a: AbstractArray, axes: tuple[int, ...]) -> Natural:
    if a.is_linear and a.fields_are_entries and all(a.shape[i] for i in axes):
        return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=axes), a)
    return jnp.sum(densified(a, "sum", "sum over axes of the matrices"), axis=axes)


def norm(
    op: Operation, a: AbstractArray, *, ord: Order = None, axis: Axis = None, keepdims: bool = False
) -> AnyArray:
    """Return the norm of all entries of a batch, or of its matrices, or along other axes."""
    batch = a.batch_shape
    count = len(batch)
    if axis is None:
        if ord is not None:
            raise ShapeError(
                f"norm: of order {ord!r}, a batch of shape {a.shape} has no one norm.\n"
                "Hint: say `axis=(-2, -1)` for the norms of its matrices."
            )
        whole = norms.norm(over_batches(op.name, op, (a,), (batch,)), None, None, False)
        return whole.reshape((1,) * a.ndim) if keepdims else whole
    if _axes(op.name, a, axis) != (count, count + 1) or a.ndim != count + 2:
        dense = densified(a, "norm", "say `axis=(-2, -1)` for the norms of its matrices")
        return op(dense, ord=ord, axis=axis, keepdims=keepdims)
    found = over_batches(op.name, lambda x: op(x, ord=ord), (a,), (batch,))
    return found[..., None, None] if keepdims else found


def pairing(op: Operation, a: Natural, b: Natural) -> Scalar:
    """Return the sum of all products of entries of two batches of one shape."""
    checks.pairing(op.name, a, b)
    batch = max((x.batch_shape for x in (a, b) if isinstance(x, AbstractArray)), key=len)
    own = (leading(x, len(x.shape) - len(batch)) for x in (a, b))
    return jnp.sum(over_batches(op.name, op, (a, b), tuple(own)))


def refused(name: str, op: Function) -> Function:
    """Make an operation under NumPy's name raise for a batch, where NumPy means something else."""

    @functools.wraps(op)
    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        for a in args:
            if batch_of(a):
                raise ShapeError(
                    message(
                        f"{name}: of a batch, NumPy's function of this name is another one.",
                        f"got: {describe(a)}",
                        "why: it takes the first two axes, all axes, or pairs of all axes.",
                        hint=f"`tj.{getattr(op, '__name__', name)}` and `tanjax.numpy.linalg` take "
                        "each matrix; `.mT` transposes each.",
                    )
                )
        return op(*args, **kwargs)

    return call


def _axes(name: str, a: AbstractArray, axis: Axis) -> tuple[int, ...]:
    """Count the axes from the first. **Raises:** `ShapeError` if one is out of range."""
    axes = axis if isinstance(axis, tuple) else (-1 if axis is None else axis,)
    if not all(isinstance(i, int | np.integer) and -a.ndim <= i < a.ndim for i in axes):
        raise ShapeError(f"{name}: axis {axis} is out of range for shape {a.shape}.")
    return tuple(int(i) % a.ndim for i in axes)
