"""The arguments that a derivative is for: which they are, and which of their leaves move.

A tree may hold what has no derivative, integers and booleans, and what JAX cannot trace, functions
and texts. They stay where they are while the others are traced.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._errors import message
from tanjax._typing import Function
from tanjax.arrays import is_inexact

Argnums = int | Sequence[int]


def places(name: str, args: Sequence[PyTree], argnums: Argnums) -> tuple[int, ...]:
    """The places of the arguments, one or several, counted from the first.

    **Raises:** `TypeError` if there is no such argument, or it is given by its name.
    """
    wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not all(-len(args) <= i < len(args) for i in wanted):
        raise TypeError(
            message(
                f"{name}: there is no argument for `argnums={argnums}`.",
                f"given by position: {len(args)}",
                hint="pass differentiated arguments by position, not by name.",
            )
        )
    return tuple(i % len(args) for i in wanted)


def check_differentiable(name: str, args: Sequence[PyTree], argnums: Argnums) -> None:
    """Raise `TypeError` for an argument that has nothing to differentiate."""
    for i in places(name, args, argnums):
        leaves = jax.tree.leaves(args[i])
        if leaves and not any(map(is_inexact, leaves)):
            raise TypeError(
                message(
                    f"{name}: argument {i} has nothing to differentiate.",
                    f"dtypes: {sorted(map(str, map(jnp.result_type, filter(is_number, leaves))))}",
                    hint="convert it to a floating dtype, or leave it out of `argnums`.",
                )
            )


def moving_leaves(tree: PyTree) -> PyTree:
    """The leaves that have derivatives, and the function that puts others in their place."""
    leaves, treedef = jax.tree.flatten(tree)
    moving = [i for i, x in enumerate(leaves) if is_inexact(x)]

    def join(new: PyTree) -> PyTree:
        full = list(leaves)
        for i, x in zip(moving, new, strict=True):
            full[i] = x
        return jax.tree.unflatten(treedef, full)

    return [jnp.asarray(leaves[i]) for i in moving], join


def is_number(x: PyTree) -> bool:
    """Whether JAX can trace a leaf."""
    return hasattr(x, "dtype") or isinstance(x, bool | int | float | complex)


def hold_fixed(f: Function, args: Sequence[PyTree], argnums: Argnums) -> PyTree:
    """`f` and its arguments without the leaves that are no arrays, and the way back for gradients.

    Functions and texts in a tree (the activation of a Module) cannot be traced; they are put back
    inside `f`, and stand in their places in the gradient, which says `None` of them.
    """
    chosen = places("grad", args, argnums)
    trees = {i: jax.tree.flatten(args[i]) for i in chosen}
    if all(is_number(leaf) for leaves, _ in trees.values() for leaf in leaves):
        return f, args, lambda structural: structural

    def join(i: int, numbers: PyTree) -> PyTree:
        rest = iter(numbers)
        leaves, tree = trees[i]
        return tree.unflatten([next(rest) if is_number(leaf) else leaf for leaf in leaves])

    def whole(*moving: PyTree, **kwargs: PyTree) -> PyTree:
        return f(*(join(i, m) if i in trees else m for i, m in enumerate(moving)), **kwargs)

    def restore(structural: PyTree) -> PyTree:
        if isinstance(argnums, int):
            return join(chosen[0], structural)
        return tuple(join(i, s) for i, s in zip(chosen, structural, strict=True))

    moving = [
        [leaf for leaf in trees[i][0] if is_number(leaf)] if i in trees else a
        for i, a in enumerate(args)
    ]
    return whole, moving, restore
