"""`Tensor`: a torch tensor whose numbers are an array of JAX, or an array of our types.

Torch's C++ sees sizes, strides, a dtype and "cpu"; the numbers are in `_place`. Autograd, version
counters, hooks and the type rules of `nn.Parameter` are torch's own, above `__torch_dispatch__`.
This module replaces torch's uses of the numbers' address (NumPy, dlpack, pickle, printing).

Sharp edges. An array of our types is a `StructuredTensor`, whose size is the logical one. The class
for dense arrays has no `__torch_function__`: two microseconds less for each operation. Results are
contiguous, also for operands with other strides: only views have those.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import PyTree
from numpy.typing import DTypeLike
from torch._ops import OpOverload

from tanjax._errors import message
from tanjax._typing import AnyArray, Arraylike, Shape
from tanjax.arrays import densified, is_structured, shape as shape_of
from tanjax.quantities import is_quantity
from tanjax_torch._typing import (
    Args,
    Argument,
    Dispatch,
    Function,
    Kwargs,
    Numbers,
    Outcome,
    Payload,
    Types,
)
from tanjax_torch.arguments._dtypes import torch_dtype
from tanjax_torch.memory._views import Geometry, Place, Root, memory_of, strided

from ._plain import TensorError, array_of, copied, on_the_host, plain
from ._printing import printed

SERVING: list[Dispatch] = []

# Sizes, strides, offset and dtype of a view.
Where: TypeAlias = tuple[Shape, Shape, int, torch.dtype] | None
Parts: TypeAlias = tuple[Root, Where, bool, dict[str, object]]


def serve_by(dispatch: Dispatch) -> Dispatch:
    """Let a function answer operations on tensors of ours: `(op, types, args, kwargs)`."""
    SERVING[:] = [dispatch]
    return dispatch


TRACING: dict[str, Callable[..., torch.Tensor]] = {}  # functions of `_traced`


class Tensor(torch.Tensor):
    """A torch tensor over a `jax.Array`, or over an array of our types.

    **Arguments:** of `tjt.from_jax`, which it is: an array, and `requires_grad`.
    """

    _place: Place
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls: type[Tensor], x: Arraylike, requires_grad: bool = False) -> Tensor:
        return tensor(array_of(x)).requires_grad_(requires_grad)

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    @classmethod
    def __torch_dispatch__(
        cls, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs | None = None
    ) -> Outcome:
        return SERVING[0](func, types, args, kwargs or {})

    @property
    def payload(self) -> Payload:
        """The array that this tensor holds now."""
        return self._place.read()

    @property
    def data(self) -> torch.Tensor:
        """The same memory without autograd; assignment takes over the memory of another tensor."""
        return _DATA.__get__(self)

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        mine = other if isinstance(other, Tensor) else tensor(copied(other))
        _DATA.__set__(self, mine)
        self._place = mine._place

    @property
    def grad(self) -> torch.Tensor | None:
        """The gradient of backward passes; assignment lifts a plain one."""
        return _GRAD.__get__(self)

    @grad.setter
    def grad(self, g: torch.Tensor | None) -> None:
        plain_one = isinstance(g, torch.Tensor) and not isinstance(g, Tensor)
        _GRAD.__set__(self, tensor(copied(g)) if plain_one else g)

    @grad.deleter
    def grad(self) -> None:
        _GRAD.__delete__(self)

    def numpy(self, *, force: bool = False) -> Numbers:
        """The numbers for NumPy, in JAX's memory if it is on the host; they cannot be written.

        **Raises:** `RuntimeError` for a tensor that requires a gradient, without `force`.
        """
        if not force:
            self._refuse_grad("numpy()")
        return on_the_host(self._dense())

    def tolist(self) -> PyTree:
        """The numbers as nested lists of Python."""
        return plain(self._dense(), copy=False).tolist()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Numbers:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __array_wrap__(
        self, array: Numbers, context: object = None, return_scalar: bool = False
    ) -> Tensor:
        return tensor(array_of(array))

    def __dlpack__(self, *, copy: bool | None = None, **kwargs: object) -> object:
        """Return a copy of the numbers, since the receiver may write into it.

        **Raises:** `BufferError` for `copy=False`, `RuntimeError` for a tensor that requires a
        gradient.
        """
        self._refuse_grad("__dlpack__()")
        if copy is False:
            raise BufferError("a tensor of tanjax gives copies: its array must not be written.")
        return jnp.copy(self._dense()).__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._dense().__dlpack_device__()

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        if "_inner" in self.__dict__:  # torch traces
            return f"Tensor({self._inner!r})"
        return printed(self, self._place.read())

    def __format__(self, spec: str) -> str:
        if self.dim() == 0 and spec:
            return self.item().__format__(spec)
        return object.__format__(self, spec)

    def __deepcopy__(self, memo: dict[int, Tensor]) -> Tensor:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment."
            )
        memo[id(self)] = made = restored(*copy.deepcopy(self._parts(), memo))
        if self.grad is not None and not isinstance(self, torch.nn.Parameter):  # as torch's
            made.grad = copy.deepcopy(self.grad, memo)
        return made

    def __reduce_ex__(self, protocol: object) -> tuple[Function, Parts]:
        torch.utils.hooks.warn_if_has_hooks(self)
        return restored, self._parts()

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        self._numbers  # noqa: B018  (what has no plain tensor says so here)
        return ["_numbers"], None

    @staticmethod
    def __tensor_unflatten__(
        parts: dict[str, torch.Tensor], context: None, size: Shape, stride: Shape
    ) -> Tensor:
        return TRACING["made_of"](parts["_numbers"], size, stride)

    @property
    def _numbers(self) -> torch.Tensor:
        """The plain tensor that torch traces instead."""
        return TRACING["numbers_of"](self)

    def data_ptr(self) -> NoReturn:
        """Refused: the numbers are an array of JAX, whose address says nothing to torch."""
        raise self._without_storage("data_ptr()")

    def storage(self) -> NoReturn:
        """Refused: see `data_ptr`; `untyped_storage()` has a size, and no numbers to read."""
        raise self._without_storage("storage()")

    def apply_(self, function: object) -> NoReturn:
        """Refused: it walks through the memory, which torch does not have."""
        raise self._without_storage("apply_()")

    def share_memory_(self) -> NoReturn:
        """Refused: an array of JAX lives in one process."""
        raise self._without_storage("share_memory_()")

    def pin_memory(self, *args: object, **kwargs: object) -> NoReturn:
        """Refused: JAX places its arrays itself."""
        raise self._without_storage("pin_memory()")

    def is_pinned(self, *args: object, **kwargs: object) -> bool:
        """Return False: the memory is not pinned for a GPU."""
        return False

    def is_shared(self) -> bool:
        """Return False: no other process shares the memory."""
        return False

    def _parts(self) -> Parts:
        """The parts of an equal tensor: memory, geometry in it, `requires_grad`, attributes."""
        place = self._place
        carried = {n: a for n, a in self.__dict__.items() if n not in _OWN}
        if isinstance(place, Root) and self.is_contiguous():
            return place, None, self.requires_grad, carried
        if isinstance(place.storage, Root):
            return place.root, tuple(geometry_of(self)), self.requires_grad, carried
        return Root(place.read()), None, self.requires_grad, carried

    def _dense(self) -> AnyArray:
        payload = self.payload
        if is_quantity(payload):
            payload = payload.plain("torch")  # `UnitError` unless it is a pure number
        return densified(payload, "torch", "") if is_structured(payload) else payload

    def _refuse_grad(self, what: str) -> None:
        if self.requires_grad:
            raise RuntimeError(
                f"Can't call {what} on Tensor that requires grad. "
                f"Use tensor.detach() first, or `tjt.to_torch(t)`."
            )

    def _without_storage(self, what: str) -> TensorError:
        return TensorError(
            message(
                f"{what}: a tensor of tanjax has no storage of torch's: JAX has the numbers.",
                f"got: {self.dtype} of size {list(self.shape)}",
                hint="`tjt.to_torch(t)` is a plain tensor, `t.payload` JAX's array.",
            )
        )


class StructuredTensor(Tensor):
    """A tensor over an array of our types; for torch it is the logical matrix.

    Operations on it are natural nodes (`_functions`). Its operators are methods of Python: those of
    torch turn a `TypeError`, such as our `UnitError`, into "unsupported operand".
    """

    @classmethod
    def __torch_function__(
        cls, func: Function, types: Types, args: Args = (), kwargs: Kwargs | None = None
    ) -> Outcome:
        return _FUNCTIONS[0](func, types, args, kwargs or {})

    @property
    def payload(self) -> Payload:
        """The array that this tensor holds now; a gradient has the form of `jax.grad`'s."""
        payload = self._place.read()
        return getattr(payload, "public", payload)


