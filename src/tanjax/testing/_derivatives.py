"""All results that JAX derives from an operation, as numbers that can be compared.

A `Probe` describes each number: the stage that measured it, the kind of the quantity (and so its
reference), and its argument.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays, registry, transforms
from tanjax._typing import Function

from ._coordinates import dense, moves, random
from ._problem import Problem

Kind = Literal[
    "value", "values", "stored", "losses",
    "jacobian", "stored jacobian", "pulled", "pushed", "gradient", "gradients", "hessian",
    "paired", "paired outer",
]  # fmt: skip
BY_LEAF: tuple[Kind, ...] = ("jacobian", "pulled", "gradient", "gradients", "hessian")


@dataclasses.dataclass(frozen=True)
class Probe:
    """The description of one number: its stage, its kind, its method, and its argument."""

    stage: str
    kind: Kind
    how: str = ""
    argument: int | None = None  # None: all arguments, one after the other

    @property
    def by_leaf(self) -> bool:
        """True if the last axis runs over the coordinates of all arguments."""
        return self.kind in BY_LEAF and self.argument is None

    @property
    def key(self) -> str:
        """Its name in the answers of the reference."""
        return self.kind if self.argument is None else f"{self.kind} {self.argument}"

    def words(self, names: list[str]) -> str:
        """Return the description for messages."""
        of = "" if self.argument is None else f" of {names[self.argument]} alone"
        return f"{self.kind}{of}" + (f" ({self.how})" if self.how else "")


Measured = list[tuple[Probe, PyTree]]


def first_order(p: Problem, point: PyTree, chosen: PyTree) -> Measured:
    """Measure both modes, the rule itself, and the fields of a structured output."""
    v = p.direction
    got: Measured = []
    if "rule" in chosen:
        got += _rule_in_hand(p, point)
    if "vjp" in chosen:
        got.append((Probe("vjp", "jacobian"), jax.jacrev(p.array)(point)))
    if "jvp" in chosen:
        got.append((Probe("jvp", "jacobian"), jax.jacfwd(p.array)(point)))
    if "linearize" in chosen:
        value, along = jax.linearize(p.array, point)
        got += [(Probe("linearize", "value"), value), (Probe("linearize", "pushed"), along(v))]
    if "fields" in chosen and p.reads_fields:
        got.append((Probe("fields", "stored"), p.stored(point)))
        for mode, jacobian in (("reverse mode", jax.jacrev), ("forward mode", jax.jacfwd)):
            got.append((Probe("fields", "stored jacobian", mode), jacobian(p.stored)(point)))
    if "natural" in chosen:
        got += _natural(p, point)
    return got


def higher_order(p: Problem, point: PyTree, points: PyTree, chosen: PyTree) -> Measured:
    """Measure second derivatives, batches, rematerialisation and loops."""
    v, loss = p.direction, p.loss(p.array)
    gradient = jax.grad(loss)
    got: Measured = []
    if "hessian" in chosen:
        along = lambda x: jax.jvp(loss, (x,), (v,))[1]
        slope, second = jax.jvp(jax.grad(_in_a_loop(loss)), (point,), (v,))
        got += [
            (Probe("hessian", "gradient", "of a loop"), slope),
            (Probe("hessian", "hessian", "forward over reverse of a loop"), second),
            (
                Probe("hessian", "hessian", "reverse over reverse"),
                jax.grad(lambda x: gradient(x) @ v)(point),
            ),
            (Probe("hessian", "hessian", "reverse over forward"), jax.grad(along)(point)),
        ]
    if "vmap" in chosen:
        got += _batched(p, points)
    if "checkpoint" in chosen or "scan" in chosen:
        carried, sliced = _scan(p, point, points, "checkpoint" in chosen)
        stage = "checkpoint" if "checkpoint" in chosen else "scan"
        if "scan" in chosen:
            got.append((Probe("scan", "gradient", "of the carry"), carried / len(points)))
        got.append((Probe(stage, "gradients", "of the slices of a scan"), sliced))
    for i in p.moving:
        if "one argument" in chosen:
            got += _alone(p, i, p.parts(points)[i])
    return got


def public_lowering(p: Problem, point: PyTree) -> Measured:
    """Measure the lowering that uses JAX's public API alone."""
    stage = "public lowering"
    gradient = jax.grad(p.loss(p.array))
    slope, second = jax.jvp(gradient, (point,), (p.direction,))
    pushed = jax.jvp(p.array, (point,), (p.direction,))[1]
    return [
        (Probe(stage, "pushed"), pushed),
        (Probe(stage, "gradient"), slope),
        (Probe(stage, "hessian"), second),
    ]


