"""Integers, bits, and conversion from one type to another.

Integers are kept in their own NumPy type, so that they wrap around as JAX's do. Where the two
differ it is at the edges: shifts by more than the width (nothing is left), floats too large for an
integer (saturate, NaN gives 0), division by zero.

    >>> converted(wide(1e30), np.int32).array.item()
    2147483647

Sharp edge: converting between floating types keeps the number; the simulation cuts its range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph._graph import Node
from ..numbers._stored import clamp_to
from ..numbers._wide import Wide, as_float, wide
from ._numpy_rules import RULES, Rule, dtype_of, is_float, rule, shape_of
from ._numpy_rules_rounding import stored_as

# -- conversion -----------------------------------------------------------------------------------


@rule("convert_element_type", spread=True)
def convert(node: Node, xs: list[Wide]) -> list[Wide]:
    return [converted(xs[0], node.params["new_dtype"])]


def converted(x: Wide, dtype: Any) -> Wide:
    """The numbers in another type: floats keep their value, integers are cut and saturate."""
    target, source = np.dtype(dtype), x.array.dtype.kind
    kind = target.kind if target.kind in "biufc" else "f"
    if kind == "f":
        if source == "f":
            return x
        a = np.asarray(x.array)
        return Wide((a.real if source == "c" else a).astype(np.float64), x.exponent)
    if kind == "c":
        return Wide(np.asarray(x.array).astype(np.complex128), x.exponent)
    if kind == "b":
        return Wide(np.asarray(x.array) != 0)
    a = np.asarray(as_float(x)) if source in "fc" else np.asarray(x.array)
    if source in "biu":
        return Wide(a.astype(target))
    info = np.iinfo(target)
    a = np.trunc(np.nan_to_num(a.real, nan=0.0, posinf=np.inf, neginf=-np.inf))
    # float(info.max) may be rounded up to 2**63: compare, then convert what fits.
    fits = (a > float(info.min)) & (a < float(info.max))
    inside = np.where(fits, a, 0.0).astype(target)
    outside = np.where(a > 0, info.max, info.min).astype(target)
    return Wide(np.where(fits, inside, outside))


@rule("bitcast_convert_type", spread=True)
def bitcast(node: Node, xs: list[Wide]) -> list[Wide]:
    """Bits as another type: floats are first put into their own, as the program has to do."""
    source, target = node.uses[0].value.aval.dtype, np.dtype(dtype_of(node))
    x = clamp_to(xs[0], source, 0).value if is_float(xs[0]) else xs[0]
    a = np.ascontiguousarray(stored_as(x, source))
    shape = shape_of(node)
    return [wide(a.reshape(-1).view(target).reshape(shape))]


# -- integers and booleans ------------------------------------------------------------------------

RULES["not"] = lambda node, xs: [Wide(np.invert(xs[0].array))]
RULES["and"] = lambda node, xs: [Wide(np.bitwise_and(xs[0].array, xs[1].array))]
RULES["or"] = lambda node, xs: [Wide(np.bitwise_or(xs[0].array, xs[1].array))]
RULES["xor"] = lambda node, xs: [Wide(np.bitwise_xor(xs[0].array, xs[1].array))]


def _shift(function: Any, unsigned: bool, arithmetic: bool = False) -> Rule:
    """A shift: by as many bits as there are or more, nothing is left (but the sign)."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        a, by = (np.asarray(x.array) for x in xs)
        dtype, width = a.dtype, a.dtype.itemsize * 8
        far = (by < 0) | (by >= width)
        work = np.dtype(f"u{dtype.itemsize}") if unsigned else dtype
        moved = function(a.view(work), np.where(far, 0, by).astype(work)).view(dtype)
        rest = np.where(a < 0, -1, 0) if arithmetic and dtype.kind == "i" else 0
        return [Wide(np.where(far, rest, moved).astype(dtype))]

    return run


RULES["shift_left"] = _shift(np.left_shift, True)
RULES["shift_right_logical"] = _shift(np.right_shift, True)
RULES["shift_right_arithmetic"] = _shift(np.right_shift, False, True)


@rule("population_count")
def population_count(node: Node, xs: list[Wide]) -> list[Wide]:
    a = np.asarray(xs[0].array)
    return [Wide(np.bitwise_count(a.view(f"u{a.dtype.itemsize}")).astype(a.dtype))]


@rule("clz")
def leading_zeros(node: Node, xs: list[Wide]) -> list[Wide]:
    a = np.asarray(xs[0].array)
    bits = a.view(f"u{a.dtype.itemsize}").astype(np.uint64)
    width, count = a.dtype.itemsize * 8, np.zeros(a.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        large = bits >= (np.uint64(1) << np.uint64(step))
        count = count + np.where(large, step, 0)
        bits = np.where(large, bits >> np.uint64(step), bits)
    return [Wide((width - count - (bits > 0)).astype(a.dtype))]


@rule("mulhi")
def multiply_high(node: Node, xs: list[Wide]) -> list[Wide]:
    """The upper half of the product of two integers."""
    a, b = (np.asarray(x.array) for x in xs)
    product = a.astype(object) * b.astype(object)
    return [Wide(np.asarray(product >> (a.dtype.itemsize * 8)).astype(a.dtype))]
