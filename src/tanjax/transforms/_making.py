"""Plans of a compiled function, and the programs that they run.

A look runs the program on the numbers of a call, in a wide range. If a known plan loses none of
them, the look returns that plan; otherwise it makes a plan. Then it draws windows around these
numbers (`scale/windows`). Two plans with the same exponents share one program, compiled once. A
plan without exponents runs JAX's own program where that is proved right.

Sharp edge: a look does not warn. It returns its alarms about the results to the calling function.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Traced
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._dtype_range import range_of
from tanjax._errors import ScaleWarning, message, outside
from tanjax._typing import AnyArray, Function
from tanjax.quantities import planned

from ._arguments import Args, Arguments, Jitted, Kwargs, Leaves, Options
from ._memory import UsesRefs, without_memory, without_refs
from ._packing import relabelled, telling, unpack

if TYPE_CHECKING:
    from tanjax.scale import Plan

    from ._cases import Case, Entry

_CASES = 256  # cases, and plans in `.plans`: bounds memory, 0.5 MB apiece for 500 equations
_MEASURED = 2_000  # values; the extremes of so many take some seconds to compile
_NEAR = 4.0  # bits; promise: `check="off"` looks again if arguments have other magnitudes

# The key of a trace: the form of its arguments first, JAX's settings last.
Key: TypeAlias = tuple[Hashable, ...]
# A traced program, the shapes of its results, its lost constants, the warnings about them.
Program: TypeAlias = tuple[Any, PyTree, dict[int, AnyArray], tuple[str, ...]]

ABSTRACT = (
    "called under a trace of JAX (`jax.grad`, `jax.vmap`, `jax.jit`, a loop), where no number is "
    "known, it is not planned: its numbers may leave their range unseen. Write "
    "`tj.jit(jax.grad(f))`, or pass `scale=False` to accept this."
)
SHORT = (
    "results are not finite, or zero, where exact arithmetic gives numbers in range: the rest "
    "after a cancellation is rounding, and leaves its range."
)
PARTLY = (
    "a loop was sampled or an array bounded, because measuring all of its numbers takes too long, "
    "and no flag tells whether they keep to their range: its results may be wrong."
)
BEYOND = (
    "a structured quantity does not fit in its dtype, and its type cannot carry a power of two. "
    "Its numbers are infinite, or zero. Choose a unit near them, or return the fields."
)
SLOW = (
    "each of {} calls in a row had to be run on its numbers by NumPy, which is slow: bounds do not "
    "show where numbers that leave their range do harm. `scale=False` is JAX's own program, unseen."
)


class Found(NamedTuple):
    """The result of a look.

    **Fields:** `entry`: a plan that is right for these numbers, with its program; `is_new`: true if
    it was made now; `alarms`: possible faults of the results.
    """

    entry: Entry
    is_new: bool = False
    alarms: tuple[str, ...] = ()


class Making:
    """The maker of the cases and the plans of a function.

    **Fields:** `jitted`: JAX's own program; `given`: how it takes its arguments; `cases`: the
    traces, by kinds of arguments, the most recently used last; `made`: every plan by its number;
    `written`: the user's function.
    """

    def __init__(
        self, fun: Function, options: Options, over_hosts: bool, written: Function, checks: bool
    ) -> None:
        self.jitted: Jitted = jax.jit(fun, **options)
        self.given = Arguments(fun, options)
        self.cases: OrderedDict[Key, Case] = OrderedDict()
        self.made: OrderedDict[int, Plan] = OrderedDict()
        self.written = written
        self._fun, self._options, self._is_over_hosts = fun, options, over_hosts
        self._checks = checks
        self._count = 0  # of plans
        # For threads that look for a plan, and would each make the same. No user code runs under
        # the lock.
        self._lock = threading.RLock()

    @property
    def name(self) -> str | Function:
        return getattr(self._fun, "__name__", self._fun)

    def clear(self) -> None:
        self.jitted.clear_cache()
        self.cases.clear()
        self.made.clear()

    # -- cases -------------------------------------------------------------------------------------

    def case(self, key: Key, leaves: Leaves, args: Args, kwargs: Kwargs) -> tuple[Case, bool]:
        """Return the function traced for these arguments, and true if it was traced now.

        **Raises:** the error of JAX if it cannot trace the function; any error of tanjax's own.
        """
        with self._lock:
            case = self.cases.get(key)
            if case is not None:
                self.cases.move_to_end(key)
                return case, False
        traced = self._traced(key, leaves, args, kwargs)
        with self._lock:
            case = self.cases.setdefault(key, traced)
            if len(self.cases) > _CASES:
                self.cases.popitem(last=False)
        return case, case is traced

    def _traced(self, key: Key, leaves: Leaves, args: Args, kwargs: Kwargs) -> Case:
        from tanjax.scale import trace

        from ._cases import Case

        def traced(make: Callable[[], Traced], given: Arguments) -> Program:
            on_leaves = given.on_leaves(args, kwargs)
            return trace(
                make, on_leaves, jax.tree.leaves(given.dynamic(args, kwargs)), self.written
            )

        moved: list[bool] = []
        with planned(), telling(lambda: moved.append(True)):
            try:
                make = lambda: without_memory(self.jitted.trace(*args, **kwargs))
                program = traced(make, self.given)
            except UsesRefs:
                pure = without_refs(self._fun)
                make = lambda: jax.jit(pure, **self._options).trace(*args, **kwargs)
                program = traced(make, Arguments(pure, self._options))
        case = Case(*program, key, leaves)
        case.moves = bool(moved)
        return case

    # -- looks -------------------------------------------------------------------------------------

    def find(self, case: Case, leaves: Leaves) -> Found:
        """Run the program on these numbers, and find or make a plan that is right for them."""
        from tanjax.scale import seen_right

        from ._cases import Entry

        with self._lock:
            state = case.state
            for entry in {e.number: e for e in reversed(state.entries)}.values():
                plan = entry.plan
                if plan.is_estimate or plan.alarms or (state.is_rewritten and plan.identity):
                    continue
                if (found := seen_right(plan, leaves)) and not _beyond(case, found):
                    plan = found._replace(looks=self.made.get(entry.number, plan).looks + 1)
                    entry = Entry(plan, entry.number, entry.program)
                    return Found(self.drawn(case, entry, leaves))
            plan = self.plan(case, leaves)
            same = next((e for e in state.entries if _is_same_program(e.plan, plan)), None)
            if same is None:
                entry = self.entry(case, plan)
            else:
                plan = plan._replace(looks=self.made.get(same.number, plan).looks + 1)
                entry = Entry(plan, same.number, same.program)
            return Found(self.drawn(case, entry, leaves), same is None, plan.alarms)

    def plan(self, case: Case, leaves: Leaves, **how: Any) -> Plan:
        """Make a new plan for these numbers."""
        from tanjax.scale import agreed, plan as plan_for

        how |= {"graph": case.graph, "notes": case.notes, "hide": case.state.is_rewritten}
        ask = functools.partial(plan_for, case.closed, leaves, case.free, **how)
        found = agreed(ask, leaves) if self._is_over_hosts else ask()
        return found._replace(alarms=(*found.alarms, *_beyond(case, found)))

    def entry(self, case: Case, plan: Plan) -> Entry:
        """Give a plan its program and a number."""
        from ._cases import Entry

        with self._lock:
            self._count += 1
            entry = Entry(plan, self._count, self._program(case, plan))
            self._note(entry)
            return entry

    def _note(self, entry: Entry) -> None:
        """Keep a plan with its newest grade, for `.plans`."""
        self.made[entry.number] = entry.plan._replace(grade=entry.grade)
        if len(self.made) > _CASES:
            self.made.popitem(last=False)

    def instead(self, entry: Entry, plan: Plan) -> Entry:
        """Return JAX's own program with its plan, under the number of another entry."""
        from ._cases import Entry

        new = Entry(plan, entry.number, self.jitted)
        self._note(new)
        return new

    def without_windows(self, case: Case, entry: Entry) -> Entry:
        """Replace an entry by one without windows, so that later calls are looks."""
        bare = entry.unwatched()
        self._note(bare)
        return case.put(bare, entry)

    def drawn(
        self, case: Case, entry: Entry, leaves: Leaves, instead_of: Entry | None = None
    ) -> Entry:
        """Draw windows around these numbers, and put the entry first."""
        entry = self.with_windows(case, entry, leaves)
        if not self._checks and entry.grade != "proved":
            entry = self.unchecked(entry, leaves)
        self._note(entry)
        return case.put(entry, instead_of)

    @staticmethod
    def unchecked(entry: Entry, leaves: Leaves) -> Entry:
        """Return the entry without flags; without windows, allow `_NEAR` bits around `leaves`."""
        from tanjax.scale.numbers import Window

        from ._watch import Watch, magnitudes_of

        watch = entry.watch
        if watch is None:
            seen = [m and Window(m.low - _NEAR, m.high + _NEAR) for m in magnitudes_of(leaves)]
            watch = Watch(seen, leaves)
        return entry.unwatched()._replace(watch=watch, is_unchecked=True)

    def measured(
        self, case: Case, entry: Entry, args: Args, kwargs: Kwargs, leaves: Leaves
    ) -> Entry:
        """Replace windows around estimates by windows around the measured values of the program.

        **Cost:** a compilation, and a run.
        """
        from tanjax.scale import extremes, magnitudes_in

        plan = entry.plan
        asked = frozenset(v.index for v in plan.graph.values if v.is_floating)
        if len(asked) > _MEASURED:
            return entry

        def make() -> Function:
            run, finish = extremes(plan.graph, plan.exponents, asked), self._finish(plan, case)
            given = self.given

            def ends(*args: PyTree, **kwargs: PyTree) -> tuple[jax.Array, PyTree]:
                found, results = run(jax.tree.leaves(given.dynamic(args, kwargs)))
                return found, finish(results)

            options = given.shifted(0, donates=False)
            unfused = _compat.UNFUSED | (options.get("compiler_options") or {})
            return jax.jit(ends, **options | {"compiler_options": unfused})

        found, _ = case.program(("extremes", plan.exponents, plan.method), make)(*args, **kwargs)
        magnitudes = magnitudes_in(plan.graph, plan.exponents, found)
        pairs = zip(magnitudes, plan.magnitudes, strict=True)
        plan = plan._replace(
            magnitudes=[new if new and new.high < np.inf else old for new, old in pairs]
        )
        return self.drawn(case, entry.unwatched()._replace(plan=plan), leaves, entry)

    def with_windows(self, case: Case, entry: Entry, leaves: Leaves) -> Entry:
        """Return the entry with windows around these numbers, if there are any."""
        from tanjax.scale import find, limits_of

        from ._watch import Watch, magnitudes_of

        plan = entry.plan
        if plan.alarms:  # no window tells whether the same entries are lost again
            return entry
        seen = magnitudes_of(leaves)
        free = [f or b for f, b in zip(plan.free_outputs, case.bound, strict=True)]
        windows = find(plan.graph, plan.exponents, seen, plan.magnitudes, free_outputs=free)
        if windows is None:
            return entry
        # The program with a flag may have to be run twice, and only this process reads the flag.
        if not windows.are_proved and (plan.has_effects or self._is_over_hosts):
            return entry
        watch = Watch(windows.arguments, leaves)
        if not watch.takes(leaves):  # infinities or nan are among them
            return entry
        if windows.are_proved:
            return entry._replace(watch=watch, windows=windows)
        return entry._replace(
            watch=watch,
            windows=windows,
            flagged=self._flagged(case, plan, windows, donates=True),
            limits=jnp.asarray(limits_of(windows, plan.exponents)),
        )

    # -- programs ----------------------------------------------------------------------------------

    def _program(self, case: Case, plan: Plan) -> Function:
        """Return the program of a plan: JAX's own, or the replay of its graph at its exponents."""
        if plan.identity:
            return self.jitted
        from tanjax.scale import replay

        def make() -> Function:
            run, finish = replay(plan.graph, plan.exponents), self._finish(plan, case)
            given = self.given

            @functools.wraps(self._fun)
            def replayed(*args: PyTree, **kwargs: PyTree) -> PyTree:
                return finish(run(jax.tree.leaves(given.dynamic(args, kwargs))))

            return jax.jit(replayed, **self._options)

        return case.program((plan.exponents, plan.method), make)

    def without_donation(self, case: Case, entry: Entry) -> Function:
        """Return the program with a flag that keeps its arguments: it may have to run again."""
        if not self.given.donates:
            return entry.flagged  # type: ignore[return-value]
        return self._flagged(case, entry.plan, entry.windows, donates=False)

    def _flagged(self, case: Case, plan: Plan, windows: Any, *, donates: bool) -> Function:
        """Return the program `(limits, earlier flag, *args) -> flag, results`."""
        from tanjax.scale import flagged

        inner = [(i, tuple(x is None for x in w)) for i, w in sorted(windows.inner.items())]

        def make() -> Function:
            run, finish = flagged(plan.graph, plan.exponents, windows), self._finish(plan, case)
            given = self.given

            def with_flag(
                limits: jax.Array, before: jax.Array, *args: PyTree, **kwargs: PyTree
            ) -> tuple[jax.Array, PyTree]:
                flag, results = run(limits, jax.tree.leaves(given.dynamic(args, kwargs)))
                return before | flag, finish(results)

            with_flag.__name__ = str(self.name)
            return jax.jit(with_flag, **given.shifted(2, donates=donates))

        key = donates, plan.exponents, plan.method, tuple(inner), windows.told, windows.hidden
        return case.program(key, make)

    def _finish(self, plan: Plan, case: Case) -> Function:
        """Return the function that turns the results of a replay into the user's results."""
        exponents, out = plan.output_exponents, jax.tree.structure(case.out)
        weak = [getattr(aval, "weak_type", False) for aval in case.closed.out_avals]

        def finish(results: Leaves) -> PyTree:
            pairs = zip(results, weak, strict=True)
            typed = [_compat.to_weak_type(x) if w else x for x, w in pairs]
            return relabelled(jax.tree.unflatten(out, typed), exponents)

        return finish


