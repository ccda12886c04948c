"""Rows: linear equations that tie the exponents of operands and results.

`x * y` adds exponents, `x + y` needs equal ones, `sin(x)` needs the number itself; units obey the
same rules. So *rows* follow from the unit signature of a law. Each row is a tuple of
`(coefficient, use or value)` whose sum is zero; a row with one term pins it at 0.

    rows_of(node, magnitudes)  # of a `mul`: [((1, a), (1, b), (-1, out))]

A primitive that depends on parameters, or runs jaxprs, has a function here instead. A primitive
without a law works on the numbers themselves, and the report says so.

Sharp edges. An identity gives some results at any exponent (`exp`, `pow`: see `_identities.py`).
The row that pins them at 0 is left out only where a magnitude demands it, because identities cost
more than conversions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from tanjax.units.signatures import Each, Monomial, Signature

from ..graph._graph import Magnitudes, Node, Use, Value
from ._forms import reducer_of
from ._identities_powers import meant, number_of
from ._law import LAWS, Law, Row, Thing
from ._range import exponents, fits_at_zero

T = TypeVar("T", bound=Thing)


def rows_of(node: Node, m: Magnitudes) -> list[Row]:
    """Return the rows of one equation, without the terms that have no floating value."""
    found = LAWS.get(node.primitive)
    if found is None:
        rows: Iterable[Row] = at_zero(node, m)
    else:
        rows = found.rows(node, m) if found.rows else _of_signature(node, found, m)
    return [tuple(term for term in row if _has_exponent(term[1])) for row in rows]


def _has_exponent(thing: Thing) -> bool:
    return bool((thing.value if type(thing) is Use else thing).is_floating)


def floating(things: Iterable[T]) -> list[T]:
    """Return the uses or values that have an exponent."""
    return [t for t in things if _has_exponent(t)]


def equal(things: Iterable[Thing]) -> Iterator[Row]:
    """Yield rows that make all exponents equal."""
    found: list[Any] = floating(things) or [None]
    first, *rest = found
    for other in rest:
        yield (1, first), (-1, other)


def zero(things: Iterable[Thing]) -> Iterator[Row]:
    """Yield rows that pin all exponents at 0."""
    for thing in floating(things):
        yield ((1, thing),)


def fitting(things: Iterable[Thing], m: Magnitudes) -> Iterator[Row]:
    """Pin values that plain numbers hold at 0; others may have any exponent (`_identities.py`)."""
    for thing in things:
        if fits_at_zero(thing.value if type(thing) is Use else thing, m):
            yield from zero([thing])


# -- from signatures ------------------------------------------------------------------------------


def _of_signature(node: Node, law: Law, m: Magnitudes) -> Iterator[Row]:
    """Give equal letters equal exponents, pure numbers exponent 0, and products the sum."""
    text = law.units(node.equation)
    if law.each:
        for use, out in zip(node.uses, node.outputs, strict=False):
            yield from _read(text, [use], [out], [])
        return
    pure: list[Thing] = []
    yield from _read(text, node.uses, node.outputs, pure)
    movable = law.replay is not None and not (law.real_only and _is_complex(node))
    yield from fitting(pure, m) if movable else zero(pure)


# Letters of operands, and of each result its power and those of letters; None: its operand's.
_Powers = tuple[int, tuple[tuple[int, str], ...]]
_Letters = tuple[tuple[str, ...], tuple[_Powers | None, ...]]


@functools.cache  # the fractions of a product take 10 us
def _letters(text: str, operands: int, results: int) -> _Letters:
    signature, found = Signature.parse(text), list[_Powers | None]()
    for item in signature.results_of(results):
        if isinstance(item, Each):
            found.append(None)
            continue
        powers = item.powers if isinstance(item, Monomial) else ()
        root = math.lcm(*(power.denominator for _, power in powers))
        found.append((root, tuple((int(p * root), x) for x, p in powers)))
    return tuple(role.letter for role in signature.roles_of(operands)), tuple(found)


def _read(text: str, operands: list[Use], results: list[Value], pure: list[Thing]) -> Iterator[Row]:
    """Yield the rows of a signature; uses and values without a unit are added to `pure`."""
    leaders: dict[str, Use] = {}
    letters, items = _letters(text, len(operands), len(results))
    for letter, use in zip(letters, operands, strict=True):
        if letter in ("1", "-"):
            pure.append(use)
        elif letter != "*" and use.value.is_floating:
            first = leaders.setdefault(letter, use)
            if first is not use:
                yield (1, first), (-1, use)
    for i, (out, item) in enumerate(zip(results, items, strict=False)):
        if item is None:
            yield from equal([operands[i], out])
            continue
        root, powers = item
        terms = [(power, leaders[x]) for power, x in powers if x in leaders]
        if terms:
            yield *terms, (-root, out)
        else:
            pure.append(out)


# -- of their own ---------------------------------------------------------------------------------


def at_zero(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Pin all at 0: the primitive is unknown, or depends on how a number is stored."""
    return zero([*node.uses, *node.outputs])


