"""The cases of a compiled function, and the state of each.

A case is the function traced for arguments of one kind (shapes, trees, static ones, settings of
JAX). All that calls learn of it is one immutable `State`, swapped at once: a thread reads one
state, and nothing that another one does meanwhile changes what it read.
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
from jaxtyping import PyTree

from tanjax._typing import AnyArray, Function
from tanjax.scale import Plan, ScaleGraph, Windows, build

from ._arguments import Args, Kwargs, Leaf, Leaves, signature
from ._packing import bound_leaves, free_leaves
from ._watch import Watch

ENTRIES = 8  # of a case, and programs; the oldest goes: bounds memory
_KEPT = 1 << 16  # bytes of arguments that may be kept alive in order to recognise them


class Entry(NamedTuple):
    """A plan, its program, and the numbers for which it is right; never changed, only replaced.

    **Fields:** `plan`; `number`: its place in `.plans`; `program`: without a flag; `watch`: the
    windows of the arguments, None where each call has to be looked at; `windows`: all of them;
    `flagged`: the program with a flag, `(limits, flag, *args) -> flag, results`, None where the
    arguments alone decide; `limits`: its first argument; `is_unchecked`: the user asked for that.
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

    @property
    def grade(self) -> str:
        """The grade of later calls: proved, flagged, or none: they are looked at."""
        if self.is_unchecked:
            return "unchecked"
        if self.watch is None:
            return "looked at"
        return "proved" if self.flagged is None else "flagged"


# Places of arguments that are results of the last call, and of these results.
Pairs: TypeAlias = tuple[tuple[int, int], ...]

Check: TypeAlias = Callable[[], bool]  # begun; it says whether all is in its windows


class Handed(NamedTuple):
    """The results of a last call, which a loop may hand back (`_late.py`).

    **Fields:** `results`: references to them; `entry`: whose program gave them; `pairs`: places of
    arguments, and of the results that they were; `calls`: with such arguments, one after the other;
    `flag`: of all these calls; `waited`: the flag that is waited for next; `checks`: those of the
    states of the last calls, the first one first, true where it was in its windows.
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
        """Those that nobody has read."""
        return tuple(x for x in (self.flag, self.waited) if x is not None)


class State(NamedTuple):
    """The knowledge that calls have of a case.

    **Fields:** `entries`: the last one found first; `handed`: of the last call; `unread`: flags of
    loops that have ended; `is_rewritten`: XLA has made infinities or zeros that no number explains,
    so that everything is hidden from it; `in_a_row`: so many calls that no window covers;
    `keeps_powers`: labels keep their powers of two, because no plan is known to be right.
    """

    entries: tuple[Entry, ...] = ()
    handed: Handed = Handed()
    unread: tuple[jax.Array | bool, ...] = ()
    is_rewritten: bool = False
    in_a_row: int = 0
    keeps_powers: bool = False


class Case:
    """The function traced for arguments of one kind, and what calls have learnt of it.

    **Fields:** `closed`, `out`, `restored`, `notes`: the program as JAX traced it, its results, the
    constants that tracing lost, and what is to be said of them; `treedef`, `avals`, `context`: what
    it was traced for; `keeps`: whether such arguments are small enough to be kept alive; `moves`:
    whether the trace took powers of two out of labels.
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
        """Of the program, for all its plans."""
        return build(self.closed, self.restored)

    def with_powers(self, kept: Any, leaves: Leaves, args: Args, kwargs: Kwargs) -> Case | None:
        """The same case where labels keep their powers of two; None if it is not another one.

        JAX cannot trace it where it compares trees, such as the carry of `jax.lax.scan`.

        **Arguments:** `kept`: the planned function whose labels keep them.
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
            # One that has no windows is only kept as the plan that it is.
            known = {e.number for e in (entry, *rest) if e.watch is not None} | {entry.number}
            rest = [e for e in rest if e.watch is not None or e.number not in known]
            self.state = self.state._replace(entries=(entry, *rest)[:ENTRIES])
        return entry

    def program(self, key: Hashable, make: Callable[[], Function]) -> Function:
        """A program of this case that is compiled once, whatever plan runs it."""
        with self.lock:
            if key not in self._programs:
                self._programs[key] = make()
                if len(self._programs) > 2 * ENTRIES:
                    self._programs.popitem(last=False)
            return self._programs[key]
