"""Integers, bits and truth values, which have no exponent.

They keep their NumPy dtype, so that they wrap around as in JAX. NumPy and JAX differ at the edges:
in JAX, a shift by more than the width leaves nothing.

    LAWS["shift_left"].evaluate(node, [Wide(np.int32(1)), Wide(np.int32(40))])  # 0
"""

from __future__ import annotations

import numpy as np

from ..graph._graph import Node
from ..numbers._wide import Wide
from ._comparisons import indicators
from ._forms import by_order
from ._law import Evaluate, Numeric, law

PLAIN = "*x: - -> -"


def _by(function: Numeric) -> Evaluate:
    return lambda node, xs: [Wide(function(*(x.array for x in xs)))]


for _name, _function in {
    "not": np.invert, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}.items():  # fmt: skip
    law(_name, PLAIN, evaluate=_by(_function))


def _reduction(function: np.ufunc) -> Evaluate:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        return [Wide(function.reduce(xs[0].array, tuple(map(int, node.params["axes"]))))]

    return run


law("reduce_and", PLAIN, bound=indicators, evaluate=_reduction(np.bitwise_and))
law("reduce_or", PLAIN, bound=indicators, evaluate=_reduction(np.bitwise_or))
law("reduce_xor", PLAIN, evaluate=_reduction(np.bitwise_xor))


def _position(function: Numeric) -> Evaluate:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        (axis,) = map(int, node.params["axes"])
        return [Wide(np.asarray(function(xs[0].array, axis)).astype(node.params["index_dtype"]))]

    return run


law("argmax", "x: U -> -", evaluate=_position(np.argmax), spread=by_order(1))
law("argmin", "x: U -> -", evaluate=_position(np.argmin), spread=by_order(-1))


def _shift(function: Numeric, unsigned: bool, arithmetic: bool = False) -> Evaluate:
    """Return the rule of a shift; by the width or more, it leaves nothing except a sign."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        a, by = (np.asarray(x.array) for x in xs)
        dtype, width = a.dtype, a.dtype.itemsize * 8
        far = (by < 0) | (by >= width)
        work = np.dtype(f"u{dtype.itemsize}") if unsigned else dtype
        moved = function(a.view(work), np.where(far, 0, by).astype(work)).view(dtype)
        rest = np.where(a < 0, -1, 0) if arithmetic and dtype.kind == "i" else 0
        return [Wide(np.where(far, rest, moved).astype(dtype))]

    return run


law("shift_left", PLAIN, evaluate=_shift(np.left_shift, True))
law("shift_right_logical", PLAIN, evaluate=_shift(np.right_shift, True))
law("shift_right_arithmetic", PLAIN, evaluate=_shift(np.right_shift, False, True))


@law("population_count", PLAIN)
def population_count(node: Node, xs: list[Wide]) -> list[Wide]:
    a = np.asarray(xs[0].array)
    return [Wide(np.bitwise_count(a.view(f"u{a.dtype.itemsize}")).astype(a.dtype))]


@law("clz", PLAIN)
def leading_zeros(node: Node, xs: list[Wide]) -> list[Wide]:
    a = np.asarray(xs[0].array)
    bits = a.view(f"u{a.dtype.itemsize}").astype(np.uint64)
    width, count = a.dtype.itemsize * 8, np.zeros(a.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        large = bits >= (np.uint64(1) << np.uint64(step))
        count = count + np.where(large, step, 0)
        bits = np.where(large, bits >> np.uint64(step), bits)
    return [Wide((width - count - (bits > 0)).astype(a.dtype))]


@law("mulhi", PLAIN)
def multiply_high(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return the upper half of the product of two integers."""
    a, b = (np.asarray(x.array) for x in xs)
    product = a.astype(object) * b.astype(object)
    return [Wide(np.asarray(product >> (a.dtype.itemsize * 8)).astype(a.dtype))]