def _beyond(case: Case, plan: Plan) -> tuple[str, ...]:
    """Return an alarm if a quantity that cannot carry an exponent overflows or underflows."""
    for use, is_bound in zip(plan.graph.outputs, case.bound, strict=True):
        m, span = plan.magnitudes[use.value.index], range_of(use.value.aval.dtype)
        if not (is_bound and span and m) or m.is_zero or not m.exact or m.high == np.inf:
            continue
        if not span.lowest <= m.high < span.highest:
            return (BEYOND,)
    return ()


def _is_same_program(a: Plan, b: Plan) -> bool:
    if a.identity or b.identity:
        return a.identity and b.identity
    return a.method == b.method and a.exponents == b.exponents


def is_worse(planned: PyTree, plain: PyTree) -> bool:
    """True if an entry is finite in plain JAX, but not in the planned results."""
    pairs = zip(*map(jax.tree.leaves, (planned, plain)), strict=True)
    known = [(x, y) for x, y in pairs if jnp.issubdtype(y.dtype, jnp.inexact)]
    return any(bool(jnp.any(jnp.isfinite(y) & ~jnp.isfinite(x))) for x, y in known)


said_of_powers = threading.Event()  # set by the one warning of a process


def say_powers(name: str | Function, out: PyTree, exponents: list[int]) -> None:
    """Warn, once in a process, that results have a power of two in their label."""
    if said_of_powers.is_set() or not any(exponents):
        return
    said_of_powers.set()
    paths, _ = jax.tree_util.tree_flatten_with_path(unpack(out))
    found = zip(paths, exponents, strict=True)
    where = [f"results{jax.tree_util.keystr(p)}: {x.dtype} · 2^{e}" for (p, x), e in found if e]
    text = message(
        f"tj.jit of {name}: quantities that do not fit in their dtype carry a power of two in "
        "their label (said once).",
        where[0].replace(".stored:", ":") + (f", and {len(where) - 1} more" if where[1:] else ""),
        "why: `q.to(...)`, operations and bridges count it. Code that reads leaves does not "
        "(`optax.global_norm`, files of equinox and orbax), and to plain JAX a label with a power "
        "is another structure (`jax.lax.scan`).",
        hint="a unit near the numbers, a wider dtype, or do it inside of `tj.jit`, where no label "
        "has a power.",
    )
    warnings.warn(text, ScaleWarning, stacklevel=outside())


def failed(name: str | Function, error: Exception) -> str:
    """The message for a program that could not be planned."""
    return message(
        f"tj.jit: {name} could not be planned, and runs as with jax.jit.",
        f"{type(error).__name__}: {error}",
        hint="numbers may over- or underflow; please report this, or pass `scale=False`.",
    )
