"""Captured calls of operations: each is one equation, with the types of its arguments."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from jaxtyping import PyTree

from tanjax import _marks, arrays
from tanjax.quantities import is_traced

from ._closures import closes_over_tracers
from ._lowering import use_linear
from ._table import is_static_value

if TYPE_CHECKING:
    from ._operation import Operation


def marked_call(op: Operation, args: Sequence[PyTree], statics: dict[str, PyTree]) -> PyTree:
    """Return a call of an operation as one equation of the program under capture.

    A call whose static arguments, body or rule hold tracers is traced through: no equation would
    show what it depends on.
    """
    fixed = [i for i, a in enumerate(args) if is_static_value(a)]
    if closes_over_tracers(*(args[i] for i in fixed), *op.resolve(args, statics).functions()):
        return op.primal(*args, **statics)
    if op.strips(args) and not is_traced(args):
        return op.body(args, statics)[0](*args)

    def run(*args: PyTree, **statics: PyTree) -> PyTree:
        body, _ = op.body(args, statics)
        return body(*args)

    shown = [_marks.Static(a) if i in fixed else a for i, a in enumerate(args)]
    named = {k: _marks.Static(v) for k, v in statics.items()}
    # The literals beside a quantity decide the unit: `q + 0` fits, `q ** 2` is squared.
    moves = _marks.is_operand if op.strips(args) else _marks.is_number
    mode: Hashable = arrays.densify_mode(), use_linear()
    return _marks.marked("operation", op.name, op, run, shown, named, op.marks, mode, moves)
