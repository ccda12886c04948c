"""Checks that the arguments of a call lie in their windows.

Arrays of JAX are immutable, so an array that was in its window once stays there. Data stay while
parameters change, and batches return in turn. Each place of a large argument therefore remembers
its arrays, weakly, and only new arrays are measured.

    watch = Watch([Window(-3.0, 3.0)] * 2, [weights, data])
    watch.takes([weights, data])  # both are compared
    watch.takes([moved, data])  # only `moved`

Sharp edge: an array of NumPy may have changed since, so every call measures it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp

from tanjax.scale import Magnitude
from tanjax.scale.numbers import InRow, Window, begin, inside, is_on_host, measure

from ._arguments import ARRAYS, Leaf, Leaves

_LARGE = 1 << 12  # size of an array that takes longer to measure than to remember
_REMEMBERED = 64  # arrays of a place; bounds memory

# A function of the arguments at some places, in order: true if all are in their windows.
_Row: TypeAlias = Callable[[Sequence[Leaf]], bool]


class Watch:
    """Windows on the arguments of calls.

    **Arguments:** `windows`: one for each argument, None where it may be anything; `leaves`: the
    arguments of a call.
    """

    def __init__(self, windows: Sequence[Window | None], leaves: Leaves) -> None:
        self.windows = {i: w for i, w in enumerate(windows) if w is not None}
        self._rows: dict[tuple[int, ...], _Row] = {}
        self._are_left = True  # until an argument was deleted before its check
        self._known: dict[int, dict[int, weakref.ref[jax.Array]]] = {
            i: {} for i in self.windows if type(leaves[i]) in ARRAYS and leaves[i].size >= _LARGE
        }

    def takes(self, leaves: Leaves, but: Collection[int] = ()) -> bool:
        """True if all numbers, except at the places `but`, are in their windows.

        **Cost:** 3 us for an array on the host, 0.5 us for each of several; and a wait for arrays
        that are still being computed.
        """
        asked = [
            i
            for i in self.windows
            if i not in but and not (i in self._known and self._is_known(i, leaves[i]))
        ]
        if not asked:
            return True
        arrays = [leaves[i] for i in asked]
        found = self._check(tuple(asked), arrays)
        if found:
            self._remember(asked, arrays)
        return found

    def begin(self, leaves: Mapping[int, jax.Array], are_there: bool) -> Callable[[], bool]:
        """Begin to compare some arguments; return a function that returns true if all are inside.

        **Arguments:** `leaves`: by their places; `are_there`: true if they will not be donated.
        Then NumPy measures them only when the function is called, without a wait before. Arguments
        that were deleted before count as outside, and later arguments are checked immediately.
        """
        asked = tuple(i for i in leaves if i in self.windows)
        arrays = [leaves[i] for i in asked]
        if not asked:
            return lambda: True
        if not all(map(is_on_host, arrays)):
            return begin(arrays, [self.windows[i] for i in asked])
        if not (are_there and self._are_left):
            found = self._check(asked, arrays)
            return lambda: found

        def check() -> bool:
            self._are_left = not any(x.is_deleted() for x in arrays)
            return self._are_left and self._check(asked, arrays)

        return check

    def _check(self, places: tuple[int, ...], arrays: Sequence[Leaf]) -> bool:
        row = self._rows.get(places)
        if row is None:
            row = self._rows[places] = _row([self.windows[i] for i in places], arrays)
        return row(arrays)

    def _is_known(self, place: int, x: Leaf) -> bool:
        found = self._known[place].get(id(x))
        return found is not None and found() is x

    def _remember(self, key: Sequence[int], arrays: Leaves) -> None:
        for place, x in zip(key, arrays, strict=True):
            known = self._known.get(place)
            if known is not None and type(x) in ARRAYS:
                if len(known) >= _REMEMBERED:
                    known.clear()
                known[id(x)] = weakref.ref(x)


def _row(windows: Sequence[Window], arrays: Sequence[Leaf]) -> _Row:
    if InRow.can(arrays):
        return InRow(windows, arrays).inside
    are_here = all(isinstance(x, jax.Array) and x.is_fully_addressable for x in arrays)
    if are_here and not all(map(is_on_host, arrays)):
        return lambda arrays: begin(arrays, windows)()
    return lambda arrays: all([inside(x, w) for x, w in zip(arrays, windows, strict=True)])


def is_floating(x: Leaf) -> bool:
    """True if an argument is floating or complex, so that it has a magnitude."""
    if isinstance(x, float | complex):
        return True
    dtype = getattr(x, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.inexact))


def magnitudes_of(leaves: Leaves) -> list[Magnitude | None]:
    """Return the magnitudes of the arguments, `None` for arguments without a magnitude."""
    return [measure(x) if is_floating(x) else None for x in leaves]
