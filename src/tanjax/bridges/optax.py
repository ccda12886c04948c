"""Gradient descent whose learning rate has a unit.

`x - rate · gradient` is a formula of physics: a gradient is in `[loss]/[x]`, so the rate of
gradient descent is in `[x]²/[loss]`, and one rate cannot serve metres and seconds. Optax works on
plain trees. The gradients of `jax.grad`, labelled like the parameters, go unchanged into any
optimiser, which ignores their true units. The functions here take natural gradients (`tj.grad`), in
true units, and check them.

    optimiser = tanjax.bridges.optax.sgd({"x": 0.1 * m2 / J, "t": 0.1 * s2 / J})
    state = optimiser.init(params)
    gradients = tj.grad(loss)(params)
    updates, state = optimiser.update(gradients, state, params)
    params = tanjax.bridges.optax.apply_updates(params, updates)

Sharp edges. The direction of Adam, RMSProp and other normalised methods is a pure number. So their
rate is in the unit of the parameter, and a plain rate is in the stored unit of each parameter (0.1
moves a parameter in km by 100 m). Their `eps` is in `[loss]/[x]`, also of stored units. Clipping by
a global norm adds numbers of all units.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

import tanjax.arrays as arrays
import tanjax.quantities as quantities
from tanjax._errors import CotangentError, UnitError, describe, message
from tanjax._marks import is_number
from tanjax.arrays import is_inexact, is_structured
from tanjax.quantities import convert, is_quantity, split_unit, unitful
from tanjax.units import Unit, one, unit as parse_unit

from ._charts import number_in
from ._missing import missing

try:
    import optax
except ImportError as error:
    raise missing("optax") from error


def structural(
    params: PyTree, gradients: PyTree, loss_unit: Unit | str | float | None = None
) -> PyTree:
    """Return natural gradients as the structural ones that optax needs.

    **Arguments:** `params`; `gradients`, a tree of natural gradients as `tj.grad` gives them;
    `loss_unit`, the unit of the loss (or the loss, as a quantity), by default that of the first
    gradient.

    **Returns:** a tree like `params`, every leaf with the type and the unit label of its parameter,
    with the numbers that `jax.grad` would give for the loss in `loss_unit`.

    **Raises:** `UnitError` naming the leaf whose gradient is not in `[loss]/[parameter]`;
    `ScaleError` if its numbers overflow or underflow their dtype.
    """
    loss = None if loss_unit is None else _as_unit(loss_unit)
    done: list[PyTree] = []
    for path, x, g in _pairs("structural", params, gradients):
        if g is None:
            done.append(None)
            continue
        value, own = split_unit(x)
        number, unit = split_unit(g)
        got = unit * own.delta
        loss = loss or got.plain
        if got.dimension is not loss.dimension:
            raise UnitError(
                message(
                    f"structural: the gradient of {path} does not fit the loss.",
                    f"expected: {loss / own.delta} (the loss in {loss}, the parameter in {own})",
                    f"got: {unit}",
                    hint="all gradients of one loss are in [loss]/[parameter].",
                )
            )
        plain = arrays.structural(value, quantities.number_in(unitful(number, got), loss))
        done.append(unitful(plain, own) if is_quantity(x) else plain)
    return _like(params, done)


def check_learning_rate(loss: PyTree, params: PyTree, learning_rate: PyTree) -> None:
    """Check that `learning_rate · d loss/d x` has the unit of `x`, for every parameter.

    **Arguments:** `loss`, its value or unit; `params`; `learning_rate`, a quantity or a tree of
    them, one for every parameter or for whole subtrees.

    **Raises:** `UnitError` naming the leaf, the required unit of its rate, and the given unit.
    """
    unit = _as_unit(loss)
    movable = _movable(params)
    for path, x, rate in _pairs("check_learning_rate", movable, _spread(learning_rate, movable)):
        own = split_unit(x)[1].delta
        _check_rate(path, rate, own / (unit / own), own, unit / own)


def sgd(
    learning_rate: PyTree, momentum: float | None = None, nesterov: bool = False
) -> optax.GradientTransformation:
    """Make `optax.sgd` for natural gradients, with a learning rate in `[x]²/[loss]`.

    **Arguments:** `learning_rate`, a quantity or a tree of them (one for every parameter or for
    whole subtrees), or a function of the step count that returns one; `momentum` and `nesterov`
    as in `optax.sgd`.

    **Returns:** an optimiser: `update(gradients, state, params)` needs `params`, and gives updates
    with the types and units of the parameters.

    **Raises:** `UnitError` (from `update`) naming a leaf whose rate has the wrong unit.
    """
    inner = optax.identity() if momentum is None else optax.trace(momentum, nesterov)
    return _true_steps(inner, learning_rate, pure=False)


def adam(learning_rate: PyTree, **options: PyTree) -> optax.GradientTransformation:
    """Make `optax.adam` for natural gradients, with a learning rate in the parameters' unit.

    **Arguments:** `learning_rate`, as in `sgd`, but each in the unit of its parameter, because the
    direction of Adam is a pure number; `options` of `optax.scale_by_adam`.

    **Returns:** an optimiser, as `sgd`. **Raises:** `UnitError`, as `sgd`.
    """
    return _true_steps(optax.scale_by_adam(**options), learning_rate, pure=True)


def from_natural(
    optimiser: optax.GradientTransformation, loss_unit: Unit | str | float | None = None
) -> optax.GradientTransformationExtraArgs:
    """Make an optimiser of optax take natural gradients: `structural`, then the optimiser.

    Its learning rate stays a plain number; its unit depends on the optimiser (see the text of the
    module).
    """
    inner = optax.with_extra_args_support(optimiser)

    def update(gradients: PyTree, state: PyTree, params: PyTree = None, **extra: PyTree) -> PyTree:
        plain = structural(_needed(params), gradients, loss_unit)
        return inner.update(plain, state, _movable(params), **extra)

    return optax.GradientTransformationExtraArgs(lambda p: inner.init(_movable(p)), update)


def apply_updates(params: PyTree, updates: PyTree) -> PyTree:
    """Apply updates in true units: each update is converted to the unit of its parameter.

    **Raises:** `UnitError` naming the leaf whose update has another dimension; `ScaleError` if it
    overflows or underflows in the unit of its parameter.
    """
    done = []
    for path, x, u in _pairs("apply_updates", params, updates):
        value, unit = split_unit(x)
        if u is None:
            done.append(x)
            continue
        step = number_in(f"apply_updates: {path}", u, unit.delta if is_quantity(x) else None)
        moved = optax.apply_updates(value, step)
        done.append(unitful(moved, unit) if is_quantity(x) else moved)
    return _like(params, done)


class StepState(NamedTuple):
    """The state of an optimiser in true units: that of the inner one, and the step count."""

    inner: PyTree
    count: Any  # an array; a tuple has a method of that name


def _true_steps(
    inner: optax.GradientTransformation, learning_rate: PyTree, pure: bool
) -> optax.GradientTransformation:
    """Chain structural gradients, an inner direction, and a step in the parameters' units."""

    def init(params: PyTree) -> StepState:
        return StepState(inner.init(_movable(params)), jnp.zeros([], jnp.int32))

    def update(gradients: PyTree, state: StepState, params: PyTree = None) -> PyTree:
        plain = structural(_needed(params), gradients)
        loss = _loss_unit(params, gradients)
        directions, new = inner.update(plain, state.inner, _movable(params))
        rate = learning_rate(state.count) if callable(learning_rate) else learning_rate
        steps = _steps(params, directions, _spread(rate, params), None if pure else loss)
        return steps, StepState(new, optax.safe_increment(state.count))

    return optax.GradientTransformation(init, update)


