"""Padding by copies of the outermost numbers: torch defines the backward by a kernel only."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from tanjax_torch.table._registry import implements

from ._tools import Array, aten, require, transposed


def replication_pad(self: Array, padding: Sequence[int]) -> Array:
    require(self.ndim > len(padding) // 2, "replication_pad: input has too few dimensions")
    for k in range(len(padding) // 2):
        axis, low, high = self.ndim - 1 - k, padding[2 * k], padding[2 * k + 1]
        n = self.shape[axis]
        require(n + low + high > 0, f"padding {low, high} leaves nothing of dimension {axis}")
        self = jnp.take(self, np.clip(np.arange(-low, n + high), 0, n - 1), axis=axis)
    return self


def replication_pad_backward(grad_output: Array, self: Array, padding: Sequence[int]) -> Array:
    return transposed(lambda x: replication_pad(x, padding), self.shape, grad_output)


for _n in (1, 2, 3):
    implements(getattr(aten, f"replication_pad{_n}d"))(replication_pad)
    implements(getattr(aten, f"replication_pad{_n}d_backward"))(replication_pad_backward)
