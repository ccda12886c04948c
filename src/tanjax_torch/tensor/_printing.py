"""How a tensor of ours prints: as torch's, with the type and the unit of its array."""

from __future__ import annotations

import jax
import torch

from tanjax_torch._typing import Payload

from ._plain import plain


def printed(t: torch.Tensor, payload: Payload) -> str:
    """`Tensor(...)`: numbers as torch prints them, the dtype, and the state of autograd."""
    if isinstance(payload, jax.Array) and not isinstance(payload, jax.core.Tracer):
        with torch._C._DisableTorchDispatch():
            numbers = repr(plain(payload, copy=False))
        body = numbers[len("tensor(") : -1]
    else:
        body = repr(payload)
    if t.grad_fn is not None:
        body += f", grad_fn=<{t.grad_fn.name()}>"
    elif t.requires_grad:
        body += ", requires_grad=True"
    head = "Parameter containing:\n" if isinstance(t, torch.nn.Parameter) else ""
    return f"{head}Tensor({body})"
