"""Trees of quantities as trees of plain numbers, and back.

Solvers compute with plain arrays. A `Chart` holds the unit of every leaf of a tree. It converts
results of user functions to these units, and labels the results of a solver. It is static data with
value equality: wrappers around user functions that hold a chart compare equal from call to call, so
a solver compiles once.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import quantities
from tanjax._errors import ShapeError, UnitError, message
from tanjax.arrays import is_structured
from tanjax.quantities import convert, is_quantity, label_of, taken_apart, unitful
from tanjax.units import Unit, one


class Chart(eqx.Module):
    """The units of a tree of quantities, leaf by leaf; `None` for plain leaves."""

    tree: PyTree = eqx.field(static=True)
    units: tuple[Unit | None, ...] = eqx.field(static=True)

    def numbers(self, where: str, tree: PyTree) -> PyTree:
        """Return the numbers of a tree in the units of the chart.

        **Raises:** `UnitError` naming the leaf; `ShapeError` if the tree has another structure.
        """
        leaves, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_structured)
        if treedef != self.tree:
            raise ShapeError(
                message(
                    f"{where}: the tree has the wrong structure.",
                    f"expected: {self.tree}",
                    f"got: {treedef}",
                )
            )
        done = [
            number_in(f"{where}{jax.tree_util.keystr(path)}", x, unit)
            for (path, x), unit in zip(leaves, self.units, strict=True)
        ]
        return jax.tree.unflatten(self.tree, done)

    def quantities(self, numbers: PyTree) -> PyTree:
        """Return numbers with their units; a leaf that is itself a tree keeps its structure."""
        leaves = self.tree.flatten_up_to(numbers)
        done = [labelled(x, unit) for x, unit in zip(leaves, self.units, strict=True)]
        return jax.tree.unflatten(self.tree, done)

    def parts(self) -> list[Chart]:
        """Return the charts of the children of the tree."""
        units = iter(self.units)
        take = lambda child: tuple(next(units) for _ in range(child.num_leaves))
        return [Chart(child, take(child)) for child in self.tree.children()]

    def per(self, unit: Unit | None) -> Chart:
        """Return the chart of derivatives of the tree by a quantity in `unit`."""
        return Chart(self.tree, tuple(_quotient(u, unit) for u in self.units))


def _quotient(unit: Unit | None, by: Unit | None) -> Unit | None:
    if by is None:
        return unit and unit.delta
    return (unit.delta if unit else one) / by.delta


def units_of(tree: PyTree) -> Chart:
    """Return the chart of a tree of quantities."""
    _, labels, treedef = taken_apart(tree)
    return Chart(treedef, tuple(labels))


def chart_of(tree: PyTree) -> tuple[PyTree, Chart]:
    """Return the numbers of a tree as arrays, and its chart."""
    values, labels, treedef = taken_apart(tree)
    numbers = jax.tree.map(jnp.asarray, jax.tree.unflatten(treedef, values))
    return numbers, Chart(treedef, tuple(labels))


def with_arrays(tree: PyTree) -> PyTree:
    """Convert Python numbers in quantities to arrays: else each number would compile a solver."""
    array = lambda x: (
        unitful(jnp.asarray(x.stored), x.label)
        if is_quantity(x) and isinstance(x.stored, float | int | complex)
        else x
    )
    return jax.tree.map(array, tree, is_leaf=is_quantity)


def labelled(value: PyTree, unit: Unit | None) -> PyTree:
    """Return a number with its unit, or plain."""
    return value if unit is None or value is None else unitful(value, unit)


def number_in(where: str, x: PyTree, unit: Unit | None) -> PyTree:
    """Return the number of a quantity in a unit; `None` stands for a plain number.

    Zero has every unit; plain numbers and dimensionless quantities mix.
    **Raises:** `UnitError` naming the place and both units; `ScaleError` if the number of a
    quantity with a power of two overflows or underflows the dtype.
    """
    if x is None or (type(x) in (int, float) and x == 0):
        return x
    given, target = (x.label if is_quantity(x) else one), (unit or one)
    if given.dimension is target.dimension:
        return quantities.number_in(x, target) if is_quantity(x) else convert(x, given, target)
    raise UnitError(
        message(
            f"{where}: the unit does not fit.",
            f"expected: {_name(unit)}",
            f"got: {_name(label_of(x))}",
            hint="give a quantity of that dimension, in any unit; zero may be written 0.0."
            if unit
            else "a plain number is expected here: say which one, `q.to_value(...)`.",
        )
    )


def _name(unit: Unit | None) -> str:
    return "a plain number" if unit is None else f"{unit} ({unit.dimension})"
