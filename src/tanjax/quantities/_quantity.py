"""Quantities: an array of any type, times a unit.

A quantity is a chart like other array types: the field `stored` stands for the dense array of
quantities `stored · label`, and the map is multiplication by a constant. Its tangents have special
units: a tangent has the same unit, a cotangent the inverse unit. JAX needs cotangents with the
static data of the primal. So a structural cotangent has the primal's unit as label (as `jax.grad`
shows it), and a natural one is in `1/unit`. The four maps translate.

    >>> Quantity(3.0, "km").to("m")
    Quantity(3000.0, "m")

The `label` holds the unit and a power of two. The value is the stored number times this power; its
exponent is 0 for ordinary values. `_exponents.py` documents when a quantity has another exponent.

Sharp edges. The constructor converts nothing, because JAX runs it to unflatten a compiled result.
The unit is static: plain `jax.jit` compiles again for every unit, `tj.jit` does not.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import math
import operator
import re
from typing import Any, NoReturn, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef
from jax.typing import DTypeLike
from jaxtyping import PyTree, Shaped
from typing_extensions import TypeIs

from tanjax import units
from tanjax._dtype_range import range_of
from tanjax._errors import ScaleError, UnitError, describe, message
from tanjax._typing import AnyArray, Arraylike, DType, Natural, Places, Primal, Scalar
from tanjax.arrays import (
    AbstractArray,
    answers,
    destructure,
    diagonal,
    entries_at,
    fact,
    frozen,
    is_own,
    is_structured,
    pullback_of_destructure,
    pullback_of_restructure,
    pushforward_of_destructure,
    pushforward_of_restructure,
    register_array_type,
    show,
    static_field,
    submatrix,
    total,
)
from tanjax.units import Unit
from tanjax.units.signatures import ANY, Operand, Role, Signature, bind

from ._conversion import bits_in, convert as convert, factor_of, fitting
from ._range import Bits, measure
from ._text import number_text


@register_array_type()
class Quantity(AbstractArray):
    """`value` in `unit`: a dense array, a scalar, or a structured array, times a unit.

    `Quantity(number, unit, scale)`, also `Quantity(value=..., unit=...)`, is `number · 2^scale ·
    unit`. Quantities choose the scale themselves: 0 if the dtype holds the numbers.

    **Fields:** `stored`, the stored number; `label`, static, a `tj.units.Unit` (or a text such as
    `"kg m / s2"`) that includes the power of two.
    **Maps:** those of the value; cotangents are in `1/unit`.
    **Raises:** `UnitError` if the text is no unit.
    """

    stored: PyTree
    label: Unit = static_field()
    # The bits of the stored numbers, once measured; not part of the pytree.
    _bits: Any = dataclasses.field(init=False, repr=False)

    has_unit = True
    constructor_unflattens = True

    @staticmethod
    def outside(
        cls: type[AbstractArray], args: tuple[PyTree, ...], kwargs: dict[str, PyTree]
    ) -> PyTree:
        """Return `cls(*args, **kwargs)` as a quantity: `Diagonal(x * metre)` is in metres."""
        return _outside(cls, args, kwargs)

    def __new__(cls, *args: PyTree, **kwargs: PyTree) -> Self:
        """Allow a quantity of quantities without hoisting: JAX's own Jacobians build them."""
        return object.__new__(cls)

    def __init__(
        self,
        stored: PyTree = None,
        label: Unit | str | Quantity | None = None,
        scale: int = 0,
        *,
        value: PyTree = None,
        unit: Unit | str | Quantity | None = None,
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
        """Raise `AttributeError`: only array types have the constructor signature `units`."""
        raise AttributeError("a quantity has one `unit`, no `units`.")

    @property
    def scale(self) -> int:
        """The exponent of the power of two that multiplies the stored numbers."""
        return self.label.scale

    @property
    def value(self) -> Arraylike:
        """The number in `unit`. **Raises:** `ScaleError` if its dtype cannot hold it.

        Under a trace the number is unknown: the result is the product with `2^scale`, unchecked.
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

    def to(self, unit: Unit | str | Quantity) -> Quantity:
        """Convert to another unit. **Raises:** `UnitError` if the dimensions differ.

        The result is right for every magnitude: it has a scale if the dtype does not hold the
        number. **Cost:** one multiplication; none if it already has the unit. Integers become
        floats.
        """
        return brought(self, unit if type(unit) is Unit else units.unit(unit))

    def to_value(self, unit: Unit | str | Quantity) -> Arraylike:
        """Return `q.to(unit).value`, the number in a unit.

        **Raises:** `UnitError`, `ScaleError`.
        """
        return self.to(unit).value

    def plain(self, operation: str) -> Arraylike:
        """Return the number of a dimensionless quantity.

        **Raises:** `UnitError` with the name of the operation.
        """
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
        """Return the dense array of quantities."""
        return unitful(destructure(self.stored), self.label)

    # -- the four maps -----------------------------------------------------------------------

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        push = pushforward_of_destructure(self.stored)
        return unitful(push(structural.stored), self.label.delta)

    def pullback_of_destructure(self, natural: Natural) -> Quantity:
        plain = _in_unit("a cotangent", self, natural, self.label.inverse)
        return unitful(pullback_of_destructure(self.stored)(plain), self.label)

    def pushforward_of_restructure(self, natural: Natural) -> Quantity:
        plain = _in_unit("a tangent", self, natural, self.label.delta)
        return unitful(pushforward_of_restructure(self.stored)(plain), self.label)

    def pullback_of_restructure(self, structural: Self) -> Natural:
        pull = pullback_of_restructure(self.stored)
        return unitful(pull(structural.stored), self.label.inverse)

    # -- queries of a natural cotangent --------------------------------------------------------

    def apply(self, b: Shaped[AnyArray, " n *k"]) -> Shaped[AnyArray, " m *k"]:
        return self @ b

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.mT

    def diagonal(self) -> Shaped[AnyArray, "... k"]:
        return unitful(diagonal(self.stored), self.label)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[AnyArray, "... p"]:
        return unitful(entries_at(self.stored, rows, columns), self.label)

    def total(self) -> Shaped[AnyArray, " ..."]:
        return unitful(total(self.stored), self.label)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        return unitful(submatrix(self.stored, rows, columns), self.label)

    def inner_product(self, other: Natural) -> Scalar:
        x, (y, unit) = self.stored, split_unit(other)
        if answers(x, "inner_product"):
            product = x.inner_product(y)
        elif answers(y, "inner_product"):
            product = y.inner_product(x)
        else:
            product = jnp.sum(destructure(x) * destructure(y))
        return unitful(product, self.label * unit)

    # -- Python's protocols ----------------------------------------------------------------------

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """Return NumPy's array. **Raises:** `UnitError` if the quantity has a dimension."""
        return np.asarray(self.plain("np.asarray"), dtype=dtype)

    def __bool__(self) -> bool:
        self._check_pure("bool")
        return bool(self.stored)  # zero is zero in every dimensionless unit

    def __float__(self) -> float:
        return float(self._python("float"))

    def __int__(self) -> int:
        return int(self._python("int"))

    def __complex__(self) -> complex:
        return complex(self._python("complex"))

    def _python(self, operation: str) -> Arraylike:
        """Return the pure number as a Python number, with the range of a float64."""
        if not self.label.scale:
            return self.plain(operation)
        self._check_pure(operation)
        return number_in(unitful(np.asarray(self.stored).item(), self.label), units.one)

    def __index__(self) -> int:
        """Return a pure integer as an index, as JAX does."""
        return operator.index(self.plain("index"))

    def __len__(self) -> int:
        return len(self.stored)

    def __format__(self, spec: str) -> str:
        """Format the numbers, `f"{q:.3f}"`; a format of the unit may follow: `f"{q:.3f P}"`."""
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
            return f'Quantity({show(self.stored)}, "{self.label}")'
        text = number_text(self.stored, self.scale, "")
        return f'Quantity({text}, "{self.label}", scale={self.scale})'


# The class is slotted, so its fields are descriptors; a call of one costs a third of `setattr`.
_fields: Any = Quantity
_write_stored, _write_label = _fields.stored.__set__, _fields.label.__set__
note_bits = _write_bits = _fields._bits.__set__  # derived values may follow the two bits
_new = object.__new__

# The field `label` under a unique name: an object with this attribute is a quantity. This test is
# faster than one of the type: it saves 1.4 of the 37 us of a compiled function of 100 quantities.
_fields._quantity_unit = _fields.label


def unitful(stored: PyTree, label: Unit, bits: Bits | None = None) -> Quantity:
    """Make a quantity from its fields, without any check, for results.

    `bits`: the bits of the stored numbers, if the caller knows them without a measurement.
    """
    new = _new(Quantity)
    _write_stored(new, stored)
    _write_label(new, label)
    _write_bits(new, bits)
    return new


def bits_of(q: Quantity) -> Bits | None:
    """Return the bits of the stored numbers, measured once; None for tracers and integers.

    Structured arrays have None, too.
    """
    known = q._bits
    if known is None:
        known = measure(q.stored)
        _write_bits(q, known)
    return known[:2] if known else None  # the tuple may also hold the distances from the ends


def brought(q: Quantity, unit: Unit) -> Quantity:
    """Convert a quantity to a unit, at exponent 0 if the dtype holds it there, else at another.

    **Raises:** `UnitError` if the dimensions differ.
    """
    label = q.label
    if label is unit:
        return q
    linear = label.is_linear and unit.is_linear and label.dimension is unit.dimension
    bits = bits_of(q) if linear else None
    if not linear or bits is None:  # the magnitude is unknown, so the exponent stays
        if linear:
            span, (_, _, power) = range_of(q.dtype), factor_of(label, unit.scaled(label.scale))
            far = span is not None and not span.lowest < power < span.highest
            unit = unit.scaled(label.scale + (power if far else 0))
        return unitful(convert(q.stored, label, unit), unit)
    target = unit.scaled(fitting(bits_in(bits, label, unit), q.dtype))
    if target is not unit:  # the bits may be an estimate, so measure them
        bits = measure(q.stored) or bits
        target = unit.scaled(fitting(bits_in(bits, label, unit), q.dtype))
    return unitful(convert(q.stored, label, target), target, bits_in(bits, label, target))


def number_in(q: Quantity, unit: Unit) -> Arraylike:
    """Return the number of a quantity in a unit, at exponent 0.

    **Raises:** `ScaleError` if the dtype does not hold it: an entry would be inf, or all zero.
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
    """True if every finite entry stayed finite, and not all entries became zero."""
    new, old = np.asarray(number), np.asarray(stored)
    return bool(np.all(np.isfinite(new) >= np.isfinite(old)) and np.any(new) >= np.any(old))


def _too_far(q: Quantity, unit: Unit) -> ScaleError:
    return ScaleError(
        message(
            f"value: a number in {unit} does not fit in {q.dtype}.",
            f"quantity: {describe(q.stored)} · 2^{q.scale} {q.unit}",
            "why: it would be infinite, or vanish.",
            hint="take a larger or smaller unit of this dimension by `q.to`, a wider dtype, "
            "`q.astype(jnp.float64)`, or `q.stored` and `q.scale` as they are.",
        )
    )


def _in_unit(what: str, x: Quantity, natural: Arraylike, unit: Unit) -> Arraylike:
    """Return the number of a (co)tangent of `x`. **Raises:** `UnitError` unless it is in `unit`."""
    given = natural.label if type(natural) is Quantity else units.one
    if given.dimension is not unit.dimension:
        raise UnitError(
            message(
                f"{what} of a quantity in {x.label} must be in {unit}.",
                f"expected: {unit} ({unit.dimension})",
                f"got: {given} ({given.dimension})",
                hint="a tangent has the unit of its primal, a cotangent the inverse unit.",
            )
        )
    value = natural.stored if type(natural) is Quantity else natural
    return convert(value, given, unit)


# -- the number and the label of any value ---------------------------------------------------------


def is_quantity(x: PyTree) -> TypeIs[Quantity]:
    """True if a value, or a node of a tree, is a quantity."""
    return type(x) is Quantity


def stored_of(x: PyTree) -> Primal:
    """Return the stored number of a quantity, and any other value itself."""
    return x.stored if type(x) is Quantity else x


def label_of(x: PyTree) -> Unit | None:
    """Return the unit of a quantity, with its power of two, and `None` for other values."""
    return x.label if type(x) is Quantity else None


def split_unit(x: PyTree) -> tuple[PyTree, Unit]:
    """Return the number and the unit of a value; the unit of a plain value is 1."""
    return (x.stored, x.label) if type(x) is Quantity else (x, units.one)


def taken_apart(tree: PyTree) -> tuple[list[Primal], list[Unit | None], PyTreeDef]:
    """Return the numbers and labels of the arrays of a tree, and its treedef.

    Structured arrays count as leaves.
    """
    leaves, treedef = jax.tree.flatten(tree, is_leaf=is_structured)
    return [stored_of(x) for x in leaves], [label_of(x) for x in leaves], treedef


# -- arrays of quantities: the unit moves outside --------------------------------------------------


def _outside(
    cls: type[AbstractArray], args: tuple[PyTree, ...], kwargs: dict[str, PyTree]
) -> PyTree:
    """Return `cls(*args, **kwargs)` as a quantity, if some fields are quantities.

    **Raises:** `UnitError` if the units do not fit together, or if the type has no `units`.
    """
    if callable(cls.units):
        parts = dict(zip(cls._dynamic, args, strict=False)) | kwargs
        own = {field: split_unit(x)[1] for field, x in parts.items() if x is not None}
        wanted, unit = cls.units(**own)
        for field, old in own.items():
            parts[field] = convert(stored_of(parts[field]), old, wanted.get(field, old))
        return unitful(cls(**parts), unit)
    if cls.units == "product":
        return _product(cls, args)
    name = cls.__name__
    if cls.units is None:
        raise UnitError(
            message(
                f"{name}: a field cannot be a quantity.",
                hint=f"make it of plain numbers, `tj.Quantity({name}(...), unit)`, or say what "
                f'the constructor does to units: `units = "field: u -> u"` in the class.',
            )
        )
    signature = Signature.parse(cls.units)
    fields = [field for field, _ in signature.roles]
    operands: list[Operand] = []
    given: list[tuple[PyTree, PyTree]] = [*enumerate(args), *kwargs.items()]
    for place, value in given:
        field = place if isinstance(place, str) else fields[place] if place < len(fields) else ""
        role = signature.role(field) or (signature.variadic[1] if signature.variadic else None)
        unit = label_of(value)
        if role is None and unit is None:
            continue
        zero = type(value) in (int, float) and value == 0
        operands.append((role or Role("-"), ANY if zero else unit, field or f"argument {place}"))
    binding: dict[str, Any] = bind(name, operands)  # a `Unit` for every letter with a quantity

    def plain(value: PyTree, role: Role | None) -> PyTree:
        if not is_quantity(value) or role is None:
            return value
        target = units.one if role.letter == "1" else binding[role.letter]
        return convert(value.stored, value.label, target)

    roles = [role for _, role in signature.roles]
    extra = signature.variadic[1] if signature.variadic else None
    new_args = [plain(a, roles[i] if i < len(roles) else extra) for i, a in enumerate(args)]
    new_kwargs = {k: plain(v, signature.role(k)) for k, v in kwargs.items()}
    out: Any = signature.out  # a `Monomial`: the result is one array
    unit, made = out.unit(binding), cls(*new_args, **new_kwargs)
    return made if unit is None else unitful(made, unit)


def _product(cls: type[AbstractArray], factors: tuple[PyTree, ...]) -> PyTree:
    """Construct from any number of factors; the unit is the product of their units."""
    values, units = zip(*map(split_unit, factors), strict=True)
    return unitful(cls(*values), functools.reduce(operator.mul, units))
