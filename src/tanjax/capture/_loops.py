"""JAX's own loops, branches and calls, run with another meaning for their bodies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
from jax import Array
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._jaxpr_types import JaxEquation
from tanjax._jaxprs import inner_jaxprs
from tanjax._typing import AnyArray
from tanjax.jaxprs import LOOPS, Branches, Kind, Loop, Nested, kind_of, nested_jaxprs, with_branches

from ._equations import Body, Equation

Walk = Callable[..., PyTree]
Values = Sequence[AnyArray]


def walk_loop(equation: Equation, walk: Walk, operands: Values) -> list[AnyArray] | None:
    """Run an equation of JAX whose bodies are `walk(program, args)`; return `None` for others.

    Results are cast to the types of the program, as a body may compute in weaker types.
    """
    eqn = equation.eqn
    if kind_of(eqn) not in _Bodies.enters:
        return None
    jaxprs = (id(jaxpr) for _, jaxpr in inner_jaxprs(eqn))
    programs = dict(zip(jaxprs, equation.programs.values(), strict=True))
    inner = [programs[id(jaxpr)] for jaxpr in nested_jaxprs(eqn)]
    return list(_Bodies(walk).enter(eqn, inner, operands))


class _Bodies(Nested[AnyArray]):
    """JAX's own meaning of an equation, with `walk` for its bodies."""

    enters = (Kind.JIT, Kind.CHECKPOINT, Kind.BRANCH, *LOOPS)

    def __init__(self, walk: Walk) -> None:
        self.walk = walk

    def body(self, program: Body) -> Callable[..., list[AnyArray]]:
        return lambda *args: list(self.walk(program, args))

    def call(self, eqn: JaxEquation, program: Body, values: Values) -> Values:
        body = self.body(program)
        body.__name__ = str(_compat.call_name(eqn))
        return jax.jit(body)(*values)

    def checkpoint(self, eqn: JaxEquation, program: Body, values: Values) -> Values:
        options = {k: eqn.params[k] for k in ("policy", "prevent_cse") if k in eqn.params}
        return jax.checkpoint(self.body(program), **options)(*values)

    def cond(self, eqn: JaxEquation, branches: Branches) -> Values:
        index, operands = branches.index, branches.operands
        bodies = list(map(self.body, branches.programs))
        if list(map(jax.typeof, (index, *operands))) != [v.aval for v in eqn.invars]:
            return jax.lax.switch(index, bodies, *operands)
        traced = [jax.make_jaxpr(f)(*operands) for f in bodies]
        wanted = [v.aval for v in eqn.outvars]
        if any(t.consts or list(t.out_avals) != wanted for t in traced):
            again = [functools.partial(jax.core.eval_jaxpr, t.jaxpr, t.consts) for t in traced]
            return jax.lax.switch(index, again, *operands)
        # Bind the same equation: `switch` would clamp the index again, which is already in bounds.
        return _compat.bind_again(with_branches(eqn, traced), [index, *operands])

    def scan(self, eqn: JaxEquation, loop: Loop) -> Values:
        count = len(loop.carry)

        def step(carry: list[Array], rows: list[Array]) -> tuple[list[Array], list[Array]]:
            outs = self.walk(loop.body, (*loop.fixed, *carry, *rows))
            return list(outs[:count]), list(outs[count:])

        carry, rows = loop.scan(step, loop.carry, loop.rows)
        return [*carry, *rows]

    def while_(self, eqn: JaxEquation, loop: Loop) -> Values:
        return jax.lax.while_loop(
            lambda carry: self.walk(loop.test, (*loop.tested, *carry))[0],
            lambda carry: list(self.walk(loop.body, (*loop.fixed, *carry))),
            loop.carry,
        )
