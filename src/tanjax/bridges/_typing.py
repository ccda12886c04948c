"""Annotations with a shape and a dimension: `Quantity["m/s", Float, "n"]`.

jaxtyping writes the shape and the dtype of an array into a signature, and can check them. A
quantity also has a dimension. `Quantity[...]` joins both. The annotation is a class whose
`isinstance` checks first the unit and then jaxtyping. So sizes of one name must agree across all
arguments of a function under `jaxtyping.jaxtyped` (with beartype or another checker), or under
`checked`. The latter needs no checker and raises the library's own errors.

    @tj.typing.checked
    def travel(v: Quantity["m/s", Float, "n"], t: Quantity["time"]) -> Quantity["m", Float, "n"]:
        return v * t

Any unit of the dimension is right: a function for `m/s` takes `km/h`. Without `jaxtyped` or
`checked` there is no check, and no cost.

Sharp edges. Annotations state units for people and for run time; static type checkers cannot read
the texts in them. A plain number is no `Quantity["1"]`: write `Quantity["1"] | float`.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Hashable, Iterator
from typing import Any, TypeAlias

import jaxtyping
from jaxtyping import PyTree

from tanjax import units
from tanjax._errors import ShapeError, UnitError, describe, message
from tanjax._typing import Function
from tanjax.quantities import is_quantity
from tanjax.units import Dimension, Unit

# Names of physical dimensions, each with a unit of the dimension.
_DIMENSIONS = {
    "acceleration": "m/s^2",
    "amount": "mol",
    "angle": "rad",
    "area": "m^2",
    "capacitance": "F",
    "charge": "C",
    "conductance": "S",
    "current": "A",
    "density": "kg/m^3",
    "dimensionless": "1",
    "energy": "J",
    "entropy": "J/K",
    "force": "N",
    "frequency": "Hz",
    "inductance": "H",
    "length": "m",
    "luminosity": "cd",
    "magnetic field": "T",
    "magnetic flux": "Wb",
    "mass": "kg",
    "momentum": "kg m/s",
    "power": "W",
    "pressure": "Pa",
    "resistance": "ohm",
    "speed": "m/s",
    "temperature": "K",
    "time": "s",
    "torque": "N m",
    "velocity": "m/s",
    "viscosity": "Pa s",
    "voltage": "V",
    "volume": "m^3",
}
_made: dict[tuple[Hashable, ...], type] = {}

Unitlike: TypeAlias = str | Unit | Dimension
# The parts of an annotation: classes, unions, types of jaxtyping. They have no common class.
Hint: TypeAlias = Any


class _QuantityType(type):
    """The class of `Quantity[...]`: makes annotations and answers `isinstance`."""

    dimension: Dimension | None
    array: Hint
    over_value: bool

    def __getitem__(cls, item: Unitlike | tuple[PyTree, ...]) -> type:
        if cls is not Quantity:
            raise TypeError(f"{cls.__name__} has its unit and shape already.")
        unit, *array = item if isinstance(item, tuple) else (item,)
        key = (unit, *array)
        if key not in _made:
            text = unit if isinstance(unit, str) else f"{unit}"
            named = _DIMENSIONS.get(text, unit) if isinstance(unit, str) else unit
            dimension = named if type(named) is Dimension else units.unit(named).dimension
            kind, over_value = _array_type(array)
            parts = [f'"{text}"', *map(_spell, array)]
            namespace = {
                "dimension": dimension,
                "array": kind,
                "over_value": over_value,
                "__module__": "builtins",  # unions then show the name alone, as beartype requires
                "__doc__": f"A quantity of dimension {dimension}.",
            }
            name = f"Quantity[{', '.join(parts)}]"
            _made[key] = _QuantityType(name, (Quantity,), namespace)
        return _made[key]

    def __instancecheck__(cls, x: PyTree) -> bool:
        return _fault(cls, x) is None

    def __repr__(cls) -> str:
        return cls.__name__


class Quantity(metaclass=_QuantityType):
    """The type of quantities with a dimension and a shape, for annotations and `isinstance`.

    `Quantity["m/s"]`, `Quantity["speed"]` and `Quantity[tj.units.metre]`: a dimension, by a unit
    or by its name. `Quantity["m", Float, "n k"]`: also a dtype and a shape, of any kind of value
    (dense, NumPy, structured). `Quantity["m", Float[Array, "n"]]` and
    `Quantity["m", Float[tj.Diagonal, "n n"]]`: the annotation is that of the value.
    `Quantity["m", tj.Diagonal]`: the class of the value.

    **Raises:** `UnitError` for an unknown unit or dimension; `TypeError` for anything else that
    makes no annotation.
    """

    dimension = None
    array: Hint = None
    over_value = False


def _spell(part: Hint) -> str:
    """Return one part of an annotation as it is written in the source."""
    if isinstance(part, str):
        return f'"{part}"'
    if isinstance(part, type) and issubclass(part, jaxtyping.AbstractArray):
        of = getattr(part.array_type, "__name__", str(part.array_type)).rpartition(".")[2]
        return f'{part.dtype.__name__}[{of}, "{part.dim_str}"]'
    if _members(part):
        return " | ".join(map(_spell, _members(part)))
    return "None" if part is type(None) else getattr(part, "__name__", repr(part))


def _array_type(array: list[Hint]) -> tuple[Hint, bool]:
    """Return the type for `isinstance` of the array, and whether it is for the value alone."""
    if not array:
        return None, False
    kind, *shape = array
    if isinstance(kind, str):
        kind, shape = jaxtyping.Shaped, array
    if isinstance(kind, type) and issubclass(kind, jaxtyping.AbstractDtype):
        if len(shape) <= 1 and all(isinstance(s, str) for s in shape):
            # A quantity itself has a shape and a dtype, for any kind of value.
            return kind[typing.Any, *(shape or ["..."])], False
    elif not shape and (isinstance(kind, type | types.UnionType) or _members(kind)):
        return kind, True
    raise TypeError(
        message(
            f"Quantity: `{array}` describes no array.",
            hint='write `Quantity["m", Float, "n k"]` or `Quantity["m", Float[Array, "n k"]]`.',
        )
    )


def _fault(cls: _QuantityType, x: PyTree) -> type[Exception] | None:
    """Return the error for a value of another type: `UnitError`, `ShapeError` or `None`."""
    if not is_quantity(x):
        return UnitError
    if cls.dimension is not None and x.label.dimension is not cls.dimension:
        return UnitError
    if cls.array is None:
        return None
    # Member by member: `isinstance` with a `typing.Union` would check only classes.
    array = x.stored if cls.over_value else x
    fits = any(isinstance(array, kind) for kind in _members(cls.array) or (cls.array,))
    return None if fits else ShapeError


def checked(function: Function) -> Function:
    """Check the arguments and the result of a function against its annotations, on every call.

    It checks `Quantity[...]`, jaxtyping's arrays, and unions, tuples, lists and dicts of them;
    other annotations are left to type checkers. Sizes with one name must agree in the whole
    signature. Under `jit` the check runs when the function is traced.

    **Returns:** the function with checks.
    **Raises:** `UnitError` for a wrong dimension, or for a quantity instead of a plain array or
    the reverse; `ShapeError` for a wrong shape or dtype. Both name function and argument.
    """
    signature = inspect.signature(function)
    several = {
        name: parameter.kind
        for name, parameter in signature.parameters.items()
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    hints: dict[str, Hint] = {}

    @functools.wraps(function)
    def wrapped(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if not hints:  # at the first call names defined below the function exist
            hints.update(typing.get_type_hints(function, include_extras=True) or {"": None})
        arguments = signature.bind(*args, **kwargs).arguments
        with jaxtyping.jaxtyped("context"):
            for name, value in arguments.items():
                if name in hints:
                    for label, v in _each(name, value, several.get(name)):
                        _check(function, f"argument `{label}`", hints[name], v, arguments)
            out = function(*args, **kwargs)
            if "return" in hints:
                _check(function, "the result", hints["return"], out, arguments)
        return out

    return wrapped


def _each(name: str, value: PyTree, kind: int | None) -> Iterator[tuple[str, PyTree]]:
    """Yield the arguments behind a parameter: several for `*args` and `**kwargs`."""
    if kind is None:
        yield name, value
    elif kind is inspect.Parameter.VAR_POSITIONAL:
        yield from ((f"{name}[{i}]", v) for i, v in enumerate(value))
    else:
        yield from value.items()


def _members(hint: Any) -> tuple[Hint, ...]:
    """Return the members of a union; none for other hints."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else ()


