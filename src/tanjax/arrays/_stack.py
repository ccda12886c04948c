"""Many equal parts of one array, kept and worked as one batch.

A tuple of 400 small matrices is 400 leaves. A program that takes them apart, and returns as many
gradients, spends its time on starting kernels. Here the parts are one array with a leading axis,
and one call under `jax.vmap` serves all of them. A `Stack` is also a sequence of its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, export
from jaxtyping import PyTree, Shaped

from tanjax._typing import DType, Function, Shape

from ._show import show


class Stack(Sequence[PyTree]):
    """Equal arrays as one `array`.

    Of matrices it is a dense one, `(..., count, m, n)`, or a batch of a structured type.
    Axes before `count` are those of a batch of stacks.
    """

    __slots__ = ("array",)

    def __init__(self, array: PyTree) -> None:  # JAX puts other things in its place
        self.array = array

    @property
    def shape(self) -> Shape:
        """The shape of one part, after the axes of a batch."""
        shape = self.array.shape
        return (*shape[:-3], *shape[-2:])

    @property
    def dtype(self) -> DType:
        return self.array.dtype

    @property
    def length(self) -> int:
        """The number of parts; `len` refuses the symbolic numbers of `jax.export`."""
        shape = self.array.shape
        return shape[max(len(shape) - 3, 0)]  # numbers and vectors have no batch

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> PyTree:  # type: ignore[override]
        i = range(len(self))[i]
        place = (slice(None),) * (len(self.array.shape) - 3)
        return jax.tree.map(lambda leaf: leaf[*place, i], self.array)

    def __iter__(self) -> Iterator[PyTree]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return f"Stack({show(self.array)})"


Parts: TypeAlias = Sequence[PyTree] | Shaped[Array, "blocks ..."]

jax.tree_util.register_pytree_with_keys(
    Stack,
    lambda stack: (((jax.tree_util.GetAttrKey("array"), stack.array),), None),
    lambda _, children: Stack(children[0]),
    lambda stack: ((stack.array,), None),
)
export.register_pytree_node_serialization(
    Stack,
    serialized_name="tanjax.Stack",
    serialize_auxdata=lambda _: b"",
    deserialize_auxdata=lambda _: None,
)


def each(function: Function, *parts: Parts) -> tuple[PyTree, ...] | Stack:
    """`function(part, ...)` of every part and its companions: one call if the first is a `Stack`.

    **Arguments:** `parts`: a `Stack`, a dense array with one part a row, or any sequence.
    """
    if isinstance(parts[0], Stack):
        batches = [batch_of(p) for p in parts]
        if all(b is not None for b in batches):
            out = jax.vmap(function)(*batches)
            return Stack(out) if jax.tree.leaves(out) else (out,) * len(parts[0])
    return tuple(function(*of_one) for of_one in zip(*parts, strict=True))


def batch_of(parts: Parts) -> PyTree | None:
    """Parts as one batch, if they are alike: in structure, shapes and dtypes."""
    if isinstance(parts, Stack):
        return parts.array
    if isinstance(parts, Array):
        return parts
    kind = lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf))
    first, *others = ((jax.tree.structure(p), [*map(kind, jax.tree.leaves(p))]) for p in parts)
    if not first[1] or any(other != first for other in others):
        return None
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)


def summed(parts: Sequence[Array] | Stack) -> Array:
    """The sum of what `each` found, numbers or arrays."""
    if isinstance(parts, Stack):
        return jnp.sum(parts.array, axis=0)
    first, *rest = parts
    return sum(rest, first)
