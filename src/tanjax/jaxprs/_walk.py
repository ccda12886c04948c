"""Interpreters of jaxprs, written as the meaning of their equations.

JAX lays out the operands of a loop, a branch or a call in the equation. An interpreter needs only
the parts: constants, carry and rows of a `scan`, the branches of a `cond`. `Nested` takes them
apart and calls one method per kind of equation; `Walk` also reads a jaxpr, equation by equation.

    class Count(Walk[int]):
        enters = CALLS

        def call(self, eqn, program, values):
            return self.run(program, values)

        def leaf(self, eqn, values):
            return [sum(values) + 1] * len(eqn.outvars)

Sharp edge: an equation of a kind outside of `enters` is a leaf, also if it has jaxprs.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from tanjax._jaxpr_types import JaxEquation
from tanjax._jaxprs import is_literal

from ._nested import LOOPS, Branches, Kind, Loop, given, kind_of, nested_jaxprs, opened

T = TypeVar("T")


class Nested(abc.ABC, Generic[T]):
    """The meaning of equations with nested programs: jaxprs, or other forms of them.

    A subclass implements a method for each of the kinds in `enters`. A method takes the equation,
    its programs and its operands, and returns its results.
    """

    enters: ClassVar[Collection[Kind | None]] = ()

    def enter(self, eqn: JaxEquation, programs: Sequence[Any], values: Sequence[T]) -> Any:
        """Take an equation apart, and return the result of the method of its kind."""
        kind = kind_of(eqn)
        if kind in LOOPS:
            hook = self.scan if kind is Kind.SCAN else self.while_
            return hook(eqn, Loop.of(eqn, values, programs))
        if kind is Kind.BRANCH:
            return self.cond(eqn, Branches(programs, values[0], list(values[1:])))
        hooks: dict[Kind | None, Callable[..., Any]] = {
            Kind.CHECKPOINT: self.checkpoint,
            Kind.DEVICES: self.devices,
            Kind.JVP_RULE: self.jvp_rule,
        }
        return hooks.get(kind, self.call)(eqn, programs[0], list(given(eqn, values)[0]))

    def call(self, eqn: JaxEquation, program: Any, values: list[T]) -> Any:
        """Run a program once."""
        raise NotImplementedError

    def checkpoint(self, eqn: JaxEquation, program: Any, values: list[T]) -> Any:
        """Run a program that the backward pass runs again."""
        return self.call(eqn, program, values)

    def jvp_rule(self, eqn: JaxEquation, program: Any, values: list[T]) -> Any:
        """Run a program that has its own derivative, by `jax.custom_jvp`."""
        return self.call(eqn, program, values)

    def devices(self, eqn: JaxEquation, program: Any, values: list[T]) -> Any:
        """Run a program of `jax.shard_map`, whose arguments are parts of the operands."""
        return self.call(eqn, program, values)

    def cond(self, eqn: JaxEquation, branches: Branches) -> Any:
        """Run the program of the branch that `branches.index` selects."""
        raise NotImplementedError

    def scan(self, eqn: JaxEquation, loop: Loop) -> Any:
        """Run `loop.body` on `loop.fixed`, the carry and a row, for each of the rows."""
        raise NotImplementedError

    def while_(self, eqn: JaxEquation, loop: Loop) -> Any:
        """Run `loop.body` on `loop.fixed` and the carry while `loop.test` is true."""
        raise NotImplementedError


class Walk(Nested[T]):
    """An interpreter of jaxprs: it runs their equations on values of another kind than arrays."""

    def run(self, program: Any, values: Sequence[T]) -> list[T]:
        """Return the results of a jaxpr, open or closed."""
        jaxpr, consts = opened(program)
        env = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        env.update(zip(jaxpr.invars, values, strict=True))
        for eqn in jaxpr.eqns:
            operands = [self.constant(v.val) if is_literal(v) else env[v] for v in eqn.invars]
            env.update(zip(eqn.outvars, self.equation(eqn, operands), strict=True))
        return [self.constant(v.val) if is_literal(v) else env[v] for v in jaxpr.outvars]

    def constant(self, number: Any) -> T:
        """Return the value of a constant or a literal."""
        return number

    def equation(self, eqn: JaxEquation, values: list[T]) -> Sequence[T]:
        """Return the results of an equation; a subclass may do more than `meaning`."""
        return self.meaning(eqn, values)

    def meaning(self, eqn: JaxEquation, values: list[T]) -> Any:
        """Return the result of the method for an equation: that of its kind, or `leaf`."""
        programs = nested_jaxprs(eqn) if kind_of(eqn) in self.enters else ()
        return self.enter(eqn, programs, values) if programs else self.leaf(eqn, values)

    @abc.abstractmethod
    def leaf(self, eqn: JaxEquation, values: list[T]) -> Any:
        """Return the results of an equation whose jaxprs, if any, are not entered."""
