"""Gradients that are added to buffers: `tj.value_and_grad(f, into=buffers)`.

A tree of gradients per micro-batch wastes memory: it is added to another tree and thrown away. A
backward pass with `jax.Ref`s adds each gradient to its Ref directly.

The layer above (`tanjax.mutation`) defines buffers. It registers a function that finds the buffer
of every leaf, refuses buffers that do not match, and pulls back into them. This module does the
work of any gradient: it selects the leaves that move, strips units, and checks that the loss is a
single number.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._errors import describe, message
from tanjax._typing import Function, Pullback, Scalar
from tanjax.units import Unit

from ._chosen import Argnums, check_differentiable, moving_leaves, places
from ._units import Stripped


@runtime_checkable
class Buffers(Protocol):
    """Buffers that match the arguments of one call."""

    def add(self, pullback: Pullback, loss: Scalar, unit: Unit | None) -> None:
        """Pull back from a loss in a unit, and add the cotangents to the buffers.

        `pullback` is that of `jax.vjp` for the list of the moving leaves.
        """


@runtime_checkable
class _Match(Protocol):
    def __call__(
        self, into: PyTree, args: Sequence[PyTree], kwargs: PyTree, argnums: Argnums
    ) -> Buffers: ...


_registered: dict[str, _Match] = {}


def register_buffers(match: _Match) -> None:
    """Register how to match buffers with the arguments of a call; called once, by `mutation`."""
    _registered["match"] = match


def into_buffers(
    f: Function,
    argnums: Argnums,
    has_aux: bool,
    holomorphic: bool,
    allow_int: bool,
    into: PyTree,
) -> Function:
    """Return `value_and_grad(f)` that adds the gradient to buffers, and gives the value alone."""

    @functools.wraps(f)
    def wrapped(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if not allow_int:
            check_differentiable("grad", args, argnums)
        buffers = _registered["match"](into, args, kwargs, argnums)
        where = places("grad", args, argnums)
        leaves, join = moving_leaves([args[i] for i in where])

        def moved(leaves: PyTree) -> PyTree:
            full = list(args)
            for i, x in zip(where, join(leaves), strict=True):
                full[i] = x
            return f(*full, **kwargs)

        stripped = Stripped(moved, has_aux)
        run: Function = jax.vjp
        loss, pullback, *aux = run(stripped, leaves, has_aux=has_aux)
        _check_loss(loss, holomorphic)
        buffers.add(pullback, loss, stripped.units.leaves[0])
        value = stripped.units.label(loss)
        return (value, *aux) if has_aux else value

    return wrapped


def _check_loss(loss: PyTree, holomorphic: bool) -> None:
    """Raise `TypeError` for a loss that `jax.grad` does not differentiate either."""
    is_one = jax.tree_util.all_leaves([loss]) and jnp.shape(loss) == ()
    kind = jnp.complexfloating if holomorphic else jnp.floating
    if is_one and jnp.issubdtype(jnp.result_type(loss), kind):
        return
    got = describe(loss) if is_one or hasattr(loss, "shape") else str(jax.tree.structure(loss))
    raise TypeError(
        message(
            "grad: the function must return one "
            f"{'complex number (`holomorphic`)' if holomorphic else 'real number'}.",
            f"got: {got}",
            hint="return the loss alone, other values with `has_aux=True`.",
        )
    )
