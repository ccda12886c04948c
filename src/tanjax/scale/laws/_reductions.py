"""Sums, products and maxima over axes, and cumulative ones.

A sum keeps the exponent; its bounds grow by log2(k) for k terms of one sign, and are expected to
grow by half as many bits otherwise (`sum_of`). Products are the hard case: 10,000 factors of 1e10
leave even the headroom of a block. A product that could do so multiplies mantissas and adds
exponents separately.

    >>> product(Wide(np.full(1000, 3.0)), (0,)).exponent > 1500
    True

Sharp edge: sums are NumPy's (pairwise), so that the last bits may differ from XLA's.
"""

from __future__ import annotations

import math

import numpy as np

from tanjax._dtype_range import limits, normal_range
from tanjax._jaxpr_types import JaxEquation

from ..graph._graph import Magnitude, Node
from ..numbers._interval_record import Record, ends, interval, precision, span, sum_of, union
from ..numbers._spread import is_spread, parts_of, product_over, running_sum, sum_over
from ..numbers._wide import Wide, extent, in_float64, magnitude_of, normalised, split
from . import _rows as rows, _vanish as vanish
from ._arithmetic import largest_becomes_one
from ._forms import by_order, dtype_of, is_float, moves
from ._identities import IDENTITIES
from ._law import LARGEST, SMALLEST, Evaluate, Law, Many, Numeric, applied, known, law, spread_form
from ._range import room_of_partial_sums

# -- reductions -----------------------------------------------------------------------------------


def axes_of(node: Node) -> tuple[int, ...]:
    return tuple(int(a) for a in node.params["axes"])


def _length(node: Node) -> int:
    """Return the length of the axis of a cumulative operation."""
    return int(node.uses[0].value.aval.shape[node.params["axis"]])


def _count(node: Node) -> int:
    shape = node.uses[0].value.aval.shape
    return math.prod(shape[i] for i in axes_of(node))


def _total(node: Node, a: Record) -> Record:
    """Bound a sum; one of `exp(x - max(x))` along the axes of the maximum has an entry 1."""
    total = sum_of(a, _count(node))
    if a.has_minus or not largest_becomes_one(node.uses[0].value, axes_of(node)):
        return total
    return total._replace(plus_low=max(total.plus_low, 0.0), zero=False)


@law("reduce_sum", "*x: u -> u", bound=known(_total), vanish=vanish.SUM, many=Many.TERMS,
     end=LARGEST)  # fmt: skip
