"""Gather and scatter: reading and writing at computed indices, as general as XLA has them.

JAX expresses all of indexing by two operations with a description of dimensions. NumPy has fancy
indexing, where one index array per axis broadcasts to the result's shape. The translation is the
same for both: an axis of the operand is indexed by its start (from the index array, or by a batch
axis) plus its place within the window.

Out of bounds, a gather clamps its window or fills, and a scatter drops it, by the mode. Sharp edge:
a scatter with a user's function has no law (add, mul, min, max and overwriting have).
"""

from __future__ import annotations

import math
from types import EllipsisType
from typing import TypeAlias

import numpy as np

from tanjax._typing import DType

from ..graph._graph import Node
from ..numbers._interval_record import (
    Records,
    add,
    is_worst_case,
    multiply,
    negate,
    span,
    sum_of,
    union,
)
from ..numbers._spread import add_at, parts_of
from ..numbers._wide import Apart, Numbers, Wide, align, extent
from . import _rows as rows, _vanish as vanish
from ._forms import by_moving, by_order, dtype_of, is_float, joins, shape_of
from ._identities import IDENTITIES
from ._law import Evaluate, Many, law, spread_form
from ._shapes import Fill

Index: TypeAlias = tuple[np.ndarray, ...]  # by axis, where entries are


def _along(values: np.ndarray, axes: list[int], rank: int) -> np.ndarray:
    """Return an array whose axes become the given ones of `rank`, to broadcast over the rest."""
    shape = [1] * rank
    for axis, size in zip(axes, np.shape(values), strict=True):
        shape[axis] = size
    return np.reshape(values, shape)


class _Places:
    """The place in the operand of each entry of a gather's result, or of a scatter's updates."""

    def __init__(
        self,
        indices: np.ndarray,
        shape: tuple[int, ...],  # of the operand
        sizes: list[int],  # of the window, per axis of the operand
        window_axes: tuple[int, ...],  # of the result
        dropped: tuple[int, ...],  # axes of the operand that have no axis in the window
        index_map: tuple[int, ...],
        batches: tuple[tuple[int, ...], tuple[int, ...]],  # of the operand, of the indices
        rank: int,  # of the result
    ) -> None:
        rest = [i for i in range(rank) if i not in window_axes]
        kept = [d for d in range(len(shape)) if d not in dropped and d not in batches[0]]
        self.inside: bool | np.ndarray = True
        self.places, limits = [], []
        for axis, size in enumerate(shape):
            start: int | np.ndarray = 0
            if axis in index_map:
                start = _along(indices[..., index_map.index(axis)].astype(np.int64), rest, rank)
                limits.append((axis, start, size - sizes[axis]))
                self.inside = self.inside & (start >= 0) & (start <= size - sizes[axis])
            elif axis in batches[0]:
                along = rest[batches[1][batches[0].index(axis)]]
                start = _along(np.arange(size), [along], rank)
            if axis in kept:
                offset = window_axes[kept.index(axis)]
                start = np.clip(start, 0, size - sizes[axis])
                start = start + _along(np.arange(sizes[axis]), [offset], rank)
            else:
                start = np.clip(start, 0, max(size - 1, 0))
            self.places.append(start)


def _gather_bound(node: Node, records: Records) -> Records:
    x = records[0]
    # Out of bounds, some modes fill in zeros.
    return [x and x._replace(zero=True) if node.params["fill_value"] == 0 else x]


@law(
    "gather",
    "a: U, i: - -> u",
    rows=rows.same,  # a number that is filled in has the exponent of the result
    bound=_gather_bound,
    replay=IDENTITIES["gather"],
    vanish=vanish.MOVES,
)
def gather(node: Node, xs: list[Wide]) -> list[Wide]:
    p, (x, where) = node.params, xs
    filled = "FILL" in str(p["mode"])
    out, inside = _gathered(node, x, where)
    if filled and not np.all(inside):
        out = np.where(inside, out, _fill(p["fill_value"], out.dtype))
    return [Wide(out, x.exponent)]


