r"""Systems and determinants of tridiagonal and banded matrices.

The kernels eliminate a general band with row exchanges (`band_factor`). The substitution with a
triangular band has no pivots to choose, and Cholesky needs no exchanges. No natural cotangent here
is larger than the matrix: that of a system is an `Outer`, and that of a determinant is the band of
the inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike
from jaxtyping import PyTree, Shaped

import tanjax as tj
from tanjax.kernels import (
    BandFactor,
    DefiniteFactor,
    band_factor,
    definite_factor,
    diagonal_of_rows,
    diagonal_padding,
    inverse_band,
    pivots_and_sign,
    solve_band,
    solve_band_transposed,
    solve_definite,
    transposed_rows,
)
from tanjax.typing import Function, Natural, Pullback, Scalar

from ..bands import Band, rows_of, widths
from ..dtypes import floating
from ..shapes import DenseColumns, columns_at_once
from ..signs import nan_unless_alike
from .determinant import phase
from .woodbury import as_columns

if TYPE_CHECKING:
    from tanjax.testing import Case

Symmetric: TypeAlias = Shaped[tj.SymTridiagonal, "n n"]
FAMILY = (tj.Tridiagonal, tj.SymTridiagonal, tj.Banded)


def for_the_family(
    register: Function, *others: type, **options: bool
) -> Callable[[Function], Function]:
    """Register a function for every type of the family in its first argument."""

    def decorated(function: Function) -> Function:
        for kind in FAMILY:
            register(kind, *others, **options)(function)
        return function

    return decorated


class Eliminated:
    """A matrix with its elimination, for systems with it and with its transpose."""

    def __init__(self, a: Band, dtype: DTypeLike, factor: BandFactor | None = None) -> None:
        lower, upper = widths(a)
        dtype = dtype if jnp.issubdtype(dtype, jnp.inexact) else jnp.result_type(float)
        self.swapped = upper == 0 and lower > 0  # the transpose is triangular already
        if factor is None:
            rows = rows_of(a, lower, upper).astype(dtype)
            if self.swapped:
                rows, lower = transposed_rows(rows, lower), 0
            factor = band_factor(rows, lower)
        self.dtype = dtype
        self.factor = jax.tree.map(lambda x: x if x.dtype == bool else x.astype(dtype), factor)

    def solve(self, b: DenseColumns, *, transposed: bool = False) -> DenseColumns:
        one = solve_band_transposed if transposed != self.swapped else solve_band
        return one(self.factor, as_columns(b).astype(self.dtype)).reshape(b.shape)

    def inverse_in_band(self, factor: BandFactor | None = None) -> Band:
        """Return the band of the transposed inverse, as an array of the family."""
        rows, lower = inverse_band(factor or self.factor), self.factor.lower
        if self.swapped:
            rows, lower = transposed_rows(rows, 0), rows.shape[1] - 1
        return from_rows(rows, lower)


def from_rows(rows: Shaped[Array, "n width"], lower: int) -> Band:
    """Return a band that is kept by rows as a natural cotangent."""
    width = rows.shape[1]
    at = lambda k: diagonal_of_rows(rows, lower, k)
    if (lower, width) == (1, 3):
        return tj.Tridiagonal(at(-1), at(0), at(1))
    n = rows.shape[0]
    offsets = reversed(range(-lower, width - lower))
    bands = [jnp.pad(at(k), diagonal_padding(n, k)) for k in offsets]
    return tj.Banded(jnp.stack(bands), lower, width - 1 - lower)


# -- systems -------------------------------------------------------------------------------------

# Up to 8 columns a system and its gradient take less time by LAPACK's tridiagonal solver, which
# eliminates again for each direction, than by an elimination that is kept (512 to 4096 rows).
FEW = 8
# Up to so many numbers on the right-hand side, the start of three loops costs more than it
# saves against LAPACK (benchmarks/definite_bands.py).
SMALL = 1024


def is_definite(a: Band) -> TypeGuard[Symmetric]:
    return isinstance(a, tj.SymTridiagonal) and a.definite


def in_precision_of(a: Symmetric, b: Natural) -> Symmetric:
    """Return the real matrix in the precision of its systems."""
    return floating(a.astype(jnp.zeros((), jnp.result_type(a.dtype, b)).real.dtype))


def system_of(a: Band, b: DenseColumns) -> Function:
    """Return `solve(b, transposed=False)`, of one dtype.

    It eliminates once for both directions, or calls LAPACK for `FEW` columns of a tridiagonal.
    """
    dtype = jnp.result_type(a.dtype, b)
    of_lapack = dtype in (jnp.float32, jnp.float64, jnp.complex64, jnp.complex128)
    columns = as_columns(b).shape[1]
    are_few = isinstance(columns, int) and columns <= FEW  # a symbolic number may be large
    is_small = are_few and isinstance(a.shape[0], int) and a.shape[0] * columns <= SMALL
    if is_definite(a) and not (is_small and of_lapack):
        matrix = in_precision_of(a, b)
        factor = definite_factor(matrix.diag, matrix.off)

        def solve_either(b: DenseColumns, *, transposed: bool = False) -> DenseColumns:
            return _solve_definite(matrix, factor, as_columns(b), transposed).reshape(b.shape)

        return solve_either
    if isinstance(a, tj.Banded) or not are_few or not of_lapack:
        return Eliminated(a, dtype).solve

    def solve(b: DenseColumns, *, transposed: bool = False) -> DenseColumns:
        side = -1 if transposed else 1
        below = jnp.pad(a.off_diagonal(-side).astype(dtype), (1, 0))[: a.shape[0]]
        above = jnp.pad(a.off_diagonal(side).astype(dtype), (0, 1))[: a.shape[0]]
        columns = as_columns(b).astype(dtype)
        x = lax.linalg.tridiagonal_solve(below, a.diagonal().astype(dtype), above, columns)
        return x.reshape(b.shape)

    return solve


@for_the_family(tj.solve.implementation, tj.Dense)
def solve_banded(a: Band, b: DenseColumns) -> DenseColumns:
    return system_of(a, b)(b)


@for_the_family(tj.solve.natural_rule, tj.Dense)
def solve_banded_rule(a: Band, b: DenseColumns) -> tuple[DenseColumns, Pullback]:
    """The rule of any matrix, with one system for both directions."""
    solve = system_of(a, b)
    x = solve(b)

    def solve_banded_pullback(x_bar: DenseColumns) -> tuple[tj.Outer, DenseColumns]:
        w = solve(x_bar, transposed=True)
        return tj.Outer(-w, x), w

    return x, solve_banded_pullback


@for_the_family(tj.inv.implementation)
def inv_banded(a: Band) -> Shaped[Array, "n n"]:
    """The inverse of a band, a full matrix: a system for each column, $O(n^2 b)$."""
    return Eliminated(a, a.dtype).solve(jnp.eye(a.shape[0], dtype=a.dtype))


# -- determinants --------------------------------------------------------------------------------


@tj.logdet.implementation(tj.Banded, differentiate=True)
def logdet_banded(a: Band) -> Scalar:
    return slogdet_banded(a).logabsdet


@tj.linalg.slogdet.implementation(tj.Banded, differentiate=True)
def slogdet_banded(a: Band) -> tj.linalg.SlogdetResult:
    return tj.linalg.SlogdetResult(*slogdet_factored(Eliminated(a, a.dtype).factor))


@tj.rules.custom_jvp
def slogdet_factored(f: BandFactor) -> tuple[Scalar, Scalar]:
    """Return sign and logarithm from the pivots, without the product of their magnitudes."""
    pivots, sign = pivots_and_sign(f)
    return sign * jnp.prod(phase(pivots)), jnp.sum(jnp.log(jnp.abs(pivots)))


@slogdet_factored.defjvp
def _(
    primals: tuple[BandFactor], tangents: tuple[BandFactor]
) -> tuple[tuple[Scalar, Scalar], tuple[Scalar, Scalar]]:
    sign, logabsdet = slogdet_factored(*primals)
    y_dot = jnp.sum(inverse_band(*primals) * tangents[0].rows)
    turned = sign * (y_dot - jnp.real(y_dot).astype(y_dot.dtype))
    return (sign, logabsdet), (turned, jnp.real(y_dot))


@for_the_family(tj.det.implementation)
def det_banded(a: Band) -> Scalar:
    pivots, sign = pivots_and_sign(Eliminated(a, a.dtype).factor)
    return sign * jnp.prod(pivots)


@for_the_family(tj.det.natural_rule)
def det_banded_rule(a: Band) -> tuple[Scalar, Pullback]:
    r"""$\bar A = \bar y \det(A) A^{-\top}$, the adjugate also for pivots of zero.

    The pullback moves a zero pivot by one rounding of the largest entry, so that determinant and
    inverse cancel. The adjugate of the moved matrix differs by that much.
    """
    f = Eliminated(a, a.dtype)
    pivots, sign = pivots_and_sign(f.factor)

    def det_banded_pullback(y_bar: Scalar) -> Natural:
        largest = jnp.max(jnp.abs(f.factor.rows), initial=0)
        tiny = jnp.where(largest == 0, jnp.ones_like(largest), largest * jnp.finfo(a.dtype).eps)
        moved = jnp.where(pivots == 0, tiny.astype(pivots.dtype), pivots)
        inverse = f.inverse_in_band(f.factor._replace(upper=f.factor.upper.at[:, 0].set(moved)))
        return tj.linalg.multiply(inverse, y_bar * sign * jnp.prod(moved))

    return sign * jnp.prod(pivots), det_banded_pullback


# -- Cholesky ------------------------------------------------------------------------------------


@tj.linalg.cholesky.implementation(tj.SymTridiagonal, differentiate=True)
@tj.linalg.cholesky.implementation(tj.Tridiagonal, differentiate=True)
@tj.linalg.cholesky.implementation(tj.Banded, differentiate=True)
def cholesky_banded(a: Band) -> Shaped[tj.Banded, "n n"]:
    """Factorise the Hermitian part of `a`, as for dense arrays, inside the band: $O(n b^2)$."""
    n, width = a.shape[0], max(widths(a))
    below = []
    for k in range(width + 1):
        entries = (a.off_diagonal(-k) + jnp.conj(a.off_diagonal(k))) / 2
        below.append(jnp.pad(entries, (0, min(k, n))))

    def eliminate(pending: tuple[Array, ...], column: Array) -> PyTree:
        """`pending[j]`: the vector that earlier columns subtract from the column `j` places on."""
        column = column - pending[0] if pending else column
        pivot = jnp.sqrt(jnp.real(column[0])).astype(column.dtype)
        factor = jnp.concatenate([pivot[None], column[1:] / pivot])
        moved = [*pending[1:], jnp.zeros_like(column)][:width]
        for j in range(width):
            shifted = jnp.pad(factor[j + 1 :], (0, j + 1))
            moved[j] = moved[j] + jnp.conj(factor[j + 1]) * shifted
        return tuple(moved), factor

    columns = jnp.stack(below, axis=1)
    pending = (jnp.zeros_like(columns[:1].sum(0)),) * width
    return tj.Banded(lax.scan(eliminate, pending, columns)[1].T, width, 0)


# -- the factorization -----------------------------------------------------------------------------


def _solve(a: Band, f: BandFactor, b: Natural, transposed: bool) -> Natural:
    eliminated = Eliminated(a, jnp.result_type(f.rows, b), f)
    return columns_at_once(lambda y: eliminated.solve(y, transposed=transposed), b)


def _root(a: Band, f: BandFactor, z: Natural, adjoint: bool) -> Natural:
    """Multiply by the Cholesky factor, which stays in the band."""
    a = floating(a)
    factor = cholesky_banded(a)
    for k in range(max(widths(a)) + 1):
        same = nan_unless_alike(factor.bands, a.off_diagonal(k), a.off_diagonal(-k))
        factor = factor.replace(bands=same)
    root = factor.conj().mT if adjoint else factor
    return columns_at_once(lambda y: root @ y, z)


def _solve_definite(a: Symmetric, f: DefiniteFactor, b: Natural, transposed: bool) -> Natural:
    """Solve with the matrix, which is its transpose."""
    return columns_at_once(lambda y: solve_definite(in_precision_of(a, b).apply, f, y), b)


_PLAN = tj.linalg.FactorizationPlan(
    _solve,
    lambda a, f: slogdet_factored(f),
    _root,
    diagonal_of_inverse=lambda a, f: Eliminated(a, f.rows.dtype, f).inverse_in_band().diagonal(),
)
_DEFINITE = tj.linalg.FactorizationPlan(
    _solve_definite,
    lambda a, f: tj.linalg.slogdet(a),
    _root,
    diagonal_of_inverse=lambda a, f: Eliminated(a, a.dtype).inverse_in_band().diagonal(),
)


@for_the_family(tj.factorize.implementation, differentiate=True)
def factorize_banded(a: Band) -> tj.linalg.Factorization:
    if is_definite(a):
        matrix = in_precision_of(a, a.diag)
        factor = definite_factor(matrix.diag, matrix.off)
        return tj.linalg.Factorization(matrix, factor, _DEFINITE, a.shape[0])
    return tj.linalg.Factorization(a, Eliminated(a, a.dtype).factor, _PLAN, a.shape[0])


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Every rule: with row exchanges, complex, one-sided and uneven bands."""
    from tanjax.testing import Case, Samples

    s = Samples(11)
    general = tj.Tridiagonal(2 + s.normal(2), 0.1 * s.normal(3), s.normal(2))  # rows are exchanged
    banded = tj.Banded(s.complex(4, 3), 2, 1)
    yield Case(tj.solve, general, s.normal(3, 2))
    yield Case(tj.solve, tj.Banded(s.complex(2, 3), 1, 0), s.complex(3))
    yield Case(tj.solve, general, tj.Diagonal(s.normal(3)))
    b = tj.Tridiagonal(s.normal(2), s.normal(3), s.normal(2))
    yield Case(tj.solve, tj.SymTridiagonal(4 + s.normal(3), s.normal(2)), b)
    yield Case(tj.solve, tj.Banded(s.complex(2, 3), 1, 0), tj.Identity(3))
    yield Case(tj.logdet, banded)
    yield Case(tj.linalg.slogdet, banded)
    yield Case(tj.det, banded)
    yield Case(tj.inv, general)
    yield Case(tj.linalg.cholesky, tj.Banded(s.complex(3, 3).at[0].add(6), 2, 0))
    yield Case(tj.solve, tj.SymTridiagonal(4 + s.normal(3), s.normal(2)), s.normal(3, FEW + 1))
    definite = tj.SymTridiagonal(3 + s.positive(3), s.normal(2) / 2, definite=True)
    yield Case(tj.solve, definite, s.normal(3, FEW + 1))
    yield Case(tj.solve, definite, s.complex(3, FEW + 1))
    yield Case(tj.linalg.add, definite, tj.Identity(3))
    yield Case(tj.linalg.multiply, definite, definite)
    yield Case(tj.solve, tj.Banded(s.normal(6, 3), 4, 1), s.normal(3))  # more diagonals than rows
    yield Case(tj.solve, tj.Banded(s.normal(3, 4), 0, 2), s.normal(4))
    yield Case(tj.linalg.slogdet, tj.Banded(s.normal(6, 6), 3, 2))  # rows are exchanged
