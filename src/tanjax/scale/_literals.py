"""Constants that did not survive tracing: `6.67e-11 * x` with `x` in float16.

JAX rounds a Python number to the dtype of its partner while it traces, so `6.67e-11` is 0 before
any graph is made. NumPy notices (a floating-point flag of the cast); then the function is traced
once more with float64 in place of its floating arguments, and the two jaxprs are read side by side:
where a literal became 0, inf or subnormal, the number of the wide trace takes its place.

Sharp edges. A function that asks for the dtype of its arguments may be another program in float64;
if the jaxprs differ by more than conversions of dtypes nothing is restored, and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import _compat

from ._graph import is_floating, nested_jaxprs


class Crushed:
    """Whether a number was crushed by a cast while this context was open."""

    def __init__(self) -> None:
        self.seen = False
        self._state: Any = None

    def _note(self, *_: Any) -> None:
        self.seen = True

    def __enter__(self) -> Crushed:
        self._state = np.errstate(over="call", under="call", call=self._note)
        self._state.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._state.__exit__(*error)


class _Differs(Exception):
    """The wide trace is another program."""


def wide_trace(fun: Callable[..., Any], arguments: list[Any]) -> Any:
    """The closed jaxpr of `fun` with float64 (complex128) in place of floating arguments."""
    with jax.enable_x64(True):
        return jax.make_jaxpr(fun)(*map(_widened, arguments))


def _widened(x: Any) -> Any:
    if not is_floating(x):
        return x
    wide = jnp.complex128 if jnp.issubdtype(x.dtype, jnp.complexfloating) else jnp.float64
    return jax.ShapeDtypeStruct(x.shape, wide)


def restored_literals(narrow: Any, wide: Any) -> dict[int, Any] | None:
    """The numbers of crushed literals by the `id` of the literal; None if the programs differ."""
    for equations in (_needed, _without_steps):
        found: dict[int, Any] = {}
        try:
            _match(narrow, wide, found, equations)
        except _Differs:
            continue
        return found
    return None


_Equations = Callable[[Any], Iterator[Any]]


def _match(narrow: Any, wide: Any, found: dict[int, Any], equations: _Equations) -> None:
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
        for inner, outer in zip(nested_jaxprs(equation), nested_jaxprs(other), strict=True):
            _match(inner, outer, found, equations)
    if next(theirs, None) is not None:
        raise _Differs


def _consts(narrow: Any, wide: Any) -> tuple[list[Any], list[Any]]:
    return list(getattr(narrow, "consts", ())), list(getattr(wide, "consts", ()))


def _needed(jaxpr: Any) -> Iterator[Any]:
    """The equations, without the conversions of dtypes that one of two traces may not need."""
    for equation in _compat.needed_equations(jaxpr):
        if equation.primitive.name != "convert_element_type":
            yield equation


def _without_steps(jaxpr: Any) -> Iterator[Any]:
    """The same without products with powers of two: a scale is undone in steps that fit."""
    return (
        e
        for e in _needed(jaxpr)
        if not (e.primitive.name == "mul" and any(map(_is_step, e.invars)))
    )


def _is_step(v: Any) -> bool:
    number = getattr(v, "val", None)
    if number is None or np.ndim(number) or not is_floating(v.aval):
        return False
    return math.frexp(abs(float(number.real)))[0] == 0.5 and not number.imag


def _operands(equation: Any, other: Any, found: dict[int, Any]) -> None:
    if len(equation.invars) != len(other.invars):
        raise _Differs
    for v, w in zip(equation.invars, other.invars, strict=True):
        if hasattr(v, "val") and hasattr(w, "val"):
            _compare(v, v.val, w.val, found)


def _compare(place: Any, narrow: Any, wide: Any, found: dict[int, Any]) -> None:
    """Note the wide number of a constant whose narrow one is 0, inf or subnormal instead."""
    if not (is_floating(place.aval) and np.shape(narrow) == np.shape(wide)):
        return
    a = np.asarray(narrow).astype(np.complex128)
    b = np.asarray(wide).astype(np.complex128)
    tiny = float(jnp.finfo(place.aval.dtype).smallest_normal)
    crushed = (np.isinf(a) & np.isfinite(b)) | ((np.abs(a) < tiny) & (b != 0))
    if crushed.any():
        found[id(place)] = np.asarray(wide)
