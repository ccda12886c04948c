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

from ..graph._graph import Node
from ..numbers._spread import is_spread, multiply_matrices, parts_of, plus, product_over
from ..numbers._stored import limits
from ..numbers._wide import Wide, extent, in_float64, magnitude_of, settle, split
from ._numpy_rules import RULES, Rule, applied, dtype_of, is_float, rule, spread_rule

# -- reductions -----------------------------------------------------------------------------------


def axes_of(node: Node) -> tuple[int, ...]:
    return tuple(int(a) for a in node.params["axes"])


@rule("reduce_sum")
def reduce_sum(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    dtype = None if is_float(x) else dtype_of(node)
    return [Wide(np.add.reduce(x.array, axes_of(node), dtype), x.exponent)]


@rule("reduce_prod", spread=True)
def reduce_prod(node: Node, xs: list[Wide]) -> list[Wide]:
    x, axes = xs[0], axes_of(node)
    if not is_float(x):
        return [Wide(np.multiply.reduce(x.array, axes, dtype_of(node)))]
    return [product(x, axes)]


def product(x: Wide, axes: tuple[int, ...]) -> Wide:
    """The product over some axes, in any range."""
    count = math.prod(x.array.shape[a] for a in axes)
    if not is_spread(x) and not _may_leave(x, count):
        return Wide(np.multiply.reduce(x.array, axes), x.exponent * count)
    return settle(product_over(*parts_of(x), axes))


def _may_leave(x: Wide, count: int) -> bool:
    """Whether a product of so many of these numbers may leave the range of float64."""
    low, high = extent(x.array)
    return high > 0.0 and count * max(abs(math.log2(low)), abs(math.log2(high))) >= 900


def _reduction(function: Any) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        return [Wide(function.reduce(xs[0].array, axes_of(node)), xs[0].exponent)]

    return run


RULES["reduce_max"], RULES["reduce_min"] = _reduction(np.maximum), _reduction(np.minimum)
RULES["reduce_and"], RULES["reduce_or"] = _reduction(np.bitwise_and), _reduction(np.bitwise_or)
RULES["reduce_xor"] = _reduction(np.bitwise_xor)


def _position(function: Any) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        (axis,) = axes_of(node)
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
    tops = [magnitude_of(x).high for x in xs]
    if sum(tops) + math.log2(max(2, xs[0].array.size)) < largest:
        return results, 0
    (sizes,) = applied(node, run, [settle(Wide(np.abs(x.array), x.exponent)) for x in xs])
    bad = np.log2(sizes.array) > largest - sizes.exponent
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


@rule("cumlogsumexp", work=16, spread=True)
def cumlogsumexp(node: Node, xs: list[Wide]) -> list[Wide]:
    array = np.asarray(in_float64(xs[0], tiny=True))
    return [Wide(_along(node, array, lambda a, axis: np.logaddexp.accumulate(a, axis)))]


@rule("cumprod", work=4, spread=True)
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
    before: Any = None
    for i in order:
        if before is not None:
            rows[i], more = split(rows[i] * rows[before])
            exponents[i] += exponents[before] + more
        before = i
    return [Wide(out, kept)]


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


def contract_spread(x: tuple[Any, Any], y: tuple[Any, Any], numbers: Any) -> Wide:
    """`contract` of fractions and exponents."""
    left, right, shape = _matrices(x[0], y[0], numbers)
    powers = _matrices(x[1], y[1], numbers)
    out = multiply_matrices((left, powers[0]), (right, powers[1]))
    return Wide(
        out.array.reshape(shape), np.broadcast_to(out.exponent, out.array.shape).reshape(shape)
    )


@spread_rule(dot_general)
def dot_general_spread(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = (p if is_float(p) else Wide(np.asarray(p.array).astype(np.float64)) for p in xs)
    return [contract_spread(parts_of(x), parts_of(y), node.params["dimension_numbers"])]


def contract(a: Any, b: Any, numbers: Any) -> Any:
    """The product of two arrays over some axes: batches first, then what is left of each."""
    (inner_a, inner_b), (batch_a, _) = numbers
    if a.ndim == b.ndim == 2 and not batch_a and (*inner_a, *inner_b) == (1, 0):
        return a @ b
    left, right, shape = _matrices(a, b, numbers)
    return np.matmul(left, right).reshape(shape)


def _matrices(a: Any, b: Any, numbers: Any) -> tuple[Any, Any, tuple[int, ...]]:
    """The operands of a contraction as batches of matrices, and the shape of its result."""
    (inner_a, inner_b), (batch_a, batch_b) = numbers
    free_a = [i for i in range(a.ndim) if i not in inner_a and i not in batch_a]
    free_b = [i for i in range(b.ndim) if i not in inner_b and i not in batch_b]
    batch = [a.shape[i] for i in batch_a]
    left = [a.shape[i] for i in free_a]
    right = [b.shape[i] for i in free_b]
    k = math.prod(a.shape[i] for i in inner_a)
    many = math.prod(batch)
    a = np.transpose(a, (*batch_a, *free_a, *inner_a)).reshape((many, math.prod(left), k))
    b = np.transpose(b, (*batch_b, *inner_b, *free_b)).reshape((many, k, math.prod(right)))
    return a, b, (*batch, *left, *right)


@rule("tanjax_symmetric_outer", work=4)
def symmetric_outer(node: Node, xs: list[Wide]) -> list[Wide]:
    """`left @ right.T + right @ left.T`."""
    (a, i), (b, j) = (x[:2] for x in xs)
    half = a @ b.T
    return [Wide(half + b @ a.T, i + j)]


@spread_rule(symmetric_outer)
def symmetric_outer_spread(node: Node, xs: list[Wide]) -> list[Wide]:
    a, b = (parts_of(x) for x in xs)
    numbers = (((1,), (1,)), ((), ()))
    return [plus(settle(contract_spread(a, b, numbers)), settle(contract_spread(b, a, numbers)))]
