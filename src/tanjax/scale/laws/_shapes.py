"""Operations that only move entries: shapes, slices, joins, indices, order.

They keep the exponent; where several arrays meet (concatenate, pad), they are aligned. An operation
that moves every entry keeps the measured extent, so that nothing is measured again.

    @law("transpose", _MOVED, bound=moves, spread=by_moving)
    def transpose(node, xs):
        return [moved(xs[0], np.transpose(xs[0].array, node.params["permutation"]))]

Sharp edge: results may be views of operands, and read-only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ..graph._graph import Node
from ..numbers._interval_record import NOTHING, Record, Records, log2
from ..numbers._wide import Numbers, Wide, align
from ._forms import by_moving, by_order, dtype_of, each, joins, moved, moves, shape_of
from ._integers import PLAIN
from ._law import known, law
from ._vanish import MOVES

_MOVED = "*x: U -> u"

Fill: TypeAlias = complex | np.generic | np.ndarray  # one number
Edges: TypeAlias = tuple[int, int, int]  # entries before, after and between those of an axis


@law("reshape squeeze", _MOVED, bound=moves, spread=by_moving, vanish=MOVES)
def reshape(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    if node.params.get("dimensions") is not None and node.primitive == "reshape":
        x = moved(x, np.transpose(x.array, node.params["dimensions"]))
    return [moved(x, x.array.reshape(shape_of(node)))]


@law("transpose", _MOVED, bound=moves, spread=by_moving, vanish=MOVES)
def transpose(node: Node, xs: list[Wide]) -> list[Wide]:
    return [moved(xs[0], np.transpose(xs[0].array, node.params["permutation"]))]


@law("rev", _MOVED, bound=moves, spread=by_moving, vanish=MOVES)
def reverse(node: Node, xs: list[Wide]) -> list[Wide]:
    return [moved(xs[0], np.flip(xs[0].array, node.params["dimensions"]))]


@law("broadcast_in_dim", _MOVED, bound=moves, spread=by_moving, vanish=MOVES)
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


@law("broadcast_to", _MOVED, bound=moves, spread=by_moving, vanish=MOVES)
def broadcast_to(node: Node, xs: list[Wide]) -> list[Wide]:
    return [moved(xs[0], np.broadcast_to(xs[0].array, shape_of(node)))]


@law("tile", _MOVED, bound=moves, spread=by_moving, vanish=MOVES)
def tile(node: Node, xs: list[Wide]) -> list[Wide]:
    return [moved(xs[0], np.tile(xs[0].array, node.params["reps"]))]


def _nothing(node: Node, records: Records) -> Records:
    return [NOTHING] * len(node.outputs)


@law("zeros_like empty empty2", PLAIN, bound=_nothing)
def zeros(node: Node, xs: list[Wide]) -> list[Wide]:
    return [constant(node, 0)]


def constant(node: Node, number: Fill) -> Wide:
    """Return an array of one number in the dtype of the node's result."""
    dtype = np.dtype(dtype_of(node))
    kind = dtype.kind if dtype.kind in "biufc" else "f"
    work = {"f": np.dtype(np.float64), "c": np.dtype(np.complex128)}.get(kind, dtype)
    return Wide(np.full(shape_of(node), number, work))


def _count(node: Node) -> Record:
    last = node.params["shape"][node.params["dimension"]] - 1
    return Record(0.0, log2(last), zero=True, grid=0.0)


@law("iota", PLAIN, bound=known(_count))
def iota(node: Node, xs: list[Wide]) -> list[Wide]:
    shape, axis = shape_of(node), node.params["dimension"]
    like = constant(node, 0).array
    line = np.arange(shape[axis]).astype(like.dtype)
    return [Wide(like + line.reshape([-1 if i == axis else 1 for i in range(len(shape))]))]


@law("concatenate", _MOVED, bound=joins(), spread=by_moving, vanish=MOVES)
def concatenate(node: Node, xs: list[Wide]) -> list[Wide]:
    arrays, power = align(xs)
    return [Wide(np.concatenate(arrays, node.params["dimension"]), power)]


@law("stack", _MOVED, bound=joins(), spread=by_moving, vanish=MOVES)
def stack(node: Node, xs: list[Wide]) -> list[Wide]:
    arrays, power = align(xs)
    return [Wide(np.stack(arrays, node.params["axis"]), power)]


def parts(node: Node, records: Records) -> Records:
    # Indices that come with the values are integers, bounded by their dtype.
    same = node.uses[0].value.aval.dtype
    return [records[0] if out.aval.dtype == same else None for out in node.outputs]


