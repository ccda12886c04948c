"""Convolutions and reductions over windows that slide over an array.

All of them read a view of the padded array with the window's axes at the end
(`numpy.lib.stride_tricks`). A convolution is a contraction over these axes, and a pooling a
reduction. Holes in the array (base dilation) are padding between entries; holes in the window are
steps of the view.

    >>> windows(np.arange(4.0), (2,), (1,), ((0, 0),), (1,), (1,), 0.0).tolist()
    [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]

Sharp edge: JAX runs `reduce_window` with a user's function, in the range of its dtype. The graph
treats `reduce` with a user's function as a program (`_expansions.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tanjax._jaxpr_types import Params
from tanjax._typing import DType

from ..graph._graph import Node
from ..numbers._interval_record import Record, Records, multiply, sum_of, union
from ..numbers._spread import add_at, parts_of, plus, product_over, ranks, sum_over
from ..numbers._wide import Apart, Numbers, Wide, align, normalised
from . import _rows as rows, _vanish as vanish
from ._by_jax import in_range, in_range_or_zero
from ._contractions import contract, contract_spread, factors
from ._forms import by_order, dtype_of, is_float, moves, reducer_of
from ._integers import PLAIN
from ._law import LARGEST, LAWS, Evaluate, Many, known, law, spread_form
from ._shapes import Fill, padded

Neutral: TypeAlias = Callable[[DType], Any]  # the neutral element of a function in a dtype
Pair: TypeAlias = tuple[np.ndarray, np.ndarray | None]  # fractions and exponents, or a block


def windows(
    array: Numbers,
    size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base: Sequence[int],
    dilation: Sequence[int],
    fill: Fill,
) -> np.ndarray:
    """Return a view `(*places, *window)` of an array, padded with `fill`."""
    config = [(int(lo), int(hi), b - 1) for (lo, hi), b in zip(padding, base, strict=True)]
    array = padded(array, fill, config)
    reach = tuple((n - 1) * d + 1 for n, d in zip(size, dilation, strict=True))
    if any(r > n for r, n in zip(reach, array.shape, strict=True)):
        places = [max(0, n - r + 1) for r, n in zip(reach, array.shape, strict=True)]
        return np.empty((*places, *size), array.dtype)
    view = np.lib.stride_tricks.sliding_window_view(array, reach)
    steps = (*strides, *dilation)
    return view[tuple(slice(None, None, s) for s in steps)]


def windows_of(node: Node, array: np.ndarray, fill: Fill) -> np.ndarray:
    """Return the windows of a node's operand."""
    p = node.params
    ones = (1,) * array.ndim
    return windows(
        array,
        p["window_dimensions"],
        p["window_strides"],
        p["padding"],
        p.get("base_dilation") or ones,
        p.get("window_dilation") or ones,
        fill,
    )


def inner_axes(array: np.ndarray) -> tuple[int, ...]:
    """Return the axes within windows, in a view of the windows of an array."""
    return tuple(range(array.ndim, 2 * array.ndim))


def _lowest(dtype: DType) -> float:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min if dtype.kind in "iu" else False


def _highest(dtype: DType) -> float:
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max if dtype.kind in "iu" else True


def _work(node: Node, xs: list[Wide]) -> float:
    return math.prod(node.outputs[0].aval.shape) * math.prod(node.params["window_dimensions"])


def _pool(function: np.ufunc, fill: Neutral) -> Evaluate:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        array = np.asarray(xs[0].array)
        view = windows_of(node, array, fill(array.dtype))
        axes = inner_axes(array)
        options: dict[str, Any] = {"dtype": array.dtype} if function is np.add else {}
        return [Wide(function.reduce(view, axes, **options), xs[0].exponent)]

    return run


def _sums(node: Node, a: Record) -> Record:
    total = sum_of(a, math.prod(node.params["window_dimensions"]))
    return union(a, total)._replace(zero=True)  # padding shortens sums


law("reduce_window_sum", "a: u -> u", work=_work, bound=known(_sums), vanish=vanish.SUM,
    many=Many.TERMS, evaluate=_pool(np.add, lambda dtype: 0))  # fmt: skip
law("reduce_window_max", "a: U -> u", work=_work, bound=moves, spread=by_order(1),
    vanish=vanish.MOVES, evaluate=_pool(np.maximum, _lowest))  # fmt: skip
law("reduce_window_min", "a: U -> u", work=_work, bound=moves, spread=by_order(-1),
    vanish=vanish.MOVES, evaluate=_pool(np.minimum, _highest))  # fmt: skip


@spread_form("reduce_window_sum")
def _sum_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    fraction, powers = (windows_of(node, a, 0) for a in parts_of(xs[0]))
    return [sum_over(fraction, powers, inner_axes(xs[0].array))]


