"""Concatenation, repetition, flips, and cuts along a diagonal."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from tanjax_torch.arguments._promotion import promoted
from tanjax_torch.table._registry import implements

from ._tools import Array, aten, axes_of, axis_of, repeated, require


@implements(aten.cat)
def cat(tensors: list[Array], dim: int = 0) -> Array:
    require(len(tensors) > 0, "torch.cat(): expected a non-empty list of Tensors")
    require(all(x.ndim for x in tensors), "zero-dimensional tensor cannot be concatenated")
    arrays = promoted(*tensors)
    # Torch skips an empty vector, also if its shape does not fit the others.
    kept = [x for x in arrays if x.shape != (0,)] or [arrays[0]]
    axis = axis_of(dim, kept[0].ndim)
    rest = {(x.ndim, *x.shape[:axis], *x.shape[axis + 1 :]) for x in kept}
    require(
        len(rest) == 1,
        f"Sizes of tensors must match except in dimension {dim}: {[x.shape for x in kept]}",
    )
    return jnp.concatenate(kept, axis)


@implements(aten.stack)
def stack(tensors: list[Array], dim: int = 0) -> Array:
    require(len(tensors) > 0, "stack expects a non-empty TensorList")
    shapes = [x.shape for x in tensors]
    require(len(set(shapes)) == 1, f"stack expects each tensor to be equal size, but got {shapes}")
    return jnp.stack(promoted(*tensors), axis_of(dim, tensors[0].ndim + 1))


@implements(aten.flip)
def flip(self: Array, dims: Sequence[int]) -> Array:
    return jnp.flip(self, axes_of(dims, self.ndim)) if len(dims) and self.ndim else self


@implements(aten.tril)
def tril(self: Array, diagonal: int = 0) -> Array:
    require(self.ndim >= 2, "tril: input tensor must have at least 2 dimensions")
    return jnp.tril(self, diagonal)


@implements(aten.triu)
def triu(self: Array, diagonal: int = 0) -> Array:
    require(self.ndim >= 2, "triu: input tensor must have at least 2 dimensions")
    return jnp.triu(self, diagonal)


@implements(aten.roll)
def roll(self: Array, shifts: int | Sequence[int], dims: int | Sequence[int] = ()) -> Array:
    shifts = repeated(shifts, 1)
    if dims != () and dims != [] and not self.ndim:
        raise IndexError("roll: a dimension is named, but the tensor has no dimensions")
    axes = [axis_of(d, self.ndim) for d in ((dims,) if isinstance(dims, int) else dims)]
    if not axes:
        require(len(shifts) == 1, "roll: `shifts` required, one of them where no dims are given")
        return jnp.roll(self, shifts[0])
    require(len(shifts) == len(axes), f"shifts and dimensions must align: {shifts}, {dims}")
    return jnp.roll(self, shifts, axes) if self.ndim else self
