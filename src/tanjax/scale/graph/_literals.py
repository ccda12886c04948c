"""Constants that would not survive tracing: `6.67e-11 * x` with `x` in float16.

JAX rounds a Python number to the dtype of its partner while it traces, and remembers what it
traced: a helper under `jax.jit`, a loop's body, a gradient may have lost a constant long before
anybody looks. A jaxpr without zeros, infinities and subnormals has lost none. One that holds some
of which nothing is known is traced again under a key of our own, where JAX remembers only what was
watched, and under a watch (`_casts.py`), which sees each number together with the constant that JAX
makes of it. Where JAX remembers even then (it keeps casts of NumPy's arrays with these), the watch
looks at more, and in the end numbers are read off a trace with float64 in place of floating
arguments, side by side with the narrow one.

Where no zero is written in a function, nobody watches the first trace but for NumPy's flags: a
watched one takes 1.6 times as long, before Python 3.12 four times (80 ms instead of 20 for 500
equations, which XLA compiles in 100 ms). That is safe because what a watch learns is asked for only
of constants that look crushed: each of these that is met is known, or the reason for another trace.
Whether a zero is written is a guess (`_written.py`), which saves that one.

Sharp edges. A function that asks for the dtype of its arguments may be another program in float64;
if the jaxprs differ by more than conversions of dtypes nothing is restored, and a warning says so.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._jaxpr_types import ClosedJaxpr, JaxEquation, JaxVariable, OpenJaxpr, Steps
from tanjax._jaxprs import needed_equations
from tanjax._typing import AnyArray, Function

from ..laws._expansions import nested_jaxprs
from ..laws._law import LAWS, UNKNOWN
from ..laws._vanish import CONVERTED, PRODUCT, Vanish
from ._casts import Lost, Watch, Written, is_crushed, is_unknown, known_as, learn, looks_crushed
from ._graph import Jaxpr, is_floating
from ._written import may_be_crushed

# Traces, and gives what has a `jaxpr` and the shapes of its results, `out_info`.
Make: TypeAlias = Callable[[], jax.stages.Traced]
# Where a number stands in a program, in which it is a literal or has a variable; the number.
Constant: TypeAlias = tuple[JaxVariable, AnyArray]
Found: TypeAlias = dict[int, np.ndarray]  # numbers by the `id` of their place


class Traced(NamedTuple):
    """A closed jaxpr and the shapes of its results, its crushed constants, notes of lost ones.

    **Fields:** `restored`: numbers by the `id` of their place, a literal or a variable.
    """

    closed: ClosedJaxpr
    out: PyTree
    restored: dict[int, AnyArray]
    notes: tuple[str, ...] = ()


def trace(
    make: Make,
    fun: Function | None,
    arguments: Sequence[AnyArray],
    written: object = None,
) -> Traced:
    """Trace, and find the constants that are not what was written.

    **Arguments:** `make`: traces: `lambda: jax.jit(f).trace(*args)`; `fun`: the function of flat
    `arguments`, for a trace in float64; `written`: the function as the user has it, None for `fun`.
    **Returns:** the jaxpr, its results, lost constants and notes. **Raises:** what tracing raises.
    **Cost:** one trace; a watched one (1.6 to 4 times as long) where it holds zeros of which
    nothing is known; a thorough one (10 times) where that does not know them either, and one in
    float64. Where a zero is written, the first is watched already.
    """
    is_watched = may_be_crushed(fun if written is None else written)
    closed, out, watch = _traced(make, Watch(flags_only=not is_watched))
    notes: list[str] = []
    if _unknown(closed, bool(watch.places)):
        first = closed
        closed, watch = _watched(make, (True,) if is_watched else (False, True))
        if unknown := _unknown(closed, bool(watch.places)):
            if watch.is_blind:
                notes.append(_BLIND)
            if not _read_off(closed, fun, arguments):
                _learn(unknown, Lost)
            _learn(_unknown(closed, False), None)
        if not _restored(closed):
            _learn(_unknown(first, False), None)  # the zeros that JAX remembered are right
    restored = _restored(closed)
    lost = {place for place, wide in restored.items() if wide is Lost}
    if lost:
        notes.append(_said(watch.places or _lines(closed, lost)))
    kept = {place: wide for place, wide in restored.items() if wide is not Lost}
    return Traced(closed, out, kept, tuple(notes))


def _watched(make: Make, thorough: Sequence[bool]) -> tuple[ClosedJaxpr, Watch]:
    """The jaxpr of a watched trace; of the next one, where that leaves something unknown.

    Each has a key of its own: JAX would remember the first, and the other would see nothing.
    """
    for is_thorough in thorough:
        with _compat.planning("thorough" if is_thorough else "watched"):
            closed, _, watch = _traced(make, Watch(thorough=is_thorough))
        for _, constant in _unknown(closed, False):
            watch.recognise(constant)
        if not _unknown(closed, bool(watch.places)):
            break
    return closed, watch


def _traced(make: Make, watch: Watch) -> tuple[ClosedJaxpr, PyTree, Watch]:
    with watch:
        traced = make()
        for _ in _jaxprs(traced.jaxpr):  # maps of linear rules are traced when looked at
            pass
    return traced.jaxpr, traced.out_info, watch


_BLIND = (
    "a profiler is running, so that it cannot be seen which constants are 0 because they were "
    "rounded while tracing; call the function once before it is profiled."
)


def _said(places: Sequence[str]) -> str:
    where = f" ({', '.join(places)})" if places else ""
    return (
        f"a constant{where} does not fit in the dtype of its partner and was rounded to 0 or inf "
        "while tracing; write it as a quantity, or multiply in two steps."
    )


def _lines(closed: Steps, places: set[int]) -> list[str]:
    """The user's lines that use constants."""
    equations = (e for inner in _jaxprs(closed) for e in getattr(inner, "jaxpr", inner).eqns)
    lines = [_compat.source_of(e) for e in equations if any(id(v) in places for v in e.invars)]
    return [line for line in dict.fromkeys(lines) if line]


