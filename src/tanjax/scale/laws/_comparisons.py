"""Comparisons, choices, signs, and the parts of complex numbers.

Compared operands have one exponent, and a truth value has none. A sign depends on no exponent.

    LAWS["lt"].signature  # '*x: U -> -'

Sharp edge: a complex number has one exponent, which may be too far from one of its parts.
"""

from __future__ import annotations

import math

import numpy as np

from ..graph._graph import Node, Value
from ..numbers._interval_record import INDICATOR, INFINITY, Record, Records, span, union
from ..numbers._spread import common
from ..numbers._wide import Apart, Numbers, Wide, align, complex_of, is_number
from . import _vanish as vanish
from ._forms import by_moving, is_float, joined
from ._law import Evaluate, Numeric, known, law, spread_form

# -- comparisons ----------------------------------------------------------------------------------


def indicators(node: Node, records: Records) -> Records:
    return [INDICATOR] * len(node.outputs)


def total_order_key(a: Numbers) -> np.ndarray:
    """Return integers in IEEE 754's total order of floats: -nan < -inf < -0 < 0 < inf < nan."""
    bits = np.asarray(a, np.float64).view(np.int64)
    return np.where(bits < 0, ~(bits & np.int64(2**63 - 1)), bits)


def _comparison(function: Numeric) -> Evaluate:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        x, y = xs
        if x.exponent == y.exponent:
            return [Wide(function(x.array, y.array))]
        (a, b), _ = align(xs, saturate=True)
        return [Wide(function(a, b))]

    return run


def _total(function: Numeric) -> Evaluate:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        arrays, _ = align(xs, saturate=True)
        if is_float(xs[0]):
            arrays = [total_order_key(a) for a in arrays]
        return [Wide(function(*arrays))]

    return run


def _apart(function: Numeric, key: Numeric | None = None) -> Evaluate:
    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        arrays, _ = common(xs)
        return [Wide(function(*(arrays if key is None else map(key, arrays))))]

    return run


for _name, _function in {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq_to": np.equal, "lt_to": np.less, "le_to": np.less_equal,
}.items():  # fmt: skip
    _total_order = _name.endswith("_to")
    law(
        _name,
        "*x: U -> -",
        bound=indicators,
        evaluate=_total(_function) if _total_order else _comparison(_function),
        vanish=vanish.EQUALITY if _name in ("eq", "ne") else vanish.HARMFUL,
    )
    spread_form(_name)(_apart(_function, total_order_key if _total_order else None))


def limit_of(test: Node | None) -> Value | None:
    """Return the operand that is larger where a comparison holds."""
    if test is None or test.primitive not in ("lt", "le", "gt", "ge"):
        return None
    return test.uses[test.primitive in ("lt", "le")].value


@law("is_finite", "x: U -> -", spread=True, bound=indicators)
def is_finite(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.isfinite(xs[0].array))]


def _sign(node: Node, a: Record) -> Record:
    plus = (0.0, 0.0) if a.has_plus else (INFINITY, -INFINITY)
    minus = (0.0, 0.0) if a.has_minus else (INFINITY, -INFINITY)
    return Record(*plus, *minus, a.zero, 0.0)


@law("sign", "x: U -> -", spread=True, bound=known(_sign), vanish=vanish.STEPS)
def sign(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.sign(xs[0].array))]


@law(
    "select_n",
    "which: -, *x: U -> u",
    spread=by_moving,
    bound=lambda node, records: joined(records[1:]),
    vanish=vanish.MOVES,
)
def select(node: Node, xs: list[Wide]) -> list[Wide]:
    which, cases = np.asarray(xs[0].array), xs[1:]
    arrays, power = align(cases)
    if len(arrays) == 1:
        return [Wide(arrays[0], power)]
    if len(arrays) == 2:
        return [Wide(np.where(which, arrays[1], arrays[0]), power)]
    which = np.broadcast_to(which, np.shape(arrays[0]))
    return [Wide(np.choose(which, arrays), power)]


# -- complex numbers ------------------------------------------------------------------------------


def _part(node: Node, a: Record) -> Record:
    """Bound a part from above; the smaller part of a complex number may be arbitrarily small."""
    return span(-math.inf, a.high)._replace(grid=a.grid, cancelled=True)


@law("real", "*x: u -> u", spread=True, bound=known(_part), vanish=vanish.PART)
def real(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.real(xs[0].array), xs[0].exponent)]


@law("imag", "*x: u -> u", spread=True, bound=known(_part), vanish=vanish.PART)
def imaginary(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.imag(xs[0].array), xs[0].exponent)]


@law("conj", "*x: u -> u", spread=True, bound=known(lambda node, a: a), vanish=vanish.MOVES)
def conjugate(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    return [Wide(np.conj(x.array).astype(np.complex128), x.exponent, x.extent)]


def _whole(node: Node, a: Record, b: Record) -> Record:
    both = union(a, b)
    whole = span(both.low, both.high + 0.5, zero=a.zero and b.zero)
    return whole._replace(cancelled=both.cancelled)


@law("complex", "*x: u -> u", bound=known(_whole), vanish=vanish.MOVES)
def complex_(node: Node, xs: list[Wide]) -> list[Wide]:
    arrays, power = align(xs)
    return [Wide(complex_of(*arrays), power)]


@spread_form("complex")
def _complex_apart(node: Node, xs: list[Wide]) -> list[Wide]:
    arrays, power = common(xs)
    for x, array in zip(xs, arrays, strict=True):
        if np.any(is_number(x.array) & ~is_number(array)):
            raise Apart
    return [Wide(complex_of(*arrays), power)]
