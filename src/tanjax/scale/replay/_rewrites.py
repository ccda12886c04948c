"""What XLA makes of quotients, and how to keep it from doing so.

XLA's algebraic simplifier replaces `x / y / z` by `x / (y * z)`, `x / (y / z)` by `x * z / y`,
`x / c` by `x * (1 / c)`, and `x * c * d` by `x * (c * d)`, also where the joint number leaves the
range although none that the program mentions does. Such a program needs no exponents, but results
must be hidden from the simplifier: its graph is replayed with *guarded* nodes.

    jax.jit(lambda x, y, z: x / y / z)(*jnp.float32([1e30, 1e25, 1e25]))  # Array(0., dtype=float32)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..graph._graph import Magnitude, Node, ScaleGraph, Use, Value
from ..numbers._range import normal_range


def apart(x: Any, divisor: Any) -> list[Any]:
    """The operands of `x / divisor` with a constant divisor: XLA divides, as correctly rounded.

    The barrier is around an array, because of a number that is broadcast XLA takes the reciprocal,
    and around `x`, because XLA would join `x` with the divisor if it is a quotient.
    """
    return list(lax.optimization_barrier((x, jnp.broadcast_to(divisor, x.shape))))


def opaque(x: Any) -> Any:
    """`x`, of which XLA does not know how it was computed."""
    return lax.optimization_barrier(x)


def guard(graph: ScaleGraph) -> list[Value]:
    """Guard those results whose denominators or factors XLA would join to a number out of range.

    **Arguments:** `graph`, with magnitudes and exponents: what counts is the numbers as stored.
    **Returns:** the results that are guarded.
    """
    fractions: dict[int, _Fraction] = {}  # by value, how XLA sees a quotient
    factors: dict[int, Magnitude] = {}  # by value, the constants that it was multiplied by so far
    found: list[Value] = []
    for node in graph.walk():
        node.guarded = False
        if node.primitive not in ("div", "mul") or not node.outputs[0].is_floating:
            continue
        found += _joined_factors(node, factors)
        if node.primitive == "div":
            found += _joined_fractions(node, fractions)
    return found


class _Fraction(NamedTuple):
    """What XLA makes of quotients of quotients: one numerator over one denominator."""

    above: Magnitude | None
    below: Magnitude | None


def _joined_fractions(node: Node, fractions: dict[int, _Fraction]) -> list[Value]:
    """`(a / b) / (c / d)` is `(a d) / (b c)` to XLA: guard its operands if that does not fit."""
    one = Magnitude(0.0, 0.0)
    quotients = [use.value for use in node.uses if use.value.index in fractions]
    given = [fractions.get(use.value.index, _Fraction(_stored(use), one)) for use in node.uses]
    (a, b), (c, d) = given
    joined = _Fraction(_times(a, d), _times(b, c))
    fits = all(m is None or _holds(node.outputs[0], m) for m in joined)
    if quotients and not fits:
        for value in quotients:
            assert value.node is not None
            value.node.guarded = True
        joined = _Fraction(_stored(node.uses[0]), _stored(node.uses[1]))
    fractions[node.outputs[0].index] = joined
    return [] if fits else quotients


def _joined_factors(node: Node, factors: dict[int, Magnitude]) -> list[Value]:
    """`x * c * d` is `x * (c * d)` to XLA: guard a product whose constants cannot be joined."""
    own, found = _factor(node), []
    for use in node.uses:
        total = _times(factors.get(use.value.index), own)
        if total and not _holds(node.outputs[0], total):
            assert use.value.node is not None
            use.value.node.guarded = True
            found.append(use.value)
        elif total:
            own = total
    if own is not None:
        factors[node.outputs[0].index] = own
    return found


def guard_all(graph: ScaleGraph) -> None:
    """Guard every product, quotient and power: no list of what XLA rewrites is complete."""
    names = ("mul", "div", "integer_pow", "reduce_prod", "cumprod")
    for node in graph.walk():
        if node.primitive in names and node.outputs[0].is_floating:
            node.guarded = True


def _factor(node: Node) -> Magnitude | None:
    """The constant number by which an equation multiplies; dividing is by the reciprocal."""
    for position, use in enumerate(node.uses):
        if use.value.kind == "constant" and use.value.size == 1:
            m = _stored(use)
            if node.primitive == "mul" or m is None:
                return m
            return Magnitude(-m.high, -m.low) if position else None
    return None


def _holds(like: Value, m: Magnitude) -> bool:
    smallest, largest = normal_range(like.aval.dtype)
    return smallest <= m.low and m.high <= largest


def _stored(use: Use) -> Magnitude | None:
    m = use.value.magnitude
    if m is None or m.is_zero:
        return None
    return Magnitude(m.low - use.exponent, m.high - use.exponent)


def _times(a: Magnitude | None, b: Magnitude | None) -> Magnitude | None:
    return None if a is None or b is None else Magnitude(a.low + b.low, a.high + b.high)
