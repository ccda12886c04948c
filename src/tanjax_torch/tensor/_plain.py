"""Arrays of JAX and plain torch tensors with the same numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.autograd import forward_ad

from tanjax._errors import message
from tanjax._typing import AnyArray, Arraylike
from tanjax.arrays import is_structured
from tanjax_torch._typing import Numbers
from tanjax_torch.arguments._dtypes import DtypeError, exact_dtype, jax_dtype

_FUNCTORCH: Any = torch._C._functorch


class TensorError(RuntimeError):
    """A tensor is used or written in a way that tensors of ours do not support."""


def is_tensor(x: object) -> bool:
    """True for a tensor: a leaf of trees, also where torch sees a tree in it."""
    return isinstance(x, torch.Tensor)


def copied(t: torch.Tensor) -> jax.Array:
    """Copy the numbers of a plain tensor into an array.

    **Raises:** `DtypeError` for float64 and complex128 without x64, for integers that do not fit,
    and for tensors that are no arrays of numbers on the CPU.
    """
    check_plain(t)
    wanted = jax_dtype(t.dtype)
    if t._is_zerotensor():
        return jnp.zeros(t.shape, wanted)
    values = _numbers(unwrapped(t))
    if values.dtype.isbuiltin != 1:  # bfloat16, float8: NumPy has them from `ml_dtypes`
        return _constant(np.array(values))
    if wanted != values.dtype and values.size:
        limits = np.iinfo(wanted)
        if values.max() > limits.max or values.min() < limits.min:
            raise DtypeError(
                message(
                    f"{t.dtype} holds numbers that {wanted} does not.",
                    f"from {values.min()} to {values.max()}",
                    hint='`jax.config.update("jax_enable_x64", True)` keeps all 64 bits.',
                )
            )
    # NumPy's copy is made now; JAX's own reads the memory later, when torch may have written it.
    return _constant(np.array(values, wanted))


def _constant(values: Numbers) -> jax.Array:
    """Return an array with numbers, also while JAX traces: entries may read them."""
    with jax.ensure_compile_time_eval():
        return jax.device_put(values)  # `asarray` would compile for each shape


def _numbers(t: torch.Tensor) -> Numbers:
    with torch._C._DisableFuncTorch():  # it would wrap the tensors made here
        t = t.detach().resolve_conj().resolve_neg()
        if exact_dtype(t.dtype).isbuiltin != 1:
            raw = t.contiguous().view(_bits(t.element_size())).numpy()
            return raw.view(exact_dtype(t.dtype))
        return t.numpy()


def array_of(x: Arraylike) -> AnyArray:
    """An array, a structured one as it is, or numbers of NumPy or Python as an array.

    **Raises:** `DtypeError` for numbers that JAX, as it is set up, does not hold; `TensorError` for
    other types.
    """
    if isinstance(x, jax.Array) or is_structured(x):
        return x
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.isbuiltin == 2:
        return jnp.asarray(np.array(x))
    if isinstance(x, (np.ndarray, np.generic, bool, int, float, complex, list, tuple)):
        return copied(torch.as_tensor(x))
    raise TensorError(
        message(
            "a tensor is made of an array of JAX or NumPy, an array of tanjax, or numbers.",
            f"got: {type(x).__name__}",
            hint="`tjt.from_torch(t)` for a tensor of torch.",
        )
    )


def unwrapped(t: torch.Tensor) -> torch.Tensor:
    """The tensor inside of the wrappers of `torch.func`.

    **Raises:** `TensorError` for a batch: its axis would appear.
    """
    while _FUNCTORCH.is_functorch_wrapped_tensor(t):
        if _FUNCTORCH.is_batchedtensor(t):
            raise TensorError(
                message(
                    "the array of a tensor under `torch.func.vmap` would be the whole batch.",
                    f"got: a batch of {t.dtype}",
                    hint="convert before the transformation.",
                )
            )
        t = _FUNCTORCH.get_unwrapped(t)
    return t


def is_followed(t: torch.Tensor) -> bool:
    """True if autograd, backward or forward, follows a tensor."""
    if t.requires_grad and torch.is_grad_enabled():
        return True
    return forward_ad._current_level >= 0 and _has_tangent(t)


def _has_tangent(t: torch.Tensor) -> bool:
    """True if a tensor has a tangent; torch only returns it to calls from above autograd."""
    included = torch._C._dispatch_tls_local_include_set()
    none = torch._C.DispatchKeySet(torch._C.DispatchKey.Undefined)
    with torch._C._ForceDispatchKeyGuard(included, none):
        return forward_ad.unpack_dual(t).tangent is not None


def plain(x: jax.Array, copy: bool = True) -> torch.Tensor:
    """A plain tensor with the numbers of an array.

    **Arguments:** `copy`: true for a memory of its own; if false, the caller must not write it.

    **Raises:** `TensorError` under a trace of JAX, where arrays have no numbers.
    """
    if isinstance(x, jax.core.Tracer):
        raise TensorError(
            message(
                "the numbers of this tensor are asked for while JAX traces.",
                f"got: {x}",
                hint="ask outside of `jax.jit`, or `jax.debug.print` the array.",
            )
        )
    found: torch.Tensor = torch.from_dlpack(x)
    return found.clone() if copy else found


def on_the_host(x: jax.Array) -> Numbers:
    """The numbers of an array for NumPy, which cannot write them."""
    values: Numbers = plain(x, copy=False).numpy()
    values.flags.writeable = False
    return values


def check_plain(t: torch.Tensor) -> None:
    """Refuse all but dense arrays of numbers on the CPU. **Raises:** `DtypeError`."""
    if t.layout is not torch.strided or t.is_nested or t.is_quantized:
        raise DtypeError(
            message(
                "only dense tensors of numbers have an array of JAX.",
                f"got: layout {t.layout}, nested {t.is_nested}, quantized {t.is_quantized}",
                hint="`t.to_dense()`, or `tj.Sparse` for a fixed pattern.",
            )
        )
    if t.device.type != "cpu":
        raise DtypeError(
            message(
                f"a tensor on {t.device} cannot become ours.",
                hint="`t.cpu()` first; where JAX computes is JAX's default device.",
            )
        )


def _bits(size: int) -> torch.dtype:
    return {1: torch.uint8, 2: torch.int16}[size]
