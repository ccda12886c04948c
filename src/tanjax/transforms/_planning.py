"""Calls of a compiled function, each with the exponents that its numbers need.

A program is planned when its arguments are first seen, and again when their magnitudes leave the
windows of the plan. What must be cheap is every other call: arrays are immutable, so a call with
the very arrays of the last one needs no look at them (0.1 us each); others are looked at on the
host.

Sharp edges. Under a trace (`jax.grad`, `jax.vmap`, an outer `jit`) no number is known and the
program is JAX's own: write `tj.jit(tj.grad(f))`, not `tj.grad(tj.jit(f))`. Arrays that live on
other hosts cannot be looked at either.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple

import jax
import numpy as np

from tanjax._errors import ScaleWarning, message
from tanjax.arrays import Unitful, planned

from ._arguments import all_finite, copied, is_finite, signature, static_arguments
from ._packing import free_leaves, relabelled

_SMALL = 1 << 16  # bytes of arguments that may be kept alive in order to recognise them
_PLANS = 16  # of one program; the oldest goes
_TOGETHER = 16  # floating arguments from which on they are looked at by a program of their own
_NUMBERS = (float, int, complex, bool, str, type(None))
_arrays: set[type] = set()  # the types of JAX's arrays that hold numbers, as they are met


class _Planned(NamedTuple):
    """A program, the arrays for which it was made, and the magnitudes for which it is right.

    **Fields:** `treedef` and `avals` of the arguments; `watched`: place and window of those that
    have one; `program`; `plan`; `keeps`: whether the arguments are small enough to be kept alive;
    `together`: looks at many of them at once; `is_pure`: a run leaves nothing but results.
    """

    treedef: Any
    avals: tuple[Any, ...]
    watched: tuple[tuple[int, Any], ...]
    program: Callable[..., Any]
    plan: Any
    keeps: bool
    together: Any = None
    is_pure: bool = False

    def takes(self, leaves: Sequence[Any], inside: Callable[[Any, Any], bool]) -> bool:
        """Whether the magnitudes of these arguments are in the windows."""
        if self.together is not None:
            return bool(self.together.inside([leaves[place] for place, _ in self.watched]))
        return all([inside(leaves[place], window) for place, window in self.watched])


class Guard:
    """A function of `jax.jit` that is planned: called, it runs the program that its numbers need.

    **Arguments:** `fun` and the `options` of `jax.jit`; `flat`: all arguments are arrays.
    **Cost:** of a call with the arguments of the last one 0.5 us more than `jax.jit`; with others
    about 3 us for every floating argument, which is looked at.
    """

    def __init__(self, fun: Callable[..., Any], options: dict[str, Any], *, flat: bool = False):
        self.jitted: Any = jax.jit(fun, **options)
        self.plans: list[Any] = []  # every plan made, oldest first
        self._fun, self._options, self._flat = fun, options, flat
        self._static = static_arguments(fun, options)
        self._known: dict[Any, list[_Planned]] = {}
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._calls = 0  # of plans that are estimates
        self._recent: _Planned | None = None
        self._inside: Any = None
        # The arguments of the last call, and the program that was right for them.
        self.last: tuple[Any, ...] | None = None
        self._last_weak: tuple[Any, ...] | None = None
        self.program: Any = None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        last = self.last
        if last is None and self._last_weak is not None:
            last = tuple([r() for r in self._last_weak])
        if (
            last is not None
            and not kwargs
            and len(args) == len(last)
            # One argument is compared at once: 0.2 us less than by `map`.
            and (args[0] is last[0] if len(args) == 1 else all(map(is_, args, last)))
        ):
            return self.program(*args)
        if self._flat:
            leaves: Sequence[Any] = args
            treedef: Any = len(args)
        else:
            leaves, treedef = jax.tree.flatten(self._dynamic(args, kwargs))
        recent = self._recent
        if recent is not None and treedef == recent.treedef:
            # The avals of JAX's arrays are interned, so that `is` is nearly always enough.
            known = all(
                [type(x) in _arrays and x.aval is a for x, a in zip(leaves, recent.avals)]  # noqa: B905
            )
            estimate = recent.plan.is_estimate  # looked at on calls 1, 2, 4, …, see `_checked`
            if known and not (estimate and not self._calls & (self._calls + 1)):
                # Started before its arguments are looked at, which waits for them: 40 us less in a
                # loop. Safe because a result that does not count is dropped without a trace.
                try:
                    out = recent.program(*args, **kwargs) if recent.is_pure else None
                except FloatingPointError:  # `jax_debug_nans`, of a result that may not count
                    return self._call(leaves, treedef, args, kwargs)
                if recent.takes(leaves, self._inside):
                    self._calls += estimate
                    self._remember(recent, args, kwargs)
                    return out if recent.is_pure else recent.program(*args, **kwargs)
        return self._call(leaves, treedef, args, kwargs)

    def clear_cache(self) -> None:
        self.jitted.clear_cache()
        self._known.clear()
        self._programs.clear()
        self.plans.clear()
        self.last = self._last_weak = self._recent = None

    def _dynamic(self, args: Any, kwargs: Any) -> Any:
        if self._static is None:
            return args, kwargs
        places, names = self._static
        static = {p % len(args) for p in places if -len(args) <= p < len(args)}
        kept = tuple(x for i, x in enumerate(args) if i not in static)
        return kept, {k: v for k, v in kwargs.items() if k not in names}

    def _statics(self, args: Any, kwargs: Any) -> Any:
        if self._static is None:
            return ()
        places, names = self._static
        given: list[Any] = [(p, args[p]) for p in places if -len(args) <= p < len(args)]
        given += [(k, kwargs[k]) for k in names if k in kwargs]
        return tuple((place, x, type(x)) for place, x in given)  # to JAX 1 is not 1.0 either

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """Ahead-of-time compilation: of the planned program, if the arguments are numbers."""
        leaves, treedef = jax.tree.flatten(self._dynamic(args, kwargs))
        found = self._found(leaves, treedef, args, kwargs)
        program: Any = found[0].program if found else self.jitted
        return program.lower(*args, **kwargs)

    def _call(self, leaves: Sequence[Any], treedef: Any, args: Any, kwargs: Any) -> Any:
        """A call for which the plan of the last one may not be right."""
        before = len(self.plans)
        found = self._found(leaves, treedef, args, kwargs)
        if found is None:
            return self.jitted(*args, **kwargs)
        plan = found[0].plan
        if len(self.plans) > before and plan and plan.expects_finite and not plan.has_effects:
            return self._first(found, leaves, args, kwargs)
        if plan and plan.is_estimate and not plan.has_effects:
            return self._checked(found, leaves, args, kwargs)
        self._remember(found[0], args, kwargs)
        return found[0].program(*args, **kwargs)

    def _found(
        self, leaves: Sequence[Any], treedef: Any, args: Any, kwargs: Any
    ) -> list[_Planned] | None:
        """The plans for such arguments, that for these first; None if they cannot be looked at."""
        if not all(map(_can_be_looked_at, leaves)):
            return None
        from tanjax.scale._window import inside

        self._inside = inside
        x64 = _wide()  # Python numbers have another dtype then
        key = (treedef, self._statics(args, kwargs), tuple(map(signature, leaves)), x64)
        try:
            found = self._known.setdefault(key, [])
        except TypeError:  # a static argument that cannot be hashed: JAX says so
            return None
        planned = next((p for p in found if p.takes(leaves, inside)), None)
        if planned is None:
            planned = self._plan(leaves, treedef, args, kwargs)
            found.insert(0, planned)
            del found[_PLANS:]
        elif planned is not found[0]:
            found.remove(planned)
            found.insert(0, planned)
        return found

    def _remember(self, planned: _Planned, args: Any, kwargs: Any) -> None:
        """Keep what the next call is compared with; only immutable arguments can be recognised."""
        if planned.plan is None:
            return
        if self._static is None:
            self._recent = planned
        self.program, self.last, self._last_weak = planned.program, None, None
        if kwargs or not all(map(_is_immutable, args)):
            return
        if any([type(x) in (float, complex) for x in args]):
            self.program = self._in_this_precision(planned.program)
        if planned.keeps:
            self.last = args
        elif all([type(x) in _arrays for x in args]):
            self._last_weak = tuple(map(weakref.ref, args))

    def _in_this_precision(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """A program for Python numbers, which have another dtype once x64 is switched."""
        x64 = _wide()
        again = lambda *args: self._call(*jax.tree.flatten(self._dynamic(args, {})), args, {})
        return lambda *args: (program if _wide() is x64 else again)(*args)

    # -- making a plan ------------------------------------------------------------------------

    def _plan(
        self, leaves: Sequence[Any], treedef: Any, args: Any, kwargs: Any, **how: Any
    ) -> _Planned:
        from tanjax.scale import _literals, _measure, _plan

        with planned():
            closed, out, restored, notes = _literals.trace(
                lambda: self.jitted.trace(*args, **kwargs),
                self._leaves_function(args, kwargs),
                leaves,
            )
        for note in notes:  # a constant that is lost: JAX says nothing, and the result is wrong
            warnings.warn(f"tj.jit of {_name(self._fun)}: {note}", ScaleWarning, stacklevel=5)
        try:
            plan = _plan.plan(
                closed, leaves, free_leaves(out), restored=restored, notes=notes, **how
            )
        except Exception as error:  # whatever JAX can run is run, and our fault is no secret
            warnings.warn(_failed(self._fun, error), ScaleWarning, stacklevel=4)
            return _Planned(treedef, tuple(map(signature, leaves)), (), self.jitted, None, False)
        self.plans.append(plan)
        program = self.jitted
        if not plan.identity:
            key = (id(closed), plan.exponents, plan.method)
            if key not in self._programs:
                if len(self._programs) >= 2 * _PLANS:  # the oldest goes
                    del self._programs[next(iter(self._programs))]
                self._programs[key] = self._replayed(plan, jax.tree.structure(out), closed)
            program = self._programs[key]
        watched = tuple((i, w) for i, w in enumerate(plan.windows) if w is not None)
        keeps = sum(getattr(x, "nbytes", 8) for x in leaves) <= _SMALL
        together = None
        if len(watched) >= _TOGETHER and all(_measure.Together.can(leaves[i]) for i, _ in watched):
            together = _measure.Together([window for _, window in watched])
        avals = tuple(map(signature, leaves))
        is_pure = not plan.has_effects and not self._donates()
        return _Planned(treedef, avals, watched, program, plan, keeps, together, is_pure)

    def _replayed(self, plan: Any, out: Any, closed: Any) -> Callable[..., Any]:
        from tanjax.scale import replay

        run, exponents = replay(plan.graph), plan.output_exponents

        @functools.wraps(self._fun)
        def replayed(*args: Any, **kwargs: Any) -> Any:
            leaves = args if self._flat else jax.tree.leaves(self._dynamic(args, kwargs))
            results = jax.tree.unflatten(out, run(leaves))
            return relabelled(results, exponents)

        replayed.closed = closed  # type: ignore[attr-defined]  # its id is part of a key
        return jax.jit(replayed, **self._options)

    def _leaves_function(self, args: Any, kwargs: Any) -> Callable[..., Any]:
        """The function of the flat dynamic arguments, as it is traced in float64."""
        dynamic = self._dynamic(args, kwargs)
        places = self._static[0] if self._static else ()
        treedef = jax.tree.structure(dynamic)
        positions = {p % len(args) for p in places if -len(args) <= p < len(args)}

        def on_leaves(*leaves: Any) -> Any:
            given, named = jax.tree.unflatten(treedef, leaves)
            rest = iter(given)
            whole = [args[i] if i in positions else next(rest) for i in range(len(args))]
            return self._fun(*whole, **{**kwargs, **named})

        return on_leaves

    def _kept(self, args: Any, kwargs: Any) -> Any:
        """Arguments for another run, also where the first one takes them away."""
        return jax.tree.map(copied, (args, kwargs)) if self._donates() else (args, kwargs)

    def _donates(self) -> bool:
        names = ("donate_argnums", "donate_argnames")
        return any(self._options.get(name) is not None for name in names)  # 0 is a place

    def _first(self, found: list[_Planned], leaves: Any, args: Any, kwargs: Any) -> Any:
        """The first results of a plan that knows them to be finite: if not, XLA rewrote them."""
        kept, planned = self._kept(args, kwargs), found[0]
        out = planned.program(*args, **kwargs)
        if not all_finite(out) and all(map(is_finite, leaves)):
            args, kwargs = kept
            leaves = args if self._flat else jax.tree.leaves(self._dynamic(args, kwargs))
            found[0] = planned = self._plan(leaves, planned.treedef, args, kwargs, hide=True)
            out = planned.program(*args, **kwargs)
        self._remember(planned, args, kwargs)
        return out

    def _alarmed(self, found: list[_Planned], leaves: Any, args: Any, kwargs: Any) -> Any:
        """An estimate says that plain JAX loses something: run it, and believe what it gives."""
        kept, finite, planned = self._kept(args, kwargs), all(map(is_finite, leaves)), found[0]
        out = self.jitted(*args, **kwargs)
        if not finite or (all_finite(out) and not planned.plan.is_missed(jax.tree.leaves(out))):
            plan = planned.plan.believed()
            self.plans[-1] = plan
            watched = tuple((i, plan.windows[i]) for i, _ in planned.watched)
            found[0] = planned._replace(
                plan=plan, program=self.jitted, watched=watched, together=None
            )
            return out
        found[0] = planned._replace(plan=planned.plan._replace(is_confirmed=True))
        return found[0].program(*kept[0], **kept[1])

    def _checked(self, found: list[_Planned], leaves: Any, args: Any, kwargs: Any) -> Any:
        """The results of an estimated plan, or of a better one if they are not finite.

        Looked at on calls 1, 2, 4, 8, … of estimated plans, so that the cost vanishes.
        """
        planned = found[0]
        if not (planned.plan.identity or planned.plan.is_confirmed):
            return self._alarmed(found, leaves, args, kwargs)
        self._calls += 1
        if self._calls & (self._calls - 1):
            return planned.program(*args, **kwargs)
        kept = self._kept(args, kwargs)
        finite = all(map(is_finite, leaves))
        out = planned.program(*args, **kwargs)
        if not finite or all_finite(out):
            self._remember(planned, args, kwargs)
            return out
        args, kwargs = kept
        leaves = args if self._flat else jax.tree.leaves(self._dynamic(args, kwargs))
        self._recent = None
        better = self._plan(leaves, planned.treedef, args, kwargs, thorough=True)
        if better.plan is not None:
            better = better._replace(plan=better.plan._replace(is_estimate=False))
        found[0] = better
        return better.program(*args, **kwargs)


def _wide() -> bool:
    return jax.config.jax_enable_x64  # type: ignore[attr-defined,no-any-return]


def _name(fun: Any) -> Any:
    return getattr(fun, "__name__", fun)


def _failed(fun: Any, error: Exception) -> str:
    return message(
        f"tj.jit: {_name(fun)} could not be planned, and runs as with jax.jit.",
        f"{type(error).__name__}: {error}",
        hint="numbers may over- or underflow; please report this, or pass `scale=False`.",
    )


def _is_immutable(x: Any) -> bool:
    kind = type(x.stored) if type(x) is Unitful else type(x)
    return kind in _arrays or kind in _NUMBERS


def _can_be_looked_at(x: Any) -> bool:
    if isinstance(x, jax.Array):
        if isinstance(x, jax.core.Tracer):
            return False
        _arrays.add(type(x))
        return x.is_fully_addressable  # type: ignore[no-any-return]
    return isinstance(x, np.ndarray | np.generic | int | float | complex)
