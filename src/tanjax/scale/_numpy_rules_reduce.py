"""Sums, products, maxima, and what is built of them: cumulative, contractions.

A sum keeps the exponent and a contraction adds those of its operands. Products are the hard case:
10,000 factors of 1e10 leave even the headroom of a block, so that a product that could is done by
mantissas and exponents apart.

    >>> product(Wide(np.full(1000, 3.0)), (0,)).exponent > 1500
    True

Sharp edge: sums are NumPy's (pairwise), so that the last bits may differ from XLA's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ._graph import Node
from ._numpy_rules import RULES, Rule, dtype_of, is_float, rule
from ._wide import Wide, as_float, extent, limits, scaled

# -- reductions -----------------------------------------------------------------------------------


def _axes(node: Node) -> tuple[int, ...]:
    return tuple(int(a) for a in node.params["axes"])


@rule("reduce_sum")
def reduce_sum(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    dtype = None if is_float(x) else dtype_of(node)
    return [Wide(np.add.reduce(x.array, _axes(node), dtype), x.exponent)]


@rule("reduce_prod")
def reduce_prod(node: Node, xs: list[Wide]) -> list[Wide]:
    x, axes = xs[0], _axes(node)
    if not is_float(x):
        return [Wide(np.multiply.reduce(x.array, axes, dtype_of(node)))]
    return [product(x, axes)]


def product(x: Wide, axes: tuple[int, ...]) -> Wide:
    """The product over some axes, in any range."""
    array = np.asarray(x.array)
    count = math.prod(array.shape[a] for a in axes)
    power = x.exponent * count
    low, high = extent(array)
    if high == 0.0 or count * max(abs(math.log2(low)), abs(math.log2(high))) < 900:
        return Wide(np.multiply.reduce(array, axes), power)
    if array.dtype.kind == "c":
        array = scaled(array, -round(math.log2(high)))
        return Wide(np.multiply.reduce(array, axes), power + count * round(math.log2(high)))
    rest = tuple(a for a in range(array.ndim) if a not in axes)
    rows = np.transpose(array, (*rest, *axes)).reshape(*(array.shape[a] for a in rest), count)
    fraction, exponents = np.frexp(rows)
    powers = exponents.sum(-1, dtype=np.int64)
    total = np.ones(fraction.shape[:-1])
    for i in range(0, count, 256):  # a product of 256 fractions is at least 2^-256
        total, more = np.frexp(total * np.multiply.reduce(fraction[..., i : i + 256], -1))
        powers = powers + more
    return _gathered(total, powers, power)


def _gathered(fraction: Any, powers: Any, power: int) -> Wide:
    """Entries with an exponent each as a block."""
    alive = (fraction != 0) & np.isfinite(fraction)
    top = int(np.max(powers[alive])) if np.any(alive) else 0
    moves = np.clip(powers - top, -2000, 1000).astype(np.int64)
    return Wide(np.ldexp(fraction, np.where(alive, moves, 0)), power + top)


def _reduction(function: Any) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        return [Wide(function.reduce(xs[0].array, _axes(node)), xs[0].exponent)]

    return run


RULES["reduce_max"], RULES["reduce_min"] = _reduction(np.maximum), _reduction(np.minimum)
RULES["reduce_and"], RULES["reduce_or"] = _reduction(np.bitwise_and), _reduction(np.bitwise_or)
RULES["reduce_xor"] = _reduction(np.bitwise_xor)


def _position(function: Any) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        (axis,) = _axes(node)
        return [Wide(np.asarray(function(xs[0].array, axis)).astype(node.params["index_dtype"]))]

    return run


RULES["argmax"], RULES["argmin"] = _position(np.argmax), _position(np.argmin)


# -- sums whose parts leave the range -------------------------------------------------------------

# Half precision is summed up in float32 by every backend.
_SUM_RANGE = {"float16": np.float32, "bfloat16": np.float32}


def parts_overflow(
    node: Node, run: Rule, xs: list[Wide], results: list[Wide], exponent: int
) -> tuple[list[Wide], int]:
    """The result of a sum as a type computes it: NaN where its parts may add up to infinities.

    **Returns:** also how many entries these are.

    In which order the parts are added is not known, so an entry is lost if the sum of the absolute
    values of its parts is too large: `[3e38, 3e38, -3e38, -3e38]` in float32.
    """
    dtype = dtype_of(node)
    largest = math.log2(limits(_SUM_RANGE.get(str(dtype), dtype)).largest) + exponent
    tops = [(math.log2(high) + x.exponent) for x in xs if (high := extent(x.array)[1]) > 0.0]
    if len(tops) < len(xs) or sum(tops) + math.log2(max(2, xs[0].array.size)) < largest:
        return results, 0
    (sizes,) = run(node, [Wide(np.abs(x.array), x.exponent) for x in xs])
    power = largest - sizes.exponent
    bad = np.log2(sizes.array) > power
    out = results[0]
    bad &= np.isfinite(out.array)
    if not np.any(bad):
        return results, 0
    return [Wide(np.where(bad, np.nan, out.array), out.exponent)], int(np.count_nonzero(bad))


SUMS = {"reduce_sum", "cumsum", "dot_general", "conv_general_dilated", "reduce_window_sum"}


# -- cumulative -----------------------------------------------------------------------------------


def _along(node: Node, array: Any, function: Any) -> Any:
    """A function of an array along the axis of a cumulative operation, backwards if it says so."""
    axis = node.params["axis"]
    if not node.params["reverse"]:
        return function(array, axis)
    return np.flip(function(np.flip(array, axis), axis), axis)


def _cumulative(function: Any) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        x = xs[0]
        array = np.asarray(x.array)
        out = _along(node, array, lambda a, axis: function.accumulate(a, axis, dtype=array.dtype))
        return [Wide(out, x.exponent)]

    return run


RULES["cumsum"] = _cumulative(np.add)
RULES["cummax"], RULES["cummin"] = _cumulative(np.maximum), _cumulative(np.minimum)


@rule("cumlogsumexp", work=16)
def cumlogsumexp(node: Node, xs: list[Wide]) -> list[Wide]:
    array = np.asarray(as_float(xs[0]))
    return [Wide(_along(node, array, lambda a, axis: np.logaddexp.accumulate(a, axis)))]


@rule("cumprod", work=4)
def cumprod(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    array, axis = np.asarray(x.array), node.params["axis"]
    low, high = extent(array)
    count = array.shape[axis]
    if not is_float(x) or (
        x.exponent == 0
        and (high == 0.0 or count * max(abs(math.log2(low)), abs(math.log2(high))) < 900)
    ):
        multiply = np.multiply
        out = _along(node, array, lambda a, i: multiply.accumulate(a, i, dtype=array.dtype))
        return [Wide(out)]
    powers = np.empty(array.shape, np.int64)

    def run(a: Any, axis: int) -> Any:
        rows, out = np.moveaxis(a, axis, 0), np.empty_like(np.moveaxis(a, axis, 0))
        kept = np.moveaxis(powers, axis, 0)
        total, power = np.ones(rows.shape[1:]), np.zeros(rows.shape[1:], np.int64)
        for i, row in enumerate(rows):
            total, more = np.frexp(total * row)
            power = power + more + x.exponent
            out[i], kept[i] = total, power
        return np.moveaxis(out, 0, axis)

    fraction = _along(node, array, run)
    if node.params["reverse"]:
        powers = np.flip(powers, axis)
    return [_gathered(fraction, powers, 0)]


# -- contractions ---------------------------------------------------------------------------------


def _dot_work(node: Node, xs: list[Wide]) -> float:
    (contract, _), _ = node.params["dimension_numbers"]
    inner = math.prod(xs[0].array.shape[a] for a in contract)
    return inner * math.prod(node.outputs[0].aval.shape) / 4 + xs[0].array.size + xs[1].array.size


@rule("dot_general", work=_dot_work)
def dot_general(node: Node, xs: list[Wide]) -> list[Wide]:
    (x, y), numbers = xs, node.params["dimension_numbers"]
    a, b = x.array, y.array
    if not is_float(x) or not is_float(y):
        dtype = dtype_of(node)
        work = np.float64 if np.dtype(dtype).kind not in "biu" else dtype
        a, b = np.asarray(a).astype(work), np.asarray(b).astype(work)
    return [Wide(contract(a, b, numbers), x.exponent + y.exponent)]


def contract(a: Any, b: Any, numbers: Any) -> Any:
    """The product of two arrays over some axes: batches first, then what is left of each."""
    (inner_a, inner_b), (batch_a, batch_b) = numbers
    if a.ndim == b.ndim == 2 and not batch_a and (*inner_a, *inner_b) == (1, 0):
        return a @ b
    free_a = [i for i in range(a.ndim) if i not in inner_a and i not in batch_a]
    free_b = [i for i in range(b.ndim) if i not in inner_b and i not in batch_b]
    batch = [a.shape[i] for i in batch_a]
    left = [a.shape[i] for i in free_a]
    right = [b.shape[i] for i in free_b]
    k = math.prod(a.shape[i] for i in inner_a)
    a = np.transpose(a, (*batch_a, *free_a, *inner_a)).reshape((*batch, math.prod(left), k))
    b = np.transpose(b, (*batch_b, *inner_b, *free_b)).reshape((*batch, k, math.prod(right)))
    return np.matmul(a, b).reshape((*batch, *left, *right))


@rule("tanjax_symmetric_outer", work=4)
def symmetric_outer(node: Node, xs: list[Wide]) -> list[Wide]:
    """`left @ right.T + right @ left.T`."""
    (a, i), (b, j) = (x[:2] for x in xs)
    half = a @ b.T
    return [Wide(half + b @ a.T, i + j)]