# The NumPy function of a primitive, and its neutral element, with which a window is padded.
REDUCERS: dict[str, tuple[np.ufunc, Neutral]] = {
    "add": (np.add, lambda dtype: 0),
    "mul": (np.multiply, lambda dtype: 1),
    "max": (np.maximum, _lowest),
    "min": (np.minimum, _highest),
    "and": (np.bitwise_and, lambda dtype: np.invert(np.zeros((), dtype))),
    "or": (np.bitwise_or, lambda dtype: 0),
    "xor": (np.bitwise_xor, lambda dtype: 0),
}


def function_of(node: Node) -> tuple[np.ufunc, Neutral]:
    """Return the NumPy function of a reduction, and its neutral element."""
    return REDUCERS[reducer_of(node.equation)]


def _in_common(function: np.ufunc, xs: list[Wide]) -> tuple[list[Numbers], int]:
    """Return operand and initial value at one exponent."""
    if function is np.multiply and is_float(xs[0]):
        raise Apart  # a product of many may be anywhere
    return align(xs)


law("select_and_scatter", PLAIN, work=_work, evaluate=in_range_or_zero, spread=True)


@law("reduce", "", rows=rows.reduction)
def reduce(node: Node, xs: list[Wide]) -> list[Wide]:
    function, _ = function_of(node)
    (array, start), power = _in_common(function, xs)
    out = function.reduce(array, tuple(node.params["dimensions"]))
    out = function(out, start)
    kept = out.dtype.kind in "fc" or node.outputs[0].is_floating  # then by rank
    return [Wide(out if kept else out.astype(dtype_of(node)), power)]


@law("reduce_window", "", rows=rows.reduction, work=_work)
def reduce_window(node: Node, xs: list[Wide]) -> list[Wide]:
    if reducer_of(node.equation) not in REDUCERS:
        return in_range(node, xs)
    function, neutral = function_of(node)
    (array, start), power = _in_common(function, xs)
    view = windows_of(node, np.asarray(array), neutral(array.dtype))
    out = function.reduce(view, inner_axes(np.asarray(array)))
    return [Wide(function(out, start).astype(view.dtype), power)]


@spread_form("reduce reduce_window")
def _reduce_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    if reducer_of(node.equation) not in REDUCERS:
        return in_range(node, xs)
    function, neutral = function_of(node)
    x, start = xs
    if function in (np.maximum, np.minimum):
        rule, nan = LAWS[node.primitive].evaluate, 1 if function is np.maximum else -1
        return by_order(nan)(rule)(node, xs)  # type: ignore[arg-type]
    fraction, powers = parts_of(x)
    axes: Any = node.params.get("dimensions")
    if node.primitive == "reduce_window":
        fill = int(neutral(np.dtype(int)))
        fraction, powers = windows_of(node, fraction, fill), windows_of(node, powers, 0)
        axes = inner_axes(x.array)
    if function is np.add:
        return [plus(normalised(sum_over(fraction, powers, tuple(axes))), start)]
    total = normalised(product_over(fraction, powers, tuple(axes)))
    return [Wide(total.array * start.array, total.exponent + start.exponent)]


# -- selected entries of windows ------------------------------------------------------------------


