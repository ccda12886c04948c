"""The identity of values across a program and the programs in it.

The key of a typed value is its structure and its variables in the jaxpr. A loop, a branch or a call
gives its own variables to values that it takes from outside and keeps. `scopes` returns the pairs,
so that a pass can follow a value into the bodies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import jax
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax import _jaxprs
from tanjax._jaxpr_types import JaxLiteral, JaxVariable
from tanjax._marks import Static
from tanjax._typing import AnyArray
from tanjax.jaxprs import LOOPS, Kind, Loop, kind_of, names_of, nested_jaxprs

from .._equations import Body, Equation, Literal, Operand, Variable

Leaf: TypeAlias = "JaxVariable | Static | _Number"
Key = tuple[PyTreeDef, tuple[Leaf, ...]]  # the structure, and the leaves

# These run their program once per call; any other equation with a loop inside may repeat it.
_ONCE = (
    *names_of(Kind.JIT, Kind.CHECKPOINT),
    *("grad", "value_and_grad", "vjp", "jvp", "linearize", "vmap", "adjoint", "ctrl"),
)
_BRANCHES = (*names_of(Kind.BRANCH), "switch")


def key_of(x: Operand | None) -> Key | None:
    """Return the key of a value; `None` for literals."""
    if not isinstance(x, Variable):
        return None
    leaves, tree = jax.tree.flatten(x.skeleton)
    return tree, tuple(_Number(x) if _jaxprs.is_literal(x) else x for x in leaves)


class _Number:
    """A literal of a jaxpr, by its own identity."""

    def __init__(self, literal: JaxLiteral) -> None:
        self.literal = literal

    def __hash__(self) -> int:
        return id(self.literal)

    def __eq__(self, other: object) -> bool:
        return type(other) is _Number and other.literal is self.literal


@dataclasses.dataclass(frozen=True)
class Scope:
    """A program in an equation, with the pairs of its variables and those outside."""

    program: Body
    outer: Mapping[JaxVariable, JaxVariable]

    def key_outside(self, key: Key) -> Key | None:
        """Return the key of a value outside of the program; `None` for a value made inside."""
        tree, leaves = key
        fixed = [x if isinstance(x, Static | _Number) else self.outer.get(x) for x in leaves]
        known = tuple(x for x in fixed if x is not None)
        return (tree, known) if len(known) == len(fixed) else None


def scopes(equation: Equation) -> Iterator[Scope]:
    """Yield the programs of an equation, with the values that they take from outside and keep."""
    for slot in equation.slots.values():
        for program, group in zip(slot.programs, slot.consts, strict=True):
            pairs: dict[JaxVariable, JaxVariable] = {}
            for inner, outer in zip(program.consts, group, strict=True):
                if isinstance(outer, Variable):
                    pairs.update(_pairs(inner.skeleton, outer.skeleton))
            yield Scope(program, pairs)
    if equation.kind == "primitive":
        for name, program in equation.programs.items():
            inside = program.closed.jaxpr.invars
            outside = _kept(equation, name)
            kept = zip(inside, outside, strict=False)
            yield Scope(program, {v: x.skeleton for v, x in kept if isinstance(x, Variable)})


def _pairs(inner: PyTree, outer: PyTree) -> Iterator[tuple[PyTree, PyTree]]:
    a, b = jax.tree.leaves(inner), jax.tree.leaves(outer)
    return zip(a, b, strict=True) if len(a) == len(b) else iter(())


def _kept(equation: Equation, name: str) -> Sequence[Operand]:
    """Return the first operands of an inner program of JAX that are the same in every run."""
    kind, inputs = kind_of(equation.eqn), equation.inputs
    if kind in LOOPS:
        loop = Loop.of(equation.eqn, inputs)
        return loop.tested if name.startswith("cond") else loop.fixed
    if kind is Kind.BRANCH:
        return inputs[1:]
    return inputs if kind in (Kind.JIT, Kind.CHECKPOINT) else ()


def runs_often(equation: Equation) -> bool:
    """True if an equation may run its programs more than once."""
    if equation.kind == "primitive":
        return kind_of(equation.eqn) in LOOPS
    if equation.name in _ONCE or equation.name in _BRANCHES:
        return False
    return any(kind_of(eqn) in LOOPS for eqn in nested_jaxprs(equation.eqn)[0].eqns)


def is_branch(equation: Equation) -> bool:
    """True if an equation runs only one of its programs."""
    return equation.name in _BRANCHES


def values_outside(key: Key, value_of: Callable[[JaxVariable], AnyArray]) -> PyTree:
    """Return the value of a key, from the values of its leaves."""
    tree, leaves = key
    fill = lambda x: x.value if isinstance(x, Static) else value_of(x)
    return jax.tree.unflatten(
        tree, [x.literal.val if type(x) is _Number else fill(x) for x in leaves]
    )


def values_by_variable(
    equation: Equation, env: Mapping[Variable, PyTree]
) -> dict[JaxVariable, AnyArray]:
    """Return the values of the jaxpr's variables that an equation and its programs read."""
    groups = [group for slot in equation.slots.values() for group in slot.consts]
    found: dict[JaxVariable, AnyArray] = {}
    for x in (*equation.inputs, *(v for group in groups for v in group)):
        if isinstance(x, Literal) or x not in env:
            continue
        found.update(_pairs(x.skeleton, env[x]))
    return found
