"""JAX's own functions in a traced program, if the equation shows how they were called.

Static flags (`upper`, `full_matrices`, `mode`) are not operands of a call. This module handles a
function only if no flag changes its value for the given types, or if the number and shapes of the
results show the flag. `lift` enters every other function, whose primitives keep the structure or
densify. So `cholesky`, `cho_solve`, `tril` and `norm` need no entry.

    jnp.linalg.qr(a, mode="r")  # one result: the other modes have two

Sharp edge: `expm`, `sqrtm`, `lu_factor` and `lstsq` densify. Write `tanjax.scipy.linalg.expm`.
"""

from __future__ import annotations

from types import NotImplementedType
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import _compat, operations as ops
from tanjax._jaxpr_types import JaxEquation
from tanjax._typing import AnyArray, Function, Matrix, SquareMatrix
from tanjax.arrays import BlockDiagonal, is_hermitian, is_structured
from tanjax.jaxprs import Kind, kind_of, nested_jaxprs

from .. import _as_numpy as as_numpy

# Results of an equation, if the types of its operands allow them.
Results: TypeAlias = list[PyTree] | NotImplementedType


def named(eqn: JaxEquation, operands: list[PyTree]) -> Results:
    """Return the results of one of JAX's functions by an operation, or `NotImplemented`."""
    run = _FUNCTIONS.get(_compat.jax_function(nested_jaxprs(eqn)[0]) or "")
    if run is None or not all(is_matrix(x) for x in operands if is_structured(x)):
        return NotImplemented
    operands = [jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in operands]  # constants
    out = run(eqn, *operands)
    if out is NotImplemented:
        return NotImplemented
    out = list(out) if isinstance(out, tuple | list) else [out]
    return out if as_traced(out, eqn) else NotImplemented


def as_traced(out: list[PyTree], eqn: JaxEquation) -> bool:
    """True if results have the shapes and dtypes that the next equations were traced for."""
    kinds = [(tuple(x.shape), x.dtype) for x in out]
    return kinds == [(tuple(v.aval.shape), v.aval.dtype) for v in eqn.outvars]


def is_matrix(x: AnyArray) -> bool:
    """True if an array has two axes."""
    return len(x.shape) == 2


def _operation(run: Function) -> Function:
    """Handle a function without flags that change its value."""
    return lambda eqn, *operands: run(*operands)


def _of_hermitian(run: Function) -> Function:
    """Handle a function that may read one triangle: for a Hermitian type both are equal."""
    return lambda eqn, a, *rest: run(a, *rest) if is_hermitian(a) else NotImplemented


def _of_matrices(run: Function) -> Function:
    """Handle a function of several arrays, for matrices alone."""

    def checked(eqn: JaxEquation, *operands: PyTree) -> PyTree:
        return run(*operands) if all(map(is_matrix, operands)) else NotImplemented

    return checked


def _eigh(eqn: JaxEquation, a: SquareMatrix, *rest: PyTree) -> PyTree:
    """Return ascending eigenvalues, and vectors in their order if the call has two results."""
    if rest or not is_hermitian(a):
        return NotImplemented
    return as_numpy.eigh(a) if len(eqn.outvars) == 2 else ops.eigvalsh(a)


def _runs_svd(eqn: JaxEquation) -> bool:
    """True if a call factorises the matrix unchanged: `hermitian=True` reads a triangle."""
    inner = [e for body in nested_jaxprs(eqn) for e in body.eqns]
    return eqn.primitive.name == "svd" or any(map(_runs_svd, inner))


def _svd(eqn: JaxEquation, a: Matrix) -> PyTree:
    """Return descending singular values, and vectors if the call has three results."""
    if not (is_hermitian(a) or _runs_svd(eqn)):
        return NotImplemented
    if len(eqn.outvars) == 1:
        return as_numpy.singular_values(a)
    full = all(v.aval.shape[0] == v.aval.shape[1] for v in (eqn.outvars[0], eqn.outvars[2]))
    return as_numpy.svd(a, full)


def _qr(eqn: JaxEquation, a: Matrix) -> PyTree:
    """Return both factors, or the second alone; the shape of the first shows the mode."""
    first = tuple(eqn.outvars[0].aval.shape)
    if len(eqn.outvars) == 1:
        return ops.qr(a, "r")
    if len(eqn.outvars[1].aval.shape) != 2:  # `mode="raw"`
        return NotImplemented
    return ops.qr(a, "complete" if first[1] == a.shape[0] else "reduced")


def _lu(eqn: JaxEquation, a: Matrix) -> PyTree:
    """Return `(P, L, U)`, or `(P @ L, U)` if the call has two results."""
    if a.shape[0] != a.shape[1]:
        return NotImplemented
    p, lower, upper = ops.lu(a)
    return (p, lower, upper) if len(eqn.outvars) == 3 else (ops.matmul(p, lower), upper)


def _pinv(eqn: JaxEquation, a: Matrix, rtol: PyTree = None) -> PyTree:
    """Return `pinv` relative to the largest singular value of the whole matrix."""
    inner = [e for body in nested_jaxprs(eqn) for e in body.eqns]
    if kind_of(eqn) is Kind.JVP_RULE and len(inner[0].invars) != len(eqn.invars):
        return NotImplemented  # before JAX 0.12 `rtol` is a constant inside of the call
    known = rtol is None or (jnp.ndim(rtol) == 0 and not isinstance(rtol, jax.core.Tracer))
    if not (known and (is_hermitian(a) or _runs_svd(eqn)) and as_numpy.has_one_rank(a)):
        return NotImplemented
    return ops.pinv(a, None if rtol is None else float(rtol))


def _diagonal(eqn: JaxEquation, a: Matrix) -> PyTree:
    """Return the main diagonal: a square matrix has no other one of that length."""
    is_main = tuple(eqn.outvars[0].aval.shape) == (a.shape[0],) and a.shape[0] == a.shape[1]
    return ops.diagonal(a) if is_main else NotImplemented


# By the name of JAX's function, which SciPy's often wrap.
_FUNCTIONS: dict[str, Function] = {
    "solve": _operation(ops.solve),
    "_solve": _of_hermitian(ops.solve),
    "inv": _operation(ops.inv),
    "det": _operation(ops.det),
    "slogdet": _operation(ops.slogdet),
    "kron": _of_matrices(ops.kron),
    "block_diag": _of_matrices(BlockDiagonal),
    "diagonal": _diagonal,
    "_diag": _diagonal,
    **dict.fromkeys(("eigh", "_eigh", "eigvalsh"), _eigh),
    **dict.fromkeys(("svd", "_svd"), _svd),
    **dict.fromkeys(("qr", "_qr"), _qr),
    "lu": _lu,
    **dict.fromkeys(("pinv", "_pinv"), _pinv),
}
