"""Operations that write: the functional operation, then a write of its result.

Torch allows a write if the result has the sizes of the target, and a dtype that can be cast to the
target's. So does tanjax, with torch's messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import jax
import torch
from torch._ops import OpOverload

from tanjax._errors import message
from tanjax_torch._typing import Args, Argument, Kwargs, Outcome, Payload, Plan
from tanjax_torch.arguments._dtypes import exact_dtype, torch_dtype
from tanjax_torch.structure._stepping import stepped
from tanjax_torch.structure._structured import structured_call_of
from tanjax_torch.table._calls import call_of
from tanjax_torch.table._decompositions import definition
from tanjax_torch.table._functional import functional_of
from tanjax_torch.table._registry import dense_entry, no_rule
from tanjax_torch.tensor._lift import named_payloads, payloads
from tanjax_torch.tensor._plain import TensorError
from tanjax_torch.tensor._tensor import Tensor, tensor, wrapped

from ._views import Root

# Its schema does not say that it writes.
_UNSAID = dict.fromkeys(
    (torch.ops.aten.native_batch_norm.default, torch.ops.aten.native_batch_norm.out),
    ("running_mean", "running_var"),
)


# Declared as written by torch, and not changed.
_LEFT = {torch.ops.aten._fused_adagrad_.default: ("state_steps",)}

_EXACT = ("aminmax", "complex", "gather", "multinomial")  # `out=` has the dtype of the result

Target: TypeAlias = Argument  # the target of a write: a tensor, several, or none


def written_by(op: OpOverload) -> tuple[str, ...]:
    """The names of the arguments that an operation writes into, those of `out=` first."""
    written = [a for a in op._schema.arguments if a.alias_info and a.alias_info.is_write]
    named = tuple(a.name for a in sorted(written, key=lambda a: not a.is_out))
    return named + _UNSAID.get(op, ())


def writing(op: OpOverload) -> Plan:
    """The plan of an operation that writes into arguments."""
    functional = functional_of(op)
    if (
        functional is not None
        and dense_entry(functional) is None
        and definition(functional) is None
    ):
        functional = None
    if functional is None and dense_entry(op) is None:
        return _defined(op)
    return _Writing(op, functional or op, torch.Tag.out in op.tags, functional is None)


def _defined(op: OpOverload) -> Plan:
    """Return the plan by torch's own definition, which writes by other operations."""
    define = definition(op)
    if define is None:
        raise no_rule(op)
    return lambda structured, args, kwargs: define(*args, **kwargs)


class _Writing:
    def __init__(self, op: OpOverload, functional: OpOverload, out: bool, also: bool) -> None:
        self.op, self.functional, self.out, self.also = op, functional, out, also
        arguments = op._schema.arguments
        self.names = [a.name for a in arguments]
        self.written = written_by(op)
        taken = [a.name for a in functional._schema.arguments]
        self.makes = "dtype" in taken and "dtype" not in self.names  # `zeros.out`: that of `out`

    def __call__(self, structured: bool, args: Args, kwargs: Kwargs) -> Outcome:
        if structured and self.op._opname.startswith("_foreach"):
            return one_by_one(self.op, args, kwargs)
        given = dict(zip(self.names, args, strict=False)) | kwargs
        left = _LEFT.get(self.op, ())
        targets: list[Target] = [None if n in left else given.get(n) for n in self.written]
        _check_ours(self.op, targets)
        inputs = {n: v for n, v in kwargs.items() if n not in self.written} if self.out else kwargs
        if self.makes:
            inputs = inputs | {"dtype": targets[0].dtype}
        call = structured_call_of(self.functional) if structured else call_of(self.functional)
        if structured and len(targets) == 1 and not self.also:
            inputs, values = named_payloads(inputs), payloads(args)
            out = stepped(self.functional, call, targets[0], values, inputs)
        else:
            out = call(*payloads(args), **named_payloads(inputs))
        if self.also:  # results, then new values
            results, new = out[: len(out) - len(targets)], out[len(out) - len(targets) :]
            if given.get("training", True):  # else statistics are read
                self._write(targets, new)
            return wrapped(results if len(results) > 1 else results[0])
        self._write(targets, (out,) if len(targets) == 1 else out)
        count = len(self.op._schema.returns)  # values written beside `out=` are not returned
        if not count:
            return None
        return targets[0] if count == 1 else tuple(targets[:count])

    def _write(self, targets: Sequence[Target], values: Sequence[Outcome]) -> None:
        for target, value in zip(targets, values, strict=True):
            if isinstance(target, (list, tuple)):
                self._write(target, value)
            elif target is not None:
                write(self.op, target, value)


def one_by_one(op: OpOverload, args: Args, kwargs: Kwargs) -> list[Tensor] | None:
    """Run an operation on lists tensor by tensor, by torch's own definition."""
    return op._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)


def _check_ours(op: OpOverload, targets: Sequence[Target]) -> None:
    for target in targets:
        if isinstance(target, (list, tuple)):
            _check_ours(op, target)
        elif not isinstance(target, Tensor) and target is not None:
            raise TensorError(
                message(
                    f"{op}: a plain torch tensor cannot be written from one of tanjax.",
                    f"got: {target.dtype} of size {list(target.shape)}",
                    hint="call `tjt.from_torch(t)` first, or `tjt.to_torch` on the value; if "
                    "foreign code makes `t`, run it in "
                    f"`with tjt.factories({_integers(target)}):`; for a plain module, "
                    "`load_state_dict(tjt.revert(...))`.",
                )
            )


def _integers(t: torch.Tensor) -> str:
    return "" if t.is_floating_point() or t.is_complex() else "integers=True"


def write(op: OpOverload, target: Tensor, value: Payload) -> None:
    """Write a payload into a tensor of ours. **Raises:** `RuntimeError` where torch does."""
    held = exact_dtype(target.dtype)
    if isinstance(value, jax.Array) and value.dtype != held:
        exact = op._opname in _EXACT and torch.Tag.out in op.tags
        if exact or not torch.can_cast(torch_dtype(value.dtype), target.dtype):
            raise RuntimeError(
                f"{op}: result type {torch_dtype(value.dtype)} can't be cast to the desired "
                f"output type {target.dtype}"
            )
        value = value.astype(held)
    if value.shape != target.shape:
        if torch.Tag.out in op.tags and target.numel() == 0 and isinstance(target._place, Root):
            target.data = tensor(value)  # `out=torch.empty(0)` takes the sizes of the result
            return
        raise RuntimeError(
            f"{op}: output with shape {list(target.shape)} doesn't match the broadcast shape "
            f"{list(value.shape)}"
        )
    target._place.write(value)
