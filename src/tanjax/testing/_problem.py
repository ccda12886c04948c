"""A call of an operation in stored coordinates, beside its definition.

A rule is right if the operation and its derivatives are those of the definition. A `Problem` holds
both as functions of one real vector: `array` is the operation as users call it, `defined` the
generic implementation (or the author's `reference`) on dense arrays. `reference_answers`
differentiates the definition by plain JAX AD, without any rule.

Sharp edge: omitted arguments take part with their defaults. So a rule must give one cotangent per
parameter, even if the caller omits some.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays, registry
from tanjax._typing import Function, Vector

from ._coordinates import Coordinates, canonical, dense, in_hand, moves, random


def bind(
    op: registry.Operation, args: tuple[PyTree, ...], keywords: dict[str, PyTree]
) -> tuple[tuple[PyTree, ...], dict[str, PyTree]]:
    """Return arrays by position and static arguments by name, with defaults for omitted ones."""
    bound = inspect.signature(op).bind(*args, **keywords)
    bound.apply_defaults()
    static = {k: v for k, v in bound.arguments.items() if k in op.static}
    if op.variadic:
        return tuple(bound.arguments[op.parameters[-1]]), static
    return tuple(bound.arguments[k] for k in op.parameters), static


def definition_of(op: registry.Operation, reference: PyTree, static: dict[str, PyTree]) -> Function:
    """Return the generic implementation, or the author's, with its static arguments bound."""
    if reference is None:
        return lambda *a: op.primal(*a, **static)
    takes = inspect.signature(reference).parameters.values()
    every = any(p.kind is p.VAR_KEYWORD for p in takes)
    names = {p.name for p in takes if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    chosen = {k: v for k, v in static.items() if every or k in names}
    return lambda *a: reference(*a, **chosen)


class Problem:
    """A call of an operation, in coordinates."""

    def __init__(
        self,
        op: registry.Operation,
        args: Sequence[PyTree],
        static: dict[str, PyTree],
        reference: PyTree = None,
    ) -> None:
        self.op = op
        self.args, self.static = bind(op, tuple(args), dict(static))
        self.reference = reference
        self.definition = definition_of(op, reference, self.static)
        self.names = op.names_for(len(self.args))
        self.inputs = [Coordinates(a) for a in self.args]
        self.ends = np.cumsum([0, *(c.size for c in self.inputs)])
        self.size = int(self.ends[-1])
        self.moving = [i for i, c in enumerate(self.inputs) if c.size]
        self.point = self.vector(self.args)
        out = self._traced_output()
        self.out_template = out
        self.out_fields, self.out_dense = Coordinates(out), Coordinates(jax.eval_shape(dense, out))
        self.direction, self.probe = random(self.size, 1), random(self.out_dense.size, 2)

    def _traced_output(self) -> PyTree:
        """Return shapes of the output; leaves without coordinates as zeros."""
        if self.size == 0:
            return jax.tree.map(lambda x: x if moves(x) else np.asarray(x), self.call(*self.args))
        out = jax.eval_shape(lambda v: self.call(*self.unpack(v)), self.point)
        return jax.tree.map(lambda x: x if moves(x) else np.zeros(x.shape, x.dtype), out)

    def nearby(self, count: int) -> PyTree:
        """Return points close to the inputs, with the storage invariants kept."""
        rows = []
        for k in range(count):
            moved = self.point * (1 + 0.03 * random(self.size, 20 + k))
            rows.append(self.vector([canonical(a) for a in self.unpack(moved)]))
        return np.stack(rows)

    def vector(self, args: Sequence[PyTree]) -> PyTree:
        """Return the coordinates of arguments."""
        parts = [c.vector(a) for c, a in zip(self.inputs, args, strict=True)]
        xp: PyTree = np if in_hand(*parts) else jnp
        return xp.concatenate(parts or [np.zeros(0)])

    def parts(self, vector: PyTree) -> list[PyTree]:
        """Return the coordinates of each argument."""
        return [vector[..., a:b] for a, b in zip(self.ends, self.ends[1:], strict=False)]

    def part(self, i: int) -> slice:
        """Return the slice of the coordinates of one argument."""
        return slice(int(self.ends[i]), int(self.ends[i + 1]))

    def unpack(self, vector: PyTree) -> list[PyTree]:
        """Return the arguments with these coordinates."""
        pairs = zip(self.inputs, self.parts(vector), self.args, strict=True)
        return [c.tree(p) if c.size else a for c, p, a in pairs]

    def whole(self, some: PyTree) -> list[PyTree]:
        """Return all arguments, with the moving ones replaced."""
        rest = iter(some)
        return [next(rest) if i in self.moving else a for i, a in enumerate(self.args)]

    def blocks(self) -> list[tuple[str, str, slice]]:
        """Return every leaf of every argument: the argument's name, the leaf's, its coordinates."""
        found = []
        for name, c, start in zip(self.names, self.inputs, self.ends[:-1], strict=True):
            for b in c.blocks:
                if b is not None and b.where.stop > b.where.start:
                    where = slice(int(start) + b.where.start, int(start) + b.where.stop)
                    found.append((name, f"{name}{b.name}", where))
        return found

    # -- the function under test and its two references ----------------------------------------

    def call(self, *args: PyTree) -> PyTree:
        """Call the operation."""
        return self.op(*args, **self.static)

    def read(self, out: PyTree) -> Vector:
        """Return the coordinates of an output, as dense arrays."""
        return self.out_dense.vector(dense(out))

    def array(self, vector: PyTree) -> PyTree:
        """Call the operation, and read it through its dense arrays."""
        return self.read(self.call(*self.unpack(vector)))

    def kept(self, vector: PyTree) -> Vector:
        """Call the operation on arguments whose storage invariant is enforced again."""
        return self.read(self.call(*map(canonical, self.unpack(vector))))

    def defined(self, vector: PyTree) -> PyTree:
        """Call the literal definition: the generic implementation on dense arguments."""
        return self.read(self.definition(*map(dense, self.unpack(vector))))

    def stored(self, vector: PyTree) -> PyTree:
        """Call the operation, and read it through the fields of its output."""
        return self.out_fields.vector(self.call(*self.unpack(vector)))

    def implemented(self, vector: PyTree) -> PyTree:
        """Call the undecorated implementation, and read it through the fields of its output."""
        args = map(canonical, self.unpack(vector))
        return self.out_fields.vector(self.op.primal(*args, **self.static))

    def curved(self, y: PyTree) -> PyTree:
        """Return a scalar whose gradient depends on the value."""
        return jnp.sum(self.probe * y * (1 + 0.5 * y))

    def loss(self, f: Function) -> Function:
        """Return a curved scalar of a function of vectors."""
        return lambda vector: self.curved(f(vector))

    @property
    def structured_outputs(self) -> list[PyTree]:
        """Return the structured arrays of the output, as templates."""
        leaves = jax.tree.leaves(self.out_template, is_leaf=arrays.is_structured)
        return [x for x in leaves if arrays.is_structured(x)]

    @property
    def reads_fields(self) -> bool:
        """True if the output has fields that a loss could read past the array."""
        return bool(self.structured_outputs) and self.out_fields.size > 0


ROUNDED = 4  # how often the definition runs again with inputs changed in the last bits


def reference_answers(p: Problem, points: PyTree, compiled: Function) -> dict[str, PyTree]:
    """Return the derivatives of the definition, by plain JAX AD without any rule.

    One tangent map serves all: at the point, at the `points` nearby with one moved argument, and
    at the point with other rounding errors. Gradients and Hessians of the loss follow from it in
    NumPy.
    """
    point = np.asarray(p.point)
    rows = [point, *np.asarray(points)]
    for i in p.moving:
        for near in np.asarray(points):
            rows.append(point.copy())
            rows[-1][p.part(i)] = near[p.part(i)]
    rows += [point * (1 + 2.0**-50 * random(p.size, 60 + k)) for k in range(ROUNDED)]

    def at(row: PyTree) -> PyTree:
        both = lambda x: (p.defined(x), jax.jacfwd(p.defined)(x))
        return jax.jvp(both, (row,), (p.direction,))

    (y, j), (_, turned) = compiled(jax.vmap(at), np.stack(rows))
    y, j, turned = map(_without_noise, (y, j, turned))
    weights, v, few = np.asarray(p.probe), np.asarray(p.direction), 1 + len(points)
    slope = np.einsum("ro,rox->rx", weights * (1 + y), j)
    want = {
        "value": y[0],
        "values": y[1:few],
        "jacobian": j[0],
        "jacobians": j[1:few],
        "pushed": j[0] @ v,
        "pulled": weights @ j[0],
        "gradient": slope[0],
        "gradients": slope[1:few],
        "hessian": (weights * (j[0] @ v)) @ j[0] + (weights * (1 + y[0])) @ turned[0],
    }
    for k, i in enumerate(p.moving):
        here = slice(few + k * len(points), few + (k + 1) * len(points))
        want[f"losses {i}"] = np.sum(weights * y[here] * (1 + 0.5 * y[here]), axis=1)
        want[f"gradients {i}"] = slope[here, p.part(i)]
    if p.reads_fields:
        both = lambda x: (p.implemented(x), jax.jacfwd(p.implemented)(x))
        want["stored"], want["stored jacobian"] = compiled(both, p.point)
    return want


def _without_noise(rows: PyTree) -> np.ndarray:
    """Set entries to zero that are zero up to rounding errors: log |det Q| is 1e-16, and means 0.

    A noise entry changes by its own size if the inputs change in the last bits; any other entry
    changes by about as little as they do.
    """
    rows = np.array(rows)
    noise = np.max(np.abs(rows[-ROUNDED:] - rows[0]), axis=0, initial=0.0)
    return np.where(np.abs(rows) <= 64 * noise, 0.0, rows)
