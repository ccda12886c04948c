"""What an array can do in Python, on quantities: operators, indexing, `.at[]`, methods.

The same functions as in `tanjax.numpy`, so that `a + b`, `np.add(a, b)` and
`tanjax.numpy.add(a, b)` cannot differ. Dense operands in one unit, the most frequent case by
far, take a shortcut around the resolution of units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import units
from tanjax._errors import incompatible
from tanjax.arrays import Unitful, convert, is_structured, quantity
from tanjax.arrays._abstract import as_array
from tanjax.units._signature import describe_unit, not_linear, unexpected

from ._namespaces import function

# Python's name, JAX's name, and whether there is a reflected form.
_BINARY = (
    ("add", "add", True),
    ("sub", "subtract", True),
    ("mul", "multiply", True),
    ("truediv", "divide", True),
    ("floordiv", "floor_divide", True),
    ("mod", "remainder", True),
    ("divmod", "divmod", True),
    ("matmul", "matmul", True),
    ("pow", "power", True),
    ("eq", "equal", False),
    ("ne", "not_equal", False),
    ("lt", "less", False),
    ("le", "less_equal", False),
    ("gt", "greater", False),
    ("ge", "greater_equal", False),
)
_METHODS = (
    *("all", "any", "argmax", "argmin", "argsort", "astype", "clip", "conj", "conjugate", "copy"),
    *("cumprod", "cumsum", "diagonal", "dot", "max", "mean", "min", "nonzero", "prod", "ravel"),
    *("repeat", "round", "searchsorted", "sort", "squeeze", "std", "sum", "swapaxes", "take"),
    *("trace", "var"),
)
_SAME_UNIT = ("add", "sub", "lt", "le", "gt", "ge", "eq", "ne")


def _is_operand(x: Any) -> bool:
    return hasattr(x, "dtype") or isinstance(x, int | float | complex) or is_structured(x)


def _binary(name: str, target: str, swapped: bool) -> Callable[[Any, Any], Any]:
    found: list[Any] = []

    def slow(self: Any, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        if not found:
            found.append(function("numpy", target))
        return found[0](other, self) if swapped else found[0](self, other)

    if swapped or name not in _SAME_UNIT:
        return slow
    raw, labelled = getattr(jnp, target), name in ("add", "sub")

    def method(self: Any, other: Any) -> Any:
        # Both dense and in one linear unit: nothing to resolve, 0.5 us less than a planned call.
        if type(other) is Unitful:
            a, b, unit = self.value, other.value, self.unit
            if other.unit is unit and unit.is_linear and not (is_structured(a) or is_structured(b)):
                return quantity(raw(a, b), unit) if labelled else raw(a, b)
        return slow(self, other)

    return method


def _unary(target: str) -> Callable[..., Any]:
    found: list[Any] = []

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not found:
            found.append(function("numpy", target))
        return found[0](self, *args, **kwargs)

    method.__name__ = target
    return method


def _getitem(self: Any, index: Any) -> Any:
    value = self.value
    try:
        part = (value if hasattr(value, "dtype") else jnp.asarray(value))[index]
    except (IndexError, TypeError):
        for i in index if type(index) is tuple else (index,):
            if type(i) is Unitful:
                raise unexpected("getitem", "index", i.unit) from None
        raise
    return quantity(part, self.unit)


def _iter(self: Any) -> Iterator[Any]:
    return (quantity(v, self.unit) for v in self.value)


class At:
    """`q.at[index]`: the updates of `jax.Array.at`, with values converted to the unit of `q`."""

    __slots__ = ("index", "q")

    def __init__(self, q: Unitful, index: Any = None) -> None:
        self.q, self.index = q, index

    def __getitem__(self, index: Any) -> At:
        return At(self.q, index)

    def _at(self) -> Any:
        return as_array(self.q.value).at[self.index]

    def _number(self, name: str, values: Any) -> Any:
        if type(values) in (int, float) and values == 0 and self.q.unit.is_linear:
            return values
        return _convert_for(f"at[...].{name}", values, self.q.unit)

    def _same(self, name: str, values: Any, kwargs: Any) -> Unitful:
        if name in ("add", "subtract") and not self.q.unit.is_linear:
            # To a point of a scale only a difference can be added.
            step = values.unit if type(values) is Unitful else units.one
            combine = units.add_units if name == "add" else units.subtract_units
            if combine(self.q.unit, step) is not self.q.unit:
                raise not_linear(f"at[...].{name}", "values", step)
            number = convert(values.value, step, self.q.unit.delta)
        else:
            number = self._number(name, values)
        return quantity(getattr(self._at(), name)(number, **kwargs), self.q.unit)

    def _pure(self, name: str, values: Any, kwargs: Any) -> Unitful:
        if not self.q.unit.is_linear:
            raise not_linear(f"at[...].{name}", "the array", self.q.unit)
        number = values.plain(f"at[...].{name}") if type(values) is Unitful else values
        return quantity(getattr(self._at(), name)(number, **kwargs), self.q.unit)

    def get(self, *, fill_value: Any = None, **kwargs: Any) -> Unitful:
        """The entries at the index; a `fill_value` has the unit too."""
        if fill_value is not None:
            kwargs["fill_value"] = self._number("get", fill_value)
            if type(fill_value) is Unitful:  # JAX wants a number that it can hash
                kwargs["fill_value"] = np.asarray(kwargs["fill_value"]).item()
        return quantity(self._at().get(**kwargs), self.q.unit)

    def set(self, values: Any, **kwargs: Any) -> Unitful:
        """A copy with entries replaced."""
        return self._same("set", values, kwargs)

    def add(self, values: Any, **kwargs: Any) -> Unitful:
        """A copy with values added."""
        return self._same("add", values, kwargs)

    def subtract(self, values: Any, **kwargs: Any) -> Unitful:
        """A copy with values subtracted."""
        return self._same("subtract", values, kwargs)

    def min(self, values: Any, **kwargs: Any) -> Unitful:
        """A copy with the smaller of entry and value."""
        return self._same("min", values, kwargs)

    def max(self, values: Any, **kwargs: Any) -> Unitful:
        """A copy with the larger of entry and value."""
        return self._same("max", values, kwargs)

    def multiply(self, values: Any, **kwargs: Any) -> Unitful:
        """A copy with entries multiplied by pure numbers."""
        return self._pure("multiply", values, kwargs)

    mul = multiply

    def divide(self, values: Any, **kwargs: Any) -> Unitful:
        """A copy with entries divided by pure numbers."""
        return self._pure("divide", values, kwargs)

    def apply(self, f: Callable[[Any], Any], **kwargs: Any) -> Unitful:
        """A copy with `f` (of quantities of this unit) applied to entries."""
        unit = self.q.unit
        inner = lambda v: _convert_for("at[...].apply", f(quantity(v, unit)), unit)
        return quantity(self._at().apply(inner, **kwargs), unit)


def _convert_for(where: str, x: Any, unit: Any) -> Any:
    value, own = (x.value, x.unit) if type(x) is Unitful else (x, units.one)
    if own.dimension is not unit.dimension:
        given = describe_unit(x.unit if type(x) is Unitful else None)
        raise incompatible(where, f"array: {describe_unit(unit)}", f"values: {given}")
    return convert(value, own, unit)


def _relayout(name: str) -> Callable[..., Any]:
    """Methods whose arguments differ from those of the function: `x.reshape(2, 3)`."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return quantity(getattr(as_array(self.value), name)(*args, **kwargs), self.unit)

    method.__name__ = name
    return method