@spread_form("gather")
def gather_spread(node: Node, xs: list[Wide]) -> list[Wide]:
    fraction, powers = parts_of(xs[0])
    (filled,) = gather(node, [Wide(fraction), xs[1]])
    moved, inside = _gathered(node, Wide(powers), xs[1])
    return [Wide(filled.array, np.where(inside, moved, 0))]


def _gathered(node: Node, x: Wide, where: Wide) -> tuple[np.ndarray, bool | np.ndarray]:
    """Return the entries, with places out of bounds clamped, and a mask of those within."""
    p, shape = node.params, shape_of(node)
    d, array = p["dimension_numbers"], np.asarray(x.array)
    places = _Places(
        np.asarray(where.array),
        array.shape,
        list(p["slice_sizes"]),
        tuple(d.offset_dims),
        tuple(d.collapsed_slice_dims),
        tuple(d.start_index_map),
        (tuple(d.operand_batching_dims), tuple(d.start_indices_batching_dims)),
        len(shape),
    )
    out = np.broadcast_to(array[tuple(places.places)] if array.ndim else array, shape)
    return out, places.inside


def _fill(given: Fill | None, dtype: DType) -> Fill:
    """Return the fill out of bounds: NaN, the least signed or the largest unsigned integer."""
    if given is not None:
        return np.asarray(given, dtype)
    if dtype.kind == "b":
        return np.True_
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
    return np.asarray(np.nan, dtype)


