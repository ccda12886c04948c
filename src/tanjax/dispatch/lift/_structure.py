"""Plain JAX code on structured arrays: its jaxpr, interpreted with our operations.

An equation without a structured operand is JAX's own. One with some runs the operation that keeps
the structure where there is one for its primitive; calls are entered; everything else sees dense
arrays, as loudly as `tj.densify` says.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import PyTree

from tanjax._typing import Function
from tanjax.arrays import densified, is_structured

from .. import _operations as ops


def interpret(jaxpr: Any, consts: PyTree, args: list[PyTree]) -> list[PyTree]:
    """The results of a jaxpr on arguments of which some are structured arrays."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, args, strict=True))

    def read(v: PyTree) -> Any:
        return v.val if hasattr(v, "val") else known[v]

    for eqn in jaxpr.eqns:
        operands = list(map(read, eqn.invars))
        known.update(zip(eqn.outvars, _results(eqn, operands), strict=True))
    return list(map(read, jaxpr.outvars))


def _results(eqn: Any, operands: list[PyTree]) -> list[PyTree]:
    if any(map(is_structured, operands)):
        for key in ("jaxpr", "call_jaxpr"):
            closed = eqn.params.get(key)
            if closed is not None and eqn.primitive.name in _CALLS:
                inner = getattr(closed, "jaxpr", closed)
                return interpret(inner, getattr(closed, "consts", ()), operands)
        handler = _KEEPING.get(eqn.primitive.name)
        kept = NotImplemented if handler is None else handler(eqn, *operands)
        if kept is not NotImplemented:
            return [kept]
        hint = "write this step with one of tanjax's operations"
        name = f"lift: {eqn.primitive.name}"
        operands = [densified(x, name, hint) if is_structured(x) else x for x in operands]
    out = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]


_CALLS = ("pjit", "jit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat2")


def _dot_general(eqn: Any, a: PyTree, b: PyTree) -> PyTree:
    (contract_a, contract_b), (batch_a, _) = eqn.params["dimension_numbers"]
    if batch_a or len(contract_a) != 1 or max(a.ndim, b.ndim) > 2:
        return NotImplemented
    if a.ndim == 2 and contract_a[0] == 0:
        a = ops.transpose(a)
    if b.ndim == 2 and contract_b[0] == 1:
        b = ops.transpose(b)
    return ops.matmul(a, b)


def _transpose(eqn: Any, a: PyTree) -> PyTree:
    return ops.transpose(a) if tuple(eqn.params["permutation"]) == (1, 0) else NotImplemented


def _reduce_sum(eqn: Any, a: PyTree) -> PyTree:
    axes = eqn.params["axes"]
    if len(axes) == a.ndim:
        return ops.sum(a)
    return ops.sum(a, axis=axes[0]) if len(axes) == 1 else NotImplemented


def _same_type(eqn: Any, a: PyTree) -> Any:
    return a if eqn.params.get("new_dtype", a.dtype) == a.dtype else NotImplemented


_KEEPING: dict[str, Function] = {
    "dot_general": _dot_general,
    "transpose": _transpose,
    "reduce_sum": _reduce_sum,
    "convert_element_type": _same_type,
    "copy": _same_type,
    "copy_p": _same_type,
    "neg": lambda eqn, a: ops.negative(a),
    "add": lambda eqn, a, b: ops.add(a, b),
    "add_any": lambda eqn, a, b: ops.add(a, b),
    "sub": lambda eqn, a, b: ops.subtract(a, b),
    "mul": lambda eqn, a, b: ops.multiply(a, b),
    "div": lambda eqn, a, b: ops.divide(a, b) if not is_structured(b) else NotImplemented,
    "cholesky": lambda eqn, a: ops.cholesky(a),
}
