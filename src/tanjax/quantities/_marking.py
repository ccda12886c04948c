"""Captured calls on quantities: each is one equation, with the units around it.

Numbers stay parameters: a zero fits every unit, and an exponent decides one. Capture traces through
a call that is given functions, or a slice between traced places. A call on known numbers alone runs
at once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax import _marks
from tanjax._compat import Tracer
from tanjax._typing import Function
from tanjax.arrays import densify_mode

from ._quantity import is_quantity

if TYPE_CHECKING:
    from ._unit_function import UnitFunction


def captured(name: str, function: Function, kind: _marks.Kind = "operation") -> Function:
    """Return a function of quantities whose captured calls are equations."""
    marks: _marks.Cache = {}

    @functools.wraps(function, updated=())
    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if _marks.ACTIVE[0] and _marks.capturing():
            return _marked(name, call, function, args, kwargs, marks, kind)
        return function(*args, **kwargs)

    return call


def marked_function(
    function: UnitFunction, args: Sequence[PyTree], kwargs: dict[str, PyTree]
) -> PyTree:
    """Mark a call of a function with a unit signature, during capture."""
    roles = function.by_position
    shown = [
        _shown(a) if i < len(roles) and roles[i].letter == "-" else a for i, a in enumerate(args)
    ]
    name, run = function.name, function.unkept
    return _marked(name, function, run, shown, kwargs, function.marks)


def _marked(
    name: str,
    target: Function,
    run: Function,
    args: Sequence[PyTree],
    kwargs: dict[str, PyTree],
    marks: _marks.Cache,
    kind: _marks.Kind = "operation",
) -> PyTree:
    leaves = jax.tree.leaves((args, kwargs), is_leaf=is_quantity)
    seen = any(map(is_quantity, leaves)) and not any(map(_is_unseen, leaves))
    if not (seen and is_traced(leaves)):
        args = [a.value if type(a) is _marks.Static else a for a in args]
        return run(*args, **kwargs)
    mode = densify_mode()
    return _marks.marked(kind, name, target, run, args, kwargs, marks, mode, _marks.is_operand)


def is_traced(tree: PyTree) -> bool:
    """True if the tree holds a tracer.

    Known values are computed with checks of their range; an equation would hide them.
    """
    return any(isinstance(x, Tracer) for x in jax.tree.leaves(tree))


def _is_unseen(x: PyTree) -> bool:
    """True if an argument may hold tracers that no equation would show."""
    if type(x) is slice:
        return any(isinstance(v, Tracer) for v in (x.start, x.stop, x.step))
    return callable(x) and not isinstance(x, type)


def _shown(x: PyTree) -> PyTree:
    """Mark NumPy arrays as static: shapes and places are read while tracing."""
    return _marks.Static(x) if type(x) is np.ndarray else x
