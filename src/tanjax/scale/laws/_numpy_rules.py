"""Each primitive of JAX once more, on NumPy arrays with an exponent: arithmetic.

The estimate of magnitudes runs the traced program on its actual numbers, in a range where nothing
overflows. Running it with JAX would compile every primitive (10 ms each) and could not leave the
range of float64. So every primitive has a rule `(node, operands) -> results` on `Wide` arrays: a
product adds exponents, a sum aligns them, and integers wrap around as they do in JAX.

    @rule("mul", spread=True)
    def multiply(node, xs):
        (a, i), (b, j) = xs
        return [Wide(a * b, i + j)]

This file: the table, arithmetic, comparison and rounding; its neighbours `_numpy_rules_*.py` have
the other families. Most rules are for blocks; what they do for numbers too far apart for one
exponent is in `SPREAD`, by the rule, and they raise `Apart` where they find that out themselves.

Sharp edge: a rule is called under `np.errstate(all="ignore")`, on settled operands, and returns
results that need not be settled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph._graph import Node
from ..numbers._spread import plus, times
from ..numbers._wide import (
    Apart,
    Wide,
    align,
    complex_of,
    scaled,
    settle,
)

Rule = Callable[[Node, list[Wide]], list[Wide]]

RULES: dict[str, Rule] = {}

# How many elementary operations a primitive takes per element of its largest array, or a function
# `(node, operands)` that says how many in all. The estimate stops at its budget.
WORK: dict[str, float | Callable[[Node, list[Wide]], float]] = {}


# What a rule gives way to where its operands, or what it would make of them, do not fit in blocks.
# By rule and not by name: a rule that somebody has replaced has none.
SPREAD: dict[Rule, Rule] = {}


def rule(*names: str, work: Any = None, spread: bool = False) -> Callable[[Any], Any]:
    """Register a function as the rule of some primitives.

    **Arguments:** `work`: per element; `spread`: it is right for spread operands as it stands.
    """

    def register(function: Any) -> Any:
        for name in names:
            RULES[name] = function
            if work is not None:
                WORK[name] = work
        if spread:
            SPREAD[function] = function
        return function

    return register


def spread_rule(*rules: Rule) -> Callable[[Rule], Rule]:
    """Register what some rules give way to where blocks do not hold the numbers."""

    def register(function: Rule) -> Rule:
        SPREAD.update(dict.fromkeys(rules, function))
        return function

    return register


def applied(node: Node, run: Rule, xs: list[Wide]) -> list[Wide]:
    """The results of a rule, or of what stands in for it where blocks do not hold the numbers."""
    try:
        for x in xs:
            if type(x.exponent) is not int:
                break
        else:
            return run(node, xs)
    except Apart:
        pass
    if run not in SPREAD:
        raise Apart
    return SPREAD[run](node, xs)


def dtype_of(node: Node, index: int = 0) -> Any:
    return node.outputs[index].aval.dtype


def shape_of(node: Node, index: int = 0) -> tuple[int, ...]:
    return node.outputs[index].aval.shape  # type: ignore[no-any-return]


def is_float(x: Wide) -> bool:
    return x.array.dtype.kind in "fc"


# -- arithmetic -----------------------------------------------------------------------------------


@rule("mul", spread=True)
def multiply(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    if x.array.dtype.kind == "b":
        return [Wide(np.logical_and(x.array, y.array))]
    return [Wide(x.array * y.array, x.exponent + y.exponent)]


@rule("square", spread=True)
def square(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(xs[0].array * xs[0].array, 2 * xs[0].exponent)]


@rule("div", spread=True)
def divide(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    if is_float(x):
        return [Wide(x.array / y.array, x.exponent - y.exponent)]
    a, b = np.asarray(x.array), np.asarray(y.array)
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    down = a // safe
    toward_zero = down + ((down < 0) & (down * safe != a)).astype(a.dtype)
    return [Wide(np.where(b == 0, -np.ones_like(a), toward_zero).astype(a.dtype))]


@rule("add", "add_any")
def add(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    if x.exponent == y.exponent:
        return [Wide(x.array + y.array, x.exponent)]
    (a, b), power = align(xs)
    return [Wide(a + b, power)]


@rule("sub")
def subtract(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    if x.exponent == y.exponent:
        return [Wide(x.array - y.array, x.exponent)]
    (a, b), power = align(xs)
    return [Wide(a - b, power)]


@rule("neg", spread=True)
def negative(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(-xs[0].array, xs[0].exponent, xs[0].extent)]


@rule("abs", spread=True)
def absolute(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    return [Wide(np.abs(x.array), x.exponent, None if x.array.dtype.kind == "c" else x.extent)]


@rule("sign", spread=True)
def sign(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.sign(xs[0].array))]


def _aligned(function: Any) -> Rule:
    """A rule for a function of operands that have to have one exponent, which its result keeps."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        arrays, power = align(xs)
        return [Wide(function(*arrays), power)]

    return run


