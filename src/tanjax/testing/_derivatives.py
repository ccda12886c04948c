"""Everything that JAX can do to a function of arrays, as arrays that can be compared.

A `Problem` is a call of an operation in stored coordinates. `reference` computes what the
derivatives should be from the definition alone, in the cheapest way; `transformed` computes the
same numbers through the operation in every mode and under every transformation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import arrays, registry, transforms

from ._coordinates import Coordinates, canonical, dense, moves, random

Values = dict[tuple[str, str], Any]


class Problem:
    """A call of an operation, in coordinates."""

    def __init__(
        self, op: registry.Operation, args: tuple[Any, ...], static: Any, reference: Any
    ) -> None:
        self.op, self.static, self.args = op, static, args
        self.definition = reference or (lambda *a: op.primal(*a, **static))
        self.has_reference = reference is not None
        self.inputs = [Coordinates(a) for a in args]
        self.ends = np.cumsum([0, *(c.size for c in self.inputs)])
        self.size = int(self.ends[-1])
        self.moving = [i for i, c in enumerate(self.inputs) if c.size]
        self.point = jnp.concatenate(
            [c.vector(a) for c, a in zip(self.inputs, args, strict=True)] or [jnp.zeros(0)]
        )
        with arrays.densify("allow"):
            self.out = self.call(*args)
        self.out_fields = Coordinates(_shapes(self.out))
        self.out_dense = Coordinates(_shapes(dense(self.out)))
        self.direction, self.probe = random(self.size, 1), random(self.out_dense.size, 2)
        self.points = self._nearby(2)

    def _nearby(self, count: int) -> Any:
        """Points close to the inputs, with the storage invariants kept."""
        rows = []
        for k in range(count):
            moved = self.point * (1 + 0.03 * random(self.size, 20 + k))
            parts = [canonical(a) for a in self.unpack(moved)]
            rows.append(
                jnp.concatenate(
                    [c.vector(p) for c, p in zip(self.inputs, parts, strict=True)] or [jnp.zeros(0)]
                )
            )
        return jnp.stack(rows)

    def parts(self, vector: Any) -> list[Any]:
        """The coordinates of each argument."""
        return [vector[..., a:b] for a, b in zip(self.ends, self.ends[1:], strict=False)]

    def unpack(self, vector: Any) -> list[Any]:
        """The arguments with these coordinates."""
        pairs = zip(self.inputs, self.parts(vector), self.args, strict=True)
        return [c.tree(p) if c.size else a for c, p, a in pairs]

    # -- the function under test and its two references ----------------------------------------

    def call(self, *args: Any) -> Any:
        """The operation."""
        return self.op(*args, **self.static)

    def array(self, vector: Any) -> Any:
        """The operation, read through its dense arrays."""
        return self.out_dense.vector(dense(self.call(*self.unpack(vector))))

    def defined(self, vector: Any) -> Any:
        """The literal definition: the generic implementation on dense arguments."""
        out = self.definition(*map(dense, self.unpack(vector)))
        return self.out_dense.vector(dense(out))

    def stored(self, vector: Any) -> Any:
        """The operation, read through the fields of its output."""
        return self.out_fields.vector(self.call(*self.unpack(vector)))

    def implemented(self, vector: Any) -> Any:
        """The undecorated implementation, read through the fields of its output."""
        args = map(canonical, self.unpack(vector))
        return self.out_fields.vector(self.op.primal(*args, **self.static))

    def loss(self, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A curved scalar of a function of vectors."""

        def scalar(vector: Any) -> Any:
            y = f(vector)
            return jnp.sum(self.probe * y * (1 + 0.5 * y))

        return scalar

    @property
    def reads_fields(self) -> bool:
        """Whether the output has fields that a loss could read past the array."""
        leaves = jax.tree.leaves(self.out, is_leaf=arrays.is_structured)
        return any(map(arrays.is_structured, leaves)) and self.out_fields.size > 0


def _shapes(tree: Any) -> Any:
    """A tree as a template: coordinates keep no values of it."""
    return jax.tree.map(lambda x: x if moves(x) else np.asarray(x), tree)


def reference(p: Problem, point: Any, points: Any) -> dict[str, Any]:
    """The derivatives of the definition, by plain JAX AD without any rule."""
    gradient = jax.grad(p.loss(p.defined))
    values = {
        "value": p.defined(point),
        "jacobian": jax.jacfwd(p.defined)(point),
        "hessian": jax.jvp(gradient, (point,), (p.direction,))[1],
        "gradient": gradient(point),
        "gradients": jax.vmap(gradient)(points),
        "values": jax.vmap(p.defined)(points),
        "jacobians": jax.vmap(jax.jacfwd(p.defined))(points),
    }
    if p.reads_fields:
        values["stored"] = p.implemented(point)
        values["stored jacobian"] = jax.jacfwd(p.implemented)(point)
    return values


