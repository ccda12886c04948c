"""The arguments of a derivative, and the leaves that it differentiates.

A tree may hold leaves without a derivative, integers and booleans, and leaves that JAX cannot
trace, functions and texts. They stay in their places while the other leaves are traced.
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
    """Return the places of one or several arguments, counted from the first.

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
    """Return the leaves that have derivatives, and the function that replaces them in the tree."""
    leaves, treedef = jax.tree.flatten(tree)
    moving = [i for i, x in enumerate(leaves) if is_inexact(x)]

    def join(new: PyTree) -> PyTree:
        full = list(leaves)
        for i, x in zip(moving, new, strict=True):
            full[i] = x
        return jax.tree.unflatten(treedef, full)

    return [jnp.asarray(leaves[i]) for i in moving], join


def is_number(x: PyTree) -> bool:
    """True if JAX can trace a leaf."""
    return hasattr(x, "dtype") or isinstance(x, bool | int | float | complex)


def hold_fixed(f: Function, args: Sequence[PyTree], argnums: Argnums) -> PyTree:
    """Return `f`, its arguments without leaves that JAX cannot trace, and a map for gradients.

    JAX cannot trace functions and texts in a tree, for example the activation of a Module. The new
    function puts them back before it calls `f`. The map puts them back into the structural
    gradient, so that `natural_tree` gives `None` in their places.
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
