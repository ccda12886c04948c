"""Array types in exported programs: `jax.export` must write their static data.

Static fields are numbers, texts, flags, shapes, dtypes, units and patterns. tanjax writes them as
JSON, so reading a foreign file runs none of its code.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable

import numpy as np
from jax import export
from jaxtyping import PyTree

from tanjax import units
from tanjax.units import Unit

from ._pattern import Pattern


def register_export(cls: type) -> None:
    """Let exported programs take and return this type. Skip local classes: their names change."""
    if "<locals>" in cls.__qualname__:
        return
    name = f"{cls.__module__.split('.')[0]}.{cls.__qualname__}"
    try:
        export.register_pytree_node_serialization(
            cls,
            serialized_name=name,
            serialize_auxdata=functools.partial(write_static, name),
            deserialize_auxdata=read_static,
        )
    except ValueError:
        return  # the first class with this name keeps it


def write_static(name: str, aux: tuple[object, ...] | None) -> bytes:
    return json.dumps([_encode(name, value) for value in aux or ()]).encode()


def read_static(data: Iterable[int]) -> tuple[object, ...]:
    return tuple(map(_decode, json.loads(bytes(data).decode())))


def _encode(name: str, value: PyTree) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Unit):
        return {"unit": str(value), "scale": value.scale}
    if isinstance(value, tuple):
        return {"tuple": [_encode(name, v) for v in value]}
    if isinstance(value, Pattern):
        return {"pattern": [value.shape, value.rows.tolist(), value.columns.tolist()]}
    try:
        return {"dtype": np.dtype(value).name}
    except TypeError:
        raise TypeError(f"{name}: the static value {value!r} cannot be exported.") from None


def _decode(value: object) -> object:
    if not isinstance(value, dict):
        return value
    if "unit" in value:
        return units.unit(value["unit"]).scaled(value.get("scale", 0))
    if "tuple" in value:
        return tuple(map(_decode, value["tuple"]))
    if "pattern" in value:
        shape, rows, columns = value["pattern"]
        return Pattern.of(rows, columns, shape)
    import jax.numpy as jnp

    return jnp.dtype(value["dtype"])