def first_order(p: Problem, point: Any, chosen: Any) -> Values:
    """Both modes, the rule in hand, and the fields of a structured output."""
    v, y = p.direction, p.probe
    got: Values = {}
    if "vjp" in chosen:
        got["vjp", "jacobian"] = jax.jacrev(p.array)(point)
        pull = jax.vjp(p.array, point)[1]
        got["vjp", "pulled"] = pull(y)[0]
    if "jvp" in chosen:
        got["jvp", "jacobian"] = jax.jacfwd(p.array)(point)
        got["jvp", "pushed"] = jax.jvp(p.array, (point,), (v,))[1]
    if "linearize" in chosen:
        got["linearize", "pushed"] = jax.linearize(p.array, point)[1](v)
    if "rule" in chosen:
        got["rule", "pulled"], got["rule", "pulled again"] = _rule_twice(p, point)
        got["rule", "pushed"] = _frule(p, point)
    if "fields" in chosen and p.reads_fields:
        got["fields", "stored"] = p.stored(point)
        got["fields", "stored jacobian"] = jax.jacrev(p.stored)(point)
        got["fields", "stored jacobian forward"] = jax.jacfwd(p.stored)(point)
    if "natural" in chosen:
        got |= _natural(p, point)
    return got


def higher_order(p: Problem, point: Any, points: Any, chosen: Any) -> Values:
    """Second derivatives, batches, rematerialisation and loops."""
    v, loss = p.direction, p.loss(p.array)
    gradient = jax.grad(loss)
    got: Values = {}
    if "hessian" in chosen:
        along = lambda x: jax.jvp(loss, (x,), (v,))[1]
        got["hessian", "forward over reverse"] = jax.jvp(gradient, (point,), (v,))[1]
        got["hessian", "reverse over reverse"] = jax.grad(lambda x: gradient(x) @ v)(point)
        got["hessian", "reverse over forward"] = jax.grad(along)(point)
    if "vmap" in chosen:
        got["vmap", "values"] = jax.vmap(p.array)(points)
        got["vmap", "gradients"] = jax.vmap(gradient)(points)
    if "checkpoint" in chosen:
        got["checkpoint", "gradient"] = jax.grad(jax.checkpoint(loss))(point)
    if "scan" in chosen:
        got["scan", "gradient"], got["scan", "gradients"] = _scan(p, point, points)
    for i in p.moving:
        f = _of_argument(p, i)
        part, batch = p.parts(point)[i], p.parts(points)[i]
        if "one argument" in chosen:
            got["one argument", f"gradient {i}"] = jax.grad(f)(part)
        if "vmap" in chosen and len(p.moving) > 1:
            got["vmap", f"one batched {i}"] = jax.vmap(f)(batch)
    return got


def _of_argument(p: Problem, i: int) -> Any:
    """The loss as a function of one argument; all others are constant to JAX."""

    def alone(part: Any) -> Any:
        args = list(p.args)
        args[i] = p.inputs[i].tree(part)
        return _scalar(p, args)

    return alone


def _scan(p: Problem, point: Any, points: Any) -> tuple[Any, Any]:
    """Structured carry and structured slices, differentiated through the loop."""

    def total(point: Any, points: Any) -> Any:
        loss = lambda args: _scalar(p, args)
        is_static = lambda c: c.size == 0
        moving = lambda args: [a for a, c in zip(args, p.inputs, strict=True) if not is_static(c)]

        def whole(some: Any) -> list[Any]:
            rest = iter(some)
            return [
                a if is_static(c) else next(rest) for a, c in zip(p.args, p.inputs, strict=True)
            ]

        stacked = jax.vmap(lambda row: moving(p.unpack(row)))(points)
        body = lambda carry, x: (carry, loss(whole(carry)) + loss(whole(x)))
        return jnp.sum(jax.lax.scan(body, moving(p.unpack(point)), stacked)[1])

    return jax.grad(total, (0, 1))(point, points)


def _scalar(p: Problem, args: Any) -> Any:
    y = p.out_dense.vector(dense(p.call(*args)))
    return jnp.sum(p.probe * y * (1 + 0.5 * y))


