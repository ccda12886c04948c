"""Operators and NumPy's two protocols, on every array type.

`AbstractArray` lives three layers below and has no operations, so this module installs them. There
is no `__jax_array__`: it would let `x @ D` densify `D` silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from numbers import Number
from types import ModuleType, NotImplementedType
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Device, export
from jax.sharding import Sharding
from jaxtyping import PyTree

from tanjax import operations as ops
from tanjax._typing import Function
from tanjax.arrays import AbstractArray, Sum, densified, is_structured
from tanjax.quantities import Quantity
from tanjax.registry import Operation

from . import _quantity_operators, _stacking as _stacking
from ._indexed import STORE_ALL, At, Index, entries
from ._numpy_protocol import (
    function_by_name,
    function_on_quantities,
    ufunc_by_name,
    ufunc_on_quantities,
)
from .namespaces import function, numpy_namespace, of_structured

# the result of an operator, or `NotImplemented` for the other operand
Answer: TypeAlias = PyTree | NotImplementedType


def _by_function(
    numpy: ModuleType, mirror: ModuleType, table: dict[str, Function]
) -> dict[Function, Function]:
    """Return operations by NumPy's function, with JAX's function for the flags they lack."""
    named = ((getattr(numpy, name), getattr(mirror, name), op) for name, op in table.items())
    return {f: of_structured(raw, op, f) for f, raw, op in named}


# Implementations of NumPy's functions for structured arrays, for both protocols.
_FUNCTIONS: dict[Function, Function] = {
    **_by_function(np, jnp, ops.BY_NAME["numpy"]),
    **_by_function(np.linalg, jnp.linalg, ops.BY_NAME["linalg"]),
    np.linalg.matrix_power: ops.matrix_power,
    np.conjugate: lambda a: a.conj(),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a: a.size,
}


def _array_ufunc(
    self: AbstractArray, ufunc: np.ufunc, method: str, *inputs: PyTree, **kwargs: PyTree
) -> PyTree:
    if any(type(x) is Quantity for x in inputs):
        return ufunc_on_quantities(ufunc, method, inputs, kwargs)
    op = _FUNCTIONS.get(ufunc)
    if op is None or method != "__call__" or kwargs:
        return ufunc_by_name(ufunc, method, inputs, kwargs)
    return op(*inputs)


def _array_function(
    self: AbstractArray,
    function_: Function,
    types: Iterable[type],
    args: Sequence[PyTree],
    kwargs: dict[str, PyTree],
) -> PyTree:
    if Quantity in types:
        return function_on_quantities(function_, args, kwargs)
    op = _FUNCTIONS.get(function_)
    return function_by_name(function_, args, kwargs) if op is None else op(*args, **kwargs)


def _array_namespace(self: AbstractArray, *, api_version: str | None = None) -> ModuleType:
    """Return `tanjax.numpy`, the namespace of the array API."""
    return numpy_namespace()


def _device(self: AbstractArray) -> Device | Sharding | None:
    """Return the device or sharding of the fields; `None` if they differ, or without any."""
    places = [getattr(leaf, "device", None) for leaf in jax.tree.leaves(self)]
    return places[0] if places and all(p == places[0] for p in places) else None


def _to_device(
    self: AbstractArray, device: Device | Sharding, /, *, stream: object = None
) -> AbstractArray:
    """Return the array with its fields on another device."""
    return jax.device_put(self, device)


def _is_operand(other: PyTree) -> bool:
    """True if an operator handles the other operand; otherwise Python asks that operand."""
    return is_structured(other) or isinstance(other, Number) or hasattr(other, "dtype")


def _binary(op: Operation, *, swapped: bool = False) -> Function:
    def method(self: AbstractArray, other: PyTree) -> Answer:
        if type(other) is bool:
            other = np.bool_(other)  # a number here; as an argument it would be static
        if not _is_operand(other):
            return NotImplemented
        return op(other, self) if swapped else op(self, other)

    return method


def _elementwise(function: Function, name: str) -> Function:
    """Return a comparison: dense and boolean, as for any array; never one truth value."""

    def method(self: AbstractArray, other: PyTree) -> Answer:
        if type(other) is Quantity or not _is_operand(other):  # a quantity checks units itself
            return NotImplemented
        dense = [x.to_dense() if isinstance(x, AbstractArray) else x for x in (self, other)]
        return function(*dense)

    method.__name__ = name
    return method


def _power(self: AbstractArray, power: PyTree) -> Answer:
    return function("numpy", "power")(self, power) if _is_operand(power) else NotImplemented


def _getitem(self: AbstractArray, index: Index) -> PyTree:
    index = _without_whole_axes(index, len(self.shape))
    if type(index) is tuple and not index:
        return self
    if self.batch_shape and _axes_of(index) <= len(self.batch_shape):
        return jax.tree.map(lambda leaf: leaf[index], self)
    found = _block_at(self, index)
    if found is None:
        found = entries(self, index)
    if found is not None:
        return found
    return densified(self, "getitem", "take a block of the fields instead")[index]


def _block_at(self: AbstractArray, index: Index) -> AbstractArray | None:
    """Return a contiguous block of one matrix, if its type has a structured one."""
    parts = index if type(index) is tuple else (index,)
    if len(self.shape) != 2 or len(parts) not in (1, 2):
        return None
    if not all(type(p) is slice and p.step in (None, 1) for p in parts):
        return None
    if any(map(export.is_symbolic_dim, self.shape)):
        return None
    ranges = [p.indices(n) for p, n in zip((*parts, slice(None))[:2], self.shape, strict=True)]
    rows, columns = (slice(i, max(i, j)) for i, j, _ in ranges)
    if rows == columns and isinstance(self, STORE_ALL):
        x = self.canonical()
        return x.replace(data=x.data[rows, columns])
    if "submatrix" not in vars(type(self)):
        return None
    block = self.canonical().submatrix(rows, columns)
    lazy = isinstance(block, Sum) and not isinstance(self, Sum)  # a `Sum` cannot solve
    return block if isinstance(block, AbstractArray) and not lazy else None


def _without_whole_axes(index: Index, ndim: int) -> Index:
    """Drop an ellipsis, and full slices at the end, from an index: `x[i, ...]` is `x[i]`."""
    parts = index if type(index) is tuple else (index,)
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(dots) == 1:
        rest = parts[: dots[0]], parts[dots[0] + 1 :]
        parts = (*rest[0], *(slice(None),) * (ndim - _axes_of(sum(rest, ()))), *rest[1])
    elif type(parts[-1] if parts else None) is not slice:
        return index
    if _axes_of(parts) > ndim:  # JAX raises later
        return index
    while parts and type(parts[-1]) is slice and parts[-1] == slice(None):
        parts = parts[:-1]
    return parts


def _axes_of(index: Index) -> int:
    """Return how many axes an index takes."""
    parts = index if type(index) is tuple else (index,)
    masks = [np.ndim(p) for p in parts if getattr(p, "dtype", np.int_) == np.bool_]
    return sum(masks) + sum(1 for p in parts if p is not None) - len(masks)


def _iter(self: AbstractArray) -> Iterator[PyTree]:
    """Iterate over rows; by default Python would ask for index 0, 1, 2 ... without an end."""
    if self.batch_shape:
        return (self[i] for i in range(_len(self)))
    return iter(densified(self, "iteration", "take rows of the fields instead"))


def _len(self: AbstractArray) -> int:
    if not self.shape:
        raise TypeError(f"len() of unsized {type(self).__name__}")
    return int(self.shape[0])


def install() -> None:
    """Install the operators on `AbstractArray`."""
    binary = {
        "matmul": ops.matmul,
        "add": ops.add,
        "sub": ops.subtract,
        "mul": ops.multiply,
        "truediv": ops.divide,
    }
    cls: Any = AbstractArray
    for name, op in binary.items():
        setattr(cls, f"__{name}__", _binary(op))
        setattr(cls, f"__r{name}__", _binary(op, swapped=True))
    for name, full in _COMPARISONS.items():
        method = _elementwise(getattr(jnp, full), name)
        setattr(cls, f"__{name}__", method)
        _FUNCTIONS[getattr(np, full)] = method
    cls.__abs__ = lambda self: function("numpy", "abs")(self)
    cls.__pow__ = _power
    cls.__neg__ = lambda self: ops.negative(self)
    cls.__pos__ = lambda self: self
    cls.__getitem__, cls.__iter__, cls.__len__ = _getitem, _iter, _len
    cls.at = property(At, doc="Indexed updates, as `jax.Array.at`.")
    cls.__array_ufunc__ = _array_ufunc
    cls.__array_function__ = _array_function
    cls.__array_namespace__ = _array_namespace
    cls.device = property(_device)
    cls.to_device = _to_device
    cls.mT = property(
        lambda self: ops.transpose(self), doc="The transposed matrix, without conjugation."
    )
    transpose = ops.refused("T", ops.transpose)
    cls.T = property(lambda self: transpose(self), doc="`mT`, of one matrix.")
    cls.H = property(lambda self: self.conj().mT, doc="The transposed and conjugated matrix.")
    _quantity_operators.install()


_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
