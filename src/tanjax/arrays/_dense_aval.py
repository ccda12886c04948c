"""The shape of a dense array that nobody has formed.

A type that says nothing of its `shape` is traced: `to_dense` knows. A batch, as `jax.vmap` returns
it, is another matter: `to_dense` is written for one array, and would not fail but give another
shape where it meets leading axes on the fields. Only a constructor makes single arrays, so the
ranks of their leaves are noted there, and what a leaf has beyond them are the axes of a batch.

Sharp edge: an array that came from no constructor of this process (unpickled) is a single one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax._errors import unregistered
from tanjax._typing import Function, Primal

_AVALS: dict[Hashable, jax.ShapeDtypeStruct] = {}
_RANKS: dict[
    Hashable, set[tuple[int, ...]]
] = {}  # per tree; a type may take fields of several ranks


def note_ranks(cls: type) -> None:
    """Let the constructor of a type without a `shape` of its own note what single arrays hold."""
    construct: Function = cls.__init__  # type: ignore[misc]

    @functools.wraps(construct)
    def __init__(self: PyTree, *args: PyTree, **kwargs: PyTree) -> None:
        construct(self, *args, **kwargs)
        leaves, tree = jax.tree.flatten(self)
        ranks = tuple(len(getattr(leaf, "shape", ())) for leaf in leaves)
        with contextlib.suppress(TypeError):  # a static field that does not hash: the check says so
            _RANKS.setdefault(tree, set()).add(ranks)

    cls.__init__ = __init__  # type: ignore[misc]


def dense_aval(x: Primal) -> jax.ShapeDtypeStruct:
    """Shape and dtype of `x.to_dense()`, traced once per kind of leaves (about 0.3 ms).

    Of a batch: leading axes, then the shape of one array.
    """
    leaves, tree = jax.tree.flatten(x)
    if leaves and leaves[0] is x:  # no pytree: JAX would ask for the shape again, without end
        raise unregistered(type(x))
    kinds = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    count = _leading_axes(tree, [shape for shape, _ in kinds])
    key = (tree, kinds, count)
    if key not in _AVALS:
        batch = kinds[0][0][:count] if kinds else ()
        single = [jax.ShapeDtypeStruct(shape[count:], dtype) for shape, dtype in kinds]
        one = tree.unflatten(single) if count else x
        found = jax.eval_shape(lambda x: x.to_dense(), one)
        _AVALS[key] = jax.ShapeDtypeStruct((*batch, *found.shape), found.dtype)
    return _AVALS[key]


def _leading_axes(tree: PyTreeDef, shapes: list[tuple[int, ...]]) -> int:
    """How many axes all leaves have beyond those of an array that a constructor made."""
    ranks = tuple(map(len, shapes))
    known = _RANKS.get(tree, set())
    if not ranks or not known or ranks in known:
        return 0
    for single in known:
        beyond = {r - s for r, s in zip(ranks, single, strict=True)}
        count = beyond.pop()
        if not beyond and count > 0 and len({shape[:count] for shape in shapes}) == 1:
            return count
    return 0
