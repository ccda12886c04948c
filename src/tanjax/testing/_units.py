"""Quantities in checks: numbers to compare, and units that must be the right ones.

Comparisons use plain numbers. A quantity is stripped after its unit was compared with the expected
unit; a natural cotangent of a quantity must be in the inverse unit.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import arrays, transforms, units
from tanjax._errors import UnitError, message
from tanjax.quantities import is_quantity, number_in, stored_of, unitful
from tanjax.units import Unit

from ._problem import Problem
from ._record import Recorder

THOUSAND = units.unit("km") / units.unit("m")


def numbers(tree: PyTree) -> PyTree:
    """Return a tree with the values of its quantities."""
    return jax.tree.map(stored_of, tree, is_leaf=is_quantity)


def values_type(x: PyTree) -> type:
    """Return the type of the numbers: for a quantity that of its value."""
    return type(x.stored if is_quantity(x) else x)


def unit_of_cotangent(x: PyTree) -> Unit | None:
    """Return the expected unit of a natural cotangent of an array; `None` for plain arrays."""
    return x.label.inverse if is_quantity(x) else None


def unit_of_tangent(x: PyTree) -> Unit | None:
    """Return the expected unit of a natural tangent of an array; `None` for plain arrays."""
    return x.label.delta if is_quantity(x) else None


def labelled(value: PyTree, unit: Unit | None) -> PyTree:
    """Return a value in a unit; plain for `None`."""
    return value if unit is None else unitful(value, unit)


def stripped(what: str, x: PyTree, unit: Unit | None) -> PyTree:
    """Return the dense numbers of an array in a unit. **Raises:** `UnitError` for another unit."""
    got = x.label if is_quantity(x) else None
    empty = isinstance(x, arrays.Zero)  # it has every unit
    if (not empty and (got is None) != (unit is None)) or (got is not None and got != unit):
        raise UnitError(message(f"{what} has the wrong unit.", f"expected: {unit}", f"got: {got}"))
    return arrays.destructure(x.stored if is_quantity(x) else x)


def check_units(recorder: Recorder, problem: Problem, tolerance: float) -> None:
    """Give one argument at a time in another prefix: results and gradients must not change.

    A unit signature with a wrong exponent gives another quantity then. So does a rule that reads
    `x.value` without regard to its unit.
    """
    args = list(problem.args)
    names = problem.op.names_for(len(args))
    for i, a in enumerate(args):
        if not is_quantity(a) or not a.label.is_linear:
            continue
        moved = [*args[:i], a.to(a.label * THOUSAND), *args[i + 1 :]]
        want, got = problem.call(*args), problem.call(*moved)
        _same(recorder, f"the result with {names[i]} in {moved[i].unit}", got, want, tolerance)
        if not problem.moving or not problem.out_dense.size:
            continue
        want, got = _gradients(problem, args, want), _gradients(problem, moved, want)
        got, want = map(_without_pure_units, (got, want))
        _same(recorder, f"the gradient with {names[i]} in {moved[i].unit}", got, want, tolerance)


def _gradients(problem: Problem, args: list[PyTree], like: PyTree) -> PyTree:
    """Return natural cotangents of a pure number: the weighted sum of the result, in its unit."""
    some = [args[i] for i in problem.moving]

    def f(*moving: PyTree) -> PyTree:
        full = list(args)
        for i, a in zip(problem.moving, moving, strict=True):
            full[i] = a
        return problem.call(*full)

    leaves, tree = jax.tree.flatten(like, is_leaf=arrays.is_structured)
    bars = [_bar(x) for x in leaves]
    return transforms.vjp(f, *some)[1](tree.unflatten(bars))


def _bar(x: PyTree) -> PyTree:
    dense = stripped("a result", x, x.label if is_quantity(x) else None)
    if not arrays.is_inexact(dense):
        return None
    return labelled(jnp.cos(jnp.arange(dense.size).reshape(dense.shape)).astype(dense.dtype),
                    unit_of_cotangent(x))  # fmt: skip


def _without_pure_units(tree: PyTree) -> PyTree:
    """Convert pure units to 1: the gradient of a plain number is in km/m for a result in m."""

    def one(x: PyTree) -> PyTree:
        pure = is_quantity(x) and x.label.is_dimensionless and x.label.is_linear
        return number_in(x, units.one) if pure else x

    return jax.tree.map(one, tree, is_leaf=arrays.is_structured)


def _same(recorder: Recorder, what: str, got: PyTree, want: PyTree, tolerance: float) -> None:
    """Compare two trees of quantities: dimensions, and numbers in the units of the second."""
    leaves, tree = jax.tree.flatten(want, is_leaf=arrays.is_structured)
    for w, g in zip(leaves, tree.flatten_up_to(got), strict=True):
        unit, other = (x.label if is_quantity(x) else None for x in (w, g))
        recorder.holds(
            "units", f"{what} has another dimension.",
            (unit and unit.dimension) is (other and other.dimension),
            f"expected: {unit}", f"got: {other}",
        )  # fmt: skip
        mine, wanted = (stripped(what, x if unit is None else x.to(unit), unit) for x in (g, w))
        recorder.compare("units", what, mine, wanted, tolerance)
