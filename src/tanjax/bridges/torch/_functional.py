"""The functional operation behind one that writes, found by torch's own naming.

`add_.Tensor` and `add.out` are both `add.Tensor` and a write.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload

aten = torch.ops.aten

# What says how a new tensor is made: `out=` has all of it.
MAKES = ("dtype", "layout", "device", "pin_memory")

_BY_NAME = {
    "normal_": aten.normal_functional.default,
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
    names = functional.overloads()
    return getattr(functional, name) if name in names else None


def _without_out(op: OpOverload) -> OpOverload | None:
    wanted = [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]
    for name in op.overloadpacket.overloads():
        other = getattr(op.overloadpacket, name)
        found = [(a.name, str(a.type)) for a in other._schema.arguments]
        if found == wanted or [f for f in found if f[0] not in MAKES] == wanted:
            return other
    return None