def _structural_cotangent(p: Problem, out: Any) -> Any:
    """The probe as a structural cotangent of the output: what a loss of the array hands back."""
    _, pull = jax.vjp(lambda o: p.out_dense.vector(dense(o)), out)
    return pull(p.probe)[0]


def _rule_twice(p: Problem, point: Any) -> tuple[Any, Any]:
    """`rrule` in hand: its trees and dtypes are those of the arguments, and it is pure."""
    results = []
    for _ in range(2):
        args = p.unpack(point)
        out, pullback = registry.rrule(p.op, *args, **p.static)
        bars = pullback(_structural_cotangent(p, out))
        if len(bars) != len(args):
            raise ValueError(f"the pullback gives {len(bars)} cotangents for {len(args)} arguments")
        for i, (a, bar) in enumerate(zip(args, bars, strict=True)):
            _check_tangent(p.op.names_for(len(args))[i], a, bar)
        duals = [c.dual(b) for c, b in zip(p.inputs, bars, strict=True) if c.size]
        results.append(jnp.concatenate(duals or [jnp.zeros(0)]))
    return results[0], results[1]


def _check_tangent(name: str, arg: Any, bar: Any) -> None:
    if callable(arg) or isinstance(arg, str):
        return
    want, got = arrays.tangent_type(arg), arrays.tangent_type(bar)
    given = [(np.shape(v), jnp.result_type(v)) for v in jax.tree.leaves(bar)]
    if want.tree != got.tree or list(want.leaves) != given:
        raise ValueError(f"the cotangent of {name} has type {given}, expected {want}")


def _frule(p: Problem, point: Any) -> Any:
    args = tuple(p.unpack(point))
    parts = p.parts(p.direction)
    tangents = [
        c.tangent(t) if not callable(a) else None
        for c, t, a in zip(p.inputs, parts, args, strict=True)
    ]
    if any(t is None for t in tangents):
        return jax.jvp(p.array, (point,), (p.direction,))[1]
    run = lambda *a: registry.frule(p.op, a, tuple(tangents), **p.static)
    out, out_dot = run(*args)
    return jax.jvp(lambda o: p.out_dense.vector(dense(o)), (out,), (out_dot,))[1]


def _natural(p: Problem, point: Any) -> Values:
    """`tj.vjp` on natural cotangents, dense and factored, paired with a tangent."""
    args = p.unpack(point)
    fixed = [i for i, a in enumerate(args) if i not in p.moving]
    some = [args[i] for i in p.moving]

    def f(*moving: Any) -> Any:
        rest = iter(moving)
        return p.call(*(args[i] if i in fixed else next(rest) for i in range(len(args))))

    out, pullback = transforms.vjp(f, *some)
    out_bar = p.out_dense.cotangent(p.probe)
    shaped = jax.tree.structure(out, is_leaf=arrays.is_structured)
    got: Values = {
        ("natural", "paired"): _paired(
            p, some, pullback(shaped.unflatten(jax.tree.leaves(out_bar)))
        )
    }
    if shaped.num_leaves == 1 and jnp.ndim(jax.tree.leaves(out_bar)[0]) == 2:
        outer = _outer(jax.tree.leaves(out_bar)[0])
        got["natural", "paired outer"] = _paired(p, some, pullback(shaped.unflatten([outer])))
    return got


def _outer(like: Any) -> arrays.Outer:
    """A factored natural cotangent with the shape and dtype of a matrix."""
    return arrays.Outer(*(random(n, 30 + i).astype(like.dtype) for i, n in enumerate(like.shape)))


def outer_probe(p: Problem) -> Any:
    """The dual coordinates of the factored cotangent, for outputs that are one matrix."""
    like = jax.tree.leaves(dense(p.out))[0]
    return p.out_dense.dual(jax.tree.unflatten(p.out_dense.treedef, [_outer(like).to_dense()]))


def _paired(p: Problem, args: list[Any], bars: Any) -> Any:
    """`Σ ⟨natural cotangent, J ẋ⟩` per argument, through the arrays."""
    pairs = []
    parts = [p.parts(p.direction)[i] for i in p.moving]
    for i, a, bar, part in zip(p.moving, args, bars, parts, strict=True):
        tangent = p.inputs[i].tangent(part)
        moved = jax.jvp(lambda x: dense(x), (a,), (tangent,))[1]
        terms = [
            jnp.real(jnp.sum(b * m))
            for b, m in zip(*map(_inexact_leaves, (dense(bar), moved)), strict=True)
        ]
        pairs.append(sum(terms[1:], terms[0]))
    return jnp.stack(pairs)


def _inexact_leaves(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if moves(leaf)]
