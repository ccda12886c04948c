"""How far the magnitudes of results move when those of the operands do.

A plan is made for the numbers of one call. Before another call may use it, it has to be known how
far inputs may move until some value leaves the range of its dtype. So each primitive says by how
many bits its result moves up and down, given how far its operands do: a product by the sum, a
square by twice as much, a sine not beyond 1. Many distances at once are carried, as NumPy arrays.

    up, down = MOVEMENTS["mul"](node, [(one, two), (three, one)])[0]  # up 1 + 3, down 2 + 1

A movement of None is no movement at all.

Sharp edges: movements are those of typical numbers, not bounds. Where two numbers nearly cancel,
the sum may become as large as they are; that counts, since it needs no movement at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ._graph import Magnitude, Node, Value

Movement = tuple[Any, Any] | None
Rule = Callable[[Node, list[Movement]], list[Movement]]

MOVEMENTS: dict[str, Rule] = {}

# Beyond this many bits nothing is distinguished.
FAR = 1e6


def rule(names: str) -> Callable[[Callable[..., Movement]], Callable[..., Movement]]:
    """Register `function(node, *movements)` for one result, if any operand moves at all."""

    def register(function: Callable[..., Movement]) -> Callable[..., Movement]:
        def moved(node: Node, operands: list[Movement]) -> list[Movement]:
            return [function(node, *operands)]

        MOVEMENTS.update(dict.fromkeys(names.split(), moved))
        return function

    return register


def known(value: Value) -> Magnitude | None:
    """The magnitude of a value, if it has one and is not zero."""
    m = value.magnitude
    return None if m is None or m.is_zero or not math.isfinite(m.high) else m


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def farthest(movements: list[Movement]) -> Movement:
    """The largest of several movements."""
    moving = [m for m in movements if m is not None]
    if len(moving) < 2:
        return moving[0] if moving else None
    up, down = moving[0]
    for more, less in moving[1:]:
        up, down = np.maximum(up, more), np.maximum(down, less)
    return up, down


def scattered(movements: list[Movement]) -> Movement:
    """Of a primitive that is not known: all movements of the operands, in both directions."""
    total: Any = 0.0
    for m in movements:
        if m is not None:
            total = total + np.maximum(*m)
    return total, total


@rule("add sub add_any")
def _add(node: Node, a: Movement, b: Movement) -> Movement:
    result = known(node.outputs[0])
    x, y = known(node.uses[0].value), known(node.uses[1].value)
    widest = farthest([a, b])
    if result is None or x is None or y is None or widest is None:
        return widest
    # The larger of both, as it will be. This is more than the result moves if the two cancel now.
    a, b = a or (0.0, 0.0), b or (0.0, 0.0)
    up = np.maximum(x.high + a[0], y.high + b[0]) - result.high
    # The smaller of both may fall by the distance between them before the sum does.
    most = max(x.high, y.high)
    down = np.maximum(a[1] - (most - x.high), b[1] - (most - y.high))
    return np.maximum(up, 0.0), np.maximum(down, 0.0)


@rule("mul dot_general conv_general_dilated ragged_dot_general tanjax_symmetric_outer")
def _mul(node: Node, a: Movement, b: Movement = None, *rest: Movement) -> Movement:
    if a is None or b is None:
        return b if a is None else a
    return a[0] + b[0], a[1] + b[1]


@rule("div")
def _div(node: Node, a: Movement, b: Movement) -> Movement:
    if b is None:
        return a
    return (b[1], b[0]) if a is None else (a[0] + b[1], a[1] + b[0])


def _power(a: Movement, n: float) -> Movement:
    if a is None:
        return None
    up, down = a if n >= 0 else a[::-1]
    return abs(n) * up, abs(n) * down


@rule("integer_pow")
def _integer_pow(node: Node, a: Movement) -> Movement:
    return _power(a, node.params["y"])


_POWERS = {"square": 2.0, "sqrt cholesky": 0.5, "rsqrt": -0.5, "cbrt": 1 / 3}
for _names, _exponent in _POWERS.items():
    rule(_names)(lambda node, a, n=_exponent: _power(a, n))


@rule("pow")
def _pow(node: Node, a: Movement, b: Movement) -> Movement:
    x, y = known(node.uses[0].value), known(node.uses[1].value)
    exponent = min(2.0**y.high, FAR) if y is not None and y.high < 20 else 1.0
    distance = 0.0 if a is None else np.maximum(*a) * exponent
    if b is not None:
        size = max(abs(x.low), abs(x.high)) if x is not None else 1.0
        distance = distance + _stretch(np.maximum(*b)) * exponent * min(size, FAR)
    return distance, distance


def _stretch(bits: Any) -> Any:
    """By which share a number grows that moves up by some bits."""
    return 2.0 ** np.minimum(bits, 60.0) - 1.0


@rule("exp exp2")
def _exp(node: Node, a: Movement) -> Movement:
    result = known(node.outputs[0])
    if a is None or result is None or not math.isfinite(result.low):
        return a and (_stretch(a[0]), _stretch(a[0]))
    # The operand is the logarithm of the result: it is stretched, towards both sides of 1.
    stretch = _stretch(a[0])
    return stretch * max(result.high, 0.0) + max(-result.high, 0.0), stretch * max(-result.low, 0.0)


@rule("expm1 sinh cosh")
def _sinh(node: Node, a: Movement) -> Movement:
    x = known(node.uses[0].value)
    if a is None or x is None:
        return a
    size = 2.0 ** min(x.high, 20.0) / math.log(2.0)
    return np.maximum(a[0], _stretch(a[0]) * size), a[1]


@rule("log log2")
def _log(node: Node, a: Movement) -> Movement:
    x, result = known(node.uses[0].value), known(node.outputs[0])
    if a is None or x is None or result is None or not math.isfinite(x.low):
        return a
    largest = np.maximum(np.abs(x.high + a[0]), np.abs(x.low - a[1]))
    unit = math.log2(math.log(2.0)) if node.primitive == "log" else 0.0
    up = np.log2(np.maximum(largest, 1e-300)) + unit - result.high
    return np.maximum(up, 0.0), np.zeros_like(up)


@rule("logistic")
def _logistic(node: Node, a: Movement) -> Movement:
    result = known(node.outputs[0])
    if a is None or result is None or not math.isfinite(result.low):
        return a
    # Like exp where it is small.
    stretch = _stretch(a[0])
    return np.full_like(stretch, max(-result.high, 0.0)), stretch * max(-result.low, 0.0)


@rule("sin tan tanh erf atan atan2 asin acos bessel_i1e erf_inv")
def _bounded(node: Node, a: Movement, *rest: Movement) -> Movement:
    result, moved = known(node.outputs[0]), farthest([a, *rest])
    if moved is None or result is None:
        return moved
    return np.minimum(moved[0], max(2.0 - result.high, 0.0)), moved[1]


@rule("cos sign erfc bessel_i0e is_finite iota eq ne lt le gt ge")
def _still(node: Node, *operands: Movement) -> Movement:
    return None


@rule("reduce_prod cumprod")
def _product(node: Node, a: Movement) -> Movement:
    sizes = node.uses[0].value.size / max(node.outputs[0].size, 1)
    if node.primitive == "cumprod":
        sizes = node.uses[0].value.aval.shape[node.params["axis"]]
    return _power(a, max(float(sizes), 1.0))


@rule("triangular_solve")
def _solve(node: Node, a: Movement, b: Movement) -> Movement:
    if a is None:
        return b
    width = a[0] + a[1]
    return _plus(b and b[0], width), _plus(b and b[1], width)


@rule("scatter-mul")
def _scatter_mul(node: Node, a: Movement, indices: Movement, b: Movement) -> Movement:
    return _mul(node, a, b)


# A choice among the entries of the operands, or a sum of them.
_CHOICES = """
    neg abs max min clamp rem select_n concatenate pad stack real imag complex conj log1p asinh
    acosh atanh floor ceil round nextafter broadcast_in_dim reshape transpose squeeze expand_dims
    rev slice dynamic_slice dynamic_update_slice gather scatter scatter-add scatter-sub scatter-min
    scatter-max reduce_sum reduce_max reduce_min cumsum cummax cummin cumlogsumexp fft copy copy_p
    tile stop_gradient device_put name reduce_precision convert_element_type sharding_constraint
    reduce_window_sum reduce_window_max reduce_window_min select_and_gather_add lgamma digamma
    select_and_scatter_add pvary pcast reshard all_gather all_gather_invariant all_to_all
    reduce_scatter pbroadcast masked_reduce_sum layout_constraint ppermute mesh_cast broadcast_to
    unreduced_psum unreduced_reduce_scatter"""


def _choose(node: Node, operands: list[Movement]) -> list[Movement]:
    if len(operands) == len(node.outputs):  # several arrays at once, as in device_put
        return operands
    return [farthest(operands)] * len(node.outputs)


MOVEMENTS.update(dict.fromkeys(_CHOICES.split(), _choose))


def _each(node: Node, operands: list[Movement]) -> list[Movement]:
    return list(operands)


def _parts(node: Node, operands: list[Movement]) -> list[Movement]:
    return [operands[0]] * len(node.outputs)


for _name in ("sort", "optimization_barrier", "psum", "psum_invariant", "pmax", "pmin"):
    MOVEMENTS[_name] = _each
for _name in ("split", "unstack", "top_k", "approx_top_k", "lu", "eigh", "svd", "qr", "geqrf"):
    MOVEMENTS[_name] = _parts
