"""Calls of a compiled function, each with the exponents that its numbers need.

A program is planned when its arguments are first seen, and again when their magnitudes leave the
windows of the plan. What must be cheap is every other call: arrays are immutable, so a call with the
very arrays of the last one needs no look at them (0.1 us each); others are looked at on the host.

Sharp edges. Under a trace (`jax.grad`, `jax.vmap`, an outer `jit`) no number is known and the program
is JAX's own: write `tj.jit(tj.grad(f))`, not `tj.grad(tj.jit(f))`. Arrays that live on other hosts
cannot be looked at either.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple

import jax
import numpy as np

from tanjax.arrays import Unitful, is_structured, quantity

from ._units import is_quantity

_SMALL = 1 << 16  # bytes of arguments that may be kept alive in order to recognise them
_PLANS = 16  # of one program; the oldest goes


class Packed:
    """Results on their way out of JAX, apart from their units.

    JAX puts a quantity together by its constructor, 0.7 us each; one node for all results, whose
    values are labelled by `quantity`, takes 0.2 us each. Nothing else ever sees it.
    """

    __slots__ = ("labels", "values")

    def __init__(self, labels: tuple[Any, Any], values: Any) -> None:
        self.labels, self.values = labels, values


jax.tree_util.register_pytree_node(Packed, lambda x: (x.values, x.labels), Packed)


class _Planned(NamedTuple):
    """A program and the magnitudes of arguments for which it is right."""

    windows: tuple[Any, ...]
    program: Callable[..., Any]
    plan: Any


class Guard:
    """A function of `jax.jit` that is planned: called, it runs the program that its numbers need.

    **Arguments:** `fun` and the `options` of `jax.jit`; `flat`: all arguments are arrays.
    """

    def __init__(self, fun: Callable[..., Any], options: dict[str, Any], *, flat: bool = False):
        self.jitted: Any = jax.jit(fun, **options)
        self.plans: list[Any] = []  # every plan made, oldest first
        self._fun, self._options, self._flat = fun, options, flat
        self._static = _static_arguments(fun, options)
        self._known: dict[Any, list[_Planned]] = {}
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._last: tuple[Any, ...] | None = None
        self._last_weak: tuple[Any, ...] | None = None
        self._program: Any = None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self._flat:
            leaves: Sequence[Any] = args
        else:
            leaves = jax.tree.leaves(self._dynamic(args, kwargs))
        last = self._last
        if last is None and self._last_weak is not None:
            last = tuple([r() for r in self._last_weak])
        if last is not None and len(last) == len(leaves) and all(map(is_, leaves, last)):
            return self._program(*args, **kwargs)
        return self._call(leaves, args, kwargs)

    def clear_cache(self) -> None:
        self.jitted.clear_cache()
        for forgotten in (self._known, self._programs, self.plans):
            forgotten.clear()  # type: ignore[attr-defined]
        self._last = self._last_weak = None

    def _dynamic(self, args: Any, kwargs: Any) -> Any:
        if self._static is None:
            return args, kwargs
        places, names = self._static
        places = {p % len(args) for p in places if -len(args) <= p < len(args)}
        kept = tuple(x for i, x in enumerate(args) if i not in places)
        return kept, {k: v for k, v in kwargs.items() if k not in names}

    def _statics(self, args: Any, kwargs: Any) -> Any:
        if self._static is None:
            return ()
        places, names = self._static
        placed = tuple((p, args[p]) for p in places if -len(args) <= p < len(args))
        return placed, tuple((k, kwargs[k]) for k in names if k in kwargs)

    def _call(self, leaves: Sequence[Any], args: Any, kwargs: Any) -> Any:
        """A call whose arguments were not those of the call before."""
        if not all(map(_can_be_looked_at, leaves)):
            return self.jitted(*args, **kwargs)
        treedef = len(leaves) if self._flat else jax.tree.structure(self._dynamic(args, kwargs))
        key = (treedef, self._statics(args, kwargs), tuple(map(_signature, leaves)))
        found = self._known.setdefault(key, [])
        planned = next((p for p in found if _all_inside(leaves, p.windows)), None)
        if planned is None:
            planned = self._plan(leaves, args, kwargs)
            found.insert(0, planned)
            del found[_PLANS:]
        elif planned is not found[0]:
            found.remove(planned)
            found.insert(0, planned)
        if planned.plan.is_estimate:
            planned = self._checked(planned, found, leaves, args, kwargs)
        out = planned.program(*args, **kwargs)
        self._remember(leaves, planned.program)
        return out

    def _remember(self, leaves: Sequence[Any], program: Any) -> None:
        self._program, self._last, self._last_weak = program, None, None
        if all(isinstance(x, jax.Array | int | float | complex) for x in leaves):
            if sum(getattr(x, "nbytes", 8) for x in leaves) <= _SMALL:
                self._last = tuple(leaves)
            elif all(isinstance(x, jax.Array) for x in leaves):
                self._last_weak = tuple(map(weakref.ref, leaves))

    # -- making a plan ------------------------------------------------------------------------

    def _plan(
        self, leaves: Sequence[Any], args: Any, kwargs: Any, thorough: bool = False
    ) -> _Planned:
        from tanjax.scale import _call, _literals, _plan

        with _literals.Crushed() as crushed:
            traced = self.jitted.trace(*args, **kwargs)
        closed, out = traced.jaxpr, traced.out_info
        restored, notes = _call.restored_constants(
            closed, self._leaves_function(args, kwargs), leaves, crushed.seen
        )
        plan = _plan.plan(
            closed, leaves, free_leaves(out), restored=restored, notes=notes, thorough=thorough
        )
        self.plans.append(plan)
        if plan.identity:
            return _Planned(tuple(plan.windows), self.jitted, plan)
        exponents = tuple((v.exponent, *(u.exponent for u in v.uses)) for v in plan.graph.values)
        key = (id(closed), exponents)
        if key not in self._programs:
            self._programs[key] = self._replayed(plan, jax.tree.structure(out), closed)
        return _Planned(tuple(plan.windows), self._programs[key], plan)

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

    def _checked(
        self, planned: _Planned, found: list[_Planned], leaves: Any, args: Any, kwargs: Any
    ) -> _Planned:
        """An estimated plan, or a better one if its results are not finite.

        On calls 1, 2, 4, 8, … of a plan, so that the cost vanishes.
        """
        plan = planned.plan
        count = self._calls = getattr(self, "_calls", 0) + 1
        if count & (count - 1):
            return planned
        copies = jax.tree.map(lambda x: x.copy() if hasattr(x, "copy") else x, (args, kwargs))
        if not self._options.get("donate_argnums") and not self._options.get("donate_argnames"):
            copies = (args, kwargs)
        out = planned.program(*copies[0], **copies[1])
        if _all_finite(out) or not all(map(_is_finite, leaves)):
            return planned
        better = self._plan(leaves, args, kwargs, thorough=True)
        found[0] = _Planned(better.windows, better.program, plan._replace(is_estimate=False))
        return found[0]


def _static_arguments(
    fun: Callable[..., Any], options: dict[str, Any]
) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
    """Positions and names of static arguments, each found from the other as `jax.jit` does."""
    numbers, names = options.get("static_argnums"), options.get("static_argnames")
    if numbers is None and names is None:
        return None
    places = () if numbers is None else (numbers,) if isinstance(numbers, int) else tuple(numbers)
    called = () if names is None else (names,) if isinstance(names, str) else tuple(names)
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return places, called
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if numbers is None:
        places = tuple(i for i, p in enumerate(positional) if p in called)
    if names is None:
        called = tuple(positional[i] for i in places if -len(positional) <= i < len(positional))
    return places, called


def _can_be_looked_at(x: Any) -> bool:
    if isinstance(x, jax.Array):
        return not isinstance(x, jax.core.Tracer) and x.is_fully_addressable
    return isinstance(x, np.ndarray | np.generic | int | float | complex)


def _signature(x: Any) -> Any:
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval
    return (x.shape, x.dtype) if hasattr(x, "dtype") else type(x)


def _all_inside(leaves: Sequence[Any], windows: Sequence[Any]) -> bool:
    from tanjax.scale._window import inside

    return all(w is None or inside(x, w) for x, w in zip(leaves, windows, strict=True))


def _is_finite(x: Any) -> bool:
    if not hasattr(x, "dtype") or not jax.numpy.issubdtype(x.dtype, jax.numpy.inexact):
        return True
    return bool(jax.numpy.isfinite(x).all())


def _all_finite(out: Any) -> bool:
    return all(map(_is_finite, jax.tree.leaves(out)))


# -- results ----------------------------------------------------------------------------------


def _slots(out: Any) -> tuple[list[Any], list[Any], Any]:
    """Results as a list of dense or structured numbers, their labels, and how to undo it."""
    if type(out) is Packed:
        treedef, labels = out.labels
        given = [labels] if treedef is None else list(labels)
        return list(out.values), given, treedef
    leaves, treedef = jax.tree.flatten(out, is_leaf=is_quantity)
    labels = [x.label if type(x) is Unitful else None for x in leaves]
    return [x.stored if type(x) is Unitful else x for x in leaves], labels, treedef


def free_leaves(out: Any) -> list[bool]:
    """Per array of the results, whether it may carry an exponent: dense numbers with a unit."""
    numbers, labels, _ = _slots(out)
    free = []
    for x, label in zip(numbers, labels, strict=True):
        count = len(jax.tree.leaves(x))
        may = label is not None and label.is_linear and not is_structured(x)
        free += [may and count == 1] * count
    return free


def relabelled(out: Any, exponents: Sequence[int]) -> Any:
    """Results whose stored arrays have exponents, which go into the labels of quantities."""
    if not any(exponents):
        return out
    numbers, labels, treedef = _slots(out)
    given, new = iter(exponents), []
    for x, label in zip(numbers, labels, strict=True):
        mine = [next(given) for _ in jax.tree.leaves(x)]
        new.append(label.scaled(mine[0]) if mine and mine[0] else label)
    if type(out) is Packed:
        return Packed((treedef, new[0] if treedef is None else tuple(new)), out.values)
    return treedef.unflatten(
        [x if label is None else quantity(x, label) for x, label in zip(numbers, new, strict=True)]
    )
