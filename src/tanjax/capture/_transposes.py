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

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import PyTree

from tanjax import _compat, _jaxprs
from tanjax._errors import CaptureError, message
from tanjax._jaxpr_types import Aval, JaxEquation, JaxVariable, OpenJaxpr, Readable
from tanjax._typing import AnyArray
from tanjax.jaxprs import KINDS, Kind

from ._known_states import States

LINEAR = object()  # marks a value that depends on the linear arguments of a function
Value: TypeAlias = AnyArray  # or `LINEAR`
Cotangents: TypeAlias = Sequence[Array | None]  # `None` for zeros
Pull = Callable[[Cotangents], list[Array | None]]  # maps cotangents of results to those of operands
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
        outs, pull = _split(jaxpr, closed.consts, [LINEAR] * len(avals))
        found = pull([ct if out is LINEAR else None for out, ct in zip(outs, cts, strict=True)])
        return _filled(found, avals)

    return walked if _has_while(jaxpr) else by_jax


def _has_while(jaxpr: OpenJaxpr) -> bool:
    return any(
        e.primitive.name == "while" or any(_has_while(_open(j)[0]) for _, j in _inner(e))
        for e in jaxpr.eqns
    )


_inner = _jaxprs.inner_jaxprs


def _open(jaxpr: Any) -> tuple[OpenJaxpr, Sequence[AnyArray]]:
    """Return a jaxpr and its constants, in either form that JAX keeps."""
    return getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())


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


