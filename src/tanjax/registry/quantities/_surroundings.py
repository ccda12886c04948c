"""What a call of a function depends on beside its arguments: who lifts, and who watches.

Code that is lifted works on plain numbers whose units are tracked elsewhere; where it meets a
quantity from outside, the quantity must become such a number. And a trace must learn whether
anything in it asked for a number in its own unit, because then it serves no other unit.

    with watching() as found:
        f(x)
    depends_on_units = bool(found)

Sharp edges. Both are kept per thread, as JAX's traces are.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from jaxtyping import PyTree

from tanjax.arrays import Unitful


class _Lifting(threading.local):
    """Who turns quantities into numbers, innermost last; JAX traces per thread."""

    def __init__(self) -> None:
        self.stack: list[Callable[[Unitful], PyTree]] = []


_LIFTING = _Lifting()


@contextlib.contextmanager
def lifting(number: Callable[[Unitful], PyTree]) -> Iterator[None]:
    """Inside, a quantity that does not fit a plain number is one: `number(quantity)`.

    For code whose units are tracked elsewhere, and which closes over quantities.
    """
    _LIFTING.stack.append(number)
    try:
        yield
    finally:
        _LIFTING.stack.pop()


def innermost_lift() -> Callable[[Unitful], PyTree] | None:
    """What turns a quantity into a number here, if anything does."""
    return _LIFTING.stack[-1] if _LIFTING.stack else None


class _Watched(threading.local):
    """The traces under way that want to know whether a result depends on the unit of a number."""

    def __init__(self) -> None:
        self.traces: list[list[bool]] = []


_WATCHED = _Watched()


@contextlib.contextmanager
def watching() -> Iterator[list[bool]]:
    """Gives a list that is empty at the end unless something asked for a number in its own unit.

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
    """Tell the traces under way that their result depends on the units of the arguments."""
    for found in _WATCHED.traces:
        found.append(True)
