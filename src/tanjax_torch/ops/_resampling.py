"""Upsampling: along each axis, a result is a weighted sum of a few neighbours.

Neighbours and weights depend on sizes alone. They are made on the host; the backward is the
transpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from tanjax_torch._typing import Numbers
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, require, transposed, widened

_SCALES = ("scales", "scales_d", "scales_h", "scales_w")
Stencil = Callable[[int, int, bool, float | None], tuple[Numbers, Numbers]]


def _source(n: int, m: int, align_corners: bool, scale: float | None, cubic: bool) -> Numbers:
    """The place among `n` of each of `m` results."""
    at = np.arange(m)
    if align_corners:
        return at * ((n - 1) / (m - 1) if m > 1 else 0.0)
    step = 1 / scale if scale is not None and scale > 0 else n / m
    found = (at + 0.5) * step - 0.5
    return found if cubic else np.maximum(found, 0)


def _nearest(n: int, m: int, align_corners: bool, scale: float | None) -> tuple[Numbers, Numbers]:
    # Torch multiplies in single precision, and a place at a border depends on it.
    step = np.float32(1 / scale if scale is not None and scale > 0 else n / m)
    place = np.minimum(np.floor(np.arange(m).astype(np.float32) * step).astype(int), n - 1)
    return place[:, None], np.ones((m, 1))


def _nearest_exact(
    n: int, m: int, align_corners: bool, scale: float | None
) -> tuple[Numbers, Numbers]:
    step = np.float32(1 / scale if scale is not None and scale > 0 else n / m)
    at = np.arange(m).astype(np.float32) + np.float32(0.5)
    return np.minimum(np.floor(at * step).astype(int), n - 1)[:, None], np.ones((m, 1))


def _linear(n: int, m: int, align_corners: bool, scale: float | None) -> tuple[Numbers, Numbers]:
    source = _source(n, m, align_corners, scale, False)
    low = np.minimum(np.floor(source).astype(int), n - 1)
    part = np.clip(source - low, 0, 1)
    return np.stack([low, np.minimum(low + 1, n - 1)], 1), np.stack([1 - part, part], 1)


def _cubic(n: int, m: int, align_corners: bool, scale: float | None) -> tuple[Numbers, Numbers]:
    source = _source(n, m, align_corners, scale, True)
    low = np.floor(source).astype(int)
    t = (source - low)[:, None]
    # Keys' cubic convolution with a = -0.75, as in torch and OpenCV.
    a, d = -0.75, np.abs(t - np.arange(-1, 3))
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    places = np.clip(low[:, None] + np.arange(-1, 3), 0, n - 1)
    return places, np.where(d <= 1, near, far)


def _smoothed(filtered: Callable[[Numbers], Numbers], reach: float) -> Stencil:
    """Return a stencil that widens if the axis shrinks, so that every number counts."""

    def stencil(
        n: int, m: int, align_corners: bool, scale: float | None
    ) -> tuple[Numbers, Numbers]:
        if align_corners:
            step = (n - 1) / (m - 1) if m > 1 else 0.0
        else:
            step = 1 / scale if scale is not None and scale > 0 else n / m
        wide_step = max(step, 1.0)
        middle = step * (np.arange(m) + 0.5)
        low = np.maximum((middle - reach * wide_step + 0.5).astype(int), 0)
        high = np.minimum((middle + reach * wide_step + 0.5).astype(int), n)
        places = low[:, None] + np.arange(max(int((high - low).max()), 1))
        weights = filtered(np.abs(places - middle[:, None] + 0.5) / wide_step)
        weights = np.where(places < high[:, None], weights, 0)
        return np.minimum(places, n - 1), weights / weights.sum(1, keepdims=True)

    return stencil


def _triangle(d: Numbers) -> Numbers:
    return np.maximum(1 - d, 0)


def _cubic_filter(d: Numbers) -> Numbers:
    """Keys' cubic convolution with a = -0.5, as in Pillow."""
    near, far = (1.5 * d - 2.5) * d * d + 1, ((-0.5 * d + 2.5) * d - 4) * d + 2
    return np.where(d < 1, near, np.where(d < 2, far, 0))


def _upsampled(
    x: Array,
    output_size: Sequence[int],
    stencil: Stencil,
    align_corners: bool,
    scales: Sequence[float | None],
) -> Array:
    n, dtype = len(output_size), x.dtype
    x = widened(x)
    for k, (size, scale) in enumerate(zip(output_size, scales, strict=True)):
        axis = x.ndim - n + k
        places, weights = stencil(x.shape[axis], size, align_corners, scale)
        shape = (size,) + (1,) * (n - 1 - k)
        parts = [
            jnp.take(x, places[:, j], axis=axis)
            * jnp.asarray(weights[:, j].reshape(shape), x.dtype)
            if weights.shape[1] > 1
            else jnp.take(x, places[:, j], axis=axis)
            for j in range(places.shape[1])
        ]
        x = sum(parts[1:], parts[0])
    return x.astype(dtype)


def _register(name: str, n: int, stencil: Stencil, corners: bool) -> None:
    op, op_backward = getattr(aten, name).default, getattr(aten, f"{name}_backward").default

    def split(
        rest: Sequence[bool | float | None], named: dict[str, float | None]
    ) -> tuple[bool, list[float | None]]:
        align = bool(rest[0]) if corners else False
        scales = list(rest[1:] if corners else rest)
        names = ("scales",) if n == 1 else ("scales_d", "scales_h", "scales_w")[-n:]
        return align, [*scales, *[named.get(m) for m in names[len(scales) :]]]

    def upsample(
        self: Array, output_size: Sequence[int], *rest: bool | float | None, **named: float | None
    ) -> Array:
        require(
            self.ndim == n + 2 and math.prod(self.shape[1:]) > 0 and min(output_size) > 0,
            f"{name}: input and output sizes should be greater than 0, got input "
            f"{list(self.shape)}, output {list(output_size)}",
        )
        align, scales = split(rest, named)
        return _upsampled(self, output_size, stencil, align, scales)

    def upsample_backward(
        grad_output: Array,
        output_size: Sequence[int],
        input_size: Sequence[int],
        *rest: bool | float | None,
        **named: float | None,
    ) -> Array:
        align, scales = split(rest, named)
        return transposed(
            lambda x: _upsampled(x, output_size, stencil, align, scales), input_size, grad_output
        )

    implements(op, static=_SCALES)(upsample)
    implements(op_backward, static=_SCALES)(upsample_backward)


for _n in (1, 2, 3):
    _register(f"upsample_nearest{_n}d", _n, _nearest, False)
    _register(f"_upsample_nearest_exact{_n}d", _n, _nearest_exact, False)
_register("upsample_linear1d", 1, _linear, True)
_register("upsample_bilinear2d", 2, _linear, True)
_register("upsample_trilinear3d", 3, _linear, True)
_register("upsample_bicubic2d", 2, _cubic, True)
_register("_upsample_bilinear2d_aa", 2, _smoothed(_triangle, 1), True)
_register("_upsample_bicubic2d_aa", 2, _smoothed(_cubic_filter, 2), True)
