"""Operations that only move entries: shapes, slices, joins, indices, order.

They leave the exponent alone; where several arrays meet (concatenate, pad) they are aligned. What
moves every entry keeps the measured extent, so that it is not measured again.

    @rule("transpose")
    def transpose(node, xs):
        return [moved(xs[0], np.transpose(xs[0].array, node.params["permutation"]))]

Sharp edge: results may be views of operands, and read-only.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..graph._graph import Node
from ..numbers._wide import Wide, align
from ._numpy_rules import RULES, SPREAD, dtype_of, rule, shape_of


def moved(x: Wide, array: Any) -> Wide:
    """The same entries in another order or number."""
    return Wide(array, x.exponent, x.extent)


def _same(node: Node, xs: list[Wide]) -> list[Wide]:
    return list(xs)


for _name in (
    "copy",
    "copy_p",
    "stop_gradient",
    "optimization_barrier",
    "pvary",
    "pcast",
    "pbroadcast",
    "name",
    "device_put",
    "sharding_constraint",
    "layout_constraint",
    "reshard",
    "reduced_vary_cast",
    "reduced_vary_cast_p",
    "vary_unreduced_cast",
    "vary_unreduced_cast_p",
    "with_memory_space_constraint",
    "mesh_cast",
):
    RULES[_name] = _same
SPREAD[_same] = _same


@rule("reshape", "squeeze", "expand_dims")
def reshape(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    if node.params.get("dimensions") is not None and node.primitive == "reshape":
        x = moved(x, np.transpose(x.array, node.params["dimensions"]))
    return [moved(x, x.array.reshape(shape_of(node)))]


@rule("transpose")
def transpose(node: Node, xs: list[Wide]) -> list[Wide]:
    return [moved(xs[0], np.transpose(xs[0].array, node.params["permutation"]))]


@rule("rev")
def reverse(node: Node, xs: list[Wide]) -> list[Wide]:
    return [moved(xs[0], np.flip(xs[0].array, node.params["dimensions"]))]


@rule("broadcast_in_dim")
def broadcast_in_dim(node: Node, xs: list[Wide]) -> list[Wide]:
    x, shape = xs[0], shape_of(node)
    array = x.array
    if array.ndim == 0:
        out = np.empty(shape, array.dtype)
        out.fill(array)
        return [moved(x, out)]
    ones = [1] * len(shape)
    for axis, size in zip(node.params["broadcast_dimensions"], array.shape, strict=True):
        ones[axis] = size
    return [moved(x, np.broadcast_to(array.reshape(ones), shape))]


@rule("broadcast_to")
def broadcast_to(node: Node, xs: list[Wide]) -> list[Wide]:
    return [moved(xs[0], np.broadcast_to(xs[0].array, shape_of(node)))]


@rule("tile")
def tile(node: Node, xs: list[Wide]) -> list[Wide]:
    return [moved(xs[0], np.tile(xs[0].array, node.params["reps"]))]


@rule("zeros_like", "empty", "empty2")
def zeros(node: Node, xs: list[Wide]) -> list[Wide]:
    return [constant(node, 0)]


def constant(node: Node, number: Any) -> Wide:
    """An array of one number in the type of the node's result."""
    dtype = np.dtype(dtype_of(node))
    kind = dtype.kind if dtype.kind in "biufc" else "f"
    work = {"f": np.dtype(np.float64), "c": np.dtype(np.complex128)}.get(kind, dtype)
    return Wide(np.full(shape_of(node), number, work))


@rule("platform_index")
def platform_index(node: Node, xs: list[Wide]) -> list[Wide]:
    """Which of the branches of `lax.platform_dependent` is for the default backend."""
    backend = jax.default_backend()
    for i, names in enumerate(node.params["platforms"]):
        if names is None or backend in names:
            return [Wide(np.int32(i))]
    raise NotImplementedError(f"no branch for {backend}")


@rule("iota")
def iota(node: Node, xs: list[Wide]) -> list[Wide]:
    shape, axis = shape_of(node), node.params["dimension"]
    like = constant(node, 0).array
    line = np.arange(shape[axis]).astype(like.dtype)
    return [Wide(like + line.reshape([-1 if i == axis else 1 for i in range(len(shape))]))]


@rule("concatenate")
def concatenate(node: Node, xs: list[Wide]) -> list[Wide]:
    arrays, power = align(xs)
    return [Wide(np.concatenate(arrays, node.params["dimension"]), power)]


