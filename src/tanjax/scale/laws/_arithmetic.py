"""Sums, products, powers and roots, entry by entry.

A product adds exponents, a sum needs equal ones, and a root halves them. Integers wrap around as
they do in JAX.

    LAWS["mul"].evaluate(node, [Wide(np.float64(3), 700), Wide(np.float64(2), 700)])
    # [Wide(array=6.0, exponent=1400)]

Sharp edge: complex numbers are bounded by their absolute value, like numbers of either sign.
"""

from __future__ import annotations

import numpy as np

from ..graph._graph import Node, Value
from ..numbers._interval_record import (
    INFINITY,
    MANTISSA,
    ONE,
    Record,
    add,
    ends,
    multiply,
    multiply_by_itself,
    negate,
    reciprocal,
    scale_logs,
)
from ..numbers._spread import common, larger, plus, remainder_of, times
from ..numbers._wide import Wide, align, normalised, scaled
from . import _identities_powers as powers, _rows as rows, _vanish as vanish
from ._forms import aligned, is_float
from ._law import SMALLEST, Numeric, known, law, spread_form

# -- sums -----------------------------------------------------------------------------------------


@law("add add_any", "*x: u -> u", bound=known(lambda node, a, b: add(a, b)),
     vanish=vanish.SUM_OF_TWO, fold=np.add)  # fmt: skip
