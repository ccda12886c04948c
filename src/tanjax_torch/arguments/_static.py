"""Arguments that are no arrays, as keys of caches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import jax
import torch
from jax.tree_util import PyTreeDef

from tanjax.arrays import is_structured
from tanjax_torch._typing import Args, Argument, Kwargs


def frozen(a: Argument) -> Hashable:
    """Return an argument as a key that can be hashed."""
    if isinstance(a, (list, tuple)):
        return tuple([frozen(x) for x in a])
    if isinstance(a, (bool, int, float)):
        return (type(a), a)  # 1, 1.0 and True hash alike and are different arguments
    return None if isinstance(a, torch.Generator) else a


def thawed(a: Hashable) -> Argument:
    """The argument of a key."""
    if isinstance(a, tuple):
        typed = len(a) == 2 and isinstance(a[0], type)
        return a[1] if typed else [thawed(x) for x in a]
    return a


class Arguments:
    """The arguments of a call as a key: its tree, and the leaves that are no operands."""

    def __init__(self, leaves: list[object], tree: PyTreeDef) -> None:
        self.leaves, self.tree = leaves, tree
        self.key = tuple([_hashable(x) for x in leaves]), tree

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return type(other) is Arguments and self.key == other.key

    def fill(self, payloads: Iterable[Argument]) -> tuple[Args, Kwargs]:
        """The arguments, with payloads where tensors were."""
        rest = iter(payloads)
        return jax.tree.unflatten(self.tree, [next(rest) if x is HOLE else x for x in self.leaves])


HOLE = object()


def _hashable(x: object) -> Hashable:
    if isinstance(x, slice):  # cannot be hashed before Python 3.12
        return slice, _hashable(x.start), _hashable(x.stop), _hashable(x.step)
    return (type(x), x) if isinstance(x, (bool, int, float, complex)) else x


def cut(
    args: Args, kwargs: Kwargs, is_operand: Callable[[object], bool]
) -> tuple[Arguments, list[Argument]]:
    """Split a call into the key of its arguments and its operands."""
    leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=is_structured)
    operands = [x for x in leaves if is_operand(x)]
    return Arguments([HOLE if is_operand(x) else x for x in leaves], tree), operands
