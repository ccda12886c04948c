"""Equations that run jaxprs of their own: calls, loops, branches.

JAX has a primitive for each reason to call a function (`jit`, `remat`, a custom derivative), one
for branches and two for loops. Each stores its jaxprs under its own parameters and passes them
different operands. Only this module has the names of these primitives; a walker uses the `Kind`.

    KINDS["while"]  # Kind.WHILE
    nested_jaxprs(equation)  # its test and its body

Sharp edge: a jaxpr among the parameters of another primitive (the function of a reduction) is not
nested, because the primitive applies it to parts of the operands.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, TypeVar

from tanjax import _compat
from tanjax._jaxpr_types import JaxEquation, Steps

T = TypeVar("T")


class Kind(enum.Enum):
    """The way an equation runs its jaxprs; the value of a kind is the names of its primitives.

    The jaxprs of `OPAQUE` are not functions of the operands. Every other kind up to `DEVICES` runs
    one jaxpr once.
    """

    JIT = ("jit", "pjit")
    CALL = (
        "closed_call", "call", "eval_jaxpr", "composite", "custom_jvp_call", "custom_vjp_call",
        "custom_vmap_call",
    )  # fmt: skip
    CHECKPOINT = ("remat", "remat2", "checkpoint")
    LINEAR = ("tanjax_linear",)
    SOLVE = ("custom_linear_solve",)
    OPAQUE = ("run_state", "custom_lin")
    DEVICES = ("shard_map",)
    SCAN = ("scan",)
    WHILE = ("while",)
    BRANCH = ("cond",)


KINDS = {name: kind for kind in Kind for name in kind.value}  # by the name of a primitive


def names_of(*kinds: Kind) -> tuple[str, ...]:
    """Return the names of the primitives of some kinds."""
    return tuple(name for kind in kinds for name in kind.value)


# The parameters that can store the jaxpr of a call.
_KEYS = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")


def nested_jaxprs(equation: JaxEquation) -> tuple[Steps, ...]:
    """Return the jaxprs that an equation runs: test and body of a loop, branches, callee."""
    params, kind = equation.params, KINDS.get(equation.primitive.name)
    if kind is Kind.LINEAR:
        closed: Any = _compat.linear_jaxpr(equation)
        return (closed,)
    if kind is Kind.WHILE:
        return params["cond_jaxpr"], params["body_jaxpr"]
    if kind is Kind.BRANCH:
        return tuple(params["branches"])
    if kind is Kind.SOLVE:
        return (params["jaxprs"].solve,)
    for key in _KEYS if kind else ():
        if isinstance(inner := params.get(key), Steps):
            return (inner,)
    return ()


def given(equation: JaxEquation, operands: Sequence[T]) -> list[Sequence[T]]:
    """Return the operands that each jaxpr of an equation takes as arguments.

    **Arguments:** `operands`: those of the equation, in any form.
    """
    params, kind = equation.params, KINDS.get(equation.primitive.name)
    if kind is Kind.WHILE:
        tested, fixed, carry, _ = _compat.Loop.of(params).cut(operands)
        return [[*tested, *carry], [*fixed, *carry]]
    if kind is Kind.BRANCH:
        return [operands[1:]] * len(params["branches"])
    if kind is Kind.SOLVE:
        counts = params["const_lengths"]
        start = counts.matvec + counts.vecmat
        return [[*operands[start : start + counts.solve], *operands[sum(counts) :]]]
    return [operands]


def trips(equation: JaxEquation) -> float:
    """Return the number of runs of the jaxprs in one run of the equation.

    The estimate for a `while` loop is 100.
    """
    kind = KINDS.get(equation.primitive.name)
    if kind is Kind.SCAN:
        return float(equation.params["length"])
    return 100.0 if kind is Kind.WHILE else 1.0
