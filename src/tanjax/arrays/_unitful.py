"""Quantities: an array of any type, times a unit.

A quantity is a chart like any other: the field `value` stands for the dense array of quantities
`value · unit`, and the map is multiplication by a constant. What is special is the *type* of its
tangents: a tangent is in the same unit, a cotangent in its inverse. JAX wants cotangents with the
static data of the primal, so structurally a cotangent is labelled with the primal's unit (that is
what `jax.grad` shows); naturally it is in `1/unit`, and the four maps translate.

    >>> Unitful(3.0, "km").to("m")
    Unitful(3000.0, "m")

Sharp edges. The constructor converts nothing, because JAX runs it to unflatten a compiled result.
The unit is static: plain `jax.jit` compiles anew for every unit, `tj.jit` does not.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import units
from tanjax._errors import UnitError, message
from tanjax.units import Unit

from . import _maps
from ._abstract import AbstractArray, show, static_field
from ._register import array_type, register_array_type

_COMFORTABLE = (6.2e-5, 6.5e4)  # factors that every floating dtype holds


@register_array_type()
class Unitful(AbstractArray):
    """`value` in `unit`: a dense array, a scalar, or a structured array, times a unit.

    **Fields:** `value`; `unit`, static, a `tj.units.Unit` or a text such as `"kg m / s2"`.
    **Maps:** those of the value; cotangents are in `1/unit`.
    **Raises:** `UnitError` if the text is no unit.
    """

    value: Any
    unit: Unit = static_field()

    has_unit = True
    constructor_unflattens = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A quantity of quantities stays what it is: JAX's own Jacobians build them."""
        return object.__new__(cls)

    def __init__(self, value: Any, unit: Any) -> None:
        if type(unit) is not Unit:
            unit = units.unit(unit)
        if type(value) is list:
            value = jnp.asarray(value)
        _write_value(self, value)
        _write_unit(self, unit)

    # -- facts -------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        try:
            return self.value.shape  # type: ignore[no-any-return]
        except AttributeError:  # a Python number
            return tuple(jnp.shape(self.value))

    @property
    def dtype(self) -> Any:
        value = self.value
        return value.dtype if hasattr(value, "dtype") else jnp.result_type(value)

    @property
    def core_ndim(self) -> Any:  # type: ignore[override]
        return getattr(self.value, "core_ndim", None)

    @property
    def is_linear(self) -> bool:  # type: ignore[override]
        kind = array_type(self.value)
        return kind is None or kind.is_linear(self.value)

    @property
    def is_isometric(self) -> bool:  # type: ignore[override]
        kind = array_type(self.value)
        return kind is None or kind.is_isometric(self.value)

    @property
    def is_injective(self) -> bool:  # type: ignore[override]
        kind = array_type(self.value)
        return kind is None or kind.is_injective(self.value)

    # -- conversion --------------------------------------------------------------------------

    def to(self, unit: Any) -> Unitful:
        """The same quantity in another unit. **Raises:** `UnitError` if the dimensions differ.

        **Cost:** one multiplication; nothing if it already has the unit. Integers become floats.
        """
        unit = unit if type(unit) is Unit else units.unit(unit)
        return Unitful(convert(self.value, self.unit, unit), unit)

    def to_value(self, unit: Any) -> Any:
        """The number in a unit: `q.to(unit).value`. **Raises:** `UnitError`, as `to`."""
        return self.to(unit).value

    def plain(self, operation: str) -> Any:
        """The number of a dimensionless quantity. **Raises:** `UnitError` naming the operation."""
        if not (self.unit.is_dimensionless and self.unit.is_linear):
            raise UnitError(
                message(
                    f"{operation}: a quantity in {self.unit} is not a pure number.",
                    hint=f'say which number is meant: `q.to_value("{self.unit}")`.',
                )
            )
        return convert(self.value, self.unit, units.one)

    def to_dense(self) -> Any:
        """The dense array of quantities."""
        return quantity(_maps.destructure(self.value), self.unit)

    # -- the four maps -----------------------------------------------------------------------

    def pushforward_of_destructure(self, structural: Any) -> Any:
        push = _maps.pushforward_of_destructure(self.value)
        return quantity(push(structural.value), self.unit.delta)

    def pullback_of_destructure(self, natural: Any) -> Any:
        plain = _in_unit("a cotangent", self, natural, self.unit.inverse)
        return quantity(_maps.pullback_of_destructure(self.value)(plain), self.unit)

    def pushforward_of_restructure(self, natural: Any) -> Any:
        plain = _in_unit("a tangent", self, natural, self.unit.delta)
        return quantity(_maps.pushforward_of_restructure(self.value)(plain), self.unit)

    def pullback_of_restructure(self, structural: Any) -> Any:
        pull = _maps.pullback_of_restructure(self.value)
        return quantity(pull(structural.value), self.unit.inverse)

    # -- what a natural cotangent can be asked -------------------------------------------------

    def apply(self, b: Any) -> Any:
        return self @ b

    def transposed(self) -> Any:
        return self.mT

    def diagonal(self) -> Any:
        from . import _queries as ask

        return quantity(ask.diagonal(self.value), self.unit)

    def total(self) -> Any:
        from . import _queries as ask

        return quantity(ask.total(self.value), self.unit)

    def block(self, rows: slice, columns: slice) -> Any:
        from . import _queries as ask

        return quantity(ask.block(self.value, rows, columns), self.unit)

    def pair(self, other: Any) -> Any:
        from . import _queries as ask

        if type(other) is Unitful:
            return quantity(ask.pair(self.value, other.value), self.unit * other.unit)
        return quantity(ask.pair(self.value, other), self.unit)

    # -- Python's protocols ----------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The numbers, for NumPy. **Raises:** `UnitError` if the quantity has a dimension."""
        return np.asarray(self.plain("np.asarray"), dtype=dtype)

    def __bool__(self) -> bool:
        return bool(self.plain("bool"))

    def __float__(self) -> float:
        return float(self.plain("float"))

    def __int__(self) -> int:
        return int(self.plain("int"))

    def __complex__(self) -> complex:
        return complex(self.plain("complex"))

    def __len__(self) -> int:
        return len(self.value)

    def __format__(self, spec: str) -> str:
        """`f"{q:.3f}"` formats the numbers; a unit's format may follow: `f"{q:.3f P}"`."""
        number, _, style = spec.partition(" ")
        if style == "" and number in ("P", "L", "~"):
            number, style = "", number
        unit = format(self.unit, style) if self.unit.symbols else ""  # a pure number has no label
        return f"{_format(self.value, number)} {unit}".rstrip()

    def __str__(self) -> str:
        return format(self, "")

    def __repr__(self) -> str:
        return f'Unitful({show(self.value)}, "{self.unit}")'


