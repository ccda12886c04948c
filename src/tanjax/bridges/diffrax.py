"""Differential equations with units on time *and* state.

A solver adds `dt · dy/dt` to `y` for a whole tree of unlike things, so its arithmetic is on plain
numbers. `diffeqsolve` here has the arguments of `diffrax.diffeqsolve` and strips units at that
boundary. Time is a number in the unit of `t1` (or `t0`), every leaf of the state in its own unit.
The vector field receives quantities and must return `[y]/[t]`, in any prefixes; the solution is
labelled.

    term = diffrax.ODETerm(lambda t, y, args: {"x": y["v"], "v": -(args["k"] / args["m"]) * y["x"]})
    y0 = {"x": 1.0 * m, "v": 0.0 * m / s}
    solution = diffeqsolve(term, diffrax.Tsit5(), 0.0, 3.0 * s, 0.1 * s, y0, {"k": k, "m": mass})

Tolerances. `rtol` is a pure number. A plain `atol` is in the units of `y0`. For a state of mixed
units give a quantity, or a tree of quantities like the state. If the tolerances of leaves differ,
the solver works on multiples of them: its norms of several leaves are then sums of pure numbers.

Sharp edges. A Brownian motion is in the square root of the unit of time. Its interval is given in
plain numbers of that unit, because its own constructor takes nothing else.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._errors import ShapeError, UnitError, message
from tanjax._typing import Function
from tanjax.arrays import is_structured
from tanjax.quantities import Quantity, is_quantity, label_of, stored_of
from tanjax.units import Unit

from ._charts import Chart, chart_of, labelled, number_in, units_of, with_arrays
from ._missing import missing

try:
    import diffrax
except ImportError as error:
    raise missing("diffrax") from error


Steps: TypeAlias = tuple[PyTree, ...] | None


class _State(eqx.Module):
    """The solver's form of the state: the units of its leaves, and the steps that it counts."""

    chart: Chart
    steps: Steps  # per leaf, or None for 1

    def numbers(self, where: str, y: PyTree, per: Unit | None = None, rate: bool = False) -> PyTree:
        """Return the solver's numbers of a state, or of its rate of change."""
        chart = self.chart.per(per) if rate else self.chart
        return self._scaled(chart.numbers(where, y), jnp.divide)

    def quantities(self, numbers: PyTree, per: Unit | None = None, rate: bool = False) -> PyTree:
        """Return a state, or its rate of change, from the numbers of the solver."""
        chart = self.chart.per(per) if rate else self.chart
        return chart.quantities(self._scaled(numbers, jnp.multiply))

    def parts(self) -> list[_State]:
        """Return the states of the entries of a tuple."""
        steps = iter(self.steps or ())
        take = lambda n: None if self.steps is None else tuple(next(steps) for _ in range(n))
        return [_State(chart, take(len(chart.units))) for chart in self.chart.parts()]

    def _scaled(self, numbers: PyTree, by: Function) -> PyTree:
        if self.steps is None:
            return numbers
        leaves = self.chart.tree.flatten_up_to(numbers)
        scale = lambda x, step: x if x is None else jax.tree.map(lambda v: by(v, step), x)
        return jax.tree.unflatten(self.chart.tree, list(map(scale, leaves, self.steps)))


class _Field(eqx.Module):
    """A vector field on plain numbers, around one on quantities."""

    function: Function
    time: Unit | None = eqx.field(static=True)
    state: _State  # the argument of the field
    moved: _State  # the state that it moves
    noise: bool = eqx.field(static=True, default=False)

    def __call__(self, t: PyTree, y: PyTree, args: PyTree) -> PyTree:
        rate = self.function(labelled(t, self.time), self.state.quantities(y), args)
        per = self.time**0.5 if self.noise and self.time is not None else self.time
        return self.moved.numbers("vector field: dy", rate, per, rate=True)


class _Saved(eqx.Module):
    """A function of what to save: numbers of the state, or of a user's function of quantities."""

    function: Function
    time: Unit | None = eqx.field(static=True)
    state: _State

    def __call__(self, t: PyTree, y: PyTree, args: PyTree) -> PyTree:
        return chart_of(self.function(labelled(t, self.time), self.state.quantities(y), args))[0]


