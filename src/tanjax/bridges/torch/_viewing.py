"""View operations: the result reads and writes in the memory of its base.

What a view is, torch's schemas say; what it reads is the operation on the payload; what it writes
is derived from that, but for the few that change numbers on the way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax
from torch._ops import OpOverload

from tanjax._errors import AliasError, message

from ._calls import call_of, structured_call_of
from ._lift import named_payloads, payload_of
from ._static import frozen, thawed
from ._tensor import Tensor, geometry_of, placed, tensor
from ._views import Root, View, geometry, places, scatter

aten = torch.ops.aten
_SAME = (aten.detach, aten.alias, aten.lift_fresh, aten.lift)


def viewing(op: OpOverload) -> Callable[..., Any]:
    """The plan of a view operation."""
    if op.overloadpacket in _SAME:
        return _same

    def run(structured: bool, args: Any, kwargs: Any) -> Any:
        base, *rest = args
        if not isinstance(base, Tensor):  # a plain base with our arguments: nothing to share
            return _read_only(op, payload_of(base), rest, kwargs, structured)
        if structured:
            return _read_only(op, base._place.read(), rest, kwargs, structured)
        key = frozen(rest), frozen(sorted(kwargs.items()))
        shape: Any = geometry(op, geometry_of(base), *key)
        part = call_of(op)(base._place.read(), *rest, **kwargs)
        if not isinstance(part, (list, tuple)):
            return placed(_view(base, op, key, None, part), shape)
        return [
            placed(_view(base, op, key, n, p), s)
            for n, (p, s) in enumerate(zip(part, shape, strict=True))
        ]

    return run


def _same(structured: bool, args: Any, kwargs: Any) -> Any:
    (t,) = args
    return placed(t._place, geometry_of(t), structured)


def _view(base: Tensor, op: OpOverload, key: Any, which: int | None, part: Any) -> View:
    get = functools.partial(_get, op, key, which)
    put = _PUTS.get(op.overloadpacket) or _PUTS.get(op) or functools.partial(_put, op, key, which)
    return View(base._place, get, put, part)


def _get(op: OpOverload, key: Any, which: int | None, base: jax.Array) -> Any:
    args, kwargs = (thawed(k) for k in key)
    part = call_of(op)(base, *args, **dict(kwargs))
    return part if which is None else part[which]


def _put(
    op: OpOverload, key: Any, which: int | None, base: jax.Array, part: jax.Array
) -> jax.Array:
    return scatter(
        base, part, places(functools.partial(_get, op, key, which), (op, key, which), base.shape)
    )


def _put_bits(base: jax.Array, part: jax.Array) -> jax.Array:
    if base.dtype.itemsize != part.dtype.itemsize:
        raise AliasError(
            message(
                f"cannot write in place: a view of {base.dtype} as {part.dtype}.",
                hint="write a clone, and view it back.",
            )
        )
    return lax.bitcast_convert_type(part, base.dtype)


_PUTS: dict[Any, Callable[[Any, Any], Any]] = {
    aten._conj: lambda base, part: jnp.conj(part),
    aten._neg_view: lambda base, part: -part,
    aten.view_as_real: lambda base, part: lax.complex(part[..., 0], part[..., 1]),
    aten.view_as_complex: lambda base, part: jnp.stack([part.real, part.imag], -1),
    aten.view.dtype: _put_bits,
}


def _read_only(op: OpOverload, base: Any, rest: Any, kwargs: Any, structured: bool) -> Any:
    """A view of a structured array is another array: it cannot be written through."""
    call = structured_call_of(op) if structured else call_of(op)
    parts = call(base, *rest, **named_payloads(kwargs))
    several = isinstance(parts, (list, tuple))
    made = [tensor(p) for p in (parts if several else [parts])]
    for t in made:
        t._place = Root(t._place.read(), fixed=f"{op} of an array without a memory to share.")
    return made if several else made[0]
