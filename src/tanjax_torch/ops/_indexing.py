"""Reads and writes at indices.

Torch raises for an index out of range, where JAX takes the nearest number or none. So these entries
see values: they check known indices on the host, then call one compiled function. Indices under a
trace cannot be checked: reads outside give NaN (for integers the lowest number), and writes outside
are dropped.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax_torch._typing import Number, Numbers
from tanjax_torch.table._registry import implements

from ._tools import (
    Array,
    aten,
    axis_of,
    fits,
    in_bounds,
    is_traced,
    number,
    require,
    same_dtype,
    shaped,
    times,
    values_of,
)

_MODES = {True: "promise_in_bounds", False: "fill"}
_PUT_MODES = {True: "promise_in_bounds", False: "drop"}
_SELF = "index out of range in self"


def _is_mask(index: Array | None) -> bool:
    return index is not None and index.dtype in (jnp.bool_, jnp.uint8)


def _integral(
    self: Array, indices: Sequence[Array | None]
) -> tuple[tuple[Array | None, ...], bool]:
    """Indices without masks, and whether all are known to be in bounds.

    **Raises:** `IndexError` for an index out of bounds, or a mask that does not fit.
    """
    found: list[Array | None] = []
    known = True
    for index in indices:
        axis = len(found)
        if index is None:
            found.append(None)
            continue
        require(
            index.dtype.kind in "iub",
            "tensors used as indices must be long, int, byte or bool tensors",
        )
        if _is_mask(index):
            shape = self.shape[axis : axis + index.ndim]
            if index.shape != shape:
                raise IndexError(
                    f"The shape of the mask {list(index.shape)} at index {axis} does not match "
                    f"the shape of the indexed tensor {list(self.shape)}"
                )
            found += [jnp.asarray(n) for n in np.nonzero(*values_of("indexing by a mask", index))]
            continue
        if axis >= self.ndim:
            raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
        known &= in_bounds(
            index,
            self.shape[axis],
            negative=True,
            text=f"index {{}} is out of bounds for dimension {axis} with size {{}}",
        )
        found.append(index)
    if len(found) > self.ndim:
        raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
    return tuple(found), known


def _slices(indices: Sequence[Array | Numbers | None]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in indices)


@functools.partial(jax.jit, static_argnames="known")
def _get(self: Array, indices: tuple[Array | None, ...], known: bool) -> Array:
    return self.at[_slices(indices)].get(mode=_MODES[known])


@functools.partial(jax.jit, static_argnames=("known", "accumulate"))
def _put(
    self: Array, indices: tuple[Array | None, ...], values: Array, known: bool, accumulate: bool
) -> Array:
    at = self.at[_slices(indices)]
    if not accumulate:
        return at.set(values, mode=_PUT_MODES[known])
    if self.dtype == jnp.bool_:
        return at.max(values, mode=_PUT_MODES[known])
    return at.add(values, mode=_PUT_MODES[known])


def _same_shape(indices: Sequence[Array | None]) -> None:
    """**Raises:** `IndexError` for indices that cannot be broadcast."""
    shapes = [i.shape for i in indices if i is not None]
    if len(shapes) < 2:
        return
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            f"{', '.join(str(list(s)) for s in shapes)}"
        ) from None


@implements(aten.index.Tensor, aten._unsafe_index.Tensor, eager=True)
def index(self: Array, indices: Sequence[Array | None]) -> Array:
    if not is_traced(self, *indices) and any(map(_is_mask, indices)):
        # The count differs from call to call, and JAX would compile for each.
        found, _ = _integral(self, indices)
        _same_shape(found)
        return jnp.asarray(
            np.asarray(self)[_slices([i if i is None else np.asarray(i) for i in found])]
        )
    found, known = _integral(self, indices)
    _same_shape(found)
    return _get(self, found, known)


@implements(
    aten.index_put.default,
    aten._unsafe_index_put.default,
    aten._index_put_impl,
    eager=True,
)
def index_put(
    self: Array,
    indices: Sequence[Array | None],
    values: Array,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Array:
    require(
        self.dtype == values.dtype,
        f"Index put requires the source and destination dtypes match, got {self.dtype} for the "
        f"destination and {values.dtype} for the source.",
    )
    mask = indices[0] if len(indices) == 1 else None
    fills = mask is not None and _is_mask(mask) and values.size == 1
    if fills and mask is not None and mask.shape == self.shape[: mask.ndim]:
        # One number for all of a mask: no shape depends on values.
        return _fill_mask(self, mask, values.reshape(()), bool(accumulate))
    found, known = _integral(self, indices)
    _same_shape(found)
    if not is_traced(self, values, *found) and any(map(_is_mask, indices)):
        out = np.array(self)
        where = _slices([i if i is None else np.asarray(i) for i in found])
        _fits(values.shape, out[where].shape)
        if accumulate:
            np.add.at(out, where, np.asarray(values))
        else:
            out[where] = np.asarray(values)
        return jnp.asarray(out)
    _fits(values.shape, jax.eval_shape(functools.partial(_get, known=True), self, found).shape)
    return _put(self, found, values, known, bool(accumulate))


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(shape, target) == target
    except ValueError:
        fits = False
    require(
        fits,
        f"shape mismatch: value tensor of shape {list(shape)} cannot be broadcast to indexing "
        f"result of shape {list(target)}",
    )


@functools.partial(jax.jit, static_argnames="accumulate")
def _fill_mask(self: Array, mask: Array, value: Array, accumulate: bool) -> Array:
    mask = mask.astype(bool).reshape(mask.shape + (1,) * (self.ndim - mask.ndim))
    return jnp.where(mask, self + value if accumulate else value, self)


def _along(self: Array, dim: int) -> tuple[Array, int]:
    """Return an array that has an axis to index, and that axis."""
    return (self if self.ndim else self.reshape(1)), axis_of(dim, self.ndim)


def _vector(what: str, index: Array, size: int, error: type[Exception] = IndexError) -> bool:
    require(index.ndim <= 1, f"{what}(): Index is supposed to be a vector")
    return in_bounds(index, size, error=error, text=_SELF if error is IndexError else what)


@functools.partial(jax.jit, static_argnames=("axis", "known"))
def _select(x: Array, axis: int, index: Array, known: bool) -> Array:
    return x.at[(slice(None),) * axis + (index,)].get(mode=_MODES[known])


@implements(aten.index_select, eager=True)
def index_select(self: Array, dim: int, index: Array) -> Array:
    x, axis = _along(self, dim)
    known = _vector("index_select", index, x.shape[axis])
    shape = (*x.shape[:axis], index.size, *x.shape[axis + 1 :]) if self.ndim else ()
    return shaped(_select(x, axis, shaped(index, (index.size,)), known), shape)


@functools.partial(jax.jit, static_argnames=("axis", "known", "how"))
def _write(x: Array, axis: int, index: Array, source: Array, known: bool, how: str) -> Array:
    at = x.at[(slice(None),) * axis + (index,)]
    return getattr(at, how)(source, mode=_PUT_MODES[known])


def _written(what: str, self: Array, dim: int, index: Array, source: Array, how: str) -> Array:
    x, axis = _along(self, dim)
    known = _vector(what, index, x.shape[axis])
    shape = (*x.shape[:axis], index.size, *x.shape[axis + 1 :])
    require(
        source.ndim == 0 or source.size == np.prod(shape),
        f"{what}(): source of shape {list(source.shape)} does not fit {list(shape)}",
    )
    source = shaped(source, shape) if source.ndim else source
    if self.dtype == jnp.bool_ and how == "add":
        how = "max"
    out = _write(x, axis, shaped(index, (index.size,)), source, known, how)
    return shaped(out, self.shape)


@implements(aten.index_add, eager=True)
def index_add(self: Array, dim: int, index: Array, source: Array, *, alpha: Number = 1) -> Array:
    same_dtype("index_add", self, source)
    source = source & bool(alpha) if self.dtype == jnp.bool_ else times(source, alpha)
    if not source.ndim:
        source = source.reshape(1)
    return _written("index_add", self, dim, index, source, "add")


@implements(aten.index_copy, eager=True)
def index_copy(self: Array, dim: int, index: Array, source: Array) -> Array:
    same_dtype("index_copy", self, source)
    return _written("index_copy", self, dim, index, source, "set")


@implements(aten.index_fill.int_Tensor, aten.index_fill.int_Scalar, eager=True)
def index_fill(self: Array, dim: int, index: Array, value: Number) -> Array:
    require(jnp.ndim(value) == 0, "index_fill_ only supports a 0-dimensional value tensor")
    value = number(value, self.dtype)
    x, axis = _along(self, dim)
    index = jnp.where(index < 0, index + x.shape[axis], index)
    return _written("index_fill", self, dim, index, value, "set")


@functools.partial(jax.jit, static_argnames="known")
def _take(self: Array, index: Array, known: bool) -> Array:
    return self.reshape(-1).at[index].get(mode=_MODES[known])


@implements(aten.take, eager=True)
def take(self: Array, index: Array) -> Array:
    known = in_bounds(
        index,
        self.size,
        negative=True,
        text="out of range: tried to access index {} on a tensor of {} elements.",
    )
    return _take(self, index, known)


@functools.partial(jax.jit, static_argnames=("known", "accumulate"))
def _put_flat(self: Array, index: Array, source: Array, known: bool, accumulate: bool) -> Array:
    out = _put(self.reshape(-1), (index.reshape(-1),), source.reshape(-1), known, accumulate)
    return out.reshape(self.shape)


@implements(aten.put, eager=True)
def put(self: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    same_dtype("put_", self, source)
    require(index.size == source.size, "put_(): source and index must have the same size")
    known = in_bounds(index, self.size, negative=True)
    return _put_flat(self, index, source, known, accumulate)


@implements(aten.masked_fill.Scalar, aten.masked_fill.Tensor, eager=True)
def masked_fill(self: Array, mask: Array, value: Number) -> Array:
    require(mask.dtype == jnp.bool_, f"masked_fill only supports boolean masks, got {mask.dtype}")
    require(
        getattr(value, "ndim", 0) == 0,
        "masked_fill only supports a 0-dimensional value tensor, but got one with "
        f"{jnp.ndim(value)} dimension(s).",
    )
    fits(value, self.dtype)
    return _filled(self, mask, value)


@jax.jit
def _filled(self: Array, mask: Array, value: Number) -> Array:
    return jnp.where(mask, number(value, self.dtype), self)


@implements(aten.masked_select, eager=True)
def masked_select(self: Array, mask: Array) -> Array:
    require(mask.dtype == jnp.bool_, "masked_select: expected BoolTensor for mask")
    (chosen,) = values_of("masked_select", mask)
    shape = np.broadcast_shapes(self.shape, chosen.shape)
    chosen = np.broadcast_to(chosen, shape)
    if not is_traced(self):
        return jnp.asarray(np.broadcast_to(np.asarray(self), shape)[chosen])
    line = shape or (1,)
    return jnp.broadcast_to(self, line)[np.nonzero(chosen.reshape(line))]


@implements(aten.masked_scatter, eager=True)
def masked_scatter(self: Array, mask: Array, source: Array) -> Array:
    same_dtype("masked_scatter", self, source)
    require(mask.dtype == jnp.bool_, "masked_scatter_ only supports boolean masks")
    if not is_traced(mask):
        shape = np.broadcast_shapes(self.shape, mask.shape)
        require(
            int(np.broadcast_to(np.asarray(mask), shape).sum()) <= source.size,
            "masked_scatter: expected self and source to have at least as many elements as the "
            "number of ones in mask",
        )
    return _masked_scatter(self, mask, source)


@jax.jit
def _masked_scatter(self: Array, mask: Array, source: Array) -> Array:
    self, mask = jnp.broadcast_arrays(self, mask)
    if not source.size:
        return self
    order = jnp.cumsum(mask.reshape(-1)).reshape(mask.shape) - 1
    return jnp.where(mask, source.reshape(-1)[jnp.clip(order, 0, source.size - 1)], self)


@implements(aten.masked_scatter_backward)
def masked_scatter_backward(grad_output: Array, mask: Array, sizes: Sequence[int]) -> Array:
    n = int(np.prod(sizes))
    grad, mask = (x.reshape(-1) for x in jnp.broadcast_arrays(grad_output, mask))
    order = jnp.where(mask, jnp.cumsum(mask) - 1, n)
    return jnp.zeros(n, grad.dtype).at[order].add(grad, mode="drop").reshape(tuple(sizes))
