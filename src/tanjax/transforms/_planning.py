"""Calls of a compiled function, each with the exponents that its numbers need.

A program is planned when its arguments are first seen. What must be cheap is every other call:
arrays are immutable, so a call with the very arrays of the last one needs no look at them (0.1 us
each); of others the magnitudes are compared with those for which a plan is proved; only where that
does not do are numbers looked at again (`_entries.py`).

Sharp edges. Under a trace (`jax.grad`, `jax.vmap`, an outer `jit`) no number is known and the
program is JAX's own: write `tj.jit(tj.grad(f))`, not `tj.grad(tj.jit(f))`. Calls with arrays on
several hosts have plans of their own (`_over_hosts`): all processes have to run the same program,
whatever each of them has computed alone in between.
"""

from __future__ import annotations

import warnings
import weakref
from operator import is_
from typing import TYPE_CHECKING, Any

import jax
from jax.stages import Lowered
from jaxtyping import PyTree

from tanjax._compat import trace_context
from tanjax._errors import ScaleWarning, outside
from tanjax._typing import Function
from tanjax.arrays import is_planned

from ._arguments import (
    ARRAYS,
    Args,
    Form,
    Kwargs,
    Last,
    Leaves,
    Options,
    Weak,
    all_finite,
    are_several,
    can_be_looked_at,
    is_finite,
    is_immutable,
    is_on_several_hosts,
    signature,
)
from ._making import ABSTRACT, NOBODYS, SHORT, UNSEEN, Found, Making, doubts_of_plain, is_worse
from ._memory import OnMemory, are_memory

if TYPE_CHECKING:
    from tanjax.scale import Plan

    from ._entries import Case, Entry

_NOTHING = object()
_STRANGERS = 8


