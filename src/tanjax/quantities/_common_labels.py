"""Common labels for quantities that a function needs in one unit, or near one.

The labels of operands may have different powers of two. If their numbers are near the ends of the
range, they move to a label that suits all of them, or else the largest. Pure numbers beside
dimensionless quantities take part.

    centred_label([tj.Quantity(jnp.float16(1.5), "1", -60)], one, pure=[3.0])  # 1, as 3 is larger

Sharp edges. Only the labels of tracers are known: the label of the largest scale is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jaxtyping import PyTree

from tanjax._dtype_range import Range, range_of
from tanjax._typing import Function
from tanjax.arrays import is_structured
from tanjax.units import Dimension, Unit, one
from tanjax.units.signatures import Binding, Operand

from ._conversion import bits_in, factor_of
from ._exponents import divisible_exponent, joined
from ._losses import checked
from ._quantity import bits_of, is_quantity, unitful
from ._range import Bits, measure_pure, shift


def fitted(
    values: Sequence[PyTree],
    operands: Sequence[Operand],
    binding: Binding,
    roots: dict[str, int],
) -> tuple[Binding, dict[int, int]]:
    """Return labels that put each letter's operands near one, and exponents of pure numbers.

    A function with a unit signature is homogeneous in each of its units. A power of two can
    therefore be factored out of the numbers, and the laws of units give its power in the result.

    **Arguments:** `values`: of the operands; `roots`: the divisor of the exponents of the labels of
    some letters.
    **Returns:** the binding with these labels. Also, by place in `values`, the exponents of pure
    quantities that would overflow or underflow at exponent 0. They include the factor of the unit,
    10^-19 for eV / J: stored numbers do not change.
    """
    of: dict[str, list[PyTree]] = {}
    beside: dict[str, list[PyTree]] = {}
    inner: dict[int, int] = {}
    for i, ((role, unit, _), value) in enumerate(zip(operands, values, strict=True)):
        if unit is None:
            beside.setdefault(role.letter, []).append(value)
        elif isinstance(unit, Unit) and unit.is_linear:
            of.setdefault(role.letter, []).append(value)
            bits, span = bits_of(value), range_of(value.dtype)
            if role.letter == "1" and bits and span and not span.holds(*bits_in(bits, unit, one)):
                inner[i] = factor_of(unit, one)[2]
    new = dict(binding)
    for letter, quantities in of.items():
        bound = binding.get(letter)
        if letter != "1" and isinstance(bound, Unit) and bound.is_linear:
            pure = beside.get(letter, ())
            new[letter] = centred_label(quantities, bound, roots.get(letter, 1), pure)
    return new, inner


def meeting(quantities: list[PyTree], unit: Unit, pure: Sequence[PyTree] = ()) -> Unit:
    """Return the common label of quantities that a function needs in one unit: mostly a plain one.

    **Arguments:** `pure`: plain numbers that the function combines with the quantities.
    """
    if not unit.is_linear or all(q.label is unit for q in quantities):
        return unit
    if not any(q.label.scale for q in quantities):
        return unit
    return centred_label(quantities, unit, pure=pure)


def centred_label(
    quantities: list[PyTree], unit: Unit, root: int = 1, pure: Sequence[PyTree] = ()
) -> Unit:
    """Return the label that puts the quantities together near one.

    **Arguments:** `root`: its exponent is a multiple of this; `pure`: plain numbers that the
    function combines with the quantities.
    **Returns:** if some range is unknown, the label of the largest scale among them.
    """
    quantities = [q for q in quantities if q.label.is_linear]
    known = [(bits, q.label) for q in quantities if (bits := bits_of(q)) is not None]
    spans = [span for q in quantities if (span := range_of(q.dtype)) is not None]
    if min(len(known), len(spans)) < len(quantities):
        scales = (unit.scale, *(q.label.scale for q in quantities))
        return unit.plain.scaled(max(scales)).divisible(root)
    span = min(spans, key=lambda s: s.highest)
    known += _beside(known, pure, unit.plain, span)
    low, high = joined(known, unit.plain)
    if low > high:
        return unit.plain
    middle = span.centre(low, high)
    if middle is None:
        middle = int(high) - span.highest + 2  # the largest is held
    if root > 1:
        middle = divisible_exponent(low, high, middle, root, span)
    return unit.plain.scaled(middle)


def _beside(
    known: list[tuple[Bits, Unit]], pure: Sequence[PyTree], unit: Unit, span: Range
) -> list[tuple[Bits, Unit]]:
    """Return the bits of pure numbers, unless every label that suits the quantities loses them."""
    found = [(bits, one) for bits in map(measure_pure, pure) if bits is not None]
    low, high = joined([*known, *found], unit)
    fits = span.centre(low, high) is not None
    return found if fits or high > joined(known, unit)[1] else []


def centred_call(
    operation: str, call: Function, args: Sequence[PyTree], kwargs: dict[str, PyTree]
) -> tuple[PyTree, bool]:
    """Run `call` with quantities shifted near one, with one exponent per dimension.

    **Returns:** the result, and True if no quantity had an exponent before.
    """
    leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=is_quantity)
    groups: dict[Dimension, list[PyTree]] = {}
    for q in leaves:
        if is_quantity(q) and q.label.is_linear and not is_structured(q.stored):
            groups.setdefault(q.label.dimension, []).append(q)
    exponents = {d: centred_label(g, g[0].label).scale for d, g in groups.items()}
    plain = not any(q.label.scale for g in groups.values() for q in g)
    places, labels = [], []
    for i, q in enumerate(leaves):
        known = is_quantity(q) and q.label.is_linear and bits_of(q) is not None
        if known and q.label.scale != exponents[q.label.dimension]:
            places.append(i)
            labels.append(q.label.plain.scaled(exponents[q.label.dimension]))

    def on_moved(*numbers: PyTree) -> PyTree:
        new = list(leaves)
        for i, number, label in zip(places, numbers, labels, strict=True):
            new[i] = unitful(number, label)
        args, kwargs = tree.unflatten(new)
        return call(*args, **kwargs)

    moved = [leaves[i] for i in places]
    numbers = [shift(q.stored, q.scale - to.scale) for q, to in zip(moved, labels, strict=True)]
    origins = [(q.stored, q.label, to) for q, to in zip(moved, labels, strict=True)]
    return checked(operation, on_moved, numbers, origins, leaves), plain
