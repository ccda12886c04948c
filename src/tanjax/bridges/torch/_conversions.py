"""Into the bridge and out of it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

from ._lift import payload_of
from ._plain import copied
from ._tensor import Tensor, tensor


def from_jax(x: Any, requires_grad: bool = False) -> Tensor:
    """A tensor over an array."""
    if isinstance(x, (np.ndarray, np.generic, bool, int, float, complex)):
        x = jnp.asarray(x)
    t = tensor(x)
    return t.requires_grad_() if requires_grad else t


def from_torch(t: torch.Tensor) -> Tensor:
    """A tensor of ours with the numbers of a plain one."""
    return tensor(copied(t)).requires_grad_(t.requires_grad)


def to_jax(t: Any) -> Any:
    """The array of a tensor."""
    return t.payload if isinstance(t, Tensor) else payload_of(t)


def to_torch(t: Tensor) -> torch.Tensor:
    """A plain tensor with the numbers of ours."""
    return torch.from_numpy(np.array(t.payload))
