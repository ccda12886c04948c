"""What an equation asks of the exponents of its operands and results.

`x * y` adds exponents up, `x + y` wants them equal, `sin(x)` wants the number itself. Each
primitive has one entry in a table: a function from the equation, and the magnitudes of all values,
to *rows*, linear equations over exponents, each a tuple of `(coefficient, use or value)` whose sum
is zero. A row with one term pins it at 0.

    >>> constraint_of("mul").name
    'product'

A library author adds a primitive by `register_constraint("my_primitive", "product")`. A primitive
without an entry works on the numbers themselves (`at_zero`), and the report says so.

Sharp edges. Some results can be had at any exponent by an identity (`exp`, `pow`: see
`_identities.py`); the row that pins them at 0 is left out only where a magnitude demands it,
because identities cost more than conversions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tanjax import _compat
from tanjax._errors import ScaleError, message

from ..graph._graph import CALLS, Magnitudes, Node, Use, Value, callee_uses, number_of
from ..numbers._range import exponents, fits_at_zero
from ._identities_powers import meant

Term = tuple[int, Use | Value]
Row = tuple[Term, ...]
Rule = Callable[[Node, Magnitudes], Iterable[Row]]


class Constraint(NamedTuple):
    """The entry of a primitive: a name for people, and the rows of an equation."""

    name: str
    rows: Rule


def floating(things: Iterable[Any]) -> list[Any]:
    """Those uses or values that have an exponent."""
    return [t for t in things if (t.value if type(t) is Use else t).is_floating]


def equal(things: Iterable[Any]) -> Iterator[Row]:
    """All exponents are the same."""
    first, *rest = floating(things) or [None]
    for other in rest:
        yield (1, first), (-1, other)


def zero(things: Iterable[Any]) -> Iterator[Row]:
    """All exponents are 0."""
    for thing in floating(things):
        yield ((1, thing),)


def same(node: Node, m: Magnitudes) -> Iterator[Row]:
    """All operands and results have one exponent: sums, selections, rearrangements."""
    return equal([*node.uses, *node.outputs])


def pairwise(node: Node, m: Magnitudes) -> Iterator[Row]:
    """The i-th result has the exponent of the i-th operand: `sort`, collectives, barriers."""
    for use, out in zip(node.uses, node.outputs, strict=False):
        yield from equal([use, out])


def at_zero(node: Node, m: Magnitudes) -> Iterator[Row]:
    """The numbers themselves: transcendental functions, and whatever is not known."""
    return zero([*node.uses, *node.outputs])


def any_operands(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Operands at any exponents, each its own (`sign`, `is_finite`); results at 0."""
    return zero(node.outputs)


