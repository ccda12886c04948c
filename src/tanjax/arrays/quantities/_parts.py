"""What a value that may be a quantity is made of: the one place that asks.

Modules where every call of an operation passes ask for the type by themselves: one call less.
"""

from __future__ import annotations

import jax
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree
from typing_extensions import TypeIs

from tanjax import units
from tanjax._typing import Primal
from tanjax.units import Unit

from .._table import is_structured
from ._unitful import Unitful


def is_quantity(x: PyTree) -> TypeIs[Unitful]:
    """Whether a value, or a node of a tree, is a quantity."""
    return type(x) is Unitful


def stored_of(x: PyTree) -> Primal:
    """The number of a value, as it is stored; a plain one is its own."""
    return x.stored if type(x) is Unitful else x


def label_of(x: PyTree) -> Unit | None:
    """The unit of a value, with its power of two; a plain one has none."""
    return x.label if type(x) is Unitful else None


def split_unit(x: PyTree) -> tuple[PyTree, Unit]:
    """The number and the unit of a value; the unit of a plain one is 1."""
    return (x.stored, x.label) if type(x) is Unitful else (x, units.one)


def taken_apart(tree: PyTree) -> tuple[list[Primal], list[Unit | None], PyTreeDef]:
    """Numbers and labels of the leaves of a tree, each array one of any type, and its form."""
    leaves, treedef = jax.tree.flatten(tree, is_leaf=is_structured)
    return [stored_of(x) for x in leaves], [label_of(x) for x in leaves], treedef
