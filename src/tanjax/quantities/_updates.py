"""`q.at[index]`: the updates of `jax.Array.at`, of quantities by quantities.

Values are converted to the unit of the array. If the numbers of both need another power of two to
fit together, the array takes it.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from jaxtyping import PyTree

from tanjax import units
from tanjax._dtype_range import range_of
from tanjax._errors import UnitError, incompatible, message
from tanjax._typing import Function
from tanjax.arrays import as_array, is_structured
from tanjax.units import Unit
from tanjax.units.signatures import describe_unit, not_linear

from ._common_labels import centred_label
from ._conversion import convert
from ._exponents import joined, labelled, settle, unscale
from ._headroom import needs_graph, through_graph
from ._losses import checked
from ._quantity import Quantity, bits_of, is_quantity, label_of, split_unit, unitful


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

    def _at(self) -> PyTree:
        return _array(self.q.stored).at[self.index]

    def _number(self, name: str, values: PyTree) -> PyTree:
        if type(values) in (int, float) and values == 0 and self.q.label.is_linear:
            return values
        return _convert_for(f"at[...].{name}", values, self.q.label)

    def _same(self, name: str, values: PyTree, kwargs: dict[str, PyTree]) -> Quantity:
        zero = type(values) in (int, float) and values == 0
        if not is_quantity(values) and self.q.label.scale and self.q.label.is_dimensionless:
            values = values if zero else unitful(values, units.one)
        label = self._together(name, values)
        if label is not None:
            result = settle(self._at_label(name, values, label, kwargs), label)
            return result if self.q.label.scale else unscale(result)
        if name in ("add", "subtract") and not self.q.label.is_linear:
            # Only a difference can be added to a point of a scale.
            step = values.label if is_quantity(values) else units.one
            if not units.is_step(step, self.q.label):
                facts = f"array: {describe_unit(self.q.label)}", f"values: {describe_unit(step)}"
                hint = f"give a difference, in {self.q.label.delta}."
                raise incompatible(f"at[...].{name}", *facts, hint)
            number = convert(values.stored, step, self.q.label.delta)
        else:
            number = self._number(name, values)
        return unitful(getattr(self._at(), name)(number, **kwargs), self.q.label)

    def _at_label(
        self, name: str, values: Quantity, label: Unit, kwargs: dict[str, PyTree]
    ) -> PyTree:
        """Return the updated numbers under a label; warn if they depend on lost entries."""
        pairs = [(x.stored, x.label, label) for x in (self.q, values)]
        numbers = [convert(*pair) for pair in pairs]
        call = lambda x, y: getattr(_array(x).at[self.index], name)(y, **kwargs)
        return checked(f"at[...].{name}", call, numbers, pairs, [self.q, values])

    def _together(self, name: str, values: PyTree) -> PyTree:
        """Return the label that suits old and new values; `None` if that of the array does."""
        q = self.q
        if not is_quantity(values) or values.label.dimension is not q.label.dimension:
            return None
        bits, more, span = bits_of(q), bits_of(values), range_of(q.dtype)
        if bits is None or more is None or span is None or not q.label.is_linear:
            return None
        if not values.label.is_linear:
            return None
        low, high = joined([(bits, q.label), (more, values.label)], q.label)
        if low > high or span.holds(low, high + (name in ("add", "subtract"))):
            return None
        return centred_label([q, values], q.label)

    def _pure(self, name: str, values: PyTree, kwargs: dict[str, PyTree]) -> Quantity:
        if not self.q.label.is_linear:
            raise not_linear(f"at[...].{name}", "the array", self.q.label)
        number = values.plain(f"at[...].{name}") if is_quantity(values) else values
        call = lambda x, y: getattr(x.at[self.index], name)(y, **kwargs)
        stored = _array(self.q.stored)
        if needs_graph((stored, number)):
            return labelled(through_graph(call)(stored, number), self.q.label)
        return unitful(call(stored, number), self.q.label)

    def get(self, *, fill_value: PyTree = None, **kwargs: PyTree) -> Quantity:
        """Return the entries at the index; a `fill_value` has the unit, too."""
        if fill_value is not None:
            kwargs["fill_value"] = self._number("get", fill_value)
            if is_quantity(fill_value):  # JAX needs a hashable number
                kwargs["fill_value"] = np.asarray(kwargs["fill_value"]).item()
        return settle(self._at().get(**kwargs), self.q.label)

    def set(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with entries replaced."""
        return self._same("set", values, kwargs)

    def add(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with values added."""
        return self._same("add", values, kwargs)

    def subtract(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with values subtracted."""
        return self._same("subtract", values, kwargs)

    def min(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with the smaller of entry and value."""
        return self._same("min", values, kwargs)

    def max(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with the larger of entry and value."""
        return self._same("max", values, kwargs)

    def multiply(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with entries multiplied by pure numbers."""
        return self._pure("multiply", values, kwargs)

    mul = multiply

    def divide(self, values: PyTree, **kwargs: PyTree) -> Quantity:
        """Return a copy with entries divided by pure numbers."""
        return self._pure("divide", values, kwargs)

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
        return unitful(self._at().apply(inner, **kwargs), unit)


def _array(x: PyTree) -> PyTree:
    return x if is_structured(x) else as_array(x)


def _convert_for(where: str, x: PyTree, unit: Unit) -> PyTree:
    value, own = split_unit(x)
    if own.dimension is not unit.dimension:
        given = describe_unit(label_of(x))
        raise incompatible(where, f"array: {describe_unit(unit)}", f"values: {given}")
    return convert(value, own, unit)
