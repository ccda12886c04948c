"""Roots, minima, fits and fixed points of functions of quantities.

The solvers of optimistix work on trees of plain numbers. The functions here have their names and
arguments. Unknowns are in the units of the initial guess `y0`, functions receive quantities and
may return them, and solutions are labelled. The solver sees a structured unknown as the vector of
its free numbers (`tj.tangents.free_coordinates`): six for a `Symmetric` of three rows. A definite
matrix stays definite. By stored numbers Newton's system would be singular.

    volume = root_find(lambda v, p: (p + a / v**2) * (v - b) - R * T, optimistix.Newton(1e-8, 1e-8),
                       1.0 * litre / mol, pressure).value

Units of each problem. A root: any units, as every value is compared with its own zero. A minimum:
one scalar, in any unit. A fixed point: values in the units of `y0`. Least squares adds squares:
residuals of one dimension are converted to one unit. Residuals of several dimensions are refused
unless `scale` gives a unit for each, usually its standard deviation.

Sharp edges. The absolute tolerance of a solver is in the units of `y0`, and for most solvers also
in those of the function's values: it is one number for all of them. Solvers of systems need as many
equations as free numbers: return a `Symmetric` for a `Symmetric`.
"""

from __future__ import annotations

from typing import TypeAlias

import equinox as eqx
import jax
from jaxtyping import PyTree

from tanjax._errors import UnitError, message
from tanjax._typing import Function
from tanjax.arrays import is_structured, without_promise
from tanjax.quantities import convert, is_quantity
from tanjax.transforms import free_coordinates
from tanjax.units import Unit

from ._charts import Chart, chart_of, number_in, with_arrays
from ._missing import missing

try:
    import optimistix
except ImportError as error:
    raise missing("optimistix") from error

Solver: TypeAlias = "optimistix.AbstractIterativeSolver[PyTree, PyTree, PyTree, PyTree]"


class _Problem(eqx.Module):
    """A function on plain numbers, around one on quantities; equal from call to call."""

    function: Function
    chart: Chart
    like: PyTree  # the unknowns without their numbers
    numbers: Function = eqx.field(static=True)
    extra: PyTree  # an argument of `numbers` besides the value
    has_aux: bool = eqx.field(static=True)

    def __call__(self, y: PyTree, args: PyTree) -> PyTree:
        out = self.function(self.chart.quantities(_arrays(self.like, y)), args)
        out, aux = out if self.has_aux else (out, None)
        numbers = self.numbers(out, self.extra)
        return (numbers, aux) if self.has_aux else numbers


def _solve(
    name: str,
    numbers: PyTree,
    extra: PyTree,
    fn: Function,
    solver: Solver,
    y0: PyTree,
    args: PyTree,
    rest: PyTree,
) -> optimistix.Solution[PyTree, PyTree]:
    options = dict(rest.pop("options", None) or {})
    start, chart = chart_of(y0)
    like = jax.eval_shape(lambda: start)
    for bound in ("lower", "upper"):  # of bracketing solvers
        if bound in options:
            given = chart.numbers(f"{name}: {bound}", options[bound])
            options[bound] = _free(like, given)
    problem = _Problem(fn, chart, like, numbers, extra, rest.get("has_aux", False))
    solve = getattr(optimistix, name)
    solution = solve(problem, solver, _free(like, start), with_arrays(args), options, **rest)
    value = chart.quantities(_arrays(like, solution.value))
    return eqx.tree_at(lambda s: s.value, solution, value, is_leaf=lambda x: x is None)


def _free(like: PyTree, numbers: PyTree) -> PyTree:
    """Return a tree with a vector of free numbers in the place of each structured array."""
    free = lambda a, x: free_coordinates(a).to_vector(x) if is_structured(a) else x
    return jax.tree.map(free, like, numbers, is_leaf=is_structured)


def _arrays(like: PyTree, free: PyTree) -> PyTree:
    """Return the structured arrays of these vectors."""
    array = lambda a, v: free_coordinates(a).from_vector(v) if is_structured(a) else v
    return jax.tree.map(array, like, free, is_leaf=is_structured)


