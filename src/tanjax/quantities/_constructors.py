"""Quantities from source code: `3.0 * km`, `quantity([1, 2], "m")`, `quantity("3 km")`.

JAX silently casts NumPy's float64 to float32: 1e-68 would be 0. The functions of this module put a
power of two into the label instead.

    >>> import tanjax as tj
    >>> tj.quantity(np.array([1e-68]), "m") * 2.0
    Quantity([2e-68], "m", scale=-226)

Sharp edges. A quantity copies NumPy's arrays, because their owner may change them. A single Python
number stays a Python number, with the range of a float64.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from tanjax import units
from tanjax._dtype_range import range_of
from tanjax._errors import UnitError, message
from tanjax._typing import Arraylike, Natural
from tanjax.arrays import array_type, frozen, held, holds_array
from tanjax.units import Unit

from ._quantity import Quantity, unitful
from ._range import NOTHING, measure, measure_pure, shift


def _make_quantity(x: Arraylike, unit: Unit) -> Quantity:
    """Return `x * unit`; a Python integer becomes a float."""
    if type(x) is Quantity:
        return unitful(x.stored, x.label * unit)
    if type(x) is int:
        x = float(x)
    if isinstance(x, str | bytes | bool) or not (
        np.isscalar(x) or isinstance(x, list | tuple | np.ndarray | jax.Array) or array_type(x)
    ):
        if holds_array(x) and not isinstance(x, list | tuple):
            return _make_quantity(held(x), unit)
        raise UnitError(f"cannot give {type(x).__name__} the unit {unit}.")
    if isinstance(x, np.ndarray):  # the owner may change it, which would change the quantity
        x = frozen(x)
    array = jnp.asarray(x) if isinstance(x, list | tuple) else x
    if type(array) is np.ndarray or (array is not x and not isinstance(array, jax.core.Tracer)):
        return _in_jaxs_dtype(array, np.asarray(x), unit)
    return unitful(array, unit)


def _in_jaxs_dtype(array: Natural, wide: np.ndarray, unit: Unit) -> Quantity:
    """Return NumPy's numbers with a unit; with a power of two if JAX's dtype does not hold them."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    bits, span = measure(wide), range_of(dtype)
    if bits and span and bits[0] <= bits[1] and not span.holds(*bits) and unit.is_linear:
        middle = span.centre(*bits)
        if middle:
            return unitful(jnp.asarray(shift(wide, -middle), dtype), unit.scaled(middle))
    return unitful(array, unit)


def floating(x: Natural, dtype: DTypeLike) -> Natural | Quantity:
    """Cast integers for an operation with a floating dtype; return other values unchanged.

    **Returns:** a quantity in `2^exponent` if the dtype does not hold them: 70000 in float16.
    """
    span, own = range_of(dtype), getattr(x, "dtype", None)
    if span is None or getattr(own, "kind", None) not in ("i", "u") or array_type(x):
        return x
    real = jnp.finfo(dtype).dtype
    x = np.asarray(x) if isinstance(x, int) else x  # an int with a dtype is JAX's typed scalar
    is_known = not isinstance(x, jax.core.Tracer) and getattr(x, "is_fully_addressable", True)
    if int(jnp.iinfo(own).max).bit_length() < span.highest or not is_known:
        return x.astype(real)
    low, high = measure_pure(x) or NOTHING
    if high < span.highest:
        return x.astype(real)
    middle = span.centre(low, high)
    exponent = int(high) - span.highest + 1 if middle is None else middle
    with jax.ensure_compile_time_eval():
        wide = np.asarray(x, np.float64)
        return unitful(jnp.asarray(shift(wide, -exponent), real), units.one.scaled(exponent))


def quantity(value: Arraylike | str, unit: Unit | str | Quantity | None = None) -> Quantity:
    """Return a quantity from a text or a value: `quantity("3 km")`, `quantity([1, 2], "m")`.

    **Arguments:** `value`: a text with number and unit, an array of any type, a number, a list, or
    a quantity (converted to `unit` if you pass it). `unit`: a unit or a text.
    **Raises:** `UnitError` if a text is no quantity, a unit is missing, or dimensions differ.
    """
    if isinstance(value, str):
        value = _make_quantity(*units.parse_quantity(value))
    if type(value) is Quantity:
        return value if unit is None else value.to(unit)
    if unit is None:
        raise UnitError(
            message(
                "quantity: a plain number needs a unit.",
                hint='`tj.quantity(3.0, "km")`, or `tj.quantity("3 km")`.',
            )
        )
    return _make_quantity(value, unit if type(unit) is Unit else units.unit(unit))


units.set_quantity_hook(_make_quantity)