class PlannedFunction:
    """A function of `jax.jit` that is planned: called, it runs the program that its numbers need.

    **Arguments:** `fun`, `options` of `jax.jit`; `flat`: of arrays; `written`: the user's function.
    **Cost:** of a call with the arguments of the last one 0.5 us more than `jax.jit`; with others
    3 us for a floating argument, which is looked at, 0.5 us for each of several.
    """

    def __init__(
        self,
        fun: Function,
        options: Options,
        *,
        flat: bool = False,
        over_hosts: bool = False,
        written: Function | None = None,
    ) -> None:
        self._making = Making(fun, options, over_hosts, written or fun)
        self.jitted, self._given = self._making.jitted, self._making.given
        self._fun, self._options, self._flat = fun, options, flat
        self._calls = 0  # of plans that are estimates
        self._strangers = 0  # calls in a row with arguments that are not those of the last call
        self._said = False  # that it was called under a trace
        self._recent: Case | None = None
        self._is_over_hosts = over_hosts
        self._of_hosts: PlannedFunction | None = None
        self._on_memory = OnMemory(self)
        self.last = Last()

    @property
    def plans(self) -> list[Plan]:
        """Every plan made, oldest first, with what is known of it now."""
        made = [
            e.plan._replace(grade="guessed" if e.unseen else e.grade, looks=e.looks)
            for e in self._making.made
        ]
        return made + [p for f in (self._of_hosts, self._on_memory) if f for p in f.plans]

    def __call__(self, /, *args: PyTree, **kwargs: PyTree) -> PyTree:
        last, context = self.last, trace_context()
        known, weak = last.args, last.weak
        # The first is compared alone: others come often, and nothing else is asked then.
        if weak and args and weak[0]() is args[0]:
            known = tuple([r() for r in weak])
        is_like = not kwargs and known is not None and len(args) == len(known)
        if is_like and all(map(is_, args, known or ())) and last.context == context:
            self._strangers //= 2  # they may only come in turn
            return last.program(*args)
        if self._flat:
            leaves: Leaves = args
            treedef: Form = len(args)
        else:
            leaves, treedef = jax.tree.flatten(self._given.dynamic(args, kwargs))
        recent = self._recent
        if recent is not None and treedef == recent.treedef and context == recent.context:
            entry = recent.entries[0]
            # What is guessed is looked at on calls 1, 2, 4, …, see `_checked`.
            guessed = entry.grade == "guessed"
            is_due = guessed and not self._calls & (self._calls + 1)
            out = _NOTHING
            if not is_due and recent.returned.passes(entry, leaves):
                out = self._run(entry.program, recent, args, kwargs)
            # The avals of JAX's arrays are interned, so that `is` is nearly always enough.
            elif all(
                [type(x) in ARRAYS and x.aval is a for x, a in zip(leaves, recent.avals)]  # noqa: B905
            ):
                if last.context == context and _are_last(last.leaves, leaves):
                    self._strangers //= 2  # they may only come in turn
                    return last.program(*args, **kwargs)
                if not is_due:
                    out = self._again(recent, leaves, args, kwargs)
            if out is not _NOTHING:
                self._calls += guessed
                recent.returned.note(out)
                return out
        return self._call(leaves, treedef, args, kwargs)

    def _run(self, program: Any, case: Case, args: Args, kwargs: Kwargs) -> PyTree:
        """The results of a program; `_NOTHING` if `jax_debug_nans` objects to them."""
        try:
            return program(*args, **kwargs)
        except FloatingPointError:
            if case.is_pure:  # of a result that may not count
                return _NOTHING
            raise

    def _again(self, case: Case, leaves: Leaves, args: Args, kwargs: Kwargs) -> PyTree:
        """A call for which the last plan is right by magnitudes; `_NOTHING` if it is not."""
        entry, strangers, begun, out = case.entries[0], None, None, None
        begins = case.is_pure and entry.may_begin
        if (flagged := entry.flagged) is not None:
            raised, out = self._flagged(case, entry, args, kwargs)
            if raised:
                return _NOTHING
        elif begins:
            # Started before its arguments are looked at, which waits for them: 40 us less in a
            # loop. Safe because a result that does not count is dropped without a trace.
            strangers = entry.strangers(leaves)
            riding = None if self._options else entry.riding(strangers)
            begun = strangers.begin(leaves) if strangers and riding is None else None
            out = self._run(riding or entry.program, case, args, kwargs)
            begun, out = out if riding and out is not _NOTHING else (begun, out)
        is_known = out is not _NOTHING and (flagged or entry.covers(leaves, strangers, begun))
        if not (is_known and case.returned.looked(entry, leaves)):
            return _NOTHING
        # Where others come each time, few are remembered: 0.5 us for each array.
        self._strangers += 1
        if self._strangers <= _STRANGERS or self._strangers % _STRANGERS == 0:
            self._remember(case, entry.program, args, kwargs, leaves)
        self._say_again(entry)
        return out if begins else entry.program(*args, **kwargs)

    def _flagged(
        self, case: Case, entry: Entry, args: Args, kwargs: Kwargs
    ) -> tuple[bool | jax.Array, PyTree]:
        """Whether a number may have left its range, and the results."""
        found = self._run(entry.flagged, case, args, kwargs)
        if found is _NOTHING or found[0]:
            case.raised, entry.flagged = case.raised + 1, None
            return True, None
        entry.grade, entry.looks, case.raised = "seen", entry.looks + 1, 0
        return found

    def clear_cache(self) -> None:
        self._making.clear()
        self.last, self._recent, self._of_hosts = Last(), None, None
        self._on_memory = OnMemory(self)

    def lower(self, /, *args: PyTree, **kwargs: PyTree) -> Lowered:
        """Ahead-of-time compilation: of the planned program, if the arguments are numbers."""
        leaves: Leaves
        leaves, treedef = jax.tree.flatten(self._given.dynamic(args, kwargs))
        if are_several() and any(map(is_on_several_hosts, leaves)):
            if not self._is_over_hosts:
                return self._over_hosts().lower(*args, **kwargs)
            leaves = self._leaves_of(args, kwargs)
        program = self._case(leaves, treedef, args, kwargs).program or self.jitted
        return program.lower(*args, **kwargs)

    def _call(self, leaves: Leaves, treedef: Form, args: Args, kwargs: Kwargs) -> PyTree:
        """A call for which the plan of the last one may not be right."""
        if self._flat and not all(map(can_be_looked_at, leaves)):  # structured arrays among them
            leaves, treedef = jax.tree.flatten((args, kwargs))
        if are_memory(leaves):
            return self._on_memory(args, kwargs)
        if are_several() and any(map(is_on_several_hosts, leaves)):
            if not self._is_over_hosts:
                return self._over_hosts()(*args, **kwargs)
            leaves = self._leaves_of(args, kwargs)
        recent = self._recent
        unseen = recent.returned.unseen(leaves) if recent else 0
        found = self._case(leaves, treedef, args, kwargs)
        case, entry, plan = found.case, found.entry, found.plan
        if entry is None:
            self._note_abstract(leaves)
            return self.jitted(*args, **kwargs)
        if case is recent and unseen and not recent.returned.is_harmless(entry, leaves):
            self._warn(UNSEEN.format(unseen))
        self._making.flag(case, entry)
        can_ask = not (plan.has_effects or self._is_over_hosts)  # others have other parts
        if found.is_new and plan.doubts and can_ask:
            found = self._making.ask_plain(found, args, kwargs)
            plan = found.plan
        if not found.is_new and not self._making.alarms:
            self._say_again(entry)
        known = found.is_new or found.grade == "seen"
        if known and plan.expected is not None and not plan.has_effects:
            out = self._first(found, leaves, args, kwargs)
        elif found.grade == "guessed" and not plan.has_effects:
            out = self._checked(case, entry, leaves, args, kwargs)
        else:
            self._remember(case, found.program, args, kwargs)
            out = found.program(*args, **kwargs)
        self._say_alarms()
        case.returned.note(out)
        return out

    def _note_abstract(self, leaves: Leaves) -> None:
        """Say once that a call could not be planned, because its numbers are not known."""
        abstract = any(isinstance(x, jax.core.Tracer) for x in leaves)
        if abstract and not self._said and not is_planned():
            self._said = True
            self._warn(ABSTRACT)

    def _over_hosts(self) -> PlannedFunction:
        """The same function, for calls that all processes make together."""
        if self._of_hosts is None:
            how: Any = {"flat": self._flat, "over_hosts": True, "written": self._making.written}
            self._of_hosts = PlannedFunction(self._fun, self._options, **how)
        return self._of_hosts

    def _case(self, leaves: Leaves, treedef: Form, args: Args, kwargs: Kwargs) -> Found:
        """The plans for such arguments, and that for these; `NOBODYS` if nobody can look."""
        if not all(map(can_be_looked_at, leaves)):
            return NOBODYS
        static, context = self._given.statics(args, kwargs), trace_context()
        key = (treedef, static, tuple(map(signature, leaves)), context)
        try:
            hash(key)
        except TypeError:  # a static argument that cannot be hashed: JAX says so
            return NOBODYS
        found = self._making.find(key, leaves, args, kwargs)
        if found.entry is None:  # whatever JAX can run is run, and our fault is no secret
            self._say_alarms()
            warnings.warn(found.failure, ScaleWarning, stacklevel=outside())  # on every call
        return found

    def _say_alarms(self) -> None:
        """What may be wrong in the results of plans just made."""
        alarms, self._making.alarms = self._making.alarms, []
        for alarm in alarms:
            self._warn(alarm)

    def _say_again(self, entry: Entry) -> None:
        """The same, of a plan that is used again for numbers like those that it was made for."""
        if entry.grade == "guessed":
            for alarm in entry.plan.alarms:
                self._warn(alarm)

    def _remember(
        self, case: Case, program: Any, args: Args, kwargs: Kwargs, leaves: Leaves = ()
    ) -> None:
        """Keep what the next call is compared with; only immutable arguments can be recognised.

        **Arguments:** `leaves`: arrays, that can be recognised in dicts and lists.
        """
        # Of the arrays of several hosts, `aval` does not say that they are.
        if self._given.static is None and not are_several():
            self._recent = case
        last = Last(program=program, context=case.context)
        if kwargs or not all(map(is_immutable, args)):
            if self._given.static is None:
                last = last._replace(leaves=tuple(map(weakref.ref, leaves)))
        elif case.keeps:
            last = last._replace(args=args)
        elif all([type(x) in ARRAYS for x in args]):
            last = last._replace(weak=tuple(map(weakref.ref, args)))
        self.last = last

    def _warn(self, what: str) -> None:
        """Numbers may be wrong: said where the function is called."""
        warnings.warn(f"tj.jit of {self._making.name}: {what}", ScaleWarning, stacklevel=outside())

    def _leaves_of(self, args: Args, kwargs: Kwargs) -> Leaves:
        leaves = jax.tree.leaves(self._given.dynamic(args, kwargs))
        if not self._is_over_hosts:
            return leaves
        from tanjax.scale.numbers import looked_at

        return looked_at(leaves) or leaves

    def _first(self, found: Found, leaves: Leaves, args: Args, kwargs: Kwargs) -> PyTree:
        """Results of a plan that knows them to be finite: if they are not, XLA rewrote them.

        Donated arguments are copied for another run only where XLA may do so: not where JAX's own
        program has run before, and no number leaves its range now.
        """
        case, entry = found.case, found.entry
        is_settled = not found.is_new and found.plan.identity and not entry.overflows
        is_gone = self._given.donates and is_settled
        kept = (args, kwargs) if is_gone else self._given.kept(args, kwargs)
        out = found.program(*args, **kwargs)
        is_short = found.plan.is_short(results := jax.tree.leaves(out))
        if is_short and is_gone:
            case.is_rewritten = True  # for the calls that follow
            self._warn(SHORT)
        elif is_short:
            again, (args, kwargs) = self._given.kept(*kept), kept
            exact = found.plan.run(self._leaves_of(*self._given.kept(*again)))
            # A zero that is mere rounding was right: hidden, the program would have other bits.
            if found.plan.misses(results, exact) is not False:
                hidden, plan = self._making.hidden(case, self._leaves_of(*kept), entry)
                entry = case.put(hidden, entry)
                out = entry.program(*args, **kwargs)
                if plan.misses(jax.tree.leaves(out), exact):
                    self._warn(SHORT)
                    plain = self.jitted(*again[0], **again[1])
                    right = not plan.misses(jax.tree.leaves(plain), exact, plain=True)
                    if right or is_worse(out, plain):
                        entry.plan, entry.program, out = plan.believed(), self.jitted, plain
                        case.is_rewritten = False
        self._remember(case, entry.program, args, kwargs)
        return out

    def _alarmed(self, entry: Entry, leaves: Leaves, args: Args, kwargs: Kwargs) -> PyTree:
        """An estimate says that plain JAX loses something: run it, and believe what it gives."""
        kept, finite = self._given.kept(args, kwargs), all(map(is_finite, leaves))
        out = self.jitted(*args, **kwargs)
        if not finite or (all_finite(out) and not entry.plan.is_missed(jax.tree.leaves(out))):
            again, named = self._given.kept(*kept)
            asks = finite and not self._is_over_hosts
            doubts = doubts_of_plain(entry, out, entry.program(*again, **named)) if asks else ()
            self._making.alarms += doubts
            entry.believe(self.jitted, self._leaves_of(*kept), doubts)
            return out
        entry.plan = entry.plan._replace(is_confirmed=True)
        return entry.program(*kept[0], **kept[1])

    def _checked(
        self, case: Case, entry: Entry, leaves: Leaves, args: Args, kwargs: Kwargs
    ) -> PyTree:
        """The results of an estimated plan, or of a better one if they are not finite.

        Looked at on calls 1, 2, 4, 8, … of estimated plans, so that the cost vanishes.
        """
        if not (entry.plan.identity or entry.plan.is_confirmed):
            return self._alarmed(entry, leaves, args, kwargs)
        self._calls += 1
        if self._calls & (self._calls - 1):
            return entry.program(*args, **kwargs)
        kept, finite = self._given.kept(args, kwargs), all(map(is_finite, leaves))
        out = entry.program(*args, **kwargs)
        if not finite or all_finite(out):
            self._remember(case, entry.program, args, kwargs)
            return out
        (args, kwargs), self._recent = kept, None
        leaves = self._leaves_of(args, kwargs)
        better = self._making.plan(case, leaves, thorough=True).expecting(leaves)
        better.plan, better.grade = better.plan._replace(is_estimate=False), "seen"
        case.put(better, entry)
        return better.program(*args, **kwargs)


def _are_last(last: tuple[Weak, ...], leaves: Leaves) -> bool:
    """Whether dicts and lists, which can change, hold the very arrays of the last call."""
    # The first is compared alone: in a loop it is another one, and nothing else is asked.
    if not last or last[0]() is not leaves[0]:
        return False
    return all([r() is x for r, x in zip(last, leaves, strict=True)])
