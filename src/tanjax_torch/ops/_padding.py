"""Padding: reflections and replications at the borders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from tanjax_torch._typing import Numbers, Op
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, require, transposed

Places = Callable[[Numbers, int], Numbers]


def _reflected(places: Numbers, n: int) -> Numbers:
    return n - 1 - np.abs(n - 1 - np.abs(places))


def _replicated(places: Numbers, n: int) -> Numbers:
    return np.clip(places, 0, n - 1)


def _padded(self: Array, padding: Sequence[int], places: Places) -> Array:
    for k in range(len(padding) // 2):
        axis, low, high = self.ndim - 1 - k, padding[2 * k], padding[2 * k + 1]
        n = self.shape[axis]
        require(n + low + high > 0, f"padding {low, high} leaves nothing of dimension {axis}")
        require(
            places is _replicated or max(low, high) < n,
            f"Padding size should be less than the corresponding input dimension, but got: "
            f"padding {low, high} at dimension {axis} of input {list(self.shape)}",
        )
        self = jnp.take(self, places(np.arange(-low, n + high), n), axis=axis)
    return self


def _register(places: Places, forward: Op, backward: Op) -> None:
    def pad(self: Array, padding: Sequence[int]) -> Array:
        require(self.ndim >= len(padding) // 2 + 1, f"{forward}: input has too few dimensions")
        return _padded(self, padding, places)

    def pad_backward(grad_output: Array, self: Array, padding: Sequence[int]) -> Array:
        return transposed(lambda x: _padded(x, padding, places), self.shape, grad_output)

    implements(forward)(pad)
    implements(backward)(pad_backward)


for _kind, _places in (("reflection", _reflected), ("replication", _replicated)):
    for _n in (1, 2, 3):
        _name = f"{_kind}_pad{_n}d"
        _register(_places, getattr(aten, _name), getattr(aten, f"{_name}_backward"))
