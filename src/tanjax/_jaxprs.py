"""Analyses of jaxprs: needed equations, dependence, inner jaxprs.

This module reads only the documented parts of a jaxpr: variables, equations, effects, parameters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard

import jax

from ._jaxpr_types import Aval, JaxEquation, JaxLiteral, JaxVariable, OpenJaxpr, Steps
from ._typing import AnyArray

# JAX annotates one class of jaxprs; this also takes others with the same attributes.
evaluate: Callable[..., list[AnyArray]] = jax.core.eval_jaxpr

Values: TypeAlias = Sequence[AnyArray]  # operands or results of an equation
Operator: TypeAlias = Callable[..., Values]  # of values, linear in some
# Arguments and results of JAX's transposes: arrays, `ad.UndefinedPrimal`, `None`.
Tangents: TypeAlias = Sequence[AnyArray | None]
Dims: TypeAlias = Sequence[int | None]  # which axes are mapped
# JAX's own avals, with `to_tangent_aval` and `update`.
Avals: TypeAlias = Sequence[jax.core.ShapedArray]


def convert_closure(
    function: Callable[..., list[AnyArray]], *examples: AnyArray
) -> tuple[Callable[..., list[AnyArray]], list[AnyArray]]:
    """Turn a closure into a function of (residuals, arguments) and the residuals.

    Residuals that only dead code needs are dropped, so they need not live until the backward pass.
    """
    closed = jax.make_jaxpr(function)(*examples)
    jaxpr, consts = closed.jaxpr, list(closed.consts)
    needed, equations = _needed(jaxpr)
    keep = [var in needed for var in jaxpr.constvars]
    residuals = [c for c, k in zip(consts, keep, strict=True) if k]
    live = jaxpr.replace(
        constvars=[v for v, k in zip(jaxpr.constvars, keep, strict=True) if k],
        eqns=equations,
    )

    def converted(values: Sequence[AnyArray], *args: AnyArray) -> list[AnyArray]:
        return jax.core.eval_jaxpr(live, list(values), *args)

    return converted, residuals


def needed_equations(
    jaxpr: OpenJaxpr, stays: Callable[[JaxEquation], bool] = lambda eqn: False
) -> list[JaxEquation]:
    """Return the equations on which the results or effects of a jaxpr depend, in order.

    Include the equations for which `stays` is true, and their dependences.
    """
    return _needed(jaxpr, stays)[1]


def _needed(
    jaxpr: OpenJaxpr, stays: Callable[[JaxEquation], bool] = lambda eqn: False
) -> tuple[set[JaxVariable], list[JaxEquation]]:
    """Return the variables and equations on which outputs or effects depend."""
    is_var = lambda v: not is_literal(v)
    needed = {v for v in jaxpr.outvars if is_var(v)}
    equations = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(v in needed for v in eqn.outvars) or stays(eqn):
            needed |= {v for v in eqn.invars if is_var(v)}
            equations.append(eqn)
    return needed, equations[::-1]


def is_literal(v: object) -> TypeGuard[JaxLiteral]:
    """True if an operand of an equation is a literal."""
    return hasattr(v, "val")


def inner_jaxprs(eqn: JaxEquation) -> Iterator[tuple[str, Any]]:
    """Yield the jaxprs among the parameters of an equation, with the names of the parameters."""
    for name, value in eqn.params.items():
        if hasattr(value, "eqns"):
            yield name, value
        elif isinstance(value, tuple | list) and value and hasattr(value[0], "eqns"):
            yield from ((f"{name}[{i}]", x) for i, x in enumerate(value) if x is not None)


def all_equations(jaxpr: Any) -> Iterator[JaxEquation]:
    """Yield the equations of a jaxpr, open or closed, and of all jaxprs among their parameters."""
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn
        for _, inner in inner_jaxprs(eqn):
            yield from all_equations(inner)


def has_callback(jaxpr: Steps) -> bool:
    """True if a program calls back to Python for a result; AD cannot differentiate a callback."""
    return any(eqn.primitive.name == "pure_callback" for eqn in all_equations(jaxpr))


@dataclasses.dataclass(frozen=True)
class Closed:
    """A jaxpr without constants, wrapped as a closed one to read and evaluate."""

    jaxpr: OpenJaxpr
    consts: tuple[AnyArray, ...] = ()

    @property
    def out_avals(self) -> list[Aval]:
        return [v.aval for v in self.jaxpr.outvars]
