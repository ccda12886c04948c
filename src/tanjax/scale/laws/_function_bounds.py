"""Bounds of transcendental functions.

Most are monotone or odd, so that the ends of the operand's range give those of the result. Three
facts matter for exponents. `exp` of a number that is never positive is at most 1. So are a sigmoid,
`tanh` and `sin`. Near zero, an odd function is as small as its operand.

    tanh(node, span(-20.0, 9.0))
    # Record(plus_low=-20.4, plus_high=0.0, minus_low=-20.4, minus_high=0.0, zero=True, ...)

Sharp edge: near a zero of the function other than 0 (`log` at 1, `sin` at π), the result may be as
small as the spacing of the operand; it counts as cancelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..graph._graph import Node
from ..numbers._interval_record import (
    INFINITY,
    Record,
    ends,
    interval,
    log2,
    positive,
    power_of_two,
    precision,
    span,
    union,
)

LN2 = math.log(2.0)


def _odd(a: Record, bound: Callable[[float, float], tuple[float, float]]) -> Record:
    """Bound an odd function, with `|f(x)|` in `bound(low, high)` for `2^low <= |x| <= 2^high`."""
    plus = bound(a.plus_low, a.plus_high) if a.has_plus else (INFINITY, -INFINITY)
    minus = bound(a.minus_low, a.minus_high) if a.has_minus else (INFINITY, -INFINITY)
    return Record(*plus, *minus, a.zero, cancelled=a.cancelled)


def exp(node: Node, a: Record) -> Record:
    if node.uses[0].value.aval.dtype.kind == "c":  # |exp(z)| = exp(re z)
        a = span(a.low, a.high)
    least, largest = ends(a)
    return positive(least / LN2, largest / LN2, zero=True)  # exp(-inf), as in a masked softmax


def exp2(node: Node, a: Record) -> Record:
    return positive(*ends(a), zero=True)


def expm1(node: Node, a: Record) -> Record:
    # x <= expm1(x), and 0.63 |x| <= |expm1(x)| <= 1 for -1 <= x <= 0.
    grown = power_of_two(a.plus_high) / LN2
    plus = (a.plus_low, grown if grown > 1 else a.plus_high + 1) if a.has_plus else (
        INFINITY, -INFINITY
    )  # fmt: skip
    minus = (min(a.minus_low, 0.0) - 0.67, min(a.minus_high, 0.0))
    minus = minus if a.has_minus else (INFINITY, -INFINITY)
    return Record(*plus, *minus, a.zero, cancelled=a.cancelled)


def log(node: Node, a: Record) -> Record:
    factor = LN2 if node.primitive == "log" else 1.0
    nearest = -float(precision(node))
    if node.uses[0].value.aval.dtype.kind == "c":
        size = max(abs(a.low), abs(a.high)) * factor
        return span(nearest, log2(size + math.pi))
    if not a.has_plus:
        return Record(zero=True)
    return interval(a.plus_low * factor, a.plus_high * factor, nearest)


def log1p(node: Node, a: Record) -> Record:
    def size(bound: float) -> float:
        if bound < -50.0:
            return bound - 1e-9
        return log2(math.log1p(2.0**bound) if bound < 1000 else bound * LN2)

    plus = (size(a.plus_low), size(a.plus_high)) if a.has_plus else (INFINITY, -INFINITY)
    minus = (INFINITY, -INFINITY)
    if a.has_minus:  # x <= -log1p(-x), up to the number before 1
        most = -math.log1p(-(2.0**a.minus_high)) if a.minus_high < 0 else precision(node) * LN2
        minus = (a.minus_low, max(a.minus_high + 1e-9, log2(most)))
    return Record(*plus, *minus, a.zero, cancelled=a.cancelled)


def sin(node: Node, a: Record) -> Record:
    if a.high <= 0.65:  # up to π/2: 2/π |x| <= |sin x|
        return _odd(a, lambda low, high: (low - 0.66, min(high, 0.0)))
    return span(min(a.low - 0.66, -2.0 * precision(node)), 0.0)._replace(cancelled=True)


def cos(node: Node, a: Record) -> Record:
    if a.high <= 0.0:
        return positive(-0.9, 0.0)
    return span(-2.0 * precision(node), 0.0)._replace(cancelled=True)


def tan(node: Node, a: Record) -> Record:
    if a.high <= 0.0:
        return _odd(a, lambda low, high: (low, high + 0.65))
    bits = 2.0 * precision(node)
    return span(min(a.low, -bits), bits)._replace(cancelled=True)


def sinh(node: Node, a: Record) -> Record:
    return _odd(a, lambda low, high: (low, max(high + 0.3, power_of_two(high) / LN2 - 1.0)))


def cosh(node: Node, a: Record) -> Record:
    return positive(0.0, max(1.0, power_of_two(a.high) / LN2))


def tanh(node: Node, a: Record) -> Record:
    return _odd(a, lambda low, high: (min(low, 0.0) - 0.4, min(high, 0.0)))


def erf(node: Node, a: Record) -> Record:
    return _odd(a, lambda low, high: (min(low, 0.0) - 0.25, min(high + 0.18, 0.0)))


def erf_inv(node: Node, a: Record) -> Record:
    # The upper bound follows from erf(x)² >= 1 - exp(-x²).
    last = math.sqrt((precision(node) - 1) * LN2)

    def bound(low: float, high: float) -> tuple[float, float]:
        y = 2.0 ** min(high, 0.0)
        top = math.sqrt(-math.log1p(-y * y)) if y < 1.0 else last
        return low - 0.18, max(log2(min(top, last)), low - 0.17)

    return _odd(a, bound)


def erfc(node: Node, a: Record) -> Record:
    def size(x: float) -> float:
        if x < 25.0:
            return log2(math.erfc(x))
        return -x * x / LN2 - math.log2(x) - 1.0

    least, largest = ends(a)
    return positive(size(largest), size(least))


def logistic(node: Node, a: Record) -> Record:
    def size(x: float) -> float:  # log2 of 1 / (1 + exp(-x))
        return -math.log2(1.0 + math.exp(-x)) if x > -700.0 else x / LN2

    least, largest = ends(a)
    return positive(size(least), size(largest), zero=True)


def asin(node: Node, a: Record) -> Record:
    return _odd(a, lambda low, high: (low, min(high, 0.0) + 0.66))


def acos(node: Node, a: Record) -> Record:
    # Just below 1, acos is the root of twice the distance.
    return positive(-precision(node) / 2, 1.66, zero=True, cancelled=True)


def atan(node: Node, a: Record) -> Record:
    return _odd(a, lambda low, high: (min(low, 0.0) - 0.36, min(high, 0.66)))


def atan2(node: Node, y: Record, x: Record) -> Record:
    # At least π/4 of the smaller of 1 and |y/x|; π where y is zero and x negative.
    nearest = min(y.low - x.high, 0.0) - 0.36
    turned = _odd(y, lambda low, high: (nearest, 1.66))
    half_turn = span(1.6, 1.66)
    return union(turned, half_turn) if y.zero and x.has_minus else turned


def asinh(node: Node, a: Record) -> Record:
    def size(bound: float) -> float:
        return min(bound, log2((bound + 1.0) * LN2 + 1.0)) if bound > 0 else bound

    # asinh(x) >= 0.88 x up to 1, and grows from there.
    return _odd(a, lambda low, high: (min(low, 0.0) - 0.19, size(high)))


def acosh(node: Node, a: Record) -> Record:
    largest = log2((max(a.plus_high, 0.0) + 1.0) * LN2)
    return positive(-precision(node) / 2, largest, zero=True, cancelled=True)


def atanh(node: Node, a: Record) -> Record:
    def size(high: float) -> float:
        near = math.atanh(2.0**high) if high < -1e-9 else INFINITY
        return max(high, log2(min(near, (precision(node) + 1) * LN2)))

    return _odd(a, lambda low, high: (low, size(high)))


def lgamma(node: Node, a: Record) -> Record | None:
    if a.has_minus or a.zero:
        return None  # poles
    # |lgamma(x)| <= x ln x + |ln x| + 1 and |digamma(x)| <= |ln x| + 1/x + 1, for x > 0.
    logarithm = max(abs(a.plus_low), abs(a.plus_high)) * LN2
    if node.primitive == "lgamma":
        largest = log2(power_of_two(a.plus_high) * (logarithm + 1.0) + logarithm + 1.0)
    else:
        largest = log2(logarithm + power_of_two(-a.plus_low) + 1.0)
    return span(-float(precision(node)), largest)._replace(cancelled=True)


def igamma(node: Node, *operands: Record) -> Record:
    return positive(-INFINITY, 0.0, zero=True)


regularized_incomplete_beta = igamma


def bessel_i0e(node: Node, a: Record) -> Record:
    # exp(-|x|) I0(|x|) falls like 0.4 / sqrt(x).
    return positive(-max(a.high, 0.0) / 2 - 1.6, 0.0)


def bessel_i1e(node: Node, a: Record) -> Record:
    return _odd(a, lambda low, high: (min(low - 2.5, -high / 2 - 2.5), min(high - 1.0, 0.0)))
