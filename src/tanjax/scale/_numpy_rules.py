"""Each primitive of JAX once more, on NumPy arrays with an exponent: arithmetic.

The estimate of magnitudes runs the traced program on its actual numbers, in a range where nothing
overflows. Running it with JAX would compile every primitive (10 ms each) and could not leave the
range of float64. So every primitive has a rule `(node, operands) -> results` on `Wide` arrays: a
product adds exponents, a sum aligns them, and integers wrap around as they do in JAX.

    @rule("mul")
    def multiply(node, xs):
        (a, i), (b, j) = xs
        return [Wide(a * b, i + j)]

This file: the table, arithmetic, comparison and rounding; its neighbours `_numpy_rules_*.py` have
the other families. Sharp edge: a rule is called under
`np.errstate(all="ignore")` and returns results that need not be settled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ._graph import Node
from ._wide import Wide, align, as_float, scaled, settle, wide

Rule = Callable[[Node, list[Wide]], list[Wide]]

RULES: dict[str, Rule] = {}

# How many elementary operations a primitive takes per element of its largest array, or a function
# `(node, operands)` that says how many in all. The estimate stops at its budget.
WORK: dict[str, float | Callable[[Node, list[Wide]], float]] = {}


def rule(*names: str, work: Any = None) -> Callable[[Any], Any]:
    """Register a function as the rule of some primitives."""

    def register(function: Any) -> Any:
        for name in names:
            RULES[name] = function
            if work is not None:
                WORK[name] = work
        return function

    return register


def dtype_of(node: Node, index: int = 0) -> Any:
    return node.outputs[index].aval.dtype


def shape_of(node: Node, index: int = 0) -> tuple[int, ...]:
    return node.outputs[index].aval.shape  # type: ignore[no-any-return]


def is_float(x: Wide) -> bool:
    return x.array.dtype.kind in "fc"


# -- arithmetic -----------------------------------------------------------------------------------


@rule("mul")
def multiply(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    if x.array.dtype.kind == "b":
        return [Wide(np.logical_and(x.array, y.array))]
    return [Wide(x.array * y.array, x.exponent + y.exponent)]


@rule("square")
def square(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(xs[0].array * xs[0].array, 2 * xs[0].exponent)]


@rule("div")
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


@rule("neg")
def negative(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(-xs[0].array, xs[0].exponent, xs[0].extent)]


@rule("abs")
def absolute(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.abs(xs[0].array), xs[0].exponent, xs[0].extent)]


@rule("sign")
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


@rule("integer_pow")
def integer_power(node: Node, xs: list[Wide]) -> list[Wide]:
    return [whole_power(xs[0], node.params["y"])]


def whole_power(x: Wide, n: int) -> Wide:
    """`x**n` by repeated squaring, settled after each step; integers wrap around."""
    if not is_float(x):
        return Wide(np.asarray(x.array) ** np.asarray(n, x.array.dtype))
    base, left, result = settle(x), abs(n), None
    while left:
        if left & 1:
            result = base if result is None else _times(result, base)
        left >>= 1
        if left:
            base = _times(base, base)
    if result is None:
        return Wide(np.ones_like(x.array))
    return result if n > 0 else Wide(1.0 / result.array, -result.exponent)


def _times(x: Wide, y: Wide) -> Wide:
    return settle(Wide(x.array * y.array, x.exponent + y.exponent))


@rule("polynomial", work=4)
def polynomial(node: Node, xs: list[Wide]) -> list[Wide]:
    """Horner's rule; coefficients from the lowest."""
    x, *coefficients = xs
    total = coefficients.pop()
    for coefficient in reversed(coefficients):
        total = settle(add(node, [_times(total, x), coefficient])[0])
    return [Wide(np.broadcast_to(total.array, shape_of(node)), total.exponent)]


@rule("sqrt")
def square_root(node: Node, xs: list[Wide]) -> list[Wide]:
    return [root(xs[0], 2, np.sqrt)]


