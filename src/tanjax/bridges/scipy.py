"""Sparse matrices of SciPy, to and from our types.

SciPy's formats correspond to our types: `dia` holds diagonals, in the layout of `Banded`; `csr` and
the others hold places, as `Sparse` does. Numbers are copied to and from NumPy, so that both
directions need concrete arrays. Stored entries stay stored, zeros included.

    stiffness = from_scipy(scipy.sparse.load_npz("k.npz"))   # a `tj.Sparse`
    lu = scipy.sparse.linalg.splu(to_scipy(stiffness).tocsc())

Sharp edge. SciPy has no units: a quantity is refused. Convert `q.value` and keep the unit.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import PyTree

from tanjax._errors import NoRuleError, ShapeError, UnitError, describe, message
from tanjax.arrays import (
    Banded,
    BlockDiagonal,
    Diagonal,
    Identity,
    Kronecker,
    Permutation,
    Sparse,
    SymTridiagonal,
    Tridiagonal,
    Zero,
    is_structured,
)
from tanjax.quantities import is_quantity

Foreign: TypeAlias = "scipy.sparse.sparray | scipy.sparse.spmatrix"
_KINDS = (Sparse, Diagonal, Tridiagonal, SymTridiagonal, Banded, Permutation)


def to_scipy(matrix: PyTree) -> scipy.sparse.sparray:
    """Return one of our matrices as a sparse array of SciPy, in the format of its storage.

    `Diagonal`, `Identity`, `Tridiagonal`, `SymTridiagonal` and `Banded` become a `dia_array`,
    `Sparse` (with its stored zeros), `Permutation`, `Zero` and dense matrices a `csr_array`;
    `Kronecker` and `BlockDiagonal` are assembled from their parts, as a `coo_array`.

    **Raises:** `UnitError` for a quantity, `NoRuleError` for a type whose array is full, such as
    `LowRank` (to densify it, convert `x.to_dense()`), and for traced arrays.
    """
    if is_quantity(matrix):
        raise UnitError(
            message(
                f"to_scipy: a matrix of SciPy cannot be in {matrix.unit}.",
                hint="convert `q.value` and keep the unit.",
            )
        )
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(matrix)):
        raise NoRuleError(f"to_scipy: SciPy needs numbers, and JAX traces {describe(matrix)}.")
    kind = type(matrix)
    if kind is Sparse:
        places = (matrix.pattern.rows, matrix.pattern.columns)
        return scipy.sparse.coo_array((np.array(matrix.values), places), matrix.shape).tocsr()
    if kind is Permutation:
        n, indices = matrix.shape[0], np.array(matrix.indices)
        ones = np.ones(n, matrix.dtype)
        return scipy.sparse.csr_array((ones, indices, np.arange(n + 1)), matrix.shape)
    if kind in (Kronecker, BlockDiagonal):
        return _of_parts(matrix)
    if kind is Zero:
        return scipy.sparse.csr_array(matrix.shape, dtype=matrix.dtype)
    if not is_structured(matrix):
        return scipy.sparse.csr_array(np.array(matrix))
    bands, offsets = _diagonals(matrix)
    return scipy.sparse.dia_array((bands, offsets), matrix.shape)


def _of_parts(matrix: PyTree) -> scipy.sparse.sparray:
    """Return a Kronecker product, or blocks."""
    if type(matrix) is BlockDiagonal:
        return scipy.sparse.block_diag([to_scipy(b) for b in matrix.blocks], "coo")
    product, *rest = map(to_scipy, matrix.factors)
    for factor in rest:
        product = scipy.sparse.kron(product, factor)
    return product.tocoo()


def _diagonals(matrix: PyTree) -> tuple[np.ndarray, list[int]]:
    """Return the diagonals of a matrix, every entry in its column, and their offsets."""
    if type(matrix) in (Diagonal, Identity):
        return np.array(matrix.diagonal())[None], [0]
    if type(matrix) is Banded:
        return np.array(matrix.bands), list(reversed(matrix.offsets))
    if type(matrix) not in (Tridiagonal, SymTridiagonal):
        raise NoRuleError(
            message(
                f"to_scipy: {describe(matrix)} has no sparse format.",
                hint="convert `x.to_dense()` if a matrix with every entry is meant.",
            )
        )
    bands = np.zeros((3, matrix.shape[0]), matrix.dtype)
    bands[0, 1:], bands[2, :-1] = matrix.off_diagonal(1), matrix.off_diagonal(-1)
    bands[1] = matrix.diagonal()
    return bands, [1, 0, -1]


def from_scipy(matrix: Foreign, kind: type | None = None) -> PyTree:
    """Return a sparse matrix or array of SciPy as one of our types.

    **Arguments:** `kind`: `tj.Sparse`, `tj.Diagonal`, `tj.Tridiagonal`, `tj.SymTridiagonal`,
    `tj.Banded` or `tj.Permutation`. By default a square `dia` matrix becomes the narrowest of
    `Diagonal`, `Tridiagonal` and `Banded` that holds its diagonals, and other formats `Sparse`.
    `Sparse` and the default keep stored entries, also zeros (a `dia` matrix stores whole
    diagonals); values at one place are summed.

    **Raises:** `ShapeError` if the matrix is not of that kind: no entry is dropped.
    """
    if not scipy.sparse.issparse(matrix) or len(matrix.shape) != 2:
        raise ShapeError(f"from_scipy: needs a sparse matrix of SciPy, got {describe(matrix)}.")
    if kind is None:
        # The narrowest type with the diagonals of a `dia` matrix, or `Sparse`.
        if matrix.format != "dia" or matrix.shape[0] != matrix.shape[1]:
            kind = Sparse
        else:
            width = max((abs(int(k)) for k in matrix.offsets), default=0)
            kind = Diagonal if width == 0 else Tridiagonal if width == 1 else Banded
    if kind not in _KINDS:
        names = ", ".join(k.__name__ for k in _KINDS)
        raise ShapeError(f"from_scipy: `kind` must be one of {names}, got {kind!r}.")
    rows, columns, values = _entries(matrix)
    sparse = Sparse(jnp.array(values), np.stack([rows, columns], axis=1), matrix.shape)
    if kind is Sparse:
        return sparse
    if matrix.shape[0] != matrix.shape[1]:
        raise _not_a(kind, matrix, "it is not square")
    if kind is Permutation:
        return _permutation(matrix)
    below, above = _widths(matrix, rows - columns)
    if kind is Banded:
        # The storage of `Banded`.
        n = sparse.shape[0]
        bands = [
            jnp.pad(sparse.off_diagonal(k), (max(0, k), max(0, -k)))
            for k in range(above, -below - 1, -1)
        ]
        return Banded(jnp.stack(bands).reshape(below + above + 1, n), below, above)
    if kind is Diagonal and max(below, above) == 0:
        return Diagonal(sparse.diagonal())
    if kind is Diagonal or max(below, above) > 1:
        raise _not_a(kind, matrix, f"it has {below} diagonals below and {above} above the main one")
    lower, diag, upper = (sparse.off_diagonal(k) for k in (-1, 0, 1))
    if kind is Tridiagonal:
        return Tridiagonal(lower, diag, upper)
    if not np.array_equal(lower, upper):
        raise _not_a(kind, matrix, "it is not symmetric")
    return SymTridiagonal(diag, lower)


def _entries(matrix: Foreign) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, columns and values of stored entries; SciPy omits zeros of diagonals."""
    if matrix.format != "dia":
        stored = matrix.tocoo()
        return stored.row, stored.col, stored.data
    columns = np.broadcast_to(np.arange(matrix.data.shape[1]), matrix.data.shape)
    rows = columns - np.asarray(matrix.offsets)[:, None]
    inside = (rows >= 0) & (rows < matrix.shape[0]) & (columns < matrix.shape[1])
    return rows[inside], columns[inside], matrix.data[inside]


