"""Replay of a program, equation by equation, each the compiled unit it was.

A program captured without `jit` ran operation by operation. Its replay must give the same bits, but
a single compiled program would round otherwise. So the equations run one after the other. The
preparation fixes where each number goes and after which equation it is dropped. It also compiles a
function per operation, cached by its mark, so that equal calls of all programs share it. Compared
with binding each equation this saves 15 us per operation. It is safe because the function binds
that very equation; `tests/capture/test_replay.py` compares bits.

Under a trace operations are `jax.jit` functions, as they are by themselves. Nothing else is: a
`jit` around a loop, or around everything, would sum cotangents in another order and change the last
bit of gradients. During the capture of a function, calls stay equations with their marks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import jax

from tanjax import _compat, _jaxprs
from tanjax._jaxpr_types import JaxEquation, JaxVariable, Readable
from tanjax._marks import Mark, mark_of
from tanjax._typing import AnyArray
from tanjax.jaxprs import nested_jaxprs
from tanjax.registry import Operation

Run: TypeAlias = Callable[..., Sequence[AnyArray]]  # takes the operands of an equation
Step = tuple[Run, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
Mode = Callable[[JaxEquation, Mark | None], Run]  # takes an equation and its mark

_PARTS = ("higher_order", "pullback", "class", "helper", "densify")


_KEPT: dict[Hashable, Run] = {}  # inlined calls, by the key of their equation
_MOST = 1024


class Replay:
    """A closed jaxpr, prepared for repeated evaluation."""

    __slots__ = ("_count", "_filled", "_inputs", "_outputs", "_steps")

    def __init__(self, closed: Readable, enters: Callable[[Mark], bool], mode: Mode) -> None:
        """Prepare it.

        **Arguments:** `enters`: true for marks whose calls also run equation by equation; `mode`:
        how every other equation runs: `compiled`, `inlined` or `as_it_is`.
        """
        jaxpr, places = closed.jaxpr, _Places()
        self._filled = list(zip(map(places, jaxpr.constvars), closed.consts, strict=True))
        self._inputs = tuple(map(places, jaxpr.invars))
        self._steps = [_step(eqn, places, enters, mode) for eqn in jaxpr.eqns]
        self._outputs = tuple(map(places, jaxpr.outvars))
        self._filled += places.literals
        kept = {*self._outputs, *(place for place, _ in places.literals)}
        for i, (call, reads, writes, _) in reversed(list(enumerate(self._steps))):
            self._steps[i] = call, reads, writes, tuple({*reads, *writes} - kept)
            kept.update(reads, writes)
        self._count = places.count

    def __call__(self, *operands: AnyArray) -> list[AnyArray]:
        """Return the results; values are dropped after their last use."""
        values: list[AnyArray] = [None] * self._count
        for place, value in self._filled:
            values[place] = value
        for place, value in zip(self._inputs, operands, strict=True):
            values[place] = value
        for call, reads, writes, last in self._steps:
            outs = call(*[values[i] for i in reads])
            for place, value in zip(writes, outs, strict=True):
                values[place] = value
            for place in last:
                values[place] = None
        return [values[i] for i in self._outputs]


def is_no_unit(mark: Mark) -> bool:
    """True if the marked call runs equation by equation outside of a trace, as it was captured."""
    return mark.kind in _PARTS and is_no_call(mark)


def is_of_functions(mark: Mark) -> bool:
    """True for calls of functions of functions, which were no unit to JAX when they ran."""
    return mark.kind in ("higher_order", "pullback")


def is_no_call(mark: Mark) -> bool:
    """True if the marked call was not itself a `jax.jit` function."""
    return not (isinstance(mark.target, Operation) or getattr(mark.target, "is_unit", False))


class _Places:
    """The places of variables and literals in a list of values."""

    def __init__(self) -> None:
        self._known: dict[JaxVariable, int] = {}
        self.literals: list[tuple[int, AnyArray]] = []
        self.count = 0

    def __call__(self, v: JaxVariable) -> int:
        if _jaxprs.is_literal(v) or v not in self._known:
            place, self.count = self.count, self.count + 1
            if _jaxprs.is_literal(v):
                self.literals.append((place, v.val))
                return place
            self._known[v] = place
        return self._known[v]


def _step(eqn: JaxEquation, places: _Places, enters: Callable[[Mark], bool], mode: Mode) -> Step:
    mark = mark_of(eqn)
    if mark is not None and enters(mark):
        call: Run = Replay(nested_jaxprs(eqn)[0], enters, mode)
    else:
        call = mode(eqn, mark)
    return call, tuple(map(places, eqn.invars)), tuple(map(places, eqn.outvars)), ()


# -- modes -------------------------------------------------------------------------------------


def compiled(eqn: JaxEquation, mark: Mark | None) -> Run:
    """Run outside of a trace: a call is a compiled function, one for all equations of the mark."""
    if mark is None or not _is_whole(eqn, mark):
        return functools.partial(_bound, eqn)
    if mark.compiled is None:
        bound = functools.partial(_bound, eqn)
        bound.__name__ = mark.name  # type: ignore[attr-defined]  # shown by profilers
        mark.compiled = jax.jit(bound)
    return mark.compiled


def inlined(eqn: JaxEquation, mark: Mark | None) -> Run:
    """Run under a trace: a call as the operation makes it; `jax.jit` caches its derivatives."""
    if mark is None or not _is_whole(eqn, mark):
        keeps = mark is None and inline_calls_dissolve() and _is_unary(eqn)
        return _kept(eqn) if keeps else functools.partial(_bound, eqn)
    if mark.inlined is None:
        (closed,) = nested_jaxprs(eqn)
        body = functools.partial(jax.core.eval_jaxpr, closed.jaxpr, closed.consts)
        body.__name__ = mark.name  # type: ignore[attr-defined]
        mark.inlined = jax.jit(body, inline=True)
    return mark.inlined


def as_it_is(eqn: JaxEquation, mark: Mark | None) -> Run:
    """Run during a capture: bind the equation again, with its original source line."""
    return functools.partial(_placed, eqn)


def _is_whole(eqn: JaxEquation, mark: Mark) -> bool:
    """True if a call still holds the marked jaxpr itself, and has no effects."""
    return mark.jaxpr is nested_jaxprs(eqn)[0] and not eqn.effects


def _bound(eqn: JaxEquation, *operands: AnyArray) -> Sequence[AnyArray]:
    return _compat.bind_again(eqn, operands)


def _placed(eqn: JaxEquation, *operands: AnyArray) -> Sequence[AnyArray]:
    with _compat.placed(eqn):
        return _compat.bind_again(eqn, operands)


@functools.cache
def inline_calls_dissolve() -> bool:
    """True if `jax.jit(inline=True)` leaves no call in a jaxpr: in JAX 0.10.2, not in 0.12."""
    closed = jax.make_jaxpr(jax.jit(lambda x: 2.0 * x, inline=True))(1.0)
    return not any(_compat.call_name(eqn) for eqn in closed.jaxpr.eqns)


def _is_unary(eqn: JaxEquation) -> bool:
    """True if an equation is a primitive of one number and any literals."""
    if eqn.effects or next(_jaxprs.inner_jaxprs(eqn), None) is not None:
        return False
    return sum(not _jaxprs.is_literal(v) for v in eqn.invars) == 1 == len(eqn.outvars)


def _kept(eqn: JaxEquation) -> Run:
    """Return an equation as an inlined call, as in a function of `jax.numpy`.

    JAX caches its linearisation. Otherwise the warm trace of a gradient takes 1.5 times as long as
    that of the function. With several operands it would sum cotangents in another order.
    """
    bound = functools.partial(_bound, eqn)
    number = lambda v: (v.aval, repr(v.val)) if _jaxprs.is_literal(v) else None  # 0.0 is not -0.0
    key = eqn.primitive, tuple(eqn.params.items()), tuple(map(number, eqn.invars))
    try:
        if key not in _KEPT:
            if len(_KEPT) >= _MOST:
                _KEPT.clear()
            _KEPT[key] = jax.jit(bound, inline=True)
    except TypeError:  # a parameter or a literal that cannot be hashed
        return bound
    return _KEPT[key]
