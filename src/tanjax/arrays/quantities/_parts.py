"""The number and the label of a value that may be a quantity.

Modules on the path of every operation test the type themselves, which saves a call.
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
    """True if a value, or a node of a tree, is a quantity."""
    return type(x) is Unitful


def stored_of(x: PyTree) -> Primal:
    """Return the stored number of a quantity, and any other value itself."""
    return x.stored if type(x) is Unitful else x


def label_of(x: PyTree) -> Unit | None:
    """Return the unit of a quantity, with its power of two, and `None` for other values."""
    return x.label if type(x) is Unitful else None


def split_unit(x: PyTree) -> tuple[PyTree, Unit]:
    """Return the number and the unit of a value; the unit of a plain value is 1."""
    return (x.stored, x.label) if type(x) is Unitful else (x, units.one)


def taken_apart(tree: PyTree) -> tuple[list[Primal], list[Unit | None], PyTreeDef]:
    """Return the numbers and labels of the arrays of a tree, and its treedef.

    Structured arrays count as leaves.
    """
    leaves, treedef = jax.tree.flatten(tree, is_leaf=is_structured)
    return [stored_of(x) for x in leaves], [label_of(x) for x in leaves], treedef