def _steps(params: PyTree, directions: PyTree, rates: PyTree, loss: Unit | None) -> PyTree:
    """Return `-rate · direction` in the unit of each parameter; `loss=None`: pure direction."""
    done: list[PyTree] = []
    given = jax.tree.structure(params, is_leaf=is_structured).flatten_up_to(rates)
    for (path, x, d), rate in zip(_pairs("update", params, directions), given, strict=True):
        if d is None:
            done.append(None)
            continue
        own = split_unit(x)[1].delta
        natural = one if loss is None else loss / own
        _check_rate(path, rate, own / natural, own, natural)
        number, unit = split_unit(rate)
        step = -convert(number, unit * natural, own)
        scaled = jax.tree.map(lambda v, step=step: jnp.asarray(step, v.dtype) * v, split_unit(d)[0])
        done.append(unitful(scaled, own) if is_quantity(x) else scaled)
    return _like(params, done)


def _check_rate(path: str, rate: PyTree, expected: Unit, own: Unit, natural: Unit) -> None:
    unit = split_unit(rate)[1]
    if unit.dimension is not expected.dimension:
        raise UnitError(
            message(
                f"learning rate of {path}: rate times gradient is no step of the parameter.",
                f"expected: {expected} ({expected.dimension})",
                f"got: {unit} ({unit.dimension})",
                f"parameter: {own}, its direction: {natural}",
                hint="give a tree of rates, one per parameter, where parameters differ in unit.",
            )
        )


def _loss_unit(params: PyTree, gradients: PyTree) -> Unit:
    for _, x, g in _pairs("update", params, gradients):
        if g is not None:
            return split_unit(g)[1] * split_unit(x)[1].delta
    return one


def _movable(params: PyTree) -> PyTree:
    """Return the parameters that have gradients; `None` for integers."""
    keep = lambda x: x if is_inexact(x) else None
    return jax.tree.map(keep, params, is_leaf=is_structured)


def _as_unit(loss: PyTree) -> Unit:
    """Return the unit of a loss: a unit, a text, or the loss itself."""
    if type(loss) is Unit:
        return loss
    if is_quantity(loss):
        return loss.label
    if isinstance(loss, str):
        return parse_unit(loss)
    if is_number(loss) and not getattr(loss, "shape", ()):
        return one
    raise UnitError(
        message(
            "the unit of a loss must be a unit, a text or the loss itself.",
            f"got: {describe(loss)}",
            hint='`"J"`, `tj.unit("J")`, a quantity, or a number for a loss without a unit.',
        )
    )


def _needed(params: PyTree) -> PyTree:
    if params is None:
        raise TypeError(
            "update: pass the parameters too, `optimiser.update(gradients, state, params)`."
        )
    return params


def _pairs(where: str, params: PyTree, tree: PyTree) -> PyTree:
    """Yield path, parameter and the entry of a tree there; integers have no gradient."""
    leaves, treedef = jax.tree_util.tree_flatten_with_path(params, is_leaf=is_structured)
    try:
        given = treedef.flatten_up_to(tree)
    except ValueError as error:
        raise CotangentError(f"{where}: not a tree like that of the parameters: {error}") from None
    name = jax.tree_util.keystr
    return [(f"params{name(p)}", x, g) for (p, x), g in zip(leaves, given, strict=True)]


def _like(params: PyTree, leaves: list[PyTree]) -> PyTree:
    return jax.tree.unflatten(jax.tree.structure(params, is_leaf=is_structured), leaves)


def _spread(rate: PyTree, params: PyTree) -> PyTree:
    """Return a tree of learning rates per parameter, from one rate or rates of subtrees."""
    whole = lambda r, sub: jax.tree.map(lambda _: r, sub, is_leaf=is_structured)
    return jax.tree.map(whole, rate, params, is_leaf=is_structured)
