"""A program of torch as a function of arrays, for JAX to differentiate.

The Python code of a module runs on tensors of ours over JAX's tracers, without torch's autograd. So
this module tells JAX the facts that autograd would use:

* `x.detach()`, `x.data` and all results computed under `torch.no_grad()` have no gradient;
* numbers written under `torch.no_grad()` keep the gradient of the numbers that they replace;
* a `torch.autograd.Function` has a backward of its own, which JAX does not see. So has a tensor or
  a module with a backward hook. Its value is right, and differentiating it raises.

Sharp edges. Numbers that a module makes from nothing (`torch.zeros`, also `torch.rand`) are ours.
Plain tensors that it holds outside of its parameters and buffers are constants, and writing into
one raises.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator, Sequence
from typing import NoReturn, TypeAlias, TypeVar

import jax
import numpy as np
import torch
from jax import lax
from jaxtyping import PyTree
from torch._ops import HigherOrderOperator, OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tanjax import kernels
from tanjax._errors import MutationError, NoRuleError, message
from tanjax.arrays import is_structured
from tanjax_torch._typing import (
    Args,
    Argument,
    Change,
    Function,
    Kwargs,
    Outcome,
    Payload,
    Payloads,
    Types,
)
from tanjax_torch.arguments._keys import random_key
from tanjax_torch.memory._views import Place, Root, View
from tanjax_torch.memory._writing import written_by
from tanjax_torch.table._calls import call_of
from tanjax_torch.table._decompositions import makes_memory
from tanjax_torch.tensor._lift import quietly
from tanjax_torch.tensor._plain import copied, is_tensor
from tanjax_torch.tensor._tensor import StructuredTensor, Tensor, tensor

from ._branches import branched

aten = torch.ops.aten
T = TypeVar("T")
Leaves = tuple[jax.Array, jax.Array]
AnyOp: TypeAlias = OpOverload | HigherOrderOperator


@contextlib.contextmanager
def purely(key: jax.Array | None = None) -> Iterator[None]:
    """Trace operations on tensors as a function that JAX differentiates, in the `with` block."""
    with contextlib.ExitStack() as stack:
        if key is not None:
            stack.enter_context(random_key(key))
        for context in (quietly(), torch.enable_grad(), _Detached(), _Cut()):
            stack.enter_context(context)
        yield


def as_tensors(tree: PyTree) -> PyTree:
    """Arrays in a tree of torch as new tensors; tensors as new ones over the same array."""
    return pytree.tree_map(_as_tensor, tree, is_leaf=is_tensor)


def _as_tensor(x: Argument) -> Argument:
    if isinstance(x, Tensor):
        return tensor(x.payload)
    if isinstance(x, torch.Tensor):
        return tensor(copied(x))
    if isinstance(x, (np.ndarray, np.generic)):
        return tensor(copied(torch.from_numpy(np.array(x))))
    if isinstance(x, jax.Array) and x.weak_type:  # a Python number that JAX traces
        return tensor(lax.convert_element_type(x, x.dtype))
    return tensor(x) if isinstance(x, jax.Array) or is_structured(x) else x


def as_arrays(tree: PyTree) -> PyTree:
    """Tensors in a tree of torch as their payloads."""
    return pytree.tree_map_only(
        torch.Tensor,
        lambda t: t.payload if isinstance(t, Tensor) else copied(t),
        tree,
        is_leaf=is_tensor,
    )


def without_gradient(payload: T) -> T:
    """The same numbers, constant for JAX."""
    return jax.tree.map(lax.stop_gradient, payload)


def _alias(place: Place) -> View:
    """The same memory, read without its gradient; numbers written here have their own."""
    alias = View(place, without_gradient, _written)
    if place.storage is place:
        alias.storage = alias
    return alias


@kernels.custom_jvp
def _over(old: jax.Array, new: jax.Array) -> jax.Array:
    return new


@_over.defjvp
def _over_jvp(primals: Leaves, tangents: Leaves) -> tuple[jax.Array, jax.Array]:
    return _over(*primals), tangents[0]  # again: for the next derivative


def _written(old: Payload, new: Payload) -> Payload:
    """`new` with the gradient of `old`: a write that torch does not record."""
    return jax.tree.map(_over, old, new)


def without_derivative(name: str, kind: str, out: Payload, inputs: Sequence[Payload]) -> Payload:
    """Return the same numbers; differentiating them, or by `inputs`, raises `NoRuleError`."""

    @jax.custom_jvp
    def run(out: Payload, inputs: Sequence[Payload]) -> Payload:
        return out

    @run.defjvp
    def run_jvp(primals: Payloads, tangents: Payloads) -> NoReturn:
        raise NoRuleError(
            message(
                f"{name} has a backward of its own, which JAX does not see.",
                f"it is {kind}.",
                hint="write it as a function of JAX with `jax.custom_vjp`, and use `tjt.wrap`.",
            )
        )

    return run(out, inputs)


_DETACHED = (
    torch.Tensor.detach,
    torch.detach,
    torch.Tensor.data.__get__,
    aten.detach.default,
    aten.detach,
)
_DETACHED_IN_PLACE = (torch.Tensor.detach_, torch.detach_, aten.detach_.default, aten.detach_)


class _Detached(TorchFunctionMode):
    """Cut the gradient of tensors that the program detaches; torch's own detaching is not seen."""

    def __torch_function__(
        self, func: Function, types: Types, args: Args = (), kwargs: Kwargs | None = None
    ) -> Outcome:
        if func in _DETACHED_IN_PLACE and isinstance(args[0], Tensor):
            args[0]._place = _alias(args[0]._place)
            return args[0]
        given = pytree.tree_leaves((args, kwargs), is_leaf=is_tensor)
        structured = any(isinstance(a, StructuredTensor) for a in given)
        # The function on structured arrays is cached: it must not depend on this program.
        with _disable_current_modes() if structured else contextlib.nullcontext():
            out = func(*args, **(kwargs or {}))
        if func in _DETACHED and isinstance(out, Tensor):
            out._place = _alias(out._place)
        elif structured and not torch.is_grad_enabled():
            settle = _settling()
            for t in pytree.tree_leaves(out, is_leaf=is_tensor):
                if isinstance(t, Tensor) and not any(t is a for a in given):
                    t._place = Root(settle(t.payload))
        return out