# -- batches and loops -----------------------------------------------------------------------------


def _batched(p: Problem, points: PyTree) -> Measured:
    """Map over the first axis of some leaves and the last axis of others."""
    rows = [p.unpack(row) for row in points]
    some = [[row[i] for i in p.moving] for row in rows]
    leaves = [jax.tree.leaves(s) for s in some]
    tree = jax.tree.structure(some[0])
    axes = [-1 if k % 2 == 0 and moves(leaf) else 0 for k, leaf in enumerate(leaves[0])]
    stacked = [jnp.stack(column, axis) for column, axis in zip(zip(*leaves, strict=True), axes,
               strict=True)]  # fmt: skip

    def value_and_slopes(*flat: PyTree) -> PyTree:
        args = tree.unflatten(flat)
        y, pull = jax.vjp(lambda *a: p.read(p.call(*p.whole(a))), *args)
        bars = pull(p.probe * (1 + y))
        return y, jnp.concatenate(
            [p.inputs[i].dual(bar) for i, bar in zip(p.moving, bars, strict=True)]
        )

    values, slopes = jax.vmap(value_and_slopes, in_axes=tuple(axes))(*stacked)
    how = "batched along the first and the last axes"
    return [(Probe("vmap", "values", how), values), (Probe("vmap", "gradients", how), slopes)]


def _alone(p: Problem, i: int, batch: PyTree) -> Measured:
    """Batch and differentiate one argument, with the others constant to JAX."""

    def loss(part: PyTree) -> PyTree:
        args = list(p.args)
        args[i] = p.inputs[i].tree(part)
        return p.curved(p.read(p.call(*args)))

    values, slopes = jax.vmap(jax.value_and_grad(loss))(batch)
    return [
        (Probe("one argument", "losses", "batched", i), values),
        (Probe("one argument", "gradients", "batched", i), slopes),
    ]


def _in_a_loop(loss: Function) -> Function:
    """Return the loss in a `lax.scan`, where JAX before 0.12 drops custom rules in reverse mode.

    The vector is sliced, not closed over: otherwise the loss would be hoisted out of the loop.
    """
    return lambda x: jax.lax.scan(lambda total, row: (total + loss(row), None), 0.0, x[None])[0]


def _scan(p: Problem, point: PyTree, points: PyTree, remember: bool) -> tuple[PyTree, PyTree]:
    """Differentiate through a loop with structured carries and (checkpointed) structured slices."""
    moving = lambda row: [a for i, a in enumerate(p.unpack(row)) if i in p.moving]
    loss = lambda some: p.curved(p.read(p.call(*p.whole(some))))
    each = jax.checkpoint(loss) if remember else loss

    def total(point: PyTree, points: PyTree) -> PyTree:
        body = lambda carry, x: (carry, loss(carry) + each(x))
        return jnp.sum(jax.lax.scan(body, moving(point), jax.vmap(moving)(points))[1])

    return jax.grad(total, (0, 1))(point, points)


# -- the rule itself -------------------------------------------------------------------------------


def structural_probe(p: Problem, out: PyTree) -> PyTree:
    """Return the probe as a structural cotangent of the output, as a loss of the array gives it."""
    return jax.vjp(p.read, out)[1](p.probe)[0]


