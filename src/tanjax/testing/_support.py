"""The behaviour of every operation on every array type, measured on the library.

Each cell comes from a call: the implementation that the operation dispatches to, how it is
differentiated, and whether an argument densifies on the way (under the densify policy `"error"`).
Calls are traced, not run.

    python -m tanjax rules --markdown
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import arrays as types, operations as ops
from tanjax._errors import NoRuleError, ShapeError
from tanjax._typing import Function, Natural
from tanjax.arrays import densify, is_structured
from tanjax.registry import Operation

from ._algebra import DENSIFIES, REFUSED, algebra_samples

SQUARE = jnp.eye(4) + 1.0
VECTOR = jnp.arange(1.0, 5.0)


def hermitian(a: Natural) -> Natural:
    """Return the same type with Hermitian parts, where a type declares only that it has parts."""
    if isinstance(a, types.Kronecker):
        return types.Kronecker(*(f if is_structured(f) else types.Symmetric(f) for f in a.factors))
    return a


CALLS: list[tuple[str, Operation, Function, dict[str, PyTree]]] = [
    ("A @ dense", ops.matmul, lambda a: (a, SQUARE), {}),
    ("dense @ A", ops.matmul, lambda a: (SQUARE, a), {}),
    ("solve(A, dense)", ops.solve, lambda a: (a, SQUARE), {}),
    ("inv(A)", ops.inv, lambda a: (a,), {}),
    ("logdet(A)", ops.logdet, lambda a: (a,), {}),
    ("slogdet(A)", ops.slogdet, lambda a: (a,), {}),
    ("det(A)", ops.det, lambda a: (a,), {}),
    ("cholesky(A)", ops.cholesky, lambda a: (a,), {}),
    ("expm(A)", ops.expm, lambda a: (a,), {}),
    ("sqrtm(A)", ops.sqrtm, lambda a: (a,), {}),
    ("logm(A)", ops.logm, lambda a: (a,), {}),
    ("solve_sylvester(A, dense, dense)", ops.solve_sylvester, lambda a: (a, SQUARE, SQUARE), {}),
    ("solve_lyapunov(A, dense)", ops.solve_lyapunov, lambda a: (a, SQUARE), {}),
    ("quadratic_form(A, x)", ops.quadratic_form, lambda a: (a, VECTOR), {}),
    ("trace(A)", ops.trace, lambda a: (a,), {}),
    ("diagonal(A)", ops.diagonal, lambda a: (a,), {}),
    ("sum(A)", ops.sum, lambda a: (a,), {}),
    ("norm(A)", ops.norm, lambda a: (a,), {}),
    ("norm(A, 'nuc')", ops.norm, lambda a: (a,), {"ord": "nuc"}),
    ("norm(A, 1)", ops.norm, lambda a: (a,), {"ord": 1}),
    ("eigh(A)", ops.eigh, lambda a: (hermitian(a),), {}),
    ("eigvalsh(A)", ops.eigvalsh, lambda a: (hermitian(a),), {}),
    ("svd(A), thin", ops.svd, lambda a: (a,), {"full_matrices": False}),
    ("svd(A), values", ops.svd, lambda a: (a,), {"compute_uv": False}),
    ("qr(A)", ops.qr, lambda a: (a,), {}),
    ("lu(A)", ops.lu, lambda a: (a,), {}),
    ("pinv(A)", ops.pinv, lambda a: (a,), {}),
    ("lstsq(A, dense)", ops.lstsq, lambda a: (a, SQUARE), {}),
    ("solve_triangular(A, dense)", ops.solve_triangular, lambda a: (a, SQUARE), {}),
    ("inv_quad_logdet(A, x)", ops.inv_quad_logdet, lambda a: (a, VECTOR), {}),
    ("condition_number(A)", ops.condition_number, lambda a: (a,), {}),
    ("matrix_rank(A)", ops.matrix_rank, lambda a: (a,), {}),
    ("pairing(A, dense)", ops.pairing, lambda a: (a, SQUARE), {}),
    ("A.mT", ops.transpose, lambda a: (a,), {}),
    ("-A", ops.negative, lambda a: (a,), {}),
    ("scalar * A", ops.multiply, lambda a: (jnp.asarray(2.0), a), {}),
    ("A / scalar", ops.divide, lambda a: (a, jnp.asarray(2.0)), {}),
    ("A * dense", ops.multiply, lambda a: (a, SQUARE), {}),
    ("A + dense", ops.add, lambda a: (a, SQUARE), {}),
    ("A - dense", ops.subtract, lambda a: (a, SQUARE), {}),
    ("kron(A, dense)", ops.kron, lambda a: (a, SQUARE), {}),
]
INTRODUCTION = """\
# Support table

