"""Loops that hand back their state: results of a call that are arguments of the next one.

To look at a state is to wait for it, and the device would stand still meanwhile. So nothing is
waited for: on every eighth call a small program looks at the state, beside the function's own, and
the next call reads what it has found; a flag of values inside is handed from call to call, and
every fourth call reads the one of four calls before.

    state = step(state, batch)  # the batch is looked at now, the state on the device

A state that has left its windows is therefore wrong for at most 9 calls, until the warning; it
comes with one of the next calls, with `.plans`, or at the end of the process.

Sharp edge: results are recognised by weak references: the `id` of one that is gone may be that of
another array.
"""

from __future__ import annotations

import atexit
import functools
import weakref
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax.scale import outside
from tanjax.scale.numbers import Window

from ._arguments import Args, Kwargs, Leaves
from ._cases import Case, Entry, Handed, Pairs

if TYPE_CHECKING:
    from ._planning import PlannedFunction

# Promise: a state is wrong for at most 9 calls. Calls of which one looks at it, and calls after
# which a flag is waited for (3 calls of a loop overlap on a CPU).
_LOOKS, _WAITS = 8, 4

LATE = (
    "results that were handed back to it, or numbers on the way, have left the magnitudes for "
    "which the program is right: the results of the last calls, up to {}, may be wrong. With "
    'check="now" each call is waited for.'
)


def references(out: PyTree) -> tuple[weakref.ref[Any], ...]:
    """References to the results of a call; none where something is no array."""
    try:
        return tuple(map(weakref.ref, jax.tree.leaves(out)))
    except TypeError:
        return ()


def pairs_in(handed: Handed, leaves: Leaves) -> Pairs:
    """The arguments that are results of the last call."""
    results, known = handed.results, handed.pairs
    if known and all([a < len(leaves) and results[r]() is leaves[a] for a, r in known]):
        return known
    if not results:
        return ()
    places = {id(x): r for r, ref in enumerate(results) if (x := ref()) is not None}
    return tuple([(a, places[id(x)]) for a, x in enumerate(leaves) if id(x) in places])


def is_raised(flag: jax.Array | None) -> bool:
    """Read a flag, which waits for it. `item` of NumPy takes 4 us, `bool` of an array 17 us."""
    return flag is not None and bool(np.asarray(flag).item())


@functools.cache
def no_flag() -> jax.Array:
    """A flag that is not raised."""
    return jnp.array(False)


class Late:
    """The calls of a planned function whose arguments are results of the last call."""

    def __init__(self, looks: bool) -> None:
        self._looks = looks

    def is_due(self, handed: Handed) -> bool:
        """Whether a flag of the calls before is raised, of those that are read now."""
        if is_raised(handed.looked):
            return True
        return handed.calls % _WAITS == _WAITS - 1 and is_raised(handed.waited)

    def run(self, case: Case, handed: Handed, args: Args, kwargs: Kwargs, leaves: Leaves) -> PyTree:
        """The results of a call whose other arguments are in their windows.

        **Arguments:** `handed`: of the last call, with the `pairs` of this one.
        """
        looked, before, entry = None, handed.flag, handed.entry
        assert entry is not None
        if handed.calls % _LOOKS == 0:  # first: a donated state is gone afterwards
            looked = self._look(entry, {a: leaves[a] for a, _ in handed.pairs})
        if entry.flagged is None:
            out = entry.program(*args, **kwargs)
        else:
            given = no_flag() if before is None else before
            flag, out = entry.flagged(entry.limits, given, *args, **kwargs)
            before = flag if self._looks else None
        is_read = handed.calls % _WAITS == _WAITS - 1
        waited = before if is_read else handed.waited
        new = Handed(references(out), entry, handed.pairs, handed.calls + 1, before, waited, looked)
        with case.lock:
            if case.state.handed is not handed:  # another thread came between
                self.end(case)
            case.swap(handed=new)
        return out

    def end(self, case: Case) -> None:
        """Forget the last call; its flags, and a last look at its state, are to be read."""
        with case.lock:
            handed, unread = case.state.handed, case.state.unread
            last = self._last_look(handed)
            flags = handed.flags if last is None else (*handed.flags, last)
            case.swap(handed=Handed(), unread=(*unread, *flags))

    def _last_look(self, handed: Handed) -> jax.Array | None:
        """Whether the results of a loop, as far as they are there, have left their windows."""
        if not handed.calls or handed.entry is None:
            return None
        found = [(a, handed.results[r]()) for a, r in handed.pairs]
        there = {a: x for a, x in found if isinstance(x, jax.Array) and not x.is_deleted()}
        return self._look(handed.entry, there)

    def _look(self, entry: Entry, state: dict[int, jax.Array]) -> jax.Array | None:
        """Whether a state, by the places of arguments, has left its windows."""
        known = entry.watch.windows if self._looks and entry.watch else {}
        windows = tuple((i, known[i]) for i in state if i in known)
        return _outside(windows, [state[i] for i, _ in windows]) if windows else None


@functools.partial(jax.jit, static_argnums=0)
def _outside(windows: tuple[tuple[int, Window], ...], leaves: Leaves) -> jax.Array:
    """Whether a state has left its windows."""
    return outside(dict(windows), dict(zip((i for i, _ in windows), leaves, strict=True)))


RUNNING: weakref.WeakSet[PlannedFunction] = weakref.WeakSet()


@atexit.register
def _say_at_the_end() -> None:
    for planned in list(RUNNING):
        planned.read_flags()
