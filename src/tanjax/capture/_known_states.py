"""The states of a loop that are known before it runs: counters, bounds, independent carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from tanjax import _jaxprs
from tanjax._jaxpr_types import JaxEquation, JaxVariable, OpenJaxpr
from tanjax._typing import AnyArray
from tanjax.jaxprs import Loop, opened

State: TypeAlias = Sequence[AnyArray]  # one entry per carried value
Step = Callable[[State], list[AnyArray]]


class States:
    """The carries of a `while` that do not depend on the linear operands.

    **Fields:** `count`, the number of trips; `last`, the final state; `at(k)`, the state before
    step `k`. If every such carry is counted or constant and the test compares two of them, as in
    every `fori_loop`, these fields are arithmetic. Otherwise the loop runs once to be counted. A
    mapped loop has a test per row, and its rows stop one by one.
    """

    def __init__(
        self,
        step: Step,
        goes_on: Callable[[State], Array],
        start: State,
        eqn: JaxEquation,
        places: Sequence[int],
        tested: Sequence[AnyArray],
    ) -> None:
        self.start, self._step, self._goes_on = list(start), step, goes_on
        loop = Loop.of(eqn, eqn.invars)
        body, test = opened(loop.body)[0], opened(loop.test)[0]
        self._by_row = bool(test.outvars[0].aval.shape)
        self._steps: list[int | None] = [None]
        if not self._by_row:
            self._steps = [_increment(body, len(loop.fixed) + i, i) for i in places]
        count = self._compared(test, places, tested)
        if count is not None:
            self.count = count
            self.last = self.at(count)
            return
        go = lambda state: jnp.any(goes_on(state[1:]))
        once = lambda state: [state[0] + 1, *self._next(state[1:])]
        self.count, *self.last = jax.lax.while_loop(go, once, [jnp.int32(0), *self.start])

    def at(self, k: int | Array) -> list[AnyArray]:
        """The state before step `k`."""
        if None in self._steps:
            body = lambda _, state: self._next(state)
            return list(jax.lax.fori_loop(0, k, body, _like(self.start, self.start)))
        moved = []
        for s, c in zip(self.start, self._steps, strict=True):
            dtype = jnp.result_type(s)
            steps = jax.lax.convert_element_type(k, dtype) if c else None
            moved.append(s if steps is None else s + steps * jnp.asarray(c, dtype))
        return moved

    def _next(self, state: State) -> list[AnyArray]:
        new = _like(self._step(state), self.start)
        if not self._by_row:
            return new
        goes = self._goes_on(state)
        return [_select(goes, a, b) for a, b in zip(new, state, strict=True)]

    def rows(self, state: State, bars: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """Split cotangents after a step: rows that took the step, and rows that had stopped."""
        if not self._by_row:
            return list(bars), []
        goes, zero = self._goes_on(state), jnp.zeros_like
        return [_select(goes, b, zero(b)) for b in bars], [_select(goes, zero(b), b) for b in bars]

    def _compared(
        self, test: OpenJaxpr, places: Sequence[int], tested: Sequence[AnyArray]
    ) -> Array | None:
        """The number of steps of `while i < n: i += 1`; `None` for other loops."""
        if len(test.eqns) != 1 or test.eqns[0].primitive.name != "lt" or None in self._steps:
            return None
        if list(test.outvars) != list(test.eqns[0].outvars):
            return None
        values: dict[JaxVariable, tuple[AnyArray, int | None]] = {
            v: (x, 0) for v, x in zip(test.invars, tested, strict=False)
        }
        carried = {place: i for i, place in enumerate(places)}
        for place, v in enumerate(test.invars[len(tested) :]):
            if place in carried:
                i = carried[place]
                values[v] = (self.start[i], self._steps[i])
        read = lambda v: (v.val, 0) if _jaxprs.is_literal(v) else values[v]
        (low, step), (high, fixed) = map(read, test.eqns[0].invars)
        if step != 1 or fixed != 0:
            return None
        # The distance of bounds may overflow their dtype, but no loop runs that long.
        return jnp.where(low < high, high - low, jnp.zeros_like(low))


def _select(rows: Array, new: Array, old: Array) -> Array:
    return jnp.where(rows.reshape(rows.shape + (1,) * (new.ndim - rows.ndim)), new, old)


def _increment(body: OpenJaxpr, place: int, out: int) -> int | None:
    """The change of an integer carry in a step; 0 for constants, `None` if unknown."""
    before, after = body.invars[place], body.outvars[out]
    if after is before:
        return 0
    if _jaxprs.is_literal(after) or not jnp.issubdtype(before.aval.dtype, jnp.integer):
        return None
    for eqn in body.eqns:
        if after in eqn.outvars and eqn.primitive.name == "add":
            for a, b in (eqn.invars, eqn.invars[::-1]):
                if a is before and _jaxprs.is_literal(b):
                    return int(b.val)
    return None


def _like(state: State, start: State) -> list[AnyArray]:
    """Cast a state to the dtypes in which it started."""
    typed = lambda x, s: jax.lax.convert_element_type(x, jnp.result_type(s))
    return [
        typed(x, s) if not jnp.issubdtype(jax.typeof(s).dtype, jax.dtypes.extended) else x
        for x, s in zip(state, start, strict=True)
    ]
