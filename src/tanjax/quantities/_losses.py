"""Warnings for entries that are lost if quantities share one exponent.

An array has one power of two, so a sun and a brick cannot both stand in one float16: at a common
exponent the brick underflows to zero. Often that does not matter: their sum and their maximum are
those of the sun. For a stack of both it does. A second call decides: each lost number is replaced
by the smallest one. If that changes the result, tanjax warns.

    checked("stack", stack, [sun, 0.0], [None, (brick, kg, kg.scaled(90))], [sun, brick])  # warns

Sharp edges. The second call runs only if something is lost; the bits of the quantities show that in
1 us. Tracers, integers and structured arrays are not checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax._compat import Tracer
from tanjax._dtype_range import range_of
from tanjax._typing import Function
from tanjax.arrays import is_structured
from tanjax.units import Unit

from ._conversion import bits_in, convert
from ._exponents import warn_too_wide
from ._operands import is_weak, narrowest
from ._quantity import is_quantity, split_unit
from ._range import NOTHING, measure_pure

Origin = (
    tuple[PyTree, Unit, Unit] | None
)  # a number as it was, its label, the label it was brought to


def checked(
    operation: str,
    call: Function,
    numbers: Sequence[PyTree],
    origins: Sequence[Origin],
    given: PyTree,
) -> PyTree:
    """Return `call(*numbers)`, and warn if its result depends on something that was lost.

    **Arguments:** `origins`: the source of each number, `None` if it is unchanged; `given`: a tree
    of all user arguments, for the dtype of Python numbers and for the message.
    """
    result = call(*numbers)
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(result)):
        return result  # tracers hide whether a constant is lost
    found = _lost(numbers, origins, given)
    if not found:
        return result
    nearly = [found.get(i, x) for i, x in enumerate(numbers)]
    if _differ(result, call(*nearly)):
        _warn(operation, origins, given)
    return result


def _warn(operation: str, origins: Sequence[Origin], given: PyTree) -> None:
    """Warn with the range of the numbers; skip integers, which may be counts or axes."""
    low, high = NOTHING
    parts = [split_unit(x) for x in _leaves(given) if type(x) is not int]
    for stored, label in [*parts, *(o[:2] for o in origins if o)]:
        bits = measure_pure(stored)
        if bits is not None and bits[0] <= bits[1] and label.is_linear:
            own = bits_in(bits, label, label.plain)
            low, high = min(low, own[0]), max(high, own[1])
    warn_too_wide(operation, low, high, narrowest(given))


def _lost(numbers: Sequence[PyTree], origins: Sequence[Origin], given: PyTree) -> dict[int, PyTree]:
    """Return the numbers with lost entries, each lost entry replaced by the smallest number."""
    found: dict[int, PyTree] = {}
    for i, (number, origin) in enumerate(zip(numbers, origins, strict=True)):
        if origin is None:
            continue
        was, a, b = origin
        bits = measure_pure(was)
        if bits is None or bits[0] > bits[1] or a is b or not (a.is_linear and b.is_linear):
            continue
        # A Python number takes the dtype of its partners.
        dtype = narrowest(given) if is_weak(number) else number.dtype
        span = range_of(dtype) if dtype is not None else None
        if span is None or bits_in(bits, a, b)[0] >= span.lowest:
            continue
        nearly = _with_the_smallest(was, number, a, b, dtype)
        if nearly is not None:
            found[i] = nearly
    return found


def _with_the_smallest(was: PyTree, number: PyTree, a: Unit, b: Unit, dtype: DTypeLike) -> PyTree:
    """Replace lost entries of a number by the smallest normal number; `None` if no entry is lost.

    An entry that is exact as a subnormal number is not lost.
    """
    span = range_of(dtype)
    assert span is not None
    with jax.ensure_compile_time_eval():
        old, new = _wide(was), _wide(number)
    with np.errstate(all="ignore"):
        least = math.ldexp(1.0, span.lowest)
        exact = _wide(convert(old, a, b))
        close = abs(new - exact) <= abs(exact) * 2.0 ** (2 - span.digits)
        gone = True if is_weak(number) else (new == 0) | ~close
        lost = (old != 0) & np.isfinite(old) & (abs(new) < least) & gone
        if not np.any(lost):
            return None
        nearly = np.where(lost, old / np.where(lost, abs(old), 1.0) * least, new)
    if not hasattr(number, "dtype"):
        return nearly.item()
    return nearly.astype(jnp.finfo(dtype).dtype if is_weak(number) else number.dtype)


def _wide(x: PyTree) -> PyTree:
    array = np.asarray(x)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _differ(result: PyTree, other: PyTree) -> bool:
    """True if two results differ by more than rounding."""
    pairs = zip(_leaves(result), _leaves(other), strict=True)
    return any(_differs(x, y) for x, y in pairs)


def _leaves(tree: PyTree) -> list[PyTree]:
    return jax.tree.leaves(tree, is_leaf=is_quantity)


def _differs(x: PyTree, y: PyTree) -> bool:
    span = range_of(x.dtype) if hasattr(x, "dtype") else None
    (x, of_x), (y, of_y) = split_unit(x), split_unit(y)  # one of them may have an exponent
    shift = of_y.scale - of_x.scale
    if is_structured(x):
        return False  # structured arrays are not compared
    a, b = np.asarray(x), np.asarray(y)
    if span is None or a.shape != b.shape:
        return a.shape != b.shape or bool(np.any(a != b))
    with np.errstate(all="ignore"):
        a, b = _wide(a), _wide(b) * np.exp2(shift)  # in float64, which holds both
        near = abs(a - b) <= np.maximum(abs(a), abs(b)) * 2.0 ** (3 - span.digits)
        return bool(np.any(~(near | (a == b) | (np.isnan(a) & np.isnan(b)))))