class QuantityTensor(StructuredTensor):
    """A tensor over a dense quantity: numbers and a unit."""


class InnerTensor(StructuredTensor):
    """A structured tensor inside of `torch.func`, which treats it as one tensor, not as a tree."""


_FUNCTIONS: list[Dispatch] = []


def serve_functions(function: Dispatch) -> Dispatch:
    """Let a function answer torch's functions for structured tensors."""
    _FUNCTIONS[:] = [function]
    return function


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _called(f: Function, cls: type, a: Argument, b: Argument) -> Outcome:
    """Call a function of torch on a structured tensor; modes come first, as in torch."""
    if torch._C._len_torch_function_stack():
        return torch.overrides.handle_torch_function(f, (a, b), a, b)
    return _FUNCTIONS[0](f, (cls,), (a, b), {})


def _operators() -> None:
    """Operators of structured tensors, by torch's functions."""
    pairs = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "true_divide", "pow": "pow"}
    pairs |= {"matmul": "matmul", "floordiv": "floor_divide", "mod": "remainder"}
    pairs |= {name: name for name in _COMPARISONS}
    for name, function in pairs.items():
        f = getattr(torch, function)
        operator = lambda self, other, f=f: _called(f, type(self), self, other)
        swapped = lambda self, other, f=f: _called(f, type(self), other, self)
        setattr(StructuredTensor, f"__{name}__", operator)
        if name not in _COMPARISONS:
            setattr(StructuredTensor, f"__r{name}__", swapped)
    StructuredTensor.__hash__ = torch.Tensor.__hash__  # type: ignore[method-assign]


