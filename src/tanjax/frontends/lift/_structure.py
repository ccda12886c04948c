"""An interpreter of jaxprs of plain JAX code, for structured arrays.

An equation without structured operands runs as in JAX. Others run an operation that keeps the
structure, if one exists for the primitive or for the JAX function of the call. `lift` enters all
other calls. Loops and branches keep a structured carry if the body returns it with the same type.
Everything else gets dense arrays; `tj.densify` decides whether that warns. This includes functions
with their own derivative (`jax.custom_jvp`, `jax.custom_vjp`), which must not lose it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax import _compat, operations as ops
from tanjax._jaxpr_types import JaxEquation, Readable
from tanjax._typing import DType, Function, Shape
from tanjax.arrays import (
    AbstractArray,
    densified,
    is_hermitian,
    is_real,
    is_structured,
)
from tanjax.jaxprs import LOOPS, Branches, Kind, Loop, Walk, kind_of

from ._entrywise import HANDLERS as ENTRYWISE, Kept
from ._functions import Results, as_traced, named
from ._masks import made, selected, symbol
from ._triangles import triangle


def _known(eqn: JaxEquation, operands: list[PyTree]) -> AbstractContextManager[None]:
    """Convert a known number while tracing: bounds of `jnp.clip` decide which zeros stay."""
    number = eqn.primitive.name == "convert_element_type" and jnp.ndim(operands[0]) == 0
    if number and not isinstance(operands[0], jax.core.Tracer):
        return jax.ensure_compile_time_eval()
    return contextlib.nullcontext()


def _all_dense(eqn: JaxEquation, operands: list[PyTree]) -> list[PyTree]:
    hint = "write this step with one of tanjax's operations"
    name = f"lift: {eqn.primitive.name}"
    return [densified(x, name, hint) if is_structured(x) else x for x in operands]


# -- loops and branches ----------------------------------------------------------------------------


def _array(operand: PyTree) -> PyTree:
    """Convert a literal to an array, which a loop can carry."""
    return operand if is_structured(operand) else jnp.asarray(operand)


def _settled(step: Function, carry: list[PyTree], name: str) -> list[PyTree]:
    """Densify the parts of a carry that change their type in a step."""
    for _ in range(len(carry) + 1):
        new = jax.eval_shape(step, carry)
        same = [_kind(a) == _kind(b) for a, b in zip(carry, new, strict=True)]
        if all(same):
            break
        hint = "give back the carry as the type in which it came"
        carry = [
            c if ok or not is_structured(c) else densified(c, name, hint)
            for c, ok in zip(carry, same, strict=True)
        ]
    return carry


def _kind(x: PyTree) -> tuple[PyTreeDef, list[tuple[Shape, DType]]]:
    leaves, tree = jax.tree.flatten(x)
    return tree, [(jnp.shape(v), jnp.result_type(v)) for v in leaves]


def _dense_where_changed(new: list[PyTree], carry: list[PyTree], name: str) -> list[PyTree]:
    """Return the results of a step, densified where the carry is dense."""
    hint = "start with a structured carry"
    return [
        densified(n, name, hint) if is_structured(n) and not is_structured(c) else n
        for n, c in zip(new, carry, strict=True)
    ]


# -- primitives ------------------------------------------------------------------------------------


def _dot_general(eqn: JaxEquation, a: PyTree, b: PyTree) -> PyTree:
    (contract_a, contract_b), (batch_a, _) = eqn.params["dimension_numbers"]
    if batch_a or max(a.ndim, b.ndim) > 2:
        return NotImplemented
    if len(contract_a) == a.ndim == b.ndim == 2:
        same = tuple(contract_a) == tuple(contract_b)
        return ops.pairing(a, b if same else ops.transpose(b))
    if len(contract_a) != 1:
        return NotImplemented
    if a.ndim == 2 and contract_a[0] == 0:
        a = ops.transpose(a)
    if b.ndim == 2 and contract_b[0] == 1:
        b = ops.transpose(b)
    return ops.matmul(a, b)


def _transpose(eqn: JaxEquation, a: PyTree) -> PyTree:
    if tuple(eqn.params["permutation"]) != (1, 0):
        return NotImplemented
    return a if is_hermitian(a) and is_real(a) else ops.transpose(a)


def _add(eqn: JaxEquation, a: PyTree, b: PyTree) -> PyTree:
    """Return a sum; JAX adds a matrix and its transpose before `cholesky` and `eigh`."""
    return ops.multiply(a, 2) if a is b else ops.add(a, b)


def _triangular_solve(eqn: JaxEquation, a: PyTree, b: PyTree) -> PyTree:
    p = eqn.params
    t = triangle(a, p["lower"], p["unit_diagonal"]) if is_structured(a) and a.ndim == 2 else None
    if t is None or is_structured(b) or b.ndim != 2:
        return NotImplemented
    t = ops.transpose(t) if p["transpose_a"] == p["left_side"] else t
    t = t.conj() if p["conjugate_a"] else t
    return ops.solve(t, b) if p["left_side"] else ops.solve(t, b.T).T


def _reduce_sum(eqn: JaxEquation, a: PyTree) -> PyTree:
    axes = eqn.params["axes"]
    if len(axes) == a.ndim:
        return ops.sum(a)
    return ops.sum(a, axis=axes[0]) if len(axes) == 1 else NotImplemented


def _same_type(eqn: JaxEquation, a: PyTree) -> Kept:
    dtype = eqn.params.get("new_dtype", a.dtype)
    if dtype == a.dtype:
        return a
    return a.astype(dtype) if isinstance(a, AbstractArray) else NotImplemented


_KEEPING: dict[str, Function] = {
    "dot_general": _dot_general,
    "transpose": _transpose,
    "reduce_sum": _reduce_sum,
    "convert_element_type": _same_type,
    "copy": _same_type,
    "copy_p": _same_type,
    "stop_gradient": lambda eqn, a: jax.tree.map(lax.stop_gradient, a),
    "conj": lambda eqn, a: a.conj() if isinstance(a, AbstractArray) else NotImplemented,
    "neg": lambda eqn, a: ops.negative(a),
    "add": _add,
    "add_any": _add,
    "sub": lambda eqn, a, b: ops.subtract(a, b),
    "mul": lambda eqn, a, b: ops.multiply(a, b),
    "div": lambda eqn, a, b: ops.divide(a, b) if not is_structured(b) else NotImplemented,
    "cholesky": lambda eqn, a: ops.cholesky(a) if is_hermitian(a) else NotImplemented,
    "triangular_solve": _triangular_solve,
    **ENTRYWISE,
}


# -- the walk ------------------------------------------------------------------------------------


class _Structured(Walk[PyTree]):
    """The meaning of equations on structured arrays."""

    enters = (Kind.JIT, Kind.CHECKPOINT, *LOOPS, Kind.BRANCH)

    def equation(self, eqn: JaxEquation, values: list[PyTree]) -> list[PyTree]:
        operands = list(values)
        if any(map(is_structured, operands)):
            kept = self.kept(eqn, operands)
            if kept is not NotImplemented:
                return list(kept)
            operands = _all_dense(eqn, operands)
        found = symbol(eqn, operands, lambda: _compat.bind(eqn, list(map(made, operands)))[0])
        if found is not None:
            return [found]
        operands = list(map(made, operands))
        with _known(eqn, operands):
            return _compat.bind(eqn, operands)

    def kept(self, eqn: JaxEquation, operands: list[PyTree]) -> Results:
        """Return the results of an equation with structured operands, or `NotImplemented`."""
        name = eqn.primitive.name
        if name == "select_n" and len(operands) == 3:
            kept = selected(*operands)
            return NotImplemented if kept is None else [kept]
        kind = kind_of(eqn)
        if kind in (Kind.JIT, Kind.JVP_RULE):  # of JAX's own functions
            found = named(eqn, list(map(made, operands)))
            if found is not NotImplemented:
                return found
        is_call = kind in (Kind.JIT, Kind.CHECKPOINT)
        return self.meaning(eqn, operands if is_call else list(map(made, operands)))

    def leaf(self, eqn: JaxEquation, values: list[PyTree]) -> Results:
        handler = _KEEPING.get(eqn.primitive.name)
        result = NotImplemented if handler is None else handler(eqn, *values)
        kept = result is not NotImplemented and as_traced([result], eqn)
        return [result] if kept else NotImplemented

    def call(self, eqn: JaxEquation, program: Readable, values: list[PyTree]) -> Results:
        return interpret(program, values)

    def scan(self, eqn: JaxEquation, loop: Loop) -> Results:
        loop = loop.over(_array)
        rows, count = loop.rows, len(loop.carry)
        if any(map(is_structured, rows)):
            return NotImplemented  # of more than two dimensions

        def step(carry: list[PyTree], row: list[PyTree]) -> tuple[list[PyTree], list[PyTree]]:
            out = interpret(loop.body, [*loop.fixed, *carry, *row])
            ys = [
                densified(y, "lift: scan", "return a vector") if is_structured(y) else y
                for y in out[count:]
            ]
            return _dense_where_changed(out[:count], carry, "lift: scan"), ys

        first = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in rows]
        carry = _settled(lambda c: jax.eval_shape(step, c, first)[0], loop.carry, "lift: scan")
        carry, ys = loop.scan(step, carry, rows)
        return [*carry, *ys]

    def while_(self, eqn: JaxEquation, loop: Loop) -> Results:
        loop = loop.over(_array)

        def step(carry: list[PyTree]) -> list[PyTree]:
            new = interpret(loop.body, [*loop.fixed, *carry])
            return _dense_where_changed(new, carry, "lift: while")

        carry = _settled(step, loop.carry, "lift: while")
        return lax.while_loop(lambda c: interpret(loop.test, [*loop.tested, *c])[0], step, carry)

    def cond(self, eqn: JaxEquation, branches: Branches) -> Results:
        runs = [functools.partial(interpret, program) for program in branches.programs]
        shapes = [list(map(_kind, jax.eval_shape(run, branches.operands))) for run in runs]
        same = [all(kind == kinds[0] for kind in kinds) for kinds in zip(*shapes, strict=True)]

        def agreeing(run: Function) -> Function:
            hint = "let all branches return the same type"
            return lambda operands: [
                x if ok or not is_structured(x) else densified(x, "lift: cond", hint)
                for x, ok in zip(run(operands), same, strict=True)
            ]

        return lax.switch(branches.index, list(map(agreeing, runs)), branches.operands)


def interpret(program: Readable, args: Sequence[PyTree]) -> list[PyTree]:
    """Return the results of a jaxpr on arguments, some of them structured arrays."""
    return list(map(made, _Structured().run(program, args)))
