"""A plain torch tensor among ours: it is lifted, and said to be.

The rule, once: a plain tensor without axes is a number, and joins in silence; any other is copied
into an array of JAX, with a `LiftWarning` the first time; one that requires a gradient, or that
would be written, is refused.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tanjax._errors import MutationError, message, outside

from ._dtypes import DtypeError, exact_dtype, jax_dtype
from ._tensor import Tensor

_SAID = [False]
_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


class LiftWarning(UserWarning):
    """A plain torch tensor was copied into an array of JAX to be used with ours."""


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Lift without a word: for the constants of torch's own decompositions."""
    token = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(token)


def lifted(t: torch.Tensor) -> jax.Array:
    """The numbers of a plain tensor that meets one of ours.

    **Raises:** `MutationError` if it requires a gradient, which would be lost.
    """
    if t.requires_grad and torch.is_grad_enabled():
        raise MutationError(
            message(
                "a plain torch tensor that requires a gradient meets one of tanjax.",
                f"got: {t.dtype} of size {list(t.shape)}",
                hint="`tjt.from_torch(t)` first: gradients flow through it.",
            )
        )
    if t.ndim and not _QUIET.get() and not _SAID[0]:
        _SAID[0] = True
        warnings.warn(
            message(
                f"a plain torch tensor of size {list(t.shape)} was copied to JAX "
                "(said once; later ones are copied in silence).",
                hint="`tjt.from_torch(t)` once, before the loop.",
            ),
            LiftWarning,
            stacklevel=outside(),
        )
    return copied(t)


def copied(t: torch.Tensor) -> jax.Array:
    """The numbers of a plain tensor as an array of its own.

    **Raises:** `DtypeError` for float64 and complex128 without x64, for integers that do not fit,
    and for tensors that are no arrays of numbers on the CPU.
    """
    _check(t)
    wanted = jax_dtype(t.dtype)
    numbers = t.detach().resolve_conj().resolve_neg()
    if t.dtype is torch.bfloat16 or exact_dtype(t.dtype).kind == "V":
        same = {1: torch.uint8, 2: torch.int16}[t.element_size()]
        raw = numbers.contiguous().view(same).numpy()
        return jnp.array(raw.view(exact_dtype(t.dtype)))
    values = numbers.numpy()
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
    return jnp.array(values, wanted)


def _check(t: torch.Tensor) -> None:
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


def payloads(args: Any) -> list[Any]:
    """The payloads of the tensors among arguments, other arguments as they are."""
    return [payload_of(a) for a in args]


def named_payloads(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The same for arguments by name."""
    return {n: payload_of(a) for n, a in kwargs.items()} if kwargs else kwargs


def payload_of(a: Any) -> Any:
    """The payload of a tensor, of every tensor in a list, or the argument itself."""
    if isinstance(a, Tensor):
        return a._place.read()
    if isinstance(a, torch.Tensor):
        return lifted(a)
    if isinstance(a, (list, tuple)):
        return [payload_of(x) for x in a]
    return a