RULES["max"] = _aligned(np.maximum)
RULES["min"] = _aligned(np.minimum)
RULES["clamp"] = _aligned(lambda low, x, high: np.minimum(np.maximum(x, low), high))


@rule("rem", work=4)
def remainder(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    if is_float(x):
        arrays, power = align(xs)
        return [Wide(np.fmod(*arrays), power)]
    a, b = np.asarray(x.array), np.asarray(y.array)
    return [Wide(np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b))).astype(a.dtype))]


@rule("integer_pow", spread=True)
def integer_power(node: Node, xs: list[Wide]) -> list[Wide]:
    return [whole_power(xs[0], node.params["y"])]


def whole_power(x: Wide, n: int) -> Wide:
    """`x**n` by repeated squaring, settled after each step; integers wrap around."""
    if not is_float(x):
        return Wide(np.asarray(x.array) ** np.asarray(n, x.array.dtype))
    base, left, result = settle(x), abs(n), None
    while left:
        if left & 1:
            result = base if result is None else times(result, base)
        left >>= 1
        if left:
            base = times(base, base)
    if result is None:
        return Wide(np.ones_like(x.array))
    return result if n > 0 else Wide(1.0 / result.array, -result.exponent)


@rule("polynomial", work=4, spread=True)
def polynomial(node: Node, xs: list[Wide]) -> list[Wide]:
    """Horner's rule; coefficients from the lowest."""
    x, *coefficients = xs
    total = coefficients.pop()
    for coefficient in reversed(coefficients):
        total = plus(times(total, x), coefficient)
    return [Wide(np.broadcast_to(total.array, shape_of(node)), total.exponent)]


@rule("sqrt", spread=True)
def square_root(node: Node, xs: list[Wide]) -> list[Wide]:
    return [root(xs[0], 2, np.sqrt)]


@rule("rsqrt", spread=True)
def reciprocal_square_root(node: Node, xs: list[Wide]) -> list[Wide]:
    x = root(xs[0], 2, np.sqrt)
    return [Wide(1.0 / x.array, -x.exponent)]


@rule("cbrt", work=4, spread=True)
def cube_root(node: Node, xs: list[Wide]) -> list[Wide]:
    return [root(xs[0], 3, np.cbrt)]


def root(x: Wide, order: int, function: Any) -> Wide:
    """A root: the exponent is made divisible by its order first."""
    half, odd = divmod(x.exponent, order)
    return Wide(function(scaled(x.array, odd)), half)


# -- comparison, selection ------------------------------------------------------------------------


def _comparison(function: Any) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        x, y = xs
        if x.exponent == y.exponent:
            return [Wide(function(x.array, y.array))]
        (a, b), _ = align(xs, saturate=True)
        return [Wide(function(a, b))]

    return run


COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
for _name, _function in COMPARISONS.items():
    RULES[_name] = _comparison(_function)


def total_order_key(a: Any) -> Any:
    """Integers that are ordered as IEEE 754 orders all floats: -nan < -inf < -0 < 0 < inf < nan."""
    bits = np.asarray(a, np.float64).view(np.int64)
    return np.where(bits < 0, ~(bits & np.int64(2**63 - 1)), bits)


def _total(function: Any) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        arrays, _ = align(xs, saturate=True)
        if is_float(xs[0]):
            arrays = [total_order_key(a) for a in arrays]
        return [Wide(function(*arrays))]

    return run


for _name, _function in {"eq_to": np.equal, "lt_to": np.less, "le_to": np.less_equal}.items():
    RULES[_name] = _total(_function)


@rule("is_finite", spread=True)
def is_finite(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.isfinite(xs[0].array))]


@rule("select_n")
def select(node: Node, xs: list[Wide]) -> list[Wide]:
    which, cases = np.asarray(xs[0].array), xs[1:]
    arrays, power = align(cases)
    if len(arrays) == 1:
        return [Wide(arrays[0], power)]
    if len(arrays) == 2:
        return [Wide(np.where(which, arrays[1], arrays[0]), power)]
    which = np.broadcast_to(which, np.shape(arrays[0]))
    return [Wide(np.choose(which, arrays), power)]


# -- complex --------------------------------------------------------------------------------------


@rule("real", spread=True)
def real(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.real(xs[0].array), xs[0].exponent)]


@rule("imag", spread=True)
def imaginary(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.imag(xs[0].array), xs[0].exponent)]


@rule("conj", spread=True)
def conjugate(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    return [Wide(np.conj(x.array).astype(np.complex128), x.exponent, x.extent)]


@rule("complex")
def complex_(node: Node, xs: list[Wide]) -> list[Wide]:
    arrays, power = align(xs)
    return [Wide(complex_of(*arrays), power)]


LOG2 = math.log(2.0)
