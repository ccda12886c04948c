"""From a rule to a function that JAX differentiates in both modes.

A reverse rule alone serves both modes when it is registered as a `jax.custom_jvp` whose tangent
map is the linear transpose of the rule's pullback. Three lowerings:

| lowering | how | when |
|---|---|---|
| `linear` | the tangent map is one linear primitive that holds (map, transpose) | default |
| `public` | `jax.linear_transpose` of the pullback, public API only | fallback, on request |
| `custom_vjp` | `jax.custom_vjp`: reverse mode only | `tj.rules.as_custom_vjp(op)` |

With `linear`, reverse mode runs exactly the author's pullback with the author's residuals. JAX
cannot transpose a pullback with a dynamic loop, a callback or another reverse-only rule. Forward
mode then differentiates the primal: a rule never removes a derivative that JAX has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import _compat, _jaxprs
from tanjax._typing import Function, Pullback
from tanjax.arrays import is_inexact
from tanjax.jaxprs import Depends
from tanjax.kernels import custom_jvp

StructuralRule = Callable[..., tuple[PyTree, Pullback]]
Push = Callable[..., tuple[PyTree, Function]]

_LOWERING = ["linear"]


def choose(name: str) -> str:
    """Set the lowering of rules that are traced from now on, and return the one before."""
    if name not in ("linear", "public"):
        raise ValueError(f"unknown lowering {name!r}: choose 'linear' or 'public'.")
    old, _LOWERING[0] = _LOWERING[0], name
    return old


def use_linear() -> bool:
    """True if the linear primitive carries the tangent maps."""
    return _LOWERING[0] == "linear" and _compat.linear_lowering_works()


def both_modes(
    primal: Function,
    rule: StructuralRule | None,
    push: Push | None,
    name: str,
) -> Function:
    """Return a function that evaluates `primal` and is differentiated by the rule, in both modes.

    **Arguments:** `primal`: JAX differentiates it where no rule can.
    `rule(*args) -> (out, pullback)`, with a structural pullback that returns one cotangent per
    argument. `push(*args) -> (out, pushforward)`, with a structural pushforward. At least one of
    the two must be given.
    """
    transposable: list[bool] = []  # known after the first trace of this signature
    f = jax.custom_jvp(primal)

    def jvp(primals: PyTree, tangents: PyTree) -> PyTree:
        if rule is None:
            assert push is not None
            return _pushed(push, primals, tangents)
        out, pullback = rule(*primals)
        call = _Call(primals, tangents, out)
        if not (call.live and call.places):
            return out, call.place([jnp.zeros_like(call.outs[i]) for i in call.places])
        pull, residuals = _jaxprs.convert_closure(
            lambda *cts: call.pull(pullback, cts), *call.diff_outs
        )
        if push is None and not transposable:
            transposable.append(_can_transpose(pull, residuals, call))
        forward, extra = call.forward(
            pull, len(residuals), push, primal if not (transposable or [True])[0] else None
        )
        if not use_linear():
            return out, call.place(forward(*residuals, *extra, *call.live_tangents))
        count, total = len(residuals), len(residuals) + len(extra)
        backward = lambda *a: pull(a[:count], *a[total:])
        avals = [jax.typeof(o) for o in call.diff_outs]
        linear = _compat.LinearMap(forward, backward, name)
        moved = _compat.linear_call(linear, [*residuals, *extra], call.live_tangents, avals)
        return out, call.place(moved)

    f.defjvp(jvp, symbolic_zeros=True)
    return _as_it_is_made(f, primal, jvp)


def _as_it_is_made(f: Function, primal: Function, jvp: Function) -> Function:
    """Choose another `jax.custom_jvp` where JAX would mishandle this one; traces the body again.

    JAX raises under `jax.vmap` if a result depends on no argument (the diagonal of ones): the
    result has no batch axis, but its tangent has one. Before 0.12, JAX also differentiates the body
    in a loop, where a callback has no derivative.
    """
    kept = custom_jvp(primal)
    moving = jax.custom_jvp(lambda *args: _moved_by(args, primal(*args)))
    kept.defjvp(jvp, symbolic_zeros=True)
    moving.defjvp(jvp, symbolic_zeros=True)

    def call(*args: PyTree) -> PyTree:
        closed, out = jax.make_jaxpr(primal, return_shape=True)(*args)
        if any(isinstance(c, _compat.Tracer) for c in closed.consts):
            return primal(*args)  # no rule sees an array that it closes over
        floating = list(map(is_inexact, jax.tree.leaves(out)))
        is_kept = all(floating) and not (_compat.LOOPS_KEEP_RULES or closed.effects)
        if is_kept and _jaxprs.has_callback(closed):
            return kept(*args)
        depends = Depends().run(closed, [True] * len(closed.jaxpr.invars))
        still = any(x and not moves for x, moves in zip(floating, depends, strict=True))
        return (moving if still else f)(*args)

    return call


def _moved_by(args: PyTree, out: PyTree) -> PyTree:
    """Make every result depend on the arguments; XLA removes the dependence again."""
    moving = [x for x in jax.tree.leaves(args) if is_inexact(x)]
    one = sum(jnp.sum(jnp.real(x)).astype(jnp.float32) for x in moving)

    def touched(x: PyTree) -> PyTree:
        if not is_inexact(x):
            return x
        x = jnp.asarray(x)  # an implementation may give a number of Python
        return jnp.where(True, x, jnp.asarray(one).astype(x.dtype))

    return jax.tree.map(touched, out)


class _Call:
    """The bookkeeping of one differentiated call: which leaves move, which outputs can."""

    def __init__(self, primals: PyTree, tangents: PyTree, out: PyTree) -> None:
        self.primals = primals
        self.leaves, self.tree = jax.tree.flatten(primals)
        self.outs, self.out_tree = jax.tree.flatten(out)
        self.places = [i for i, o in enumerate(self.outs) if is_inexact(o)]
        self.diff_outs = [self.outs[i] for i in self.places]
        flat = jax.tree.leaves(tangents, is_leaf=_compat.is_symbolic_zero)
        self.live = [
            i
            for i, t in enumerate(flat)
            if not _compat.is_symbolic_zero(t) and t.dtype != _compat.float0
        ]
        self.live_tangents = [flat[i] for i in self.live]

    def place(self, values: Sequence[PyTree]) -> PyTree:
        """Build an output (co)tangent from its differentiable leaves."""
        moving = dict(zip(self.places, values, strict=True))
        outs = enumerate(self.outs)
        full = [moving[i] if i in moving else _compat.no_tangent(o) for i, o in outs]
        return jax.tree.unflatten(self.out_tree, full)

    def pull(self, pullback: Function, cts: PyTree) -> list[PyTree]:
        """Run a structural pullback and keep the cotangents of the leaves that move."""
        flat = self.tree.flatten_up_to(tuple(pullback(self.place(list(cts)))))
        return [flat[i] for i in self.live]

    def tangents(self, moved: PyTree) -> PyTree:
        """Return all tangents as arrays, with zeros for the leaves that do not move."""
        full = [jnp.zeros_like(p) if is_inexact(p) else _compat.no_tangent(p) for p in self.leaves]
        for i, t in zip(self.live, moved, strict=True):
            full[i] = t
        return jax.tree.unflatten(self.tree, full)

    def forward(
        self, pull: Function, count: int, push: Push | None, primal: Function | None
    ) -> tuple[PyTree, list[PyTree]]:
        """Return the tangent map as a function of (residuals, extra residuals, live tangents)."""
        if push is not None:
            _, pushforward = push(*self.primals)
            run = lambda *ts: [
                jax.tree.leaves(pushforward(*self.tangents(ts)))[i] for i in self.places
            ]
            moved, extra = _jaxprs.convert_closure(run, *self.live_tangents)
            return lambda *a: moved(a[count : count + len(extra)], *a[count + len(extra) :]), extra
        if primal is not None:
            return self._differentiated(primal, count), list(self.leaves)
        avals = [jax.typeof(o) for o in self.diff_outs]

        def transposed(*a: PyTree) -> list[PyTree]:
            return list(
                jax.linear_transpose(lambda *c: pull(a[:count], *c), *avals)(list(a[count:]))
            )

        return transposed, []

    def _differentiated(self, primal: Function, count: int) -> PyTree:
        n = len(self.leaves)

        def jvp_of_primal(*a: PyTree) -> list[PyTree]:
            primals = jax.tree.unflatten(self.tree, a[count : count + n])
            moved = jax.jvp(primal, primals, self.tangents(a[count + n :]))[1]
            return [jax.tree.leaves(moved)[i] for i in self.places]

        return jvp_of_primal


def _pushed(push: Push, primals: PyTree, tangents: PyTree) -> PyTree:
    """Forward mode from a pushforward alone; JAX transposes it for reverse mode."""
    out, pushforward = push(*primals)
    call = _Call(primals, tangents, out)
    moved = jax.tree.leaves(pushforward(*call.tangents(call.live_tangents)))
    return out, call.place([moved[i] for i in call.places])


def _can_transpose(pull: Function, residuals: list[PyTree], call: _Call) -> bool:
    """True if JAX can transpose a pullback; tried once per signature."""
    avals = [jax.typeof(o) for o in call.diff_outs]

    def attempt(values: PyTree, tangents: PyTree) -> PyTree:
        return jax.linear_transpose(lambda *c: pull(values, *c), *avals)(tangents)

    try:
        jax.make_jaxpr(attempt)(residuals, call.live_tangents)
    except Exception:  # on any error, forward mode differentiates the primal
        return False
    return True
