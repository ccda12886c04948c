"""The state around a call of a function: the lifts and the traces that watch it.

Lifted code works on plain numbers whose units are tracked elsewhere. If it meets a quantity from
outside, the quantity must become a plain number. And a trace must learn whether its code reads a
number in its own unit, because then the trace serves no other unit.

    with watching() as found:
        f(x)
    depends_on_units = bool(found)

Sharp edges. Both are per thread, as JAX's traces are.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from jaxtyping import PyTree

from ._quantity import Quantity


class _Lifting(threading.local):
    """The functions that turn quantities into numbers, innermost last; JAX traces per thread."""

    def __init__(self) -> None:
        self.stack: list[Callable[[Quantity], PyTree]] = []


_LIFTING = _Lifting()


@contextlib.contextmanager
def lifting(number: Callable[[Quantity], PyTree]) -> Iterator[None]:
    """Convert quantities that do not fit plain numbers by `number(quantity)` inside the context.

    For code whose units are tracked elsewhere, and which closes over quantities.
    """
    _LIFTING.stack.append(number)
    try:
        yield
    finally:
        _LIFTING.stack.pop()


def innermost_lift() -> Callable[[Quantity], PyTree] | None:
    """Return the function that turns a quantity into a number here, or `None`."""
    return _LIFTING.stack[-1] if _LIFTING.stack else None


class _Watched(threading.local):
    """The active traces that record whether a result depends on the unit of a number."""

    def __init__(self) -> None:
        self.traces: list[list[bool]] = []


_WATCHED = _Watched()


@contextlib.contextmanager
def watching() -> Iterator[list[bool]]:
    """Yield a list that stays empty unless some code reads a number in its own unit.

    Rounding does: half a kilometre and five hundred metres round to different lengths. A program
    that rounds must not be reused for other units.
    """
    found: list[bool] = []
    _WATCHED.traces.append(found)
    try:
        yield found
    finally:
        _WATCHED.traces.pop()


def note_unit_dependence() -> None:
    """Record in the active traces that their result depends on the units of the arguments."""
    for found in _WATCHED.traces:
        found.append(True)
