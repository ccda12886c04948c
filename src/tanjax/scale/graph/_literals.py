"""Find constants that underflow or overflow while JAX traces: `6.67e-11 * x` with `x` in float16.

JAX rounds a Python number to the dtype of its partner while it traces, and caches its traces. So a
helper under `jax.jit`, a loop's body or a gradient may have lost a constant long before this trace.
A jaxpr without zeros, infinities and subnormals has lost no constant. If it holds unknown ones,
tanjax traces the program again:

1. Under a watch (`_casts.py`), which sees each number together with the constant that JAX makes.
   The trace has a key of its own, so JAX reuses only watched traces.
2. Under a thorough watch, if JAX still returns a cached constant: it caches the casts of NumPy's
   arrays with the arrays.
3. With float64 instead of narrower floating arguments. The numbers are then read off by comparing
   the two jaxprs.

If a function contains no written zero, the first trace records only NumPy's flags. A watched trace
takes 1.6 times as long, before Python 3.12 four times: 80 ms instead of 20 for 500 equations, which
XLA compiles in 100 ms. This is safe, because only constants that look crushed need a watch. An
unknown constant of this kind causes another trace. A guess (`_written.py`) tells if a zero is
written, and saves that trace.

Sharp edges. A function that reads the dtype of its arguments may be another program in float64. If
the jaxprs differ by more than conversions of dtypes, tanjax restores nothing and warns.
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
from tanjax.jaxprs import opened

from ..laws._expansions import nested_jaxprs
from ..laws._law import LAWS, UNKNOWN
from ..laws._vanish import CONVERTED, PRODUCT, Vanish
from ._casts import Lost, Watch, Written, is_crushed, is_unknown, known_as, learn, looks_crushed
from ._graph import is_floating
from ._written import may_be_crushed

# Traces, and returns an object with a `jaxpr` and the shapes of its results, `out_info`.
Make: TypeAlias = Callable[[], jax.stages.Traced]
# The place of a number in a program (a literal or a variable), and the number.
Constant: TypeAlias = tuple[JaxVariable, AnyArray]
Found: TypeAlias = dict[int, np.ndarray]  # numbers by the `id` of their place


class Traced(NamedTuple):
    """A closed jaxpr, the shapes of its results, its crushed constants and notes of lost ones.

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
    """Trace, and find the constants that differ from the written numbers.

    **Arguments:** `make`: traces: `lambda: jax.jit(f).trace(*args)`; `fun`: the function of flat
    `arguments`, for a trace in float64; `written`: the function as the user has it, None for `fun`.
    **Returns:** the jaxpr, its results, lost constants and notes. **Raises:** the errors of the
    trace.
    **Cost:** one trace. If it holds unknown zeros, a watched trace, 1.6 to 4 times as long. If they
    are still unknown, a thorough trace (10 times as long) and one in float64. If a zero is written
    in the function, the first trace is already watched.
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
    """Return the jaxpr and the watch of the first watched trace without unknown constants.

    If no trace suffices, return those of the last. Each trace has a key of its own: otherwise JAX
    would reuse the first, and the second watch would see nothing.
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
        for _ in _jaxprs(traced.jaxpr):  # maps of linear rules are traced when they are read
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
    """Return the user's lines that use constants."""
    equations = (e for inner in _jaxprs(closed) for e in inner.eqns)
    lines = [_compat.source_of(e) for e in equations if any(id(v) in places for v in e.invars)]
    return [line for line in dict.fromkeys(lines) if line]


# -- the constants of a jaxpr ---------------------------------------------------------------------


def _jaxprs(closed: Steps, seen: set[int] | None = None) -> Iterator[Steps]:
    """Yield a closed jaxpr and those nested in it, each once."""
    seen = set() if seen is None else seen
    if id(closed) not in seen:
        seen.add(id(closed))
        yield closed
        for equation in closed.eqns:
            for inner in nested_jaxprs(equation):
                yield from _jaxprs(inner, seen)


def _constants(closed: Steps) -> Iterator[Constant]:
    """Yield constants: pairs of place (a literal, or a variable of the jaxpr) and number."""
    for inner in _jaxprs(closed):
        jaxpr, consts = opened(inner)
        yield from zip(jaxpr.constvars, consts, strict=False)
        for equation in jaxpr.eqns:
            yield from ((v, v.val) for v in equation.invars if hasattr(v, "val"))
        yield from ((v, v.val) for v in jaxpr.outvars if hasattr(v, "val"))


def _unknown(closed: Steps, arrays: bool) -> list[Constant]:
    """Return unknown constants that look crushed; `arrays`: also constants that are `jax.Array`."""
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
    """Return the numbers of crushed constants by the `id` of their place; some may be `Lost`."""
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
    """The trace in float64 is another program."""


def _read_off(closed: ClosedJaxpr, fun: Function | None, arguments: Sequence[AnyArray]) -> bool:
    """Learn all unknown constants from a trace in float64; False if that is another program."""
    if fun is None:
        return False
    unknown = _unknown(closed, True)
    try:
        found = restored_literals(closed, wide_trace(fun, list(arguments)))
    except Exception:  # the function does not accept float64
        return False
    if found is None:
        return False
    for place, c in unknown:
        learn(c, found.get(id(place)))
    return True


def wide_trace(fun: Function, arguments: list[AnyArray]) -> ClosedJaxpr:
    """Return the closed jaxpr of `fun` with float64 (complex128) for floating arguments."""
    with jax.enable_x64(True):
        return jax.make_jaxpr(fun)(*map(_widened, arguments))


def _widened(x: AnyArray) -> AnyArray:
    if not is_floating(x):
        return x
    wide = jnp.complex128 if jnp.issubdtype(x.dtype, jnp.complexfloating) else jnp.float64
    return jax.ShapeDtypeStruct(x.shape, wide)


def restored_literals(narrow: Steps, wide: Steps) -> Found | None:
    """Return the numbers of crushed literals by the literal's `id`; None if the programs differ."""
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
    (a, ours), (b, others) = opened(narrow), opened(wide)
    for v, c, d in zip(a.constvars, ours, others, strict=False):
        _compare(v, c, d, found)
    theirs = equations(b)
    for equation in equations(a):
        other = next(theirs, None)
        if other is None or other.primitive.name != equation.primitive.name:
            raise _Differs
        _operands(equation, other, found)
        inners = nested_jaxprs(equation)
        with jax.enable_x64(True) if inners else contextlib.nullcontext():  # for its expansion
            outers = nested_jaxprs(other)
        for inner, outer in zip(inners, outers, strict=True):
            _match(inner, outer, found, equations)
    if next(theirs, None) is not None:
        raise _Differs


def _vanish(equation: JaxEquation) -> Vanish:
    return LAWS.get(equation.primitive.name, UNKNOWN).vanish


def _needed(jaxpr: OpenJaxpr) -> Iterator[JaxEquation]:
    """Yield the needed equations, without conversions of dtypes: the two traces differ in them."""
    for equation in needed_equations(jaxpr):
        if _vanish(equation) is not CONVERTED:
            yield equation


def _without_steps(jaxpr: OpenJaxpr) -> Iterator[JaxEquation]:
    """Return the equations of `_needed`, without products with powers of two.

    In a narrow dtype a program undoes a scale in several steps, each within the range.
    """
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
    """Note the wide number of a constant whose narrow one is 0, inf or subnormal."""
    if not (is_floating(place.aval) and np.shape(narrow) == np.shape(wide)):
        return
    if is_crushed(wide, place.aval.dtype) and looks_crushed(narrow, place.aval.dtype).any():
        found[id(place)] = np.asarray(wide)
