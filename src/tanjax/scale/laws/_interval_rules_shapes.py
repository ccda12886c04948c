"""Interval rules of structure, reductions, contractions and linear algebra.

Moving entries does not change their range; choosing among arrays gives the union; a sum of k terms
grows by log2(k) where all have one sign, and is expected to grow by half as many bits otherwise
(`sum_of`).

    INTERVALS["reduce_sum"](node, [positive(0.0, 1.0)])  # of 8 entries
    # [Record(plus_low=3.0, plus_high=4.0, ...)]

Sharp edges: a scatter is taken to add all of its updates to one entry; the factors of `lu` are
expected to grow by the number of rows, not by the exponential of the worst case; the axis of a
collective sum is taken from the mesh in the types, and has size 1 if that is not there.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from ..graph._graph import Node
from ..numbers._interval_record import (
    INFINITY,
    NOTHING,
    Record,
    Records,
    add,
    growth,
    multiply,
    multiply_by_itself,
    negate,
    rule,
    rule_of_known,
    span,
    sum_of,
    union,
)

# The first result has the entries of the first operand, perhaps fewer, elsewhere.
_MOVES = (
    "broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "rev", "slice",
    "dynamic_slice", "copy", "copy_p", "device_put", "stop_gradient", "name", "reduce_precision",
    "sharding_constraint", "reduce_max", "reduce_min", "cummax", "cummin", "pvary", "reshard",
    "all_gather", "all_gather_invariant", "all_to_all", "ppermute", "pbroadcast", "pmax", "pmin",
    "reduce_window_max", "reduce_window_min", "tile", "layout_constraint", "preduced", "pin",
    "unpin", "broadcast_to", "with_memory_space_constraint", "relayout", "all_gather_reduced",
    "vary_unreduced_cast", "vary_unreduced_cast_p", "reduced_vary_cast", "reduced_vary_cast_p",
    "dce_sink", "inspect_sharding", "tie", "pcast", "mesh_cast", "copy_to_host", "broadcast",
)  # fmt: skip


@rule(*_MOVES)
def _move(node: Node, records: Records) -> Records:
    if len(records) == len(node.outputs):  # several arrays at once, as in device_put
        return list(records)
    return [records[0], *[None] * (len(node.outputs) - 1)]


@rule("split", "unstack", "top_k", "approx_top_k")
def _split(node: Node, records: Records) -> Records:
    # Indices that come with the values are integers, bounded by their dtype.
    same = node.uses[0].value.aval.dtype
    return [records[0] if out.aval.dtype == same else None for out in node.outputs]


@rule("sort", "optimization_barrier")
def _each(node: Node, records: Records) -> Records:
    return list(records)


@rule_of_known("concatenate", "pad", "stack", "rng_uniform")
def _join(node: Node, *records: Record) -> Record:
    return reduce(union, records)


@rule("select_n")
def _select(node: Node, records: Records) -> Records:
    return _join_known(records[1:])


@rule("dynamic_update_slice")
def _update(node: Node, records: Records) -> Records:
    return _join_known(records[:2])


@rule("scatter", "scatter-min", "scatter-max")
def _scatter(node: Node, records: Records) -> Records:
    return _join_known([records[0], records[2]])


def _join_known(records: Records) -> Records:
    return [None] if None in records else [reduce(union, records)]  # type: ignore[arg-type]


@rule("gather")
def _gather(node: Node, records: Records) -> Records:
    x = records[0]
    # Out of bounds, some modes fill in zeros.
    return [x and x._replace(zero=True) if node.params["fill_value"] == 0 else x]


@rule("scatter-add", "scatter-sub")
def _scatter_add(node: Node, records: Records) -> Records:
    into, updates = records[0], records[2]
    if into is None or updates is None:
        return [None]
    if node.primitive == "scatter-sub":
        updates = negate(updates)
    count = _size(node.uses[2].value.aval.shape) if not node.params["unique_indices"] else 1
    # What is left alone, and sums of up to `count` updates and an entry of the operand.
    both = union(updates, sum_of(updates, max(count, 1)))._replace(zero=True)
    return [add(into, both)]


@rule("scatter-mul")
def _scatter_mul(node: Node, records: Records) -> Records:
    into, updates = records[0], records[2]
    if into is None or updates is None:
        return [None]
    return [union(into, multiply(into, updates))]


def _size(shape: Any) -> int:
    return math.prod(shape)


@rule_of_known("reduce_sum")
def _reduce_sum(node: Node, a: Record) -> Record:
    shape = node.uses[0].value.aval.shape
    return sum_of(a, _size([shape[i] for i in node.params["axes"]]))


@rule_of_known("reduce_prod")
def _reduce_prod(node: Node, a: Record) -> Record:
    shape = node.uses[0].value.aval.shape
    count = _size([shape[i] for i in node.params["axes"]])
    low, high = (count * a.low, count * a.high) if count else (0.0, 0.0)
    if a.has_minus:
        return span(low, high, zero=a.zero)._replace(cancelled=a.cancelled)
    return Record(low, high, zero=a.zero, cancelled=a.cancelled)


@rule_of_known("cumsum")
def _cumsum(node: Node, a: Record) -> Record:
    return union(a, sum_of(a, node.uses[0].value.aval.shape[node.params["axis"]] or 1))


@rule_of_known("cumprod")
def _cumprod(node: Node, a: Record) -> Record:
    count = node.uses[0].value.aval.shape[node.params["axis"]] or 1
    low, high = min(a.low, count * a.low), max(a.high, count * a.high)
    if a.has_minus:
        return span(low, high, zero=a.zero)._replace(cancelled=a.cancelled)
    return Record(low, high, zero=a.zero, cancelled=a.cancelled)


@rule_of_known("reduce_window_sum")
def _reduce_window_sum(node: Node, a: Record) -> Record:
    total = sum_of(a, _size(node.params["window_dimensions"]))
    return union(a, total)._replace(zero=True)  # padding shortens sums


@rule("select_and_gather_add")
def _select_and_gather(node: Node, records: Records) -> Records:
    return [records[0] and records[0]._replace(zero=True)]


@rule("select_and_scatter_add")
def _select_and_scatter(node: Node, records: Records) -> Records:
    source = records[0]
    if source is None:
        return [None]
    total = sum_of(source, _size(node.params["window_dimensions"]))
    return [union(source, total)._replace(zero=True)]


@rule_of_known("dot_general")
def _dot_general(node: Node, a: Record, b: Record) -> Record:
    (contracted, _), (batch, _) = node.params["dimension_numbers"]
    x, y = node.uses[0].value, node.uses[1].value
    count = _size([x.aval.shape[i] for i in contracted])
    # Of a vector with itself: no term is negative.
    square = x is y and len(contracted) + len(batch) == len(x.aval.shape)
    term = multiply_by_itself(a) if square else multiply(a, b)
    return sum_of(term, count)


@rule_of_known("tanjax_symmetric_outer")
def _symmetric_outer(node: Node, a: Record, b: Record) -> Record:
    return sum_of(multiply(a, b), 2 * node.uses[0].value.aval.shape[-1])


@rule_of_known("conv_general_dilated")
def _convolution(node: Node, a: Record, b: Record) -> Record:
    shape = node.uses[1].value.aval.shape
    channels = shape[node.params["dimension_numbers"].rhs_spec[0]]
    count = _size(shape) // max(channels, 1)
    term = multiply(a, b)
    return union(term, sum_of(term, max(count, 1)))._replace(zero=True)  # padding


def _axis_size(node: Node) -> int:
    """How many devices a collective operation spans, as far as the types know the mesh."""
    mesh = getattr(getattr(node.uses[0].value.aval, "sharding", None), "mesh", None)
    sizes = dict(getattr(mesh, "shape", None) or {})
    axes = node.params.get("axes", node.params.get("axis_name", ()))
    axes = axes if isinstance(axes, tuple) else (axes,)
    return _size([sizes.get(axis, 1) for axis in axes])


@rule("psum", "psum_invariant", "reduce_scatter", "unreduced_psum", "unreduced_reduce_scatter")
def _psum(node: Node, records: Records) -> Records:
    count = _axis_size(node)
    return [r and sum_of(r, count) for r in records]


@rule_of_known("fft")
def _fft(node: Node, a: Record) -> Record:
    count = _size(node.params["fft_lengths"])
    bits = growth(a, count)
    if "I" in str(node.params["fft_type"]).rsplit(".", 1)[-1].upper().replace("FFT", ""):
        # The inverse divides by the count; a real result counts all but two entries twice.
        bits += 1.0 - math.log2(max(count, 1))
    return span(-INFINITY, a.high + bits)


def _rows(node: Node) -> int:
    return int(max(node.uses[0].value.aval.shape[-2], 1))


@rule_of_known("cholesky")
def _cholesky(node: Node, a: Record) -> Record:
    # The squares of a row add up to the diagonal entry.
    return span(-INFINITY, a.high / 2)


def _bounds(node: Node, high: float, factors: float) -> Records:
    """Values up to 2^high in real results of one dimension less, factors in the others."""
    rank = len(node.uses[0].value.aval.shape)
    return [
        span(-INFINITY, high if len(out.aval.shape) < rank else factors) for out in node.outputs
    ]


@rule("eigh", "svd")
def _spectral(node: Node, records: Records) -> Records:
    if records[0] is None:
        return [None] * len(node.outputs)
    shape = node.uses[0].value.aval.shape
    # At most the Frobenius norm.
    return _bounds(node, records[0].high + math.log2(max(_size(shape[-2:]), 1)) / 2, 0.0)


@rule("geqrf", "qr")
def _qr(node: Node, records: Records) -> Records:
    if records[0] is None:
        return [None] * len(node.outputs)
    # Columns of R are as long as those of A; reflectors and Q have entries up to 1, taus up to 2.
    return _bounds(node, 1.0, max(records[0].high + math.log2(_rows(node)) / 2, 0.0))


@rule_of_known("householder_product")
def _householder(node: Node, a: Record, taus: Record) -> Record:
    return span(-INFINITY, 0.0)


@rule("lu")
def _lu(node: Node, records: Records) -> Records:
    a = records[0]
    if a is None:
        return [None] * len(node.outputs)
    return [span(-INFINITY, max(a.high + math.log2(_rows(node)), 0.0)), None, None]


@rule("zeros_like", "empty", "create_token")
def _nothing(node: Node, records: Records) -> Records:
    return [NOTHING] * len(node.outputs)
