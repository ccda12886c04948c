"""The closed algebra of diagonal, tridiagonal and banded matrices.

A product or a sum of two bands is a band. It stays tridiagonal if it has no other diagonals. A sum
of symmetric types stays symmetric.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import AnyArray

from ..bands import Band, diagonal_padding, widths
from ..shapes import SquareDiagonal
from .arithmetic import multiply_dense
from .band_factor import within
from .banded import FAMILY

if TYPE_CHECKING:
    from tanjax.testing import Case

Sparser: TypeAlias = Shaped[tj.Diagonal | tj.Identity, "n n"]
Diagonals: TypeAlias = dict[int, Array]
SPARSER = (tj.Diagonal, tj.Identity)


def stored_diagonals(a: Band | Sparser) -> Diagonals:
    """Return the stored diagonals of a matrix by their offset."""
    if isinstance(a, SPARSER):
        return {0: a.diagonal()}
    lower, upper = widths(a)
    return {k: a.off_diagonal(k) for k in range(-lower, upper + 1)}


def in_columns(a: Band | Sparser) -> Diagonals:
    """Return the stored diagonals with every entry in its column, padded with zeros."""
    n = a.shape[0]
    return {k: jnp.pad(d, diagonal_padding(n, k)) for k, d in stored_diagonals(a).items()}


def from_columns(columns: Diagonals, *kinds: type) -> Band:
    """Return the matrix with these diagonals: `Tridiagonal` if they fit and no kind is `Banded`."""
    lower, upper, n = -min(columns), max(columns), columns[0].shape[0]
    if tj.Banded in kinds or max(lower, upper) > 1:
        return tj.Banded(
            jnp.stack([columns[k] for k in range(upper, -lower - 1, -1)]), lower, upper
        )
    return tj.Tridiagonal(*(columns[k][within(n, k)] for k in (-1, 0, 1)))


# -- products ------------------------------------------------------------------------------------


def band_times_band(a: Band | Sparser, b: Band | Sparser) -> Band:
    """Return the product: its column `j` sums entries `q` of `b` times columns `j - q` of `a`."""
    n = a.shape[0]
    out: Diagonals = {}
    left, right = in_columns(a), in_columns(b)
    for q, below in right.items():
        for p, column in left.items():
            term = jnp.pad(column[within(n, -q)], diagonal_padding(n, q)) * below
            out[p + q] = out[p + q] + term if p + q in out else term
    return from_columns(out, type(a), type(b))


def diagonal_solve_band(a: SquareDiagonal, b: Band) -> Band:
    """Divide every row of a band by an entry of the diagonal."""
    n = a.shape[0]
    divided = {k: d / a.diag[within(n, -k)] for k, d in stored_diagonals(b).items()}
    columns = {k: jnp.pad(d, diagonal_padding(n, k)) for k, d in divided.items()}
    return from_columns(columns, type(b))


# -- sums ----------------------------------------------------------------------------------------


def band_add_band(a: Band | Sparser, b: Band | Sparser) -> Band:
    """Add diagonal by diagonal."""
    left, right = in_columns(a), in_columns(b)
    ends = min(*left, *right), max(*left, *right)
    zeros = jnp.zeros_like(left[0])
    columns = {k: left.get(k, zeros) + right.get(k, zeros) for k in range(ends[0], ends[1] + 1)}
    return from_columns(columns, type(a), type(b))


def symmetric_and_sparser(
    a: Shaped[tj.SymTridiagonal | tj.Diagonal | tj.Identity, "n n"],
    b: Shaped[tj.SymTridiagonal | tj.Diagonal | tj.Identity, "n n"],
) -> Shaped[tj.SymTridiagonal, "n n"]:
    """Add in either order; the sum is symmetric, too, and stays definite with the identity."""
    if not isinstance(a, tj.SymTridiagonal):
        return symmetric_and_sparser(b, a)
    definite = a.definite and isinstance(b, tj.Identity)
    return a.replace(diag=a.diagonal() + b.diagonal(), definite=definite)


# -- entry-wise products ---------------------------------------------------------------------------


def band_multiply(a: Band, b: Shaped[AnyArray, " ..."]) -> Shaped[AnyArray, " ..."]:
    """Multiply entry by entry: the zeros stay, so only the diagonals of `b` are read."""
    if jnp.shape(b) != a.shape:
        return multiply_dense(a, b)
    n = a.shape[0]
    ask = b.off_diagonal if tj.is_structured(b) else lambda k: jnp.diagonal(b, k)
    columns = {
        k: jnp.pad(d * ask(k), diagonal_padding(n, k)) for k, d in stored_diagonals(a).items()
    }
    return from_columns(columns, type(a))


def symmetric_multiply_symmetric(
    a: Shaped[tj.SymTridiagonal, "n n"], b: Shaped[tj.SymTridiagonal, "n n"]
) -> Shaped[tj.SymTridiagonal, "n n"]:
    definite = a.definite and b.definite  # the theorem of Schur
    return a.replace(diag=a.diag * b.diag, off=a.off * b.off, definite=definite)


def _register() -> None:
    """Register every pair of types with at least one band."""
    smooth: Any = {"differentiate": True}
    for kind in FAMILY:
        tj.multiply.implementation(kind, tj.Dense, **smooth)(band_multiply)
        tj.solve.implementation(tj.Diagonal, kind, **smooth)(diagonal_solve_band)
        tj.matmul.implementation(kind, tj.Diagonal, **smooth)(band_times_band)
        tj.matmul.implementation(tj.Diagonal, kind, **smooth)(band_times_band)
        for band in FAMILY:
            tj.matmul.implementation(kind, band, **smooth)(band_times_band)
            if kind is band is tj.SymTridiagonal:  # sums of two are in `arithmetic`, by fields
                tj.multiply.implementation(kind, band, **smooth)(symmetric_multiply_symmetric)
                continue
            tj.add.implementation(kind, band, **smooth)(band_add_band)
        sum_of = symmetric_and_sparser if kind is tj.SymTridiagonal else band_add_band
        for sparser in SPARSER:
            tj.add.implementation(kind, sparser, **smooth)(sum_of)
            tj.add.implementation(sparser, kind, **smooth)(sum_of)


_register()


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """One for every formula; `band_times_band` and `band_add_band` do not depend on the types."""
    from tanjax.testing import Case, Samples

    s = Samples(12)
    general = tj.Tridiagonal(s.normal(2), s.normal(3), s.normal(2))
    symmetric = tj.SymTridiagonal(s.normal(3), s.normal(2))
    banded, lower = tj.Banded(s.normal(4, 3), 1, 2), tj.Banded(s.normal(2, 3), 1, 0)
    yield Case(tj.matmul, tj.Banded(s.complex(3, 2), 2, 0), s.complex(2))
    yield Case(tj.matmul, lower, banded)
    yield Case(tj.add, tj.Identity(3), symmetric)
    yield Case(tj.add, banded, general)
    yield Case(tj.multiply, symmetric, s.normal(3, 3))
    yield Case(tj.multiply, symmetric, symmetric)
    yield Case(tj.solve, tj.Diagonal(s.positive(3)), general)
