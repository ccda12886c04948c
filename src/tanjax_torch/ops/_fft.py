"""Fourier transforms over several axes, with torch's three normalizations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp

from tanjax_torch.arguments._promotion import category
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, axis_of, require


def _normalized(x: Array, sizes: Sequence[int], normalization: int) -> Array:
    """`x` divided by 1, the root of the number of points, or that number."""
    factor = math.prod(sizes) ** {0: 0.0, 1: -0.5, 2: -1.0}[normalization]
    return x if normalization == 0 else x * jnp.asarray(factor, x.dtype)


def _all_axes(x: Array, axes: Sequence[int], forward: bool) -> Array:
    for axis in axes:
        transform = jnp.fft.fft if forward else jnp.fft.ifft
        x = transform(x, axis=axis, norm="backward" if forward else "forward")
    return x


@implements(aten._fft_c2c.default)
def fft_c2c(self: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    require(category(self.dtype) == 3, "_fft_c2c: expected a complex tensor")
    axes = [axis_of(d, self.ndim) for d in dim]
    out = _all_axes(self, axes, forward)
    return _normalized(out, [self.shape[a] for a in axes], normalization)


@implements(aten._fft_r2c.default)
def fft_r2c(self: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    require(category(self.dtype) == 2, "_fft_r2c: expected a real floating tensor")
    *others, last = [axis_of(d, self.ndim) for d in dim]
    if onesided:
        out = _all_axes(jnp.fft.rfft(self, axis=last), others, True)
    else:
        out = _all_axes(jnp.fft.fft(self, axis=last), others, True)
    return _normalized(out, [self.shape[a] for a in (*others, last)], normalization)


@implements(aten._fft_c2r.default)
def fft_c2r(self: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    require(category(self.dtype) == 3, "_fft_c2r: expected a complex tensor")
    *others, last = [axis_of(d, self.ndim) for d in dim]
    out = _all_axes(self, others, False)
    out = jnp.fft.irfft(out, last_dim_size, axis=last, norm="forward")
    sizes = [*[self.shape[a] for a in others], last_dim_size]
    return _normalized(out, sizes, normalization)
