"""Gradients that are added to buffers: `tj.value_and_grad(f, into=buffers)`.

A tree of gradients per micro-batch is memory that nobody wants: it is added to another one and
thrown away. A backward pass that is given `jax.Ref`s adds to them where it stands.

What a buffer is, the layer above knows (`tanjax.mutation`): it registers a function that finds the
buffer of every leaf, refuses what does not fit, and pulls back into them. Here is what any gradient
needs: which leaves move, units that are taken off, a loss that is one real number.
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
    """Buffers that were found to fit the arguments of one call."""

    def add(self, pullback: Pullback, loss: Scalar, unit: Unit | None) -> None:
        """Pull back from a loss in a unit, and add what comes out to the buffers.

        `pullback` is that of `jax.vjp` for the list of the moving leaves.
        """


@runtime_checkable
class _Match(Protocol):
    def __call__(
        self, into: PyTree, args: Sequence[PyTree], kwargs: PyTree, argnums: Argnums
    ) -> Buffers: ...


_registered: dict[str, _Match] = {}


def register_buffers(match: _Match) -> None:
    """Say how buffers are matched with the arguments of a call; asked once, by `mutation`."""
    _registered["match"] = match


def into_buffers(
    f: Function,
    argnums: Argnums,
    has_aux: bool,
    holomorphic: bool,
    allow_int: bool,
    into: PyTree,
) -> Function:
    """`value_and_grad` that adds the gradient to buffers, and gives the value alone."""

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
