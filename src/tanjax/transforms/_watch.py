"""Windows on the arguments of a call, and whether numbers are in them.

What was found in its window once is there for good, since arrays are immutable: data that stays
while parameters change, batches that come in turn. Each place of an argument remembers what was
found there (`MOST` arrays, weakly), so that only strangers are looked at; a place where none of
these came back forgets them, and remembers nothing any more.

    watch = Watch([Window(-3.0, 3.0)] * 2, [weights, data])
    watch.takes([weights, data])  # both are looked at
    watch.takes([moved, data])  # only `moved`

Sharp edge: an array of NumPy may have changed since, so it is a stranger on every call.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TypeAlias

import jax

from tanjax._typing import Function
from tanjax.scale.numbers import InRow, Together, Window, inside

from ._arguments import ARRAYS, Leaf, Leaves

_TOGETHER = 16  # floating arguments from which on they are looked at by a program of their own
MOST = 64  # arrays that a place remembers
PARTS = 4  # sets of strangers that have a watch of their own

# What a look that was begun has found: flags, any of which says that a number is out of its window.
Begun: TypeAlias = list[jax.Array] | None
# By a program and where the arrays are: that program with the look inside.
Riding: TypeAlias = dict[tuple[Function, tuple[int, ...]], Function]


class _Place:
    """An argument, and the arrays that were found in their window there."""

    __slots__ = ("index", "is_met", "seen")

    def __init__(self, index: int) -> None:
        self.index, self.is_met = index, False
        self.seen: dict[int, weakref.ref[jax.Array]] = {}  # by identity

    def knows(self, x: Leaf) -> bool:
        found = self.seen.get(id(x))
        if found is None or found() is not x:
            return False
        self.is_met = True
        return True

    def note(self, x: jax.Array) -> bool:
        """Remember an array; false if that is not worth it, since none ever came back."""
        if len(self.seen) == MOST:
            if not self.is_met:
                return False
            self.seen.clear()
            self.is_met = False
        self.seen[id(x)] = weakref.ref(x)
        return True


class Watch:
    """Windows on some of the arguments.

    **Fields:** `pairs`: places of arguments, and their windows.
    """

    _places: list[_Place]

    def __init__(self, windows: Sequence[Window | None], leaves: Leaves) -> None:
        self._begin_with([(i, w) for i, w in enumerate(windows) if w is not None], leaves)
        self._places = [_Place(i) for i, _ in self.pairs if type(leaves[i]) in ARRAYS]

    def _begin_with(self, pairs: list[tuple[int, Window]], leaves: Leaves) -> None:
        self.pairs = pairs
        looked_at = [leaves[i] for i, _ in pairs]
        given = [w for _, w in pairs]
        self._in_row = InRow(given, looked_at) if InRow.can(looked_at) else None
        can = bool(looked_at) and all(map(Together.can, looked_at))
        few = self._in_row is not None and self._in_row.is_short
        worth = can and not few and Together.is_worth(looked_at, _TOGETHER)
        self._together = Together(given) if worth else None
        self._places = []  # where arrays are remembered
        self._parts: dict[tuple[int, ...], Watch] = {}

    def of_strangers(self, leaves: Leaves) -> Watch:
        """The watch on those arguments that were not found in their windows before."""
        if not self._places:
            return self
        met = tuple([p.index for p in self._places if p.knows(leaves[p.index])])
        if not met:
            return self
        part = self._parts.get(met)
        if part is None:
            if len(self._parts) == PARTS:
                return self
            part = self._parts[met] = object.__new__(Watch)
            part._begin_with([(i, w) for i, w in self.pairs if i not in met], leaves)
        return part

    def _recognise(self, leaves: Leaves) -> None:
        """Remember what was found in its window."""
        given = [(p, leaves[p.index]) for p in self._places]
        self._places = [p for p, x in given if type(x) not in ARRAYS or p.knows(x) or p.note(x)]

    def begin(self, leaves: Leaves) -> Begun:
        """Start looking, where a compiled program does that."""
        if self._together is None:
            return None
        return self._together.begin([leaves[i] for i, _ in self.pairs])

    def riding(self, program: Function, known: Riding) -> Function | None:
        """The program with the look inside, where that pays; else None."""
        if self._together is None:
            return None
        return self._together.riding(program, [i for i, _ in self.pairs], known)

    def takes(self, leaves: Leaves, strangers: Watch | None = None, begun: Begun = None) -> bool:
        """Whether all numbers are in their windows.

        **Arguments:** `strangers`: what `of_strangers` gave; `begun`: what its `begin` gave.
        """
        part = strangers or self.of_strangers(leaves)
        if not part._are_inside(leaves, begun):
            return False
        if self._places and part.pairs:
            self._recognise(leaves)
        return True

    def _are_inside(self, leaves: Leaves, begun: Begun) -> bool:
        if self._in_row is not None and begun is None:
            return self._in_row.inside([leaves[i] for i, _ in self.pairs])
        if self._together is not None:
            return self._together.inside([leaves[i] for i, _ in self.pairs], begun)
        return all([inside(leaves[i], window) for i, window in self.pairs])