def root_find(
    fn: Function, solver: Solver, y0: PyTree, args: PyTree = None, **rest: PyTree
) -> optimistix.Solution[PyTree, PyTree]:
    """Run `optimistix.root_find` on quantities.

    **Arguments:** those of `optimistix.root_find`. `fn(y, args)` returns a tree of quantities in
    any units; `y0` sets the units of `y`; `options["lower"]` and `["upper"]` may be quantities.

    **Returns:** an `optimistix.Solution[PyTree, PyTree]`, its `value` in the units of `y0`.

    **Derivative:** implicit, with respect to `args`; `tj.grad` labels it in true units.
    """
    return _solve("root_find", _equations, None, fn, solver, y0, args, rest)


def fixed_point(
    fn: Function, solver: Solver, y0: PyTree, args: PyTree = None, **rest: PyTree
) -> optimistix.Solution[PyTree, PyTree]:
    """Run `optimistix.fixed_point` on quantities: `fn(y, args)` in the units of `y0`, any prefix.

    **Returns:** as `root_find`. **Raises:** `UnitError` naming a leaf of another dimension.
    """
    start, chart = chart_of(y0)
    known = (chart, jax.eval_shape(lambda: start))
    return _solve("fixed_point", _like_the_unknowns, known, fn, solver, y0, args, rest)


def minimise(
    fn: Function, solver: Solver, y0: PyTree, args: PyTree = None, **rest: PyTree
) -> optimistix.Solution[PyTree, PyTree]:
    """Run `optimistix.minimise` on quantities: `fn(y, args)` is a scalar in any unit.

    **Returns:** as `root_find`.
    """
    return _solve("minimise", lambda out, _: chart_of(out)[0], None, fn, solver, y0, args, rest)


def least_squares(
    fn: Function,
    solver: Solver,
    y0: PyTree,
    args: PyTree = None,
    *,
    scale: PyTree = None,
    **rest: PyTree,
) -> optimistix.Solution[PyTree, PyTree]:
    """Run `optimistix.least_squares` on quantities.

    **Arguments:** those of `optimistix.least_squares`. `fn(y, args)` returns a tree of residuals;
    those of one dimension are in the unit of the first. `scale`: a quantity or a tree like the
    residuals that divides them first, for instance their standard deviations.

    **Returns:** as `root_find`.

    **Raises:** `UnitError` if residuals differ in dimension and no `scale` makes them pure.
    """
    numbers = _in_one_unit if scale is None else _in_scales
    return _solve("least_squares", numbers, scale, fn, solver, y0, args, rest)


def _equations(out: PyTree, _: object) -> PyTree:
    """Return as many equations as free numbers: of a `Symmetric` those of a triangle."""
    kept = lambda x: jax.tree.map(without_promise, x, is_leaf=lambda v: hasattr(v, "definite"))
    numbers = kept(chart_of(out)[0])
    return _free(numbers, numbers)


def _like_the_unknowns(out: PyTree, known: tuple[Chart, PyTree]) -> PyTree:
    chart, like = known
    return _free(like, chart.numbers("fixed_point: value", out))


def _in_one_unit(out: PyTree, _: object) -> PyTree:
    paths, tree = jax.tree_util.tree_flatten_with_path(out, is_leaf=is_structured)
    first: Unit | None = next((x.label for _, x in paths if is_quantity(x)), None)
    if first is None:
        return out
    done = []
    for path, x in paths:
        if not is_quantity(x) or x.label.dimension is not first.dimension:
            raise UnitError(
                message(
                    "least_squares: the squares of these residuals cannot be added.",
                    f"first residual: in {first} ({first.dimension})",
                    f"residual{jax.tree_util.keystr(path)}: "
                    + (f"in {x.label} ({x.label.dimension})" if is_quantity(x) else "plain"),
                    hint="pass `scale`, a tree like the residuals: the standard deviation of each.",
                )
            )
        done.append(convert(x.stored, x.label, first))
    return jax.tree.unflatten(tree, done)


def _in_scales(out: PyTree, scale: PyTree) -> PyTree:
    paths, tree = jax.tree_util.tree_flatten_with_path(out, is_leaf=is_structured)
    one_for_all = is_structured(scale) or jax.tree.structure(scale) == jax.tree.structure(0)
    scales = [scale] * len(paths) if one_for_all else tree.flatten_up_to(scale)
    done = [
        number_in(f"least_squares: residual{jax.tree_util.keystr(path)} / scale", x / s, None)
        for (path, x), s in zip(paths, scales, strict=True)
    ]
    return jax.tree.unflatten(tree, done)
