"""Structured arrays of quantities: the unit moves outside.

`Diagonal(x * metre)` means a diagonal matrix in metres. It becomes `Unitful(Diagonal(x), metre)`,
so every rule gets plain fields. Each type has a unit signature for its constructor
(`units = "left: u, right: v -> u*v"`), or a function if a signature is not enough.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from jaxtyping import PyTree

from tanjax._errors import UnitError, message
from tanjax.units import one
from tanjax.units.signatures import ANY, Operand, Role, Signature, bind

from .._abstract import QUANTITIES, AbstractArray
from ._parts import is_quantity, label_of, split_unit
from ._unitful import Unitful, convert, unitful


def hoist(cls: type[AbstractArray], args: tuple[PyTree, ...], kwargs: dict[str, PyTree]) -> PyTree:
    """Return `cls(*args, **kwargs)` as a quantity, if some fields are quantities.

    **Raises:** `UnitError` if the units do not fit together, or if the type has no `units`.
    """
    if callable(cls.units):
        return cls.units(*args, **kwargs)
    if cls.units == "product":
        return _product(cls, args)
    name = cls.__name__
    if cls.units is None:
        raise UnitError(
            message(
                f"{name}: a field cannot be a quantity.",
                hint=f"make it of plain numbers, `tj.Unitful({name}(...), unit)`, or say what "
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
        target = one if role.letter == "1" else binding[role.letter]
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


QUANTITIES[Unitful] = hoist
