"""Assertions on values: checked where these are known, which they are not under a trace of JAX."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from tanjax.arrays import shape as shape_of
from tanjax_torch._typing import Dtype, Number, Operand
from tanjax_torch.arguments._dtypes import exact_dtype
from tanjax_torch.table._registry import implements

from ._tools import Array, aten


def holds(condition: Number, text: str = "an assertion of the program does not hold.") -> None:
    """Raise if a condition is known to be false. **Raises:** `RuntimeError`, as torch does."""
    if not isinstance(condition, jax.core.Tracer) and not bool(condition):
        raise RuntimeError(text)


@implements(aten._assert_async.default, eager=True)
def _assert_async(self: Array) -> None:
    holds(self)


@implements(aten._assert_async.msg, eager=True)
def _assert_async_msg(self: Array, assert_msg: str) -> None:
    holds(self, assert_msg)


@implements(aten._functional_assert_async.msg, eager=True)
def _functional_assert_async(self: Array, assert_msg: str, dep_token: Array) -> Array:
    holds(self, assert_msg)
    return dep_token


@implements(aten._assert_tensor_metadata.default, eager=True)
def has_metadata(
    a: Operand,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dtype: Dtype = None,
    **rest: object,
) -> None:
    """Check sizes and dtype of a graph; the dtype is JAX's for the one in torch's graph."""
    shape = tuple(shape_of(a))
    if size is not None and tuple(size) != shape:
        raise RuntimeError(f"Tensor sizes mismatch: the graph has {list(size)}, got {list(shape)}.")
    if dtype is not None and np.dtype(a.dtype) != jax.dtypes.canonicalize_dtype(exact_dtype(dtype)):
        raise RuntimeError(f"Tensor dtype mismatch: the graph has {dtype}, got {a.dtype}.")
