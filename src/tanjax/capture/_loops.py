"""JAX's own loops, branches and calls, run with another meaning for their bodies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
from jax import Array
from jaxtyping import PyTree

from tanjax import _compat
from tanjax._typing import AnyArray
from tanjax.jaxprs import KINDS, Kind

from ._equations import Body, Equation

Walk = Callable[..., PyTree]


def walk_loop(
    equation: Equation, walk: Walk, operands: Sequence[AnyArray]
) -> list[AnyArray] | None:
    """Run an equation of JAX whose bodies are `walk(program, args)`; return `None` for others.

    Results are cast to the types of the program, as a body may compute in weaker types.
    """
    kind = KINDS.get(equation.eqn.primitive.name)
    return list(_WALKED[kind](equation, walk, operands)) if kind in _WALKED else None


def _flat(program: Body, walk: Walk) -> Callable[..., list[AnyArray]]:
    return lambda *args: list(walk(program, args))


def _call(equation: Equation, walk: Walk, operands: Sequence[AnyArray]) -> Sequence[AnyArray]:
    (program,) = equation.programs.values()
    body = _flat(program, walk)
    body.__name__ = str(_compat.call_name(equation.eqn))
    return jax.jit(body)(*operands)


def _checkpoint(equation: Equation, walk: Walk, operands: Sequence[AnyArray]) -> Sequence[AnyArray]:
    (program,) = equation.programs.values()
    params = equation.eqn.params
    options = {k: params[k] for k in ("policy", "prevent_cse") if k in params}
    return jax.checkpoint(_flat(program, walk), **options)(*operands)


def _cond(equation: Equation, walk: Walk, operands: Sequence[AnyArray]) -> Sequence[AnyArray]:
    eqn, (index, *rest) = equation.eqn, operands
    branches = [_flat(p, walk) for p in equation.programs.values()]
    if list(map(jax.typeof, operands)) != [v.aval for v in eqn.invars]:
        return jax.lax.switch(index, branches, *rest)
    traced = [jax.make_jaxpr(f)(*rest) for f in branches]
    wanted = [v.aval for v in eqn.outvars]
    if any(t.consts or list(t.out_avals) != wanted for t in traced):
        again = [functools.partial(jax.core.eval_jaxpr, t.jaxpr, t.consts) for t in traced]
        return jax.lax.switch(index, again, *rest)
    # Bind the same equation: `switch` would clamp the index again, which is already in bounds.
    params = {**eqn.params, "branches": tuple(traced)}
    return _compat.bind_again(eqn.replace(params=params), operands)


def _scan(equation: Equation, walk: Walk, operands: Sequence[AnyArray]) -> Sequence[AnyArray]:
    params, (program,) = equation.eqn.params, equation.programs.values()
    loop = _compat.Loop.of(params)
    _, fixed, carry, rows = loop.cut(operands)

    def body(carry: list[Array], rows: list[Array]) -> tuple[list[Array], list[Array]]:
        outs = walk(program, (*fixed, *carry, *rows))
        return list(outs[: len(carry)]), list(outs[len(carry) :])

    options = {k: params[k] for k in ("length", "reverse", "unroll")}
    carry, rows = jax.lax.scan(body, list(carry), list(rows), **options)
    return [*carry, *rows]


def _while(equation: Equation, walk: Walk, operands: Sequence[AnyArray]) -> Sequence[AnyArray]:
    loop = _compat.Loop.of(equation.eqn.params)
    tested, fixed, carry, _ = loop.cut(operands)
    test, body = (equation.programs[f"{k}_jaxpr"] for k in ("cond", "body"))
    return jax.lax.while_loop(
        lambda carry: walk(test, (*tested, *carry))[0],
        lambda carry: list(walk(body, (*fixed, *carry))),
        list(carry),
    )


_WALKED = {
    Kind.JIT: _call,
    Kind.CHECKPOINT: _checkpoint,
    Kind.BRANCH: _cond,
    Kind.SCAN: _scan,
    Kind.WHILE: _while,
}
