"""Gradients that are added to buffers: `tj.value_and_grad(f, into=buffers)`.

A tree of gradients per micro-batch wastes memory: it is added to another tree and thrown away. A
backward pass with `jax.Ref`s adds each gradient to its Ref directly.

The layer above (`tanjax.mutation`) defines buffers: it finds the buffer of every leaf, refuses
buffers that do not match, and pulls back into them. This module does the work of any gradient: it
selects the leaves that move, strips units, and checks that the loss is a single number.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._errors import describe, message
from tanjax._typing import Function

from ._chosen import Argnums, check_differentiable, moving_leaves, places
from ._ref_functions import ref_functions
from ._units import Stripped


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
        buffers = ref_functions().match_buffers(into, args, kwargs, argnums)
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
