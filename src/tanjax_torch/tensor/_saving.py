"""Arrays in the form that `torch.save` keeps: plain tensors, and names of types and units.

`torch.load(..., weights_only=True)` reads everything in the file. The file contains no code.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import jax
import torch

from tanjax._errors import message
from tanjax._typing import AnyArray
from tanjax.arrays import registered_array_types
from tanjax.quantities import Quantity
from tanjax.units import Unit, unit

from ._plain import TensorError, copied, plain

# A field that is no array: a number, a text, a unit, or several.
Part: TypeAlias = Any
# The contents of a file: tensors, numbers and texts, tuples and dicts of them.
Saved: TypeAlias = Any


def saved(x: AnyArray | Part) -> Saved:
    """Convert an array to plain tensors, numbers and names."""
    if isinstance(x, jax.Array):
        return plain(x)
    if isinstance(x, Unit):
        return {"unit": str(x)}
    if isinstance(x, (list, tuple)):
        return tuple(saved(y) for y in x)
    if not dataclasses.is_dataclass(x):
        return x
    fields = {f.name: saved(getattr(x, f.name)) for f in dataclasses.fields(x) if f.name[0] != "_"}
    return {"type": type(x).__name__, "fields": fields}


def loaded(x: Saved) -> AnyArray | Part:
    """Convert the form of `saved` back to an array.

    **Raises:** `TensorError` for a type that is not registered.
    """
    if isinstance(x, torch.Tensor):
        return copied(x)
    if isinstance(x, tuple):
        return tuple(loaded(y) for y in x)
    if not isinstance(x, dict):
        return x
    if "unit" in x:
        return unit(x["unit"])
    kinds = {kind.__name__: kind for kind in registered_array_types()}
    if x["type"] not in kinds:
        raise TensorError(
            message(
                f"a file holds an array of type {x['type']}, which is not registered.",
                hint="import the module that registers it, then load.",
            )
        )
    fields = {name: loaded(field) for name, field in x["fields"].items()}
    kind = kinds[x["type"]]
    if kind is Quantity:
        return Quantity(**fields)
    made: Any = object.__new__(kind)  # as pickle does: a constructor may take other arguments
    for name, field in fields.items():
        object.__setattr__(made, name, field)
    return made
