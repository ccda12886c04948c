"""A plan of one program, and what is known of the numbers for which it is right.

Knowledge has three grades. *Proved*: bounds that hold for any numbers in a window say that nothing
leaves its range. *Seen*: the program was run on these very numbers in a wide range. *Guessed*:
loops were sampled, or numbers were too many to be run at every call. A proof is tried first,
because nothing need be looked at afterwards but the magnitudes of the arguments.

Sharp edges. What is guessed is limited to programs whose look costs more than `DEAR`, or that were
looked at `_SEVERAL` times and lost nothing, by bounds either; the results of such calls are looked
at on calls 1, 2, 4, 8, …, and so are numbers far from those of a call that was looked at
(`_nearby.py`). Numbers from two such calls are strangers to each other: of 1e20 · 1e-20 and
1e-20 · 1e20 nothing follows for 1e20 · 1e20.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._typing import AnyArray, Function
from tanjax.scale import (
    Plan,
    ScaleGraph,
    always_ends,
    build,
    identity_plan,
    look_cost,
    overflows,
    proof,
    seen_right,
)
from tanjax.scale.numbers import Spread, Window, measure

from ._arguments import Jitted, Leaf, Leaves, is_finite
from ._nearby import (
    Look,
    Peaks,
    are_near,
    asking_peaks,
    is_many,
    is_tame,
    joined,
    near,
    peaks_of,
    refusing_zeros,
    with_zeros,
)
from ._packing import free_leaves
from ._watch import Begun, Riding, Watch

DEAR = 1e-3  # seconds that a look may take at every call
_SEVERAL = 16  # looks that found nothing, after which cheap ones are trusted as dear ones are
_BELIEVED = 8.0  # bits around numbers for which an alarm was false
_PLANS = 16  # of one program; the oldest goes
_WINDOWS = 4  # proved ones, of one plan, and as many that are trusted

_NONE: Mapping[int, int] = {}
Flag: TypeAlias = tuple[int | np.bool_, ...]  # the place of an argument, and what is there
Flags: TypeAlias = tuple[Flag, ...]
log = logging.getLogger("tanjax.scale")


def look(leaves: Leaves) -> Look:
    """The magnitudes of the arguments that have numbers."""
    return [measure(x) if _has_magnitude(x) else None for x in leaves]


def _has_magnitude(x: Leaf) -> bool:
    if isinstance(x, float | complex):
        return True
    dtype = getattr(x, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.inexact)


class Trusted(NamedTuple):
    """Numbers for which a plan is taken without a look: the windows, their flags, what was seen.

    `peaks`: the least of what was the largest number of each; `zeros`: places of large arrays that
    had some; `infinite`: of arguments that had inf or nan, of which windows say nothing.
    """

    watch: Watch
    others: Flags
    hull: Look
    peaks: Peaks
    zeros: frozenset[int]
    looks: int = 1
    infinite: tuple[int, ...] = ()

    def are_infinite(self, leaves: Leaves) -> bool:
        """Whether what had inf or nan has some now: in windows without ends lie all zeros."""
        return not any([is_finite(leaves[i]) for i in self.infinite])


class Entry:
    """One plan, its program, and the numbers for which it is right.

    **Fields:** `plan`, `program`; `grade`: `"seen"`, `"proved"` or `"guessed"`, of the last call
    that it took; `looks`: how often its numbers were looked at; `watch`: the windows of that call;
    `flagged`: the program with a flag that tells whether its numbers have left their range;
    `always_ends`: no number decides how long a loop runs; `unseen`: how many calls ago arguments
    that are results were looked at (`_returned.py`).
    """

    def __init__(self, plan: Plan, program: Function) -> None:
        self.plan, self.program = plan, program
        self.grade = "guessed" if plan.is_estimate else "seen"
        self.unseen, self.looks, self.is_dear = 0, 1, look_cost(plan.graph) > DEAR
        self.always_ends = always_ends(plan.graph)
        self.proved: list[Watch] = []
        self.overflows = False
        self.flagged: Function | None = None
        self.trusted: list[Trusted] = []
        self.watch: Watch | None = None
        self._failures = 0
        self._ridden: Riding = {}
        self._hull: Look | None = None
        self.counting = proof.counting(plan.graph)

    def expecting(self, leaves: Leaves) -> Entry:
        """Find numbers around these for which an estimate may be used without a look."""
        if self.plan.is_estimate:
            seen = look(leaves)
            if not self.prove(leaves, seen):
                windows = proof.expected(self.plan.graph, self.plan.exponents, seen)
                windows = windows or proof.narrow(self.plan.graph, seen)
                self.trusted = [self._trusted(windows, leaves, seen)]
        return self

    def _trusted(
        self,
        windows: list[Window | None],
        leaves: Leaves,
        hull: Look,
        peaks: Peaks | None = None,
        zeros: frozenset[int] = frozenset(),
        looks: int = 1,
        infinite: tuple[int, ...] = (),
    ) -> Trusted:
        zeros |= with_zeros(leaves, windows)
        windows = refusing_zeros(self.plan, windows, leaves, zeros)
        peaks = peaks_of(hull) if peaks is None else peaks
        watch = Watch(asking_peaks(self.plan, windows, peaks, looks), leaves)
        return Trusted(watch, self.others(leaves), hull, peaks, zeros, looks, infinite)

    @property
    def may_begin(self) -> bool:
        """Whether the program ends for any numbers for which JAX's own program does."""
        return self.plan.identity or self.always_ends

    def strangers(self, leaves: Leaves) -> Watch | None:
        """The watch on those arguments that have to be looked at, if any windows are known."""
        known = self.proved or [t.watch for t in self.trusted]
        return known[0].of_strangers(leaves) if known else None

    def riding(self, strangers: Watch | None) -> Function | None:
        """The program with the look of `begin` inside, where that pays; else None."""
        return None if strangers is None else strangers.riding(self.program, self._ridden)

    def covers(self, leaves: Leaves, strangers: Watch | None = None, begun: Begun = None) -> bool:
        """Whether nothing need be looked at but the magnitudes of the arguments.

        **Arguments:** `strangers`: what the method of that name said; `begun`: what its look, begun
        before a device was given other work, has found.
        """
        for watch in self.proved:
            if watch.takes(leaves, strangers, begun):
                self.grade, self.watch = "proved", watch
                return True
            strangers = begun = None  # they were of the first watch
        for trusted in self.trusted:
            is_inside = trusted.watch.takes(leaves, strangers, begun)
            is_alike = is_inside and trusted.others == self.others(leaves)
            if is_alike and trusted.are_infinite(leaves):
                self.grade, self.watch = "guessed", trusted.watch
                return True
            strangers = begun = None
        return False

    def others(self, leaves: Leaves, places: Sequence[int] | None = None) -> Flags:
        """Flags, counts and zeros (`others`) of all arguments, or of those at some places."""
        return others(leaves, range(len(leaves)) if places is None else places, self.counting)

    def prove(self, leaves: Leaves, seen: Look) -> bool:
        """Try to prove that the plan is right for these numbers, and for others around them.

        On misses 1, 2, 4, 8, … only, where that failed before.
        """
        self._failures += 1
        if self._failures & (self._failures - 1):
            return False
        hull = seen if self._hull is None else joined(self._hull, seen)
        program = self.plan.graph, self.plan.exponents
        windows = proof.widest(*program, hull) or (
            proof.widest(*program, seen) if self._hull is not None else None
        )
        self._hull = hull
        if windows is None:
            return False
        watch = Watch(windows, leaves)
        if not watch.takes(leaves):  # inf or nan among them
            return False
        self._failures = 0
        self.proved.insert(0, watch)
        del self.proved[_WINDOWS:]
        self.grade, self.flagged = "proved", None
        return True

    def is_right(self, leaves: Leaves) -> bool:
        """Whether the plan loses nothing of these numbers, on which the program is run."""
        found = seen_right(self.plan, leaves)
        if found is None:
            return False
        # What overflows without harm here may do harm for numbers that look alike.
        self.plan, self.overflows = found, overflows(found.graph, found.magnitudes)
        self.looks += 1
        self.grade = "seen"
        return True

    def confirm(self, leaves: Leaves, seen: Look) -> bool:
        """Look at numbers near an end of what is trusted; false if they are none to be trusted."""
        if self.grade != "guessed" or not self.plan.identity or self.plan.is_estimate:
            return True
        if not self.is_right(leaves):
            self.trusted = [t for t in self.trusted if t.watch is not self.watch]
            return False
        self.trust(leaves, seen)
        self.watch = self.trusted[0].watch
        return True

    def believe(self, program: Function, leaves: Leaves, alarms: tuple[str, ...] = ()) -> None:
        """JAX's own program instead: it was run, and nothing was missing."""
        self.plan, self.program = self.plan.believed(), program
        self.plan = self.plan._replace(alarms=(*self.plan.alarms, *alarms))
        seen = look(leaves)
        windows = [m and Window(m.low - _BELIEVED, m.high + _BELIEVED) for m in seen]
        self.trusted = [self._trusted(windows, leaves, seen)]

    def may_be_trusted(self, seen: Look) -> bool:
        """Whether it may be taken without a look: looks are dear, or many have found nothing."""
        if not self.plan.identity or self.overflows:
            return False
        # On looks 16, 32, …, since bounds cost as much as a look.
        is_due = self.looks >= _SEVERAL and (self.trusted or not self.looks & (self.looks - 1))
        return self.is_dear or bool(is_due and is_tame(self.plan, seen))

    def trust(self, leaves: Leaves, seen: Look) -> None:
        """Take JAX's own program for numbers like these, which is too dear to be looked at again.

        The windows grow with every look.
        """
        flags, hull, looks, zeros = self.others(leaves), seen, 1, frozenset[int]()
        peaks = peaks_of(seen)
        for known in self.trusted:
            if known.others == flags and are_near(known.hull, seen):
                hull, looks, zeros = joined(known.hull, seen), known.looks + 1, known.zeros
                peaks = peaks_of(seen, known.peaks)
                self.trusted.remove(known)
                break
        windows = near(self.plan, hull, looks)
        pairs = list(enumerate(windows))
        infinite = tuple(i for i, w in pairs if w is not None and not is_finite(leaves[i]))
        windows = [w and w._replace(finite=i not in infinite) for i, w in pairs]
        found = self._trusted(windows, leaves, hull, peaks, zeros, looks, infinite)
        self.trusted.insert(0, found)
        del self.trusted[_WINDOWS:]