def _block_until_ready(self: Any) -> Any:
    jax.block_until_ready(self.value)
    return self


def install() -> None:
    """Put operators and methods on `Unitful`."""
    cls: Any = Unitful
    for name, target, reflected in _BINARY:
        setattr(cls, f"__{name}__", _binary(name, target, False))
        if reflected:
            setattr(cls, f"__r{name}__", _binary(name, target, True))
    for name, target in (("neg", "negative"), ("abs", "abs"), ("pos", "positive")):
        setattr(cls, f"__{name}__", _unary(target))
    cls.__round__ = lambda self, ndigits=0: function("numpy", "round")(self, ndigits)
    cls.__getitem__, cls.__iter__ = _getitem, _iter
    for name in _METHODS:
        setattr(cls, name, _unary(name))
    for name in ("reshape", "transpose"):
        setattr(cls, name, _relayout(name))
    cls.flatten = _unary("ravel")
    cls.block_until_ready = _block_until_ready
    cls.item = lambda self, *args: quantity(np.asarray(self.value).item(*args), self.unit)
    cls.at = property(At, doc="Indexed updates, as `jax.Array.at`.")
    cls.real = property(_unary("real"))
    cls.imag = property(_unary("imag"))
    cls.T = property(_unary("transpose"))
    cls.mT = property(_unary("matrix_transpose"))