class _Cut(TorchDispatchMode):
    """Handle operations under `torch.no_grad()`, and those that make tensors from nothing."""

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, op: AnyOp, types: Types, args: Args = (), kwargs: Kwargs | None = None
    ) -> Outcome:
        kwargs = kwargs or {}
        if isinstance(op, torch._ops.HigherOrderOperator):
            out = branched(op, as_arrays(args), _run)
            return as_tensors(out if torch.is_grad_enabled() else without_gradient(out))
        with torch._C.DisableTorchFunction():
            if not _has_ours((args, kwargs)):
                return _made(op, args, kwargs)
            if torch.is_grad_enabled():
                return pytree.tree_map_only(
                    torch.Tensor, _as_ours, op(*args, **kwargs), is_leaf=is_tensor
                )
            return _without_gradient(op, args, kwargs)


def _run(function: Function, args: Args) -> PyTree:
    with purely():
        return as_arrays(function(*as_tensors(args)))


def _has_ours(tree: PyTree) -> bool:
    return any(isinstance(a, Tensor) for a in pytree.tree_leaves(tree, is_leaf=is_tensor))


def _as_ours(t: torch.Tensor) -> torch.Tensor:
    return t if isinstance(t, Tensor) or t.device.type == "meta" else tensor(copied(t))


def _made(op: OpOverload, args: Args, kwargs: Kwargs) -> Outcome:
    """Return the result of an operation without any tensor of ours."""
    if op._schema.is_mutable:
        raise MutationError(
            message(
                f"{op} writes into a tensor that is neither a parameter nor a buffer.",
                hint='`self.register_buffer("name", t, persistent=False)` in the module.',
            )
        )
    plain = any(
        isinstance(a, torch.Tensor) for a in pytree.tree_leaves((args, kwargs), is_leaf=is_tensor)
    )
    if not makes_memory(op, args):
        return op(*args, **kwargs)
    call = None if plain or "meta" in str(kwargs.get("device")) else _call(op)
    if call is None:
        return pytree.tree_map_only(torch.Tensor, _as_ours, op(*args, **kwargs), is_leaf=is_tensor)
    return as_tensors(call(*args, **kwargs))


def _call(op: OpOverload) -> Function | None:
    try:
        return call_of(op)
    except NoRuleError:
        return None


def _without_gradient(op: OpOverload, args: Args, kwargs: Kwargs) -> Outcome:
    targets = [t for t in _written_by(op, args, kwargs) if isinstance(t, Tensor)]
    before = [t.payload for t in targets]
    settle = _settling()
    out = op(*args, **kwargs)
    for t, old in zip(targets, before, strict=True):
        t._place.write(_written(old, t.payload))
    for t in pytree.tree_leaves(out, is_leaf=is_tensor):
        if isinstance(t, torch.Tensor) and not any(t is other for other in targets):
            if op.is_view and settle is without_gradient:
                t._place = _alias(t._place)
            else:
                t._place = Root(settle(t.payload))
    return out


def _written_by(op: OpOverload, args: Args, kwargs: Kwargs) -> Iterator[torch.Tensor]:
    given = dict(zip([a.name for a in op._schema.arguments], args, strict=False)) | kwargs
    for name in written_by(op):
        yield from pytree.tree_leaves(given.get(name), is_leaf=is_tensor)


_APPLY = torch.autograd.Function.apply.__func__.__code__


def _settling() -> Change:
    """Return a function that makes results constants, or refuses to differentiate them."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _APPLY:
            cls, args = frame.f_locals["cls"], frame.f_locals["args"]
            if cls.__module__.startswith("tanjax_torch."):
                return lambda out: out
            inputs = [
                a.payload
                for a in pytree.tree_leaves(args, is_leaf=is_tensor)
                if isinstance(a, Tensor)
            ]
            kind = f"a torch.autograd.Function of {len(inputs)} tensors"
            return lambda out: without_derivative(cls.__qualname__, kind, out, inputs)
        frame = frame.f_back
    return without_gradient
