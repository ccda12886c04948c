"""Jaxprs as programs: what they need, and what they hold.

Only what JAX documents of a jaxpr is read here: variables, equations, effects, parameters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax


def convert_closure(
    function: Callable[..., list[Any]], *examples: Any
) -> tuple[Callable[..., list[Any]], list[Any]]:
    """Turn a closure into a function of (residuals, arguments) and the residuals.

    What only dead code needs is dropped, and need not live until the backward pass.
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

    def converted(values: Sequence[Any], *args: Any) -> list[Any]:
        return jax.core.eval_jaxpr(live, list(values), *args)

    return converted, residuals


def needed_equations(jaxpr: Any, stays: Callable[[Any], bool] = lambda eqn: False) -> list[Any]:
    """The equations on which the results or effects of a jaxpr depend, in order.

    And, with what these depend on, those of which `stays` holds.
    """
    return _needed(jaxpr, stays)[1]


def _needed(
    jaxpr: Any, stays: Callable[[Any], bool] = lambda eqn: False
) -> tuple[set[Any], list[Any]]:
    """The variables and equations on which outputs or effects depend."""
    is_var = lambda v: not is_literal(v)
    needed = {v for v in jaxpr.outvars if is_var(v)}
    equations = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(v in needed for v in eqn.outvars) or stays(eqn):
            needed |= {v for v in eqn.invars if is_var(v)}
            equations.append(eqn)
    return needed, equations[::-1]


def depends(jaxpr: Any) -> list[bool]:
    """Per result of a jaxpr, whether it is computed from an operand at all."""
    known = set(jaxpr.invars)
    for eqn in jaxpr.eqns:
        reads = [not is_literal(v) and v in known for v in eqn.invars]
        if any(reads):
            found = [(n, getattr(j, "jaxpr", j)) for n, j in inner_jaxprs(eqn)]
            called = [j for n, j in found if n in ("jaxpr", "call_jaxpr")]
            whole = all(reads) and len(called) == 1 and len(called[0].invars) == len(reads)
            moved = depends(called[0]) if whole else [True] * len(eqn.outvars)
            known |= {v for v, moves in zip(eqn.outvars, moved, strict=True) if moves}
    return [not is_literal(v) and v in known for v in jaxpr.outvars]


def is_literal(v: Any) -> bool:
    """Whether an operand of an equation is a number written into the program."""
    return hasattr(v, "val")


def inner_jaxprs(eqn: Any) -> Iterator[tuple[str, Any]]:
    """The jaxprs among the parameters of an equation, with the names of the parameters."""
    for name, value in eqn.params.items():
        if hasattr(value, "eqns"):
            yield name, value
        elif isinstance(value, tuple | list) and value and hasattr(value[0], "eqns"):
            for i, one in enumerate(value):
                yield f"{name}[{i}]", one


def has_callback(jaxpr: Any) -> bool:
    """Whether a program calls back to Python for a result, which AD cannot look into."""
    return any(
        eqn.primitive.name == "pure_callback"
        or any(has_callback(inner) for _, inner in inner_jaxprs(eqn))
        for eqn in jaxpr.eqns
    )


@dataclasses.dataclass(frozen=True)
class Closed:
    """A jaxpr without constants as a closed one, to be read and evaluated."""

    jaxpr: Any
    consts: tuple[Any, ...] = ()

    @property
    def out_avals(self) -> list[Any]:
        return [v.aval for v in self.jaxpr.outvars]
