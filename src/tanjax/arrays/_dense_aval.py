"""The shape of the dense array, before it is formed, and its batch axes.

A trace of `to_dense` gives the shape of a type that does not define `shape`. But `to_dense` is
written for one array, and the leaves of a batch have leading axes. The batch axes of a leaf are
those beyond the rank that it has in one array. `array_field(ndim=...)` gives this rank. Without it,
the constructor notes the ranks of the leaves: constructors make single arrays, and `jax.vmap` makes
batches.

Sharp edge: without an `array_field`, an array that no constructor of this process made (an
unpickled one) counts as a single array.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._errors import unregistered
from tanjax._typing import Function, Primal, Shape

_AVALS: dict[Hashable, jax.ShapeDtypeStruct] = {}
_RANKS: dict[
    Hashable, set[tuple[int, ...]]
] = {}  # sets, because a type may take fields of several ranks


def note_ranks(cls: type) -> None:
    """Let the constructor note the ranks of the leaves of single arrays."""
    construct: Function = cls.__init__  # type: ignore[misc]

    @functools.wraps(construct)
    def __init__(self: PyTree, *args: PyTree, **kwargs: PyTree) -> None:
        construct(self, *args, **kwargs)
        leaves, tree = jax.tree.flatten(self)
        ranks = tuple(len(getattr(leaf, "shape", ())) for leaf in leaves)
        with contextlib.suppress(TypeError):  # the type check reports unhashable static fields
            _RANKS.setdefault(tree, set()).add(ranks)

    cls.__init__ = __init__  # type: ignore[misc]


def batch_shape(x: Primal) -> Shape:
    """Return the leading axes of the leaves of a batch of arrays, `()` for one array.

    A part without leaves, such as an `Identity` among factors, is the same for the whole batch.
    """
    cls = type(x)
    for name, rank in cls._ranks.items():
        value = getattr(x, name)
        for part in value if type(value) is tuple else (value,):
            shape = getattr(part, "shape", ())
            if len(shape) > rank:
                return tuple(shape[: len(shape) - rank])
    if cls._ranks or not cls._dynamic:
        return ()
    leaves, tree = jax.tree.flatten(x)
    # The axes of all leaves beyond the ranks that a constructor noted.
    shapes = list(map(jnp.shape, leaves))
    ranks = tuple(map(len, shapes))
    known = _RANKS.get(tree, set())
    if not ranks or not known or ranks in known:
        return ()
    for single in known:
        beyond = {r - s for r, s in zip(ranks, single, strict=True)}
        count = beyond.pop()
        if not beyond and count > 0 and len({shape[:count] for shape in shapes}) == 1:
            return tuple(shapes[0][:count])
    return ()


def dense_aval(x: Primal) -> jax.ShapeDtypeStruct:
    """Return shape and dtype of `x.to_dense()`, traced once per kind of leaves (about 0.3 ms).

    The shape of a batch is its leading axes, then the shape of one array.
    """
    leaves, tree = jax.tree.flatten(x)
    if leaves and leaves[0] is x:  # not a pytree: JAX would ask for the shape, without end
        raise unregistered(type(x))
    batch = batch_shape(x)
    kinds = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    key = (tree, kinds, len(batch))
    if key not in _AVALS:
        single = [jax.ShapeDtypeStruct(shape[len(batch) :], dtype) for shape, dtype in kinds]
        one = tree.unflatten(single) if batch else x
        found = jax.eval_shape(lambda x: x.to_dense(), one)
        _AVALS[key] = jax.ShapeDtypeStruct((*batch, *found.shape), found.dtype)
    return _AVALS[key]
