"""Calls of a compiled function: each call runs a program that loses none of its numbers.

1. The call has the very arrays of the last call: run the same program.
2. The arguments lie in the windows of a known plan: run its program. If values inside have windows,
   too, the program returns a flag that tells whether a value left its window.
3. Otherwise the call is a *look*: NumPy runs the program on the numbers. Then a plan is found or
   made, and windows are drawn around the numbers (`_making.py`).

Arguments that are results of the last call are checked later, without a wait (`_late.py`).
Everything that calls have learnt of one kind of arguments is one value, swapped at once
(`_cases.py`).

Sharp edges. Under a trace (`jax.grad`, `jax.vmap`, an outer `jit`) no number is known and the
program is JAX's own: write `tj.jit(tj.grad(f))`, not `tj.grad(tj.jit(f))`. Calls with arrays on
several hosts have plans of their own (`_over_hosts`): all processes must run the same program,
although each process may have made other plans alone.
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
from tanjax.quantities import is_planned

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
from ._memory import KEPT, WITH_OPTIONS, OnMemory, are_memory, on_held
from ._packing import with_powers

if TYPE_CHECKING:
    from tanjax.scale import Plan

    from ._cases import Case, Entry, Handed, Pairs
    from ._late import Late

_NOTHING: Any = object()
_SAID = 16  # looks in a row before the one warning that they are slow
CHECKS = ("late", "now", "off")


class PlannedFunction:
    """A planned `jax.jit`: each call runs the program that its numbers need.

    **Arguments:** `fun`, `options`: as of `jax.jit`; `flat`: all arguments are arrays; `written`:
    the user's function; `check`: as of `tj.jit`.
    **Cost:** a call with the arguments of the last call takes 0.5 us more than `jax.jit`. Other
    floating arguments are measured: 3 us for one, 0.5 us each for several.
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
        self._looping: Case | None = None  # the case whose results a loop hands back
        self._is_over_hosts = over_hosts
        self._of_hosts: PlannedFunction | None = None
        self._on_memory = OnMemory()
        self.last = Last()

    @property
    def plans(self) -> list[Plan]:
        """Every plan made, oldest first, with its newest grade."""
        self.read_flags()
        made = list(self._making.made.values())
        others = self._of_hosts, self._on_memory, vars(self).get("_with_powers")
        return made + [p for f in others if f for p in f.plans]

    def __del__(self) -> None:
        """Read the remaining flags of a loop, and warn, before the function is deleted."""
        if "_late" in vars(self) and not sys.is_finalizing():
            self.read_flags()

    @functools.cached_property
    def _late(self) -> Late:
        from ._late import Late

        return Late(self._check != "off", self._given.donates)

    @functools.cached_property
    def _with_powers(self) -> PlannedFunction:
        """The function whose labels keep their powers of two, for numbers without a right plan.

        A power of two from the user may hold numbers that no planned exponent holds, or that
        tanjax cannot measure.
        """
        options: Any = {"over_hosts": self._is_over_hosts, "written": self._making.written}
        fun = with_powers(self._fun)
        return PlannedFunction(fun, self._options, flat=self._flat, check=self._check, **options)

    # -- calls -------------------------------------------------------------------------------------

    def __call__(self, /, *args: PyTree, **kwargs: PyTree) -> PyTree:
        last, context = self.last, trace_context()
        known, weak = last.args, last.weak
        # Compare the first argument alone: if it differs, as it often does, the rest is skipped.
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
            # JAX interns the avals of arrays, so `is` is nearly always enough.
            and all([type(x) in ARRAYS and x.aval is a for x, a in zip(leaves, recent.avals)])  # noqa: B905
        ):
            if last.context == context and last.holds(leaves):
                return last.program(*args, **kwargs)
            return self._planned(recent, leaves, args, kwargs)
        return self._call(leaves, treedef, args, kwargs)

    def _call(self, leaves: Leaves, treedef: Form, args: Args, kwargs: Kwargs) -> PyTree:
        """Run a call whose arguments may be of another kind than those of the last call."""
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
        # The `aval` of an array does not show that it lives on several hosts.
        if self._given.static is None and not are_several():
            self._recent = case
        return self._planned(case, leaves, args, kwargs)

    def _planned(self, case: Case, leaves: Leaves, args: Args, kwargs: Kwargs) -> PyTree:
        """Run a traced program; if that fails, warn and run JAX's own program."""
        try:
            return self._answer(case, leaves, args, kwargs)
        except Warning:
            raise
        except Exception as error:  # memory, or the compiler: do not remember it
            if case.closed.effects:
                raise
            out = self._with_powers.jitted(*args, **kwargs)  # raises again if JAX fails, too
            self._fails(error)
            return out

    def _answer(self, case: Case, leaves: Leaves, args: Args, kwargs: Kwargs) -> PyTree:
        """Run a traced program by the rules of the page `scale.md`.

        1. `__call__` has handled calls with the very arrays of the last call.
        2. Arguments in the windows of a plan run its program.
        3. If values inside have windows, too, its flag decides (`_inside`).
        4. Otherwise `_look` finds or makes a plan, and draws windows.
        5. Results that are handed back are checked two calls later (`_in_loop`).
        6. A program that takes too long to look at is sampled and bounded: windows decide
           (`_estimated`).
        7. Without windows each call is a look; 16 looks in a row warn once.
        8. Programs with effects never run twice (`has_effects`).
        9. Unchecked entries have wider windows and no flags (`is_unchecked`).
        10. Under a trace of JAX there is no case: `_call` runs JAX's program.
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
                    if entry is not state.entries[0]:  # an earlier entry may have raised its flag
                        case.put(entry)
                    return out
        return self._look(case, leaves, args, kwargs, pairs)

    def _in_loop(
        self, case: Case, handed: Handed, leaves: Leaves, args: Args, kwargs: Kwargs
    ) -> PyTree:
        """Run a call whose state is a result of the last call; return `_NOTHING` to ask for a look.

        The last call must have had its state in the same places.
        """
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
        """Return the results for arguments in their windows; `_NOTHING` if a flag is raised."""
        if entry.flagged is None:
            out = entry.program(*args, **kwargs)
            self._note(case, entry.program, out, args, kwargs, leaves, pairs, entry)
            return out
        program = self._making.without_donation(case, entry)
        found = self._flagged(entry, args, kwargs, program)
        if found is None or found[0]:
            return _NOTHING
        self._given.take_away(args, kwargs, found[1])
        self._note(case, entry.unread, found[1], args, kwargs, leaves, pairs, entry)
        return found[1]

    def _flagged(
        self, entry: Entry, args: Args, kwargs: Kwargs, program: Any = None
    ) -> tuple[bool, PyTree] | None:
        """Return whether the flag is raised, and the results; None if `jax_debug_nans` raises."""
        from ._cases import no_flag
        from ._late import is_raised

        try:
            program = program or entry.flagged
            flag, out = program(entry.limits, no_flag(), *args, **kwargs)
        except FloatingPointError:  # these results may be discarded anyway
            return None
        return is_raised(flag), out

    def _note(
        self, case: Case, program: Any, out: PyTree, args: Args, kwargs: Kwargs, leaves: Leaves,
        pairs: Pairs, entry: Entry,
    ) -> None:  # fmt: skip
        """Keep the arguments and results with which the next call is compared."""
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
        """Wait for all flags of loops, and warn if a flag is raised."""
        for case in list(self._making.cases.values()):
            self._read(case)

    def _read(self, case: Case, *, ready: bool = False) -> None:
        """Read the unread flags; `ready`: only the flags that are computed already."""
        from ._late import LATE, is_raised

        with case.lock:
            if not ready:
                self._late.end(case)  # the loop ends: its next call is checked without delay
            unread = case.state.unread
            is_later = lambda x: ready and isinstance(x, jax.Array) and not x.is_ready()  # type: ignore[attr-defined]
            later = [x for x in unread if is_later(x)]
            case.swap(unread=tuple(later))
        if any([is_raised(x) for x in unread if all(x is not y for y in later)]):
            self._warn(LATE)

    # -- looks -------------------------------------------------------------------------------------

    def _look(self, case: Case, leaves: Leaves, args: Args, kwargs: Kwargs, pairs: Pairs) -> PyTree:
        """Run a call after a look at its numbers."""
        try:
            found = self._making.find(case, leaves)
        except Exception as error:  # do not remember it
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
        ) and entry.plan.unseen:  # otherwise windows prove the results
            alarms = [*(a for a in alarms if a != PARTLY), *entry.plan.unseen]
        for alarm in alarms:
            self._once(alarm) if plan.is_of_program(alarm) else self._warn(alarm)
        program = entry.program if entry.flagged is None else entry.unread
        self._note(case, program, out, args, kwargs, leaves, pairs, entry)
        if alarms:  # the same arrays need another look, and warn again
            self.last = Last()
        in_a_row = 0 if entry.watch is not None else in_a_row + 1
        case.swap(in_a_row=in_a_row)
        if in_a_row == _SAID:
            self._once(SLOW.format(_SAID))
        return out

    def _first(
        self, case: Case, entry: Entry, args: Args, kwargs: Kwargs, kept: Any
    ) -> tuple[PyTree, Entry]:
        """Return results that must be finite: if they are not, XLA rewrote the program."""
        plan = entry.plan
        found = self._flagged(entry, args, kwargs) if entry.flagged else None
        out = entry.program(*args, **kwargs) if found is None else found[1]
        if entry.flagged and (found is None or found[0]):  # the same numbers would raise it again
            entry = self._making.without_windows(case, entry)
        if not plan.is_short(jax.tree.leaves(out)):
            return out, entry
        again, (args, kwargs) = self._given.kept(*kept), kept
        exact = plan.run(self._leaves_of(*self._given.kept(*again)))
        # A zero from rounding alone is right: hiding values from XLA would change other bits.
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
        """Return the results of an estimate: if no window proves it, run it on all numbers."""
        out, entry = self._in_windows(case, entry, leaves, kept)
        if out is not _NOTHING:
            return out, entry, []
        if case.with_powers(self._with_powers, leaves, *kept):
            case.swap(keeps_powers=True)
            plan = entry.plan._replace(unseen=())  # the other function warns about unseen numbers
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
        """Return the results of an estimated entry if its windows, or new ones, prove them."""
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
        except FloatingPointError:  # raised by `jax_debug_nans`
            return _NOTHING, entry
        return self._in_windows(case, entry, leaves, kept, is_measured=True)

    def _alarmed(
        self, case: Case, entry: Entry, leaves: Leaves, args: Args, kwargs: Kwargs, kept: Any
    ) -> tuple[PyTree, Entry, list[str]]:
        """Run plain JAX after an estimate that it loses something, and believe its results."""
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
        """Take plain JAX instead of a plan that loses entries which plain JAX has right."""
        (again, named), (more, others) = (self._given.kept(*kept) for _ in range(2))
        run = functools.cache(lambda: jax.tree.leaves(entry.program(*more, **others)))
        plan = entry.plan
        plain = plan.kept_plain(jax.tree.leaves(self.jitted(*again, **named)), run)
        if plain is None:  # `doubts` hold a float64 array for each result: drop them
            return case.put(entry._replace(plan=plan._replace(doubts=())), entry), alarms
        new = self._making.instead(entry, plain)
        said = [a for a in alarms if a not in plan.alarms]
        return case.put(new, entry), [*said, *plain.alarms]

    # -- cases -------------------------------------------------------------------------------------

    def _case(self, leaves: Leaves, treedef: Form, args: Args, kwargs: Kwargs) -> Case | None:
        """Return the function traced for these arguments; None if they cannot be measured."""
        if not all(map(can_be_looked_at, leaves)):
            return None
        static, context = self._given.statics(args, kwargs), trace_context()
        key = (treedef, static, tuple(map(signature, leaves)), context)
        try:
            hash(key)
        except TypeError:  # a static argument that cannot be hashed: JAX raises later
            return None
        try:
            case, is_new = self._making.case(key, leaves, args, kwargs)
        except Exception as error:  # if JAX cannot trace the function either, its error raises
            self.jitted.trace(*args, **kwargs)
            self._fails(error)
            return None
        for note in case.notes if is_new else ():
            self._warn(note)  # JAX lost a constant without a warning, so the result is wrong
        return case

    def is_plain(self, args: Args, kwargs: Kwargs) -> bool:
        """True if JAX's own program is right for these numbers, if need be after a look."""
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
        """Lower the planned program if the arguments are numbers, otherwise JAX's own program."""
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

    def of_contents(self) -> PlannedFunction | None:
        """Return the pure function of the contents of Refs; warn if an option has no meaning."""
        if not all(name in KEPT for name in self._options):
            self._warn(WITH_OPTIONS.format(", ".join(self._options)))
            return None
        return PlannedFunction(on_held(self._fun), self._options, written=self._making.written)

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
        """Keep arguments in order to recognise them; only immutable arguments are kept."""
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
        """Warn, at the line of the user's call, that numbers may be wrong."""
        warnings.warn(f"tj.jit of {self._making.name}: {what}", ScaleWarning, stacklevel=outside())

    def _once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._warn(what)

    def _fails(self, error: Exception) -> None:
        warnings.warn(failed(self._making.name, error), ScaleWarning, stacklevel=outside())