def _scatter(combine: np.ufunc | None) -> Evaluate:
    """Return the rule of a scatter that writes (`combine` is None) or combines by a ufunc."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        if combine is np.multiply and is_float(xs[2]) and _may_leave(xs):
            raise Apart
        power, (array, updates) = _operands(combine, xs)
        if array.ndim == 0:
            return [Wide(updates if combine is None else combine(array, updates), power)]
        index, kept = places_of_updates(node, array.shape, xs[1].array, updates)
        out = np.array(array)
        if combine is None:
            out[index] = updates[kept]
        else:
            combine.at(out, index, updates[kept])
        return [Wide(out, power)]

    return run


def places_of_updates(
    node: Node, shape: tuple[int, ...], where: Numbers, updates: np.ndarray
) -> tuple[Index, np.ndarray | EllipsisType]:
    """Return the index in the operand of each update of a scatter, and which updates are kept."""
    p = node.params
    d = p["dimension_numbers"]
    batches = tuple(d.operand_batching_dims), tuple(d.scatter_indices_batching_dims)
    dropped = tuple(d.inserted_window_dims)
    sizes = [1] * len(shape)
    kept = [i for i in range(len(shape)) if i not in dropped and i not in batches[0]]
    for axis, along in zip(kept, d.update_window_dims, strict=True):
        sizes[axis] = updates.shape[along]
    places = _Places(
        np.asarray(where), shape, sizes, tuple(d.update_window_dims), dropped,
        tuple(d.scatter_dims_to_operand_dims), batches, updates.ndim,
    )  # fmt: skip
    index = tuple(np.broadcast_to(i, updates.shape) for i in places.places)
    if "CLIP" in str(p["mode"]) or np.all(places.inside):
        return index, ...
    inside = np.broadcast_to(places.inside, updates.shape)
    return tuple(i[inside] for i in index), inside


def _may_leave(xs: list[Wide]) -> bool:
    """True if the products of a scatter may leave the range of float64."""
    if xs[2].exponent:
        return True
    low, high = extent(xs[2].array)
    return high > 0.0 and xs[2].array.size * max(-math.log2(low), math.log2(high)) > 600


def _operands(combine: np.ufunc | None, xs: list[Wide]) -> tuple[int, list[np.ndarray]]:
    """Return operand and updates at one exponent; factors of products are pure numbers."""
    pair = [xs[0], xs[2]]
    if combine is np.multiply:
        return xs[0].exponent, [np.asarray(x.array) for x in pair]
    arrays, power = align(pair)
    return power, [np.asarray(a) for a in arrays]


def _added(node: Node, records: Records) -> Records:
    into, updates = records[0], records[2]
    if into is None or updates is None:
        return [None]
    if node.primitive == "scatter-sub":
        updates = negate(updates)
    count = 1 if node.params["unique_indices"] else math.prod(node.uses[2].value.aval.shape)
    # An entry of the operand gets no update, or a sum of up to `count` of them.
    both = union(updates, sum_of(updates, max(count, 1)))._replace(zero=True)
    return [add(into, both)]


def _multiplied(node: Node, records: Records) -> Records:
    into, updates = records[0], records[2]
    if into is None or updates is None:
        return [None]
    if is_worst_case() and not node.params["unique_indices"]:  # all of them may meet in one entry
        count = max(1, math.prod(node.uses[2].value.aval.shape))
        low, high = min(updates.low, count * updates.low), max(updates.high, count * updates.high)
        updates = span(low, high, zero=updates.zero)._replace(cancelled=updates.cancelled)
    return [union(into, multiply(into, updates))]


_UPDATED, _SUMMED = "a: U, i: -, b: U -> u", "a: u, i: -, b: u -> u"
_JOINED = joins(0, 2)
law("ragged_all_to_all", "a: U, b: U, *i: - -> u")
law("scatter", _UPDATED, bound=_JOINED, evaluate=_scatter(None), spread=by_moving,
    vanish=vanish.MOVES)  # fmt: skip
law("scatter-min", _UPDATED, bound=_JOINED, evaluate=_scatter(np.minimum), spread=by_order(-1),
    vanish=vanish.MOVES)  # fmt: skip
law("scatter-max", _UPDATED, bound=_JOINED, evaluate=_scatter(np.maximum), spread=by_order(1),
    vanish=vanish.MOVES)  # fmt: skip
law("scatter-add", _SUMMED, bound=_added, evaluate=_scatter(np.add), vanish=vanish.SUMS,
    many=Many.UPDATES)  # fmt: skip
law("scatter-sub", _SUMMED, bound=_added, evaluate=_scatter(np.subtract), vanish=vanish.SUMS,
    many=Many.UPDATES)  # fmt: skip
law("scatter-mul", "a: u, i: -, b: 1 -> u", bound=_multiplied, evaluate=_scatter(np.multiply))


def _scatter_add_apart(sign: int) -> Evaluate:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        x, where, updates = xs
        index, kept = places_of_updates(node, x.array.shape, where.array, updates.array)
        fraction, powers = parts_of(updates)
        more = Wide(fraction[kept], powers[kept])
        return [add_at(x, index, more, sign)]

    return run


spread_form("scatter-add")(_scatter_add_apart(1))
spread_form("scatter-sub")(_scatter_add_apart(-1))


@spread_form("scatter-mul")
def _scatter_multiply_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    x, where, updates = xs
    index, kept = places_of_updates(node, x.array.shape, where.array, updates.array)
    (fraction, powers), (more, its) = parts_of(x), parts_of(updates)
    counts = np.zeros(np.shape(fraction), np.int64)
    np.add.at(counts, index, 1)
    if counts.max(initial=0) > 900:  # fractions of 0.5 and more
        raise NotImplementedError("more than 900 factors for one entry")
    fraction, powers = np.array(fraction), np.array(powers)
    np.multiply.at(fraction, index, more[kept])
    np.add.at(powers, index, its[kept])
    return [Wide(fraction, powers)]


@law("lu_pivots_to_permutation", "a: - -> -")
def pivots_to_permutation(node: Node, xs: list[Wide]) -> list[Wide]:
    pivots = np.asarray(xs[0].array)
    return [Wide(permutation(pivots, shape_of(node)[-1]).astype(dtype_of(node)))]


def permutation(pivots: np.ndarray, size: int) -> np.ndarray:
    """Return the permutation that a sequence of row swaps makes (LAPACK's pivots)."""
    rows = pivots.reshape(-1, pivots.shape[-1])
    out = np.tile(np.arange(size), (len(rows), 1))
    for one, swaps in zip(out, rows, strict=True):
        for i, j in enumerate(swaps):
            one[i], one[j] = one[j], one[i]
    return out.reshape(*pivots.shape[:-1], size)
