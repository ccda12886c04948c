"""Dependence: which results of a jaxpr are functions of some of its arguments.

    Depends().run(jaxpr, [True, False])  # a flag per result

An equation of JAX without jaxprs passes a flag on from any operand to all results. Loops repeat
their body until the flags of the carry settle.
"""

from __future__ import annotations

from tanjax._jaxpr_types import JaxEquation, Steps
from tanjax._typing import AnyArray

from ._nested import CALLS, LOOPS, Branches, Kind, Loop
from ._walk import Walk


class Depends(Walk[bool]):
    """For each value of a jaxpr, whether it depends on an argument with a flag."""

    enters = (*CALLS, Kind.BRANCH, *LOOPS)

    def constant(self, number: AnyArray) -> bool:
        return False

    def equation(self, eqn: JaxEquation, values: list[bool]) -> list[bool]:
        return self.meaning(eqn, values) if any(values) else [False] * len(eqn.outvars)

    def leaf(self, eqn: JaxEquation, values: list[bool]) -> list[bool]:
        return [True] * len(eqn.outvars)

    def call(self, eqn: JaxEquation, program: Steps, values: list[bool]) -> list[bool]:
        return self.run(program, values)

    def cond(self, eqn: JaxEquation, branches: Branches) -> list[bool]:
        found = [self.run(program, branches.operands) for program in branches.programs]
        return [branches.index or any(flags) for flags in zip(*found, strict=True)]

    def scan(self, eqn: JaxEquation, loop: Loop) -> list[bool]:
        """Return the flags of the carry and of the rows, after any number of steps."""
        carry = loop.carry
        while True:
            outs = self.run(loop.body, [*loop.fixed, *carry, *loop.rows])
            new = [a or b for a, b in zip(carry, outs, strict=False)]
            if new == carry:
                return [*carry, *outs[len(carry) :]]
            carry = new

    def while_(self, eqn: JaxEquation, loop: Loop) -> list[bool]:
        carry = self.scan(eqn, loop)
        (tested,) = self.run(loop.test, [*loop.tested, *carry])
        return [tested or flag for flag in carry]