# -- the constants of a jaxpr ---------------------------------------------------------------------


def _jaxprs(closed: Steps, seen: set[int] | None = None) -> Iterator[Steps]:
    """A closed jaxpr and those nested in it, each once."""
    seen = set() if seen is None else seen
    if id(closed) not in seen:
        seen.add(id(closed))
        yield closed
        for equation in getattr(closed, "jaxpr", closed).eqns:
            for inner in nested_jaxprs(equation):
                yield from _jaxprs(inner, seen)


def _constants(closed: Steps) -> Iterator[Constant]:
    """Floating constants: place (a literal, or a variable of the jaxpr) and number."""
    for inner in _jaxprs(closed):
        jaxpr: Jaxpr = getattr(inner, "jaxpr", inner)
        yield from zip(jaxpr.constvars, getattr(inner, "consts", ()), strict=False)
        for equation in jaxpr.eqns:
            yield from ((v, v.val) for v in equation.invars if hasattr(v, "val"))
        yield from ((v, v.val) for v in jaxpr.outvars if hasattr(v, "val"))


def _unknown(closed: Steps, arrays: bool) -> list[Constant]:
    """Constants that look crushed and may be; `arrays`: also those that JAX made arrays of."""
    kinds = (np.ndarray, jax.Array) if arrays else (np.ndarray,)
    return [
        (place, c)
        for place, c in _constants(closed)
        if is_floating(place.aval)
        and isinstance(c, kinds)
        and is_unknown(c)
        and looks_crushed(c, place.aval.dtype).any()
    ]


def _learn(constants: Sequence[Constant], wide: Written | None) -> None:
    for _, c in constants:
        learn(c, wide)


def _restored(closed: Steps) -> dict[int, Written]:
    """The numbers of crushed constants by the `id` of their place; some may be `Lost`."""
    found = {}
    for place, c in _constants(closed):
        if not is_floating(place.aval):
            continue
        if (wide := known_as(c)) is not None:
            found[id(place)] = wide
        elif not isinstance(c, np.ndarray | jax.Array) and is_crushed(c, place.aval.dtype):
            found[id(place)] = np.asarray(c)
    return found


# -- a trace in float64 beside the narrow one -----------------------------------------------------


class _Differs(Exception):
    """The wide trace is another program."""


