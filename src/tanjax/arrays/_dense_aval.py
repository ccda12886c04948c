"""The shape of a dense array that nobody has formed, and how much of it counts a batch.

A type that says nothing of its `shape` is traced: `to_dense` knows. A batch, whose leaves carry
leading axes, is another matter: `to_dense` is written for one array. What a leaf has beyond the
leaves of one array are the axes of the batch. How many dimensions those have is said by
`array_field(ndim=...)`; where it is not, only a constructor makes single arrays, and `jax.vmap`
makes batches, so the ranks of their leaves are noted in the constructor.

Sharp edge: an array that came from no constructor of this process (unpickled) is a single one, if
its type has no `array_field`.
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
from tanjax._typing import Function, Primal, Shape

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


def batch_shape(x: Primal) -> Shape:
    """The leading axes of the leaves of a batch of arrays, `()` for one array.

    What has no leaves of its own, such as an `Identity` among factors, is one for all.
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
    return _leading_axes(tree, list(map(jnp.shape, leaves)))


def dense_aval(x: Primal) -> jax.ShapeDtypeStruct:
    """Shape and dtype of `x.to_dense()`, traced once per kind of leaves (about 0.3 ms).

    Of a batch: leading axes, then the shape of one array.
    """
    leaves, tree = jax.tree.flatten(x)
    if leaves and leaves[0] is x:  # no pytree: JAX would ask for the shape again, without end
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


def _leading_axes(tree: PyTreeDef, shapes: list[Shape]) -> Shape:
    """The axes that all leaves have beyond those of an array that a constructor made."""
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
