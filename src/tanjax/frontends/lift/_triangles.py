"""The triangle of a structured array that a JAX function reads, as a structured array.

`solve_triangular` and `cho_solve` read one triangle of a matrix and ignore the other; `tril` and
`triu` return one. If the type of the matrix determines that triangle, the result has a type again.
Otherwise the functions return `None`, and the caller densifies the matrix with a warning.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

from tanjax._typing import AnyArray, Matrix, Natural, SquareMatrix
from tanjax.arrays import (
    AbstractArray,
    Banded,
    BlockDiagonal,
    Diagonal,
    Hermitian,
    Identity,
    Kronecker,
    Scaled,
    Sparse,
    Symmetric,
    SymTridiagonal,
    Triangular,
    Tridiagonal,
    Zero,
    is_structured,
    scaled,
)

_BANDS = (Tridiagonal, SymTridiagonal, Banded)


def is_triangular(a: Natural, lower: bool) -> bool:
    """True if the type guarantees zeros in the other triangle."""
    if isinstance(a, Triangular):
        return a.lower == lower
    if isinstance(a, Banded):
        return (a.upper if lower else a.lower) == 0
    if isinstance(a, Kronecker | BlockDiagonal):
        parts = a.factors if isinstance(a, Kronecker) else a.blocks
        return all(p.shape[0] == p.shape[1] and is_triangular(p, lower) for p in parts)
    if isinstance(a, Scaled):
        return is_triangular(a.matrix, lower)
    return isinstance(a, Diagonal | Identity)


def triangle(a: SquareMatrix, lower: bool, unit_diagonal: bool = False) -> SquareMatrix | None:
    """Return one triangle, with ones as diagonal on request; or `None`."""
    if not is_structured(a):
        return Triangular(a, lower, unit_diagonal)
    if isinstance(a, BlockDiagonal) and all(b.shape[0] == b.shape[1] for b in a.blocks):
        blocks = [triangle(b, lower, unit_diagonal) for b in a.blocks]
        return None if any(b is None for b in blocks) else BlockDiagonal(*blocks)
    if unit_diagonal:
        return _with_ones(a, lower)
    if is_triangular(a, lower):
        return a
    if isinstance(a, Triangular):
        return Diagonal(a.diagonal())
    if isinstance(a, Symmetric | Hermitian):
        return Triangular(a.to_dense(), lower)
    if isinstance(a, _BANDS):
        below, above = (a.lower, a.upper) if isinstance(a, Banded) else (1, 1)
        return _band(a, below, 0) if lower else _band(a, 0, above)
    if isinstance(a, Sparse):
        return _of_places(a, lower)
    return None


def _with_ones(a: Shaped[AbstractArray, "n n"], lower: bool) -> SquareMatrix | None:
    """Return a triangle with ones as diagonal; only some types allow it."""
    if isinstance(a, Diagonal | Identity) or (isinstance(a, Triangular) and a.lower != lower):
        return Identity(a.shape[0], a.dtype)
    if isinstance(a, Triangular):
        return Triangular(a.data, lower, unit_diagonal=True)
    if isinstance(a, Symmetric | Hermitian):
        return Triangular(a.to_dense(), lower, unit_diagonal=True)
    return None


def _band(a: Shaped[AbstractArray, "n n"], below: int, above: int) -> Shaped[Banded, "n n"]:
    n = a.shape[0]
    rows = []
    for k in range(above, -below - 1, -1):
        before, after = max(0, min(k, n)), max(0, min(-k, n))
        rows.append(jnp.pad(a.off_diagonal(k), (before, after)))
    return Banded(jnp.stack(rows), below, above)


def _of_places(a: Shaped[Sparse, "m n"], lower: bool) -> Shaped[Sparse, "m n"]:
    rows, columns = a.pattern.rows, a.pattern.columns
    (kept,) = np.nonzero(columns <= rows if lower else columns >= rows)
    return Sparse(a.values[kept], np.stack([rows[kept], columns[kept]], axis=1), a.shape)


def cut(a: Shaped[AnyArray, "m n"], lower: bool, offset: int) -> Matrix | None:
    """Apply `tril` or `triu` with an offset; or return `None`."""
    beyond = offset >= 0 if lower else offset <= 0
    if beyond and is_triangular(a, lower):
        return a
    if not beyond and isinstance(a, Diagonal | Identity):
        return Zero(a.shape, a.dtype)
    if offset == 0 and isinstance(a, Scaled) and is_structured(a.matrix):
        inner = cut(a.matrix, lower, 0)
        return None if inner is None else scaled(inner, a.factor)
    if offset or a.shape[0] != a.shape[1]:
        return None
    return triangle(a, lower)
