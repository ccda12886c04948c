"""JAX's own functions in a traced program, where the equation shows how they were called.

Static flags (`upper`, `full_matrices`, `mode`) are no operands of a call. A function is served here
only if no flag changes its value for the types at hand, or if the number and shapes of the results
show the flag. Every other function is entered, and its primitives keep the structure or densify:
`cholesky`, `cho_solve`, `tril` and `norm` need no entry.

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
from tanjax.jaxprs import nested_jaxprs

from .. import _as_numpy as as_numpy

# Results of an equation, where the types of its operands allow them.
Results: TypeAlias = list[PyTree] | NotImplementedType


def named(eqn: JaxEquation, operands: list[PyTree]) -> Results:
    """Return the results of a function of JAX's by an operation, or `NotImplemented`."""
    key = "call_jaxpr" if eqn.primitive.name == "custom_jvp_call" else "jaxpr"
    run = _FUNCTIONS.get(_compat.jax_function_of(eqn, key) or "")
    if run is None or not all(is_matrix(x) for x in operands if is_structured(x)):
        return NotImplemented
    operands = [jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in operands]  # constants
    out = run(eqn, *operands)
    if out is NotImplemented:
        return NotImplemented
    out = list(out) if isinstance(out, tuple | list) else [out]
    return out if as_traced(out, eqn) else NotImplemented


def as_traced(out: list[PyTree], eqn: JaxEquation) -> bool:
    """Return whether results have the shapes and dtypes that the next equations were traced for."""
    kinds = [(tuple(x.shape), x.dtype) for x in out]
    return kinds == [(tuple(v.aval.shape), v.aval.dtype) for v in eqn.outvars]


def is_matrix(x: AnyArray) -> bool:
    """Return whether an array has two axes."""
    return len(x.shape) == 2


def _operation(run: Function) -> Function:
    """A function without flags that change its value."""
    return lambda eqn, *operands: run(*operands)


def _of_hermitian(run: Function) -> Function:
    """A function that may read one triangle: both are one where the type is Hermitian."""
    return lambda eqn, a, *rest: run(a, *rest) if is_hermitian(a) else NotImplemented


def _of_matrices(run: Function) -> Function:
    """A function of several arrays, for matrices alone."""

    def checked(eqn: JaxEquation, *operands: PyTree) -> PyTree:
        return run(*operands) if all(map(is_matrix, operands)) else NotImplemented

    return checked


def _eigh(eqn: JaxEquation, a: SquareMatrix, *rest: PyTree) -> PyTree:
    """Ascending eigenvalues, and vectors in their order where the call has two results."""
    if rest or not is_hermitian(a):
        return NotImplemented
    return as_numpy.eigh(a) if len(eqn.outvars) == 2 else ops.eigvalsh(a)


def _runs_svd(eqn: JaxEquation) -> bool:
    """Return whether a call factorises the matrix as it is: `hermitian=True` reads a triangle."""
    inner = [e for body in nested_jaxprs(eqn) for e in body.eqns]
    return eqn.primitive.name == "svd" or any(map(_runs_svd, inner))


def _svd(eqn: JaxEquation, a: Matrix) -> PyTree:
    """Descending singular values, and vectors in their order where the call has three results."""
    if not (is_hermitian(a) or _runs_svd(eqn)):
        return NotImplemented
    if len(eqn.outvars) == 1:
        return as_numpy.singular_values(a)
    full = all(v.aval.shape[0] == v.aval.shape[1] for v in (eqn.outvars[0], eqn.outvars[2]))
    return as_numpy.svd(a, full)


def _qr(eqn: JaxEquation, a: Matrix) -> PyTree:
    """Both factors, or the second alone; the shape of the first tells the mode."""
    first = tuple(eqn.outvars[0].aval.shape)
    if len(eqn.outvars) == 1:
        return ops.qr(a, "r")
    if len(eqn.outvars[1].aval.shape) != 2:  # `mode="raw"`
        return NotImplemented
    return ops.qr(a, "complete" if first[1] == a.shape[0] else "reduced")


def _lu(eqn: JaxEquation, a: Matrix) -> PyTree:
    """Three factors; two where the rows of the first are permuted."""
    if a.shape[0] != a.shape[1]:
        return NotImplemented
    p, lower, upper = ops.lu(a)
    return (p, lower, upper) if len(eqn.outvars) == 3 else (ops.matmul(p, lower), upper)


def _pinv(eqn: JaxEquation, a: Matrix, rtol: PyTree = None) -> PyTree:
    """By the largest singular value of all, not of each factor or block."""
    known = rtol is None or (jnp.ndim(rtol) == 0 and not isinstance(rtol, jax.core.Tracer))
    if not (known and (is_hermitian(a) or _runs_svd(eqn)) and as_numpy.has_one_rank(a)):
        return NotImplemented
    return ops.pinv(a, None if rtol is None else float(rtol))


def _diagonal(eqn: JaxEquation, a: Matrix) -> PyTree:
    """The main diagonal: no other one of a square matrix is as long."""
    is_main = tuple(eqn.outvars[0].aval.shape) == (a.shape[0],) and a.shape[0] == a.shape[1]
    return ops.diagonal(a) if is_main else NotImplemented


# By the name of JAX's function, which SciPy's often hide.
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