# The class is slotted, so its fields are descriptors; calling them costs a third of `setattr`.
_write_value, _write_unit = Unitful.value.__set__, Unitful.unit.__set__  # type: ignore[attr-defined]
_new = object.__new__

# The field `unit` under a name that nothing else has: who finds it has found a quantity, without
# asking for the type (1.4 us per 100, of 37 us that a call of a compiled function with 100 takes).
Unitful._quantity_unit = Unitful.unit  # type: ignore[attr-defined]


def quantity(value: Any, unit: Unit) -> Unitful:
    """`Unitful(value, unit)` without any check: for results, 0.15 us."""
    new = _new(Unitful)
    _write_value(new, value)
    _write_unit(new, unit)
    return new


def split_unit(x: Any) -> tuple[Any, Unit]:
    """The number and the unit of a value; the unit of a plain one is 1."""
    return (x.value, x.unit) if type(x) is Unitful else (x, units.one)


def convert(value: Any, a: Unit, b: Unit) -> Any:
    """A number in unit `a` as a number in unit `b`. **Raises:** `UnitError`."""
    if a is b:
        return value
    if a.dimension is not b.dimension or not (a.is_linear and b.is_linear):
        return units.convert(value, a, b, jnp)
    multiplier, divisor = units.conversion(a, b)
    if multiplier != 1.0:
        value = _inexact(value)
        check_range(value, multiplier, a, b)
        return value * multiplier
    if divisor != 1.0:
        value = _inexact(value)
        check_range(value, divisor, a, b)
        return value / divisor
    return value


