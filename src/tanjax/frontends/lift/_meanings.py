"""What functions of `jax.numpy.linalg` and `jax.scipy.linalg` mean for structured arrays.

Code that calls them expects what they promise for dense arrays: eigenvalues ascend and singular
values descend, there are as many of them as rows, and only one triangle is read. Our operations
promise less, so that they keep structure (values in the order of the structure, triples left out
that are zero). Here is what lies between.

Everything is `NotImplemented` where the types do not allow it: then the caller makes it dense.

Sharp edges. Factors that are unique up to signs or phases (`qr`, `svd`, `eigh`) may have others
than those of the dense matrix.
"""

from __future__ import annotations

from types import NotImplementedType
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree, Shaped

from tanjax import operations as ops
from tanjax._typing import AnyArray, Columns, Factor, Function, Matrix, SquareMatrix, Vector
from tanjax.arrays import (
    AbstractArray,
    BlockDiagonal,
    is_hermitian,
    is_structured,
)

from .. import _as_numpy as as_numpy
from ._triangles import cut, is_triangular, triangle

_Run = Function
# What the function of JAX's returns, where the types allow it.
Meant: TypeAlias = PyTree | NotImplementedType


def adjoint(a: Matrix) -> Matrix:
    """The conjugate transpose."""
    return ops.transpose(a.conj() if is_structured(a) else jnp.conj(a))


def hermitian(run: _Run) -> _Run:
    """An operation for matrices that their type says to be Hermitian: both triangles are one."""
    return lambda a, *rest: run(a, *rest) if is_hermitian(a) else NotImplemented


# -- systems ---------------------------------------------------------------------------------------


def solve_triangular(trans: int, lower: bool, unit_diagonal: bool) -> _Run:
    """A system with the triangle that is read, its transpose or its conjugate transpose."""

    def run(a: SquareMatrix, b: Columns) -> Meant:
        t = triangle(a, lower, unit_diagonal)
        if t is None:
            return NotImplemented
        return ops.solve((t, ops.transpose(t), adjoint(t))[trans], b)

    return run


def cho_solve(lower: bool) -> _Run:
    """Two systems, with a factor and its adjoint."""

    def run(c: SquareMatrix, b: Columns) -> Meant:
        t = triangle(c, lower)
        if t is None:
            return NotImplemented
        first, second = (t, adjoint(t)) if lower else (adjoint(t), t)
        return ops.solve(second, ops.solve(first, b))

    return run


def cholesky(upper: bool) -> _Run:
    """The factor in one triangle or the other."""
    return hermitian(lambda a: adjoint(ops.cholesky(a)) if upper else ops.cholesky(a))


# -- LU and QR -------------------------------------------------------------------------------------


def lu(permute_l: bool) -> _Run:
    """Three factors, or two of which the first is permuted."""

    def run(a: SquareMatrix) -> Meant:
        if a.shape[0] != a.shape[1]:
            return NotImplemented
        p, lower, upper = ops.lu(a)
        return (ops.matmul(p, lower), upper) if permute_l else (p, lower, upper)

    return run


def lu_factor(a: SquareMatrix) -> Meant:
    """Packed factors: of what is upper triangular itself, without exchanges of rows."""
    if not is_triangular(a, lower=False) or a.shape[0] != a.shape[1]:
        return NotImplemented
    return a, jnp.arange(a.shape[0], dtype=jnp.int32)


def lu_solve(trans: int) -> _Run:
    """Systems with packed factors of which the lower one has nothing but ones."""

    def run(packed: SquareMatrix, pivots: Vector, b: Columns) -> Meant:
        if not is_triangular(packed, lower=False) or is_structured(b):
            return NotImplemented
        order = lax.linalg.lu_pivots_to_permutation(pivots, packed.shape[0])
        if trans == 0:
            return ops.solve(packed, b[order])
        turned = ops.transpose(packed) if trans == 1 else adjoint(packed)
        return ops.solve(turned, b)[jnp.argsort(order)]

    return run


def qr(mode: str, *, r_alone: bool = False) -> _Run:
    """Both factors, or the second in a tuple (SciPy) or as it is (NumPy)."""

    def run(a: Matrix) -> Meant:
        result = ops.qr(a, mode)
        return [result] if r_alone else result

    return run


# -- spectra ---------------------------------------------------------------------------------------


def eigh(a: SquareMatrix) -> Meant:
    """Ascending eigenvalues, and eigenvectors in their order."""
    return as_numpy.eigh(a) if is_hermitian(a) else NotImplemented


def svd(full_matrices: bool) -> _Run:
    """Descending singular values, and vectors in their order."""
    return lambda a: as_numpy.svd(a, full_matrices)


def pinv(a: Matrix, rtol: Factor | None = None) -> Meant:
    """By the largest singular value of all, not of each factor or block."""
    if not as_numpy.has_one_rank(a) or not _is_known(rtol):
        return NotImplemented
    return ops.pinv(a, None if rtol is None else float(rtol))


def _is_known(rtol: Factor | None) -> bool:
    """Whether a tolerance, which is an operand of JAX's function, is one number of this program."""
    return rtol is None or (jnp.ndim(rtol) == 0 and not isinstance(rtol, jax.core.Tracer))


def lstsq(a: Matrix, b: Columns, rcond: Factor | None = None) -> Meant:
    """The solution, the squares of the residuals, the rank and the singular values."""
    if not as_numpy.has_one_rank(a) or is_structured(b) or not _is_known(rcond):
        return NotImplemented
    s = as_numpy.singular_values(a)
    eps = float(jnp.finfo(a.dtype).eps)
    rtol = eps * max(a.shape) if rcond is None else eps if rcond < 0 else float(rcond)
    rank = jnp.sum((s > 0) & (s >= rtol * jnp.max(s, initial=0)))
    x = ops.lstsq(a, b, rtol)
    left = (b - ops.matmul(a, x)).reshape(b.shape[0], -1)
    return x, jnp.sum(jnp.real(left * jnp.conj(left)), axis=0), rank, s


# -- matrix functions ------------------------------------------------------------------------------


def expm_of_triangle(a: SquareMatrix) -> Meant:
    """SciPy's flag says that nothing below the diagonal is read."""
    return ops.expm(a) if is_triangular(a, lower=False) else NotImplemented


# -- parts -----------------------------------------------------------------------------------------


def diagonal(offset: int) -> _Run:
    """A diagonal beside the main one."""
    return lambda a: ops.diagonal(a) if offset == 0 else a.off_diagonal(offset)


def trace_at(a: Matrix, offset: Factor = 0) -> Meant:
    """The offset is an operand, of which only a known number says which diagonal is meant."""
    if isinstance(offset, jax.core.Tracer):
        return NotImplemented
    return ops.trace(a) if int(offset) == 0 else jnp.sum(a.off_diagonal(int(offset)))


def cut_at(lower: bool, offset: int) -> _Run:
    """`tril` or `triu`."""

    def run(a: Matrix) -> Meant:
        kept = cut(a, lower, offset)
        return NotImplemented if kept is None else kept

    return run


def matrices(run: _Run) -> _Run:
    """An operation for matrices alone, of which at least one is structured."""

    def checked(*operands: PyTree) -> Meant:
        return run(*operands) if all(len(x.shape) == 2 for x in operands) else NotImplemented

    return checked


def block_diag(*blocks: Shaped[AnyArray, "_ _"]) -> Shaped[AbstractArray, "_ _"]:
    """The blocks themselves."""
    return BlockDiagonal(*blocks)