def _rule_in_hand(p: Problem, point: PyTree) -> Measured:
    """Check `rrule` and `frule`: values, trees and dtypes of cotangents, and purity."""
    got: Measured = []
    args = p.unpack(point)
    first = registry.rrule(p.op, *args, **p.static)
    for how in ("rrule", "rrule, pulled again", "rrule, called again"):
        again = how.endswith("called again")
        out, pullback = registry.rrule(p.op, *args, **p.static) if again else first
        bars = pullback(structural_probe(p, out))
        if len(bars) != len(args):
            raise ValueError(f"the pullback gives {len(bars)} cotangents for {len(args)} arguments")
        for name, a, bar in zip(p.names, args, bars, strict=True):
            _check_tangent(name, a, bar)
        duals = [c.dual(b) for c, b in zip(p.inputs, bars, strict=True) if c.size]
        got += [(Probe("rule", "value", how), p.read(out)),
                (Probe("rule", "pulled", how), jnp.concatenate(duals))]  # fmt: skip
    out, pushed = _frule(p, point)
    return [
        *got,
        (Probe("rule", "value", "frule"), out),
        (Probe("rule", "pushed", "frule"), pushed),
    ]


def _check_tangent(name: str, arg: PyTree, bar: PyTree) -> None:
    if callable(arg) or isinstance(arg, str):
        return
    want, got = arrays.tangent_type(arg), arrays.tangent_type(bar)
    given = [(np.shape(v), jnp.result_type(v)) for v in jax.tree.leaves(bar)]
    if want.tree != got.tree or list(want.leaves) != given:
        raise ValueError(f"the cotangent of {name} has type {given}, expected {want}")


def _frule(p: Problem, point: PyTree) -> tuple[PyTree, PyTree]:
    args = tuple(p.unpack(point))
    parts = p.parts(p.direction)
    tangents = [
        c.tangent(t) if not callable(a) else None
        for c, t, a in zip(p.inputs, parts, args, strict=True)
    ]
    if any(map(callable, args)):
        return jax.jvp(p.array, (point,), (p.direction,))
    out, out_dot = registry.frule(p.op, args, tuple(tangents), **p.static)
    return jax.jvp(p.read, (out,), (out_dot,))


# -- natural cotangents ----------------------------------------------------------------------------


def _natural(p: Problem, point: PyTree) -> Measured:
    """Measure `tj.vjp` on natural cotangents, dense and factored, paired with a tangent."""
    args = p.unpack(point)
    some = [args[i] for i in p.moving]
    out, pullback = transforms.vjp(lambda *moving: p.call(*p.whole(moving)), *some)
    out_bar = p.out_dense.cotangent(p.probe)
    shaped = jax.tree.structure(out, is_leaf=arrays.is_structured)
    whole = pullback(shaped.unflatten(jax.tree.leaves(out_bar)))
    got: Measured = [(Probe("natural", "paired"), _paired(p, some, whole))]
    if shaped.num_leaves == 1 and jnp.ndim(jax.tree.leaves(out_bar)[0]) == 2:
        outer = pullback(shaped.unflatten([_outer(jax.tree.leaves(out_bar)[0])]))
        got.append((Probe("natural", "paired outer"), _paired(p, some, outer)))
    return got


def _outer(like: PyTree) -> arrays.Outer:
    """Return a factored natural cotangent with the shape and dtype of a matrix."""
    factors = [random(n, 30 + i).astype(like.dtype) for i, n in enumerate(like.shape)]
    return arrays.Outer(*jax.device_put(factors))


def outer_probe(p: Problem) -> PyTree:
    """Return the dual coordinates of the factored cotangent, if the output is one matrix."""
    like = jax.tree.leaves(p.out_dense.cotangent(p.probe))[0]
    return p.out_dense.dual(jax.tree.unflatten(p.out_dense.treedef, [_outer(like).to_dense()]))


def _paired(p: Problem, args: list[PyTree], bars: PyTree) -> PyTree:
    """Return `Σ ⟨natural cotangent, J ẋ⟩` per argument, through the arrays."""
    pairs = []
    parts = [p.parts(p.direction)[i] for i in p.moving]
    for i, a, bar, part in zip(p.moving, args, bars, parts, strict=True):
        tangent = p.inputs[i].tangent(part)
        moved = jax.jvp(lambda x: dense(x), (a,), (tangent,))[1]
        kept = [[v for v in jax.tree.leaves(tree) if moves(v)] for tree in (dense(bar), moved)]
        terms = [jnp.real(jnp.sum(b * m)) for b, m in zip(*kept, strict=True)]
        pairs.append(sum(terms[1:], terms[0]))
    return jnp.stack(pairs)
