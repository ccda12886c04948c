"""Run an operation when torch's dispatcher reaches a tensor of ours.

Torch has done autograd already, and calls one overload. The first call reads from its schema how
the overload runs, and keeps that as a plan:

* functional: payloads in, an entry of the table, payloads out;
* view: the same, and the result reads and writes in its base's memory;
* in place and `out=`: the functional operation, then writes;
* refused: operations that change sizes or memories in place.

Sharp edges. Nothing is guessed: without an entry and without a decomposition of torch's, an
operation raises `NoRuleError` with its name.
"""

from __future__ import annotations

import torch
from jaxtyping import PyTree
from torch._ops import OpOverload

from tanjax._errors import NoRuleError, message
from tanjax_torch._typing import Args, Device, Kwargs, Outcome, Plan, Types
from tanjax_torch.compiler._traced import recorded, recorder
from tanjax_torch.structure._structured import structured_call_of
from tanjax_torch.table._calls import call_of
from tanjax_torch.table._decompositions import is_composite
from tanjax_torch.table._registry import dense_entry, remembered
from tanjax_torch.tensor._lift import named_payloads, payloads
from tanjax_torch.tensor._tensor import (
    InnerTensor,
    QuantityTensor,
    StructuredTensor,
    Tensor,
    serve_by,
    wrapped,
)

from ._viewing import new_empty_strided, viewing, viewing_in_place
from ._writing import one_by_one, writing, written_by

_STRUCTURED = {StructuredTensor, QuantityTensor, InnerTensor}
_REFUSED = tuple(getattr(torch.ops.aten, n) for n in ("resize_", "resize_as_", "set_"))

_QUESTIONS = {  # forward mode asks this before it gives a tensor a tangent
    torch.ops.aten.is_same_size: lambda a, b: a.shape == b.shape,
    torch.ops.aten._has_same_storage_numel: lambda a, b: a.numel() == b.numel(),
}


@serve_by
def dispatch(op: OpOverload, types: Types, args: Args, kwargs: Kwargs) -> Outcome:
    """Answer a call of torch's dispatcher."""
    mode = recorder()
    if mode is not None and op.overloadpacket not in _QUESTIONS:
        return recorded(mode, op, args, kwargs)
    if _STRUCTURED.isdisjoint(types):
        return plan_of(op)(False, args, kwargs)
    with torch._C.DisableTorchFunctionSubclass():  # torch's definitions call this again
        return plan_of(op)(True, args, kwargs)


@remembered
def plan_of(op: OpOverload) -> Plan:
    """Return the plan of an overload, from its schema."""
    if op.overloadpacket in _REFUSED:
        return _refused(op)
    if torch.Tag.inplace_view in op.tags:
        return viewing_in_place(op)
    if op.overloadpacket in _QUESTIONS:
        answer = _QUESTIONS[op.overloadpacket]
        return lambda structured, args, kwargs: answer(*args)
    if op.overloadpacket is torch.ops.aten.new_empty_strided:
        return new_empty_strided
    if dense_entry(op) is None and is_composite(op):
        return lambda structured, args, kwargs: op.decompose(*args, **kwargs)
    if written_by(op):
        return writing(op)
    if op.overloadpacket is torch.ops.aten._unsafe_view:  # a view that its schema does not name:
        view, made = viewing(op), _functional(op)  # `kron(out=)` writes through it
        return lambda structured, *given: (made if structured else view)(structured, *given)
    if op is torch.ops.aten.bmm.default:
        return _products(op)
    return viewing(op) if op.is_view else _functional(op)


def _products(op: OpOverload) -> Plan:
    """Return the plan of products of batches.

    If one operand is a matrix, torch's `linear` and `matmul` repeat it along the batch. XLA would
    compute a product, and a derivative, for each copy.
    """
    usual, linear = _functional(op), call_of(torch.ops.aten.linear.default)

    def run(structured: bool, args: Args, kwargs: Kwargs) -> Tensor:
        a, b = args
        fits = len(a.shape) == len(b.shape) == 3 and (*a.shape[::2],) == (*b.shape[:2],)
        if structured or not fits or not a.is_floating_point():
            return usual(structured, args, kwargs)
        if _is_repeated(b):
            return wrapped(linear(*payloads([a, b[0].t()])))
        if _is_repeated(a):
            return wrapped(linear(*payloads([b.mT, a[0]]))).mT.clone()
        return usual(structured, args, kwargs)

    return run


def _is_repeated(t: torch.Tensor) -> bool:
    return isinstance(t, Tensor) and t.stride(0) == 0 and t.shape[0] > 1


def _functional(op: OpOverload) -> Plan:
    entry, count = dense_entry(op), len(op._schema.returns)
    asks_layout = entry is not None and entry.layout

    def run(structured: bool, args: Args, kwargs: Kwargs) -> Outcome:
        if structured and op._opname.startswith("_foreach"):
            return one_by_one(op, args, kwargs)
        if "device" in kwargs and _is_meta(kwargs["device"]):
            return op(*_in_meta(args), **_in_meta(kwargs))
        call = structured_call_of(op) if structured else call_of(op)
        if asks_layout and not structured:
            kwargs = {**kwargs, "contiguous": args[0].is_contiguous()}
        out = call(*payloads(args), **named_payloads(kwargs))
        if count > 1 and len(out) != count:  # torch would read past the end
            raise RuntimeError(f"{op}: its entry gives {len(out)} results, and it has {count}.")
        return wrapped(out)

    return run


def _is_meta(device: Device) -> bool:
    return device is not None and torch.device(device).type == "meta"


def _in_meta(tree: PyTree) -> PyTree:
    """Return tensors with sizes and strides and no numbers: torch needs them to compare two."""

    def sizes_of(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")

    return torch.utils._pytree.tree_map_only(torch.Tensor, sizes_of, tree)


def _refused(op: OpOverload) -> Plan:
    def run(structured: bool, args: Args, kwargs: Kwargs) -> Tensor:
        if op._opname == "resize_" and tuple(args[1]) == tuple(args[0].shape):
            return args[0]  # `torch.randn(3, out=t)` asks for it
        raise NoRuleError(
            message(
                f"{op} changes the size or the memory of a tensor in place, which ours cannot.",
                hint="use the operation without the underscore at the end of its name.",
            )
        )

    return run
