"""Quantities: an array of any type, times a unit.

A quantity is a chart like any other: the field `stored` stands for the dense array of quantities
`stored · label`, and the map is multiplication by a constant. What is special is the *type* of its
tangents: a tangent is in the same unit, a cotangent in its inverse. JAX wants cotangents with the
static data of the primal, so structurally a cotangent is labelled with the primal's unit (that is
what `jax.grad` shows); naturally it is in `1/unit`, and the four maps translate.

    >>> Unitful(3.0, "km").to("m")
    Unitful(3000.0, "m")

The unit is kept with a power of two in a `label`, 0 for ordinary values, by which the stored number
is smaller than the value: `_scaling` says when a quantity takes one.

Sharp edges. The constructor converts nothing, because JAX runs it to unflatten a compiled result.
The unit is static: plain `jax.jit` compiles anew for every unit, `tj.jit` does not.
"""

from __future__ import annotations

import dataclasses
import html
import math
import operator
import re
from typing import Any, NoReturn, Self

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree, Shaped

from tanjax import units
from tanjax._dtype_range import range_of
from tanjax._errors import ScaleError, UnitError, describe, message
from tanjax._typing import AnyArray, Arraylike, DType, Natural, Places, Scalar
from tanjax.units import Unit

from .. import _queries as ask
from .._abstract import AbstractArray, static_field
from .._leaves import frozen
from .._register import register_array_type
from .._show import show
from .._table import fact, is_own
from ..maps._destructure import destructure, pullback_of_destructure, pushforward_of_destructure
from ..maps._restructure import pullback_of_restructure, pushforward_of_restructure
from ._conversion import bits_in, convert as convert, factor_of, fitting
from ._range import Bits, measure
from ._text import number_text


