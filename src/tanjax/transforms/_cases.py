"""The cases of a compiled function, and the state of each.

A case is the function traced for arguments of one kind: shapes, trees, static arguments, settings
of JAX. Everything that calls learn of a case is one immutable `State`, swapped at once. A thread
reads one state, and no other thread can change that state.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._typing import AnyArray, Function
from tanjax.scale import Plan, ScaleGraph, Windows, build

from ._arguments import Args, Kwargs, Leaf, Leaves, signature
from ._packing import bound_leaves, free_leaves
from ._watch import Watch

ENTRIES = 8  # entries of a case, and half its programs; the oldest is dropped: bounds memory
_KEPT = 1 << 16  # bytes of arguments that may be kept alive in order to recognise them


@functools.cache
def no_flag() -> jax.Array:
    """A flag that is not raised."""
    return jnp.array(False)


class Entry(NamedTuple):
    """A plan, its program, and the numbers for which it is right; never changed, only replaced.

    **Fields:** `plan`; `number`: its place in `.plans`; `program`: without a flag; `watch`: the
    windows of the arguments, None if each call needs a look; `windows`: all of them; `flagged`: the
    program with a flag, `(limits, flag, *args) -> flag, results`, None if the arguments alone
    decide; `limits`: its first argument; `is_unchecked`: true if the user chose `check="off"`.
    """

    plan: Plan
    number: int
    program: Function
    watch: Watch | None = None
    windows: Windows | None = None
    flagged: Function | None = None
    limits: jax.Array | None = None
    is_unchecked: bool = False

    def unwatched(self) -> Entry:
        """The entry without windows."""
        return self._replace(watch=None, windows=None, flagged=None, limits=None)

    def unread(self, /, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Return the results of the flagged program, without reading its flag."""
        return self.flagged(self.limits, no_flag(), *args, **kwargs)[1]  # type: ignore[misc]

    @property
    def grade(self) -> str:
        """The grade of later calls: unchecked, proved, flagged, or looked at."""
        if self.is_unchecked:
            return "unchecked"
        if self.watch is None:
            return "looked at"
        return "proved" if self.flagged is None else "flagged"


# Places of arguments that are results of the last call, and of these results.
Pairs: TypeAlias = tuple[tuple[int, int], ...]

Check: TypeAlias = Callable[[], bool]  # a begun check: true if all is in its windows


class Handed(NamedTuple):
    """The results of a last call, which a loop may hand back (`_late.py`).

    **Fields:** `results`: references to them; `entry`: the entry of their program; `pairs`: places
    of arguments, and of the results that they were; `calls`: the number of calls in a row with
    these places; `flag`: of all these calls; `waited`: the flag to wait for next; `checks`: the
    checks of the states of the last calls, oldest first, true for a state in its windows.
    """

    results: tuple[weakref.ref[Leaf], ...] = ()
    entry: Entry | None = None
    pairs: Pairs = ()
    calls: int = 0
    flag: jax.Array | None = None
    waited: jax.Array | None = None
    checks: tuple[Check, ...] = ()

    @property
    def flags(self) -> tuple[jax.Array, ...]:
        """The unread flags."""
        return tuple(x for x in (self.flag, self.waited) if x is not None)


class State(NamedTuple):
    """The knowledge that calls have of a case.

    **Fields:** `entries`: the last one found first; `handed`: of the last call; `unread`: flags of
    loops that have ended; `is_rewritten`: true if XLA has made infinities or zeros that no number
    explains, so that every value is hidden from it; `in_a_row`: the number of calls in a row
    without windows; `keeps_powers`: labels keep their powers of two, because no plan is known to be
    right.
    """

    entries: tuple[Entry, ...] = ()
    handed: Handed = Handed()
    unread: tuple[jax.Array | bool, ...] = ()
    is_rewritten: bool = False
    in_a_row: int = 0
    keeps_powers: bool = False


class Case:
    """The function traced for arguments of one kind, with the state that calls have learnt.

    **Fields:** `closed`: the program as JAX traced it; `out`: its results; `restored`: the
    constants that tracing lost; `notes`: the warnings about them; `treedef`, `avals`, `context`:
    the arguments and settings of the trace; `keeps`: true if these arguments are small enough to be
    kept alive; `moves`: true if the trace took powers of two out of labels.
    """

    def __init__(
        self,
        closed: Any,
        out: PyTree,
        restored: Mapping[int, AnyArray],
        notes: tuple[str, ...],
        key: tuple[Hashable, ...],
        leaves: Leaves,
    ) -> None:
        self.closed, self.out, self.restored, self.notes = closed, out, restored, notes
        self.free, self.bound = free_leaves(out), bound_leaves(out)
        self.treedef: Any = key[0]
        self.context: Any = key[-1]
        self.avals = tuple(map(signature, leaves))
        self.keeps = sum(getattr(x, "nbytes", 8) for x in leaves) <= _KEPT
        self.moves = False
        self.state = State()
        self.lock = threading.RLock()
        self._programs: OrderedDict[Hashable, Function] = OrderedDict()

    @functools.cached_property
    def graph(self) -> ScaleGraph:
        """The graph of the program, for all its plans."""
        return build(self.closed, self.restored)

    def with_powers(self, kept: Any, leaves: Leaves, args: Args, kwargs: Kwargs) -> Case | None:
        """Return the same case with labels that keep their powers of two.

        **Arguments:** `kept`: the planned function whose labels keep them.
        **Returns:** None if no label has a power of two, or if JAX cannot trace the case: it
        compares trees with labels, for example the carry of `jax.lax.scan`.
        """
        if self.moves:
            with contextlib.suppress(Exception):
                return kept._case(leaves, self.treedef, args, kwargs)
        return None

    def swap(self, **fields: Any) -> None:
        """Replace some fields of the state."""
        with self.lock:
            self.state = self.state._replace(**fields)

    def put(self, entry: Entry, instead_of: Entry | None = None) -> Entry:
        """Bring an entry to the front."""
        with self.lock:
            rest = [e for e in self.state.entries if e is not entry and e is not instead_of]
            # An entry without windows is kept only if no entry with the same number has windows.
            known = {e.number for e in (entry, *rest) if e.watch is not None} | {entry.number}
            rest = [e for e in rest if e.watch is not None or e.number not in known]
            self.state = self.state._replace(entries=(entry, *rest)[:ENTRIES])
        return entry

    def program(self, key: Hashable, make: Callable[[], Function]) -> Function:
        """Return a program of this case, made once for all plans that run it."""
        with self.lock:
            if key not in self._programs:
                self._programs[key] = make()
                if len(self._programs) > 2 * ENTRIES:
                    self._programs.popitem(last=False)
            return self._programs[key]
