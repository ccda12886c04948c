"""The functional operation behind one that writes, found by torch's own naming.

`add_.Tensor` and `add.out` are both `add.Tensor` and a write.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload, OpOverloadPacket

aten = torch.ops.aten

_TENSOR = ("dtype", "layout", "device", "pin_memory", "memory_format")
_BY_NAME = {
    "normal_": aten.normal_functional.default,
    "bernoulli_.float": aten.bernoulli.p,
    "copy_": aten.copy.default,
    "transpose_": aten.transpose.int,
}


def functional_of(op: OpOverload) -> OpOverload | None:
    """The operation that returns the values that `op` writes; `None` where torch has none."""
    packet, name = op.overloadpacket, op._overloadname
    short = packet.__name__
    if torch.Tag.out in op.tags:
        return _with(packet, _arguments(op)) or _making(packet, _arguments(op))
    if not short.endswith("_") or short.endswith("__"):
        return None
    known = _BY_NAME.get(f"{short}.{name}") or _BY_NAME.get(short)
    if known is not None:
        return known
    functional = getattr(torch.ops.aten, short[:-1], None)
    if functional is None:
        return None
    return _with(functional, _arguments(op)) or _same_name(functional, op)


def _same_name(functional: OpOverloadPacket, op: OpOverload) -> OpOverload | None:
    """The overload of the same name and arguments: `pow_.Scalar` is no `pow.Scalar`."""
    if op._overloadname not in functional.overloads():
        return None
    found = getattr(functional, op._overloadname)
    same = [kind for _, kind in _arguments(found)] == [kind for _, kind in _arguments(op)]
    return found if same else None


def _arguments(op: OpOverload) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]


def _with(packet: OpOverloadPacket, wanted: list[tuple[str, str]]) -> OpOverload | None:
    overloads = (getattr(packet, name) for name in packet.overloads())
    functional = (op for op in overloads if torch.Tag.out not in op.tags)
    return next((op for op in functional if _arguments(op) == wanted), None)


def _making(packet: OpOverloadPacket, wanted: list[tuple[str, str]]) -> OpOverload | None:
    """`zeros` for `zeros.out`: it takes a dtype and a device as well, which `out` has."""
    for name in packet.overloads():
        given = _arguments(getattr(packet, name))
        if given[: len(wanted)] == wanted and all(n in _TENSOR for n, _ in given[len(wanted) :]):
            return getattr(packet, name)
    return None