@register_array_type()
class Unitful(AbstractArray):
    """`value` in `unit`: a dense array, a scalar, or a structured array, times a unit.

    `Unitful(number, unit, scale)`, also `Unitful(value=..., unit=...)`, is `number · 2^scale ·
    unit`; quantities choose the scale themselves, 0 where the dtype holds the numbers.

    **Fields:** `stored`, the number as it is stored; `label`, static, a `tj.units.Unit` (or a text
    such as `"kg m / s2"`) that includes the power of two.
    **Maps:** those of the value; cotangents are in `1/unit`.
    **Raises:** `UnitError` if the text is no unit.
    """

    stored: PyTree
    label: Unit = static_field()
    # Where the stored numbers lie, if anybody has looked: no part of the pytree.
    _bits: Any = dataclasses.field(init=False, repr=False)

    has_unit = True
    constructor_unflattens = True

    def __new__(cls, *args: PyTree, **kwargs: PyTree) -> Self:
        """A quantity of quantities stays what it is: JAX's own Jacobians build them."""
        return object.__new__(cls)

    def __init__(
        self,
        stored: PyTree = None,
        label: Unit | str | Unitful | None = None,
        scale: int = 0,
        *,
        value: PyTree = None,
        unit: Unit | str | Unitful | None = None,
    ) -> None:
        stored, label = (stored if value is None else value), (label if unit is None else unit)
        if type(label) is not Unit:
            label = units.unit(label)
        if type(stored) is list:
            stored = jnp.asarray(stored)
        elif type(stored) is np.ndarray:
            stored = frozen(stored)
        _write_stored(self, stored)
        _write_label(self, label.scaled(scale) if scale else label)
        _write_bits(self, None)

    @property
    def unit(self) -> Unit:
        """The unit, without the power of two."""
        return self.label.plain

    @property
    def units(self) -> NoReturn:  # type: ignore[override]
        """Not here: what the constructor of a type says about units is none of a quantity."""
        raise AttributeError("a quantity has one `unit`, no `units`.")

    @property
    def scale(self) -> int:
        """The exponent of the power of two by which the stored numbers are multiplied."""
        return self.label.scale

    @property
    def value(self) -> Arraylike:
        """The number in `unit`. **Raises:** `ScaleError` if its dtype cannot hold it.

        Under a trace, where nobody knows the number, it is multiplied by `2^scale` as it is.
        """
        label = self.label
        return number_in(self, label.plain) if label.scale else self.stored

    # -- facts -------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        try:
            return self.stored.shape
        except AttributeError:  # a Python number
            return tuple(jnp.shape(self.stored))

    @property
    def dtype(self) -> DType:
        value = self.stored
        return value.dtype if hasattr(value, "dtype") else jnp.result_type(value)

    @property
    def core_ndim(self) -> int | None:
        return getattr(self.stored, "core_ndim", None)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.stored.batch_shape if is_own(self.stored) else ()

    @property
    def is_linear(self) -> bool:
        return fact(self.stored, "is_linear")

    @property
    def is_isometric(self) -> bool:
        return fact(self.stored, "is_isometric")

    @property
    def is_injective(self) -> bool:
        return fact(self.stored, "is_injective")

    # -- conversion --------------------------------------------------------------------------

    def to(self, unit: Unit | str | Unitful) -> Unitful:
        """The same quantity in another unit. **Raises:** `UnitError` if the dimensions differ.

        Right for every magnitude: where the dtype does not hold the number, the result has a scale.
        **Cost:** one multiplication; nothing if it already has the unit. Integers become floats.
        """
        return brought(self, unit if type(unit) is Unit else units.unit(unit))

    def to_value(self, unit: Unit | str | Unitful) -> Arraylike:
        """The number in a unit: `q.to(unit).value`. **Raises:** `UnitError`, `ScaleError`."""
        return self.to(unit).value

    def plain(self, operation: str) -> Arraylike:
        """The number of a dimensionless quantity. **Raises:** `UnitError` naming the operation."""
        self._check_pure(operation)
        return number_in(self, units.one)

    def _check_pure(self, operation: str) -> None:
        if not (self.label.is_dimensionless and self.label.is_linear):
            raise UnitError(
                message(
                    f"{operation}: a quantity in {self.label} is not a pure number.",
                    hint=f'say which number is meant: `q.to_value("{self.label}")`.',
                )
            )

    def to_dense(self) -> Shaped[AnyArray, " ..."]:
        """The dense array of quantities."""
        return unitful(destructure(self.stored), self.label)

    # -- the four maps -----------------------------------------------------------------------

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        push = pushforward_of_destructure(self.stored)
        return unitful(push(structural.stored), self.label.delta)

    def pullback_of_destructure(self, natural: Natural) -> Unitful:
        plain = _in_unit("a cotangent", self, natural, self.label.inverse)
        return unitful(pullback_of_destructure(self.stored)(plain), self.label)

    def pushforward_of_restructure(self, natural: Natural) -> Unitful:
        plain = _in_unit("a tangent", self, natural, self.label.delta)
        return unitful(pushforward_of_restructure(self.stored)(plain), self.label)

    def pullback_of_restructure(self, structural: Self) -> Natural:
        pull = pullback_of_restructure(self.stored)
        return unitful(pull(structural.stored), self.label.inverse)

    # -- what a natural cotangent can be asked -------------------------------------------------

    def apply(self, b: Shaped[AnyArray, " n *k"]) -> Shaped[AnyArray, " m *k"]:
        return self @ b

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.mT

    def diagonal(self) -> Shaped[AnyArray, "... k"]:
        return unitful(ask.diagonal(self.stored), self.label)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[AnyArray, "... p"]:
        return unitful(ask.entries_at(self.stored, rows, columns), self.label)

    def total(self) -> Shaped[AnyArray, " ..."]:
        return unitful(ask.total(self.stored), self.label)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        return unitful(ask.submatrix(self.stored, rows, columns), self.label)

    def inner_product(self, other: Natural) -> Scalar:
        if type(other) is Unitful:
            return unitful(ask.inner_product(self.stored, other.stored), self.label * other.label)
        return unitful(ask.inner_product(self.stored, other), self.label)

    # -- Python's protocols ----------------------------------------------------------------------

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """The numbers, for NumPy. **Raises:** `UnitError` if the quantity has a dimension."""
        return np.asarray(self.plain("np.asarray"), dtype=dtype)

    def __bool__(self) -> bool:
        self._check_pure("bool")
        return bool(self.stored)  # whatever the unit: zero is zero

    def __float__(self) -> float:
        return float(self._python("float"))

    def __int__(self) -> int:
        return int(self._python("int"))

    def __complex__(self) -> complex:
        return complex(self._python("complex"))

    def _python(self, operation: str) -> Arraylike:
        """The pure number as one of Python's, which has the range of a float64."""
        if not self.label.scale:
            return self.plain(operation)
        self._check_pure(operation)
        return number_in(unitful(np.asarray(self.stored).item(), self.label), units.one)

    def __index__(self) -> int:
        """A pure integer may be an index, as one of JAX may."""
        return operator.index(self.plain("index"))

    def __len__(self) -> int:
        return len(self.stored)

    def __format__(self, spec: str) -> str:
        """`f"{q:.3f}"` formats the numbers; a unit's format may follow: `f"{q:.3f P}"`."""
        number, _, style = spec.partition(" ")
        if style == "" and number in ("P", "L", "~"):
            number, style = "", number
        unit = format(self.label, style) if self.unit.symbols else ""  # a pure number has no label
        return f"{number_text(self.stored, self.scale, number)} {unit}".rstrip()

    def __str__(self) -> str:
        return format(self, "")

    def _repr_latex_(self) -> str:
        number = number_text(self.stored, self.scale, "")
        number = re.sub(r"(?<=[\d.])e\+?(-?)0*(\d+)", r" \\times 10^{\1\2}", number)
        unit = format(self.label, "L") if self.unit.symbols else ""
        return rf"${number}\;{unit}$" if unit else f"${number}$"

    def _repr_html_(self) -> str:
        return f"<span>{html.escape(format(self, 'P'))}</span>"

    def __repr__(self) -> str:
        if not self.label.scale:
            return f'Unitful({show(self.stored)}, "{self.label}")'
        text = number_text(self.stored, self.scale, "")
        return f'Unitful({text}, "{self.label}", scale={self.scale})'


