"""`Tensor`: a torch tensor whose numbers are an array of JAX, or an array of our types.

Torch's C++ sees sizes, strides, a dtype and "cpu"; the numbers are in `_place`. Autograd, version
counters, hooks and the type rules of `nn.Parameter` are torch's own, above `__torch_dispatch__`.

Sharp edges. An array of our types is a `StructuredTensor`, whose size is the logical one. The class
for dense arrays has no `__torch_function__`: two microseconds less for each operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import torch

from tanjax.arrays import Unitful, is_structured, shape as shape_of

from ._dtypes import torch_dtype
from ._views import Geometry, Place, Root

_SERVING: list[Callable[..., Any]] = []


def serve_by(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function answer operations on tensors of ours: `(op, types, args, kwargs)`."""
    _SERVING[:] = [dispatch]
    return dispatch


class Tensor(torch.Tensor):
    """A torch tensor over a `jax.Array`, or over an array of our types."""

    _place: Place
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _SERVING[0](func, types, args, kwargs or {})

    @property
    def payload(self) -> Any:
        """The array that this tensor holds now."""
        return self._place.read()


class StructuredTensor(Tensor):
    """A tensor over an array of our types; what it is in torch is its logical matrix.

    Operations on it are natural nodes (`_functions`). Its operators are methods of Python: those of
    torch turn a `TypeError`, such as our `UnitError`, into "unsupported operand".
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _FUNCTIONS[0](func, types, args, kwargs or {})

    @property
    def payload(self) -> Any:
        """The array that this tensor holds now; of a gradient, the one that `jax.grad` gives."""
        payload = self._place.read()
        return getattr(payload, "public", payload)

    def __repr__(self) -> str:  # type: ignore[override]
        graph = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else ""
        graph = graph or (", requires_grad=True" if self.requires_grad else "")
        return f"{type(self).__name__}({self.payload!r}{graph})"

    def __deepcopy__(self, memo: Any) -> Any:
        return _FUNCTIONS[1](self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _FUNCTIONS[2](self)


class QuantityTensor(StructuredTensor):
    """A tensor over a dense quantity: numbers and a unit."""


class InnerTensor(StructuredTensor):
    """A structured tensor that `torch.func` made on its way: for it, no tree but one tensor."""


_FUNCTIONS: list[Callable[..., Any]] = []


def serve_functions(*functions: Callable[..., Any]) -> None:
    """Let functions answer torch's functions, `deepcopy` and `pickle` for structured tensors."""
    _FUNCTIONS[:] = functions


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _operators() -> None:
    """Operators of structured tensors, by torch's functions."""
    pairs = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "true_divide", "pow": "pow"}
    pairs |= {"matmul": "matmul", "floordiv": "floor_divide", "mod": "remainder"}
    pairs |= {name: name for name in _COMPARISONS}
    for name, function in pairs.items():
        f = getattr(torch, function)
        operator = lambda self, other, f=f: _FUNCTIONS[0](f, (type(self),), (self, other), {})
        swapped = lambda self, other, f=f: _FUNCTIONS[0](f, (type(self),), (other, self), {})
        setattr(StructuredTensor, f"__{name}__", operator)
        if name not in _COMPARISONS:
            setattr(StructuredTensor, f"__r{name}__", swapped)
    StructuredTensor.__hash__ = torch.Tensor.__hash__  # type: ignore[method-assign]


_operators()


_make = torch.Tensor._make_wrapper_subclass


def tensor(payload: Any, inner: bool = False) -> Tensor:
    """A tensor with a memory of its own; `inner`: for `torch.func`, which looks into others."""
    if isinstance(payload, jax.Array):
        made = _make(Tensor, payload.shape, dtype=torch_dtype(payload.dtype))
    else:
        made = _make(_class(payload, inner), shape_of(payload), dtype=torch_dtype(payload.dtype))
    made._place = Root(payload)
    return made


def _class(payload: Any, inner: bool = False) -> type[Tensor]:
    if type(payload) is Unitful and not is_structured(payload.stored):
        return QuantityTensor
    return InnerTensor if inner else StructuredTensor


def placed(place: Place, like: Geometry, structured: bool = False) -> Tensor:
    """A tensor that reads and writes at a place, with the sizes and strides that torch gives it."""
    cls = _class(place.read()) if structured else Tensor
    made = _make(cls, like.size, strides=like.stride, storage_offset=like.offset, dtype=like.dtype)
    made._place = place
    return made


def geometry_of(t: Tensor) -> Geometry:
    """Sizes and strides of a tensor."""
    return Geometry(tuple(t.shape), t.stride(), t.storage_offset(), t.dtype)


def wrapped(out: Any) -> Any:
    """Payloads among results as tensors."""
    if isinstance(out, jax.Array):
        return tensor(out)
    if isinstance(out, (list, tuple)):
        return type(out)([wrapped(x) for x in out])
    return tensor(out) if is_structured(out) or hasattr(out, "public") else out


def unwrapped(out: Any) -> Any:
    """Tensors among results as their payloads."""
    if isinstance(out, Tensor):
        return out._place.read()
    if isinstance(out, (list, tuple)):
        return type(out)([unwrapped(x) for x in out])
    return out
