"""Calls of a compiled function, each by a program that loses nothing of its numbers.

1. The very arrays of the last call: its program.
2. Arguments in the windows of a known plan: its program. Where values inside have windows, too, the
   program says by a flag whether one was left.
3. Otherwise a look: the program is run on the numbers by NumPy, a plan is found or made, and
   windows are drawn around them (`_making.py`).

Arguments that are results of the last call are looked at later, and nothing is waited for
(`_late.py`). The knowledge of arguments of one kind is one value, swapped at once (`_cases.py`).

Sharp edges. Under a trace (`jax.grad`, `jax.vmap`, an outer `jit`) no number is known and the
program is JAX's own: write `tj.jit(tj.grad(f))`, not `tj.grad(tj.jit(f))`. Calls with arrays on
several hosts have plans of their own (`_over_hosts`): all processes have to run the same program,
whatever each of them has computed alone in between.
"""

from __future__ import annotations

import functools
import sys
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
    all_finite,
    are_several,
    can_be_looked_at,
    is_finite,
    is_immutable,
    is_on_several_hosts,
    signature,
)
from ._making import ABSTRACT, PARTLY, SHORT, SLOW, Making, failed, is_worse, say_powers
from ._memory import OnMemory, are_memory
from ._packing import with_powers

if TYPE_CHECKING:
    from tanjax.scale import Plan

    from ._cases import Case, Entry, Handed, Pairs
    from ._late import Late

_NOTHING: Any = object()
_SAID = 16  # looks in a row after which it is said once that they are slow
CHECKS = ("late", "now", "off")