def compared(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Operands at one exponent, results at 0: comparisons, `atan2`."""
    yield from equal(node.uses)
    yield from zero(node.outputs)


def product(node: Node, m: Magnitudes) -> Iterator[Row]:
    """The exponent of the result is the sum of those of the two operands."""
    a, b = node.uses[:2]
    yield (1, a), (1, b), (-1, node.outputs[0])


def quotient(node: Node, m: Magnitudes) -> Iterator[Row]:
    a, b = node.uses
    yield (1, a), (-1, b), (-1, node.outputs[0])


def power(numerator: int, denominator: int = 1) -> Rule:
    """The rows of `out = x ** (numerator / denominator)`."""

    def rows(node: Node, m: Magnitudes) -> Iterator[Row]:
        yield (numerator, node.uses[0]), (-denominator, node.outputs[0])

    return rows


def _integer_power(node: Node, m: Magnitudes) -> Iterator[Row]:
    n = node.params["y"]
    use, out = node.uses[0], node.outputs[0]
    plain = _is_complex(node) or (fits_at_zero(use.value, m) and fits_at_zero(out, m))
    # Else it has a law for any two exponents.
    if plain or (abs(n) <= 3 and has_multiple(out, m, n)):
        yield (n, use), (-1, out)


def has_multiple(value: Value, m: Magnitudes, n: int) -> bool:
    """Whether a multiple of `n` is among the exponents of a value: else no `x**n` fits there."""
    low, high = exponents(value, m)
    return not n or high // abs(n) * abs(n) >= low


def _general_power(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Base and result at any exponents if they must; the power itself is a plain number."""
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


def fitting(things: Iterable[Any], m: Magnitudes) -> Iterator[Row]:
    """All exponents are 0 of what plain numbers hold; others may be any (`_identities.py`)."""
    for thing in things:
        if fits_at_zero(thing.value if type(thing) is Use else thing, m):
            yield from zero([thing])


def _is_complex(node: Node) -> bool:
    return any(np.issubdtype(v.aval.dtype, np.complexfloating) for v in floating(node.outputs))


def free(node: Node, m: Magnitudes) -> Iterator[Row]:
    """The numbers themselves where they fit, else any exponents: functions with a law of their own.

    An operand may be too large or too small to be stored as it is: infinity and zero have the right
    limits, or the law looks at the stored number.
    """
    return at_zero(node, m) if _is_complex(node) else fitting([*node.uses, *node.outputs], m)


def _complex_too(node: Node, m: Magnitudes) -> Iterator[Row]:
    """The same for complex numbers: `exp`, `log`."""
    return fitting([*node.uses, *node.outputs], m)


def _angle(node: Node, m: Magnitudes) -> Iterator[Row]:
    """`atan2`: of numbers at one exponent, unless the result is too small."""
    if fits_at_zero(node.outputs[0], m):
        return compared(node, m)
    return iter(())


def _select(node: Node, m: Magnitudes) -> Iterator[Row]:
    return equal([*node.uses[1:], *node.outputs])


def _gather(node: Node, m: Magnitudes) -> Iterator[Row]:
    """A rearrangement; a number that is filled in has the exponent of the result."""
    return same(node, m)


def _reduce_precision(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Rounds the significand at any exponent, unless it narrows the range of exponents too."""
    bits = {2: 5, 4: 8, 8: 11}.get(node.outputs[0].aval.dtype.itemsize, 8)
    narrows = node.params["exponent_bits"] < bits and node.outputs[0].aval.dtype.name != "bfloat16"
    return at_zero(node, m) if narrows else same(node, m)


def _convert(node: Node, m: Magnitudes) -> Iterator[Row]:
    """One exponent, unless it is moved on the way: in the wider type, which may hold more."""
    use, out = node.uses[0], node.outputs[0]
    fits = fits_at_zero(use.value, m) and fits_at_zero(out, m)
    if fits and use.value.is_floating and out.is_floating:
        return same(node, m)
    if use.value.is_floating and out.is_floating:
        return iter(())
    return fitting(floating([use, out]), m)


def _triangular_solve(node: Node, m: Magnitudes) -> Iterator[Row]:
    a, b = node.uses
    yield (1, b), (-1, a), (-1, node.outputs[0])
    if node.params["unit_diagonal"]:  # ones that are not stored have no exponent
        yield from zero([a])


def _reduction(node: Node, m: Magnitudes) -> Iterator[Row]:
    """`reduce` and `reduce_window` by a function: one exponent if that is a sum or a choice."""
    body = node.params["jaxpr"]
    equations = getattr(body, "jaxpr", body).eqns
    known = len(equations) == 1 and equations[0].primitive.name in ("add", "max", "min")
    return same(node, m) if known else at_zero(node, m)


def _spectral(place: int) -> Rule:
    """Decompositions: values at `place` have the exponent of the matrix, vectors none."""

    def rows(node: Node, m: Magnitudes) -> Iterator[Row]:
        yield from equal([node.uses[0], node.outputs[place]])
        yield from zero(o for i, o in enumerate(node.outputs) if i != place)

    return rows


def _tridiagonal_solve(node: Node, m: Magnitudes) -> Iterator[Row]:
    *diagonals, b = node.uses
    yield from equal(diagonals)
    yield (1, b), (-1, diagonals[0]), (-1, node.outputs[0])


def _scatter_mul(node: Node, m: Magnitudes) -> Iterator[Row]:
    operand, _, updates = node.uses
    yield from zero([updates])
    yield from equal([operand, node.outputs[0]])


def _select_and_scatter_add(node: Node, m: Magnitudes) -> Iterator[Row]:
    return equal([node.uses[0], *node.outputs])


# -- nested jaxprs ----------------------------------------------------------------------------


def _tie(outside: Iterable[Any], inside: Iterable[Any]) -> Iterator[Row]:
    for a, b in zip(outside, inside, strict=True):
        yield from equal([a, b])


def call(node: Node, m: Magnitudes) -> Iterator[Row]:
    """Jit, remat, custom rules, shard_map: operands are the callee's arguments."""
    (body,) = node.graphs
    given = callee_uses(node)
    yield from zero(u for u in node.uses if u not in given)
    yield from _tie(given, body.inputs)
    yield from _tie(node.outputs, body.outputs)


def _scan(node: Node, m: Magnitudes) -> Iterator[Row]:
    (body,) = node.graphs
    n, carries = _compat.scan_counts(node.params)
    yield from _tie(node.uses, body.inputs)
    yield from _tie(node.outputs, body.outputs)
    yield from _tie(body.outputs[:carries], body.inputs[n : n + carries])  # the carry: a cycle


def _while(node: Node, m: Magnitudes) -> Iterator[Row]:
    test, body = node.graphs
    n = node.params["cond_nconsts"]
    given = n + node.params["body_nconsts"]
    state = node.uses[given:]
    yield from _tie([*node.uses[:n], *state], test.inputs)
    yield from _tie([*node.uses[n:given], *state], body.inputs)
    yield from _tie(body.outputs, body.inputs[given - n :])
    yield from _tie(node.outputs, body.outputs)


def _cond(node: Node, m: Magnitudes) -> Iterator[Row]:
    for branch in node.graphs:
        yield from _tie(node.uses[1:], branch.inputs)
        yield from _tie(node.outputs, branch.outputs)


# -- the table ----------------------------------------------------------------------------------

KINDS: dict[str, Rule] = {
    "same": same,
    "pairwise": pairwise,
    "at_zero": at_zero,
    "any": any_operands,
    "compared": compared,
    "product": product,
    "quotient": quotient,
    "call": call,
}
_table: dict[str, Constraint] = {}


def register_constraint(
    primitive: Any,
    rule: str | Callable[[Node], Iterable[Row]],
    *,
    evaluate: Callable[..., Any] | None = None,
    interval: Callable[..., Any] | None = None,
    override: bool = False,
) -> None:
    """Say how a primitive treats exponents.

    **Arguments:** `primitive`: a JAX primitive or its name. `rule`: the name of a kind (`"same"`,
    `"pairwise"`, `"product"`, `"quotient"`, `"compared"`, `"any"`, `"at_zero"`, `"call"`), or a
    function from a `Node` to rows of `(coefficient, use or value)`. `evaluate`: the primitive on
    wide numbers, `(node, operands) -> results`; `interval`: its bounds. Without them magnitudes
    behind the primitive are unknown, and values there keep exponent 0.
    **Raises:** `ScaleError` if the kind is unknown, or the primitive has an entry already.
    """
    name = getattr(primitive, "name", primitive)
    if isinstance(rule, str) and rule not in KINDS:
        raise ScaleError(
            message(
                f"register_constraint({name!r}): there is no kind {rule!r}.",
                hint=f"one of {', '.join(KINDS)}, or a function from a node to rows.",
            )
        )
    if name in _table and not override:
        raise ScaleError(
            message(
                f"register_constraint: {name!r} has an entry already ({_table[name].name}).",
                hint="pass `override=True` to replace it.",
            )
        )
    if rule == "call":
        CALLS.add(name)
    if isinstance(rule, str):
        _table[name] = Constraint(rule, KINDS[rule])
    else:
        rows = rule
        _table[name] = Constraint(
            getattr(rule, "__name__", "rows").strip("_"), lambda node, m: rows(node)
        )
    from ..magnitudes import _evaluate, _intervals

    for rules, given in ((_evaluate.RULES, evaluate), (_intervals.INTERVALS, interval)):
        if given is not None:
            rules[name] = given


_DEFAULT = Constraint("at_zero, not in the table", at_zero)


def constraint_of(primitive: str) -> Constraint:
    """The entry of a primitive; of one without, that it works on the numbers themselves."""
    return _table.get(primitive, _DEFAULT)


def is_known(primitive: str) -> bool:
    return primitive in _table


def rows_of(node: Node, m: Magnitudes) -> list[Row]:
    """The rows of one equation. Terms without a floating value are left out."""
    rows = constraint_of(node.primitive).rows(node, m)
    return [tuple(term for term in row if floating([term[1]])) for row in rows]
