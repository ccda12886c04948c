"""Handlers of functions whose unit depends on values, shapes or text.

A *handler* is an ordinary function `handler(raw, *args, **kwargs)`. It is called if a quantity is
among the arguments; `raw` is JAX's function. It strips, computes and labels with the helpers below.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from tanjax._typing import Function, Primal
from tanjax.quantities import (
    UnitFunction,
    checked,
    convert,
    is_quantity,
    labelled,
    meeting,
    plain_result,
    split_unit,
    stored_of,
    unit_of,
)
from tanjax.units import Unit, one
from tanjax.units.signatures import ANY, Role, bind, not_dimensionless, not_linear

HANDLERS: dict[str, Function] = {}
ALWAYS: set[str] = set()


def unit_handler(*names: str, always: bool = False) -> Callable[[Function], Function]:
    """Register a handler for functions named as in the tables: `"numpy.prod"`, `"linalg.det"`.

    **Arguments:** `always`: call the handler also without quantities among the arguments, because
    quantities come later, as with `vectorize`.
    """

    def register(function: Function) -> Function:
        for name in names:
            HANDLERS[name] = function
            if always:
                ALWAYS.add(name)
        return function

    return register


def ungraphed(raw: Function) -> Function:
    """Return JAX's function behind a `raw` that runs through the scale graph."""
    return getattr(raw, "ungraphed", raw)


def is_near_limits(raw: Function) -> bool:
    """True if `raw` runs through the scale graph: numbers are near the ends of their range."""
    return hasattr(raw, "ungraphed")


def unit_function(raw: Function, signature: str) -> UnitFunction:
    """Return a function with this signature, made once; it checks the range of numbers itself."""
    return _unit_function(ungraphed(raw), signature)


@functools.cache
def _unit_function(raw: Function, signature: str) -> UnitFunction:
    return UnitFunction(raw.__name__, raw, signature)


def pure(name: str, label: str, x: PyTree) -> Primal:
    """Return the number of a dimensionless value. **Raises:** `UnitError`."""
    if not is_quantity(x):
        return x
    if not (x.label.is_dimensionless and x.label.is_linear):
        raise not_dimensionless(name, label, x.label)
    return x.plain(name)


def linear(name: str, label: str, x: PyTree) -> tuple[Primal, Unit]:
    """As `split_unit`; raises for points of an affine or logarithmic scale."""
    value, unit = split_unit(x)
    if not unit.is_linear:
        raise not_linear(name, label, unit)
    return value, unit


def common(name: str, role: str, *trees: PyTree) -> tuple[PyTree, tuple[PyTree, ...]]:
    """Strip nested operands that must share a unit. **Returns:** unit or `None`, the numbers.

    **Raises:** `UnitError` if they do not.
    """
    parsed = Role.parse(role)
    leaves, treedef = jax.tree.flatten(trees, is_leaf=is_quantity)
    operands = [(parsed, unit_of(x), f"item {i}") for i, x in enumerate(leaves)]
    unit = bind(name, operands).get(parsed.letter)
    if unit is None:
        return None, treedef.unflatten([stored_of(x) for x in leaves])
    pure = [x for x in leaves if unit_of(x) is None]
    unit = meeting([x for x in leaves if is_quantity(x)], unit, pure)
    labels: list[Any] = [(one if unit.scale else unit) if u is None else u for _, u, _ in operands]
    numbers = [
        stored_of(x) if label is ANY else convert(stored_of(x), label, unit)
        for x, label in zip(leaves, labels, strict=True)
    ]
    return unit, treedef.unflatten(numbers)


def together(name: str, role: str, call: Function, *trees: PyTree) -> PyTree:
    """Call a function of nested operands in one unit; warn if lost entries change the result.

    **Returns:** the result, in that unit.
    **Raises:** `UnitError` if the operands share no unit.
    """
    unit, numbers = common(name, role, *trees)
    if unit is None or not unit.scale:
        return with_unit(call(*numbers), unit)
    leaves, treedef = jax.tree.flatten(numbers)
    given = jax.tree.leaves(trees, is_leaf=is_quantity)
    labels: list[Any] = [one if u is None else u for u in map(unit_of, given)]
    origins = [
        None if label is ANY else (stored_of(x), label, unit)
        for x, label in zip(given, labels, strict=True)
    ]
    on_leaves = lambda *numbers: call(*treedef.unflatten(numbers))
    return with_unit(checked(name, on_leaves, leaves, origins, given), unit)


def with_unit(x: PyTree, unit: Unit | None) -> PyTree:
    """Return a quantity, or the number if there is no unit."""
    return plain_result(x) if unit is None else labelled(x, unit)
