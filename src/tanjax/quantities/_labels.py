"""Labels for the results of a function, by the right side of its unit signature.

label = labeller(Signature.parse("a: u, b: v -> (u*v, -)").out)
label(raw_results, {"u": metre, "v": second}, operands)
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import PyTree

from tanjax.units import Unit
from tanjax.units.signatures import Binding, Each, Many, Monomial, Operand, Plain, Several

from ._overflow import labelled, like, plain_result

Label = Callable[[PyTree, Binding, list[Operand]], PyTree]


def labeller(out: PyTree) -> Label:
    """Return a function of the raw result and the units that labels results."""
    if isinstance(out, Plain):
        return lambda result, binding, operands: plain_result(result)
    if isinstance(out, Monomial):
        return _label_monomial(out)
    if isinstance(out, Many):
        item = labeller(out.item)
        return lambda result, binding, operands: like(
            result, [item(r, binding, operands) for r in result]
        )
    if isinstance(out, Several):
        items = tuple(map(labeller, out.items))
        return lambda result, binding, operands: like(
            result, [f(r, binding, operands) for f, r in zip(items, result, strict=False)]
        )
    assert isinstance(out, Each)
    return _label_each


def _label_monomial(out: Monomial) -> Label:
    if len(out.powers) == 1 and out.powers[0][1] == 1:
        letter = out.powers[0][0]

        def label_one(result: PyTree, binding: Binding, operands: PyTree) -> PyTree:
            unit = binding.get(letter)
            return plain_result(result) if unit is None else labelled(result, unit)

        return label_one

    def label(result: PyTree, binding: Binding, operands: PyTree) -> PyTree:
        unit = out.unit(binding)
        return plain_result(result) if unit is None else labelled(result, unit)

    return label


def _label_each(result: PyTree, binding: Binding, operands: list[Operand]) -> PyTree:
    """Label every result with the unit of the operand in its place."""
    own = [unit for role, unit, _ in operands if role.letter == "*"]
    single = not isinstance(result, list | tuple)
    results = [result] if single else result
    pairs = zip(results, own, strict=True)
    done = [labelled(r, u) if isinstance(u, Unit) else plain_result(r) for r, u in pairs]
    return done[0] if single else like(result, done)
