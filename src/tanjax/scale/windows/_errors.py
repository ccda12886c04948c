"""Absolute errors of numbers that underflow, and the sums whose rounding is larger.

most([Off(-126.0, frozenset((3,))), EXACT])  # Off(-126.0, {3})
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ..graph._graph import Value
from ..laws._law import vanish_of
from ..laws._vanish import CONVERTED
from ..numbers._interval_record import MANTISSA

NEVER = -math.inf  # the logarithm of no error


class Off(NamedTuple):
    """An absolute error, in log2, and the values whose underflow is its source.

    `is_whole`: every wrong entry is 0, and its true size is at most the error.
    """

    size: float = NEVER
    sources: frozenset[int] = frozenset()
    is_whole: bool = True


EXACT = Off()


def most(errors: Iterable[Off]) -> Off:
    """Return the largest of some errors, with the sources of all."""
    errors = list(errors)
    sources = frozenset[int]().union(*(e.sources for e in errors))
    is_whole = all(e.is_whole for e in errors)
    return Off(max((e.size for e in errors), default=NEVER), sources, is_whole)


def digits_of(v: Value) -> int:
    """Return the bits of a value's mantissa."""
    return MANTISSA.get(str(v.aval.dtype), 24)


def is_sum(v: Value) -> bool:
    """True if a value is a sum, perhaps moved, or a transform or a factor of sums."""
    while (node := v.node) is not None:
        if node.graphs:
            if not node.is_call:
                return False
            inner = node.graphs[-1].outputs
            place = next(i for i, out in enumerate(node.outputs) if out is v)
            if place >= len(inner):
                return False
            v = inner[place].value
        elif vanish_of(node).moves or vanish_of(node) is CONVERTED:
            moved = [u.value for u in node.uses if u.value.is_floating]
            if not moved:
                return False
            v = moved[0]
        else:
            return vanish_of(node).adds
    return False
