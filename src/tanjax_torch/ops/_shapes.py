"""Views, shapes and concatenations: operations that move numbers and compute none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from tanjax_torch.arguments._dtypes import exact_dtype
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, axes_of, axis_of, require


@implements(aten.alias, aten.detach, aten.lift)
def same(self: Array) -> Array:
    return self


@implements(aten.view.default, aten._unsafe_view)
def view(self: Array, size: Sequence[int]) -> Array:
    known = math.prod([n for n in size if n != -1])
    fits = self.size == known if -1 not in size else known > 0 and self.size % known == 0
    require(fits, f"shape '{list(size)}' is invalid for input of size {self.size}")
    return self.reshape(tuple(size))


@implements(aten._reshape_alias)
def reshape_alias(self: Array, size: Sequence[int], stride: Sequence[int]) -> Array:
    return view(self, size)


@implements(aten.view.dtype)
def view_dtype(self: Array, dtype: torch.dtype) -> Array:
    wanted = exact_dtype(dtype)
    if wanted == self.dtype:
        return self
    if jnp.iscomplexobj(self):
        parts = view_as_real(self)
        return view_dtype(parts.reshape(*self.shape[:-1], -1), dtype)
    if wanted.kind == "c":
        real = view_dtype(self, torch.float32 if wanted == np.complex64 else torch.float64)
        return view_as_complex(real.reshape(*real.shape[:-1], -1, 2))
    if self.dtype == jnp.bool_:
        return view_dtype(self.astype(jnp.uint8), dtype)
    if wanted == np.bool_:
        return view_dtype(self, torch.uint8) != 0
    have, want = self.dtype.itemsize, wanted.itemsize
    if have < want:
        require(
            self.ndim > 0 and self.shape[-1] * have % want == 0,
            f"self.size(-1) must be divisible by {want // have} to view {self.dtype} as {wanted}",
        )
        self = self.reshape(*self.shape[:-1], -1, want // have)
    bits = lax.bitcast_convert_type(self, wanted)
    return bits.reshape(*self.shape[:-1], -1) if have > want else bits


@implements(aten.permute)
def permute(self: Array, dims: Sequence[int]) -> Array:
    require(len(dims) == self.ndim, f"permute: {len(dims)} dims for an input of {self.ndim}")
    return jnp.transpose(self, axes_of(dims, self.ndim)) if self.ndim else self


@implements(aten.transpose.int)
def transpose(self: Array, dim0: int, dim1: int) -> Array:
    first, second = axis_of(dim0, self.ndim), axis_of(dim1, self.ndim)
    return jnp.swapaxes(self, first, second) if self.ndim else self


@implements(aten.t)
def t(self: Array) -> Array:
    require(self.ndim <= 2, f"t() expects a tensor with <= 2 dimensions, but self is {self.ndim}D")
    return self.T


@implements(aten.expand)
def expand(self: Array, size: Sequence[int], *, implicit: bool = False) -> Array:
    new = len(size) - self.ndim
    require(new >= 0, f"expand: {len(size)} sizes for a tensor of {self.ndim} dimensions")
    have = (1,) * new + self.shape
    shape = tuple(h if s == -1 else s for s, h in zip(size, have, strict=True))
    fits = all(h in (1, s) for s, h in zip(shape, have, strict=True)) and -1 not in size[:new]
    require(fits, f"expand: the expanded size {list(size)} does not match {list(self.shape)}")
    return jnp.broadcast_to(self, shape)


@implements(aten.squeeze.default)
def squeeze(self: Array) -> Array:
    return jnp.squeeze(self)


@implements(aten.squeeze.dim, aten.squeeze.dims)
def squeeze_dims(self: Array, dim: int | Sequence[int]) -> Array:
    if not isinstance(dim, int) and not len(dim):
        return self
    axes = axes_of(dim, self.ndim) if self.ndim else ()
    return jnp.squeeze(self, tuple(a for a in axes if self.shape[a] == 1))


@implements(aten.unsqueeze)
def unsqueeze(self: Array, dim: int) -> Array:
    return jnp.expand_dims(self, axis_of(dim, self.ndim + 1))


@implements(aten.select.int)
def select(self: Array, dim: int, index: int) -> Array:
    if not self.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    axis = axis_of(dim, self.ndim)
    return lax.index_in_dim(self, _place(index, self.shape[axis], dim), axis, keepdims=False)


def _place(index: int, size: int, dim: int) -> int:
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {size} at dimension {dim}"
        )
    return index % size


@implements(aten.slice.Tensor)
def slice_(
    self: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    axis, low, high = _bounds(self.shape, dim, start, end, step)
    return lax.slice_in_dim(self, low, high, step, axis)


def _bounds(
    shape: Sequence[int], dim: int, start: int | None, end: int | None, step: int
) -> tuple[int, int, int]:
    require(len(shape) > 0, "slice() cannot be applied to a 0-dim tensor.")
    require(step > 0, "slice step must be positive")
    axis = axis_of(dim, len(shape))
    low, high, _ = slice(start, end, step).indices(shape[axis])
    return axis, low, max(low, high)


@implements(aten.split.Tensor, aten.unsafe_split.Tensor)
def split(self: Array, split_size: int, dim: int = 0) -> list[Array]:
    n = self.shape[axis_of(dim, self.ndim)]
    require(split_size > 0 or (split_size == 0 and n == 0), "split expects split_size > 0")
    sizes = [min(split_size, n - k) for k in range(0, n, split_size or 1)]
    return split_with_sizes(self, sizes or [0], dim)


@implements(aten.split_with_sizes, aten.unsafe_split_with_sizes)
def split_with_sizes(self: Array, split_sizes: Sequence[int], dim: int = 0) -> list[Array]:
    axis = axis_of(dim, self.ndim)
    require(
        sum(split_sizes) == self.shape[axis] and min(split_sizes) >= 0,
        f"split_with_sizes: sizes {list(split_sizes)} do not sum to {self.shape[axis]}",
    )
    ends = np.cumsum(split_sizes).tolist()
    return [
        lax.slice_in_dim(self, end - n, end, 1, axis)
        for n, end in zip(split_sizes, ends, strict=True)
    ]


@implements(aten.unbind.int)
def unbind(self: Array, dim: int = 0) -> list[Array]:
    axis = axis_of(dim, self.ndim)
    return [lax.index_in_dim(self, k, axis, keepdims=False) for k in range(self.shape[axis])]


@implements(aten.diagonal)
def diagonal(self: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    first, second = axis_of(dim1, self.ndim), axis_of(dim2, self.ndim)
    require(first != second, f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return jnp.diagonal(self, offset, first, second)


@implements(aten.unfold)
def unfold(self: Array, dimension: int, size: int, step: int) -> Array:
    x = self.reshape(1) if not self.ndim else self
    axis = axis_of(dimension, self.ndim)
    n = x.shape[axis]
    require(0 <= size <= n and step > 0, f"unfold: size {size}, step {step} in a dimension of {n}")
    starts = np.arange(0, n - size + 1, step)
    windows = jnp.take(x, starts[:, None] + np.arange(size), axis=axis)
    windows = jnp.moveaxis(windows, axis + 1, -1)
    return windows.reshape(size) if not self.ndim else windows


def _strided(
    self: Array, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> Array | None:
    """Return the places in a contiguous array, or `None` for all in order."""
    require(len(size) == len(stride), "as_strided: mismatch in length of strides and shape")
    size, start = tuple(size), offset or 0
    reach = start + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    require(
        not math.prod(size) or (start >= 0 and reach < self.size and min(stride, default=0) >= 0),
        f"as_strided: size {size}, stride {tuple(stride)}, storage_offset {start} are out of "
        f"bounds for storage of {self.size} numbers",
    )
    contiguous = tuple(math.prod(size[k + 1 :]) for k in range(len(size)))
    if not start and self.size == math.prod(size) and tuple(stride) == contiguous:
        return None
    places = jnp.full(size, start, jnp.int32 if self.size < 2**31 else jnp.int64)
    for axis, s in enumerate(stride):
        places += lax.broadcasted_iota(places.dtype, size, axis) * s
    return places


@implements(aten.as_strided)
def as_strided(
    self: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Array:
    places = _strided(self, size, stride, storage_offset)
    if places is None:
        return self.reshape(tuple(size))
    return self.reshape(-1).at[places].get(mode="promise_in_bounds")


# Where a slice begins is traced in both: a loop over the rows of a tensor compiles once.
@implements(aten.slice_backward, eager=True)
def slice_backward(
    grad_output: Array, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Array:
    axis, low, _high = _bounds(input_sizes, dim, start, end, step)
    return _amid_zeros(grad_output, low, tuple(input_sizes), axis, step)


@implements(aten.select_backward, eager=True)
def select_backward(grad_output: Array, input_sizes: Sequence[int], dim: int, index: int) -> Array:
    axis = axis_of(dim, len(input_sizes))
    place = _place(index, input_sizes[axis], dim)
    return _amid_zeros(jnp.expand_dims(grad_output, axis), place, tuple(input_sizes), axis, 1)


@partial(jax.jit, static_argnames=("sizes", "axis", "step"), inline=True)
def _amid_zeros(
    part: Array, low: int | Array, sizes: tuple[int, ...], axis: int, step: int
) -> Array:
    if step > 1 and part.shape[axis]:
        pads = [(0, 0, step - 1 if d == axis else 0) for d in range(part.ndim)]
        part = lax.pad(part, jnp.zeros((), part.dtype), pads)
    return lax.dynamic_update_slice_in_dim(jnp.zeros(sizes, part.dtype), part, low, axis)


@implements(aten.view_as_real)
def view_as_real(self: Array) -> Array:
    require(jnp.iscomplexobj(self), "view_as_real is only supported for complex tensors")
    return jnp.stack([self.real, self.imag], -1)


@implements(aten.view_as_complex)
def view_as_complex(self: Array) -> Array:
    require(
        self.ndim > 0 and self.shape[-1] == 2 and self.dtype in (jnp.float32, jnp.float64),
        "view_as_complex: a float32 or float64 tensor whose last dimension has size 2",
    )
    return lax.complex(self[..., 0], self[..., 1])


@implements(aten._conj)
def conj(self: Array) -> Array:
    return jnp.conj(self) if jnp.iscomplexobj(self) else self


@implements(aten.as_strided_scatter)
def as_strided_scatter(
    self: Array,
    src: Array,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Array:
    places = _strided(self, size, stride, storage_offset)
    src = jnp.broadcast_to(src.astype(self.dtype), tuple(size))
    if places is None:
        return src.reshape(self.shape)
    flat = self.reshape(-1).at[places].set(src, mode="promise_in_bounds")
    return flat.reshape(self.shape)


def _fits(what: str, src: Array, shape: Sequence[int]) -> None:
    require(
        src.shape == tuple(shape),
        f"{what}: expected src to have a size equal to the slice of self. src size = "
        f"{list(src.shape)}, slice size = {list(shape)}",
    )


@implements(aten.slice_scatter)
def slice_scatter(
    self: Array,
    src: Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Array:
    axis, low, high = _bounds(self.shape, dim, start, end, step)
    where = (slice(None),) * axis + (slice(low, high, step),)
    n = len(range(low, high, step))
    _fits("slice_scatter", src, (*self.shape[:axis], n, *self.shape[axis + 1 :]))
    return self.at[where].set(src.astype(self.dtype))


@implements(aten.select_scatter)
def select_scatter(self: Array, src: Array, dim: int, index: int) -> Array:
    axis = axis_of(dim, self.ndim)
    _fits("select_scatter", src, (*self.shape[:axis], *self.shape[axis + 1 :]))
    where = (slice(None),) * axis + (_place(index, self.shape[axis], dim),)
    return self.at[where].set(src.astype(self.dtype))


@implements(aten.diagonal_scatter)
def diagonal_scatter(
    self: Array, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Array:
    first, second = axis_of(dim1, self.ndim), axis_of(dim2, self.ndim)
    moved = jnp.moveaxis(self, (first, second), (-2, -1))
    n = len(np.diagonal(np.empty(moved.shape[-2:], np.bool_), offset))
    _fits("diagonal_scatter", src, (*moved.shape[:-2], n))
    rows = np.arange(src.shape[-1]) + max(-offset, 0)
    columns = np.arange(src.shape[-1]) + max(offset, 0)
    out = moved.at[..., rows, columns].set(src.astype(self.dtype))
    return jnp.moveaxis(out, (-2, -1), (first, second))
