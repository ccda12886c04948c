"""A function of trees as a flat jaxpr, and what its leaves were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jaxtyping import PyTree

from tanjax._marks import Shape, is_number, join, of_operands, split


class Traced(NamedTuple):
    """A jaxpr of plain arrays, with the trees of what it takes and gives."""

    closed: Any
    tree: Any
    shape: Shape
    out_tree: Any
    out_shape: Shape


def trace(
    function: Callable[..., PyTree], tree: Any, shape: Shape, moving: Sequence[Any]
) -> Traced:
    """Trace a function of `(args, kwargs)` on the operands `moving`; the user's code runs once."""
    found: list[Any] = []

    def flat(*moving: Any) -> list[Any]:
        args, kwargs = join(tree, shape, moving)
        outs, *result = split(function(*args, **kwargs), is_result)
        found[:] = result
        return outs

    closed = jax.make_jaxpr(of_operands(flat))(*moving)
    return Traced(closed, tree, shape, *found)


def is_result(x: PyTree) -> bool:
    """Whether a leaf of a result is one of a program: an array or a number, a truth value also."""
    return is_number(x) or isinstance(x, bool)


def is_argument(x: PyTree) -> bool:
    """Whether a leaf is an operand of a program: what JAX traces."""
    return is_result(x) or isinstance(x, jax.ShapeDtypeStruct)
