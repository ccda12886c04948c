"""The dtype of JAX for a dtype of torch, and errors for numbers that JAX does not hold.

Torch counts in int64 where JAX, without x64, counts in int32. A tensor of ours always names the
dtype that it holds, and numbers never silently become narrower:

* a float64 or complex128 tensor raises `DtypeError` without x64; the message says how to enable it;
* an int64 tensor becomes int32, which its dtype shows, if its numbers fit; else `DtypeError`;
* an operation whose result torch declares int64 (`argmax`, `arange`) gives the widest integer
  that JAX holds, int32 without x64.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.typing import DTypeLike

from tanjax._errors import message
from tanjax._typing import DType

_PAIRS = (
    (torch.bool, jnp.bool_),
    (torch.uint8, jnp.uint8),
    (torch.uint16, jnp.uint16),
    (torch.uint32, jnp.uint32),
    (torch.uint64, jnp.uint64),
    (torch.int8, jnp.int8),
    (torch.int16, jnp.int16),
    (torch.int32, jnp.int32),
    (torch.int64, jnp.int64),
    (torch.float16, jnp.float16),
    (torch.bfloat16, jnp.bfloat16),
    (torch.float32, jnp.float32),
    (torch.float64, jnp.float64),
    (torch.complex64, jnp.complex64),
    (torch.complex128, jnp.complex128),
    (torch.float8_e4m3fn, jnp.float8_e4m3fn),
    (torch.float8_e5m2, jnp.float8_e5m2),
)
_TO_JAX: dict[torch.dtype, DType] = {t: np.dtype(j) for t, j in _PAIRS}
_TO_TORCH: dict[DType, torch.dtype] = {np.dtype(j): t for t, j in _PAIRS}
_WITHOUT_X64 = {np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.uint64): np.dtype(np.uint32)}
_NEEDS_X64 = (np.dtype(np.float64), np.dtype(np.complex128))


class DtypeError(ValueError):
    """JAX does not hold a dtype, or does not hold it as it is set up."""


def torch_dtype(dtype: DTypeLike) -> torch.dtype:
    """The dtype of torch for one of JAX. **Raises:** `DtypeError` where torch has none."""
    try:
        return _TO_TORCH[np.dtype(dtype)]
    except KeyError:
        raise DtypeError(
            message(f"torch has no dtype {dtype}.", hint="convert with `x.astype` first.")
        ) from None


@functools.cache
def exact_dtype(dtype: torch.dtype) -> DType:
    """The dtype of JAX with the same name, whether or not JAX holds it as it is set up."""
    try:
        return _TO_JAX[dtype]
    except KeyError:
        raise DtypeError(
            message(f"JAX has no dtype {dtype}.", hint="convert with `t.to(dtype)` first.")
        ) from None


def jax_dtype(dtype: torch.dtype) -> DType:
    """The dtype of JAX for a result that torch declares as `dtype`.

    **Raises:** `DtypeError` for float64 and complex128 without x64.
    """
    wanted = exact_dtype(dtype)
    if jax.dtypes.canonicalize_dtype(np.int64) == np.int64:  # also within `jax.enable_x64(True)`
        return wanted
    if wanted in _NEEDS_X64:
        raise DtypeError(
            message(
                f"{dtype} needs 64 bits, and JAX is set up for 32.",
                hint='`jax.config.update("jax_enable_x64", True)` first, or use torch.float32.',
            )
        )
    return _WITHOUT_X64.get(wanted, wanted)


def default_float() -> DType:
    """`torch.get_default_dtype()`: the dtype of a quotient of integers."""
    return jax_dtype(torch.get_default_dtype())
