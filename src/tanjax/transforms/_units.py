"""Units around JAX's transformations: strip before, label after.

JAX demands that a cotangent, a carry, a branch has the static data of its primal, and the unit of a
quantity is static data. So tanjax gives JAX functions whose results are stripped of units. It
labels the derivatives with their unit, `[out]/[in]`.

A cotangent `c` of an output in unit `u` stands for an objective in `[c]·u`; all cotangents of one
call must agree about the objective. A tangent of an input in unit `u` moves it at `[t]/u`; all
tangents of one call must agree about that rate. A plain number is a (co)tangent of unit 1.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax._errors import CotangentError, MutationError, UnitError, message
from tanjax._typing import Function
from tanjax.arrays import is_structured
from tanjax.quantities import convert, is_quantity, label_of, stored_of, taken_apart, unitful
from tanjax.units import Unit, one


def strip(tree: PyTree) -> tuple[PyTree, Units]:
    """Replace the quantities of a tree by their values, and return their units."""
    values, found, treedef = taken_apart(tree)
    return jax.tree.unflatten(treedef, values), Units(treedef, found)


class Units:
    """The units of a stripped tree, leaf by leaf; `None` for plain leaves."""

    __slots__ = ("leaves", "tree")

    def __init__(self, tree: PyTree, leaves: list[Unit | None]) -> None:
        self.tree, self.leaves = tree, leaves

    def label(self, values: PyTree) -> PyTree:
        """Put the units back on a tree of values."""
        return self.map(values, lambda v, unit: v if unit is None else unitful(v, unit))

    def map(self, values: PyTree, f: Function) -> PyTree:
        """`f(value, unit)` for every leaf."""
        done = map(f, self.tree.flatten_up_to(values), self.leaves)
        return jax.tree.unflatten(self.tree, list(done))

    def rates(self, values: PyTree, rate: Unit) -> PyTree:
        """Label tangents of the tree: the unit of each leaf times a rate."""
        return self.map(values, lambda value, unit: in_unit(value, unit and unit.delta, rate))


class Stripped:
    """A function whose outputs are stripped; it remembers their units from its last trace."""

    def __init__(self, f: Function, has_aux: bool = False) -> None:
        self.f, self.has_aux = f, has_aux
        self.units: Any = None

    def __call__(self, /, *args: PyTree, **kwargs: PyTree) -> PyTree:
        try:
            out = self.f(*args, **kwargs)
        except Exception as error:  # JAX has no class of its own for this error
            if "non-differentiated array reference" in str(error):
                raise _not_moving(self.f) from error
            raise
        out, aux = out if self.has_aux else (out, None)
        plain, self.units = strip(out)
        return (plain, aux) if self.has_aux else plain


def _not_moving(f: Function) -> MutationError:
    return MutationError(
        message(
            f"{getattr(f, '__name__', 'a function')}: a value that is differentiated is written to "
            "a Ref that is not.",
            "why: a later reader would get no derivative.",
            hint="pass the Ref as an argument and name its place in `argnums`, too, or write "
            "`jax.lax.stop_gradient(value)`.",
        )
    )


def in_unit(value: PyTree, unit: Unit | None, factor: Unit) -> PyTree:
    """Label a value with `unit · factor`; return it plain if there is neither."""
    if value is None:
        return None
    if unit is None:
        return value if factor.is_one else unitful(value, factor)
    return unitful(value, unit if factor.is_one else unit * factor)


def times_unit(tree: PyTree, factor: Unit) -> PyTree:
    """Multiply a tree of natural cotangents by a unit."""
    if factor.is_one:
        return tree

    def multiply(x: PyTree) -> PyTree:
        if is_quantity(x):
            return unitful(x.stored, factor * x.label)
        return None if x is None else unitful(x, factor)

    return jax.tree.map(multiply, tree, is_leaf=lambda x: x is None or is_structured(x))


def common_rate(
    where: str, primals: list[PyTree], given: list[PyTree], cotangent: bool
) -> tuple[list[PyTree], Unit]:
    """Strip natural (co)tangents to numbers of one common objective or rate.

    **Returns:** for every primal its natural (co)tangent without a unit, and the unit of the
    objective (cotangents) or of the rate (tangents).
    **Raises:** `UnitError` if two of them disagree.
    """
    rate: Unit | None = None
    first = ""
    done: list[PyTree] = []
    for i, (x, n) in enumerate(zip(primals, given, strict=True)):
        if n is None or (type(n) in (int, float) and n == 0):
            done.append(None)
            continue
        primal_unit = x.label.delta if is_quantity(x) else one
        unit = n.label if is_quantity(n) else one
        own = unit * primal_unit if cotangent else unit / primal_unit
        if rate is None:
            rate, first = own, f"leaf {i}: {unit} for {primal_unit}"
        if own.dimension is not rate.dimension:
            raise UnitError(
                message(
                    f"{where}: two {'co' if cotangent else ''}tangents disagree about "
                    f"{'the objective' if cotangent else 'the rate'}.",
                    first,
                    f"leaf {i}: {unit} for {primal_unit}",
                    hint="a cotangent is in [objective]/[output]."
                    if cotangent
                    else "a tangent is in [input] times one rate, for instance 1/s.",
                )
            )
        value = stored_of(n)
        done.append(value if own is rate else convert(value, own, rate))
    return done, rate or one


def flatten_like(
    where: str, tree: PyTree, given: PyTree
) -> tuple[list[PyTree], list[PyTree], PyTreeDef]:
    """Return the arrays of a tree, the value given for each, and the tree's structure.

    **Raises:** `CotangentError` if the trees differ.
    """
    leaves, treedef = jax.tree.flatten(tree, is_leaf=is_structured)
    try:
        return leaves, treedef.flatten_up_to(given), treedef
    except ValueError as error:
        raise CotangentError(
            f"{where}: the tree does not match that of the primal: {error}"
        ) from None


def convert_like(where: str, target: PyTree, tree: PyTree) -> PyTree:
    """Convert every quantity of a tree to the unit of its place in `target`.

    **Raises:** `UnitError` naming the place and both units. A tree of another structure is
    returned as it is: JAX's message for that is better.
    """
    paths, treedef = jax.tree_util.tree_flatten_with_path(target, is_leaf=is_quantity)
    try:
        given = treedef.flatten_up_to(tree)
    except ValueError:
        return tree
    done = [
        _convert_leaf(f"{where}{jax.tree_util.keystr(path)}", t, x)
        for (path, t), x in zip(paths, given, strict=True)
    ]
    return jax.tree.unflatten(treedef, done)


def _convert_leaf(where: str, target: PyTree, x: PyTree) -> PyTree:
    unit: Unit | None = label_of(target)
    got: Any = label_of(x)
    if unit is got:
        return x
    if unit is None:
        if got.is_dimensionless and got.is_linear and is_plain_leaf(target):
            return x.plain(where)
    elif got is None:
        if unit.is_dimensionless and unit.is_linear and is_plain_leaf(x):
            return unitful(convert(x, one, unit), unit)
        if type(x) in (int, float) and x == 0 and unit.is_linear:  # zero has every linear unit
            return unitful(float(x), unit)
    elif got.dimension is unit.dimension:
        return unitful(convert(x.stored, got, unit), unit)
    raise UnitError(
        message(
            f"{where}: the unit changes.",
            f"expected: {_name(unit)}",
            f"got: {_name(got)}",
            hint="all branches return the dimensions of the first (a zero too: `0.0 * unit`)."
            if "branch" in where
            else "start with a value of the right dimension (a zero too: `0.0 * unit`).",
        )
    )


def is_plain_leaf(x: PyTree) -> bool:
    """True if a value is one array or number."""
    return jax.tree_util.all_leaves([x])


def _name(unit: Unit | None) -> str:
    return "a plain value" if unit is None else f"{unit} ({unit.dimension})"