class _Condition(eqx.Module):
    """A condition of an event on plain numbers, around one on quantities."""

    function: Function
    time: Unit | None = eqx.field(static=True)
    state: _State

    def __call__(self, t: PyTree, y: PyTree, args: PyTree, **kwargs: PyTree) -> PyTree:
        out = self.function(labelled(t, self.time), self.state.quantities(y), args, **kwargs)
        return stored_of(out)  # only its sign matters


class DenseSolution(eqx.Module):
    """The interpolation of a solution: takes times and gives states, as quantities."""

    interpolation: diffrax.DenseInterpolation
    time: Unit | None = eqx.field(static=True)
    state: _State

    def evaluate(self, t0: PyTree, t1: PyTree = None, left: bool = True) -> PyTree:
        """Return the state at `t0`, or its increment from `t0` to `t1`."""
        at = lambda t: self.interpolation.evaluate(self._numbers(t), None, left)
        if t1 is None:
            return self.state.quantities(at(t0))
        # Leaf by leaf: the increment that the interpolation offers subtracts whole trees.
        return self.state.quantities(jax.tree.map(jnp.subtract, at(t1), at(t0)), rate=True)

    def derivative(self, t: PyTree, left: bool = True) -> PyTree:
        """Return the rate of change of the interpolated state, in `[y]/[t]`."""
        rate = self.interpolation.derivative(self._numbers(t), left)
        return self.state.quantities(rate, self.time, rate=True)

    def _numbers(self, t: PyTree) -> PyTree:
        return number_in("evaluate: t", t, self.time)


@dataclasses.dataclass(frozen=True)
class SubSaveAt:
    """`diffrax.SubSaveAt`, with `ts` a quantity; `fn` receives and may return quantities."""

    t0: bool = False
    t1: bool = False
    ts: PyTree = None
    steps: bool | int = 0
    fn: Function | None = None


@dataclasses.dataclass(frozen=True)
class SaveAt:
    """`diffrax.SaveAt`, with `ts` a quantity; `fn` receives and may return quantities.

    The arguments are those of `diffrax.SaveAt`; `subs` is a tree of the `SubSaveAt` of this module.
    A `diffrax.SaveAt` without `ts` also works.
    """

    t0: bool = False
    t1: bool = False
    ts: PyTree = None
    steps: bool | int = False
    fn: Function | None = None
    subs: PyTree = None
    dense: bool = False
    solver_state: bool = False
    controller_state: bool = False
    made_jump: bool = False


Controller: TypeAlias = diffrax.AbstractStepSizeController[PyTree, PyTree]
Saves: TypeAlias = SaveAt | diffrax.SaveAt


def diffeqsolve(
    terms: PyTree,
    solver: diffrax.AbstractSolver[PyTree],
    t0: PyTree,
    t1: PyTree,
    dt0: PyTree,
    y0: PyTree,
    args: PyTree = None,
    *,
    saveat: Saves | Quantity = SaveAt(t1=True),
    stepsize_controller: Controller | None = None,
    event: diffrax.Event | None = None,
    **options: PyTree,
) -> diffrax.Solution:
    """Run `diffrax.diffeqsolve` on quantities.

    **Arguments:** those of `diffrax.diffeqsolve`. `terms`: `ODETerm`, `ControlTerm` of a Brownian
    motion, `MultiTerm` of these, and the pairs of symplectic solvers; their vector fields receive
    and return quantities. `t0`, `t1`, `dt0`: times; zero may be plain. `y0`: a tree of quantities
    in any mixture of units; `args` is passed on. `saveat`: the `SaveAt` of this module, or a
    quantity, the times to save at. `stepsize_controller`: `diffrax.PIDController` and others, with
    `atol` a number, a quantity or a tree of quantities like `y0`, and `dtmin` and `dtmax` as
    quantities. `event`: `diffrax.Event`, its conditions on quantities.

    **Returns:** a `diffrax.Solution` whose `t0`, `t1`, `ts`, `ys` and `evaluate` use quantities.

    **Raises:** `UnitError` naming a leaf of the vector field that is not in `[y]/[t]`, or an
    argument of the wrong dimension; `ShapeError` for a tree of another structure.

    **Derivative:** that of the solver (by `adjoint`), with respect to all arguments: `tj.grad` of
    a function of the solution has true units.
    """
    time = t1.label if is_quantity(t1) else label_of(t0)
    time = time and time.delta
    numbers, chart = chart_of(y0)
    controller, steps = _controller(stepsize_controller, chart, time)
    state = _State(chart, steps)
    saves = _saveat(saveat)
    solution = diffrax.diffeqsolve(
        _terms(terms, time, state, state),
        solver,
        *(_time(n, t, time) for n, t in (("t0", t0), ("t1", t1), ("dt0", dt0))),
        state._scaled(numbers, jnp.divide),
        with_arrays(args),
        saveat=_plain_saveat(saves, time, state),
        stepsize_controller=controller,
        event=_event(event, time, state),
        **options,
    )
    return _labelled(solution, saves, time, state, y0, args)