def reduce_sum(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    dtype = None if is_float(x) else dtype_of(node)
    return [Wide(np.add.reduce(x.array, axes_of(node), dtype), x.exponent)]


@spread_form("reduce_sum")
def _reduce_sum_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    return [sum_over(*parts_of(xs[0]), axes_of(node))]


def _products(node: Node, a: Record) -> Record:
    count = _count(node)
    low, high = (count * a.low, count * a.high) if count else (0.0, 0.0)
    return _of_sign(a, low, high)


def _of_sign(a: Record, low: float, high: float) -> Record:
    """Return the record of products of numbers with the record `a`."""
    if a.has_minus:
        return span(low, high, zero=a.zero)._replace(cancelled=a.cancelled)
    return Record(low, high, zero=a.zero, cancelled=a.cancelled)


def _power_of_count(equation: JaxEquation) -> str:
    shape = equation.invars[0].aval.shape
    return f"a: u -> u^{math.prod(shape[a] for a in equation.params['axes'])}"


@law(
    "reduce_prod",
    _power_of_count,
    rows=rows.product_of_many,
    spread=True,
    real_only=True,
    bound=known(_products),
    replay=IDENTITIES["reduce_prod"],
    many=Many.FACTORS,
    vanish=vanish.ANYTHING,
)
def reduce_prod(node: Node, xs: list[Wide]) -> list[Wide]:
    x, axes = xs[0], axes_of(node)
    if not is_float(x):
        return [Wide(np.multiply.reduce(x.array, axes, dtype_of(node)))]
    return [product(x, axes)]


def product(x: Wide, axes: tuple[int, ...]) -> Wide:
    """Return the product over some axes, in any range."""
    count = math.prod(x.array.shape[a] for a in axes)
    if not is_spread(x) and not _may_leave(x, count):
        return Wide(np.multiply.reduce(x.array, axes), x.exponent * count)
    return normalised(product_over(*parts_of(x), axes))


def _may_leave(x: Wide, count: int) -> bool:
    """True if a product of `count` of these numbers may leave the range of float64."""
    low, high = extent(x.array)
    return high > 0.0 and count * max(abs(math.log2(low)), abs(math.log2(high))) >= 900


def _reduction(function: np.ufunc) -> Evaluate:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        return [Wide(function.reduce(xs[0].array, axes_of(node)), xs[0].exponent)]

    return run


_EXTREME = "*x: U -> u"
law("reduce_max", _EXTREME, bound=moves, evaluate=_reduction(np.maximum), spread=by_order(1),
    vanish=vanish.MOVES, end=LARGEST)  # fmt: skip
law("reduce_min", _EXTREME, bound=moves, evaluate=_reduction(np.minimum), spread=by_order(-1),
    vanish=vanish.MOVES, end=SMALLEST)  # fmt: skip

# -- sums whose parts leave the range -------------------------------------------------------------

# Half precision is summed up in float32 by every backend.
_SUM_RANGE = dict.fromkeys(("float16", "bfloat16"), np.dtype(np.float32))


def parts_overflow(
    node: Node, run: Law, xs: list[Wide], results: list[Wide], exponent: int
) -> tuple[list[Wide], int]:
    """Return the result of a sum as a dtype computes it: NaN where partial sums may overflow.

    **Returns:** also how many entries these are.

    The order of the parts is not known, so an entry is lost if the sum of the absolute values of
    its parts overflows: `[3e38, 3e38, -3e38, -3e38]` in float32.
    """
    dtype, sizes_of = dtype_of(node), [_sizes(x) if is_float(x) else x for x in xs]
    tops = [magnitude_of(x).high for x in xs if is_float(x)]
    if run.many is Many.UPDATES:  # one by one, in the dtype of the result
        top, count = max(tops), xs[2].array.size + 1
        if node.primitive == "scatter-sub":
            sizes_of[2] = Wide(-sizes_of[2].array, sizes_of[2].exponent)
    else:
        dtype, top, count = _SUM_RANGE.get(str(dtype), dtype), sum(tops), xs[0].array.size
    largest = math.log2(limits(dtype).top) + exponent
    if top + math.log2(max(2, count)) < largest:
        return results, 0
    (sizes,) = applied(node, run, sizes_of)
    bad = np.log2(sizes.array) > largest - sizes.exponent
    out = results[0]
    bad &= np.isfinite(out.array)
    if not np.any(bad):
        return results, 0
    return [Wide(np.where(bad, np.nan, out.array), out.exponent)], int(np.count_nonzero(bad))


def parts_vanish(
    node: Node, run: Law, xs: list[Wide], results: list[Wide], exponent: int
) -> tuple[list[Wide], int]:
    """Return the result of a sum as a dtype computes it: 0 where a partial sum may be flushed.

    **Returns:** also how many entries these are.

    These sums are hardly larger than the smallest normal number, and add products or numbers of
    both signs.
    """
    out, room = results[0], room_of_partial_sums(node.outputs[0])
    if not room:
        return results, 0
    least = normal_range(dtype_of(node))[0] + exponent + room
    if (m := magnitude_of(out)).is_zero or m.low >= least:
        return results, 0
    logs = np.log2(np.abs(out.array)) + out.exponent
    bad = (logs < least) & (out.array != 0)
    if run.many is not Many.PRODUCTS:
        (sizes,) = applied(node, run, [_sizes(x) if is_float(x) else x for x in xs])
        bad &= np.log2(sizes.array) + sizes.exponent > logs + 0.5
    if not np.any(bad):
        return results, 0
    return [Wide(np.where(bad, 0.0, out.array), out.exponent)], int(np.count_nonzero(bad))


def _sizes(x: Wide) -> Wide:
    return normalised(Wide(np.abs(x.array), x.exponent))


# -- products whose parts leave the range ---------------------------------------------------------


def parts_leave(node: Node, xs: list[Wide], results: list[Wide]) -> tuple[list[Wide], int]:
    """Return a product of many as a dtype computes it, whose partial products may leave its range.

    **Returns:** also how many entries these are.

    The order of the factors is not known, but neighbours come together. So an entry is lost if a
    product of neighbours overflows or underflows: the first two of `[1e30, 1e30, 1e-30]` in
    float32. It is 0 or infinite, or nan if both happen.
    """
    smallest, largest = normal_range(dtype_of(node))
    along, out = _factors(node, xs[0]), results[0]
    if _stays(magnitude_of(xs[0]), along.shape[-1], smallest, largest):
        return results, 0
    known = np.isfinite(along)
    far = float(np.sum(np.abs(along[known]))) + 1.0  # no product goes on over zeros
    over, under = (
        _farthest(np.where(known, sign * along, -far)) > room
        for sign, room in ((1, largest), (-1, -smallest))
    )
    over, under = (_as_result(node, x) for x in (over, under))
    bad = (over | under) & ~np.isnan(out.array)
    if not np.any(bad):
        return results, 0
    unknown = (over & (under | (out.array == 0))) | (under & np.isinf(out.array))
    array = np.copysign(np.where(over, np.inf, 0.0), out.array)
    array = np.where(bad, np.where(unknown, np.nan, array), out.array)
    return [Wide(array, out.exponent)], int(np.count_nonzero(bad))


def _stays(m: Magnitude, count: int, smallest: float, largest: float) -> bool:
    return m.is_zero or (count * min(m.low, 0.0) >= smallest and count * max(m.high, 0) <= largest)


def _factors(node: Node, x: Wide) -> np.ndarray:
    """Return log2 of the factors, in their order along the last axis."""
    fraction, powers = parts_of(x)
    logs = np.log2(np.abs(fraction)) + powers
    if node.primitive == "cumprod":
        logs = np.moveaxis(logs, node.params["axis"], -1)
        return np.flip(logs, -1) if node.params["reverse"] else logs
    axes = axes_of(node)
    kept = [n for i, n in enumerate(logs.shape) if i not in axes]
    logs = np.moveaxis(logs, axes, range(-len(axes), 0))
    return logs.reshape(*kept, _count(node))


def _farthest(logs: np.ndarray) -> np.ndarray:
    """Return the largest sum of neighbours so far, along the last axis."""
    total = np.cumsum(logs, -1)
    before = np.minimum.accumulate(np.minimum(total - logs, 0.0), -1)
    return np.maximum.accumulate(total - before, -1)


def _as_result(node: Node, along: np.ndarray) -> np.ndarray:
    if node.primitive != "cumprod":
        return along[..., -1]
    return np.moveaxis(
        np.flip(along, -1) if node.params["reverse"] else along, -1, node.params["axis"]
    )


# -- cumulative -----------------------------------------------------------------------------------


def _along(node: Node, array: np.ndarray, function: Numeric) -> np.ndarray:
    """Apply a function along the axis of a cumulative operation, backwards if it is reversed."""
    axis = node.params["axis"]
    if not node.params["reverse"]:
        return function(array, axis)
    return np.flip(function(np.flip(array, axis), axis), axis)


def _cumulative(function: np.ufunc) -> Evaluate:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        x = xs[0]
        array = np.asarray(x.array)
        out = _along(node, array, lambda a, axis: function.accumulate(a, axis, dtype=array.dtype))
        return [Wide(out, x.exponent)]

    return run


def _sums(node: Node, a: Record) -> Record:
    return union(a, sum_of(a, _length(node) or 1))


law("cumsum", "*x: u -> u", bound=known(_sums), evaluate=_cumulative(np.add), vanish=vanish.SUMS,
    many=Many.TERMS, end=LARGEST)  # fmt: skip
law("cummax", _EXTREME, bound=moves, evaluate=_cumulative(np.maximum), spread=by_order(1),
    vanish=vanish.MOVES)  # fmt: skip
law("cummin", _EXTREME, bound=moves, evaluate=_cumulative(np.minimum), spread=by_order(-1),
    vanish=vanish.MOVES, end=SMALLEST)  # fmt: skip


@spread_form("cumsum")
def _cumsum_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    fraction, powers = parts_of(xs[0])
    axis = node.params["axis"]
    if not node.params["reverse"]:
        return [running_sum(fraction, powers, axis)]
    out = running_sum(np.flip(fraction, axis), np.flip(powers, axis), axis)
    return [Wide(np.flip(out.array, axis), np.flip(out.exponent, axis))]


def _logarithms(node: Node, a: Record) -> Record:
    # Between the least entry and the largest plus log k.
    least, largest = ends(a)
    largest += math.log(max(_length(node), 1))
    return interval(least, largest, min(-float(precision(node)), a.low))


@law("cumlogsumexp", "*x: 1 -> 1", work=16, spread=True, bound=known(_logarithms),
     vanish=vanish.GENTLE)  # fmt: skip
def cumlogsumexp(node: Node, xs: list[Wide]) -> list[Wide]:
    array = np.asarray(in_float64(xs[0], tiny=True))
    return [Wide(_along(node, array, lambda a, axis: np.logaddexp.accumulate(a, axis)))]


def _running_products(node: Node, a: Record) -> Record:
    count = _length(node) or 1
    return _of_sign(a, min(a.low, count * a.low), max(a.high, count * a.high))


@law(
    "cumprod",
    "*x: 1 -> 1",
    rows=rows.product_of_many,
    work=4,
    spread=True,
    real_only=True,
    bound=known(_running_products),
    replay=IDENTITIES["cumprod"],
    many=Many.FACTORS,
    vanish=vanish.ANYTHING,
)
def cumprod(node: Node, xs: list[Wide]) -> list[Wide]:
    x, axis = xs[0], node.params["axis"]
    array = np.asarray(x.array)
    if not is_float(x) or (
        not is_spread(x) and x.exponent == 0 and not _may_leave(x, array.shape[axis])
    ):
        multiply = np.multiply
        return [
            Wide(_along(node, array, lambda a, i: multiply.accumulate(a, i, dtype=array.dtype)))
        ]
    out, kept = (np.array(a) for a in parts_of(x))
    rows, exponents = np.moveaxis(out, axis, 0), np.moveaxis(kept, axis, 0)
    order = range(len(rows))[:: -1 if node.params["reverse"] else 1]
    before: int | None = None
    for i in order:
        if before is not None:
            rows[i], more = split(rows[i] * rows[before])
            exponents[i] += exponents[before] + more
        before = i
    return [Wide(out, kept)]