# The class is slotted, so its fields are descriptors; calling them costs a third of `setattr`.
_fields: Any = Unitful
_write_stored, _write_label = _fields.stored.__set__, _fields.label.__set__
note_bits = _write_bits = _fields._bits.__set__  # behind the bits stands what follows from them
_new = object.__new__

# The field `label` under a name that nothing else has: who finds it has found a quantity, without
# asking for the type (1.4 us per 100, of 37 us that a call of a compiled function with 100 takes).
_fields._quantity_unit = _fields.label


def unitful(stored: PyTree, label: Unit, bits: Bits | None = None) -> Unitful:
    """A quantity from its fields, without any check: for results, 0.15 us.

    `bits`: where the stored numbers lie, if that is known without looking.
    """
    new = _new(Unitful)
    _write_stored(new, stored)
    _write_label(new, label)
    _write_bits(new, bits)
    return new


def bits_of(q: Unitful) -> Bits | None:
    """Where the stored numbers lie; looked at once. None of tracers, integers and structured."""
    known = q._bits
    if known is None:
        known = measure(q.stored)
        _write_bits(q, known)
    return known[:2] if known else None  # beside them may be how far they are from the ends


def brought(q: Unitful, unit: Unit) -> Unitful:
    """A quantity in a unit, at exponent 0 if the dtype holds it there, else at one where it does.

    **Raises:** `UnitError` if the dimensions differ.
    """
    label = q.label
    if label is unit:
        return q
    linear = label.is_linear and unit.is_linear and label.dimension is unit.dimension
    bits = bits_of(q) if linear else None
    if not linear or bits is None:  # nobody can say where it lies: it keeps its exponent
        if linear:
            span, (_, _, power) = range_of(q.dtype), factor_of(label, unit.scaled(label.scale))
            far = span is not None and not span.lowest < power < span.highest
            unit = unit.scaled(label.scale + (power if far else 0))
        return unitful(convert(q.stored, label, unit), unit)
    target = unit.scaled(fitting(bits_in(bits, label, unit), q.dtype))
    if target is not unit:  # the bits may be those of an estimate
        bits = measure(q.stored) or bits
        target = unit.scaled(fitting(bits_in(bits, label, unit), q.dtype))
    return unitful(convert(q.stored, label, target), target, bits_in(bits, label, target))


def number_in(q: Unitful, unit: Unit) -> Arraylike:
    """The number of a quantity in a unit, at exponent 0.

    **Raises:** `ScaleError` if the dtype does not hold it: it would be inf, or zero altogether.
    """
    span, bits = range_of(q.dtype), measure(q.stored)
    if span is not None and bits is not None and q.label.is_linear and unit.is_linear:
        _, high = bits_in(bits, q.label, unit)
        if high > span.highest or -math.inf < high <= span.lowest:
            number = convert(q.stored, q.label, unit)
            if _of_same_kind(number, q.stored):
                return number
            raise _too_far(q, unit)
    return convert(q.stored, q.label, unit)


def _of_same_kind(number: PyTree, stored: PyTree) -> bool:
    """Whether a number is finite where it was, and did not vanish altogether."""
    new, old = np.asarray(number), np.asarray(stored)
    return bool(np.all(np.isfinite(new) >= np.isfinite(old)) and np.any(new) >= np.any(old))


def _too_far(q: Unitful, unit: Unit) -> ScaleError:
    return ScaleError(
        message(
            f"value: a number in {unit} does not fit in {q.dtype}.",
            f"quantity: {describe(q.stored)} · 2^{q.scale} {q.unit}",
            "why: it would be infinite, or vanish.",
            hint="take a larger or smaller unit of this dimension by `q.to`, a wider dtype, "
            "`q.astype(jnp.float64)`, or `q.stored` and `q.scale` as they are.",
        )
    )


def _in_unit(what: str, x: Unitful, natural: Arraylike, unit: Unit) -> Arraylike:
    """The number of a natural (co)tangent of `x`, which must be in `unit`."""
    given = natural.label if type(natural) is Unitful else units.one
    if given.dimension is not unit.dimension:
        raise UnitError(
            message(
                f"{what} of a quantity in {x.label} must be in {unit}.",
                f"expected: {unit} ({unit.dimension})",
                f"got: {given} ({given.dimension})",
                hint="a tangent has the unit of its primal, a cotangent the inverse unit.",
            )
        )
    value = natural.stored if type(natural) is Unitful else natural
    return convert(value, given, unit)
