"""Results of a compiled function, apart from their units and with the exponents of a plan."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import jax
from jaxtyping import PyTree

from tanjax._typing import Function, Primal
from tanjax.arrays import (
    Unitful,
    fact,
    is_inexact,
    is_quantity,
    is_structured,
    shift,
    taken_apart,
    unitful,
)

MANY = 4  # quantities from which on it pays to take them apart, or put together, in Python

# The `PyTreeDef` of results, and their units, None of plain ones; of one quantity None, and a unit.
Labels: TypeAlias = tuple[Any, Any]


class Packed:
    """Results on their way out of JAX, apart from their units.

    JAX puts a quantity together by its constructor, 0.7 us each; one node for all results, whose
    values are labelled by `unitful`, takes 0.2 us each. Nothing else ever sees it.
    """

    __slots__ = ("labels", "values")

    def __init__(self, labels: Labels, values: Sequence[Primal]) -> None:
        self.labels, self.values = labels, values


jax.tree_util.register_pytree_node(Packed, lambda x: (x.values, x.labels), Packed)


def pack(out: PyTree) -> PyTree:
    """One quantity, or results with many, apart from their units; others as they are."""
    if type(out) is Unitful:
        return Packed((None, out.label), (out.stored,))
    values, units, treedef = taken_apart(out)
    if len(units) - units.count(None) < MANY:
        return out
    return Packed((treedef, tuple(units)), values)


def unpack(out: PyTree) -> PyTree:
    """Undo `pack`."""
    if type(out) is not Packed:
        return out
    treedef, units = out.labels
    if treedef is None:
        return unitful(out.values[0], units)
    labelled = [
        v if u is None else unitful(v, u)
        for v, u in zip(out.values, units)  # noqa: B905  (`strict` costs 2 us per 100)
    ]
    return treedef.unflatten(labelled)


# Called where a label loses its power of two; None: labels keep theirs.
_told = contextvars.ContextVar[Callable[[], object] | None]("told", default=lambda: None)


@contextlib.contextmanager
def telling(tell: Callable[[], object] | None) -> Iterator[None]:
    """Say what is called where a traced program takes a power of two out of a label."""
    token = _told.set(tell)
    try:
        yield
    finally:
        _told.reset(token)


def with_powers(fun: Function) -> Function:
    """The function as it is traced where its labels keep their powers of two."""

    @functools.wraps(fun)
    def traced(*args: PyTree, **kwargs: PyTree) -> PyTree:
        with telling(None):
            return fun(*args, **kwargs)

    return traced


def without_powers(tree: PyTree) -> PyTree:
    """Quantities at exponent 0: the plan of the program has their exponents.

    So one unit is one structure inside of it, and trees of quantities fit together.
    """
    tell = _told.get()
    if tell is None:
        return tree

    def moved(x: PyTree) -> PyTree:
        if not (is_quantity(x) and x.label.scale and is_inexact(x) and fact(x.stored, "is_linear")):
            return x
        tell()
        shifted = lambda v: shift(v, x.label.scale) if is_inexact(v) else v
        return unitful(jax.tree.map(shifted, x.stored), x.label.plain)

    return jax.tree.map(moved, tree, is_leaf=is_quantity)


def _slots(out: PyTree) -> tuple[list[Primal], list[Any], Any]:
    """Results as a list of dense or structured numbers, their labels, and how to undo it."""
    if type(out) is Packed:
        treedef, labels = out.labels
        given = [labels] if treedef is None else list(labels)
        return list(out.values), given, treedef
    return taken_apart(out)


def free_leaves(out: PyTree) -> list[bool]:
    """Per array of the results, whether it may carry an exponent: the only numbers with a unit.

    Those of a structured array are multiplied with it if its type is linear, and may be several.
    """
    numbers, labels, _ = _slots(out)
    free = []
    for x, label in zip(numbers, labels, strict=True):
        moving = list(map(is_inexact, jax.tree.leaves(x)))
        may = label is not None and label.is_linear and fact(x, "is_linear")
        free += [m and may and moving.count(True) == 1 for m in moving]
    return free


def bound_leaves(out: PyTree) -> list[bool]:
    """Per array of the results, whether it has a unit and numbers, but cannot carry an exponent.

    So have structured quantities of several fields, or of a type that is not linear.
    """
    numbers, labels, _ = _slots(out)
    found = []
    for x, label in zip(numbers, labels, strict=True):
        leaves, has_unit = jax.tree.leaves(x), label is not None and label.is_linear
        found += [has_unit and is_structured(x) and is_inexact(v) for v in leaves]
    return [b and not f for b, f in zip(found, free_leaves(out), strict=True)]


def relabelled(out: PyTree, exponents: Sequence[int]) -> PyTree:
    """Results whose stored arrays have exponents, which go into the labels of quantities."""
    if not any(exponents):
        return out
    numbers, labels, treedef = _slots(out)
    given, new = iter(exponents), []
    for x, label in zip(numbers, labels, strict=True):
        mine = [next(given) for _ in jax.tree.leaves(x)]
        new.append(label.scaled(sum(mine)) if any(mine) else label)  # one at most is not 0
    if type(out) is Packed:
        return Packed((treedef, new[0] if treedef is None else tuple(new)), out.values)
    return treedef.unflatten(
        [x if label is None else unitful(x, label) for x, label in zip(numbers, new, strict=True)]
    )
