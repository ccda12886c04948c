"""Conversions between plain tensors, arrays of JAX and tensors of ours.

Tensors and arrays keep their dtype: torch's and JAX's have the same names. A dtype that JAX, as it
is set up, does not hold raises (`_dtypes`). Autograd crosses in `from_torch` and `to_torch`.

Sharp edges. `plain.data = ours` runs in torch, without our checks. It leaves a plain tensor without
memory, and reading that ends the process. `convert` the module that holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

from tanjax._errors import describe, message
from tanjax._typing import Arraylike
from tanjax.arrays import is_structured
from tanjax_torch._typing import Payload

from ._plain import (
    TensorError,
    array_of,
    copied,
    is_followed,
    is_tensor,
    plain,
    unwrapped,
)
from ._tensor import QuantityTensor, StructuredTensor, Tensor, tensor

T = TypeVar("T")


def from_jax(x: Arraylike, requires_grad: bool = False) -> Tensor:
    """Return a tensor that shares an array.

    **Arguments:** `x`: an array of JAX (its dtype is the tensor's), any of our array types,
    quantities included, or numbers of NumPy or Python, which are copied. `requires_grad`: true if
    autograd shall record operations on the tensor.

    **Returns:** a leaf of autograd; a `Tensor` is its own device-less "cpu" tensor in torch, while
    the numbers are where JAX has them.

    **Raises:** `DtypeError` for numbers that JAX, as it is set up, does not hold: float64 without
    x64, integers beyond int32. Python's floats have torch's default dtype, its integers the widest
    that JAX holds.
    """
    made = tensor(array_of(x))  # under `torch.func` `requires_grad_(False)` raises
    return made.requires_grad_() if requires_grad else made


def to_jax(t: torch.Tensor) -> Payload:
    """The array of a tensor.

    **Arguments:** `t`: a tensor of ours, which gives the array it holds now (no copy: arrays never
    change); or a plain one, whose numbers are copied, since torch may write them.

    **Returns:** a `jax.Array`, or an array of our types. Autograd does not follow.

    **Raises:** `DtypeError` for a plain tensor with numbers that JAX, as it is set up, does not
    hold, for one that is sparse, nested or quantized, and for one on another device; `TensorError`
    for other types.
    """
    if isinstance(t, Tensor):
        return t.payload
    if isinstance(t, torch.Tensor) and isinstance(unwrapped(t), Tensor):
        raise TensorError(
            message(
                "to_jax of a tensor that `torch.func` follows: its gradient would be cut.",
                hint="`t.detach()` first, or `tjt.wrap` for a function of arrays.",
            )
        )
    return copied(_tensor_of_torch(t, "to_jax"))


def from_torch(t: torch.Tensor) -> Tensor:
    """Return a tensor of ours with the numbers of a plain one; gradients flow between them.

    **Arguments:** `t`: a plain tensor, whose numbers are copied; one of ours is returned as it is.

    **Returns:** a tensor; if `t` requires a gradient, gradients flow through it into `t`, as plain
    tensors. For a new leaf: `from_torch(t.detach()).requires_grad_()`.

    **Raises:** as `to_jax`.
    """
    if isinstance(t, Tensor):
        return t
    if is_followed(_tensor_of_torch(t, "from_torch")):
        out: Tensor = _FromTorch.apply(t)
        return out
    return tensor(to_jax(t))


def to_torch(t: torch.Tensor) -> torch.Tensor:
    """Return a plain tensor with the numbers of ours; gradients flow between them.

    **Arguments:** `t`: a tensor of ours; a plain one is returned as it is.

    **Returns:** a plain tensor with a memory of its own, dense where the array is structured
    (`tj.densify` decides about warning or raising); gradients flow through it into `t`.

    **Raises:** `UnitError` for a quantity, whose unit would be lost; `TensorError` under a trace
    of JAX.
    """
    if not isinstance(unwrapped(_tensor_of_torch(t, "to_torch")), Tensor):
        return t
    if is_followed(t):
        out: torch.Tensor = _ToTorch.apply(t)
        return out
    return plain(unwrapped(t)._dense())


class _FromTorch(torch.autograd.Function):
    @staticmethod
    def forward(t: torch.Tensor) -> Tensor:
        return tensor(to_jax(t))

    @staticmethod
    def setup_context(ctx: object, inputs: object, output: object) -> None:
        """Keep nothing; `torch.func` requires it apart from `forward`."""

    @staticmethod
    def jvp(ctx: object, g: torch.Tensor) -> Tensor:
        return from_torch(g)

    @staticmethod
    def backward(ctx: object, g: torch.Tensor) -> torch.Tensor:
        return to_torch(g)


class _ToTorch(torch.autograd.Function):
    @staticmethod
    def forward(t: Tensor) -> torch.Tensor:
        return plain(t._dense())

    @staticmethod
    def setup_context(ctx: object, inputs: object, output: object) -> None:
        """Keep nothing."""

    @staticmethod
    def jvp(ctx: object, g: torch.Tensor) -> torch.Tensor:
        return to_torch(g)

    @staticmethod
    def backward(ctx: object, g: torch.Tensor) -> torch.Tensor:
        return from_torch(g)


def convert(what: T) -> T:
    """Replace every plain tensor in a module or a tree by a tensor of ours.

    **Arguments:** `what`: an `nn.Module`, whose parameters and buffers are replaced in place; or a
    tree (dicts, lists, tuples) of tensors and anything else.

    **Returns:** the module itself; a tree of the same kind. A tensor that occurs several times
    stays one tensor; `requires_grad` and gradients are kept. Optimisers hold parameters: make them
    afterwards.

    **Raises:** as `to_jax`; `TensorError` for a lazy module without sizes.
    """
    return _replaced(what, _leaf)


def _replaced(what: T, change: Callable[[torch.Tensor], torch.Tensor]) -> T:
    known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def leaf(t: torch.Tensor) -> torch.Tensor:
        if id(t) not in known:
            known[id(t)] = t, change(t)  # with `t`, so that no other one gets its id
        return known[id(t)][1]

    if not isinstance(what, nn.Module):
        return pytree.tree_map_only(torch.Tensor, leaf, what, is_leaf=is_tensor)
    for module in what.modules():
        for held in (module._parameters, module._buffers):
            for name, t in list(held.items()):
                if t is not None:
                    setattr(module, name, leaf(t))
    return what


def revert(what: T) -> T:
    """Replace every tensor of ours in a module or a tree by a plain one: the inverse of `convert`.

    **Arguments:** as of `convert`: `plain.load_state_dict(tjt.revert(model.state_dict()))`.

    **Returns:** the module itself; a tree of the same kind. A structured tensor becomes its matrix;
    `tj.densify` decides about warning or raising.

    **Raises:** `UnitError` for a quantity; `TensorError` for a structured tensor that has a
    gradient, since that is no matrix.
    """
    return _replaced(what, _plain_leaf)


def _plain_leaf(t: torch.Tensor) -> torch.Tensor:
    if not isinstance(t, Tensor):
        return t
    structured = is_structured(t.payload)
    if structured and t.grad is not None:
        raise TensorError(
            message(
                f"revert: the gradient of {describe(t.payload)} is in stored coordinates.",
                hint="`module.zero_grad()` first.",
            )
        )
    made = to_torch(t.detach())
    if isinstance(t, nn.Parameter):
        made = nn.Parameter(made, t.requires_grad)
    made.requires_grad_(t.requires_grad)
    if t.is_leaf and t.grad is not None:
        made.grad = to_torch(t.grad.detach())
    return made


def _leaf(t: torch.Tensor) -> Tensor:
    if isinstance(t, Tensor):
        return t
    if isinstance(t, nn.parameter.UninitializedTensorMixin):
        raise TensorError(
            message(
                "a parameter of a lazy module has no sizes yet.",
                hint="call the module once on a plain tensor, then convert it.",
            )
        )
    made: Tensor = tensor(copied(t))
    if isinstance(t, nn.Parameter):
        made = nn.Parameter(made, t.requires_grad)
    made.requires_grad_(t.requires_grad)
    if t.is_leaf and t.grad is not None:
        made.grad = tensor(copied(t.grad))
    return made


def _collated(batch: list[Tensor], *, collate_fn_map: object = None) -> torch.Tensor:
    """A batch of a `DataLoader`."""
    if get_worker_info() is None:
        return torch.stack(batch)
    raise TensorError(
        message(
            "a worker of a DataLoader made a batch of tensors of tanjax.",
            "why: JAX does not survive a fork, and workers share torch's memory.",
            hint="plain tensors in the dataset, and `tjt.convert(batch)` in the loop.",
        )
    )


default_collate_fn_map.update(dict.fromkeys((Tensor, StructuredTensor, QuantityTensor), _collated))


def _tensor_of_torch(t: object, what: str) -> torch.Tensor:
    if isinstance(t, torch.Tensor):
        return t
    raise TensorError(
        message(
            f"{what}: this is no tensor of torch.",
            f"got: {type(t).__name__}",
            hint="`tjt.from_jax(x)` makes a tensor of an array.",
        )
    )
