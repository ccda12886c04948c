"""What XLA makes of quotients, and how to keep it from doing so.

XLA's algebraic simplifier replaces `x / y / z` by `x / (y * z)`, `x / (y / z)` by `x * z / y`, and
`x / c` by `x * (1 / c)`, also where the product of the denominators overflows although no number
that the program mentions does. Such a program needs no exponents, but its quotients must be hidden
from the simplifier: then a graph is replayed with *guarded* nodes.

    >>> jax.jit(lambda x, y, z: x / y / z)(*jnp.float32([1e30, 1e25, 1e25]))
    Array(0., dtype=float32)
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from ._graph import Magnitude, Node, ScaleGraph, Value
from ._range import normal_range


def hidden(constant: Any, x: Any) -> Any:
    """A constant, as an array like `x` of which XLA does not know that it is constant.

    Where `x` is NaN it is NaN too, which changes no product and no quotient with `x`.
    """
    return lax.select(lax.ne(x, x), x, jnp.broadcast_to(constant, x.shape))


def opaque(x: Any) -> Any:
    """`x`, of which XLA does not know how it was computed."""
    return lax.select(lax.ne(x, x), jnp.full_like(x, jnp.nan), x)


def guard_quotients(graph: ScaleGraph) -> None:
    """Guard every quotient that is divided again, or that something is divided by."""
    for node in graph.walk():
        if node.primitive == "div":
            node.guarded = any(u.node and u.node.primitive == "div" for u in node.outputs[0].uses)


def guard_joined(graph: ScaleGraph) -> list[Value]:
    """Guard the quotients whose denominators XLA would join to something out of range.

    **Returns:** them; their magnitudes must be known.
    """
    found = []
    for node in graph.walk():
        if node.primitive != "div":
            continue
        for position, use in enumerate(node.uses):
            inner = use.value.node
            if inner is None or inner.primitive != "div":
                continue
            if not _holds(node.outputs[0], _joined(node, inner, position)):
                inner.guarded = True
                found.append(inner.outputs[0])
    return found


def _joined(node: Node, inner: Node, position: int) -> list[Magnitude | None]:
    """The products that XLA would make: of both denominators, or of numerators and denominators."""
    _, y = inner.uses
    other = node.uses[1 - position]
    if position == 0:  # x / y / z
        return [_product(y.value, other.value)]
    return [_product(other.value, y.value)]  # x / (y / z) = x * z / y


def _product(a: Value, b: Value) -> Magnitude | None:
    m, n = a.magnitude, b.magnitude
    if m is None or n is None or m.is_zero or n.is_zero:
        return None
    return Magnitude(m.low + n.low, m.high + n.high)


def _holds(like: Value, magnitudes: list[Magnitude | None]) -> bool:
    smallest, largest = normal_range(like.aval.dtype)
    return all(m is None or (smallest <= m.low and m.high <= largest) for m in magnitudes)