def _check(function: Function, place: str, hint: Hint, value: PyTree, arguments: PyTree) -> None:
    """Raise if a value does not match an annotation that tanjax checks."""
    for path, expected, got in _places(place, hint, value):
        members = _members(expected)
        faults = (
            [_fault_of(m, got, alone=False) for m in members]
            if members
            else [_fault_of(expected, got)]
        )
        if None in faults:
            continue
        error = ShapeError if ShapeError in faults else UnitError
        shown = [f"`{name}`: {_show(v)}" for name, v in arguments.items() if hasattr(v, "shape")]
        raise error(
            message(
                f"{function.__qualname__}: {path} does not fit its annotation.",
                f"expected: {_spell(expected)}",
                f"got: {_show(got)}",
                *([f"arrays in this call: {', '.join(shown)}"] if error is ShapeError else []),
                hint="sizes with one name must agree in the whole signature."
                if error is ShapeError
                else "give a quantity of that dimension in any unit; "
                "`q.to_value(...)` makes a plain array of one.",
            )
        )


def _places(path: str, hint: Any, value: PyTree) -> Iterator[tuple[str, Hint, PyTree]]:
    """Follow tuples, lists and dicts to the values with their own annotation."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        yield from _places(path, inner[0], value)
    elif origin is tuple and isinstance(value, tuple):
        if len(inner) == 2 and inner[1] is Ellipsis:
            inner = (inner[0],) * len(value)
        for i, (h, v) in enumerate(zip(inner, value, strict=False)):
            yield from _places(f"{path}[{i}]", h, v)
    elif origin in (list, collections.abc.Sequence) and isinstance(value, list | tuple):
        for i, v in enumerate(value):
            yield from _places(f"{path}[{i}]", inner[0], v)
    elif origin in (dict, collections.abc.Mapping) and isinstance(value, dict):
        for key, v in value.items():
            yield from _places(f"{path}[{key!r}]", inner[1], v)
    else:
        yield path, hint, value


def _fault_of(hint: Hint, value: PyTree, alone: bool = True) -> type[Exception] | None:
    """Return the error of a value for one annotation; other classes count only in unions."""
    if isinstance(hint, _QuantityType):
        return _fault(hint, value)
    if hint is typing.Any or not isinstance(hint, type):
        return None  # left to type checkers
    if issubclass(hint, jaxtyping.AbstractArray):
        if isinstance(value, hint):
            return None
        return UnitError if is_quantity(value) else ShapeError
    if alone and not is_quantity(value):
        return None
    number = hint is float and type(value) is int  # as in type hints
    return None if number or isinstance(value, hint) else UnitError


def _show(x: PyTree) -> str:
    return f"{describe(x.stored)} in {x.label}" if is_quantity(x) else describe(x)
