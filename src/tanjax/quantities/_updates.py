"""`q.at[index]`: the updates of `jax.Array.at`, of quantities by quantities.

Each update is a function of two operands with a unit signature. Values are converted to the unit of
the array. If the numbers of both need another power of two to fit together, the array takes it.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from jaxtyping import PyTree

from tanjax import units
from tanjax._errors import UnitError, incompatible, message
from tanjax._typing import Function
from tanjax.arrays import as_array, is_structured
from tanjax.units import Unit
from tanjax.units.signatures import describe_unit

from ._call import UnitFunction
from ._conversion import convert
from ._quantity import Quantity, is_quantity, label_of, split_unit, unitful

_KEPT = "array: U, values: U -> U kept"
_SUM = "array: u, values: u -> u"
_PRODUCT = "array: u, values: 1 -> u"


class At:
    """The attribute `q.at`, which needs an index."""

    __slots__ = ("q",)

    def __init__(self, q: Quantity) -> None:
        self.q = q

    def __getitem__(self, index: PyTree) -> Updates:
        return Updates(self.q, index)

    def __getattr__(self, name: str) -> NoReturn:
        hint = f"; say where: `q.at[index].{name}(...)`, or `q.at[...]` for everywhere"
        raise AttributeError(f"`at` has no `{name}`{hint if hasattr(Updates, name) else ''}.")


class Updates:
    """The updates at `q.at[index]`, with values converted to the unit of `q`."""

    __slots__ = ("index", "q")

    def __init__(self, q: Quantity, index: PyTree) -> None:
        self.q, self.index = q, index

    def __getitem__(self, index: PyTree) -> PyTree:
        raise TypeError("`q.at[i]` has its index: write `q.at[i, j]` instead of `q.at[i][j]`.")

    def _update(
        self, name: str, signature: str, values: PyTree, kwargs: dict[str, PyTree]
    ) -> Quantity:
        """Return a copy with entries updated by a function of the array and the values."""

        def update(array: PyTree, values: PyTree) -> PyTree:
            return getattr(_array(array).at[self.index], name)(values, **kwargs)

        update.__name__ = f"at[...].{name}"
        of_points = _move_points if signature is _SUM else None
        function = UnitFunction(update.__name__, update, signature, on_scale=of_points)
        return function.unkept(self.q, values)

    def _with_unit(self, values: PyTree) -> PyTree:
        """Return plain values as pure numbers, if the array is dimensionless."""
        label = self.q.label
        is_zero = type(values) in (int, float) and values == 0
        if is_quantity(values) or is_zero or not (label.is_dimensionless and label.is_linear):
            return values
        return unitful(as_array(values) if type(values) is list else values, units.one)

    def get(self, *, fill_value: PyTree = None, **kwargs: PyTree) -> Quantity:
        """Return the entries at the index; a `fill_value` has the unit, too."""

        def get(array: PyTree, fill_value: PyTree = None) -> PyTree:
            if hasattr(fill_value, "dtype"):  # JAX needs a hashable number
                fill_value = np.asarray(fill_value).item()
            return _array(array).at[self.index].get(fill_value=fill_value, **kwargs)

        function = UnitFunction("at[...].get", get, "array: U, fill_value: U -> U kept")
        return function.unkept(self.q, self._with_unit(fill_value))

    def set(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with entries replaced."""
        return self._update("set", _KEPT, self._with_unit(values), kwargs)

    def add(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with values added."""
        return self._update("add", _SUM, self._with_unit(values), kwargs)

    def subtract(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with values subtracted."""
        return self._update("subtract", _SUM, self._with_unit(values), kwargs)

    def min(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with the smaller of entry and value."""
        return self._update("min", _KEPT, self._with_unit(values), kwargs)

    def max(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with the larger of entry and value."""
        return self._update("max", _KEPT, self._with_unit(values), kwargs)

    def multiply(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with entries multiplied by pure numbers."""
        return self._update("multiply", _PRODUCT, values, kwargs)

    mul = multiply

    def divide(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with entries divided by pure numbers."""
        return self._update("divide", _PRODUCT, values, kwargs)

    def power(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with powers of entries. **Raises:** `UnitError` if not dimensionless."""
        if not self.q.label.is_dimensionless:
            raise UnitError(
                message(
                    f"at[...].power: some entries would no longer be in {self.q.label}.",
                    hint="raise the whole quantity to a power, `q ** 2`, or its numbers.",
                )
            )
        power = values.plain("at[...].power") if is_quantity(values) else values
        number = self.q.plain("at[...].power")
        raised = _array(number).at[self.index].power(power, **kwargs)
        return unitful(raised, units.one).to(self.q.unit)

    def apply(self, f: Function, **kwargs: PyTree) -> Quantity:
        """Return a copy with `f` (of quantities of this unit) applied to entries."""
        unit = self.q.label
        inner = lambda v: _convert_for("at[...].apply", f(unitful(v, unit)), unit)
        return unitful(_array(self.q.stored).at[self.index].apply(inner, **kwargs), unit)


def _move_points(update: Function, q: Quantity, values: PyTree) -> Quantity:
    """Update points of a scale. **Raises:** `UnitError` unless the values are differences."""
    (number, own), to = split_unit(values), q.label
    if not q.label.is_linear:
        if not units.is_step(own, q.label):
            facts = f"array: {describe_unit(q.label)}", f"values: {describe_unit(own)}"
            raise incompatible(update.__name__, *facts, f"give a difference, in {q.label.delta}.")
        to = q.label.delta
    return unitful(update(q.stored, convert(number, own, to)), q.label)


def _array(x: PyTree) -> PyTree:
    return x if is_structured(x) else as_array(x)


def _convert_for(where: str, x: PyTree, unit: Unit) -> PyTree:
    value, own = split_unit(x)
    if own.dimension is not unit.dimension:
        given = describe_unit(label_of(x))
        raise incompatible(where, f"array: {describe_unit(unit)}", f"values: {given}")
    return convert(value, own, unit)
