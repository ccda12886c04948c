"""Rounding: to whole numbers, to fewer digits, to the neighbour in a type, to another type.

Numbers from 2^53 on are whole and stay as they are, even beyond float64. Numbers that underflow in
float64 stay nonzero, so that `ceil(1e-400)` is 1. Floats too large for an integer saturate, and NaN
gives 0.

    >>> converted(wide(1e30), np.int32).array.item()
    2147483647

Sharp edges. A primitive that works on the bits of a dtype is unknown for numbers that overflow or
underflow in it. A cast between floating dtypes keeps the number; the simulation cuts its range.
"""

from __future__ import annotations

import numpy as np
from jax.typing import DTypeLike

from tanjax._dtype_range import limits
from tanjax._typing import DType

from ..graph._graph import Node
from ..numbers._interval_record import (
    INDICATOR,
    INFINITY,
    Record,
    Records,
    log_add,
    span,
    union,
)
from ..numbers._spread import choose
from ..numbers._stored import clamp_to
from ..numbers._wide import Numbers, Wide, as_float, is_number, scaled, wide
from . import _rows as rows, _vanish as vanish
from ._forms import dtype_of, is_float, moves, shape_of
from ._identities import IDENTITIES
from ._law import Evaluate, Numeric, known, law

_NONE = (INFINITY, -INFINITY)


def _rounded(node: Node, a: Record) -> Record:
    # A whole number, at most one further from zero.
    plus = (0.0, log_add(a.plus_high, 0.0)) if a.has_plus else _NONE
    minus = (0.0, log_add(a.minus_high, 0.0)) if a.has_minus else _NONE
    return Record(*plus, *minus, True, 0.0)


def _rounding(function: Numeric) -> Evaluate:
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

    return run


def _to_nearest(node: Node, xs: list[Wide]) -> list[Wide]:
    method = str(node.params["rounding_method"])
    if "EVEN" in method or method == "1":
        return _rounding(np.rint)(node, xs)

    def away(a: Numbers) -> Numbers:
        whole = np.trunc(a)
        return whole + np.where(np.abs(a - whole) >= 0.5, np.sign(a), 0.0)

    return _rounding(away)(node, xs)


for _name, _function in {
    "floor": _rounding(np.floor), "ceil": _rounding(np.ceil), "round": _to_nearest,
}.items():  # fmt: skip
    law(
        _name,
        "*x: 1 -> 1",  # the result depends on the unit that a number is in
        evaluate=_function,
        spread=True,
        real_only=True,
        bound=known(_rounded),
        replay=IDENTITIES[_name],
        vanish=vanish.STEPS,
    )


def _neighbour(node: Node, a: Record, b: Record) -> Record:
    return a if not a.zero else union(a, span(-INFINITY, a.high))


@law(
    "nextafter",
    "*x: u -> u",
    rows=rows.at_zero,  # next to zero, a stored number has another neighbour
    spread=True,
    bound=known(_neighbour),
)
def next_after(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return the neighbour in the dtype of the program, not in float64."""
    return [wide(np.nextafter(*(stored_as(x, dtype_of(node)) for x in xs)))]


def stored_as(x: Wide, dtype: DType) -> np.ndarray:
    """Return the numbers as a dtype stores them, for primitives that work on their bits.

    **Raises:** `NotImplementedError` if the dtype cannot store them: they have no bits.
    """
    exact = np.asarray(scaled(x.array, x.exponent))
    if is_float(x):
        size, room = np.abs(exact), limits(dtype)
        outside = (size > room.top) | (size < room.bottom)
        if np.any(is_number(x.array) & outside):
            raise NotImplementedError(f"bits of numbers out of the range of {dtype}")
    return exact.astype(dtype)


@law("reduce_precision", "*x: U -> u", rows=rows.reduce_precision, spread=True, bound=moves,
     vanish=vanish.MOVES)  # fmt: skip
def reduce_precision(node: Node, xs: list[Wide]) -> list[Wide]:
    """Cut mantissa and range, as the program asks explicitly."""
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


# -- conversion -----------------------------------------------------------------------------------


def _convert_bound(node: Node, a: Record) -> Record:
    kind = node.outputs[0].aval.dtype.kind
    if kind == "b":
        return INDICATOR
    if kind in "iu" and a.grid < 0:  # cut off towards zero
        plus = (max(a.plus_low, 0.0), a.plus_high) if a.plus_high >= 0 else _NONE
        minus = (max(a.minus_low, 0.0), a.minus_high) if a.minus_high >= 0 else _NONE
        return Record(*plus, *minus, True, 0.0)
    return a


@law(
    "convert_element_type",
    "x: U -> u",
    rows=rows.convert,
    spread=True,
    bound=known(_convert_bound),
    vanish=vanish.CONVERTED,
    fold=np.asarray,
    replay=IDENTITIES["convert_element_type"],
)
def convert(node: Node, xs: list[Wide]) -> list[Wide]:
    return [converted(xs[0], node.params["new_dtype"])]


def converted(x: Wide, dtype: DTypeLike) -> Wide:
    """Cast numbers to another dtype: floats keep their value, integers are cut and saturate."""
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


def _bitcast_bound(node: Node, records: Records) -> Records:
    # Uniform numbers in [1, 2) are random bits below the exponent of 1.0.
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


@law("bitcast_convert_type", "x: - -> -", spread=True, bound=_bitcast_bound)
def bitcast(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return bits as another dtype: floats are first stored in theirs, as the program does."""
    source, target = node.uses[0].value.aval.dtype, np.dtype(dtype_of(node))
    x = clamp_to(xs[0], source, 0).value if is_float(xs[0]) else xs[0]
    a = np.ascontiguousarray(stored_as(x, source))
    shape = shape_of(node)
    return [wide(a.reshape(-1).view(target).reshape(shape))]
