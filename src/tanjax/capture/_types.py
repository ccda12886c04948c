"""The types of values in a captured program, as text: `f32[3]`, `Diagonal<f32[3]> m`.

The *skeleton* of a value is an instance of its class whose numbers are variables of a jaxpr. No
constructor runs on it: this module only reads its fields.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax._jaxpr_types import Aval
from tanjax._marks import Static
from tanjax._typing import AnyArray, DType
from tanjax.arrays import is_structured
from tanjax.operations import Factorization
from tanjax.quantities import is_quantity
from tanjax.units import Unit

_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


class CapturedClass(type):
    """The metaclass of classes whose construction is an equation: see `_class`."""


def is_typed(x: PyTree) -> bool:
    """True if a node of a tree is one value: an array type, a quantity or a captured class."""
    return is_structured(x) or type(x) is Factorization or isinstance(type(x), CapturedClass)


def children(x: PyTree) -> tuple[list[PyTree], PyTreeDef]:
    """Return the parts of a typed value, and its tree."""
    return jax.tree.flatten(x, is_leaf=lambda v: v is not x and is_typed(v))


def dtype_text(dtype: DType) -> str:
    """Return `float32` as `f32`."""
    name = str(dtype)
    stem = name.rstrip("0123456789")
    return f"{_SHORT[stem]}{name[len(stem) :]}" if stem in _SHORT and stem != name else name


def aval_text(aval: Aval) -> str:
    """Return an abstract value as text: `f32[4,3]`, `Ref<f32[3]>`."""
    if not hasattr(aval, "dtype") or not hasattr(aval, "shape"):
        return str(aval)
    text = f"{dtype_text(aval.dtype)}[{','.join(map(str, aval.shape))}]"
    return f"Ref<{text}>" if "Ref" in type(aval).__name__ else text


def aval_text_of(x: AnyArray) -> str:
    """Return the text of a literal: an array as its aval, other numbers by their class."""
    return aval_text(x) if hasattr(x, "dtype") and hasattr(x, "shape") else type(x).__name__


def type_text(x: PyTree) -> str:
    """Return the type of a skeleton as text."""
    if is_quantity(x):
        return f"{type_text(x.stored)} {unit_text(x.label)}"
    if isinstance(x, Static):
        return type_text(x.value)
    if not is_typed(x):
        return aval_text(x.aval) if hasattr(x, "aval") else aval_text_of(x)
    text_of_class = getattr(type(x), "type_text", None)
    if text_of_class is not None:
        return str(text_of_class(x))
    # An instance without numbers has a handle, and no part.
    parts = [type_text(v) for v in children(x)[0] if getattr(x, "_equation", None) is not v]
    parts += [f"{name}={value_text(v)}" for name, v in statics(x).items()]
    return f"{type(x).__name__}<{', '.join(parts)}>" if parts else type(x).__name__


def unit_text(unit: Unit) -> str:
    """Return a unit as text: `m/s`, and `1` for pure numbers."""
    return str(unit).replace(" / ", "/") or "1"


def statics(x: PyTree) -> dict[str, object]:
    """Return the static fields of an instance that differ from their defaults."""
    if isinstance(type(x), CapturedClass):
        return dict(jax.tree.flatten(x, is_leaf=lambda v: v is not x)[1].node_data()[1][1])
    if not dataclasses.is_dataclass(x):
        return {}
    fields = [f for f in dataclasses.fields(x) if f.init and f.metadata.get("static")]
    found = {f.name: getattr(x, f.name) for f in fields if f.repr}
    default = {f.name: f.default for f in fields}
    return {k: v for k, v in found.items() if not _same(v, default[k])}


def _same(a: object, b: object) -> bool:
    try:
        return bool(a == b)
    except Exception:  # a field whose comparison raises differs from its default
        return False


def _plain(value: Any) -> Any:
    """Return NumPy's numbers as Python's, also in tuples."""
    if type(value) in (tuple, list):
        return type(value)(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def value_text(value: object, longest: int = 60) -> str:
    """Return a parameter as text: dtypes and functions by name, long values as `…`."""
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return dtype_text(np.dtype(value))
    dtype = getattr(value, "dtype", None)
    if isinstance(value, type) and isinstance(dtype, np.dtype):
        return dtype_text(dtype)  # jnp.float32
    if type(value) is Unit:
        return unit_text(value)
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"{dtype_text(value.dtype)}[{','.join(map(str, value.shape))}]"
    text = " ".join(repr(_plain(value)).split())
    return text if len(text) <= longest else "…"
