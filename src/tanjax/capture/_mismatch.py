"""Compare arguments with those of the capture of a program, and explain a mismatch."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax.tree_util import KeyPath, PyTreeDef
from jaxtyping import PyTree

from tanjax._errors import CaptureError, message
from tanjax._marks import MOVING, Shape, Static, is_operand
from tanjax._typing import AnyArray

from ._tracing import Traced, is_result
from ._types import aval_text


def operands_of(name: str, t: Traced, args: PyTree, kwargs: dict[str, PyTree]) -> list[AnyArray]:
    """Return the arrays among arguments. **Raises:** `CaptureError` naming a changed argument."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    if tree != t.tree:
        raise other(name, "the arguments", expected(t.tree), expected(tree))
    operands, shape = _split_as(t, leaves)
    if shape != t.shape:
        for (path, _), was, now in zip(_paths(tree), t.shape, shape, strict=True):
            if was is not now and was != now:
                raise other(name, _argument(path), _text(was), _text(now))
    places = (path for (path, _), s in zip(_paths(tree), shape, strict=True) if s is MOVING)
    for path, var, x in zip(places, t.closed.jaxpr.invars, operands, strict=True):
        given = jax.typeof(x)
        if (given.shape, given.dtype) != (var.aval.shape, var.aval.dtype):
            raise other(name, _argument(path), aval_text(var.aval), aval_text(given))
    return operands


def has_parameters(t: Traced, args: PyTree, kwargs: dict[str, PyTree]) -> bool:
    """True if the static arguments are those of the capture; arrays are not compared."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    return bool(tree == t.tree) and _split_as(t, leaves)[1] == t.shape


def _split_as(t: Traced, leaves: Sequence[PyTree]) -> tuple[list[AnyArray], Shape]:
    """Return the operands among leaves, and the entry of every place.

    A number that a definition passes to its function is a parameter of the traced program.
    """
    moves = [
        is_operand(x) or (was is MOVING and is_result(x))
        for x, was in zip(leaves, t.shape, strict=True)
    ]
    pairs = list(zip(leaves, moves, strict=True))
    static = lambda x: x if type(x) is Static else Static(x)
    return [x for x, moving in pairs if moving], tuple(
        MOVING if moving else static(x) for x, moving in pairs
    )


def _paths(tree: PyTreeDef) -> list[tuple[KeyPath, int]]:
    return jax.tree_util.tree_leaves_with_path(jax.tree.unflatten(tree, range(tree.num_leaves)))


def _argument(path: KeyPath) -> str:
    """The place of a leaf in `(args, kwargs)`: `argument 0['w']`, `keyword n`."""
    group, key, *rest = path
    inner = jax.tree_util.keystr(tuple(rest))
    if group.idx % 2 == 0:
        return f"argument {key.idx}{inner}"
    return f"keyword {key.key}{inner}"


def expected(tree: PyTreeDef) -> str:
    args, kwargs = jax.tree.unflatten(tree, ["*"] * tree.num_leaves)
    named = [f"{k}={v}" for k, v in kwargs.items()]
    return f"({', '.join([*map(str, args), *named])})"


def _text(x: object) -> str:
    return f"static {x!r}" if isinstance(x, Static) else "an array"


def other(name: str, where: str, expected: str, got: str) -> CaptureError:
    return CaptureError(
        message(
            f"{name}: {where}: not as captured.",
            f"captured: {expected}",
            f"given:    {got}",
            "why: a program is for the shapes, dtypes, trees, units and static values captured.",
            hint="capture again: `tj.capture(f)(*args)`.",
        )
    )