@rule("rsqrt")
def reciprocal_square_root(node: Node, xs: list[Wide]) -> list[Wide]:
    x = root(xs[0], 2, np.sqrt)
    return [Wide(1.0 / x.array, -x.exponent)]


@rule("cbrt", work=4)
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


for _name, _function in {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}.items():
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


@rule("is_finite")
def is_finite(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.isfinite(xs[0].array))]


@rule("select_n")
def select(node: Node, xs: list[Wide]) -> list[Wide]:
    which, cases = np.asarray(xs[0].array), xs[1:]
    if any(c.exponent != cases[0].exponent for c in cases):
        # Only what is taken decides about the exponent.
        cases = [
            settle(Wide(np.where(which == i, c.array, np.zeros_like(c.array)), c.exponent))
            for i, c in enumerate(cases)
        ]
    arrays, power = align(cases)
    if len(arrays) == 1:
        return [Wide(arrays[0], power)]
    if len(arrays) == 2:
        return [Wide(np.where(which, arrays[1], arrays[0]), power)]
    which = np.broadcast_to(which, np.shape(arrays[0]))
    return [Wide(np.choose(which, arrays), power)]


# -- rounding -------------------------------------------------------------------------------------


def _rounding(function: Any) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        x = xs[0]
        if not is_float(x) or x.exponent > 1400:  # every entry that is left is a whole number
            return [x]
        return [Wide(function(as_float(x)))]

    return run


RULES["floor"], RULES["ceil"] = _rounding(np.floor), _rounding(np.ceil)


@rule("round")
def round_(node: Node, xs: list[Wide]) -> list[Wide]:
    method = str(node.params["rounding_method"])
    if "EVEN" in method or method == "1":
        return _rounding(np.rint)(node, xs)

    def away(a: Any) -> Any:
        whole = np.trunc(a)
        return whole + np.where(np.abs(a - whole) >= 0.5, np.sign(a), 0.0)

    return _rounding(away)(node, xs)


@rule("nextafter")
def next_after(node: Node, xs: list[Wide]) -> list[Wide]:
    """The neighbour in the type of the program, not in float64."""
    dtype = dtype_of(node)
    a, b = (np.asarray(as_float(x)).astype(dtype) for x in xs)
    return [wide(np.nextafter(a, b))]


@rule("reduce_precision")
def reduce_precision(node: Node, xs: list[Wide]) -> list[Wide]:
    """Asked for explicitly: mantissa and range are cut as the program says."""
    bits, exponent_bits = node.params["mantissa_bits"], node.params["exponent_bits"]
    x = xs[0]
    if bits >= 52 and exponent_bits >= 11:
        return [x]
    a = as_float(x)
    high = a * (2.0 ** (52 - bits) + 1.0)
    a = np.where(np.isfinite(a) & (bits < 52), high - (high - a), a)
    bias = 2 ** (exponent_bits - 1) - 1
    top, bottom = (2 - 2.0**-bits) * 2.0**bias, 2.0 ** (1 - bias)
    a = np.where(np.abs(a) > top, np.copysign(np.inf, a), a)
    return [Wide(np.where(np.abs(a) < bottom, np.copysign(0.0, a), a))]


# -- complex --------------------------------------------------------------------------------------

RULES["real"] = lambda node, xs: [Wide(np.real(xs[0].array), xs[0].exponent)]
RULES["imag"] = lambda node, xs: [Wide(np.imag(xs[0].array), xs[0].exponent)]
RULES["conj"] = lambda node, xs: [
    Wide(np.conj(xs[0].array).astype(np.complex128), xs[0].exponent, xs[0].extent)
]


@rule("complex")
def complex_(node: Node, xs: list[Wide]) -> list[Wide]:
    (a, b), power = align(xs)
    out = np.empty(np.shape(a), np.complex128)
    out.real, out.imag = a, b
    return [Wide(out, power)]


LOG2 = math.log(2.0)
