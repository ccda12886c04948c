"""What XLA makes of quotients, and how to keep it from doing so.

XLA's algebraic simplifier replaces `x / y / z` by `x / (y * z)`, `x / (y / z)` by `x * z / y`,
`x / c` by `x * (1 / c)`, and `x * c * d` by `x * (c * d)`, also where the joint number leaves the
range although none that the program mentions does. Such a program needs no exponents, but results
must be hidden from the simplifier: its graph is replayed with *guarded* nodes.

    >>> jax.jit(lambda x, y, z: x / y / z)(*jnp.float32([1e30, 1e25, 1e25]))
    Array(0., dtype=float32)
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from ._graph import Magnitude, Node, ScaleGraph, Use, Value
from ._range import normal_range


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
    joint: dict[int, Magnitude] = {}  # by value, what it was divided or multiplied by so far
    found = []
    for node in graph.walk():
        node.guarded = False
        if node.primitive not in ("div", "mul") or not node.outputs[0].is_floating:
            continue
        smallest, largest = normal_range(node.outputs[0].aval.dtype)
        new = _own(node)
        for position, use in enumerate(node.uses):
            inner = use.value.node
            if inner is None or inner.primitive != node.primitive or use.value.index not in joint:
                continue
            # x / y / z = x / (y z); but x / (y / z) = x z / y, where x z counts
            mine = _stored(node.uses[0]) if node.primitive == "div" and position else new
            total = _times(joint[use.value.index], mine)
            if total is None:
                continue
            if total.low < smallest or total.high > largest:
                inner.guarded = True
                found.append(use.value)
            elif position == 0 or node.primitive == "mul":
                new = total
        if new is not None:
            joint[node.outputs[0].index] = new
    return found


def _own(node: Node) -> Magnitude | None:
    """The denominator of a quotient, the constant factor of a product."""
    if node.primitive == "div":
        return _stored(node.uses[1])
    for use in node.uses:
        if use.value.kind == "constant" and use.value.size == 1:
            return _stored(use)
    return None


def _stored(use: Use) -> Magnitude | None:
    m = use.value.magnitude
    if m is None or m.is_zero:
        return None
    return Magnitude(m.low - use.exponent, m.high - use.exponent)


def _times(a: Magnitude | None, b: Magnitude | None) -> Magnitude | None:
    return None if a is None or b is None else Magnitude(a.low + b.low, a.high + b.high)
