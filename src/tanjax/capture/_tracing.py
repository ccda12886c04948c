"""A function of trees as a flat jaxpr, with a record of its leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import jax
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax._jaxpr_types import OpenJaxpr, Readable
from tanjax._marks import Shape, is_number, join, of_operands, split
from tanjax._typing import AnyArray


class Traceable(Readable, Protocol):
    """A closed jaxpr of JAX; a change makes a new one."""

    def replace(self, *, jaxpr: OpenJaxpr = ...) -> Traceable: ...


class Traced(NamedTuple):
    """A jaxpr of plain arrays, with the trees of its arguments and results."""

    closed: Traceable
    tree: PyTreeDef
    shape: Shape
    out_tree: PyTreeDef
    out_shape: Shape


def trace(
    function: Callable[..., PyTree], tree: PyTreeDef, shape: Shape, moving: Sequence[AnyArray]
) -> Traced:
    """Trace a function of `(args, kwargs)` on the operands `moving`; the user's code runs once."""
    found: list[PyTree] = []

    def flat(*moving: AnyArray) -> list[AnyArray]:
        args, kwargs = join(tree, shape, moving)
        outs, *result = split(function(*args, **kwargs), is_result)
        found[:] = result
        return outs

    closed = jax.make_jaxpr(of_operands(flat))(*moving)
    return Traced(closed, tree, shape, *found)


def is_result(x: PyTree) -> bool:
    """True if a leaf of a result is a result of a program: an array, a number or a truth value."""
    return is_number(x) or isinstance(x, bool)


def is_argument(x: PyTree) -> bool:
    """True if a leaf is an operand of a program, which JAX traces."""
    return is_result(x) or isinstance(x, jax.ShapeDtypeStruct)
