"""Plans of one function, and the programs that they run.

Two plans with the same exponents are one program, which is compiled once; the plan that does
nothing is JAX's own program. A case is the function traced for arguments of one kind; an entry is
one of its plans (`_entries.py`).

Sharp edge: nothing is said here. What may be wrong in the results of plans just made is kept in
`alarms`, for the call that asked.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Traced
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._errors import message
from tanjax._jaxpr_types import ClosedJaxpr
from tanjax._typing import AnyArray, Function
from tanjax.arrays import planned

from ._arguments import Args, Arguments, Jitted, Kwargs, Leaves, Options, signature
from ._memory import UsesRefs, without_memory, without_refs
from ._packing import relabelled

if TYPE_CHECKING:
    from tanjax.scale import Plan

    from ._entries import Case, Entry

_PROGRAMS = 32  # compiled ones; the oldest goes
_KEPT = 256  # cases, and plans in `.plans`: bounds memory, 0.5 MB apiece for 500 equations
_SMALL = 1 << 16  # bytes of arguments that may be kept alive in order to recognise them
_FEW = 1 << 15  # numbers of results
_RAISED = 4  # flags in a row, after which a case does without
_WORTH = 0.2  # seconds of looks that are worth a compilation
_FAR = 0.1  # relative

# What a program is traced for: the form of its arguments first, JAX's settings last.
Key: TypeAlias = tuple[Hashable, ...]
# A traced program, the shapes of its results, its lost constants, what is to be said of them.
Program: TypeAlias = tuple[Any, PyTree, dict[int, AnyArray], tuple[str, ...]]
# From a plan and its case to a program, None if there is none.
Make: TypeAlias = Callable[..., Function | None]

ABSTRACT = (
    "called under a trace of JAX (`jax.grad`, `jax.vmap`, `jax.jit`, a loop), where no number is "
    "known, it is not planned: its numbers may leave their range unseen. Write "
    "`tj.jit(jax.grad(f))`, or pass `scale=False` if that is meant."
)
SHORT = (
    "results are not finite, or zero, where exact arithmetic gives numbers that fit: what is left "
    "after a cancellation is rounding, and leaves its range."
)

DIFFER = (
    "a loop was sampled or an array bounded, numbers seem to leave their range, and with exponents "
    "the results are others: those of plain JAX are kept, and may be wrong."
)
UNSEEN = (
    "its results were handed back to it {} times without a look, as ever before, and have left "
    "their range meanwhile: the results of these calls may be wrong."
)


class Found(NamedTuple):
    """The plan for the numbers of a call, as it was found: other threads may change the entry.

    **Fields:** `is_new`: whether the plan was made now; `grade` of the entry; `failure`: the
    warning if the planner failed on this call, without an `entry`.
    """

    case: Any
    entry: Any = None
    plan: Any = None
    program: Any = None
    grade: str = ""
    is_new: bool = False
    failure: str = ""


NOBODYS = Found(None)


class Making:
    """Makes the cases and the plans of a function.

    **Fields:** `jitted`: JAX's own program; `given`: how it takes its arguments; `cases`: what
    was traced, by kinds of arguments; `made`: an entry for every plan, oldest first; `alarms`: of
    plans just made; `written`: the user's function; `lock`: of threads that look for a plan, and
    would each make the same.
    """

    def __init__(
        self, fun: Function, options: Options, over_hosts: bool, written: Function
    ) -> None:
        self.jitted: Jitted = jax.jit(fun, **options)
        self.given = Arguments(fun, options)
        self.made: deque[Entry] = deque(maxlen=_KEPT)
        self.alarms: list[str] = []
        self.lock = threading.RLock()
        self._fun, self._options, self._is_over_hosts = fun, options, over_hosts
        self.written = written
        self.cases: dict[Key, Case] = {}
        self._programs: dict[Hashable, tuple[ClosedJaxpr, Function | None]] = {}

    @property
    def name(self) -> str | Function:
        return getattr(self._fun, "__name__", self._fun)

    def clear(self) -> None:
        self.jitted.clear_cache()
        self.cases.clear()
        self._programs.clear()
        self.made.clear()

    def find(self, key: Key, leaves: Leaves, args: Args, kwargs: Kwargs) -> Found:
        """The plan for such numbers, which other threads wait for.

        **Arguments:** `key`: what a program is traced for, a tree first.
        """
        with self.lock:
            newest, case = self._newest(), self.cases.pop(key, None)
            is_known = case is not None
            if case is None:
                traced = self.case(leaves, key, args, kwargs)
                if isinstance(traced, str):
                    return Found(None, failure=traced)
                case = traced
            self.cases[key] = case  # behind those that were asked for before
            if len(self.cases) > _KEPT:
                del self.cases[next(iter(self.cases))]
            start = time.perf_counter()
            try:
                entry = case.find(leaves, functools.partial(self.plan, case))
            except Exception as error:
                return Found(case, failure=failed(self.name, error))
            case.looked += is_known * (time.perf_counter() - start)
            is_new = self._newest() is not newest
            return Found(case, entry, entry.plan, entry.program, entry.grade, is_new)

    def _newest(self) -> Entry | None:
        return self.made[-1] if self.made else None

    def hidden(self, case: Case, leaves: Leaves, short: Entry) -> tuple[Entry, Plan]:
        """A plan that hides products from XLA, right for these numbers, and its entry first.

        **Arguments:** `short`: the entry of which something was missing, and which is no answer.
        """
        with self.lock:
            case.is_rewritten = True
            known = [e for e in case.entries if e.plan.method == "guarded" and e is not short]
            found = next((e for e in known if e.is_right(leaves)), None)
            entry = found or self.plan(case, leaves).expecting(leaves)
            return entry, entry.plan

    def case(self, leaves: Leaves, key: Key, args: Args, kwargs: Kwargs) -> Case | str:
        """The function, traced for such arguments; a warning if it could not be planned."""
        from tanjax.scale.graph import trace

        from ._entries import Case
        from ._returned import Returned

        def traced(make: Callable[[], Traced], given: Arguments) -> Program:
            on_leaves = given.on_leaves(args, kwargs)
            leaves = jax.tree.leaves(given.dynamic(args, kwargs))
            return trace(make, on_leaves, leaves, self.written)

        with planned():
            try:
                try:
                    make = lambda: without_memory(self.jitted.trace(*args, **kwargs))
                    closed, out, restored, notes = traced(make, self.given)
                except UsesRefs:
                    pure = without_refs(self._fun)
                    make = lambda: jax.jit(pure, **self._options).trace(*args, **kwargs)
                    closed, out, restored, notes = traced(make, Arguments(pure, self._options))
            except Exception as error:  # whose fault it is: what JAX cannot trace raises again
                self.jitted.trace(*args, **kwargs)
                return failed(self.name, error)
        self.alarms += notes  # a constant that is lost: JAX says nothing, and the result is wrong
        case = Case(self.name, closed, out, restored, notes, self.jitted, self.made)
        numbers = sum(getattr(x, "size", _FEW) for x in closed.out_avals)
        case.returned = Returned(keeps=numbers <= _FEW)
        case.treedef, case.context = key[0], key[-1]
        case.avals = tuple(map(signature, leaves))
        case.keeps = sum(getattr(x, "nbytes", 8) for x in leaves) <= _SMALL
        case.is_pure = not closed.effects and not self.given.donates
        return case

    def plan(self, case: Case, leaves: Leaves, **how: Any) -> Entry:
        """A new plan for these numbers, that expects nothing of others."""
        from tanjax.scale import agreed, plan as plan_for

        from ._entries import Entry

        how |= {"graph": case.graph, "notes": case.notes, "hide": case.is_rewritten}
        ask = functools.partial(plan_for, case.closed, leaves, case.free, **how)
        plan = agreed(ask, leaves) if self._is_over_hosts else ask()
        program = self.jitted
        if not plan.identity:
            program = self._program(case, (plan.exponents, plan.method), self._replayed, plan)
        self.alarms += plan.alarms
        entry = Entry(plan, program)
        self.made.append(entry)
        return entry

    def _program(self, case: Case, key: tuple[Hashable, ...], make: Make, plan: Plan) -> Any:
        """A program that is compiled once for all plans with these exponents."""
        key = id(case.closed), *key
        if key not in self._programs:
            if len(self._programs) >= _PROGRAMS:
                del self._programs[next(iter(self._programs))]
            # Keeps the jaxpr alive, whose id is part of the key.
            self._programs[key] = case.closed, make(plan, case)
        return self._programs[key][1]

    def _replayed(self, plan: Plan, case: Case) -> Function:
        from tanjax.scale import replay

        run, finish = replay(plan.graph, plan.exponents), self._finish(plan, case)

        @functools.wraps(self._fun)
        def replayed(*args: PyTree, **kwargs: PyTree) -> PyTree:
            return finish(run(jax.tree.leaves(self.given.dynamic(args, kwargs))))

        return jax.jit(replayed, **self._options)

    def _finish(self, plan: Plan, case: Case) -> Function:
        """From the results of a replay to those of the function."""
        exponents, out = plan.output_exponents, jax.tree.structure(case.out)
        weak = [getattr(aval, "weak_type", False) for aval in case.closed.out_avals]

        def finish(results: Leaves) -> PyTree:
            pairs = zip(results, weak, strict=True)
            typed = [_compat.to_weak_type(x) if w else x for x, w in pairs]
            return relabelled(jax.tree.unflatten(out, typed), exponents)

        return finish

    def ask_plain(self, found: Found, args: Args, kwargs: Kwargs) -> Found:
        """Plain JAX instead of a plan that loses entries which plain JAX has right."""
        (again, named), (more, others) = (self.given.kept(args, kwargs) for _ in range(2))
        planned = functools.cache(lambda: jax.tree.leaves(found.program(*more, **others)))
        kept = found.plan.kept_plain(jax.tree.leaves(self.jitted(*again, **named)), planned)
        if kept is None:
            found.entry.plan = found.plan._replace(doubts=())  # float64 arrays of each result
            return found
        said = [a for a in self.alarms if a not in found.plan.alarms]
        self.alarms = [*said, *kept.alarms]
        found.entry.plan, found.entry.program = kept, self.jitted
        return found._replace(plan=kept, program=self.jitted)

    def flag(self, case: Case, entry: Entry) -> None:
        """Let the program of an entry tell itself whether its numbers have left their range.

        Where no proof covers the calls, once the runs on their numbers have taken as long as
        another compilation.
        """
        plan, can = entry.plan, case.is_pure and not (self._options or self._is_over_hosts)
        can &= entry.may_begin
        is_trusted = plan.is_estimate or (entry.trusted and entry.is_dear)
        if not can or is_trusted or entry.proved or plan.alarms or entry.flagged is not None:
            return
        if case.looked >= _WORTH and case.raised < _RAISED:
            entry.flagged = self._program(case, (plan.exponents, "flagged"), self._flagged, plan)

    def _flagged(self, plan: Plan, case: Case) -> Function | None:
        """A program that returns a flag and the results; None if a flag would not tell.

        JAX's own program keeps its bits beside another run of the same that raises the flag.
        """
        from tanjax.scale import differ, flagged

        run, finish = flagged(plan.graph, plan.exponents), self._finish(plan, case)
        if run is None:
            return None

        @functools.wraps(self._fun)
        def with_flag(*args: PyTree, **kwargs: PyTree) -> tuple[jax.Array, PyTree]:
            leaves = jax.tree.leaves((args, kwargs))
            if not plan.identity:
                raised, results = run(leaves)
                return raised, finish(results)
            raised, hidden = run(jax.lax.optimization_barrier(leaves))
            out = self.jitted(*args, **kwargs)
            return raised | differ(jax.tree.leaves(out), hidden), out

        return jax.jit(with_flag)


def doubts_of_plain(entry: Entry, results: PyTree, planned: PyTree) -> tuple[str, ...]:
    """What is said where an estimated plan has results that are not nearly those of plain JAX.

    A long computation may amplify rounding, so that only what is a tenth off counts; and a plan
    that leaves the range itself is no witness.
    """
    trios = zip(*map(jax.tree.leaves, (results, planned)), entry.plan.output_exponents, strict=True)
    differ = False
    for x, y, exponent in trios:
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            continue
        wide = np.result_type(np.float64, 1j if x.dtype.kind == "c" else 1.0)
        a, b = np.asarray(x).astype(wide), np.asarray(y).astype(wide) * np.exp2(exponent)
        if not np.isfinite(b).all() or ((b == 0) & (a != 0)).any():
            return ()
        sizes = np.maximum(np.abs(a), np.abs(b))
        room = _FAR * (sizes + _FAR**2 * np.max(sizes, initial=0.0))
        differ = differ or bool((np.abs(a - b) > room).any())
    return (DIFFER,) * differ


def is_worse(planned: PyTree, plain: PyTree) -> bool:
    """Whether an entry that is finite in plain JAX is not."""
    pairs = zip(*map(jax.tree.leaves, (planned, plain)), strict=True)
    known = [(x, y) for x, y in pairs if jnp.issubdtype(y.dtype, jnp.inexact)]
    return any(bool(jnp.any(jnp.isfinite(y) & ~jnp.isfinite(x))) for x, y in known)


def failed(name: str | Function, error: Exception) -> str:
    """What is said of a program that could not be planned."""
    return message(
        f"tj.jit: {name} could not be planned, and runs as with jax.jit.",
        f"{type(error).__name__}: {error}",
        hint="numbers may over- or underflow; please report this, or pass `scale=False`.",
    )
