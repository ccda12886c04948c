"""Writes into structured tensors: what an optimiser does to a parameter.

A parameter (a leaf that requires a gradient) is a point, and moves in its stored coordinates.
Writes into it, with `torch.no_grad()` or through `p.detach()` and `p.data`, act field by field. So
do all operations with a gradient. Then `torch.optim` gives the numbers that optax gives on trees,
and moving averages are those of the fields. Any other structured tensor is the matrix that it
stands for: a write stores the result of the operation, if that has its structure.

Sharp edges. `w.mul_(0.5)` halves every factor of a parameter that is a `Kronecker`, as weight decay
does in optax, and halves the matrix where it is no parameter.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch
from jax.tree_util import PyTreeDef
from torch._ops import OpOverload

from tanjax._errors import UnitError, describe, message
from tanjax._typing import Shape
from tanjax.arrays import densified, is_structured
from tanjax.quantities import convert, is_quantity, stored_of, unitful
from tanjax.units import one
from tanjax_torch._typing import Args, Function, Kwargs, Outcome, Payload
from tanjax_torch.memory._views import Root
from tanjax_torch.tensor._lift import payload_of
from tanjax_torch.tensor._plain import TensorError
from tanjax_torch.tensor._tensor import Tensor

from ._structural import Structural, by_field, is_by_field

_COORDINATES = (torch.ops.aten.copy, torch.ops.aten.zero)


def stepped(
    functional: OpOverload, call: Function, target: torch.Tensor, args: Args, kwargs: Kwargs
) -> Outcome:
    """Return the new value of a tensor after an operation with structured operands.

    **Raises:** `CotangentError`, `UnitError`, `TensorError` for operands that do not fit.
    """
    held = payload_of(target) if isinstance(target, Tensor) else None
    inner = stored_of(held)
    others = [a for a in (*args, *kwargs.values()) if type(a) is Structural]
    is_parameter = held is not None and _is_parameter(target)
    point = is_structured(inner) and (is_parameter or others)
    if functional.overloadpacket is torch.ops.aten.zero and not isinstance(inner, jax.Array):
        return _zero(held, inner)
    if (point or type(held) is Structural) and is_by_field(functional):
        if functional.overloadpacket is torch.ops.aten.copy and args[1:] and _is_number(args[1]):
            args = [args[0], jnp.asarray(args[1])]
        return by_field(functional, args, kwargs)
    return _fitted(functional, held, call(*args, **kwargs))


def _is_parameter(target: Tensor) -> bool:
    whole = isinstance(target._place, Root)  # a part of a parameter has no coordinates
    return (target.requires_grad and target.is_leaf) or (whole and target._place.root.is_point)


def _is_number(a: object) -> bool:
    return isinstance(a, (int, float)) or (isinstance(a, jax.Array) and not a.ndim)


def _zero(held: Payload, inner: Payload) -> Payload:
    step = inner if type(inner) is Structural else Structural.of(inner)
    zero = Structural([jnp.zeros_like(x) for x in step.leaves], step.model, step.unit, step.at)
    if type(held) is Structural:
        return zero
    value = by_field(torch.ops.aten.copy.default, [inner, zero], {})
    return unitful(value, held.label) if is_quantity(held) else value


def _fitted(op: OpOverload, held: Payload | None, out: Outcome) -> Outcome:
    """Return a result in the type and the unit of its target."""
    if isinstance(out, (list, tuple)) or held is None:
        return out
    label = held.label if is_quantity(held) else one
    unit = out.label if is_quantity(out) else one
    if label is not unit:
        if label.dimension is not unit.dimension:
            raise UnitError(
                message(
                    f"{op}: a tensor in {label} cannot hold a value in {unit}.",
                    hint="units are kept: use the operation that is not in place.",
                )
            )
        value = stored_of(out)
        out = convert(value, unit, label)
        out = unitful(out, label) if is_quantity(held) else out
    if isinstance(held, jax.Array):
        return densified(out, str(op), "") if is_structured(out) else out
    if is_quantity(held) and not is_structured(held.stored):
        dense = densified(out.stored, str(op), "") if is_structured(out.stored) else out.stored
        return unitful(jnp.asarray(dense, held.stored.dtype), label)
    if _layout(out) != _layout(held):
        raise TensorError(
            message(
                f"{op}: {describe(held)} cannot hold {describe(out)} in place.",
                hint="use the operation that is not in place, or `tj.tangents.project` first.",
            )
        )
    return jax.tree.map(lambda h, x: jnp.asarray(x, h.dtype), held, out)


def _layout(x: Payload) -> tuple[PyTreeDef, list[Shape]]:
    return jax.tree.structure(x), [jnp.shape(leaf) for leaf in jax.tree.leaves(x)]
