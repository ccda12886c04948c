"""Loops that hand back their state: results of a call that are arguments of the next one.

A check of a state has to wait for it, and the device would idle meanwhile. So the state of a call
is checked two calls later, and the device computes the calls between. A state that is donated, or
large, is checked immediately. A state on another device is checked there, beside the function's
program. A flag of values inside is handed from call to call. Every fourth call reads the flag of
four calls before.

    state = step(state, batch)  # the batch is checked now, the state later

A state that has left its windows is therefore wrong for at most 9 calls before the warning. The
warning comes with one of the next calls, with `.plans`, when the function is deleted, or at the end
of the process. A state that was deleted before its check counts as outside of its windows.

Sharp edge: results are recognised by weak references, because the `id` of a deleted array may be
that of another array.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import PyTree

from ._arguments import Args, Kwargs, Leaves
from ._cases import Case, Handed, Pairs, no_flag

# Promise: a state is wrong for at most 9 calls. The number of calls before the check of a state,
# and before the wait for a flag (3 calls of a loop overlap on a CPU).
_ASKED, _WAITS = 2, 4
_HELD = 1 << 24  # bytes of a state that is kept until its check: bounds memory

LATE = (
    "results that were handed back to it, or numbers on the way, have left the magnitudes for "
    "which the program is right, or were deleted before tanjax read them. The results of the "
    'last calls, up to 9, may be wrong. check="now" waits for each call.'
)


def references(out: PyTree) -> tuple[weakref.ref[Any], ...]:
    """Return references to the results of a call; none if a result is no array."""
    try:
        return tuple(map(weakref.ref, jax.tree.leaves(out)))
    except TypeError:
        return ()


def pairs_in(handed: Handed, leaves: Leaves) -> Pairs:
    """Return the places of arguments that are results of the last call, with their results."""
    results, known = handed.results, handed.pairs
    if known and all([a < len(leaves) and results[r]() is leaves[a] for a, r in known]):
        return known
    if not results:
        return ()
    places = {id(x): r for r, ref in enumerate(results) if (x := ref()) is not None}
    return tuple([(a, places[id(x)]) for a, x in enumerate(leaves) if id(x) in places])


def is_raised(flag: jax.Array | bool | None) -> bool:
    """Wait for a flag and read it. `item` of NumPy takes 4 us, `bool` of an array 17 us."""
    return flag is not None and bool(np.asarray(flag).item())


class Late:
    """The calls of a planned function whose arguments are results of the last call.

    **Arguments:** `checks`: true if states are compared with windows; `donates`: true if arguments
    are donated.
    """

    def __init__(self, checks: bool, donates: bool) -> None:
        self._checks, self._donates = checks, donates

    def is_due(self, handed: Handed) -> bool:
        """True if the state, or the flag, of an earlier call has left its windows.

        Runs before each call; most calls read nothing.
        """
        if len(handed.checks) >= _ASKED and not handed.checks[0]():
            return True
        return handed.calls % _WAITS == _WAITS - 1 and is_raised(handed.waited)

    def run(self, case: Case, handed: Handed, args: Args, kwargs: Kwargs, leaves: Leaves) -> PyTree:
        """Run a call whose other arguments are in their windows.

        **Arguments:** `handed`: of the last call, with the `pairs` of this one.
        """
        before, entry = handed.flag, handed.entry
        assert entry is not None
        checks = handed.checks[-_ASKED + 1 :]
        if self._checks and entry.watch:  # first: a donated state is gone afterwards
            state = {a: leaves[a] for a, _ in handed.pairs}
            is_kept = not self._donates and sum(x.nbytes for x in state.values()) <= _HELD
            checks += (entry.watch.begin(state, is_kept),)
        if entry.flagged is None:
            out = entry.program(*args, **kwargs)
        else:
            given = no_flag() if before is None else before
            flag, out = entry.flagged(entry.limits, given, *args, **kwargs)
            before = flag if self._checks else None
        is_read = handed.calls % _WAITS == _WAITS - 1
        waited = before if is_read else handed.waited
        new = Handed(references(out), entry, handed.pairs, handed.calls + 1, before, waited, checks)
        with case.lock:
            if case.state.handed is not handed:  # another thread came between
                self.end(case)
            case.swap(handed=new)
        return out

    def end(self, case: Case) -> None:
        """Forget the last call: check its states, and keep its flags to be read."""
        with case.lock:
            handed, unread = case.state.handed, case.state.unread
            case.swap(handed=Handed(), unread=(*unread, *handed.flags))
            if not all([check() for check in handed.checks]):
                case.swap(unread=(*case.state.unread, True))


@runtime_checkable
class Flagged(Protocol):
    """A function with flags that are read later: a `PlannedFunction`."""

    def read_flags(self) -> None: ...


RUNNING: weakref.WeakSet[Flagged] = weakref.WeakSet()


@atexit.register
def _say_at_the_end() -> None:
    for planned in list(RUNNING):
        planned.read_flags()