This page shows for each operation and type whether the structure is kept, and how the call is
differentiated. `python -m tanjax rules --markdown` generates it for real square matrices
(`Hermitian`: complex); without `--markdown` it lists every registration, those of your packs too.
The [closed algebra](algebra.md) covers two structured arguments.

The first line of a cell says how tanjax computes the value:

- own: an implementation for this type; shared: one for all types, which asks the type;
- **densifies**: tanjax converts the array to a dense one, under the policy of `tj.densify`;
- refused: `ShapeError`, because the type is not Hermitian or not triangular.

The second line says how the call is differentiated by `A`:

- rule: by a natural rule; AD: by AD of the implementation;
- none: nothing to differentiate (no fields, only indices, or a count as result);
- **densifies**: the value keeps the structure, its derivative does not.
"""


def becomes_dense(function: Function, *args: PyTree) -> bool:
    """True if tracing a call densifies an argument under a policy that reports it."""
    try:
        jax.eval_shape(function, *args)
    except NoRuleError:
        return True
    return False


def is_refused(function: Function, *args: PyTree) -> bool:
    """True if a call raises because of the type."""
    try:
        with densify("allow"):
            jax.eval_shape(function, *args)
    except ShapeError:
        return True
    return False


def value_of(op: Operation, args: tuple[PyTree, ...], statics: dict[str, PyTree]) -> str:
    """Return how the value of a call is computed."""
    if becomes_dense(functools.partial(op, **statics), *args):
        return DENSIFIES
    classes = tuple(type(x) if is_structured(x) else types.Dense for x in args)
    found = op.implementations.find(classes)
    structured = [type(a) for a in args if is_structured(a)]
    own = found is not None and any(t in found.signature for t in structured)
    return "own" if own else "shared"


def derivative_of(op: Operation, args: tuple[PyTree, ...], statics: dict[str, PyTree]) -> str:
    """Return how a call is differentiated in its structured argument."""
    place = next(i for i, a in enumerate(args) if is_structured(a))
    call = functools.partial(op, **statics)
    with densify("allow"):
        results = jax.tree.leaves(jax.eval_shape(call, *args))
    inexact = any(jnp.issubdtype(v.dtype, jnp.inexact) for v in jax.tree.leaves(args[place]))
    if not inexact or results[0].dtype.kind == "i":
        return "none"

    def pulled_back(a: PyTree) -> PyTree:
        out, pull = jax.vjp(lambda a: call(*args[:place], a, *args[place + 1 :]), a)
        return pull(out)

    if not becomes_dense(call, *args) and becomes_dense(pulled_back, args[place]):
        return DENSIFIES
    return "rule" if _uses_rule(op, args, statics) else "AD"


def _uses_rule(op: Operation, args: tuple[PyTree, ...], statics: dict[str, PyTree]) -> bool:
    """True if a natural rule differentiates a call, given the type of its result."""
    resolution = op.resolve(args, {"axis": None} if op is ops.sum else statics)
    rule = resolution.rule or resolution.push
    if rule is None:
        return False
    with densify("allow"):
        out = jax.eval_shape(functools.partial(op, **statics), *args)
    parts = [x for x in jax.tree.leaves(out, is_leaf=is_structured) if is_structured(x)]
    seen = all(kind.is_injective(x) for x in parts if (kind := types.array_type(x)))
    return seen or rule.hidden != "ad"


def support_markdown() -> str:
    """Return the page of the documentation."""
    samples, parts = algebra_samples(), [INTRODUCTION]
    kinds = [kind for kind in samples if kind != "c·Identity"]
    with densify("error"):
        for some in (kinds[:8], kinds[8:]):
            lines = [["", *some], ["---"] * (len(some) + 1)]
            for name, op, make, statics in CALLS:
                cells = [_cell(op, make(samples[kind]), statics) for kind in some]
                lines.append([f"`{name}`", *cells])
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    return "\n".join(parts)


def _cell(op: Operation, args: tuple[PyTree, ...], statics: dict[str, PyTree]) -> str:
    if is_refused(functools.partial(op, **statics), *args):
        return REFUSED
    return f"{value_of(op, args, statics)}<br>{derivative_of(op, args, statics)}"
