"""The functional operation behind one that writes, found by torch's own naming.

`add_.Tensor` and `add.out` are both `add.Tensor` and a write.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload

aten = torch.ops.aten

_MADE = ("dtype", "layout", "device", "pin_memory")  # `out=` says them by itself
_BY_NAME = {
    "normal_": aten.normal_functional.default,
    "pow_.Scalar": aten.pow.Tensor_Scalar,
    "pow_.Tensor": aten.pow.Tensor_Tensor,
    "float_power_.Scalar": aten.float_power.Tensor_Scalar,
    "float_power_.Tensor": aten.float_power.Tensor_Tensor,
    "floor_divide_.Tensor": aten.floor_divide.default,
    "bernoulli_.float": aten.bernoulli.p,
    "copy_": aten.copy.default,
    "transpose_": aten.transpose.int,
}


def functional_of(op: OpOverload) -> OpOverload | None:
    """The operation that gives what `op` would write; `None` where torch has none."""
    packet, name = op.overloadpacket, op._overloadname
    short = packet.__name__
    if torch.Tag.out in op.tags:
        return _without_out(op)
    if not short.endswith("_") or short.endswith("__"):
        return None
    known = _BY_NAME.get(f"{short}.{name}") or _BY_NAME.get(short)
    if known is not None:
        return known
    functional = getattr(torch.ops.aten, short[:-1], None)
    if functional is None:
        return None
    wanted = _types(op)
    named = [getattr(functional, n) for n in functional.overloads()]
    named.sort(key=lambda other: other._overloadname != name)
    return next((o for o in named if torch.Tag.out not in o.tags and _types(o) == wanted), None)


def _without_out(op: OpOverload) -> OpOverload | None:
    named = [getattr(op.overloadpacket, n) for n in op.overloadpacket.overloads()]
    for leaving in ((), _MADE):
        for other in named:
            given = _arguments(other, leaving)
            if torch.Tag.out not in other.tags and given == _arguments(op, leaving):
                return other
    return None


def _types(op: OpOverload) -> list[str]:
    return [str(a.type) for a in op._schema.arguments]


def _arguments(op: OpOverload, leaving: tuple[str, ...]) -> list[tuple[str, str]]:
    given = [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]
    return [a for a in given if a[0] not in leaving]
