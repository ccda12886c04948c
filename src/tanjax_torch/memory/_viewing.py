"""View operations: the result reads and writes in the memory of its base.

Torch's schemas declare views, and torch's strides give the places of their entries. So one way
serves all: read and write at these places. The common views, which take a slice or rearrange
entries, have shorter ways. The few that change numbers define how to write them. A view is read
when its numbers are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from torch._ops import OpOverload

from tanjax._errors import AliasError, message
from tanjax._typing import DType, Shape
from tanjax.units import Unit
from tanjax_torch._typing import Args, Kwargs, Plan
from tanjax_torch.arguments._dtypes import exact_dtype, jax_dtype
from tanjax_torch.arguments._static import frozen
from tanjax_torch.structure._structured import structured_call_of
from tanjax_torch.table._calls import call_of
from tanjax_torch.table._functional import functional_of
from tanjax_torch.table._registry import no_rule
from tanjax_torch.tensor._lift import named_payloads, payload_of
from tanjax_torch.tensor._tensor import QuantityTensor, Tensor, geometry_of, placed, tensor

from ._images import image
from ._views import (
    Geometry,
    Place,
    Root,
    View,
    geometry,
    is_distinct,
    labelled,
    numbers_of,
    put_by_places,
    reading,
    row_by_row,
    strided,
)

aten = torch.ops.aten
_SAME = (aten.detach, aten.alias, aten.lift_fresh, aten.lift)
_RESHAPING = (aten.view, aten._unsafe_view, aten.unsqueeze, aten.squeeze, aten._reshape_alias)
_DEEP = 32  # a longer chain of views is one view of the memory itself
Get: TypeAlias = Callable[[jax.Array], jax.Array]
Put: TypeAlias = Callable[[jax.Array, jax.Array], jax.Array]
Ways: TypeAlias = tuple[Get, Put]


def viewing(op: OpOverload) -> Plan:
    """The plan of a view operation."""
    made = _viewing(op)

    def run(structured: bool, args: Args, kwargs: Kwargs) -> Tensor | list[Tensor]:
        if torch.is_inference_mode_enabled() and not args[0].is_inference():
            with torch.inference_mode(False):  # the view shares its base's version counter
                return made(structured, args, kwargs)
        return made(structured, args, kwargs)

    return run


def _viewing(op: OpOverload) -> Plan:
    packet = op.overloadpacket
    if packet in _SAME:
        return _same
    names = [a.name for a in op._schema.arguments][1:]

    def run(structured: bool, args: Args, kwargs: Kwargs) -> Tensor | list[Tensor]:
        base, *rest = args
        of_unit = isinstance(base, QuantityTensor) and op not in _NUMBERS
        if (structured and not of_unit) or not isinstance(base, Tensor):
            return _read_only(op, base, rest, kwargs, structured)
        place = numbers_of(base._place) if of_unit else base._place
        given = dict(zip(names, rest, strict=False)) | kwargs
        here = geometry_of(base)
        label = base._place.read().label if of_unit else None
        if packet is aten.as_strided:
            shape, view = _as_strided(here, place, **given)
            return _placed(view, shape, label)
        shape = geometry(op, here, frozen(rest), frozen(sorted(kwargs.items())))
        if isinstance(shape, Geometry):
            return _placed(_view(op, place, here, shape, given), shape, label)
        parts = call_of(op)(place.read(), *rest, **kwargs)
        views = _several(op, place, here, shape, given, parts)
        return [_placed(view, s, label) for view, s in zip(views, shape, strict=True)]

    return run


def _placed(place: Place, shape: Geometry, label: Unit | None) -> Tensor:
    return placed(place, shape) if label is None else placed(labelled(place, label), shape, True)


def viewing_in_place(op: OpOverload) -> Plan:
    """The plan of an operation that makes a tensor a view of itself: `squeeze_`, `t_`."""
    functional = functional_of(op)
    if functional is None:
        raise no_rule(op)
    view = viewing(functional)

    def run(structured: bool, args: Args, kwargs: Kwargs) -> Tensor:
        t = args[0]
        if (structured and not isinstance(t, QuantityTensor)) or not isinstance(t, Tensor):
            raise AliasError(
                message(
                    f"{op} changes the sizes of a structured tensor or of a plain one in place.",
                    hint="use the operation without the underscore at the end of its name.",
                )
            )
        t._place = view(structured, args, kwargs)._place
        with torch._C._DisableTorchDispatch():  # sizes and strides are in torch's C++
            op(*args, **kwargs)
        return t

    return run


def _same(structured: bool, args: Args, kwargs: Kwargs) -> Tensor:
    (t,) = args
    return placed(t._place, geometry_of(t), structured)


def _several(
    op: OpOverload,
    parent: Place,
    here: Geometry,
    shapes: Sequence[Geometry],
    given: Kwargs,
    parts: Sequence[jax.Array],
) -> list[View]:
    """Return several views with the numbers of one call."""
    if parent.storage is not None:
        return [strided(parent.storage, s, p) for s, p in zip(shapes, parts, strict=True)]
    inner = geometry(op, _dense(here), frozen(list(given.values())), ())
    return [View(parent, *_by_places(i), None, p) for i, p in zip(inner, parts, strict=True)]


def _view(op: OpOverload, parent: Place, here: Geometry, shape: Geometry, given: Kwargs) -> View:
    packet, storage = op.overloadpacket, parent.storage
    numbers = _NUMBERS.get(op)
    if numbers is not None:
        view = View(parent, *numbers(here, shape))
        if storage is parent and packet not in (aten._conj, aten._neg_view):
            view.storage = view  # rows of a memory are rows of this view of it
        return view
    if storage not in (None, parent) and not is_distinct(here):  # writes go to the memory itself
        return strided(storage, shape)
    view = View(parent, *_ways(op, here, shape, given), storage)
    view.depth = 1 + parent.depth
    return view if view.depth < _DEEP or storage is None else strided(storage, shape)


def _ways(op: OpOverload, here: Geometry, shape: Geometry, given: Kwargs) -> Ways:
    packet, rank = op.overloadpacket, len(here.size)
    if op in (aten.select.int, aten.slice.Tensor):
        return _window(here, shape, **given)
    if packet in _RESHAPING:
        return partial(_reshaped, size=shape.size), partial(_put_reshaped, size=here.size)
    if packet is aten.permute:
        order = tuple(d % rank for d in given["dims"])
        return partial(_permuted, order=order), partial(
            _put_permuted, order=tuple(np.argsort(order).tolist())
        )
    if (packet is aten.t and rank == 2) or (op is aten.transpose.int and rank):
        order = _swapped(rank, given.get("dim0", 0), given.get("dim1", 1))
        return partial(_permuted, order=order), partial(_put_permuted, order=order)
    return _by_places(geometry(op, _dense(here), frozen(list(given.values())), ()))


def _by_places(inner: Geometry) -> Ways:
    return reading(inner), partial(put_by_places, inner)


def _window(
    here: Geometry,
    shape: Geometry,
    dim: int = 0,
    index: int | None = None,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Ways:
    axis = dim % len(here.size)
    n = here.size[axis]
    drop = index is not None
    first = slice(start, end).indices(n)[0] if index is None else index % n
    count = 1 if drop else shape.size[axis]
    kind = {"axis": axis, "count": count, "step": step, "drop": drop}
    return partial(_take, start=first, **kind), partial(_give, start=first, **kind)


@partial(jax.jit, static_argnames=("axis", "count", "step", "drop"), inline=True)
def _take(
    base: jax.Array, start: int | jax.Array, axis: int, count: int, step: int, drop: bool
) -> jax.Array:
    part = lax.dynamic_slice_in_dim(base, start, (count - 1) * step + 1 if count else 0, axis)
    part = lax.slice_in_dim(part, 0, None, step, axis)
    return lax.squeeze(part, [axis]) if drop else part


@partial(jax.jit, static_argnames=("axis", "count", "step", "drop"), inline=True)
def _give(
    base: jax.Array,
    part: jax.Array,
    start: int | jax.Array,
    axis: int,
    count: int,
    step: int,
    drop: bool,
) -> jax.Array:
    part = lax.expand_dims(part, [axis]) if drop else part
    if step > 1 and count:
        window = lax.dynamic_slice_in_dim(base, start, (count - 1) * step + 1, axis)
        part = window.at[(slice(None),) * axis + (slice(None, None, step),)].set(part)
    return lax.dynamic_update_slice_in_dim(base, part, start, axis)


@partial(jax.jit, static_argnames=("size",), inline=True)
def _reshaped(base: jax.Array, size: tuple[int, ...]) -> jax.Array:
    return base.reshape(size)


def _put_reshaped(base: jax.Array, part: jax.Array, size: tuple[int, ...]) -> jax.Array:
    return _reshaped(part, size)


@partial(jax.jit, static_argnames=("order",), inline=True)
def _permuted(base: jax.Array, order: tuple[int, ...]) -> jax.Array:
    return base.transpose(order)


def _put_permuted(base: jax.Array, part: jax.Array, order: tuple[int, ...]) -> jax.Array:
    return _permuted(part, order)


def _swapped(rank: int, first: int, second: int) -> tuple[int, ...]:
    order = list(range(rank))
    order[first % rank], order[second % rank] = second % rank, first % rank
    return tuple(order)


@partial(jax.jit, static_argnames=("dtype", "size"), inline=True)
def _cast_bits(x: jax.Array, dtype: DType, size: tuple[int, ...]) -> jax.Array:
    return x.reshape(x.shape or (1,)).view(dtype).reshape(size)


def _bits(here: Geometry, shape: Geometry) -> Ways:
    there = {"dtype": exact_dtype(shape.dtype), "size": shape.size}
    back = {"dtype": exact_dtype(here.dtype), "size": here.size}
    return partial(_cast_bits, **there), lambda base, part: _cast_bits(part, **back)


@partial(jax.jit, inline=True)
def _real(x: jax.Array) -> jax.Array:
    return jnp.stack([x.real, x.imag], -1)


@partial(jax.jit, inline=True)
def _complex(x: jax.Array) -> jax.Array:
    return lax.complex(x[..., 0], x[..., 1])


_NUMBERS: dict[OpOverload, Callable[[Geometry, Geometry], Ways]] = {
    aten._conj.default: lambda here, shape: (jnp.conj, lambda base, part: jnp.conj(part)),
    aten._neg_view.default: lambda here, shape: (jnp.negative, lambda base, part: -part),
    aten.view_as_real.default: lambda here, shape: (_real, lambda base, part: _complex(part)),
    aten.view_as_complex.default: lambda here, shape: (_complex, lambda base, part: _real(part)),
    aten.view.dtype: _bits,
}


def _as_strided(
    here: Geometry, place: Place, size: Shape, stride: Shape, storage_offset: int | None = None
) -> tuple[Geometry, View]:
    offset = here.offset if storage_offset is None else storage_offset
    shape = geometry(aten.as_strided.default, here, frozen([size, stride, offset]), ())
    storage = place.storage
    if storage is None:
        raise AliasError(
            message(
                "as_strided of a view that changes numbers (conjugate, negative, real or complex).",
                hint="clone first.",
            )
        )
    if shape.extent > storage.read().size:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} are "
            f"out of bounds for storage of {storage.read().size} entries"
        )
    return shape, strided(storage, shape)


def new_empty_strided(structured: bool, args: Args, kwargs: Kwargs) -> Tensor:
    """Return zeros with strides: autograd requests those of the base of a view."""
    like, size, stride = args
    dtype = kwargs.get("dtype") or like.dtype
    shape = Geometry(tuple(size), tuple(stride), 0, dtype)
    if shape.stride == row_by_row(shape.size) or 0 in shape.size:
        return tensor(jnp.zeros(shape.size, jax_dtype(dtype)))
    return placed(strided(Root(jnp.zeros(shape.extent, jax_dtype(dtype))), shape), shape)


def _dense(like: Geometry) -> Geometry:
    return Geometry(like.size, row_by_row(like.size), 0, like.dtype)


def _read_only(
    op: OpOverload, base: torch.Tensor, rest: Args, kwargs: Kwargs, structured: bool
) -> Tensor | list[Tensor]:
    """Return a view of a structured array: another array, so writing into it raises."""
    call = structured_call_of(op) if structured else call_of(op)
    given = named_payloads(kwargs)
    parts = call(payload_of(base), *rest, **given)
    several = isinstance(parts, (list, tuple))
    made = [tensor(p) for p in (parts if several else [parts])]
    if not isinstance(base, Tensor):  # of a plain tensor: no part of its memory either
        base = tensor(payload_of(base))
    for i, t in enumerate(made):
        take = lambda x, i=i: call(x, *rest, **given)[i] if several else call(x, *rest, **given)
        t._place = image(base._place, take, t._place.read(), str(op))
    return made if several else made[0]