def _widths(matrix: Foreign, offsets: np.ndarray) -> tuple[int, int]:
    """Return the number of stored or occupied diagonals below and above the main one."""
    if matrix.format == "dia":
        offsets = -np.asarray(matrix.offsets)
    last = max(matrix.shape[0] - 1, 0)
    below, above = max(offsets.max(initial=0), 0), max(-offsets.min(initial=0), 0)
    return min(int(below), last), min(int(above), last)


def _permutation(matrix: Foreign) -> Permutation:
    """Return a permutation, from the column of the one in every row."""
    stored = matrix.tocsr(copy=True)
    stored.sum_duplicates()
    stored.eliminate_zeros()
    each = np.array_equal(stored.indptr, np.arange(matrix.shape[0] + 1))
    if not (each and np.all(stored.data == 1)) or len(set(stored.indices)) != matrix.shape[0]:
        raise _not_a(Permutation, matrix, "not every row and column has a single one")
    kind = jnp.result_type(matrix.dtype.type)
    exact = not jnp.issubdtype(kind, jnp.inexact)
    return Permutation(stored.indices, None if exact else kind)


def _not_a(kind: type, matrix: Foreign, why: str) -> ShapeError:
    size = math.prod(matrix.shape)
    return ShapeError(
        message(
            f"from_scipy: a {matrix.format} matrix {matrix.shape} is no {kind.__name__}: {why}.",
            f"stored: {matrix.nnz} of {size} entries",
            hint="leave out `kind`, or say `tj.Sparse`.",
        )
    )