def _inexact(value: Any) -> Any:
    """Integers as floats, also where JAX promotes nothing by itself (strict promotion)."""
    if array_type(value) is None and hasattr(value, "dtype") and value.dtype.kind in "iub":
        return value.astype(jnp.result_type(float))
    return value


def check_range(value: Any, factor: float, a: Unit, b: Unit) -> None:
    """Raise if a conversion factor is not a normal number of the value's dtype."""
    if _COMFORTABLE[0] <= factor <= _COMFORTABLE[1] or not hasattr(value, "dtype"):
        return
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return
    info = jnp.finfo(value.dtype)
    if not float(info.smallest_normal) <= factor <= float(info.max):
        raise UnitError(
            message(
                f"conversion from {a} to {b}: the factor does not fit in {value.dtype}.",
                f"factor: {factor:g}, normal numbers of {value.dtype}: "
                f"{float(info.smallest_normal):.2g} to {float(info.max):.2g}",
                hint="convert to a wider dtype first, `q.astype(jnp.float32)`, or choose a unit "
                "nearer to the values.",
            )
        )


def _in_unit(what: str, x: Unitful, natural: Any, unit: Unit) -> Any:
    """The number of a natural (co)tangent of `x`, which must be in `unit`."""
    given = natural.unit if type(natural) is Unitful else units.one
    if given.dimension is not unit.dimension:
        raise UnitError(
            message(
                f"{what} of a quantity in {x.unit} must be in {unit}.",
                f"expected: {unit} ({unit.dimension})",
                f"got: {given} ({given.dimension})",
                hint="a tangent has the unit of its primal, a cotangent the inverse unit.",
            )
        )
    value = natural.value if type(natural) is Unitful else natural
    return convert(value, given, unit)


def _format(value: Any, spec: str) -> str:
    """Numbers with a format, element by element where there are several."""
    if isinstance(value, jax.core.Tracer) or array_type(value) is not None:
        return show(value)
    array = np.asarray(value)
    if array.ndim == 0:
        return format(array.item(), spec) if spec else str(value)
    if not spec:
        return np.array2string(array, separator=", ")
    return np.array2string(array, formatter={"all": lambda v: format(v, spec)}, separator=", ")


def _make_quantity(x: Any, unit: Unit) -> Unitful:
    """What `x * unit` means: integers written in the source are numbers like any other."""
    if type(x) is Unitful:
        return quantity(x.value, x.unit * unit)
    if type(x) is int:
        x = float(x)
    if isinstance(x, str | bool) or not (
        np.isscalar(x) or isinstance(x, list | tuple | np.ndarray | jax.Array) or array_type(x)
    ):
        raise UnitError(f"cannot give {type(x).__name__} the unit {unit}.")
    return quantity(jnp.asarray(x) if isinstance(x, list | tuple) else x, unit)


def as_quantity(value: Any, unit: Any = None) -> Unitful:
    """A quantity from anything that says one: `quantity("3 km")`, `quantity([1, 2], "m")`.

    **Arguments:** `value`: a text with number and unit, an array of any type, a number, a list, or
    a quantity (converted to `unit` if that is given). `unit`: a unit or a text.
    **Raises:** `UnitError` if a text cannot be read, a unit is missing, or dimensions differ.
    """
    if isinstance(value, str):
        value = quantity(*units.parse_quantity(value))
    if type(value) is Unitful:
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
