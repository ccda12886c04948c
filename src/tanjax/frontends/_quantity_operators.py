"""Operators, indexing, `.at[]` and methods of quantities.

They are the same functions as in `tanjax.numpy`, so `a + b`, `np.add(a, b)` and
`tanjax.numpy.add(a, b)` cannot differ. Dense operands in one unit, the most frequent case, skip the
resolution of units.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import NotImplementedType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import units
from tanjax._marks import ACTIVE, capturing, scope
from tanjax._typing import Function
from tanjax.arrays import as_array, destructure, is_structured
from tanjax.quantities import (
    At,
    Quantity,
    add as careful_sum,
    bits_of,
    captured,
    divide as careful_quotient,
    floating,
    measure,
    multiply as careful_product,
    settle,
    span_of,
    unitful,
)
from tanjax.units import Unit
from tanjax.units.signatures import unexpected

from ._indexed import Index
from .namespaces import function

# Python's name, JAX's name, and True if there is a reflected form.
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
_REAL = np.dtype(np.float32)
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_SAME_UNIT = ("add", "sub", *_COMPARISONS)


def _is_operand(x: PyTree) -> bool:
    return hasattr(x, "dtype") or isinstance(x, int | float | complex) or is_structured(x)


def _binary(name: str, target: str, swapped: bool) -> Function:
    def slow(self: Quantity, other: PyTree) -> PyTree | NotImplementedType:
        is_list = type(other) is list and name not in _COMPARISONS
        if is_list and all(map(_is_operand, jax.tree.leaves(other))):  # as NumPy's arrays do
            other = function("numpy", "asarray")(other)
        if not _is_operand(other):
            return NotImplemented
        call = function("numpy", target)
        return call(other, self) if swapped else call(self, other)

    if name in ("mul", "truediv"):
        return _product(target, swapped, slow)
    if swapped or name not in _SAME_UNIT:
        return slow
    return _sum(target, slow) if name in ("add", "sub") else _comparison(target, slow)


def _comparison(target: str, slow: Function) -> Function:
    raw = getattr(jnp, target)

    def method(self: Quantity, other: PyTree) -> PyTree | NotImplementedType:
        # Both dense and in one linear unit: nothing to resolve, 0.5 us less than a planned call.
        if ACTIVE[0] and capturing():
            return call(self, other) if _is_operand(other) else slow(self, other)
        if type(other) is Quantity:
            a, b, label = self.stored, other.stored, self.label
            # Python's numbers may overflow the dtype that JAX would give them.
            dense = hasattr(a, "dtype") and not (is_structured(a) or is_structured(b))
            if other.label is label and label.is_linear and dense and hasattr(b, "dtype"):
                return raw(a, b)
        return slow(self, other)

    call = _equation(target, False, method)
    return method


def _sum(target: str, slow: Function) -> Function:
    """Add or subtract quantities under one label, within range: `tanjax.quantities`."""
    raw = getattr(jnp, target)

    def method(self: Quantity, other: PyTree) -> PyTree | NotImplementedType:
        if ACTIVE[0] and capturing():
            return call(self, other) if _is_operand(other) else slow(self, other)
        if type(other) is not Quantity:
            return slow(self, other)
        a, b, label = self.stored, other.stored, self.label
        if other.label is not label or not label.is_linear or is_structured(a) or is_structured(b):
            return slow(self, other)
        p, q = self._bits or bits_of(self), other._bits or bits_of(other)
        if p is None or q is None:
            return unitful(raw(a, b), label)
        span = span_of(a, b)
        if span is not None and not label.scale:
            # A sum has at most one digit more. It is zero or a multiple of the last digit.
            low, high = min(p[0], q[0]), max(p[1], q[1]) + 1
            low = low - span.digits + 1 if low - span.digits >= span.smallest else span.smallest
            exact = span.smallest < span.lowest or low > span.smallest
            if exact and high <= span.highest:
                return unitful(raw(a, b), label, (low, high))
        result = careful_sum(raw, self, other)
        return slow(self, other) if result is NotImplemented else result

    call = _equation(target, False, method)
    return method


def _product(target: str, swapped: bool, slow: Function) -> Function:
    """Multiply or divide dense quantities and numbers, within range: `tanjax.quantities`."""
    raw, divides = getattr(jnp, target), target == "divide"
    careful = careful_quotient if divides else careful_product

    def method(self: Quantity, other: PyTree) -> PyTree | NotImplementedType:
        if ACTIVE[0] and capturing():
            if not _is_operand(other):
                return slow(self, other)
            return call(other, self) if swapped else call(self, other)
        a, label = self.stored, self.label
        p = self._bits or bits_of(self)
        if type(other) is not Quantity and hasattr(other, "dtype"):
            other = floating(other, getattr(a, "dtype", _REAL))
        if type(other) is Quantity:
            b, by = other.stored, other.label
            q = other._bits or bits_of(other)
        else:
            b, by, q = other, units.one, measure(other)
        linear = label.is_linear and by.is_linear
        if not linear or is_structured(a) or is_structured(b) or not _is_operand(b):
            return slow(self, other)
        if swapped:
            a, b, p, q, label, by = b, a, q, p, by, label
        new = label / by if divides else label * by
        if p is None or q is None:
            return unitful(raw(a, b), new)
        span = span_of(a, b)
        if span is not None and not new.scale:
            # Zeros have bits from inf to -inf: the quotient by nothing but zeros has no bounds.
            low, high = (p[0] - q[1], p[1] - q[0]) if divides else (p[0] + q[0], p[1] + q[1])
            fits = span.lowest <= min(p[0], q[0]) and max(p[1], q[1]) <= span.highest
            if fits and span.lowest <= low and high <= span.highest and q[0] <= q[1]:
                return unitful(raw(a, b), new, (low, high))
        x, y = (other, self) if swapped else (self, other)
        result = careful(raw, x, y)
        return slow(self, other) if result is NotImplemented else result

    call = _equation(target, swapped, method)
    return method


def _equation(name: str, swapped: bool, method: Function) -> Function:
    """Make an operator one equation of captured programs, with its usual code inside."""

    def plain(x: PyTree, y: PyTree) -> PyTree:
        with scope(on=False):
            return method(y, x) if swapped else method(x, y)

    return captured(name, plain)


def _unary(target: str) -> Function:
    def method(self: Quantity, *args: PyTree, **kwargs: PyTree) -> PyTree:
        return function("numpy", target)(self, *args, **kwargs)

    method.__name__ = target
    return method


def _getitem(self: Quantity, index: Index) -> PyTree:
    value = self.stored
    try:
        part = (value if hasattr(value, "dtype") else jnp.asarray(value))[index]
    except (IndexError, TypeError):
        for i in index if type(index) is tuple else (index,):
            if type(i) is Quantity:
                raise unexpected("getitem", "index", i.label) from None
        raise
    return settle(part, self.label)


def _iter(self: Quantity) -> Iterator[PyTree]:
    return (settle(v, self.label) for v in self.stored)


def _relayout(name: str) -> Function:
    """Return a method whose arguments differ from those of the function: `x.reshape(2, 3)`."""

    def method(self: Quantity, *args: PyTree, **kwargs: PyTree) -> PyTree:
        return unitful(getattr(as_array(self.stored), name)(*args, **kwargs), self.label)

    method.__name__ = name
    return method


def _conversion(to: Function) -> Function:
    """Return `q.to(unit)` as an equation of captured programs: `to[unit=km] q`."""
    call = captured("to", to, kind="helper")  # not a compiled unit outside of a trace

    @functools.wraps(to)
    def method(self: Quantity, unit: Unit | str) -> Quantity:
        if ACTIVE[0] and capturing():
            unit = units.unit(unit)
            # then there is nothing to do
            return self if unit is self.label else call(self, unit=unit)
        return to(self, unit)

    return method


def _block_until_ready(self: Quantity) -> PyTree:
    jax.block_until_ready(self.stored)
    return self


def _tolist(self: Quantity) -> PyTree:
    """Return nested lists of quantities, as `numpy.ndarray.tolist` gives numbers."""

    def labelled(x: PyTree) -> PyTree:
        return [labelled(v) for v in x] if type(x) is list else unitful(x, self.label)

    return labelled(np.asarray(destructure(self.stored)).tolist())


def install() -> None:
    """Install operators and methods on `Quantity`."""
    cls: Any = Quantity
    for name, target, reflected in _BINARY:
        setattr(cls, f"__{name}__", _binary(name, target, False))
        if reflected:
            setattr(cls, f"__r{name}__", _binary(name, target, True))
    for name, target in (("neg", "negative"), ("abs", "abs"), ("pos", "positive")):
        setattr(cls, f"__{name}__", _unary(target))
    cls.__round__ = lambda self, ndigits=0: function("numpy", "round")(self, ndigits)
    cls.__getitem__, cls.__iter__ = captured("getitem", _getitem), _iter
    for name in _METHODS:
        setattr(cls, name, _unary(name))
    for name in ("reshape", "transpose"):
        setattr(cls, name, captured(name, _relayout(name)))
    cls.to = _conversion(cls.to)
    cls.flatten = _unary("ravel")
    cls.block_until_ready = _block_until_ready
    cls.item = lambda self, *args: unitful(np.asarray(self.stored).item(*args), self.label)
    cls.tolist = _tolist
    cls.nbytes = property(lambda self: sum(x.nbytes for x in map(as_array, jax.tree.leaves(self))))
    cls.at = property(At, doc="Indexed updates, as `jax.Array.at`.")
    cls.real = property(_unary("real"))
    cls.imag = property(_unary("imag"))
    cls.T = property(_unary("transpose"))
    cls.mT = property(_unary("matrix_transpose"))
