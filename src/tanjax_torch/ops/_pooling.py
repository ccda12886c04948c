"""Pooling of one to three dimensions: the largest of a window with its place, and averages."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tanjax import kernels
from tanjax._typing import DType
from tanjax_torch._typing import Argument, Function, Numbers, Op
from tanjax_torch.arguments._promotion import category
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, integers, pullback, repeated, require, transposed, widened

Ints = int | Sequence[int]
Triple = tuple[Array, Array, Array]


def _windows(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> list[int]:
    """The number of windows along each axis."""
    counts = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        require(k > 0 and s > 0 and d > 0, "pool: kernel, stride and dilation must be positive")
        reach = d * (k - 1) + 1
        require(0 <= 2 * p <= reach, "pad should be at most half of effective kernel size")
        rest = n + 2 * p - d * (k - 1) - 1
        count = (math.ceil(rest / s) if ceil_mode else rest // s) + 1
        if ceil_mode and (count - 1) * s >= n + p:
            count -= 1  # a window must begin inside of the array or its left border
        require(count > 0, f"pool: output size is too small for an input of {n}")
        counts.append(count)
    return counts


def _frame(
    x: Array, n: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[dict[str, Any], list[int]]:
    """Return the arguments of `lax.reduce_window`, and the number of windows along each axis."""
    sizes = x.shape[-n:]
    require(
        x.ndim in (n + 1, n + 2) and math.prod(x.shape[-n - 1 :]) > 0,
        f"pool: expected an input of {n + 1} or {n + 2} dimensions of positive size apart from "
        f"the batch, got {list(x.shape)}",
    )
    kernel, padding, dilation = (repeated(k, n) for k in (kernel, padding, dilation))
    stride = kernel if not isinstance(stride, int) and not len(stride) else repeated(stride, n)
    counts = _windows(sizes, kernel, stride, padding, dilation, ceil_mode)
    pads = [
        (p, max(0, (c - 1) * s + d * (k - 1) + 1 - m - p))
        for m, k, s, p, d, c in zip(sizes, kernel, stride, padding, dilation, counts, strict=True)
    ]
    lead = x.ndim - n
    return {
        "window_dimensions": (1,) * lead + tuple(kernel),
        "window_strides": (1,) * lead + tuple(stride),
        "padding": [(0, 0)] * lead + pads,
        "window_dilation": (1,) * lead + tuple(dilation),
    }, counts


def _lowest(dtype: DType) -> Array:
    return jnp.asarray(-jnp.inf if category(dtype) >= 2 else jnp.iinfo(dtype).min, dtype)


def _max_pool(
    n: int,
    self: Array,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
) -> tuple[Array, Array]:
    frame, _ = _frame(self, n, kernel_size, stride, padding, dilation, ceil_mode)
    places = jnp.arange(math.prod(self.shape[-n:]), dtype=jnp.int32).reshape(self.shape[-n:])
    places = jnp.broadcast_to(places, self.shape)

    def larger(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        # The first of equal ones, but the last NaN: so torch's loop has it.
        nan_a, nan_b = a[0] != a[0], b[0] != b[0]
        later = b[1] > a[1]
        tie = jnp.where(nan_a & nan_b, later, ~later & (a[0] == b[0]))
        takes = tie | (nan_b & ~nan_a) | (b[0] > a[0])
        return jnp.where(takes, b[0], a[0]), jnp.where(takes, b[1], a[1])

    start = (_lowest(self.dtype), jnp.asarray(jnp.iinfo(jnp.int32).max, jnp.int32))
    values, indices = lax.reduce_window((lax.stop_gradient(self), places), start, larger, **frame)
    return _taken(n, values, self, indices), integers(indices)


def _taken(n: int, values: Array, self: Array, indices: Array) -> Array:
    """The largest numbers, with a derivative: JAX cannot differentiate a window of pairs."""
    rows = math.prod(self.shape[:-n])

    @kernels.custom_jvp
    def taken(values: Array, self: Array, indices: Array) -> Array:
        return values

    @taken.defjvp
    def _(primals: Triple, tangents: Triple) -> tuple[Array, Array]:
        flat, places = tangents[1].reshape(rows, -1), primals[2].reshape(rows, -1)
        return taken(*primals), jnp.take_along_axis(flat, places, 1).reshape(values.shape)

    return taken(values, self, indices)


def _at_places(grad_output: Array, self: Array, indices: Array, n: int) -> Array:
    """Add cotangents at the places of the largest numbers."""
    lead = self.shape[:-n]
    rows = math.prod(lead)
    grad, index = grad_output.reshape(rows, -1), indices.reshape(rows, -1)
    flat = jnp.zeros((rows, math.prod(self.shape[-n:])), grad.dtype)
    out = flat.at[jnp.arange(rows)[:, None], index].add(grad, mode="promise_in_bounds")
    return out.reshape(self.shape)


def _max_pool_backward(
    n: int,
    grad_output: Array,
    self: Array,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
    indices: Array,
) -> Array:
    return _at_places(grad_output, self, indices, n)


def _adaptive_max_pool_backward(n: int, grad_output: Array, self: Array, indices: Array) -> Array:
    return _at_places(grad_output, self, indices, n)


def _average(
    n: int,
    self: Array,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    require(divisor_override != 0, "divisor must be not zero")
    frame, counts = _frame(self, n, kernel_size, stride, padding, 1, ceil_mode)
    x = widened(self)
    total = lax.reduce_window(x, np.zeros((), x.dtype), lax.add, **frame)  # 0 is static: a sum
    divisor: int | Numbers | None = divisor_override
    if divisor is None:
        divisor = _divisor(self.shape[-n:], counts, frame, repeated(padding, n), count_include_pad)
    if category(self.dtype) < 2:
        whole = jnp.broadcast_to(jnp.asarray(divisor, x.dtype), total.shape)
        return lax.div(total, whole)  # towards zero, as torch divides here
    return (total / jnp.asarray(divisor, x.dtype)).astype(self.dtype)


def _divisor(
    sizes: Sequence[int],
    counts: Sequence[int],
    frame: dict[str, Any],
    padding: Sequence[int],
    count_include_pad: bool,
) -> Numbers:
    """The divisor of each window, which may reach beyond the array and its border."""
    n = len(sizes)
    divisor = np.ones((), np.int64)
    for k, (size, count, p) in enumerate(zip(sizes, counts, padding, strict=True)):
        start = np.arange(count) * frame["window_strides"][k - n] - p
        end = np.minimum(start + frame["window_dimensions"][k - n], size + p)
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, size)
        divisor = divisor[..., None] * (end - start)
    return divisor


def _average_backward(n: int, grad_output: Array, self: Array, *window: Argument) -> Array:
    function = functools.partial(_average, n)
    return pullback(lambda x: function(x, *window), (self,), grad_output)[0]


def _adaptive_max(n: int, self: Array, output_size: Ints) -> tuple[Array, Array]:
    require(self.ndim in (n + 1, n + 2), f"adaptive_max_pool{n}d: input {list(self.shape)}")
    sizes, counts = self.shape[-n:], repeated(output_size, n)
    require(math.prod(self.shape[1:]) > 0, f"adaptive_max_pool{n}d: input {list(self.shape)}")
    places, valid = np.zeros((), np.int32), np.ones((), bool)
    for size, count in zip(sizes, counts, strict=True):
        start, end = _adaptive_bounds(size, count)
        taps = np.arange(int((end - start).max(initial=0)))
        at = start[:, None] + taps
        # Grows by the windows of an axis and their taps: (o1, k1, o2, k2, ...).
        places = places[..., None, None] * size + np.minimum(at, size - 1)
        valid = valid[..., None, None] & (at < end[:, None])
    order = (*range(0, 2 * n, 2), *range(1, 2 * n, 2))
    flat = math.prod(places.shape[1::2])
    places = places.transpose(order).reshape(*counts, flat)
    valid = valid.transpose(order).reshape(*counts, flat)
    x = self.reshape(*self.shape[:-n], -1)[..., places]
    x = jnp.where(valid, x, _lowest(self.dtype))
    nan = valid & (x != x)
    # The first of equal ones, but the last NaN: so torch's loop has it.
    last_nan = flat - 1 - jnp.argmax(jnp.flip(nan, -1), -1)
    first = jnp.argmax(jnp.where(nan, _lowest(self.dtype), x), -1)
    tap = jnp.where(jnp.any(nan, -1), last_nan, first)[..., None]
    values = jnp.take_along_axis(x, tap, -1)[..., 0]
    indices = jnp.take_along_axis(jnp.broadcast_to(places, x.shape), tap, -1)[..., 0]
    return values, integers(indices)


def _adaptive_bounds(size: int, count: int) -> tuple[Numbers, Numbers]:
    """Return the starts and ends of windows that cut an axis into `count` parts."""
    at = np.arange(count)
    return at * size // max(count, 1), -(-(at + 1) * size // max(count, 1))


def _adaptive(n: int, self: Array, output_size: Ints) -> Array:
    require(self.ndim in (n + 1, n + 2), f"adaptive_avg_pool{n}d: input {list(self.shape)}")
    require(category(self.dtype) >= 2, "adaptive_avg_pool: only for floating numbers")
    x = widened(self)
    for k, count in enumerate(repeated(output_size, n)):
        axis = x.ndim - n + k
        size = x.shape[axis]
        if count and size % count == 0:
            split = (*x.shape[:axis], count, size // count, *x.shape[axis + 1 :])
            x = jnp.mean(x.reshape(split), axis + 1)
            continue
        start, end = _adaptive_bounds(size, count)
        inside = (np.arange(size) >= start[:, None]) & (np.arange(size) < end[:, None])
        weights = jnp.asarray(inside / inside.sum(1, keepdims=True), x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, weights, ((axis,), (1,))), -1, axis)
    return x.astype(self.dtype)


def _adaptive_backward(n: int, grad_output: Array, self: Array) -> Array:
    size = grad_output.shape[-n:]
    return transposed(lambda x: _adaptive(n, x, size), self.shape, grad_output)


def _register(op: Op, function: Function, n: int) -> None:
    implements(op)(functools.partial(function, n))


for _n in (2, 3):
    _register(getattr(aten, f"max_pool{_n}d_with_indices").default, _max_pool, _n)
    _register(getattr(aten, f"max_pool{_n}d_with_indices_backward").default, _max_pool_backward, _n)
    _register(
        getattr(aten, f"adaptive_max_pool{_n}d_backward").default, _adaptive_max_pool_backward, _n
    )
    _register(getattr(aten, f"adaptive_max_pool{_n}d").default, _adaptive_max, _n)
    _register(getattr(aten, f"avg_pool{_n}d").default, _average, _n)
    _register(getattr(aten, f"avg_pool{_n}d_backward").default, _average_backward, _n)
    _register(getattr(aten, f"_adaptive_avg_pool{_n}d").default, _adaptive, _n)
    _register(getattr(aten, f"_adaptive_avg_pool{_n}d_backward").default, _adaptive_backward, _n)
