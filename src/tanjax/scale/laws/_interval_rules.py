"""Interval rules of arithmetic: sums, products, powers, comparisons, parts of complex numbers.

A rule takes a node and the records of its operands, and gives those of its results. See
`_interval_record` for what a record is.

    INTERVALS["neg"](node, [positive(0.0, 3.0)])
    # [Record(..., minus_low=0.0, minus_high=3.0, ...)]

Sharp edge: complex numbers are bounded by their absolute value, as numbers of either sign; rules
for which that makes no sense are in `REAL_ONLY`.
"""

from __future__ import annotations

from ..graph._graph import Node, Value
from ..numbers._interval_record import (
    INDICATOR,
    INFINITY,
    ONE,
    Record,
    Records,
    add,
    ends,
    log2,
    log_add,
    multiply,
    multiply_by_itself,
    negate,
    reciprocal,
    rule,
    rule_of_known,
    scale_logs,
    span,
    union,
)

# Through these, the largest entry of an array is looked for: `x - max(x)` is never positive.
_TRANSPARENT = {
    "broadcast_in_dim", "reshape", "stop_gradient", "squeeze", "expand_dims", "max", "copy",
    "convert_element_type", "optimization_barrier",
}  # fmt: skip

_COMPARISONS = (
    "eq", "ne", "ge", "gt", "le", "lt", "is_finite", "reduce_and", "reduce_or", "eq_to", "le_to",
    "lt_to",
)  # fmt: skip


def _is_reduction_of(y: Value, x: Value, reductions: tuple[str, ...]) -> bool:
    """Whether `y` is the largest entry (the sum, ...) of `x`, spread over its shape again."""
    for _ in range(8):
        node = y.node
        if node is None:
            return False
        if node.primitive in reductions:
            return node.uses[0].value is x
        if node.primitive not in _TRANSPARENT:
            return False
        # `max(-inf, y)`: the operand that is computed.
        y = next((u.value for u in node.uses if u.value.node is not None), node.uses[0].value)
    return False


@rule_of_known("add", "add_any")
def _add(node: Node, a: Record, b: Record) -> Record:
    return add(a, b)


@rule_of_known("sub")
def _sub(node: Node, a: Record, b: Record) -> Record:
    x, y = node.uses[0].value, node.uses[1].value
    difference = add(a, negate(b))
    if _is_reduction_of(y, x, ("reduce_max",)):
        return difference._replace(plus_low=INFINITY, plus_high=-INFINITY, zero=True)
    if _is_reduction_of(y, x, ("reduce_min",)):
        return difference._replace(minus_low=INFINITY, minus_high=-INFINITY, zero=True)
    return difference


@rule_of_known("mul")
def _mul(node: Node, a: Record, b: Record) -> Record:
    x, y = node.uses[0].value, node.uses[1].value
    if x is y:
        return multiply_by_itself(a)
    if _is_negated(x, y) or _is_negated(y, x):  # as in exp(-x * x)
        return negate(multiply_by_itself(a))
    return multiply(a, b)


def _is_negated(x: Value, y: Value) -> bool:
    return x.node is not None and x.node.primitive == "neg" and x.node.uses[0].value is y


@rule_of_known("square")
def _square(node: Node, a: Record) -> Record:
    return multiply_by_itself(a)


@rule_of_known("div")
def _div(node: Node, a: Record, b: Record) -> Record:
    quotient = multiply(a, reciprocal(b))
    if a.has_minus or not _is_reduction_of(
        node.uses[1].value, node.uses[0].value, ("reduce_sum", "reduce_max")
    ):
        return quotient
    return quotient._replace(plus_high=min(quotient.plus_high, 0.0))  # x / sum(x), x >= 0


@rule_of_known("rem")
def _rem(node: Node, a: Record, b: Record) -> Record:
    grid, high = min(a.grid, b.grid), min(a.high, b.high)
    plus = (grid, high) if a.has_plus else (INFINITY, -INFINITY)
    minus = (grid, high) if a.has_minus else (INFINITY, -INFINITY)
    return Record(*plus, *minus, True, grid, True)


@rule_of_known("neg")
def _neg(node: Node, a: Record) -> Record:
    return negate(a)


@rule_of_known("abs")
def _abs(node: Node, a: Record) -> Record:
    return Record(a.low, a.high, INFINITY, -INFINITY, a.zero, a.grid, a.cancelled)


@rule_of_known("sign")
def _sign(node: Node, a: Record) -> Record:
    plus = (0.0, 0.0) if a.has_plus else (INFINITY, -INFINITY)
    minus = (0.0, 0.0) if a.has_minus else (INFINITY, -INFINITY)
    return Record(*plus, *minus, a.zero, 0.0)


@rule_of_known("max")
def _max(node: Node, a: Record, b: Record) -> Record:
    if a.is_empty or b.is_empty:  # infinities are not recorded: max(-inf, x)
        return b if a.is_empty else a
    plus_low = min(a.plus_low, b.plus_low)
    for r in (a, b):
        if r.is_positive:
            plus_low = max(plus_low, r.plus_low)
    # Negative only where both are; then the smaller absolute value wins.
    minus = (min(a.minus_low, b.minus_low), min(a.minus_high, b.minus_high))
    if not (a.has_minus and b.has_minus):
        minus = (INFINITY, -INFINITY)
    zero = (a.zero and (b.zero or b.has_minus)) or (b.zero and a.has_minus)
    soft = (a.cancelled and not b.is_firm) or (b.cancelled and not a.is_firm)
    high = max(a.plus_high, b.plus_high)
    return Record(plus_low, high, *minus, zero, min(a.grid, b.grid), soft)


