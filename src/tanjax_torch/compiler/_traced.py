"""A tensor of ours while torch traces it for a graph: `torch.compile`, `torch.export`, `make_fx`.

Torch traces a tensor subclass through the plain tensors that it is made of. Ours is made of one, in
the memory that JAX has. Results of a compiled graph become tensors of ours again.

`make_fx` records operations of tensors that it follows. It does not follow a tensor of ours that
was made outside. Operations on that would run, and their results would be constants of the graph.
So the tensor becomes an attribute of the graph, as a plain one does.

Sharp edges. Each array has one plain tensor, because torch takes two for two inputs.
"""

from __future__ import annotations

import functools
import weakref

import jax
import torch
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    has_proxy_slot,
    track_tensor_tree as track,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from tanjax._errors import NoRuleError, message
from tanjax._typing import Shape
from tanjax_torch._typing import Args, Argument, Kwargs, Outcome, Types
from tanjax_torch.arguments._dtypes import exact_dtype, jax_dtype
from tanjax_torch.memory._views import Geometry, strided
from tanjax_torch.tensor._plain import copied, is_tensor, plain
from tanjax_torch.tensor._tensor import SERVING, TRACING, Tensor, placed, serve_by, tensor


def traced(numbers: torch.Tensor, size: Shape | None = None, stride: Shape | None = None) -> Tensor:
    """Return a stand-in for a tensor of ours while torch traces; operations go to `numbers`."""
    made = torch.Tensor._make_wrapper_subclass(
        Tensor,
        numbers.size() if size is None else size,
        strides=numbers.stride() if stride is None else stride,
        storage_offset=numbers.storage_offset(),
        dtype=numbers.dtype,
        device=numbers.device,
        requires_grad=numbers.requires_grad,
    )
    made._inner = numbers
    _serve()
    return made


@functools.cache
def _serve() -> None:
    """Check for traced tensors from the first trace on; earlier calls cost nothing."""
    usual = SERVING[0]

    def dispatch(op: OpOverload, types: Types, args: Args, kwargs: Kwargs) -> Outcome:
        if any(map(_is_traced, args)) or any(map(_is_traced, kwargs.values())):
            return _through(op, args, kwargs)
        return usual(op, types, args, kwargs)

    serve_by(dispatch)


_mode_of, _PROXY = torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.PROXY


def recorder() -> ProxyTorchDispatchMode | None:
    """Torch's mode that records operations for a graph, where one is active."""
    return _mode_of(_PROXY)


def recorded(mode: ProxyTorchDispatchMode, op: OpOverload, args: Args, kwargs: Kwargs) -> Outcome:
    """Record an operation on tensors, including those that torch did not follow.

    **Raises:** `NoRuleError` for a structured array or a quantity.
    """
    tracer = mode.tracer
    for t in pytree.tree_leaves((args, kwargs), is_leaf=is_tensor):
        if isinstance(t, Tensor) and not has_proxy_slot(t, tracer):
            if not isinstance(t.payload, jax.Array):
                raise unrecorded(str(op))
            track(t, tracer.proxy(tracer.create_arg(t)), constant=None, tracer=tracer)
    return op(*args, **kwargs)


def unrecorded(what: str) -> NoRuleError:
    """The error for operations that `make_fx` and `torch.func.linearize` would make constants."""
    return NoRuleError(
        message(
            f"{what}: torch cannot record a node of JAX in a graph.",
            "got: a structured array, a quantity or a wrapped function, under `make_fx` or "
            "`torch.func.linearize`",
            hint="`jax.linearize`, `jax.make_jaxpr` of a function by `tjt.as_jax`.",
        )
    )


def _is_traced(a: Argument) -> bool:
    if isinstance(a, (list, tuple)):
        return any(map(_is_traced, a))
    return isinstance(a, Tensor) and "_inner" in a.__dict__


def _through(op: OpOverload, args: Args, kwargs: Kwargs) -> Outcome:
    numbers = pytree.tree_map_only(Tensor, numbers_of, (args, kwargs), is_leaf=is_tensor)
    out = op(*numbers[0], **numbers[1])
    return return_and_correct_aliasing(
        op, args, kwargs, pytree.tree_map_only(torch.Tensor, traced, out)
    )


def numbers_of(t: Tensor) -> torch.Tensor:
    """The plain tensor in the memory of one of ours: one for each array.

    **Raises:** `NoRuleError` for a structured array, which has no such memory.
    """
    inner = t.__dict__.get("_inner")
    if inner is not None:
        return inner
    payload = t.payload
    if not isinstance(payload, jax.Array):
        raise NoRuleError(
            message(
                f"torch cannot trace a tensor over a {type(payload).__name__}.",
                hint="`tjt.as_jax(module)` and `jax.jit` take it; or export the module with dense "
                "parameters of its size, and give the structured array to `tjt.as_jax(exported)`.",
            )
        )
    kept = t.__dict__.get("_plain")
    if kept is None or kept[0] is not payload:
        t._plain = kept = (payload, plain(payload, copy=False))
        _OWNERS[kept[1].untyped_storage().data_ptr()] = t
    return kept[1]


_OWNERS: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()


def made_of(numbers: torch.Tensor, size: Shape, stride: Shape) -> Tensor:
    """Return a tensor of ours for a tensor of torch: fake while it traces, else with numbers."""
    if type(numbers) is not torch.Tensor:  # fake, functional or a proxy
        return traced(numbers, size, stride)
    like = Geometry(tuple(numbers.shape), numbers.stride(), numbers.storage_offset(), numbers.dtype)
    owner = _OWNERS.get(numbers.untyped_storage().data_ptr())
    if owner is not None and _has(owner, like):
        return placed(strided(owner._place, like), like)
    if jax_dtype(numbers.dtype) != exact_dtype(numbers.dtype):
        return tensor(copied(numbers))
    whole = numbers.as_strided((numbers.untyped_storage().nbytes() // numbers.itemsize,), (1,), 0)
    rows = numbers if numbers.is_contiguous() else whole
    made = tensor(jax.dlpack.from_dlpack(rows.detach()))
    made._plain = made.payload, rows
    _OWNERS[numbers.untyped_storage().data_ptr()] = made
    if rows is numbers:
        return made
    view = placed(strided(made._place, like), like)
    view._owner = made  # kept alive: other views of this memory find it
    return view


def _has(owner: Tensor, like: Geometry) -> bool:
    """True if a tensor still has the memory that torch knows, row by row."""
    payload, rows = owner.__dict__["_plain"]
    fits = payload is owner.payload and rows.storage_offset() == 0 and rows.is_contiguous()
    return fits and like.dtype is rows.dtype and like.extent <= rows.numel()


TRACING.update(numbers_of=numbers_of, made_of=made_of)