@law("unstack", _MOVED, bound=parts, spread=by_moving, vanish=MOVES)
def unstack(node: Node, xs: list[Wide]) -> list[Wide]:
    rows = np.moveaxis(np.asarray(xs[0].array), node.params["axis"], 0)
    return [Wide(row, xs[0].exponent) for row in rows]


@law("split", _MOVED, bound=parts, spread=by_moving, vanish=MOVES)
def split(node: Node, xs: list[Wide]) -> list[Wide]:
    ends = np.cumsum(node.params["sizes"])[:-1]
    parts = np.split(np.asarray(xs[0].array), ends, node.params["axis"])
    return [Wide(part, xs[0].exponent) for part in parts]


@law("slice", _MOVED, bound=moves, spread=by_moving, vanish=MOVES)
def slice_(node: Node, xs: list[Wide]) -> list[Wide]:
    p = node.params
    steps = p["strides"] or (1,) * len(p["start_indices"])
    where = tuple(map(slice, p["start_indices"], p["limit_indices"], steps))
    return [Wide(xs[0].array[where], xs[0].exponent)]


@law("pad", _MOVED, bound=joins(), spread=by_moving, vanish=MOVES)
def pad(node: Node, xs: list[Wide]) -> list[Wide]:
    (array, fill), power = align(xs)
    return [Wide(padded(array, fill, node.params["padding_config"]), power)]


def padded(array: Numbers, fill: Fill, config: Sequence[Edges]) -> np.ndarray:
    """Pad an array before, after and between the entries of each axis; negative counts cut."""
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


@law("sort", "*x: * -> [*]", work=16, bound=each, spread=by_order(1), vanish=MOVES)
def sort(node: Node, xs: list[Wide]) -> list[Wide]:
    """Sort by the first operands, NaN last; the others follow."""
    axis, keys = node.params["dimension"], node.params["num_keys"]
    arrays = [np.asarray(x.array) for x in xs]
    order = np.lexsort([_sort_key(a) for a in reversed(arrays[:keys])], axis=axis)
    return [moved(x, np.take_along_axis(a, order, axis)) for x, a in zip(xs, arrays, strict=True)]


def _sort_key(a: np.ndarray) -> np.ndarray:
    return a + 0.0 if a.dtype.kind == "f" else a  # -0 and 0 are equal


@law("top_k approx_top_k", "a: U -> (u, -)", work=16, bound=parts, spread=by_order(1), vanish=MOVES)
def top_k(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return the largest entries, or the smallest; some backends have others nearly as large."""
    p = node.params
    axis: int = p["reduction_dimension"] if "reduction_dimension" in p else p.get("axis", -1)
    a = np.asarray(xs[0].array)
    if p.get("is_max_k", True):
        # Descending and stable; NaN counts as largest.
        order = np.flip(np.argsort(np.flip(a, axis), axis=axis, kind="stable"), axis)
        order = a.shape[axis] - 1 - order
    else:
        order = np.argsort(a, axis=axis, kind="stable")
    order = np.take(order, np.arange(node.outputs[0].aval.shape[axis]), axis)
    index = node.outputs[1].aval.dtype
    return [Wide(np.take_along_axis(a, order, axis), xs[0].exponent), Wide(order.astype(index))]


# -- slices at computed places --------------------------------------------------------------------


def _starts(xs: list[Wide], shape: tuple[int, ...], sizes: Sequence[int]) -> tuple[slice, ...]:
    return tuple(
        slice(start := min(max(int(x.array), 0), n - size), start + size)
        for x, n, size in zip(xs, shape, sizes, strict=False)
    )


@law("dynamic_slice", "a: U, *i: - -> u", bound=moves, spread=by_moving, vanish=MOVES)
def dynamic_slice(node: Node, xs: list[Wide]) -> list[Wide]:
    array = np.asarray(xs[0].array)
    where = _starts(xs[1:], array.shape, node.params["slice_sizes"])
    return [Wide(array[where], xs[0].exponent)]


@law(
    "dynamic_update_slice",
    "a: U, b: U, *i: - -> u",
    bound=joins(0, 1),
    spread=by_moving,
    vanish=MOVES,
)
def dynamic_update_slice(node: Node, xs: list[Wide]) -> list[Wide]:
    (array, update), power = align(xs[:2])
    array = np.array(array)
    array[_starts(xs[2:], array.shape, update.shape)] = update
    return [Wide(array, power)]
