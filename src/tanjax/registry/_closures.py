"""Values that a function holds besides its arguments: closures, defaults, attributes."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import NamedTuple

import jax
from jax.tree_util import Partial, PyTreeDef
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._typing import Function

from ._table import is_static_value

_NOTHING = (str, bytes, bool, type(None), types.ModuleType, types.BuiltinFunctionType)
_LIBRARIES = ("jax", "jaxlib", "tanjax")  # of their objects only the function that they wrap


def closes_over_tracers(*things: object) -> bool:
    """Return whether callables or objects hold values that JAX is tracing.

    No rule sees such values, nor does a call that was compiled when they were numbers.
    """
    return any(isinstance(v, _compat.Tracer) for v in held_by(*things))


def held_by(*things: object) -> Iterator[object]:
    """Yield the numbers, arrays and objects in cells, defaults and attributes of callables.

    Callables among these are searched, too; texts, modules and globals are not.
    """
    seen: dict[int, object] = {}  # holds them, so that no identity is used again
    stack: list[object] = list(things)
    while stack:
        x = stack.pop()
        if id(x) in seen or isinstance(x, _NOTHING):
            continue
        seen[id(x)] = x
        if isinstance(x, _compat.Tracer | jax.Array):
            yield x
        elif not jax.tree_util.all_leaves([x]):
            stack += jax.tree.leaves(x)
        elif type(x).__module__.partition(".")[0] in _LIBRARIES:
            stack.append(getattr(x, "__wrapped__", None))
        else:
            if not isinstance(x, types.FunctionType | types.MethodType | type):
                yield x
            stack += _parts(x)


def _parts(x: object) -> Iterator[object]:
    if isinstance(x, type):  # instances are many; what a class method reads is of the class
        return
    yield from (c.cell_contents for c in getattr(x, "__closure__", None) or () if _filled(c))
    yield from getattr(x, "__defaults__", None) or ()
    yield from (getattr(x, "__kwdefaults__", None) or {}).values()
    if isinstance(x, functools.partial):
        yield from (x.func, *x.args, *x.keywords.values())
    owner = getattr(x, "__self__", None)
    yield from vars(owner).values() if isinstance(owner, type) else (owner,)
    yield getattr(x, "__wrapped__", None)
    yield from getattr(x, "__dict__", {}).values()
    for cls in type(x).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        yield from (getattr(x, n, None) for n in ((slots,) if isinstance(slots, str) else slots))


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def holds_functions(x: PyTree) -> bool:
    """Return whether a callable is a tree of functions and arrays, such as an MLP."""
    return callable(x) and not is_static_value(x) and any(map(is_static_value, jax.tree.leaves(x)))


def as_partial(x: Function) -> Partial:
    """Return a callable with functions among its leaves as one with arrays alone."""
    leaves, tree = jax.tree.flatten(x)
    fixed = tuple((i, leaf) for i, leaf in enumerate(leaves) if is_static_value(leaf))
    moving = [leaf for leaf in leaves if not is_static_value(leaf)]
    return Partial(_Put(tree, fixed), moving)


class _Put(NamedTuple):
    """Calls the callable of a tree whose leaves at some places are fixed."""

    tree: PyTreeDef
    fixed: tuple[tuple[int, PyTree], ...]

    def __call__(self, moving: list[PyTree], /, *args: PyTree, **kwargs: PyTree) -> PyTree:
        leaves = list(moving)
        for i, leaf in self.fixed:
            leaves.insert(i, leaf)
        return jax.tree.unflatten(self.tree, leaves)(*args, **kwargs)