def _read_off(closed: ClosedJaxpr, fun: Function | None, arguments: Sequence[AnyArray]) -> bool:
    """Learn all unknown constants from a trace in float64; False if that is another program."""
    if fun is None:
        return False
    unknown = _unknown(closed, True)
    try:
        found = restored_literals(closed, wide_trace(fun, list(arguments)))
    except Exception:  # the function is not made for float64: whatever it raises says no more
        return False
    if found is None:
        return False
    for place, c in unknown:
        learn(c, found.get(id(place)))
    return True


def wide_trace(fun: Function, arguments: list[AnyArray]) -> ClosedJaxpr:
    """The closed jaxpr of `fun` with float64 (complex128) in place of floating arguments."""
    with jax.enable_x64(True):
        return jax.make_jaxpr(fun)(*map(_widened, arguments))


def _widened(x: AnyArray) -> AnyArray:
    if not is_floating(x):
        return x
    wide = jnp.complex128 if jnp.issubdtype(x.dtype, jnp.complexfloating) else jnp.float64
    return jax.ShapeDtypeStruct(x.shape, wide)


def restored_literals(narrow: Steps, wide: Steps) -> Found | None:
    """The numbers of crushed literals by the `id` of the literal; None if the programs differ."""
    for equations in (_needed, _without_steps):
        found: Found = {}
        try:
            _match(narrow, wide, found, equations)
        except _Differs:
            continue
        return found
    return None


_Equations = Callable[[OpenJaxpr], Iterator[JaxEquation]]


def _match(narrow: Steps, wide: Steps, found: Found, equations: _Equations) -> None:
    a: Jaxpr
    b: Jaxpr
    a, b = (getattr(x, "jaxpr", x) for x in (narrow, wide))
    for v, w, c, d in zip(a.constvars, b.constvars, *_consts(narrow, wide), strict=False):
        _compare(v, c, d, found)
        del w
    theirs = equations(b)
    for equation in equations(a):
        other = next(theirs, None)
        if other is None or other.primitive.name != equation.primitive.name:
            raise _Differs
        _operands(equation, other, found)
        inners = nested_jaxprs(equation)
        with jax.enable_x64(True) if inners else contextlib.nullcontext():  # for what it expands to
            outers = nested_jaxprs(other)
        for inner, outer in zip(inners, outers, strict=True):
            _match(inner, outer, found, equations)
    if next(theirs, None) is not None:
        raise _Differs


def _consts(narrow: Steps, wide: Steps) -> tuple[list[AnyArray], list[AnyArray]]:
    return list(getattr(narrow, "consts", ())), list(getattr(wide, "consts", ()))


def _vanish(equation: JaxEquation) -> Vanish:
    return LAWS.get(equation.primitive.name, UNKNOWN).vanish


def _needed(jaxpr: OpenJaxpr) -> Iterator[JaxEquation]:
    """The equations, without the conversions of dtypes that one of two traces may not need."""
    for equation in needed_equations(jaxpr):
        if _vanish(equation) is not CONVERTED:
            yield equation


def _without_steps(jaxpr: OpenJaxpr) -> Iterator[JaxEquation]:
    """The same without products with powers of two: a scale is undone in steps that fit."""
    return (
        e for e in _needed(jaxpr) if not (_vanish(e) is PRODUCT and any(map(_is_step, e.invars)))
    )


def _is_step(v: JaxVariable) -> bool:
    number = getattr(v, "val", None)
    if number is None or np.ndim(number) or not is_floating(v.aval):
        return False
    return math.frexp(abs(float(number.real)))[0] == 0.5 and not number.imag


def _operands(equation: JaxEquation, other: JaxEquation, found: Found) -> None:
    if len(equation.invars) != len(other.invars):
        raise _Differs
    for v, w in zip(equation.invars, other.invars, strict=True):
        if hasattr(v, "val") and hasattr(w, "val"):
            _compare(v, v.val, w.val, found)


def _compare(place: JaxVariable, narrow: AnyArray, wide: AnyArray, found: Found) -> None:
    """Note the wide number of a constant whose narrow one is 0, inf or subnormal instead."""
    if not (is_floating(place.aval) and np.shape(narrow) == np.shape(wide)):
        return
    if is_crushed(wide, place.aval.dtype) and looks_crushed(narrow, place.aval.dtype).any():
        found[id(place)] = np.asarray(wide)