def same(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Give all operands and results one exponent."""
    return equal([*node.uses, *node.outputs])


def integer_power(node: Node, m: Magnitudes) -> Iterator[Row]:
    n = node.params["y"]
    use, out = node.uses[0], node.outputs[0]
    plain = _is_complex(node) or (fits_at_zero(use.value, m) and fits_at_zero(out, m))
    if not n:  # the number 1, and a row has no coefficient that is 0
        yield from zero([out])
    # Else it has a law for any two exponents.
    elif plain or (abs(n) <= 3 and has_multiple(out, m, n)):
        yield (n, use), (-1, out)


def has_multiple(value: Value, m: Magnitudes, n: int) -> bool:
    """True if a multiple of `n` is among the exponents of a value: else no `x**n` fits there."""
    low, high = exponents(value, m)
    return high // abs(n) * abs(n) >= low


def general_power(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Allow base and result any exponents if they must; the power itself is a plain number."""
    base, exponent, out = *node.uses, node.outputs[0]
    yield from zero([exponent])
    number = number_of(exponent.value)
    if not _is_complex(node):
        exact = None if number is None else Fraction(float(number)).limit_denominator(4)
        is_plain = fits_at_zero(base.value, m) and fits_at_zero(out, m)
        if is_plain and exact and exact == number and abs(exact) <= 3:  # a root of a stored number
            yield (exact.numerator, base), (-exact.denominator, out)
            return
        yield from fitting([base, out], m)
        return
    ratio = (
        Fraction(0) if number is None else meant(complex(number).real, exponent.value.aval.dtype)
    )
    if complex(number or 0).imag or not ratio:
        yield from zero([base, out])
        return
    yield (ratio.numerator, base), (-ratio.denominator, out)


def _is_complex(node: Node) -> bool:
    return any(np.issubdtype(v.aval.dtype, np.complexfloating) for v in floating(node.outputs))


def product_of_many(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Pin the numbers at 0 where they fit, else allow any exponents."""
    things: list[Thing] = [*node.uses, *node.outputs]
    return zero(things) if _is_complex(node) else fitting(things, m)


def angle(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Give the operands of `atan2` one exponent; a result that is too small is a quotient."""
    (y, x), out = node.uses, node.outputs[0]
    if fits_at_zero(out, m):
        yield from equal(node.uses)
        yield from zero(node.outputs)
    else:
        yield (1, y), (-1, x), (-1, out)


def reduce_precision(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Allow any exponent, unless the rounding narrows the range of exponents too."""
    bits = {2: 5, 4: 8, 8: 11}.get(node.outputs[0].aval.dtype.itemsize, 8)
    narrows = node.params["exponent_bits"] < bits and node.outputs[0].aval.dtype.name != "bfloat16"
    return at_zero(node, m) if narrows else same(node, m)


def convert(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Keep the exponent, unless the cast changes it: in the wider dtype, which may hold more."""
    use, out = node.uses[0], node.outputs[0]
    if not (use.value.is_floating and out.is_floating):
        return fitting(floating([use, out]), m)
    fits = fits_at_zero(use.value, m) and fits_at_zero(out, m)
    return same(node, m) if fits else iter(())


def reduction(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Give `reduce` and `reduce_window` one exponent if their function is a sum or a choice."""
    known = reducer_of(node.equation) in ("add", "max", "min")
    return same(node, m) if known else at_zero(node, m)


def triangular_solve(node: Node, m: Magnitudes) -> Iterator[Row]:
    a, b = node.uses
    yield (1, b), (-1, a), (-1, node.outputs[0])
    if node.params["unit_diagonal"]:  # ones that are not stored have no exponent
        yield from zero([a])


def factors(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Tie the two factors that `lu` packs into an array and readers read apart (`_lu.py`)."""
    packed, *_, lower, upper = node.outputs
    yield from equal([node.uses[0], upper])
    yield from zero([packed, lower])


# -- nested jaxprs --------------------------------------------------------------------------------


def _tie(outside: Iterable[Thing], inside: Iterable[Thing]) -> Iterator[Row]:
    for a, b in zip(outside, inside, strict=True):
        yield from equal([a, b])


def nested(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Tie operands and results to those of nested graphs: of calls, loops and branches."""
    handed = {use for uses in node.given for use in uses}
    yield from zero(use for use in node.uses if use not in handed)
    for given, graph in zip(node.given, node.graphs, strict=True):
        yield from _tie(given, graph.inputs)
        if graph in node.returning:
            yield from _tie(node.outputs, graph.outputs)
    for pair in node.carried:  # a cycle
        yield from equal(pair)
