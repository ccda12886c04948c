"""Arguments that are results of the call before, as the state of a training loop is.

To look at such a state is to wait for the step that makes it, and to read all of it once more: a
step of Adam took 2.9 times as long as with `jax.jit`, 1.4 for the wait alone. But it is no
stranger. The program made it itself, from numbers that were looked at. So once it was found where
it had been on `_HARMLESS` calls in a row, it is looked at after 1, 2, 4, … calls, at most
`_RARELY`, while the other arguments are looked at on every call.

    state = step(state, batch)  # `batch` is looked at on each call, `state` on calls 1 to 9, 11, …

Sharp edges. Only JAX's own program is trusted so, and only while nothing else happens: a state or a
batch that grows by more than `_FARTHER` bits, a flag, a state from elsewhere: with any of these it
begins anew. One that moves by more than `_UP` bits upwards, or `_DOWN` downwards, is looked at
twice as often from then on. Near an end of a window that is guessed, the program is run on the
numbers, and the window moves with them. A state that explodes between two looks is found by the
next one, and a `ScaleWarning` says so.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import jax
from jaxtyping import PyTree

from tanjax.scale import Magnitude
from tanjax.scale.numbers import ANYWHERE, Window, inside

from ._arguments import ARRAYS, Leaf, Leaves
from ._entries import Flags, look
from ._nearby import joined
from ._watch import Watch

if TYPE_CHECKING:
    from ._entries import Entry
    from ._nearby import Look

_HARMLESS = 8  # looks in a row before the first call without one
_RARELY, _SOON = 64, 8  # calls without a look, at most; near the end of a window that is guessed
_UP, _DOWN = 2.0, 16.0  # bits by which numbers may move from look to look; few are near zero by law
_FARTHER = 4.0  # bits upwards, from which on what is known of a state counts no more
_ROOM = 0.5  # bits from the largest number to the end of the window of the plan


class Returned:
    """What is known of the arguments of one program that are results of its last call.

    **Arguments:** `keeps`: whether results are small enough to be kept alive.
    """

    def __init__(self, keeps: bool) -> None:
        self._keeps = keeps
        self._results: list[Leaf] = []  # unless small weak: no state lives longer than it is wanted
        self._entry: Entry | None = None
        self._pairs: list[tuple[int, int]] = []  # places of arguments, and of the results they are
        self._hull: Look | None = None
        self._quiet: Watch | None = None  # where all arguments were, and a little around
        self._outside: Watch | None = None  # the same for those that come from outside
        self._avals: list[tuple[int, object]] = []  # of those from outside, and their places
        self._counts: list[int] = []  # places of flags and counts from outside
        self._flags: Flags = ()
        self._looks = self._gap = self._left = self._wait = self._failures = 0
        self._most = _RARELY

    def note(self, out: PyTree) -> None:
        """Remember the results of a call."""
        if self._wait > 1:
            return
        results = jax.tree.leaves(out)
        if not self._keeps:  # 0.2 us each, instead of nothing
            try:
                results = list(map(weakref.ref, results))
            except TypeError:  # something that is no array
                results = []
        self._results = results

    def passes(self, entry: Entry, leaves: Leaves) -> bool:
        """Whether a call needs no look at what it hands back."""
        if not self._left or entry is not self._entry or not self._are_returned(leaves):
            return False
        assert self._outside is not None
        is_known = all([type(leaves[i]) in ARRAYS and leaves[i].aval is a for i, a in self._avals])
        flags = entry.others(leaves, self._counts)
        if not is_known or not self._outside.takes(leaves) or self._flags != flags:
            self._left = 0
            return False
        self._left -= 1
        entry.unseen += 1
        return True

    def unseen(self, leaves: Leaves) -> int:
        """How many calls without a look have made these arguments, which are looked at now."""
        if self._entry is None:
            return 0
        count, self._entry.unseen, self._left = self._entry.unseen, 0, 0
        return count if self._are_returned(leaves) else 0

    def is_harmless(self, entry: Entry, leaves: Leaves) -> bool:
        """Whether what was made without a look is finite, and needs no exponents or fits."""
        assert self._entry is not None
        watch = self._entry.watch
        places = {a for a, _ in self._pairs}
        given = [(leaves[i], w) for i, w in (watch.pairs if watch else ()) if i in places]
        limits = [ANYWHERE if entry.plan.identity else w for _, w in given]
        return all(
            inside(x, w._replace(finite=True)) for (x, _), w in zip(given, limits, strict=True)
        )

    def looked(self, entry: Entry, leaves: Leaves) -> bool:
        """All arguments of a call were looked at, and are where the plan is known to be right.

        **Returns:** false if a closer look found that it is not.
        """
        entry.unseen = self._left = 0
        if not entry.plan.identity or entry.plan.alarms:
            return True
        if self._wait:
            self._wait -= 1
        elif not self._is_quiet(entry, leaves):
            return self._begin(entry, leaves)
        else:
            self._looks, self._failures = self._looks + 1, 0
            if self._looks >= _HARMLESS:
                self._gap = min(2 * self._gap or 1, self._most)
                self._left = self._gap
        return True

    def _is_quiet(self, entry: Entry, leaves: Leaves) -> bool:
        if entry is not self._entry or self._quiet is None or not self._are_returned(leaves):
            return False
        return self._quiet.takes(leaves) and self._flags == entry.others(leaves, self._counts)

    def _are_returned(self, leaves: Leaves) -> bool:
        results, pairs = self._results, self._pairs
        if self._keeps:
            return all([results[r] is leaves[a] for a, r in pairs])
        return bool(results) and all([results[r]() is leaves[a] for a, r in pairs])

    def _begin(self, entry: Entry, leaves: Leaves) -> bool:
        """Find out which arguments are results, and draw windows around all of them."""
        results = self._results if self._keeps else [r() for r in self._results]
        places = {id(x): i for i, x in enumerate(results)}
        pairs = [(a, places[id(x)]) for a, x in enumerate(leaves) if id(x) in places]
        is_watched = bool(pairs) and entry.watch is not None
        seen = look(leaves) if is_watched else []
        is_known = is_watched and entry is self._entry and pairs == self._pairs
        self._gap = self._gap // 4 if is_known and self._has_only_moved(leaves, seen) else 0
        self._looks *= self._gap > 0
        if entry is not self._entry:
            self._entry, self._hull = entry, None
        self._pairs, self._quiet, self._outside = pairs, None, None
        # Numbers that do not come to rest, or are no results: not so soon again.
        self._failures += 1
        self._wait = (1 << min(self._failures, 10)) >> 2
        if not is_watched:
            return True
        assert entry.watch is not None
        self._hull = hull = seen if self._hull is None else joined(self._hull, seen)
        if not _have_room(hull, entry.watch):
            self._hull = hull = seen
            if not entry.confirm(leaves, seen):
                return False
        self._most = _RARELY if _have_room(hull, entry.watch) else _SOON
        self._draw(entry, leaves, hull)
        return True

    def _has_only_moved(self, leaves: Leaves, seen: Look) -> bool:
        """Whether numbers are hardly larger than ever before, and nothing else is new."""
        if self._hull is None or self._entry is None:
            return False
        pairs = [(m, n) for m, n in zip(self._hull, seen, strict=True) if m and n and not n.is_zero]
        is_near = all(not m.is_zero and n.high <= m.high + _FARTHER for m, n in pairs)
        return is_near and self._flags == self._entry.others(leaves, self._counts)

    def _draw(self, entry: Entry, leaves: Leaves, hull: Look) -> None:
        assert entry.watch is not None
        windows = dict(entry.watch.pairs)
        near = [_near(m, windows.get(i)) for i, m in enumerate(hull)]
        returned = {a for a, _ in self._pairs}
        self._quiet = Watch(near, leaves)
        self._outside = Watch([None if i in returned else w for i, w in enumerate(near)], leaves)
        self._avals = [(i, x.aval) for i, x in enumerate(leaves) if i not in returned]
        # To read one that is a result is to wait for it.
        self._counts = [i for i, m in enumerate(hull) if m is None and i not in returned]
        self._flags = entry.others(leaves, self._counts)


def _have_room(hull: Look, watch: Watch) -> bool:
    found = [(hull[i], window) for i, window in watch.pairs]
    return all(m is None or m.is_zero or m.high + _ROOM <= w.high for m, w in found)


def _near(m: Magnitude | None, window: Window | None) -> Window | None:
    if m is None or window is None:
        return None
    low, high = (0.0, 0.0) if m.is_zero else (m.low, m.high)
    ends = max(window.low, low - _DOWN), min(window.high, high + _UP)
    return window._replace(low=ends[0], high=ends[1], finite=True)