def _is_same_program(a: Plan, b: Plan) -> bool:
    if a.identity or b.identity:
        return a.identity and b.identity
    return a.method == b.method and a.exponents == b.exponents


def others(leaves: Leaves, places: Iterable[int], counting: Mapping[int, int] = _NONE) -> Flags:
    """Flags and counts, large ones to four bits: a program may take another branch for others.

    And whether there are zeros among few numbers, for which every window is right: 1 us each. Of
    many that would be one more pass; windows refuse them where they may do harm (`_nearby.py`).

    **Arguments:** `counting`: of those that decide little, in how many bits they may grow.
    """
    found: list[Flag] = []
    for i in places:
        x = leaves[i]
        if type(x) is Spread:
            if not _has_magnitude(x):
                found.append((i, -1 if x.magnitude.is_zero else int(x.magnitude.high)))
        elif isinstance(x, float | complex):
            found.append((i, x != 0))
        elif is_many(x):
            continue
        elif (size := getattr(x, "size", 1)) and _has_magnitude(x):
            count = np.count_nonzero(np.asarray(x))
            found.append((i, count > 0, count == size))
        elif size == 1:
            number = _whole(x)
            if number is not None and i in counting:
                found.append((i, -(-number.bit_length() // counting[i]), number < 0))
            elif number is not None:
                rest = max(0, number.bit_length() - 4)
                found.append((i, rest, number >> rest))
    return tuple(found)


def _whole(x: Leaf) -> int | None:
    if isinstance(x, int):
        return x
    kind = getattr(x.dtype, "kind", "V")
    return x.item() if kind in "biu" else None


class Case:
    """Arguments of one kind (shapes, trees, static ones): their program, and its plans so far.

    **Fields:** `closed`, `out`, `restored`, `notes`: the program as JAX traced it, its results, and
    the constants that tracing lost; `entries`: the plans, the last one used first; `made`: the
    entries that were used, oldest first; `treedef`, `avals` of the arguments; `context`: JAX's
    settings; `returned`: those that
    are results; `keeps`: whether all are small enough to be kept alive; `is_pure`: a run leaves
    nothing but results; `is_rewritten`: XLA has made infinities or zeros that no number explains,
    so that everything is hidden from it; `looked`: seconds that were taken by looks at later calls;
    `raised`: how many flags in a row were raised.
    """

    def __init__(
        self, name: str | Function, closed: Any, out: PyTree, restored: Mapping[int, AnyArray],
        notes: tuple[str, ...], jitted: Jitted, made: deque[Entry],
    ) -> None:  # fmt: skip
        self.name, self.closed, self.out, self.jitted = name, closed, out, jitted
        self.restored, self.notes, self.free = restored, notes, free_leaves(out)
        self.entries: list[Entry] = []
        self.made = made
        self.treedef: Any = None
        self.context: Any = None
        self.returned: Any = None
        self.avals: tuple[object, ...] = ()
        self.keeps = self.is_pure = self.is_rewritten = False
        self.looked, self.raised = 0.0, 0

    @functools.cached_property
    def graph(self) -> ScaleGraph:
        """Of the program, for all its plans."""
        return build(self.closed, self.restored)

    def find(self, leaves: Leaves, make: Callable[[Leaves], Entry]) -> Entry:
        """The plan for these numbers, made by `make` if there is none; it comes to the front.

        Who asks uses what is returned: another thread may bring its own to the front.
        """
        return self.put(self._entry(leaves, make))

    def put(self, entry: Entry, instead_of: Entry | None = None) -> Entry:
        """Bring a plan to the front, in a new list: others may be reading the old one."""
        rest = [e for e in self.entries if e is not entry and e is not instead_of]
        self.entries = [entry, *rest][:_PLANS]
        return entry

    def _entry(self, leaves: Leaves, make: Callable[[Leaves], Entry]) -> Entry:
        """A plan that is proved, one that was seen to be right, or a new one."""
        if self.is_rewritten:
            self.entries = [e for e in self.entries if not e.plan.identity]
        for entry in self.entries:
            if entry.covers(leaves):
                return entry
        if not self.entries:
            return make(leaves).expecting(leaves)
        seen = look(leaves)
        known = sorted(self.entries, key=lambda e: not e.plan.identity)
        if not (known[0].plan.identity or self.is_rewritten):
            known.insert(0, self._identity(leaves))
        for entry in known:
            if entry.prove(leaves, seen):
                return self._used(entry, "proved for numbers around these")
        for entry in known:
            if not entry.plan.is_estimate and entry.is_right(leaves):
                if entry.may_be_trusted(seen):
                    entry.trust(leaves, seen)
                return self._used(entry, "looked at, and right")
        entry = make(leaves)
        same = next((e for e in known if _is_same_program(e.plan, entry.plan)), None)
        if same is None:
            return entry.expecting(leaves)
        self.made.remove(entry)
        same.plan, same.looks = entry.plan, same.looks + 1
        dear = same.is_dear and not overflows(entry.plan.graph, entry.plan.magnitudes)
        if same.plan.identity and (entry.plan.is_estimate or dear):
            same.trust(leaves, seen)
        return self._used(same, "looked at: no other does better")

    def _identity(self, leaves: Leaves) -> Entry:
        """JAX's own program, which is right for numbers that need no exponents."""
        plan = identity_plan(self.graph, self.free, bool(self.closed.effects), self.notes)
        return Entry(plan, self.jitted)

    def _used(self, entry: Entry, what: str) -> Entry:
        log.info("%s: %s plan, %s", self.name, entry.plan.method, what)
        if entry not in self.made:
            self.made.append(entry)
        return entry
