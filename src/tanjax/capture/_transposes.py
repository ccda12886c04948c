"""Transposes of linear functions with loops whose number of trips is unknown.

JAX transposes a `scan`, but no `while`: the states of all steps would have to be kept, and their
number is unknown. For a *linear* function these states do not depend on its linear argument: they
are a loop's counter, its bounds and other carries. So they are recomputed. The transpose of a loop
is the loop over the transposed body, from the last state to the first.

    transposed = linear_transpose(f, like)
    (x_bar,) = transposed(y_bar)

A jaxpr is read once, forwards. Equations independent of the linear operands are evaluated. Of the
others the transposes are kept, and run backwards at the end. JAX transposes every other primitive.

Sharp edges. A state that is counted or constant is known at every step. Any other state is
recomputed from its beginning for every step: n steps cost n² / 2 of that part. The function must
be linear: like JAX, this code does not detect a constant that the function adds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import PyTree

from tanjax import _compat, _jaxprs
from tanjax._errors import CaptureError, message
from tanjax._jaxpr_types import Aval, JaxEquation, JaxVariable, OpenJaxpr, Readable, Steps
from tanjax._typing import AnyArray
from tanjax.jaxprs import Branches, Depends, Kind, Loop, Walk, kind_of, opened

from ._known_states import States

_DEPENDS = Depends()
LINEAR = object()  # marks a value that depends on the linear arguments of a function
Value: TypeAlias = AnyArray  # or `LINEAR`
Cotangents: TypeAlias = Sequence[Array | None]  # `None` for zeros
Pull = Callable[[Cotangents], list[Array | None]]  # maps cotangents of results to those of operands
Split: TypeAlias = tuple[Sequence[Value], Pull]  # results, and the transpose
T = TypeVar("T")


def linear_transpose(closed: Readable) -> Callable[[Sequence[Array]], list[Array]]:
    """Return the transpose of a closed jaxpr, from cotangents of results to those of arguments."""
    jaxpr, avals = closed.jaxpr, [v.aval for v in closed.jaxpr.invars]

    def by_jax(cts: Sequence[Array]) -> list[Array]:
        run = lambda *x: _jaxprs.evaluate(jaxpr, closed.consts, *x)
        try:
            return list(jax.linear_transpose(run, *map(_like, avals))(list(cts)))
        except Exception:  # the walk raises it again, with the line
            return walked(cts)

    def walked(cts: Sequence[Array]) -> list[Array]:
        outs, pull = _split(closed, [LINEAR] * len(avals))
        found = pull([ct if out is LINEAR else None for out, ct in zip(outs, cts, strict=True)])
        return _filled(found, avals)

    has_while = any(kind_of(eqn) is Kind.WHILE for eqn in _jaxprs.all_equations(jaxpr))
    return walked if has_while else by_jax


def _like(aval: Aval) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _filled(cts: Cotangents, avals: Sequence[Aval]) -> list[Array]:
    """Return cotangents in the dtypes of some values, with zeros as arrays."""
    return [
        jnp.zeros(a.shape, a.dtype) if ct is None else jax.lax.convert_element_type(ct, a.dtype)
        for ct, a in zip(cts, avals, strict=True)
    ]


def _pick(values: Sequence[T], flags: Sequence[bool], on: bool = True) -> list[T]:
    return [v for v, f in zip(values, flags, strict=True) if f is on]


def _place(flags: Sequence[bool], known: Sequence[T], linear: Sequence[T]) -> list[T]:
    """Merge two lists: `linear` where the flags are set, `known` elsewhere."""
    k, x = iter(known), iter(linear)
    return [next(x) if f else next(k) for f in flags]


def _marked(flags: Sequence[bool], known: Sequence[AnyArray]) -> list[Value]:
    return _place(flags, known, [LINEAR] * sum(flags))


def _split(program: Any, args: Sequence[Value]) -> Split:
    """Evaluate equations independent of the `LINEAR` arguments, and transpose the others."""
    walk = _Split()
    outs = walk.run(program, args)
    return outs, functools.partial(_pull_all, opened(program)[0], args, outs, walk.tape)


def _pull_all(
    jaxpr: OpenJaxpr,
    args: Sequence[Value],
    outs: Sequence[Value],
    tape: Sequence[tuple[JaxEquation, list[JaxVariable], Pull]],
    cts: Cotangents,
) -> list[Array | None]:
    """Run the transposes on a tape backwards."""
    total: dict[JaxVariable, Array] = {}

    def add(variables: Sequence[JaxVariable], cts: Cotangents) -> None:
        for v, ct in zip(variables, cts, strict=True):
            if ct is not None:
                total[v] = total[v] + ct if v in total else ct

    chosen = [i for i, out in enumerate(outs) if out is LINEAR]
    add([jaxpr.outvars[i] for i in chosen], [cts[i] for i in chosen])
    for eqn, moving, pull in reversed(tape):
        given = [total.pop(v, None) for v in eqn.outvars]
        if any(ct is not None for ct in given):
            add(moving, _explained(eqn, pull, given))
    return [total.get(v) for v, x in zip(jaxpr.invars, args, strict=True) if x is LINEAR]


def _explained(eqn: JaxEquation, pull: Pull, cts: Cotangents) -> list[Array | None]:
    try:
        return pull(cts)
    except Exception as error:
        source = _compat.source_of(eqn)
        if source and not any("linear in" in n for n in getattr(error, "__notes__", ())):
            error.add_note(f"`{eqn.primitive.name}`, {source}, is to be linear in its operands.")
        raise


def _is_linear(value: Value) -> bool:
    return value is LINEAR


# -- the walk ----------------------------------------------------------------------------------

# Cotangents of the carries of a body, and sums of those of its fixed operands.
_Bars: TypeAlias = tuple[list[Array], list[Array]]


class _Split(Walk[Value]):
    """Evaluate equations independent of the `LINEAR` arguments, and put the others on a tape.

    **Fields:** `tape`: equations, their linear operands, and their transposes.
    """

    enters = Depends.enters

    def __init__(self) -> None:
        self.tape: list[tuple[JaxEquation, list[JaxVariable], Pull]] = []

    def equation(self, eqn: JaxEquation, values: list[Value]) -> Sequence[Value]:
        flags = list(map(_is_linear, values))
        if not any(flags):
            return _compat.bind_again(eqn, values)
        outs, pull = self.meaning(eqn, values)
        self.tape.append((eqn, _pick(eqn.invars, flags), pull))
        return outs

    def leaf(self, eqn: JaxEquation, values: list[Value]) -> Split:
        """Transpose one equation with JAX."""
        flags = list(map(_is_linear, values))
        known = _pick(values, flags, False)
        forward = lambda *x: _compat.bind_again(eqn, _place(flags, known, x))
        avals = [v.aval for v in eqn.outvars]

        def pull(cts: Cotangents) -> list[Array | None]:
            like = [_like(v.aval) for v in _pick(eqn.invars, flags)]
            return list(jax.linear_transpose(forward, *like)(_filled(cts, avals)))

        return [LINEAR] * len(avals), pull

    def call(self, eqn: JaxEquation, program: Steps, values: list[Value]) -> Split:
        return _split(program, values)

    def cond(self, eqn: JaxEquation, branches: Branches) -> Split:
        programs, index, operands = branches
        if index is LINEAR:
            raise _not_linear("cond", "which branch it takes", eqn)
        flags = list(map(_is_linear, operands))
        out_flags = _DEPENDS.cond(eqn, branches._replace(index=False, operands=flags))
        avals = [v.aval for v in _pick(eqn.invars[1:], flags)]

        def evaluate(program: Steps) -> Callable[[], list[Value]]:
            return lambda: _pick(_split(program, operands)[0], out_flags, False)

        def back(program: Steps) -> Callable[[Cotangents], list[Array]]:
            return lambda cts: _filled(_split(program, operands)[1](cts), avals)

        known = jax.lax.switch(index, list(map(evaluate, programs)))

        def pull(cts: Cotangents) -> list[Array | None]:
            return list(jax.lax.switch(index, list(map(back, programs)), list(cts)))

        return _marked(out_flags, known), pull

    def while_(self, eqn: JaxEquation, loop: Loop) -> Split:
        moving = loop.over(_is_linear)
        flags = _DEPENDS.while_(eqn, moving)
        if any(_DEPENDS.run(loop.test, [*moving.tested, *flags])):
            raise _not_linear("while_loop", "how often it runs", eqn)

        def split(known: Sequence[AnyArray]) -> Split:
            return _split(loop.body, [*loop.fixed, *_marked(flags, known)])

        def goes_on(known: Sequence[AnyArray]) -> Array:
            return _split(loop.test, [*loop.tested, *_marked(flags, known)])[0][0]

        step = lambda known: _pick(split(known)[0], flags, False)
        places = [i for i, f in enumerate(flags) if not f]
        states = States(step, goes_on, _pick(loop.carry, flags, False), eqn, places, loop.tested)
        avals, kept, _ = _avals(moving, flags)

        def pull(cts: Cotangents) -> list[Array | None]:
            def back(k: Array, state: _Bars) -> _Bars:
                (bars, sums), known = state, states.at(states.count - 1 - k)
                runs, stays = states.rows(known, bars)
                found = split(known)[1](_place(flags, [None] * len(places), runs))
                new = _filled(found[len(kept) :], avals)
                new = [a + b for a, b in zip(new, stays, strict=True)] if stays else new
                return new, _sums(sums, found)

            start = _filled(_pick(cts, flags), avals), _filled([None] * len(kept), kept)
            bars, sums = jax.lax.fori_loop(0, states.count, back, start)
            return [*sums, *_moved(bars, flags, loop.carry)]

        return _marked(flags, states.last), pull

    def scan(self, eqn: JaxEquation, loop: Loop) -> Split:
        moving, count, length = loop.over(_is_linear), len(loop.carry), loop.length
        found = _DEPENDS.scan(eqn, moving)
        flags, of_ys, of_rows = found[:count], found[count:], moving.rows
        known_rows = _pick(loop.rows, of_rows, False)

        def split(known: Sequence[Array], row: Sequence[Array]) -> Split:
            return _split(loop.body, [*loop.fixed, *_marked(flags, known), *_marked(of_rows, row)])

        def forward(known: list[Array], row: list[Array]) -> PyTree:
            outs, _ = split(known, row)
            ys = _pick(outs[count:], of_ys, False)
            return _pick(outs[:count], flags, False), (known, ys)

        start = _pick(loop.carry, flags, False)
        last, (states, ys) = jax.lax.scan(forward, start, known_rows, length, loop.reverse)
        avals, kept, row_avals = _avals(moving, flags)

        def pull(cts: Cotangents) -> list[Array | None]:
            def back(state: _Bars, row: PyTree) -> tuple[_Bars, list[Array]]:
                (bars, sums), (known, row, y_bars) = state, row
                given = _place([*flags, *of_ys], [None] * (len(start) + len(ys)), [*bars, *y_bars])
                found = split(known, row)[1](given)
                carried, rest = found[len(kept) :][: len(avals)], found[len(kept) + len(avals) :]
                return (_filled(carried, avals), _sums(sums, found)), _filled(rest, row_avals)

            init = _filled(_pick(cts[:count], flags), avals), _filled([None] * len(kept), kept)
            y_bars = _filled(
                _pick(cts[count:], of_ys), _pick([v.aval for v in eqn.outvars[count:]], of_ys)
            )
            (bars, sums), row_bars = jax.lax.scan(
                back, init, (states, known_rows, y_bars), length, not loop.reverse
            )
            return [*sums, *_moved(bars, flags, loop.carry), *row_bars]

        return [*_marked(flags, last), *_marked(of_ys, ys)], pull


def _avals(moving: Loop, flags: Sequence[bool]) -> tuple[list[Aval], list[Aval], list[Aval]]:
    """Return the avals of the linear carries, constants and rows in the body of a loop."""
    avals = [v.aval for v in opened(moving.body)[0].invars]
    given = [*moving.fixed, *flags, *moving.rows]
    i, j = len(moving.fixed), len(given) - len(moving.rows)
    parts = slice(i, j), slice(i), slice(j, None)
    return tuple(_pick(avals[part], given[part]) for part in parts)  # type: ignore[return-value]


def _sums(sums: Sequence[Array], found: Cotangents) -> list[Array]:
    return [s if f is None else s + f for s, f in zip(sums, found, strict=False)]


def _moved(bars: Sequence[T], flags: Sequence[bool], carry: Sequence[Value]) -> list[T]:
    """Return the cotangents of initial carries that depend on linear operands."""
    return [b for b, x in zip(bars, _pick(carry, flags), strict=True) if x is LINEAR]


def _not_linear(name: str, what: str, eqn: JaxEquation) -> CaptureError:
    source = _compat.source_of(eqn)
    return CaptureError(
        message(
            f"adjoint: {name}: {what} depends on what the function is to be linear in.",
            *([f"at: {source}"] if source else []),
            hint="such a function is not linear, and has no adjoint.",
        )
    )
