"""Lift a plain torch tensor that meets ours, with a warning.

A plain tensor without axes is a number. One of integers or bools is an index or a mask. One that
contains only 0 and minus infinity is a mask, as torch makes it for attention. tanjax lifts all of
these silently. It copies any other into an array of JAX, with a `LiftWarning` the first time. A
plain tensor that requires a gradient, or that would be written, raises `TensorError`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp
import torch
from torch.autograd import forward_ad

from tanjax._errors import message, outside
from tanjax_torch._typing import Args, Argument, Device, Kwargs

from ._plain import TensorError, copied, is_followed
from ._tensor import Tensor

_NUMBERS = (torch.float64, torch.complex128)
_SAID = [False]
_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


class LiftWarning(UserWarning):
    """A plain torch tensor was copied into an array of JAX to be used with ours."""


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Lift without a warning: for the constants of torch's own decompositions."""
    token = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(token)


def lifted(t: torch.Tensor) -> jax.Array:
    """The numbers of a plain tensor that meets one of ours.

    **Raises:** `TensorError` if it requires a gradient, which would be lost.
    """
    if is_followed(t):
        raise TensorError(
            message(
                "a plain torch tensor with a gradient or a tangent meets one of tanjax.",
                f"got: {t.dtype} of size {list(t.shape)}",
                hint="`tjt.from_torch(t)` first: gradients flow through it.",
            )
        )
    narrow = not jax.config.jax_enable_x64  # type: ignore[attr-defined]
    if narrow and not t.ndim and t.dtype in _NUMBERS and not t.requires_grad:
        return jnp.asarray(t.item())  # torch holds a Python number in 64 bits: it stays weak
    made = copied(t)
    numbers = t.is_floating_point() or t.is_complex()
    silent = _QUIET.get() or _differentiating() or t._is_zerotensor()
    if t.ndim and numbers and not (_SAID[0] or silent or _is_mask(t)):
        _SAID[0] = True
        warnings.warn(
            message(
                f"a plain torch tensor of size {list(t.shape)} was copied to JAX "
                "(this warning comes once; tanjax copies later ones silently).",
                hint="`tjt.from_torch(t)` once, before the loop.",
            ),
            LiftWarning,
            stacklevel=outside(),
        )
    return made


def _is_mask(t: torch.Tensor) -> bool:
    """True for a mask to be added to scores: attention with `is_causal` makes one itself."""
    if not t.is_floating_point():
        return False
    out = t.isneginf()
    return bool((out | (t == 0)).all()) and (t.numel() == 1 or bool(out.any()))


def _differentiating() -> bool:
    """True if torch differentiates: its formulas make plain numbers of their own."""
    forward = forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()
    return forward or torch._C._current_graph_task_id() != -1


def payloads(args: Args) -> list[Argument]:
    """The payloads of the tensors among arguments, other arguments as they are."""
    return [payload_of(a) for a in args]


def named_payloads(kwargs: Kwargs) -> Kwargs:
    """The same for arguments by name."""
    if not kwargs:
        return kwargs
    _check_place(kwargs.get("device"), kwargs.get("layout"), kwargs.get("pin_memory"))
    return {n: payload_of(a) for n, a in kwargs.items()}


def _check_place(device: Device, layout: torch.layout | None, pinned: bool | None) -> None:
    elsewhere = device is not None and torch.device(device).type != "cpu"
    if elsewhere or pinned or (layout is not None and layout is not torch.strided):
        raise TensorError(
            message(
                "a tensor of tanjax is on no other device of torch, in no other layout.",
                f"asked for: device {device}, layout {layout}, pinned {bool(pinned)}",
                hint="JAX places its arrays: `jax.device_put(t.payload, device)`.",
            )
        )


def payload_of(a: Argument) -> Argument:
    """The payload of a tensor, of every tensor in a list, or the argument itself."""
    if isinstance(a, Tensor):
        return a._place.read()
    if isinstance(a, torch.Tensor):
        return lifted(a)
    if isinstance(a, (list, tuple)):
        return [payload_of(x) for x in a]
    return a