def _time(name: str, t: PyTree, time: Unit | None) -> PyTree:
    # An array: for Python numbers diffrax would compile again with every value.
    return None if t is None else jnp.asarray(number_in(f"diffeqsolve: {name}", t, time))


def _terms(terms: PyTree, time: Unit | None, state: _State, moved: _State) -> PyTree:
    """Return the terms, with vector fields on plain numbers."""
    if isinstance(terms, tuple) and len(terms) == 2:  # of a symplectic solver: each moves its half
        first, second = state.parts()
        return _terms(terms[0], time, second, first), _terms(terms[1], time, first, second)
    if isinstance(terms, diffrax.MultiTerm):
        return diffrax.MultiTerm(*(_terms(term, time, state, moved) for term in terms.terms))
    if isinstance(terms, diffrax.ODETerm):
        return diffrax.ODETerm(_Field(terms.vector_field, time, state, moved))
    noise = isinstance(terms, diffrax.ControlTerm)
    if noise and isinstance(terms.control, diffrax.AbstractBrownianPath):
        field = _Field(terms.vector_field, time, state, moved, noise=True)
        return diffrax.ControlTerm(field, terms.control)
    raise UnitError(
        message(
            f"diffeqsolve: no units for a {type(terms).__name__}.",
            "known are ODETerm, ControlTerm of a Brownian motion, MultiTerm of these, and pairs.",
            hint="strip the units yourself and call `diffrax.diffeqsolve`.",
        )
    )


def _controller(
    controller: Controller | None, chart: Chart, time: Unit | None
) -> tuple[Controller, Steps]:
    """Return a controller of plain numbers, and absolute tolerances if leaves differ in them."""
    if controller is None:
        return diffrax.ConstantStepSize(), None
    steps: Steps = None
    changed: dict[str, PyTree] = {}
    for name in (field.name for field in dataclasses.fields(controller)):
        value = getattr(controller, name)
        if name == "atol":
            changed[name], steps = _atol(value, chart)
        elif name == "controller":
            changed[name], steps = _controller(value, chart, time)
        elif is_quantity(value):
            changed[name] = _time(name, value, time)
    where = lambda c: [getattr(c, name) for name in changed]
    return eqx.tree_at(where, controller, list(changed.values())) if changed else controller, steps


def _atol(value: PyTree, chart: Chart) -> tuple[PyTree, Steps]:
    """Return one absolute tolerance for all leaves, or 1 and the steps that it stands for."""
    leaves, tree = jax.tree.flatten(value, is_leaf=is_structured)
    units = chart.per(None).units
    if len(leaves) > 1 or tree == chart.tree:
        if tree != chart.tree:
            raise ShapeError(f"atol: expected a tree like the state, {chart.tree}, got {tree}.")
        steps = [
            number_in(f"atol: leaf {i}", x, unit) if is_quantity(x) else x
            for i, (x, unit) in enumerate(zip(leaves, units, strict=True))
        ]
        return (steps[0], None) if len(steps) == 1 else (1.0, tuple(steps))
    if is_quantity(value) and len(set(units)) > 1:
        raise UnitError(
            message(
                f"atol: one tolerance in {value.label} for leaves in several units.",
                hint="give a tree of quantities like the state.",
            )
        )
    return (number_in("atol", value, units[0]) if is_quantity(value) else value), None