@rule_of_known("min")
def _min(node: Node, a: Record, b: Record) -> Record:
    return negate(_max(node, negate(a), negate(b)))


@rule_of_known("clamp")
def _clamp(node: Node, least: Record, x: Record, largest: Record) -> Record:
    return _min(node, _max(node, least, x), largest)


@rule_of_known("sqrt")
def _sqrt(node: Node, a: Record) -> Record:
    low, high = _sizes(a, node)
    return Record(low / 2, high / 2, zero=a.zero, cancelled=a.cancelled)


@rule_of_known("rsqrt")
def _rsqrt(node: Node, a: Record) -> Record:
    low, high = _sizes(a, node)
    return Record(-high / 2, -low / 2, cancelled=a.cancelled)


def _sizes(a: Record, node: Node) -> tuple[float, float]:
    """Bounds on the numbers that have a root: negative real ones have none."""
    if node.uses[0].value.aval.dtype.kind == "c":
        return a.low, a.high
    return a.plus_low, a.plus_high


@rule_of_known("cbrt")
def _cbrt(node: Node, a: Record) -> Record:
    return scale_logs(a, 1 / 3)


@rule_of_known("integer_pow")
def _integer_pow(node: Node, a: Record) -> Record:
    n = node.params["y"]
    if n == 0:
        return ONE
    if n < 0:
        a, n = reciprocal(a), -n
    grid = n * a.grid
    if n % 2 == 0:
        return Record(n * a.low, n * a.high, zero=a.zero, grid=grid, cancelled=a.cancelled)
    return scale_logs(a, n)._replace(grid=grid)


@rule_of_known("pow")
def _pow(node: Node, a: Record, b: Record) -> Record | None:
    least, largest = ends(b)
    if not a.has_plus and not a.has_minus:
        return ONE._replace(zero=True)
    products = [e * x for e in (least, largest) for x in (a.low, a.high) if e * x == e * x]
    low, high = min(products, default=0.0), max(products, default=0.0)
    if a.zero or b.zero:  # 0**0 = x**0 = 1
        low, high = min(low, 0.0), max(high, 0.0)
    r = Record(low, high, zero=a.zero, cancelled=a.cancelled)
    return r._replace(minus_low=low, minus_high=high) if a.has_minus else r


@rule_of_known("one_minus_square")
def _one_minus_square(node: Node, a: Record) -> Record:
    return add(ONE, negate(multiply_by_itself(a)))


@rule_of_known("floor", "ceil", "round")
def _round(node: Node, a: Record) -> Record:
    # A whole number, at most one further from zero.
    plus = (0.0, log_add(a.plus_high, 0.0)) if a.has_plus else (INFINITY, -INFINITY)
    minus = (0.0, log_add(a.minus_high, 0.0)) if a.has_minus else (INFINITY, -INFINITY)
    return Record(*plus, *minus, True, 0.0)


@rule_of_known("nextafter")
def _nextafter(node: Node, a: Record, b: Record) -> Record:
    return a if not a.zero else union(a, span(-INFINITY, a.high))


@rule(*_COMPARISONS)
def _compare(node: Node, records: Records) -> Records:
    return [INDICATOR] * len(node.outputs)


@rule_of_known("real", "imag")
def _part(node: Node, a: Record) -> Record:
    return span(a.low, a.high)._replace(grid=a.grid, cancelled=True)


@rule_of_known("complex")
def _complex(node: Node, a: Record, b: Record) -> Record:
    both = union(a, b)
    return span(both.low, both.high + 0.5, zero=a.zero and b.zero)._replace(
        cancelled=both.cancelled
    )


@rule_of_known("conj")
def _conj(node: Node, a: Record) -> Record:
    return a


@rule_of_known("convert_element_type")
def _convert(node: Node, a: Record) -> Record:
    kind = node.outputs[0].aval.dtype.kind
    if kind == "b":
        return INDICATOR
    if kind in "iu" and a.grid < 0:  # cut off towards zero
        plus = (max(a.plus_low, 0.0), a.plus_high) if a.plus_high >= 0 else (INFINITY, -INFINITY)
        minus = (max(a.minus_low, 0.0), a.minus_high)
        minus = minus if a.minus_high >= 0 else (INFINITY, -INFINITY)
        return Record(*plus, *minus, True, 0.0)
    return a


@rule("bitcast_convert_type")
def _bitcast(node: Node, records: Records) -> Records:
    # Random bits below the exponent of 1.0: how uniform numbers in [1, 2) are made.
    dtype = node.outputs[0].aval.dtype
    maker = node.uses[0].value.node
    if maker is None or maker.primitive != "or" or dtype.kind != "f":
        return [None]
    ones = {2: 0x3C00, 4: 0x3F800000, 8: 0x3FF0000000000000}[dtype.itemsize]
    for use in maker.uses:
        spread = use.value
        while spread.node is not None and spread.node.primitive == "broadcast_in_dim":
            spread = spread.node.uses[0].value
        if spread.constant is not None and int(spread.constant) == ones:
            return [Record(0.0, 1.0)]
    return [None]


@rule_of_known("iota")
def _iota(node: Node) -> Record:
    last = node.params["shape"][node.params["dimension"]] - 1
    return Record(0.0, log2(last), zero=True, grid=0.0)