def added(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    if x.exponent == y.exponent:
        return [Wide(x.array + y.array, x.exponent)]
    (a, b), power = align(xs)
    return [Wide(a + b, power)]


@spread_form("add add_any")
def _added_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    arrays, power = common(xs)
    return [Wide(arrays[0] + arrays[1], power)]


# Primitives between a maximum and its reader: `x - max(x)` is never positive.
_TRANSPARENT = {
    "broadcast_in_dim", "reshape", "stop_gradient", "squeeze", "expand_dims", "max", "copy",
    "convert_element_type", "optimization_barrier",
}  # fmt: skip


def reduction_of(y: Value, x: Value, reductions: tuple[str, ...]) -> Node | None:
    """Return the reduction of `x` (maximum, sum, ...) whose entries `y` has, or None.

    `where(isfinite(m), m, 0)` counts as `m`, because bounds are those of finite numbers.
    """
    for _ in range(8):
        node = y.node
        if node is None:
            return None
        if node.primitive in reductions:
            return node if node.uses[0].value is x else None
        if node.primitive == "select_n" and _asks_if_finite(node):
            y = node.uses[2].value
        elif node.primitive in _TRANSPARENT:
            # In `max(-inf, y)`, follow the operand that is computed.
            y = next((u.value for u in node.uses if u.value.node is not None), node.uses[0].value)
        else:
            return None
    return None


def _asks_if_finite(node: Node) -> bool:
    asked = node.uses[0].value.node
    return (
        len(node.uses) == 3
        and asked is not None
        and asked.primitive == "is_finite"
        and asked.uses[0].value is node.uses[2].value
    )


def largest_becomes_one(value: Value, axes: tuple[int, ...]) -> bool:
    """True if `value` is `exp(x - max(x))`, with the maximum along some of these axes."""
    node = value.node
    while node is not None and node.primitive == "convert_element_type":
        node = node.uses[0].value.node
    if node is None or node.primitive not in ("exp", "exp2"):
        return False
    difference = node.uses[0].value.node
    if difference is None or difference.primitive != "sub":
        return False
    x, y = (use.value for use in difference.uses)
    largest = None if _is_product(x) else reduction_of(y, x, ("reduce_max",))
    return largest is not None and set(largest.params["axes"]) <= set(axes)


def _is_product(x: Value) -> bool:
    """True if XLA may fuse a value with the subtraction that reads it, and round once."""
    node = x.node
    while node is not None and node.primitive in _TRANSPARENT:
        node = node.uses[0].value.node
    return node is not None and node.primitive in ("mul", "square", "integer_pow")


def _difference(node: Node, a: Record, b: Record) -> Record:
    x, y = node.uses[0].value, node.uses[1].value
    difference = add(a, negate(b))
    if _is_product(x) and a.high > MANTISSA.get(str(x.aval.dtype), 24) - 3:  # a rounding is much
        return difference
    if reduction_of(y, x, ("reduce_max",)):
        return difference._replace(plus_low=INFINITY, plus_high=-INFINITY, zero=True)
    if reduction_of(y, x, ("reduce_min",)):
        return difference._replace(minus_low=INFINITY, minus_high=-INFINITY, zero=True)
    return difference


@law("sub", "*x: u -> u", bound=known(_difference), vanish=vanish.DIFFERENCE, fold=np.subtract)
def subtracted(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    if x.exponent == y.exponent:
        return [Wide(x.array - y.array, x.exponent)]
    (a, b), power = align(xs)
    return [Wide(a - b, power)]


@spread_form("sub")
def _subtracted_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    arrays, power = common(xs)
    return [Wide(arrays[0] - arrays[1], power)]


@law("neg", "*x: u -> u", spread=True, bound=known(lambda node, a: negate(a)), vanish=vanish.MOVES,
     fold=np.negative)  # fmt: skip
def negative(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(-xs[0].array, xs[0].exponent, xs[0].extent)]


def _size(node: Node, a: Record) -> Record:
    return Record(a.low, a.high, INFINITY, -INFINITY, a.zero, a.grid, a.cancelled)


@law("abs", "*x: u -> u", spread=True, bound=known(_size), vanish=vanish.MOVES)
def absolute(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    return [Wide(np.abs(x.array), x.exponent, None if x.array.dtype.kind == "c" else x.extent)]


# -- the larger, the smaller, the rest ------------------------------------------------------------


def _larger(node: Node, a: Record, b: Record) -> Record:
    if a.is_empty or b.is_empty:  # infinities are not recorded: max(-inf, x)
        return b if a.is_empty else a
    plus_low = min(a.plus_low, b.plus_low)
    for r in (a, b):
        if r.is_positive:
            plus_low = max(plus_low, r.plus_low)
    # An entry is negative only if both are; then the smaller absolute value wins.
    minus = (min(a.minus_low, b.minus_low), min(a.minus_high, b.minus_high))
    if not (a.has_minus and b.has_minus):
        minus = (INFINITY, -INFINITY)
    zero = (a.zero and (b.zero or b.has_minus)) or (b.zero and a.has_minus)
    soft = (a.cancelled and not b.is_firm) or (b.cancelled and not a.is_firm)
    high = max(a.plus_high, b.plus_high)
    return Record(plus_low, high, *minus, zero, min(a.grid, b.grid), soft)


def _smaller(node: Node, a: Record, b: Record) -> Record:
    return negate(_larger(node, negate(a), negate(b)))


def _clamped(node: Node, least: Record, x: Record, largest: Record) -> Record:
    return _smaller(node, _larger(node, least, x), largest)


_OF_ONE_UNIT = "*x: U -> u"
law("max", _OF_ONE_UNIT, bound=known(_larger), evaluate=aligned(np.maximum), vanish=vanish.MOVES)
law("min", _OF_ONE_UNIT, bound=known(_smaller), evaluate=aligned(np.minimum), vanish=vanish.MOVES,
    end=SMALLEST)  # fmt: skip
law("clamp", _OF_ONE_UNIT, bound=known(_clamped), vanish=vanish.MOVES,
    evaluate=aligned(lambda low, x, high: np.minimum(np.maximum(x, low), high)))  # fmt: skip
spread_form("max")(lambda node, xs: [larger(xs[0], xs[1])])
spread_form("min")(lambda node, xs: [larger(xs[0], xs[1], -1)])
spread_form("clamp")(lambda node, xs: [larger(larger(xs[1], xs[0]), xs[2], -1)])


def _rest(node: Node, a: Record, b: Record) -> Record:
    grid, high = min(a.grid, b.grid), min(a.high, b.high)
    plus = (grid, high) if a.has_plus else (INFINITY, -INFINITY)
    minus = (grid, high) if a.has_minus else (INFINITY, -INFINITY)
    return Record(*plus, *minus, True, grid, True)


@law("rem", "*x: u -> u", work=4, bound=known(_rest), vanish=vanish.REMAINDER)
def remainder(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    if is_float(x):
        arrays, power = align(xs)
        return [Wide(np.fmod(*arrays), power)]
    a, b = np.asarray(x.array), np.asarray(y.array)
    return [Wide(np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b))).astype(a.dtype))]


spread_form("rem")(lambda node, xs: [remainder_of(*xs)])

# -- products -------------------------------------------------------------------------------------


def _product(node: Node, a: Record, b: Record) -> Record:
    x, y = node.uses[0].value, node.uses[1].value
    if x is y:
        return multiply_by_itself(a)
    if _is_negated(x, y) or _is_negated(y, x):  # as in exp(-x * x)
        return negate(multiply_by_itself(a))
    return multiply(a, b)


def _is_negated(x: Value, y: Value) -> bool:
    return x.node is not None and x.node.primitive == "neg" and x.node.uses[0].value is y


def _of_parts(value: Value) -> list[Value]:
    """Return the factors of a complex product, whose parts are multiplied and added up."""
    node = value.node
    if node is None or value.aval.dtype.kind != "c":
        return []
    times = 2 if node.primitive == "square" else node.params.get("y", 1)
    return [use.value for use in node.uses] * times


@law("mul", "a: u, b: v -> u*v", spread=True, bound=known(_product), vanish=vanish.PRODUCT,
     tails=2, fold=np.multiply, products=_of_parts)  # fmt: skip
def multiplied(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    if x.array.dtype.kind == "b":
        return [Wide(np.logical_and(x.array, y.array))]
    return [Wide(x.array * y.array, x.exponent + y.exponent)]


@law("square", "a: u -> u^2", spread=True, bound=known(lambda node, a: multiply_by_itself(a)),
     vanish=vanish.SQUARE, products=_of_parts)  # fmt: skip
def square(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(xs[0].array * xs[0].array, 2 * xs[0].exponent)]


def _one_minus_square(node: Node, a: Record) -> Record:
    return add(ONE, negate(multiply_by_itself(a)))


@law("one_minus_square", "*x: 1 -> 1", spread=True, bound=known(_one_minus_square),
     vanish=vanish.COMPLEMENT)  # fmt: skip
def one_minus_square(node: Node, xs: list[Wide]) -> list[Wide]:
    one, x = Wide(np.float64(1.0), 0, (1.0, 1.0)), xs[0]
    return [times(plus(one, Wide(-x.array, x.exponent, x.extent)), plus(one, x))]


def _quotient(node: Node, a: Record, b: Record) -> Record:
    quotient = multiply(a, reciprocal(b))
    if a.has_minus or not reduction_of(
        node.uses[1].value, node.uses[0].value, ("reduce_sum", "reduce_max")
    ):
        return quotient
    return quotient._replace(plus_high=min(quotient.plus_high, 0.0))  # x / sum(x), x >= 0


@law("div", "a: u, b: v -> u/v", spread=True, bound=known(_quotient), vanish=vanish.QUOTIENT,
     tails=1)  # fmt: skip
def divided(node: Node, xs: list[Wide]) -> list[Wide]:
    x, y = xs
    if is_float(x):
        return [Wide(x.array / y.array, x.exponent - y.exponent)]
    a, b = np.asarray(x.array), np.asarray(y.array)
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    down = a // safe
    toward_zero = down + ((down < 0) & (down * safe != a)).astype(a.dtype)
    return [Wide(np.where(b == 0, -np.ones_like(a), toward_zero).astype(a.dtype))]


# -- powers and roots -----------------------------------------------------------------------------


def _whole_power(node: Node, a: Record) -> Record:
    n = node.params["y"]
    if n == 0:
        return ONE
    if n < 0:
        a, n = reciprocal(a), -n
    grid = n * a.grid
    if n % 2 == 0:
        return Record(n * a.low, n * a.high, zero=a.zero, grid=grid, cancelled=a.cancelled)
    return scale_logs(a, n)._replace(grid=grid)


@law(
    "integer_pow",
    lambda equation: f"a: u -> u^{equation.params['y']}",
    rows=rows.integer_power,
    spread=True,
    bound=known(_whole_power),
    replay=powers.integer_pow,
    vanish=vanish.WHOLE_POWER,
    products=_of_parts,
)
def integer_power(node: Node, xs: list[Wide]) -> list[Wide]:
    return [whole_power(xs[0], node.params["y"])]


def whole_power(x: Wide, n: int) -> Wide:
    """Return `x**n` by repeated squaring, normalised at each step; integers wrap around."""
    if not is_float(x):
        return Wide(np.asarray(x.array) ** np.asarray(n, x.array.dtype))
    base, left, result = normalised(x), abs(n), None
    while left:
        if left & 1:
            result = base if result is None else times(result, base)
        left >>= 1
        if left:
            base = times(base, base)
    if result is None:
        return Wide(np.ones_like(x.array))
    return result if n > 0 else Wide(1.0 / result.array, -result.exponent)


def power_bound(node: Node, a: Record, b: Record) -> Record | None:
    least, largest = ends(b)
    if not a.has_plus and not a.has_minus:
        return ONE._replace(zero=True)
    products = [e * x for e in (least, largest) for x in (a.low, a.high) if e * x == e * x]
    low, high = min(products, default=0.0), max(products, default=0.0)
    if a.zero or b.zero:  # 0**0 = x**0 = 1
        low, high = min(low, 0.0), max(high, 0.0)
    r = Record(low, high, zero=a.zero, cancelled=a.cancelled)
    return r._replace(minus_low=low, minus_high=high) if a.has_minus else r


def _sizes(a: Record, node: Node) -> tuple[float, float]:
    """Return bounds on the numbers that have a root: negative real ones have none."""
    if node.uses[0].value.aval.dtype.kind == "c":
        return a.low, a.high
    return a.plus_low, a.plus_high


def _root(node: Node, a: Record) -> Record:
    low, high = _sizes(a, node)
    return Record(low / 2, high / 2, zero=a.zero, cancelled=a.cancelled)


def _one_over_root(node: Node, a: Record) -> Record:
    low, high = _sizes(a, node)
    return Record(-high / 2, -low / 2, cancelled=a.cancelled)


def root(x: Wide, order: int, function: Numeric) -> Wide:
    """Return a root, after making the exponent divisible by its order."""
    half, odd = divmod(x.exponent, order)
    return Wide(function(scaled(x.array, odd)), half)


@law("sqrt", "a: u -> u^1/2", spread=True, bound=known(_root), vanish=vanish.ROOT)
def square_root(node: Node, xs: list[Wide]) -> list[Wide]:
    return [root(xs[0], 2, np.sqrt)]


@law("rsqrt", "a: u -> u^-1/2", spread=True, bound=known(_one_over_root),
     vanish=vanish.ONE_OVER_ROOT)  # fmt: skip
def one_over_root(node: Node, xs: list[Wide]) -> list[Wide]:
    x = root(xs[0], 2, np.sqrt)
    return [Wide(1.0 / x.array, -x.exponent)]


@law(
    "cbrt",
    "a: u -> u^1/3",
    work=4,
    spread=True,
    real_only=True,
    bound=known(lambda node, a: scale_logs(a, 1 / 3)),
    vanish=vanish.CUBE_ROOT,
)
def cube_root(node: Node, xs: list[Wide]) -> list[Wide]:
    return [root(xs[0], 3, np.cbrt)]