class PlannedFunction:
    """A function of `jax.jit` that is planned: called, it runs the program that its numbers need.

    **Arguments:** `fun`, `options` of `jax.jit`; `flat`: of arrays; `written`: the user's function;
    `check`: as of `tj.jit`.
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
        check: str = "late",
    ) -> None:
        self._making = Making(fun, options, over_hosts, written or fun, check != "off")
        self.jitted, self._given = self._making.jitted, self._making.given
        self._fun, self._options, self._flat, self._check = fun, options, flat, check
        self._said: set[str] = set()
        self._recent: Case | None = None
        self._looping: Case | None = None  # whose results a loop hands back
        self._is_over_hosts = over_hosts
        self._of_hosts: PlannedFunction | None = None
        self._on_memory = OnMemory()
        self.last = Last()

    @property
    def plans(self) -> list[Plan]:
        """Every plan made, oldest first, with what is known of it now."""
        self.read_flags()
        made = list(self._making.made.values())
        others = self._of_hosts, self._on_memory, vars(self).get("_with_powers")
        return made + [p for f in others if f for p in f.plans]

    def __del__(self) -> None:
        """Say what is known of a loop whose function goes before anything else asks."""
        if "_late" in vars(self) and not sys.is_finalizing():
            self.read_flags()

    @functools.cached_property
    def _late(self) -> Late:
        from ._late import Late

        return Late(self._check != "off", self._given.donates)

    @functools.cached_property
    def _with_powers(self) -> PlannedFunction:
        """The function whose labels keep their powers of two: for what no plan is right for.

        A power that a user gave may hold numbers that no exponents do, or that cannot be seen.
        """
        options: Any = {"over_hosts": self._is_over_hosts, "written": self._making.written}
        fun = with_powers(self._fun)
        return PlannedFunction(fun, self._options, flat=self._flat, check=self._check, **options)

    # -- calls -------------------------------------------------------------------------------------

    def __call__(self, /, *args: PyTree, **kwargs: PyTree) -> PyTree:
        last, context = self.last, trace_context()
        known, weak = last.args, last.weak
        # The first is compared alone: others come often, and nothing else is asked then.
        if weak and args and weak[0]() is args[0]:
            known = tuple([r() for r in weak])
        is_like = not kwargs and known is not None and len(args) == len(known)
        if is_like and all(map(is_, args, known or ())) and last.context == context:
            return last.program(*args)
        if self._flat:
            leaves: Leaves = args
            treedef: Form = len(args)
        else:
            leaves, treedef = jax.tree.flatten(self._given.dynamic(args, kwargs))
        recent = self._recent
        if (
            recent is not None
            and treedef == recent.treedef
            and context == recent.context
            # The avals of JAX's arrays are interned, so that `is` is nearly always enough.
            and all([type(x) in ARRAYS and x.aval is a for x, a in zip(leaves, recent.avals)])  # noqa: B905
        ):
            if last.context == context and last.holds(leaves):
                return last.program(*args, **kwargs)
            return self._planned(recent, leaves, args, kwargs)
        return self._call(leaves, treedef, args, kwargs)

    def _call(self, leaves: Leaves, treedef: Form, args: Args, kwargs: Kwargs) -> PyTree:
        """A call whose arguments may be of another kind than those of the last one."""
        if self._flat and not all(map(can_be_looked_at, leaves)):  # structured arrays among them
            leaves, treedef = jax.tree.flatten((args, kwargs))
        if are_memory(leaves):
            return self._on_memory(self, args, kwargs)
        if are_several() and any(map(is_on_several_hosts, leaves)):
            if not self._is_over_hosts:
                return self._over_hosts()(*args, **kwargs)
            leaves = self._leaves_of(args, kwargs)
        case = self._case(leaves, treedef, args, kwargs)
        if case is None:
            if any(isinstance(x, jax.core.Tracer) for x in leaves) and not is_planned():
                self._once(ABSTRACT)
            return self._with_powers.jitted(*args, **kwargs)
        # Of the arrays of several hosts, `aval` does not say that they are.
        if self._given.static is None and not are_several():
            self._recent = case
        return self._planned(case, leaves, args, kwargs)

    def _planned(self, case: Case, leaves: Leaves, args: Args, kwargs: Kwargs) -> PyTree:
        """A call of a program that was traced; of JAX's own, with a warning, where ours fails."""
        try:
            return self._answer(case, leaves, args, kwargs)
        except Warning:
            raise
        except Exception as error:  # memory, or the compiler; nothing is remembered of it
            if case.closed.effects:
                raise
            out = self._with_powers.jitted(*args, **kwargs)  # what JAX cannot run raises again
            self._fails(error)
            return out

    def _answer(self, case: Case, leaves: Leaves, args: Args, kwargs: Kwargs) -> PyTree:
        """A call of a program that was traced: the rules of the page `scale.md`.

        1. The very arrays of the last call ran its program in `__call__`.
        2. Arguments in the windows of a plan: its program.
        3. Where values inside have windows, too, its flag decides (`_inside`).
        4. Otherwise a look (`_look`): a plan is found or made, and windows are drawn.
        5. Results that are handed back are looked at two calls later (`_in_loop`).
        6. What takes too long to look at is sampled and bounded: windows decide (`_estimated`).
        7. Without windows each call is a look; after 16 of them that is said once.
        8. Programs with effects never run twice (`has_effects`).
        9. Unchecked entries have windows that are wider, and no flags (`is_unchecked`).
        10. Under a trace of JAX no case is found: `_call` runs JAX's program.
        """
        if (before := self._looping) is not None and before is not case:
            self._looping = None
            self._read(before)
        state = case.state
        if state.keeps_powers:
            return self._with_powers(*args, **kwargs)
        pairs: Pairs = ()
        if state.handed.results:
            from ._late import pairs_in

            pairs = pairs_in(state.handed, leaves)
            entry = state.handed.entry
            if pairs and pairs == state.handed.pairs and entry is not None and entry.watch:
                out = self._in_loop(case, state.handed, leaves, args, kwargs)
                if out is not _NOTHING:
                    return out
        for entry in state.entries:
            if entry.watch is not None and entry.watch.takes(leaves):
                out = self._inside(case, entry, leaves, args, kwargs, pairs)
                if out is not _NOTHING:
                    if entry is not state.entries[0]:  # the flag of one before may have been raised
                        case.put(entry)
                    return out
        return self._look(case, leaves, args, kwargs, pairs)

    def _in_loop(
        self, case: Case, handed: Handed, leaves: Leaves, args: Args, kwargs: Kwargs
    ) -> PyTree:
        """A call with results of the last one, as that was; `_NOTHING` if it must be looked at."""
        from ._cases import Handed
        from ._late import LATE, RUNNING

        if self._late.is_due(handed):
            with case.lock:
                if case.state.handed is handed:
                    case.swap(handed=Handed())
            self._warn(LATE)
            return _NOTHING
        watch = handed.entry.watch  # type: ignore[union-attr]
        if not watch.takes(leaves, {a for a, _ in handed.pairs}):  # type: ignore[union-attr]
            return _NOTHING
        try:
            out = self._late.run(case, handed, args, kwargs, leaves)
        except FloatingPointError:
            return _NOTHING
        self._looping = case
        RUNNING.add(self)
        return out

    def _inside(
        self, case: Case, entry: Entry, leaves: Leaves, args: Args, kwargs: Kwargs, pairs: Pairs
    ) -> PyTree:
        """The results for arguments in their windows; `_NOTHING` if a flag is raised."""
        if entry.flagged is None:
            out = entry.program(*args, **kwargs)
            self._note(case, entry.program, out, args, kwargs, leaves, pairs, entry)
            return out
        program = self._making.without_donation(case, entry)
        found = self._flagged(entry, args, kwargs, program)
        if found is None or found[0]:
            return _NOTHING
        self._given.take_away(args, kwargs, found[1])
        known = functools.partial(_unread, entry)
        self._note(case, known, found[1], args, kwargs, leaves, pairs, entry)
        return found[1]

    def _flagged(
        self, entry: Entry, args: Args, kwargs: Kwargs, program: Any = None
    ) -> tuple[bool, PyTree] | None:
        """Whether the flag is raised, and the results; None if `jax_debug_nans` objects to them."""
        from ._late import is_raised, no_flag

        try:
            program = program or entry.flagged
            flag, out = program(entry.limits, no_flag(), *args, **kwargs)
        except FloatingPointError:  # of results that may not count
            return None
        return is_raised(flag), out

    def _note(
        self, case: Case, program: Any, out: PyTree, args: Args, kwargs: Kwargs, leaves: Leaves,
        pairs: Pairs, entry: Entry,
    ) -> None:  # fmt: skip
        """Keep what the next call is compared with."""
        from ._cases import Handed
        from ._late import references

        results = references(out) if self._check != "now" and not self._is_over_hosts else ()
        with case.lock:
            if case.state.handed.calls:
                self._late.end(case)
            case.swap(handed=Handed(results, entry, pairs), in_a_row=0)
        if case.state.unread:
            self._read(case, ready=True)
        self._remember(case, program, args, kwargs, leaves)

    # -- flags of loops ----------------------------------------------------------------------------

    def read_flags(self) -> None:
        """Wait for all flags of loops, and say what they say."""
        for case in list(self._making.cases.values()):
            self._read(case)

    def _read(self, case: Case, *, ready: bool = False) -> None:
        """Read flags that nobody has read; `ready`: those only that need not be waited for."""
        from ._late import LATE, is_raised

        with case.lock:
            if not ready:
                self._late.end(case)  # the next call is waited for
            unread = case.state.unread
            is_later = lambda x: ready and isinstance(x, jax.Array) and not x.is_ready()  # type: ignore[attr-defined]
            later = [x for x in unread if is_later(x)]
            case.swap(unread=tuple(later))
        if any([is_raised(x) for x in unread if all(x is not y for y in later)]):
            self._warn(LATE)

    # -- looks -------------------------------------------------------------------------------------

    def _look(self, case: Case, leaves: Leaves, args: Args, kwargs: Kwargs, pairs: Pairs) -> PyTree:
        """A call whose numbers are looked at."""
        try:
            found = self._making.find(case, leaves)
        except Exception as error:  # nothing is remembered of it
            out = self._with_powers.jitted(*args, **kwargs)
            self._fails(error)
            return out
        entry, alarms, plan = found.entry, list(found.alarms), found.entry.plan
        if alarms and (other := case.with_powers(self._with_powers, leaves, args, kwargs)):
            out = self._with_powers(*args, **kwargs)
            case.swap(keeps_powers=not any(e.plan.alarms for e in other.state.entries[:1]))
            return out
        if found.is_new:
            say_powers(self._making.name, case.out, plan.output_exponents)
        kept, in_a_row = self._given.kept(args, kwargs), case.state.in_a_row
        if found.is_new and plan.doubts and not (plan.has_effects or self._is_over_hosts):
            entry, alarms = self._ask_plain(case, entry, alarms, kept)
            plan = entry.plan
        if plan.has_effects:
            out = entry.program(*args, **kwargs)
        elif plan.is_estimate:
            out, entry, more = self._estimated(case, entry, leaves, args, kwargs, kept)
            alarms += more
        elif plan.expected is not None:
            out, entry = self._first(case, entry, args, kwargs, kept)
        else:
            out = entry.program(*args, **kwargs)
        if (
            entry.watch is None or entry.is_unchecked
        ) and entry.plan.unseen:  # or windows say that it is right
            alarms = [*(a for a in alarms if a != PARTLY), *entry.plan.unseen]
        for alarm in alarms:
            self._once(alarm) if plan.is_of_program(alarm) else self._warn(alarm)
        program = entry.program if entry.flagged is None else functools.partial(_unread, entry)
        self._note(case, program, out, args, kwargs, leaves, pairs, entry)
        if alarms:  # the same arrays are looked at again, and what is wrong is said again
            self.last = Last()
        in_a_row = 0 if entry.watch is not None else in_a_row + 1
        case.swap(in_a_row=in_a_row)
        if in_a_row == _SAID:
            self._once(SLOW.format(_SAID))
        return out

    def _first(
        self, case: Case, entry: Entry, args: Args, kwargs: Kwargs, kept: Any
    ) -> tuple[PyTree, Entry]:
        """Results that are known to be finite: if they are not, XLA rewrote the program."""
        plan = entry.plan
        found = self._flagged(entry, args, kwargs) if entry.flagged else None
        out = entry.program(*args, **kwargs) if found is None else found[1]
        if entry.flagged and (found is None or found[0]):  # as it would be for the same numbers
            entry = self._making.without_windows(case, entry)
        if not plan.is_short(jax.tree.leaves(out)):
            return out, entry
        again, (args, kwargs) = self._given.kept(*kept), kept
        exact = plan.run(self._leaves_of(*self._given.kept(*again)))
        # A zero that is mere rounding was right: hidden, the program would have other bits.
        if plan.misses(jax.tree.leaves(out), exact) is False:
            return out, entry
        with case.lock:
            others = tuple(e for e in case.state.entries if not e.plan.identity)
            case.swap(is_rewritten=True, entries=others)
        leaves = self._leaves_of(*kept)
        better = self._making.plan(case, leaves)
        hidden = self._making.drawn(case, self._making.entry(case, better), leaves, entry)
        out = hidden.program(*args, **kwargs)
        if better.misses(jax.tree.leaves(out), exact):
            self._warn(SHORT)
            hidden = self._making.without_windows(case, hidden)
            plain = self.jitted(*again[0], **again[1])
            right = not better.misses(jax.tree.leaves(plain), exact, plain=True)
            if right or is_worse(out, plain):
                case.swap(is_rewritten=False)
                return plain, case.put(self._making.instead(hidden, better.believed()), hidden)
        return out, hidden

    def _estimated(
        self, case: Case, entry: Entry, leaves: Leaves, args: Args, kwargs: Kwargs, kept: Any
    ) -> tuple[PyTree, Entry, list[str]]:
        """Not everything was run on numbers: windows decide, or else a run on all of them."""
        out, entry = self._in_windows(case, entry, leaves, kept)
        if out is not _NOTHING:
            return out, entry, []
        if case.with_powers(self._with_powers, leaves, *kept):
            case.swap(keeps_powers=True)
            plan = entry.plan._replace(unseen=())  # the other says what it could not see
            entry = entry._replace(plan=plan, program=self._with_powers)
            return self._with_powers(*kept[0], **kept[1]), entry, []
        thorough = self._making.plan(case, self._leaves_of(*kept), thorough=True)
        if not thorough.is_estimate:
            better = self._making.entry(case, thorough)
            better = self._making.drawn(case, better, self._leaves_of(*kept), entry)
            out, better = self._first(case, better, args, kwargs, kept)
            return out, better, list(thorough.alarms)
        plan = entry.plan._replace(unseen=thorough.unseen)
        if not entry.is_unchecked:
            entry = self._making.without_windows(case, entry)
        entry = case.put(entry._replace(plan=plan), entry)
        if entry.plan.identity or entry.plan.is_confirmed:
            return entry.program(*args, **kwargs), entry, [PARTLY]
        return self._alarmed(case, entry, leaves, args, kwargs, kept)

    def _in_windows(
        self, case: Case, entry: Entry, leaves: Leaves, kept: Any, *, is_measured: bool = False
    ) -> tuple[PyTree, Entry]:
        """The results of an estimated entry, if its windows, or others, say that they are right."""
        if entry.is_unchecked:
            return _NOTHING, entry
        args, kwargs = self._given.kept(*kept)
        if entry.watch is not None:
            if entry.flagged is None:
                return entry.program(*args, **kwargs), entry
            found = self._flagged(entry, args, kwargs)
            if found is not None and not found[0]:
                return found[1], entry
        if is_measured or entry.plan.has_effects or self._is_over_hosts:
            return _NOTHING, entry
        try:
            entry = self._making.measured(case, entry, *self._given.kept(*kept), leaves)
        except FloatingPointError:  # of `jax_debug_nans`
            return _NOTHING, entry
        return self._in_windows(case, entry, leaves, kept, is_measured=True)

    def _alarmed(
        self, case: Case, entry: Entry, leaves: Leaves, args: Args, kwargs: Kwargs, kept: Any
    ) -> tuple[PyTree, Entry, list[str]]:
        """An estimate says that plain JAX loses something: run it, and believe what it gives."""
        plan, finite = entry.plan, all(map(is_finite, leaves))
        out = self.jitted(*args, **kwargs)
        if not finite or (all_finite(out) and not plan.is_missed(jax.tree.leaves(out))):
            believed = self._making.instead(entry, plan.believed())
            leaves = self._leaves_of(*kept)
            believed = self._making.drawn(case, believed, leaves, entry)
            right, believed = self._in_windows(case, believed, leaves, kept)
            if right is not _NOTHING:
                return right, believed, []
            return out, believed, [PARTLY]
        entry = case.put(entry._replace(plan=plan._replace(is_confirmed=True)), entry)
        return entry.program(*kept[0], **kept[1]), entry, [PARTLY]

    def _ask_plain(
        self, case: Case, entry: Entry, alarms: list[str], kept: Any
    ) -> tuple[Entry, list[str]]:
        """Plain JAX instead of a plan that loses entries which plain JAX has right."""
        (again, named), (more, others) = (self._given.kept(*kept) for _ in range(2))
        run = functools.cache(lambda: jax.tree.leaves(entry.program(*more, **others)))
        plan = entry.plan
        plain = plan.kept_plain(jax.tree.leaves(self.jitted(*again, **named)), run)
        if plain is None:  # without the float64 arrays of each result
            return case.put(entry._replace(plan=plan._replace(doubts=())), entry), alarms
        new = self._making.instead(entry, plain)
        said = [a for a in alarms if a not in plan.alarms]
        return case.put(new, entry), [*said, *plain.alarms]

    # -- cases -------------------------------------------------------------------------------------

    def _case(self, leaves: Leaves, treedef: Form, args: Args, kwargs: Kwargs) -> Case | None:
        """The function, traced for such arguments; None if nobody can look at these."""
        if not all(map(can_be_looked_at, leaves)):
            return None
        static, context = self._given.statics(args, kwargs), trace_context()
        key = (treedef, static, tuple(map(signature, leaves)), context)
        try:
            hash(key)
        except TypeError:  # a static argument that cannot be hashed: JAX says so
            return None
        try:
            case, is_new = self._making.case(key, leaves, args, kwargs)
        except Exception as error:  # whose fault it is: what JAX cannot trace raises again
            self.jitted.trace(*args, **kwargs)
            self._fails(error)
            return None
        for note in case.notes if is_new else ():
            self._warn(note)  # a constant that is lost: JAX says nothing, and the result is wrong
        return case

    def is_plain(self, args: Args, kwargs: Kwargs) -> bool:
        """Whether JAX's own program is right for these numbers, which may be looked at."""
        leaves, treedef = jax.tree.flatten(self._given.dynamic(args, kwargs))
        case = self._case(leaves, treedef, args, kwargs)
        if case is None:
            return True
        for entry in case.state.entries:
            if entry.watch is not None and entry.watch.takes(leaves):
                return entry.plan.identity and entry.flagged is None
        try:
            found = self._making.find(case, leaves)
        except Exception as error:
            self._fails(error)
            return True
        plan = found.entry.plan
        is_right = plan.identity and not (plan.is_estimate or plan.doubts)
        for alarm in found.alarms if is_right else ():
            self._warn(alarm)
        return is_right

    def clear_cache(self) -> None:
        """Forget all programs and plans."""
        self.read_flags()
        self._making.clear()
        vars(self).pop("_with_powers", None)
        self.last, self._recent, self._looping, self._of_hosts = Last(), None, None, None
        self._on_memory = OnMemory()

    def lower(self, /, *args: PyTree, **kwargs: PyTree) -> Lowered:
        """Ahead-of-time compilation: of the planned program, if the arguments are numbers."""
        leaves: Leaves
        leaves, treedef = jax.tree.flatten(self._given.dynamic(args, kwargs))
        if are_several() and any(map(is_on_several_hosts, leaves)):
            if not self._is_over_hosts:
                return self._over_hosts().lower(*args, **kwargs)
            leaves = self._leaves_of(args, kwargs)
        case, program = self._case(leaves, treedef, args, kwargs), self.jitted
        if case is not None:
            try:
                program = self._making.find(case, leaves).entry.program
            except Exception as error:
                self._fails(error)
        return program.lower(*args, **kwargs)

    def _over_hosts(self) -> PlannedFunction:
        """The same function, for calls that all processes make together."""
        if self._of_hosts is None:
            how: Any = {"flat": self._flat, "over_hosts": True, "check": self._check}
            how["written"] = self._making.written
            self._of_hosts = PlannedFunction(self._fun, self._options, **how)
        return self._of_hosts

    def _leaves_of(self, args: Args, kwargs: Kwargs) -> Leaves:
        leaves = jax.tree.leaves(self._given.dynamic(args, kwargs))
        if not self._is_over_hosts:
            return leaves
        from tanjax.scale.numbers import looked_at

        return looked_at(leaves) or leaves

    def _remember(
        self, case: Case, program: Any, args: Args, kwargs: Kwargs, leaves: Leaves
    ) -> None:
        """Keep arguments in order to recognise them; only immutable ones can be."""
        last = Last(program=program, context=case.context)
        are_arrays = all([type(x) in ARRAYS for x in leaves])
        if kwargs or not all(map(is_immutable, args)):
            if self._given.static is None and are_arrays:
                last = last._replace(leaves=tuple(map(weakref.ref, leaves)))
        elif case.keeps:
            last = last._replace(args=args)
        elif all([type(x) in ARRAYS for x in args]):
            last = last._replace(weak=tuple(map(weakref.ref, args)))
        self.last = last

    # -- warnings ----------------------------------------------------------------------------------

    def _warn(self, what: str) -> None:
        """Numbers may be wrong: said where the function is called."""
        warnings.warn(f"tj.jit of {self._making.name}: {what}", ScaleWarning, stacklevel=outside())

    def _once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._warn(what)

    def _fails(self, error: Exception) -> None:
        warnings.warn(failed(self._making.name, error), ScaleWarning, stacklevel=outside())


def _unread(entry: Entry, /, *args: PyTree, **kwargs: PyTree) -> PyTree:
    """The results of a program whose flag is known."""
    from ._late import no_flag

    return entry.flagged(entry.limits, no_flag(), *args, **kwargs)[1]  # type: ignore[misc]
