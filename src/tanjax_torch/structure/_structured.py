"""The functions of tanjax for operations of torch on arrays of our types.

The lookup tries, in this order:

* an entry for the types (`tjt.implements`), or for the nearest types by class;
* the table of `_operations`, which maps ATen's operations to those of tanjax;
* for quantities the dense entry itself, whose units follow from its computation (`lift`);
* the dense entry after densifying, with a `DensifyWarning`.

Sharp edges. A function that returns `NotImplemented` leaves a case to the next in this order: for
example, the diagonal above the main one has no structure.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import torch
from torch._ops import OpOverload

from tanjax._errors import NoRuleError, UnitError, message
from tanjax.arrays import Dense, array_type, densified, is_structured
from tanjax.frontends import lift
from tanjax.quantities import Quantity, convert, is_quantity, stored_of, unitful
from tanjax.units import one
from tanjax_torch._typing import Args, Argument, Function, Kwargs, Op, Outcome, Payload
from tanjax_torch.arguments._keys import drawn_key, next_key, under_trace
from tanjax_torch.table._calls import call_of
from tanjax_torch.table._decompositions import decomposed
from tanjax_torch.table._kernels import Kernel
from tanjax_torch.table._registry import Entry, dense_entry, no_rule, remembered, structured_entries

from ._operations import OPERATIONS
from ._structural import Structural, as_matrices, structural_call

aten = torch.ops.aten


@remembered
def structured_call_of(op: OpOverload) -> Function:
    """Return the operation on arrays, some of them structured.

    **Raises:** `NoRuleError`, also where two entries are equally near; `UnitError` where units do
    not fit; `CotangentError` for a gradient in stored coordinates that is used as a matrix.
    """
    kernels = {types: Kernel(op, entry) for types, entry in structured_entries(op)}
    nearest: dict[tuple[type, ...], Kernel | None] = {}
    operation = OPERATIONS.get(op) or OPERATIONS.get(op.overloadpacket)

    def call(*args: Argument, **kwargs: Argument) -> Outcome:
        arrays = list(_arrays((*args, *kwargs.values())))
        types = tuple([type(a) if is_structured(a) else Dense for a in arrays])
        if any(type(a) is Structural for a in arrays):
            matrices = as_matrices(op, args, kwargs)
            return (
                structural_call(op, args, kwargs) if matrices is None else call(*matrices, **kwargs)
            )
        if types not in nearest:
            nearest[types] = _nearest(op, kernels, types)
        kernel = nearest[types]
        if kernel is not None:
            return kernel(*args, **kwargs)
        if operation is not None:
            out = operation(*args, **kwargs)
            if out is not NotImplemented:
                return out
        if any(is_quantity(a) for a in arrays):
            return _with_units(op, args, kwargs)
        return call_of(op)(
            *[_dense(op, a) for a in args], **{n: _dense(op, a) for n, a in kwargs.items()}
        )

    return call


def _arrays(args: Args) -> Iterator[Payload]:
    for a in args:
        if isinstance(a, (list, tuple)):
            yield from _arrays(a)
        elif isinstance(a, (jax.Array, Structural)) or is_structured(a):
            yield a


def _nearest(
    op: OpOverload, kernels: dict[tuple[type, ...], Kernel], types: tuple[type, ...]
) -> Kernel | None:
    """The entry for these types, or the nearest one for their classes."""
    if types in kernels or not kernels:
        return kernels.get(types)
    fits = [known for known in kernels if _is_below(types, known)]
    best = [known for known in fits if not any(k != known and _is_below(k, known) for k in fits)]
    if len(best) > 1:
        raise NoRuleError(
            message(
                f"{op}: two entries are equally near to {', '.join(t.__name__ for t in types)}.",
                *[f"entry: {', '.join(t.__name__ for t in known)}" for known in best],
                hint="register one for exactly these types.",
            )
        )
    return kernels[best[0]] if best else None


def _is_below(types: tuple[type, ...], known: tuple[type, ...]) -> bool:
    return len(types) == len(known) and all(map(issubclass, types, known))


def _with_units(op: OpOverload, args: Args, kwargs: Kwargs) -> Outcome:
    """Run the dense entry, interpreted for units."""
    entry: Entry | None = dense_entry(op) or decomposed(op)
    if entry is None:
        raise no_rule(op, (Quantity,))
    leaves, treedef = jax.tree.flatten((args, kwargs), is_leaf=is_structured)
    moving = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array) or is_structured(x)]

    drawn: Function = contextlib.nullcontext
    if torch.Tag.nondeterministic_seeded in op.tags:  # outside of the trace that `lift` makes
        key = next_key(next((x for x in leaves if isinstance(x, torch.Generator)), None))
        drawn = functools.partial(drawn_key, key)

    def run(*arrays: Payload) -> Outcome:
        full = list(leaves)
        for i, x in zip(moving, arrays, strict=True):
            full[i] = x
        args, kwargs = jax.tree.unflatten(treedef, full)
        with drawn():
            return entry.function(*args, **kwargs)

    try:
        return lift(run)(*[leaves[i] for i in moving])
    except UnitError as error:
        raise UnitError(f"{op}: {error}") from None
    except jax.errors.ConcretizationTypeError as error:
        if op.overloadpacket in _OF_VALUES and not under_trace():
            return _by_numbers(op, args, kwargs)
        raise NoRuleError(
            message(
                f"{op} needs values, and has no entry for a quantity.",
                hint="give it the number: `tj.quantity` and `.to_value(unit)` of the payload.",
            )
        ) from error


_SELECTING: tuple[Op, ...] = (aten.index, aten.masked_select, aten._unique2, aten.unique_dim)
_SELECTING += (aten.unique_consecutive, aten.unique_dim_consecutive, aten.index_put)
_OF_VALUES: tuple[Op, ...] = (*_SELECTING, aten.equal, aten.nonzero)
_OTHERS = {aten.equal: (1,), aten.index_put: (2,)}  # operands in the unit of the first


def _by_numbers(op: OpOverload, args: Args, kwargs: Kwargs) -> Outcome:
    """Run an operation that needs values, by the numbers in one unit."""
    packet, first = op.overloadpacket, args[0]
    if packet is aten.index_put and not is_quantity(first) and not first.any():
        first = unitful(first, args[2].label)  # a derivative begins with zeros
    label = first.label if is_quantity(first) else one
    if packet is aten.nonzero and not label.is_linear:
        raise UnitError(f"{op}: the zero of {label} is a point of a scale, and no nothing.")
    numbers = [jnp.asarray(stored_of(first)), *args[1:]]
    for i in _OTHERS.get(packet, ()):
        own = args[i].label if is_quantity(args[i]) else one
        numbers[i] = jnp.asarray(convert(stored_of(args[i]), own, label))
    out = call_of(op)(*numbers, **kwargs)
    if packet not in _SELECTING:
        return out
    first, *rest = out if isinstance(out, (list, tuple)) else [out]
    first = unitful(first, label)
    return (first, *rest) if rest else first


def _dense(op: OpOverload, a: Argument) -> Argument:
    if isinstance(a, (list, tuple)):
        return [_dense(op, x) for x in a]
    if not is_structured(a):
        return a
    kind = array_type(a)
    assert kind is not None
    return densified(a, str(op), "")


__all__ = ["structured_call_of"]