def selected(node: Node, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each window's selected entry in the padded array, and that array."""
    largest = node.params["select_prim"].name in ("ge", "gt")
    fill = _lowest(array.dtype) if largest else _highest(array.dtype)
    config = [(int(lo), int(hi), 0) for lo, hi in node.params["padding"]]
    full = padded(array, fill, config)
    p, ones, none = node.params, (1,) * array.ndim, ((0, 0),) * array.ndim

    def view(a: np.ndarray) -> np.ndarray:
        out = windows(a, p["window_dimensions"], p["window_strides"], none, ones, ones, 0)
        return out.reshape(*out.shape[: array.ndim], -1)

    best = (np.argmax if largest else np.argmin)(view(full), -1)
    index = np.arange(full.size).reshape(full.shape)
    return np.take_along_axis(view(index), best[..., None], -1)[..., 0], full


def _scattered(node: Node, records: Records) -> Records:
    return [records[0] and _sums(node, records[0])]


@law(
    "select_and_scatter_add",
    "a: u, b: * -> u",  # the second operand only selects
    work=_work,
    bound=_scattered,
)
def select_and_scatter_add(node: Node, xs: list[Wide]) -> list[Wide]:
    source, operand = (np.asarray(x.array) for x in xs)
    index, full = selected(node, operand)
    out = np.zeros(full.size, source.dtype)
    np.add.at(out, index.reshape(-1), source.reshape(-1))
    config = [(-int(lo), -int(hi), 0) for lo, hi in node.params["padding"]]
    return [Wide(padded(out.reshape(full.shape), 0, config), xs[0].exponent)]


@spread_form("select_and_scatter_add")
def _scatter_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    (place,), _ = ranks([xs[1]], 1)
    index, full = selected(node, place)
    zeros = Wide(np.zeros(full.size), 0)
    fraction, powers = map(np.ravel, parts_of(xs[0]))
    out = add_at(zeros, (index.reshape(-1),), Wide(fraction, powers))
    config = [(-int(lo), -int(hi), 0) for lo, hi in node.params["padding"]]
    array, powers = (padded(a.reshape(full.shape), 0, config) for a in (out.array, out.exponent))
    return [Wide(array, powers)]


def _gathered(node: Node, records: Records) -> Records:
    return [records[0] and records[0]._replace(zero=True)]


@law("select_and_gather_add", "a: u, b: * -> u", work=_work, bound=_gathered)
def select_and_gather_add(node: Node, xs: list[Wide]) -> list[Wide]:
    tangents, operand = (np.asarray(x.array) for x in xs)
    index, _ = selected(node, operand)
    config = [(int(lo), int(hi), 0) for lo, hi in node.params["padding"]]
    return [Wide(padded(tangents, 0, config).reshape(-1)[index], xs[0].exponent)]


@spread_form("select_and_gather_add")
def _gather_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    (place,), _ = ranks([xs[1]], 1)
    pair = [select_and_gather_add(node, [Wide(a), Wide(place)])[0] for a in parts_of(xs[0])]
    return [Wide(pair[0].array, pair[1].array)]


# -- convolution ----------------------------------------------------------------------------------


def _conv_work(node: Node, xs: list[Wide]) -> float:
    kernel = xs[1].array
    outputs = kernel.shape[node.params["dimension_numbers"].rhs_spec[0]]
    return math.prod(node.outputs[0].aval.shape) * kernel.size / max(outputs, 1)


def _conv_bound(node: Node, a: Record, b: Record) -> Record:
    shape = node.uses[1].value.aval.shape
    channels = shape[node.params["dimension_numbers"].rhs_spec[0]]
    count = math.prod(shape) // max(channels, 1)
    term = multiply(a, b)
    return union(term, sum_of(term, max(count, 1)))._replace(zero=True)  # padding


@law("conv_general_dilated", "a: u, b: v -> u*v", work=_conv_work, bound=known(_conv_bound),
     vanish=vanish.PRODUCTS, many=Many.PRODUCTS, products=factors, end=LARGEST)  # fmt: skip
def convolution(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    out = convolved(node, (x.array, None), (y.array, None))
    return [Wide(out.array, x.exponent + y.exponent)]


@spread_form("conv_general_dilated")
def _convolution_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    return [convolved(node, *(parts_of(x) for x in xs))]


def convolved(node: Node, x: Pair, y: Pair) -> Wide:
    """Return the convolution of fractions and exponents, which are None for blocks."""
    p = node.params
    numbers, parts = p["dimension_numbers"], p["batch_group_count"]

    def split(pair: Pair, spec: Sequence[int]) -> Iterable[Pair]:
        """Split into groups, as (batch, features, space) or (results, features, space)."""
        ordered = (None if a is None else np.transpose(a, spec) for a in pair)
        pieces = ([None] * parts if a is None else np.split(a, parts) for a in ordered)
        return zip(*pieces, strict=True)

    pairs = zip(split(x, numbers.lhs_spec), split(y, numbers.rhs_spec), strict=True)
    pieces = [_piece(a, b, p) for a, b in pairs]
    order = np.argsort(numbers.out_spec)
    array = np.transpose(np.concatenate([q.array for q in pieces], 1), order)
    if x[1] is None:
        return Wide(array)
    return Wide(array, np.transpose(np.concatenate([q.exponent for q in pieces], 1), order))


def _piece(x: Pair, y: Pair, p: Params) -> Wide:
    """Return the convolution of (batch, features, space) with (results, features, space)."""
    a, b = x[0], y[0]
    groups, space, kernel = p["feature_group_count"], a.ndim - 2, b.shape[2:]

    def view(a: np.ndarray) -> np.ndarray:
        out = windows(
            a,
            (1, 1, *kernel),
            (1, 1, *p["window_strides"]),
            ((0, 0), (0, 0), *p["padding"]),
            (1, 1, *p["lhs_dilation"]),
            (1, 1, *p["rhs_dilation"]),
            0,
        )
        return out.reshape(a.shape[0], groups, b.shape[1], *out.shape[2 : 2 + space], *kernel)

    def result(out: np.ndarray) -> np.ndarray:
        # (group, batch, *places, results of a group)
        out = np.moveaxis(np.moveaxis(out, -1, 1), 2, 0)
        return out.reshape(a.shape[0], -1, *out.shape[3:])

    inner = tuple(range(3 + space, 3 + 2 * space))
    numbers = ((2, *inner), tuple(range(2, 3 + space))), ((1,), (0,))
    kernels: list[Any] = [None if c is None else c.reshape(groups, -1, *b.shape[1:]) for c in y]
    if x[1] is None:
        return Wide(result(contract(view(a), kernels[0], numbers)))
    both = (view(a), view(x[1])), (kernels[0], kernels[1])
    out = contract_spread(*both, numbers)
    return Wide(result(out.array), result(out.exponent))