def _split(
    jaxpr: OpenJaxpr, consts: Sequence[AnyArray], args: Sequence[Value]
) -> tuple[list[Value], Pull]:
    """Evaluate equations independent of the `LINEAR` arguments, and transpose the others."""
    env: dict[JaxVariable, Value] = {}
    env.update(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    read = lambda v: v.val if _jaxprs.is_literal(v) else env[v]
    tape: list[tuple[JaxEquation, list[JaxVariable], Pull]] = []
    for eqn in jaxpr.eqns:
        values = [read(v) for v in eqn.invars]
        if any(v is LINEAR for v in values):
            outs, pull = _RULES.get(KINDS.get(eqn.primitive.name), _by_jax)(eqn, values)
            moving = [v for v, x in zip(eqn.invars, values, strict=True) if x is LINEAR]
            tape.append((eqn, moving, pull))
        else:
            outs = _compat.bind_again(eqn, values)
        env.update(zip(eqn.outvars, outs, strict=True))
    outs = [read(v) for v in jaxpr.outvars]

    def pull_all(cts: Cotangents) -> list[Array | None]:
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

    return outs, pull_all


def _explained(eqn: JaxEquation, pull: Pull, cts: Cotangents) -> list[Array | None]:
    try:
        return pull(cts)
    except Exception as error:
        source = _compat.source_of(eqn)
        if source and not any("linear in" in n for n in getattr(error, "__notes__", ())):
            error.add_note(f"`{eqn.primitive.name}`, {source}, is to be linear in its operands.")
        raise


def _by_jax(eqn: JaxEquation, values: Sequence[Value]) -> tuple[list[Value], Pull]:
    """Transpose one equation with JAX."""
    flags = [v is LINEAR for v in values]
    known = _pick(values, flags, False)
    forward = lambda *x: _compat.bind_again(eqn, _place(flags, known, x))
    avals = [v.aval for v in eqn.outvars]

    def pull(cts: Cotangents) -> list[Array | None]:
        like = [_like(v.aval) for v in _pick(eqn.invars, flags)]
        return list(jax.linear_transpose(forward, *like)(_filled(cts, avals)))

    return [LINEAR] * len(avals), pull


# -- dependence --------------------------------------------------------------------------------


def _depends(jaxpr: OpenJaxpr, flags: Sequence[bool]) -> list[bool]:
    """Return for each result whether it depends on a flagged argument, as `_split` does."""
    linear = {v for v, f in zip(jaxpr.invars, flags, strict=True) if f}
    of = lambda v: not _jaxprs.is_literal(v) and v in linear
    for eqn in jaxpr.eqns:
        given = [of(v) for v in eqn.invars]
        if any(given):
            linear |= set(_pick(eqn.outvars, _equation_depends(eqn, given)))
    return [of(v) for v in jaxpr.outvars]


def _equation_depends(eqn: JaxEquation, given: Sequence[bool]) -> list[bool]:
    rule = _RULES.get(KINDS.get(eqn.primitive.name))
    if rule is _call:
        return _depends(_called(eqn)[0], given)
    if rule is _cond:
        found = [_depends(_open(j)[0], given[1:]) for j in eqn.params["branches"]]
        return [any(f) for f in zip(*found, strict=True)]
    if rule is _while or rule is _scan:
        _, fixed, carry, rows = _compat.Loop.of(eqn.params).cut(given)
        body = _open(eqn.params["body_jaxpr" if rule is _while else "jaxpr"])[0]
        carry, ys = _fixpoint(body, fixed, carry, rows)
        return [*carry, *ys]
    return [True] * len(eqn.outvars)


def _fixpoint(
    body: OpenJaxpr, fixed: Sequence[bool], carry: Sequence[bool], rows: Sequence[bool]
) -> tuple[list[bool], list[bool]]:
    """Return which carries and rows depend on linear operands, after any number of steps."""
    carry = list(carry)
    while True:
        outs = _depends(body, [*fixed, *carry, *rows])
        new = [a or b for a, b in zip(carry, outs, strict=False)]
        if new == carry:
            return carry, outs[len(carry) :]
        carry = new


# -- calls and branches ------------------------------------------------------------------------


def _called(eqn: JaxEquation) -> tuple[OpenJaxpr, Sequence[AnyArray]]:
    return _open(next(j for _, j in _inner(eqn)))


def _call(eqn: JaxEquation, values: Sequence[Value]) -> tuple[list[Value], Pull]:
    return _split(*_called(eqn), values)


def _cond(eqn: JaxEquation, values: Sequence[Value]) -> tuple[list[Value], Pull]:
    index, *operands = values
    if index is LINEAR:
        raise _not_linear("cond", "which branch it takes", eqn)
    flags = [v is LINEAR for v in values]
    out_flags = _equation_depends(eqn, flags)
    avals = [v.aval for v in _pick(eqn.invars, flags)]
    branches = [_open(j) for j in eqn.params["branches"]]

    def evaluate(jaxpr: OpenJaxpr, consts: Sequence[AnyArray]) -> Callable[[], list[Value]]:
        return lambda: _pick(_split(jaxpr, consts, operands)[0], out_flags, False)

    def back(jaxpr: OpenJaxpr, consts: Sequence[AnyArray]) -> Callable[[Cotangents], list[Array]]:
        return lambda cts: _filled(_split(jaxpr, consts, operands)[1](cts), avals)

    known = jax.lax.switch(index, [evaluate(*b) for b in branches])

    def pull(cts: Cotangents) -> list[Array | None]:
        return list(jax.lax.switch(index, [back(*b) for b in branches], list(cts)))

    return _marked(out_flags, known), pull


# -- loops -------------------------------------------------------------------------------------

# Cotangents of the carries of a body, and sums of those of its fixed operands.
_Bars: TypeAlias = tuple[list[Array], list[Array]]


def _while(eqn: JaxEquation, values: Sequence[Value]) -> tuple[list[Value], Pull]:
    tested, fixed, carry, _ = _compat.Loop.of(eqn.params).cut(values)
    (test, test_consts), (body, consts) = (
        _open(eqn.params[f"{k}_jaxpr"]) for k in ("cond", "body")
    )
    is_linear = lambda x: x is LINEAR
    flags, _ = _fixpoint(body, list(map(is_linear, fixed)), list(map(is_linear, carry)), [])
    if any(map(is_linear, tested)) or any(_depends(test, [False] * len(tested) + flags)):
        raise _not_linear("while_loop", "how often it runs", eqn)

    def split(known: Sequence[AnyArray]) -> tuple[list[Value], Pull]:
        return _split(body, consts, [*fixed, *_marked(flags, known)])

    def goes_on(known: Sequence[AnyArray]) -> Array:
        return _split(test, test_consts, [*tested, *_marked(flags, known)])[0][0]

    step = lambda known: _pick(split(known)[0], flags, False)
    places = [i for i, f in enumerate(flags) if not f]
    states = States(step, goes_on, _pick(carry, flags, False), eqn, places, tested)
    avals = [v.aval for v in _pick(body.invars[len(fixed) :], flags)]
    kept = [v.aval for v, x in zip(body.invars, fixed, strict=False) if x is LINEAR]

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
        return [*sums, *_moved(bars, flags, carry)]

    return _marked(flags, states.last), pull


def _scan(eqn: JaxEquation, values: Sequence[Value]) -> tuple[list[Value], Pull]:
    params = eqn.params
    _, fixed, carry, rows = _compat.Loop.of(params).cut(values)
    body, consts = _open(params["jaxpr"])
    of_rows = [x is LINEAR for x in rows]
    flags, of_ys = _fixpoint(
        body, [x is LINEAR for x in fixed], [x is LINEAR for x in carry], of_rows
    )
    count, length, backwards = len(flags), params["length"], params["reverse"]
    known_rows = _pick(rows, of_rows, False)

    def split(known: Sequence[Array], row: Sequence[Array]) -> tuple[list[Value], Pull]:
        return _split(body, consts, [*fixed, *_marked(flags, known), *_marked(of_rows, row)])

    def forward(known: list[Array], row: list[Array]) -> PyTree:
        outs, _ = split(known, row)
        ys = _pick(outs[count:], of_ys, False)
        return _pick(outs[:count], flags, False), (known, ys)

    start = _pick(carry, flags, False)
    last, (states, ys) = jax.lax.scan(forward, start, known_rows, length, backwards)
    variables = body.invars[len(fixed) :]
    avals = [v.aval for v in _pick(variables[:count], flags)]
    row_avals = [v.aval for v in _pick(variables[count:], of_rows)]
    kept = [v.aval for v, x in zip(body.invars, fixed, strict=False) if x is LINEAR]

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
            back, init, (states, known_rows, y_bars), length, not backwards
        )
        return [*sums, *_moved(bars, flags, carry), *row_bars]

    return [*_marked(flags, last), *_marked(of_ys, ys)], pull


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


_RULES: dict[Kind | None, Callable[[JaxEquation, Sequence[Value]], tuple[list[Value], Pull]]] = {
    **dict.fromkeys((Kind.JIT, Kind.CALL, Kind.CHECKPOINT), _call),
    Kind.BRANCH: _cond,
    Kind.SCAN: _scan,
    Kind.WHILE: _while,
}