@rule("stack")
def stack(node: Node, xs: list[Wide]) -> list[Wide]:
    arrays, power = align(xs)
    return [Wide(np.stack(arrays, node.params["axis"]), power)]


@rule("unstack")
def unstack(node: Node, xs: list[Wide]) -> list[Wide]:
    rows = np.moveaxis(np.asarray(xs[0].array), node.params["axis"], 0)
    return [Wide(row, xs[0].exponent) for row in rows]


@rule("split")
def split(node: Node, xs: list[Wide]) -> list[Wide]:
    ends = np.cumsum(node.params["sizes"])[:-1]
    parts = np.split(np.asarray(xs[0].array), ends, node.params["axis"])
    return [Wide(part, xs[0].exponent) for part in parts]


@rule("slice")
def slice_(node: Node, xs: list[Wide]) -> list[Wide]:
    p = node.params
    steps = p["strides"] or (1,) * len(p["start_indices"])
    where = tuple(map(slice, p["start_indices"], p["limit_indices"], steps))
    return [Wide(xs[0].array[where], xs[0].exponent)]


@rule("pad")
def pad(node: Node, xs: list[Wide]) -> list[Wide]:
    (array, fill), power = align(xs)
    return [Wide(padded(array, fill, node.params["padding_config"]), power)]


def padded(array: Any, fill: Any, config: Any) -> Any:
    """An array with entries before, after and between those of each axis; negative ones cut."""
    array = np.asarray(array)
    spread = [
        max(0, (n - 1) * (m + 1) + 1) for n, (_, _, m) in zip(array.shape, config, strict=True)
    ]
    full = [s + max(lo, 0) + max(hi, 0) for s, (lo, hi, _) in zip(spread, config, strict=True)]
    out = np.full(full, fill, array.dtype)
    inside = tuple(
        slice(max(lo, 0), max(lo, 0) + s, m + 1)
        for s, (lo, _, m) in zip(spread, config, strict=True)
    )
    out[inside] = array
    kept = tuple(
        slice(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi, _) in zip(full, config, strict=True)
    )
    return out[kept]


# -- order ----------------------------------------------------------------------------------------


@rule("sort", work=16)
def sort(node: Node, xs: list[Wide]) -> list[Wide]:
    """Sort by the first operands, NaN last; the others follow."""
    axis, keys = node.params["dimension"], node.params["num_keys"]
    arrays = [np.asarray(x.array) for x in xs]
    order = np.lexsort([_sort_key(a) for a in reversed(arrays[:keys])], axis=axis)
    return [moved(x, np.take_along_axis(a, order, axis)) for x, a in zip(xs, arrays, strict=True)]


def _sort_key(a: Any) -> Any:
    return a + 0.0 if a.dtype.kind == "f" else a  # -0 and 0 are equal


@rule("top_k", work=16)
def top_k(node: Node, xs: list[Wide]) -> list[Wide]:
    axis = node.params.get("axis", -1)
    a = np.asarray(xs[0].array)
    # Descending and stable; NaN counts as largest.
    order = np.flip(np.argsort(np.flip(a, axis), axis=axis, kind="stable"), axis)
    order = a.shape[axis] - 1 - order
    order = np.take(order, np.arange(node.params["k"]), axis)
    index = node.outputs[1].aval.dtype
    return [Wide(np.take_along_axis(a, order, axis), xs[0].exponent), Wide(order.astype(index))]


# -- slices at computed places --------------------------------------------------------------------


def _starts(xs: list[Wide], shape: tuple[int, ...], sizes: Any) -> tuple[slice, ...]:
    return tuple(
        slice(start := min(max(int(x.array), 0), n - size), start + size)
        for x, n, size in zip(xs, shape, sizes, strict=False)
    )


@rule("dynamic_slice")
def dynamic_slice(node: Node, xs: list[Wide]) -> list[Wide]:
    array = np.asarray(xs[0].array)
    where = _starts(xs[1:], array.shape, node.params["slice_sizes"])
    return [Wide(array[where], xs[0].exponent)]


@rule("dynamic_update_slice")
def dynamic_update_slice(node: Node, xs: list[Wide]) -> list[Wide]:
    (array, update), power = align(xs[:2])
    array = np.array(array)
    array[_starts(xs[2:], array.shape, update.shape)] = update
    return [Wide(array, power)]
