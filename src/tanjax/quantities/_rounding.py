"""Functions that depend on a number in its own unit: rounding, dtypes, digits.

All other functions are homogeneous in their units, so a power of two in a label factors out.
Rounding is not: half a kilometre and five hundred metres round differently, and so do 1 m and
`2^-10 · 1024 m`. These functions get the number at exponent 0. If its dtype does not hold that, the
number is so large that it has no fractional digits, or the function raises `ScaleError`.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax._dtype_range import range_of
from tanjax._typing import Function
from tanjax.arrays import as_array

from ._exponents import settle, unscale
from ._losses import checked
from ._quantity import Quantity, bits_of, is_quantity, unitful
from ._range import shift

# The results of these depend on the unit of a number; `tj.jit` compiles them per unit.
UNIT_DEPENDENT = (
    *("astype", "around", "ceil", "convert_element_type", "fix", "floor", "frexp", "modf"),
    *("ones_like", "rint", "round", "spacing", "trunc"),
)
_ROUNDING = ("around", "ceil", "fix", "floor", "rint", "round", "trunc")
_CASTS = ("astype", "convert_element_type")


def in_its_unit(
    name: str, call: Function, args: Sequence[PyTree], kwargs: dict[str, PyTree]
) -> PyTree:
    """Call a function with the numbers of scaled quantities at exponent 0."""
    q = args[0] if args else None
    if is_quantity(q) and q.label.is_linear:
        if name in _CASTS:
            dtype = args[1] if len(args) > 1 else kwargs.get("dtype", kwargs.get("new_dtype"))
            if dtype is not None:
                return _cast(name, call, q, dtype, args[2:], kwargs)
        if q.label.scale and name == "ones_like":
            return call(unitful(q.stored, q.unit), *args[1:], **kwargs)
        if q.label.scale and name in _ROUNDING and _is_whole(q):
            return q
    plain = [unitful(a.value, a.unit) if _is_scaled(a) else a for a in args]
    return call(*plain, **kwargs)


def _is_scaled(x: PyTree) -> bool:
    return is_quantity(x) and bool(x.label.scale)


def _is_whole(q: Quantity) -> bool:
    """True if every number is so large that it is an integer."""
    bits, span = bits_of(q), range_of(q.dtype)
    return bits is not None and span is not None and bits[0] + q.scale >= span.digits


def _cast(
    name: str, call: Function, q: Quantity, dtype: DTypeLike, rest: PyTree,
    kwargs: dict[str, PyTree],
) -> PyTree:  # fmt: skip
    """Cast to another dtype; first shift numbers that would leave its range at this exponent."""
    kwargs = {k: v for k, v in kwargs.items() if k not in ("dtype", "new_dtype")}
    span, bits = range_of(jnp.dtype(dtype)), bits_of(q)
    if span is None or bits is None:
        q = unitful(q.value, q.unit) if q.label.scale else q
        return call(q, dtype, *rest, **kwargs)
    if bits[0] <= bits[1] and not span.holds(*bits):
        middle = span.centre(*bits[:2])
        label = q.label.scaled(int(bits[1]) - span.highest if middle is None else middle)
        # NumPy's, because JAX may have no float64 for the shift.
        stored = np.asarray(q.stored) if q.dtype.itemsize >= 8 else q.stored
        moved = as_array(shift(stored, q.scale - label.scale))
        number = call(moved, dtype, *rest, **kwargs)
        origin = q.stored, q.label, label
        number = checked(name, lambda x: x, [number], [origin], [q, number])
        result = settle(number, label)
        return result if q.label.scale else unscale(result)
    result = call(q, dtype, *rest, **kwargs)
    return settle(result.stored, result.label) if q.label.scale else result
