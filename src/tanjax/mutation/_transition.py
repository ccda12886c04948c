"""The transition of an in-place function: from arguments to the state after, and an output.

The output may contain memory: a Ref of the caller, which must come back as the same object, or a
Ref that the function made. Neither is an array. The output of a transition therefore holds a mark
in its place, and the call on Refs puts the Ref back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import NamedTuple

import jax
from jaxtyping import PyTree

from tanjax._errors import MutationError, message
from tanjax.arrays import is_structured

from ._discharge import is_array
from ._jax_refs import is_ref, is_view
from ._refs import StructuredRef, freeze, new_ref


class Transition(NamedTuple):
    """The state after a call, one entry for each name in `mutates`, and its output.

    A mark without arrays stands for memory in the output; its contents are in `state`.
    """

    state: tuple[PyTree, ...]
    out: PyTree


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Same:
    """A mark for memory of the caller: the argument, the array in it, and the field of that."""

    argument: str
    array: int
    field: int | None

    def __repr__(self) -> str:
        parts = [str(i) for i in (self.array, self.field) if i]
        return f"<the memory of `{self.argument}`{''.join(f', {i}' for i in parts)}>"


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Again:
    """A mark for memory that the function made and that another mark already has."""

    number: int


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Fixed:
    """A mark for a value that is not an array: a text or a function."""

    value: Hashable

    def __repr__(self) -> str:
        return repr(self.value)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Fresh:
    """A mark with the contents of memory that the function made."""

    number: int
    value: PyTree

    def tree_flatten(self) -> tuple[tuple[PyTree], int]:
        return (self.value,), self.number

    @classmethod
    def tree_unflatten(cls, number: int, children: tuple[PyTree]) -> Fresh:
        return cls(number, *children)


def is_mark(x: object) -> bool:
    """True if a node of an output is a mark."""
    return isinstance(x, Same | Again | Fresh | Fixed)


def is_memory(x: object) -> bool:
    """True if a node of a tree is memory as a whole: a Ref, a view, a structured array of Refs."""
    return type(x) is StructuredRef or is_ref(x) or is_view(x) or is_structured(x)


def memories(tree: PyTree) -> list[PyTree]:
    """Return the Refs, views and structured ones of an argument that is in memory."""
    return jax.tree.leaves(tree, is_leaf=is_memory)


def read(tree: PyTree) -> PyTree:
    """Return a tree with the contents of its Refs."""

    def one(x: PyTree) -> PyTree:
        if type(x) is StructuredRef or is_ref(x) or is_view(x):
            return x[...]
        return jax.tree.map(read, x) if is_memory(x) else x

    return jax.tree.map(one, tree, is_leaf=is_memory)


def marked(function: str, out: PyTree, refs: Mapping[str, PyTree]) -> PyTree:
    """Return an output with marks for the Refs in it, given the mutated arguments by name."""
    place: dict[int, Same] = {}
    for name, tree in refs.items():
        for i, array in enumerate(memories(tree)):
            for j, field in enumerate(jax.tree.leaves(array)):
                place[id(field)] = Same(name, i, j)
            place[id(array)] = Same(name, i, None)
    made: dict[int, PyTree] = {}

    def mark(x: PyTree) -> PyTree:
        if id(x) in place:
            return place[id(x)]
        if is_view(x):
            raise MutationError(
                message(
                    f"{function}: returns a view of a Ref.",
                    "why: a transition can return arrays or whole Refs.",
                    hint="return its value, `view[...]`, or the whole Ref.",
                )
            )
        fields = jax.tree.leaves(x)
        if any(id(f) in place for f in fields):  # a new view of fields with the caller's Refs
            return jax.tree.map(lambda f: place.get(id(f), f), x)
        if not any(map(is_ref, fields)):
            return jax.tree.map(lambda f: f if is_array(f) else _fixed(function, f), x)
        if id(x) in made:
            return Again(list(made).index(id(x)))
        made[id(x)] = x
        return Fresh(len(made) - 1, freeze(x))

    return jax.tree.map(mark, out, is_leaf=lambda x: id(x) in place or is_memory(x))


def _fixed(function: str, x: PyTree) -> Fixed:
    try:
        hash(x)
    except TypeError:
        raise MutationError(
            message(
                f"{function}: returns a {type(x).__name__}, which is no array and has no hash.",
                "why: it is part of the compiled program.",
                hint="return arrays, trees of them, or a text.",
            )
        ) from None
    return Fixed(x)


def with_memory(out: PyTree, given: Mapping[str, PyTree]) -> PyTree:
    """Return an output with the caller's Refs, and new ones, instead of the marks."""
    made: dict[int, PyTree] = {}

    def one(x: PyTree) -> PyTree:
        if isinstance(x, Same):
            array = memories(given[x.argument])[x.array]
            return array if x.field is None else jax.tree.leaves(array)[x.field]
        if isinstance(x, Again):
            return made[x.number]
        if isinstance(x, Fresh):
            return made.setdefault(x.number, new_ref(x.value))
        return x.value if isinstance(x, Fixed) else x

    return jax.tree.map(one, out, is_leaf=is_mark)