_operators()


_OWN = ("_place", "_plain", "_owner", "_projects")  # attributes that no copy carries
_DATA: Any = torch.Tensor.data
_GRAD: Any = torch.Tensor.grad
_make = torch.Tensor._make_wrapper_subclass


def tensor(payload: Payload, inner: bool = False) -> Tensor:
    """Return a tensor with a memory of its own; `inner`: one that `torch.func` does not flatten."""
    return _over(Root(payload), inner)


def _over(memory: Root, inner: bool = False) -> Tensor:
    payload = memory.read()
    if isinstance(payload, jax.Array):
        made = _make(Tensor, payload.shape, dtype=torch_dtype(payload.dtype))
    else:
        made = _make(_class(payload, inner), shape_of(payload), dtype=torch_dtype(payload.dtype))
    made._place = memory
    return made


def _class(payload: Payload, inner: bool = False) -> type[Tensor]:
    if is_quantity(payload) and not is_structured(payload.stored):
        return QuantityTensor
    return InnerTensor if inner else StructuredTensor


def placed(place: Place, like: Geometry, structured: bool = False) -> Tensor:
    """Return a tensor that reads and writes at a place, with torch's sizes and strides."""
    cls = _class(place.read()) if structured else Tensor
    made = _make(cls, like.size, strides=like.stride, storage_offset=like.offset, dtype=like.dtype)
    made._place = place
    return made


def restored(memory: Root, where: Where, requires_grad: bool, carried: dict[str, object]) -> Tensor:
    """A tensor from its `_parts`: for pickle and copies."""
    if where is None:
        made = _over(memory)
    else:
        like = Geometry(*where)
        made = placed(strided(memory, like), like)
    made.__dict__.update(carried)
    return made.requires_grad_(requires_grad)


def geometry_of(t: Tensor) -> Geometry:
    """Sizes and strides of a tensor."""
    return Geometry(tuple(t.shape), t.stride(), t.storage_offset(), t.dtype)


def wrapped(out: Outcome) -> Outcome:
    """Payloads among results as tensors."""
    if isinstance(out, jax.Array):
        return tensor(out)
    if isinstance(out, (list, tuple)):  # also one with names, which takes no list
        found = [wrapped(x) for x in out]
        return found if isinstance(out, list) else tuple(found)
    return tensor(out) if is_structured(out) or hasattr(out, "public") else out


def unwrapped(out: Outcome) -> Outcome:
    """Tensors among results as their payloads."""
    if isinstance(out, Tensor):
        return out._place.read()
    if isinstance(out, (list, tuple)):  # also one with names, which takes no list
        found = [unwrapped(x) for x in out]
        return found if isinstance(out, list) else tuple(found)
    return out


torch.serialization.add_safe_globals([restored, memory_of])
