"""Linear systems and inverses.

The natural rule does not depend on the structure: with `w = A⁻ᵀ x̄` the cotangent of the matrix is
the outer product `-w xᵀ`, kept factored. Types with an expensive factorisation have a rule of their
own that reuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import Columns, Matrix, Pullback, SquareMatrix

from ..dtypes import floating
from ..shapes import DenseColumns, FullStorage, SquareDiagonal, SquareTriangular, SquareUpdate
from .factored import (
    Factored,
    factored,
    factored_matrix,
    formed,
    inverse_factored,
    solve_factored,
    solve_factored_transposed,
)
from .woodbury import as_columns, capacitance, solve_base

if TYPE_CHECKING:
    from tanjax.testing import Case


def check_square_factor(name: str, factor: Matrix) -> None:
    """Raise `ShapeError` unless a Kronecker factor is square, so that it has its own system."""
    if factor.shape[0] != factor.shape[1]:
        raise tj.ShapeError(
            f"{name} (Kronecker factor): needs a square matrix, got {list(factor.shape)}."
        )


# -- rules ---------------------------------------------------------------------------------------


@tj.solve.natural_rule(tj.AbstractArray)
@tj.solve.natural_rule(tj.Dense, tj.AbstractArray)
def solve_rule(a: SquareMatrix, b: Columns) -> tuple[Columns, Pullback]:
    x = tj.solve.primal(a, b)

    def solve_pullback(x_bar: Columns) -> tuple[SquareMatrix, Columns]:
        w = tj.solve(a.mT, x_bar)
        return solve_cotangent(w, x), w

    return x, solve_pullback


def solve_cotangent(w: Columns, x: Columns) -> SquareMatrix:
    """Return `-w xᵀ`, unformed if both are dense."""
    if tj.rules.is_structured(w) or tj.rules.is_structured(x):
        return tj.linalg.negative(tj.matmul(w, x.mT))
    return tj.Outer(-w, x)


@tj.solve.natural_rule(tj.Diagonal, tj.Dense)
def solve_diagonal_rule(a: SquareDiagonal, b: DenseColumns) -> tuple[DenseColumns, Pullback]:
    """Contracts before it divides, and keeps `b` rather than `x`.

    It takes half the time and no scratch of the general rule at n = 2048, k = 64. XLA does not
    repeat divisions inside a fusion; here no array of the size of `b` has to be kept for them.
    """
    x = solve_diagonal(a, b)

    def solve_diagonal_pullback(x_bar: Columns) -> tuple[SquareDiagonal, Columns]:
        both = x_bar * b if b.ndim == 1 else jnp.sum(x_bar * b, axis=1)
        return tj.Diagonal(-both / a.diag / a.diag), solve_diagonal(a, x_bar)

    return x, solve_diagonal_pullback


@tj.solve.natural_rule(tj.Triangular, tj.Dense)
def solve_triangular_rule(a: SquareTriangular, b: DenseColumns) -> tuple[DenseColumns, Pullback]:
    """The same rule, transposed by a flag: JAX 0.12 would copy the matrix once more."""
    x = solve_triangular(a, b)

    def solve_triangular_pullback(x_bar: DenseColumns) -> tuple[Matrix, DenseColumns]:
        w = solve_triangular(a, x_bar, transposed=True)
        return tj.Outer(-w, x), w

    return x, solve_triangular_pullback


@tj.solve.natural_rule(tj.Symmetric, tj.Dense)
@tj.solve.natural_rule(tj.Hermitian, tj.Dense)
def solve_symmetric_rule(a: FullStorage, b: DenseColumns) -> tuple[DenseColumns, Pullback]:
    """The same rule with one factorisation for both directions."""
    f, b = symmetric_system(a, b)
    x = solve_factored(f, b)

    def solve_symmetric_pullback(
        x_bar: DenseColumns,
    ) -> tuple[Shaped[tj.Outer, "n n"], DenseColumns]:
        w = solve_factored_transposed(f, x_bar)
        return tj.Outer(-w, x), w

    return x, solve_symmetric_pullback


@tj.solve.natural_rule(tj.LowRankUpdate, tj.Dense, cotangents=("structural", "natural"))
def solve_update_rule(a: SquareUpdate, b: DenseColumns) -> tuple[DenseColumns, Pullback]:
    r"""Woodbury for both directions, with one factorisation of the small matrix $C$.

    With $t = C^{-1} D V^\top y$ and $s = C^{-\top} U^\top B^{-\top}\bar x$ nothing thin is
    multiplied twice: $D V^\top x = t$ and $U^\top w = s$. So $\bar U = -w\,t^\top$,
    $\bar V = -x\,(D s)^\top$ and $\bar d = -\mathrm{diag}(s\,(V^\top x)^\top)$.
    """
    dtype = jnp.result_type(b, *jax.tree.leaves(a))
    y, z, zt, transposed = solve_base(a, as_columns(b).astype(dtype))
    small, inner = factored_matrix(capacitance(a, z).astype(dtype)), a.right.T @ z
    vy = a.right.T @ y if zt is None else zt.T @ as_columns(b)
    t = solve_factored(small, a.weighted(vy))
    x = y - z @ t

    def solve_update_pullback(x_bar: DenseColumns) -> tuple[SquareUpdate, DenseColumns]:
        zx = z.T @ as_columns(x_bar)
        if zt is None:
            s = solve_factored_transposed(small, zx)
            ds = a.weighted(s)
        else:  # the same system again, without a transposed permutation
            ds = solve_factored(small, a.weighted(zx))
            s = zx - inner @ ds
        yw, zw = transposed(as_columns(x_bar))
        minus_w = zw @ ds - yw
        u_bar, v_bar = minus_w @ t.T, x @ -ds.T
        a_bar = a.replace(
            base=tj.tangents.pullback_of_destructure(a.base)(tj.Outer(minus_w, x)),
            u=u_bar + v_bar if a.v is None else u_bar,
            d=None if a.d is None else -jnp.sum(s * (vy - inner @ t), axis=1),
            v=None if a.v is None else v_bar,
        )
        return a_bar, -minus_w.reshape(x_bar.shape)

    return x.reshape(b.shape), solve_update_pullback


@tj.inv.natural_rule(tj.AbstractArray)
def inv_rule(a: SquareMatrix) -> tuple[SquareMatrix, Pullback]:
    c = tj.inv.primal(a)

    def inv_pullback(c_bar: SquareMatrix) -> SquareMatrix:
        return tj.linalg.negative(tj.matmul(tj.matmul(c.mT, c_bar), c.mT))

    return c, inv_pullback


# -- solve ---------------------------------------------------------------------------------------


@tj.solve.implementation(tj.AbstractArray, tj.Dense)
def solve_any(a: Shaped[tj.AbstractArray, "n n"], b: DenseColumns) -> DenseColumns:
    return tj.solve.primal(formed("solve", a), b)


@tj.solve.implementation(tj.AbstractArray, tj.AbstractArray)
def solve_any_structured(
    a: Shaped[tj.AbstractArray, "n n"], b: Shaped[tj.AbstractArray, " n *k"]
) -> Columns:
    """Densify `b`, with a warning, and solve by the type of `a`: the solution has no structure."""
    hint = "solve for a product: `tj.solve(a, b @ x)` needs vectors only"
    return tj.solve.primal(a, tj.rules.densified(b, "solve", hint))


@tj.inv.implementation(tj.AbstractArray)
def inv_any(a: Shaped[tj.AbstractArray, "n n"]) -> SquareMatrix:
    return tj.inv.primal(formed("inv", a))


@tj.solve.implementation(tj.Diagonal, tj.Dense)
def solve_diagonal(a: SquareDiagonal, b: DenseColumns) -> DenseColumns:
    return b / a.diag if b.ndim == 1 else b / a.diag[:, None]


@tj.solve.implementation(tj.Triangular, tj.Dense)
def solve_triangular(
    a: SquareTriangular, b: DenseColumns, transposed: bool = False
) -> DenseColumns:
    how = {"lower": a.lower, "unit_diagonal": a.unit_diagonal}
    return jsl.solve_triangular(a.data, b, trans="T" if transposed else "N", **how)


@tj.solve.implementation(tj.Symmetric, tj.Dense)
@tj.solve.implementation(tj.Hermitian, tj.Dense)
def solve_symmetric(a: FullStorage, b: DenseColumns) -> DenseColumns:
    return solve_factored(*symmetric_system(a, b))


def symmetric_system(a: FullStorage, b: DenseColumns) -> tuple[Factored, DenseColumns]:
    """Return a factored symmetric or Hermitian matrix and its right-hand side, of one dtype."""
    b = floating(b.astype(jnp.result_type(a.data, b)))
    return factored(a.replace(data=a.data.astype(b.dtype))), b


@tj.solve.implementation(tj.Identity, tj.Dense)
@tj.solve.implementation(tj.Identity, tj.AbstractArray)
def solve_identity(a: Shaped[tj.Identity, "n n"], b: Columns) -> Columns:
    return b


@tj.solve.implementation(tj.Diagonal, tj.Diagonal)
def solve_diagonal_diagonal(a: SquareDiagonal, b: SquareDiagonal) -> SquareDiagonal:
    return tj.Diagonal(b.diag / a.diag)


@tj.solve.implementation(tj.Diagonal, tj.Triangular)
def solve_diagonal_triangular(a: SquareDiagonal, b: SquareTriangular) -> SquareTriangular:
    return tj.Triangular(b.to_dense() / a.diag[:, None], b.lower)


@tj.solve.implementation(tj.Triangular, tj.Triangular)
def solve_triangular_triangular(a: SquareTriangular, b: SquareTriangular) -> SquareMatrix:
    dense = solve_triangular(a, b.to_dense())
    return tj.Triangular(dense, a.lower) if a.lower == b.lower else dense


@tj.solve.implementation(tj.Scaled, tj.Dense, differentiate=True)
def solve_scaled(a: Shaped[tj.Scaled, "n n"], b: DenseColumns) -> DenseColumns:
    return tj.solve(a.matrix, b) / a.factor


@tj.solve.implementation(tj.Kronecker, tj.Dense, differentiate=True)
def solve_kronecker(a: Shaped[tj.Kronecker, "n n"], b: DenseColumns) -> DenseColumns:
    for factor in a.factors:
        check_square_factor("solve", factor)
    return a.along_axes(_solve_factor, b)


def _solve_factor(a: SquareMatrix, b: DenseColumns) -> DenseColumns:
    """Solve; for a dense factor by the LU of `factored.py` (benchmark row "Kronecker solve")."""
    if tj.rules.is_structured(a):
        return tj.solve(a, b)
    dtype = jnp.result_type(floating(a), floating(b))
    return solve_factored(factored_matrix(a.astype(dtype)), b.astype(dtype))


@tj.solve.implementation(tj.LowRankUpdate, tj.Dense)
def solve_update(a: SquareUpdate, b: DenseColumns) -> DenseColumns:
    r"""Woodbury, without an inverse of `d`.

    $x = y - Z\,(I + D V^\top Z)^{-1} D V^\top y$ with $y = B^{-1}b$ and $Z = B^{-1}U$.
    """
    y, z, *_ = solve_base(a, as_columns(b))
    x = y - z @ jnp.linalg.solve(capacitance(a, z), a.weighted(a.right.T @ y))
    return x.reshape(b.shape)


# -- inverses ------------------------------------------------------------------------------------


@tj.inv.implementation(tj.Diagonal)
def inv_diagonal(a: SquareDiagonal) -> SquareDiagonal:
    return tj.Diagonal(1 / a.diag)


@tj.inv.implementation(tj.Triangular)
def inv_triangular(a: SquareTriangular) -> SquareTriangular:
    eye = jnp.eye(a.shape[0], dtype=a.dtype)
    return tj.Triangular(solve_triangular(a, eye), a.lower, a.unit_diagonal)


@tj.inv.implementation(tj.Symmetric)
def inv_symmetric(a: Shaped[tj.Symmetric, "n n"]) -> Shaped[tj.Symmetric, "n n"]:
    return tj.Symmetric(inverse_factored(factored(a)), "mean", a.definite)


@tj.inv.implementation(tj.Hermitian)
def inv_hermitian(a: Shaped[tj.Hermitian, "n n"]) -> Shaped[tj.Hermitian, "n n"]:
    return tj.Hermitian(inverse_factored(factored(a)), "mean", a.definite)


@tj.inv.implementation(tj.Identity)
def inv_identity(a: Shaped[tj.Identity, "n n"]) -> Shaped[tj.Identity, "n n"]:
    return a


@tj.inv.implementation(tj.Scaled, differentiate=True)
def inv_scaled(a: Shaped[tj.Scaled, "n n"]) -> SquareMatrix:
    return tj.linalg.multiply(tj.inv(a.matrix), 1 / a.factor)


@tj.inv.implementation(tj.Kronecker, differentiate=True)
def inv_kronecker(a: Shaped[tj.Kronecker, "n n"]) -> Shaped[tj.Kronecker, "n n"]:
    for factor in a.factors:
        check_square_factor("inv", factor)
    return tj.Kronecker(*map(tj.inv, a.factors))


@tj.inv.implementation(tj.LowRankUpdate, differentiate=True)
def inv_update(a: SquareUpdate) -> SquareUpdate:
    """Woodbury again: the inverse is a low-rank update of the inverse of the base."""
    z = tj.solve(a.base, a.u)
    zt = tj.solve(a.base.mT, a.right)
    core = jnp.linalg.solve(capacitance(a, z).T, z.T).T  # Z (I + D Vᵀ Z)⁻¹
    scaled = core if a.d is None else core * a.d
    return tj.LowRankUpdate(tj.inv(a.base), -scaled, None, zt)


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Every implementation and rule of `solve` and `inv`; vectors, matrices, complex, empty."""
    from tanjax.testing import Case, Samples

    s = Samples(3)
    diagonal, identity = tj.Diagonal(s.positive(2)), tj.Identity(2)
    lower, upper = tj.Triangular(s.regular(2)), tj.Triangular(s.regular(2), lower=False)
    unit = tj.Triangular(s.normal(2, 2), unit_diagonal=True)
    symmetric = tj.Symmetric(s.definite(2))
    hermitian = tj.Hermitian(s.definite(2, complex=True))
    update = tj.LowRankUpdate(tj.Diagonal(s.positive(3)), s.normal(3, 1), s.positive(1))
    thin = s.normal(2, 1)
    general = tj.LowRankUpdate(lower, thin, None, 0.1 * s.normal(2, 1))
    scaled, kronecker = tj.Scaled(symmetric, s.positive()), tj.Kronecker(symmetric, diagonal)
    for a, b in (
        (tj.Diagonal(s.complex(3)), s.complex(3)),
        (diagonal, s.normal(2, 1)),
        (tj.Triangular(s.regular(3, complex=True)), s.complex(3, 2)),
        (unit, s.normal(2)),
        (symmetric, s.normal(2)),
        (tj.Hermitian(s.definite(3, complex=True)), s.complex(3, 2)),
        (hermitian.replace(definite=True), s.complex(2)),
        (symmetric.replace(definite=True), s.normal(2, 2)),
        (tj.Symmetric(s.regular(2, complex=True)), s.complex(2)),
        (identity, s.normal(2)),
        (identity, symmetric),
        (diagonal, tj.Diagonal(s.normal(2))),
        (diagonal, lower),
        (lower, tj.Triangular(s.normal(2, 2))),
        (lower, upper),
        (symmetric, diagonal),
        (s.regular(2), diagonal),
        (tj.tangents.Sum(tj.Triangular(s.regular(3, complex=True)), s.regular(3)), s.complex(3, 2)),
        (scaled, s.normal(2)),
        (kronecker, s.normal(4)),
        (update, s.normal(3)),
        (general, s.normal(2, 1)),
        (tj.LowRankUpdate(symmetric, thin, s.positive(1), 0.1 * s.normal(2, 1)), s.normal(2)),
        (tj.Diagonal(s.normal(0)), s.normal(0)),
    ):
        yield Case(tj.solve, a, b)
    for base, v in ((tj.Identity(2, complex), None), (hermitian, 0.3 * s.complex(2, 1))):
        yield Case(tj.solve, tj.LowRankUpdate(base, 0.3 * s.complex(2, 1), None, v), s.complex(2))
    for a in (diagonal, lower, unit, symmetric, hermitian, identity, scaled, kronecker):
        yield Case(tj.inv, a)
    yield Case(tj.inv, hermitian.replace(definite=True))
    yield Case(tj.inv, symmetric.replace(definite=True))
    for a in (update, general, tj.tangents.Sum(s.regular(3), tj.Diagonal(s.positive(3)))):
        yield Case(tj.inv, a)
