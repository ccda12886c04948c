"""Forms that many laws have: to move entries, to compare them, to bring them to one exponent.

If each number has its own exponent, a primitive that *moves* entries runs twice: on the fractions
and on the exponents. A primitive that depends on *order* runs on ranks, which are integers.

    law("rev", "x: U -> u", bound=moves, spread=by_moving)(...)  # twice the form for blocks
    law("cummax", "x: U -> u", bound=moves, spread=by_order(1))(...)  # once, on integers

Sharp edge: linear algebra has forms of its own (`_linalg.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from tanjax._jaxpr_types import JaxEquation
from tanjax._typing import DType, Shape
from tanjax.jaxprs import reducer

from ..graph._graph import Node
from ..numbers._interval_record import Record, Records, union
from ..numbers._spread import by_rank, parts_of, ranks
from ..numbers._wide import Numbers, Wide, align
from ._law import Evaluate, Numeric


def dtype_of(node: Node, index: int = 0) -> DType:
    return node.outputs[index].aval.dtype


def shape_of(node: Node, index: int = 0) -> Shape:
    return node.outputs[index].aval.shape


def is_float(x: Wide) -> bool:
    return x.array.dtype.kind in "fc"


def moved(x: Wide, array: Numbers) -> Wide:
    """Return the same entries in another order or number, without measuring them again."""
    return Wide(array, x.exponent, x.extent)


def aligned(function: Numeric) -> Evaluate:
    """Return a rule that brings the operands to one exponent, which its result keeps."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        arrays, power = align(xs)
        return [Wide(function(*arrays), power)]

    return run


def by_moving(rule: Evaluate) -> Evaluate:
    """Apply a primitive that moves entries to fractions and to exponents."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        pairs = [parts_of(x) if is_float(x) else (x.array, x.array) for x in xs]
        fractions = rule(node, [Wide(f) for f, _ in pairs])
        powers = rule(node, [Wide(np.asarray(p)) for _, p in pairs])
        return [
            Wide(f.array, np.asarray(p.array)) if is_float(f) else f
            for f, p in zip(fractions, powers, strict=True)
        ]

    return run


def by_order(nan: int) -> Callable[[Evaluate], Evaluate]:
    """Apply a primitive that compares entries to their ranks; NaN is the last or the first."""

    def form(rule: Evaluate) -> Evaluate:
        def run(node: Node, xs: list[Wide]) -> list[Wide]:
            places, table = ranks([x for x in xs if is_float(x)], nan)
            places.reverse()
            out = rule(node, [Wide(places.pop()) if is_float(x) else x for x in xs])
            return [
                by_rank(x.array, table) if value.is_floating else x
                for value, x in zip(node.outputs, out, strict=True)
            ]

        return run

    return form


def reducer_of(equation: JaxEquation) -> str:
    """Return the one primitive of a reduction's function; empty if it has several equations."""
    equations = reducer(equation).eqns
    return equations[0].primitive.name if len(equations) == 1 else ""


# -- bounds ---------------------------------------------------------------------------------------


def moves(node: Node, records: Records) -> Records:
    """Bound the first result by the first operand, whose entries it moves, perhaps not all."""
    return [records[0], *[None] * (len(node.outputs) - 1)]


def each(node: Node, records: Records) -> Records:
    return list(records)


def joins(*places: int) -> Callable[[Node, Records], Records]:
    """Return the bound of a result with entries of the operands at `places`, by default of all."""

    def bound(node: Node, records: Records) -> Records:
        chosen = [records[i] for i in places] or records
        return joined(chosen)

    return bound


def joined(records: Records) -> Records:
    found: list[Record] = [r for r in records if r is not None]
    return [reduce(union, found) if len(found) == len(records) else None]
