"""Results of a compiled function, separated from their units, with the exponents of a plan."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import jax
from jaxtyping import PyTree

from tanjax._typing import Function, Primal
from tanjax.arrays import fact, is_inexact, is_structured
from tanjax.quantities import Quantity, is_quantity, shift, taken_apart, unitful

MANY = 4  # quantities: from 4 on, taking them apart in Python is faster than in JAX

# The `PyTreeDef` of results, and their units, None of plain results. For a single quantity: None,
# and its unit.
Labels: TypeAlias = tuple[Any, Any]


class Packed:
    """Results on their way out of JAX, separated from their units.

    JAX builds a quantity by its constructor, 0.7 us each. One node for all results, whose values
    `unitful` labels, takes 0.2 us each. No user ever gets this node.
    """

    __slots__ = ("labels", "values")

    def __init__(self, labels: Labels, values: Sequence[Primal]) -> None:
        self.labels, self.values = labels, values


jax.tree_util.register_pytree_node(Packed, lambda x: (x.values, x.labels), Packed)


def pack(out: PyTree) -> PyTree:
    """Separate a quantity, or results with `MANY`, from their units; return others as they are."""
    if type(out) is Quantity:
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


# Called when a label loses its power of two; None: labels keep their powers.
_told = contextvars.ContextVar[Callable[[], object] | None]("told", default=lambda: None)


@contextlib.contextmanager
def telling(tell: Callable[[], object] | None) -> Iterator[None]:
    """Set the function to call when a traced program takes a power of two out of a label."""
    token = _told.set(tell)
    try:
        yield
    finally:
        _told.reset(token)


def with_powers(fun: Function) -> Function:
    """Return the function with labels that keep their powers of two when it is traced."""

    @functools.wraps(fun)
    def traced(*args: PyTree, **kwargs: PyTree) -> PyTree:
        with telling(None):
            return fun(*args, **kwargs)

    return traced


def without_powers(tree: PyTree) -> PyTree:
    """Move quantities to exponent 0: the plan of the program has their exponents.

    Inside the program one unit is then one structure, and trees of quantities are comparable.
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
    """Return results as a list of dense or structured arrays, their labels, and their tree."""
    if type(out) is Packed:
        treedef, labels = out.labels
        given = [labels] if treedef is None else list(labels)
        return list(out.values), given, treedef
    return taken_apart(out)


def free_leaves(out: PyTree) -> list[bool]:
    """Return, per array of the results, true if it may carry an exponent.

    It may if it is the only floating array of a quantity with a linear unit and a linear type.
    """
    numbers, labels, _ = _slots(out)
    free = []
    for x, label in zip(numbers, labels, strict=True):
        moving = list(map(is_inexact, jax.tree.leaves(x)))
        may = label is not None and label.is_linear and fact(x, "is_linear")
        free += [m and may and moving.count(True) == 1 for m in moving]
    return free


def bound_leaves(out: PyTree) -> list[bool]:
    """Return, per array of the results, true if it has a unit but cannot carry an exponent.

    These are the floating fields of structured quantities, if there are several or if the type is
    not linear.
    """
    numbers, labels, _ = _slots(out)
    found = []
    for x, label in zip(numbers, labels, strict=True):
        leaves, has_unit = jax.tree.leaves(x), label is not None and label.is_linear
        found += [has_unit and is_structured(x) and is_inexact(v) for v in leaves]
    return [b and not f for b, f in zip(found, free_leaves(out), strict=True)]


def relabelled(out: PyTree, exponents: Sequence[int]) -> PyTree:
    """Move the exponents of the stored arrays of results into the labels of quantities."""
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
