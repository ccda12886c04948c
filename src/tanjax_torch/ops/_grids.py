"""Sampling at the points of a grid, in two and three dimensions.

Coordinates run from -1 to 1. With `align_corners` these are the middles of the outermost numbers,
otherwise their outer edges. The backward is the derivative of the sampling.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from tanjax_torch.table._registry import implements

from ._tools import Array, aten, pullback, require, same_dtype, widened

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


def _unnormalized(x: Array, size: int, align_corners: bool) -> Array:
    if align_corners:
        return (x + 1) / 2 * (size - 1)
    return ((x + 1) * size - 1) / 2


def _reflected(x: Array, size: int, align_corners: bool) -> Array:
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if span == 0:
        return jnp.zeros_like(x)
    away = jnp.abs(x - low)
    flips = jnp.floor(away / span)
    rest = away - flips * span
    return jnp.where(flips % 2 == 0, rest + low, span - rest + low)


def _bordered(x: Array, size: int, padding_mode: int, align_corners: bool) -> Array:
    if padding_mode == _ZEROS:
        return x
    if padding_mode == _REFLECTION:
        x = _reflected(x, size, align_corners)
    # Torch's derivative at the border itself is zero.
    return jnp.where(x <= 0, 0, jnp.where(x >= size - 1, size - 1, x)).astype(x.dtype)


def _read(input: Array, places: Sequence[Array], padding_mode: int) -> Array:
    """Numbers at whole places, `(n, channel, *grid)`; zero outside."""
    sizes = input.shape[2:]
    batch = jnp.arange(input.shape[0]).reshape(-1, *(1,) * (places[0].ndim - 1))
    inside: Any = True
    clipped = []
    for place, size in zip(places, sizes, strict=True):
        inside = inside & (place >= 0) & (place <= size - 1)
        # Comparisons first: they move NaN and large numbers to some place inside.
        safe = jnp.where((place >= 0) & (place <= size - 1), place, 0)
        clipped.append(safe.astype(jnp.int32))
    channels_last = jnp.moveaxis(input, 1, -1)
    found = channels_last[(batch, *clipped)]
    return jnp.moveaxis(jnp.where(inside[..., None], found, 0), -1, 1)


def _cubic_weights(t: Array) -> list[Array]:
    """Keys' cubic convolution with a = -0.75 at the distances to four neighbours."""
    a = -0.75

    def near(d: Array) -> Array:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Array) -> Array:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _sampled(
    input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Array:
    sizes, dtype = input.shape[2:], input.dtype
    n, input, grid = len(sizes), widened(input), widened(grid)
    # The last coordinate of a grid is that of the first axis.
    at = [_unnormalized(grid[..., n - 1 - k], sizes[k], align_corners) for k in range(n)]
    if interpolation_mode == _BICUBIC:
        low = [jnp.floor(x) for x in at]
        weights = [_cubic_weights(x - f) for x, f in zip(at, low, strict=True)]
        neighbours = [
            [_bordered(f + j, s, padding_mode, align_corners) for j in (-1, 0, 1, 2)]
            for f, s in zip(low, sizes, strict=True)
        ]
        return _summed(input, neighbours, weights, padding_mode).astype(dtype)
    at = [_bordered(x, s, padding_mode, align_corners) for x, s in zip(at, sizes, strict=True)]
    if interpolation_mode == _NEAREST:
        return _read(input, [jnp.round(x) for x in at], padding_mode).astype(dtype)
    low = [jnp.floor(x) for x in at]
    weights = [[f + 1 - x, x - f] for x, f in zip(at, low, strict=True)]
    return _summed(input, [[f, f + 1] for f in low], weights, padding_mode).astype(dtype)


def _summed(
    input: Array,
    neighbours: Sequence[Sequence[Array]],
    weights: Sequence[Sequence[Array]],
    padding_mode: int,
) -> Array:
    total: Any = 0
    for corner in itertools.product(*[range(len(x)) for x in neighbours]):
        places = [x[j] for x, j in zip(neighbours, corner, strict=True)]
        weight: Any = 1
        for w, j in zip(weights, corner, strict=True):
            weight = weight * w[j]
        total = total + _read(input, places, padding_mode) * weight[:, None]
    return total


def _check(input: Array, grid: Array, interpolation_mode: int) -> None:
    same_dtype("grid_sampler", input, grid)
    n = input.ndim - 2
    require(
        grid.ndim == input.ndim and grid.shape[0] == input.shape[0] and grid.shape[-1] == n,
        f"grid_sampler(): expected grid and input to fit, but got input {list(input.shape)} and "
        f"grid {list(grid.shape)}",
    )
    require(min(input.shape[2:]) > 0, "grid_sampler(): expected input to have non-empty dimensions")
    require(
        n == 2 or interpolation_mode != _BICUBIC,
        "grid_sampler(): bicubic interpolation only supports 4D input",
    )


@implements(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(
    input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Array:
    _check(input, grid, interpolation_mode)
    return _sampled(input, grid, interpolation_mode, padding_mode, align_corners)


@implements(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(
    grad_output: Array,
    input: Array,
    grid: Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Array | None, Array | None]:
    def sample(x: Array, points: Array) -> Array:
        return _sampled(x, points, interpolation_mode, padding_mode, align_corners)

    to_input, to_grid = pullback(sample, (input, grid), grad_output)
    return (to_input if output_mask[0] else None), to_grid