def _event(event: diffrax.Event | None, time: Unit | None, state: _State) -> diffrax.Event | None:
    if event is None:
        return None

    def wrap(function: Function) -> Function:
        # Conditions of diffrax itself read the terms and the numbers of the solver.
        own = getattr(function, "__module__", "").startswith("diffrax.")
        return function if own else _Condition(function, time, state)

    conditions = jax.tree.map(wrap, event.cond_fn, is_leaf=callable)
    return diffrax.Event(conditions, event.root_finder, event.direction)


def _saveat(saveat: Any) -> SaveAt:  # of `diffeqsolve`
    """Return the `SaveAt` with all its entries under `subs`."""
    if is_quantity(saveat):
        saveat = SaveAt(ts=saveat)
    if type(saveat) is diffrax.SaveAt:
        names = (f.name for f in dataclasses.fields(diffrax.SaveAt))
        return SaveAt(**{name: getattr(saveat, name) for name in names})
    if saveat.subs is None and (saveat.t0 or saveat.t1 or saveat.steps or saveat.ts is not None):
        sub = SubSaveAt(saveat.t0, saveat.t1, saveat.ts, saveat.steps, saveat.fn)
        return SaveAt(
            subs=sub,
            dense=saveat.dense,
            solver_state=saveat.solver_state,
            controller_state=saveat.controller_state,
            made_jump=saveat.made_jump,
        )
    return saveat


def _is_sub(x: PyTree) -> bool:
    return isinstance(x, SubSaveAt | diffrax.SubSaveAt)


def _function_of(sub: PyTree) -> Function | None:
    """Return the user's function of a `SubSaveAt`, or `None` for the state itself."""
    default = isinstance(sub, diffrax.SubSaveAt) and sub.fn is _DEFAULT_FN
    return None if default else sub.fn


_DEFAULT_FN = diffrax.SubSaveAt(t1=True).fn


def _plain_saveat(saves: SaveAt, time: Unit | None, state: _State) -> diffrax.SaveAt:
    def plain(sub: PyTree) -> diffrax.SubSaveAt:
        function = _function_of(sub)
        return diffrax.SubSaveAt(
            t0=sub.t0,
            t1=sub.t1,
            ts=None if sub.ts is None else _times(sub.ts, time),
            steps=sub.steps,
            fn=_DEFAULT_FN if function is None else _Saved(function, time, state),
        )

    return diffrax.SaveAt(
        subs=jax.tree.map(plain, saves.subs, is_leaf=_is_sub),
        dense=saves.dense,
        solver_state=saves.solver_state,
        controller_state=saves.controller_state,
        made_jump=saves.made_jump,
    )


def _times(ts: PyTree, time: Unit | None) -> PyTree:
    if isinstance(ts, list | tuple):
        return jnp.stack([jnp.asarray(number_in("saveat: ts", t, time), float) for t in ts])
    return number_in("saveat: ts", ts, time)


def _labelled(
    solution: diffrax.Solution,
    saves: SaveAt,
    time: Unit | None,
    state: _State,
    y0: PyTree,
    args: PyTree,
) -> diffrax.Solution:
    """Return the solution with units."""

    def saved(sub: PyTree, ys: PyTree) -> PyTree:
        function = _function_of(sub)
        if function is None:
            return state.quantities(ys)
        out = eqx.filter_eval_shape(function, labelled(solution.t0, time), y0, args)
        return units_of(out).quantities(ys)

    interpolation = solution.interpolation
    fields = {f.name: getattr(solution, f.name) for f in dataclasses.fields(solution)}
    fields |= {
        "t0": labelled(solution.t0, time),
        "t1": labelled(solution.t1, time),
        "ts": jax.tree.map(lambda t: labelled(t, time), solution.ts),
        "ys": None
        if solution.ys is None
        else jax.tree.map(saved, saves.subs, solution.ys, is_leaf=_is_sub),
        "interpolation": interpolation and DenseSolution(interpolation, time, state),
    }
    return diffrax.Solution(**fields)
