"""The array API's functions on structured arrays, beyond those that are operations.

`x.__array_namespace__()` is `tanjax.numpy`. Before a consumer of the standard computes, it may ask
for a dtype, an array or another order of axes. Structured arrays return these without conversion to
a dense array.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Device
from jax.sharding import Sharding
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax import operations as ops
from tanjax._typing import Function, Natural
from tanjax.arrays import AbstractArray, densified, is_structured

_HINT = "use one of tanjax's operations"


def _asarray(
    a: Natural,
    dtype: DTypeLike | None = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Device | Sharding | None = None,
) -> PyTree:
    """Return the array, in another dtype or on another device if requested."""
    a = a if dtype is None else _astype(a, dtype)
    return a if device is None else a.to_device(device)


def _astype(
    x: Natural, dtype: DTypeLike, /, *, copy: bool = False, device: Device | Sharding | None = None
) -> PyTree:
    x = x.astype(dtype) if isinstance(x, AbstractArray) else _dense("astype", x).astype(dtype)
    return x if device is None else x.to_device(device)


def _permute_dims(a: Natural, /, axes: tuple[int, ...]) -> PyTree:
    order = tuple(i % a.ndim for i in axes)
    if order == tuple(range(a.ndim)):
        return a
    return (
        ops.transpose(a) if order == (1, 0) else jnp.permute_dims(_dense("permute_dims", a), axes)
    )


def _conj(x: Natural, /) -> PyTree:
    return x.conj() if isinstance(x, AbstractArray) else jnp.conj(_dense("conj", x))


def _matrix_norm(x: Natural, /, *, keepdims: bool = False, ord: PyTree = "fro") -> PyTree:
    whole = len(x.shape) == 2 and not keepdims  # the type of the matrix may have a closed form
    return ops.norm(x, ord, None if whole else (-2, -1), keepdims)


def _result_type(*args: PyTree) -> PyTree:
    return jnp.result_type(*(a.dtype if is_structured(a) else a for a in args))


def _dense(name: str, x: Natural) -> Natural:
    return densified(x, name, _HINT)


ARRAY_API: dict[str, dict[str, Function]] = {
    "numpy": {
        "asarray": _asarray,
        "astype": _astype,
        "conj": _conj,
        "conjugate": _conj,
        "permute_dims": _permute_dims,
        "result_type": _result_type,
    },
    "linalg": {"matrix_norm": _matrix_norm},
}
