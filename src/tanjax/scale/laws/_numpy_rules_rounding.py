"""Rounding: to whole numbers, to fewer digits, to the neighbour in a type, to a type's bits.

Numbers from 2^53 on are whole, which is as well, since they may be beyond float64; what is tiny
there stays nonzero, so that `ceil(1e-400)` is 1.

    @rule("floor")
    def floor(node, xs):
        return [Wide(np.floor(as_float(xs[0])))]

Sharp edge: what works on the bits of a type has none for numbers that the type cannot hold; it is
unknown then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph._graph import Node
from ..numbers._spread import choose
from ..numbers._stored import limits
from ..numbers._wide import Wide, as_float, is_number, scaled, wide
from ._numpy_rules import RULES, SPREAD, Rule, dtype_of, is_float, rule


def _rounding(function: Any) -> Rule:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        x = xs[0]
        if not is_float(x):
            return [x]
        if type(x.exponent) is int and x.exponent == 0:
            return [Wide(function(x.array))]
        t = as_float(x)
        large = is_number(t) & (np.abs(t) >= 2.0**53)  # a whole number, and maybe beyond float64
        if not np.any(large):
            return [Wide(function(t))]
        return [choose(large, Wide(function(t)), x)]

    SPREAD[run] = run
    return run


RULES["floor"], RULES["ceil"] = _rounding(np.floor), _rounding(np.ceil)


@rule("round", spread=True)
def round_(node: Node, xs: list[Wide]) -> list[Wide]:
    method = str(node.params["rounding_method"])
    if "EVEN" in method or method == "1":
        return _rounding(np.rint)(node, xs)

    def away(a: Any) -> Any:
        whole = np.trunc(a)
        return whole + np.where(np.abs(a - whole) >= 0.5, np.sign(a), 0.0)

    return _rounding(away)(node, xs)


@rule("nextafter", spread=True)
def next_after(node: Node, xs: list[Wide]) -> list[Wide]:
    """The neighbour in the type of the program, not in float64."""
    return [wide(np.nextafter(*(stored_as(x, dtype_of(node)) for x in xs)))]


def stored_as(x: Wide, dtype: Any) -> Any:
    """The numbers as a type stores them: for what works on their bits.

    **Raises:** `NotImplementedError` if it cannot: there are no such bits.
    """
    exact = np.asarray(scaled(x.array, x.exponent))
    if is_float(x):
        size, room = np.abs(exact), limits(dtype)
        outside = (size > room.largest) | (size < room.least)
        if np.any(is_number(x.array) & outside):
            raise NotImplementedError(f"bits of numbers out of the range of {dtype}")
    return exact.astype(dtype)


@rule("reduce_precision", spread=True)
def reduce_precision(node: Node, xs: list[Wide]) -> list[Wide]:
    """Asked for explicitly: mantissa and range are cut as the program says."""
    bits, exponent_bits = node.params["mantissa_bits"], node.params["exponent_bits"]
    x = xs[0]
    a = x.array
    if bits < 52:
        high = a * (2.0 ** (52 - bits) + 1.0)
        a = np.where(np.isfinite(a), high - (high - a), a)
    if exponent_bits >= 11:
        return [Wide(a, x.exponent)]
    a = scaled(a, x.exponent)
    bias = 2 ** (exponent_bits - 1) - 1
    top, bottom = (2 - 2.0**-bits) * 2.0**bias, 2.0 ** (1 - bias)
    a = np.where(np.abs(a) > top, np.copysign(np.inf, a), a)
    return [Wide(np.where(np.abs(a) < bottom, np.copysign(0.0, a), a))]
