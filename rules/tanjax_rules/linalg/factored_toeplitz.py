"""A Toeplitz matrix with two columns of its inverse, which replace a factorisation.

`tanjax.kernels` finds the columns `x` and `z`, and states the formula of the inverse. After
$O(n^2)$ operations a product with the inverse takes six transforms. The sums along the diagonals of
the inverse, the derivative of `logdet`, take a few more. No n-by-n matrix is formed, except for
systems of up to 1024 rows, which are faster by LU of the full matrix (`system_of_toeplitz`).

The running program decides between the recursion of Schur, for a Hermitian positive definite
matrix, and elimination: a number that is not positive shows that the matrix is not definite. Under
`jax.vmap` both run for each matrix.

As in `factored`, the recursions are never differentiated. Functions of the columns state their
derivative in terms of the matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Shaped

import tanjax as tj
from tanjax.kernels import (
    exported,
    half_turn,
    is_hermitian_toeplitz,
    toeplitz_by_elimination,
    toeplitz_by_schur,
    toeplitz_inverse_product,
    toeplitz_sides,
    transform_dtype,
)
from tanjax.typing import Function, Scalar

from ..shapes import DenseColumns
from .factored import Factored, factored_matrix, solve_by_factor

# Up to so many rows a system forms the matrix: always, or if it is not definite.
SMALL, FORMED = 256, 1024

SquareToeplitz: TypeAlias = Shaped[tj.Toeplitz, "n n"]
# The columns `x` and `z`, the sign and the logarithm of the determinant.
Factors: TypeAlias = tuple[Shaped[Array, "n 2"], Scalar, Scalar]


@exported
class FactoredToeplitz(NamedTuple):
    """A square Toeplitz matrix, `x` and `z` as columns `(n, 2)`, and its determinant.

    `lu`: the LU factors of the matrix, transposed, and their permutation. Systems use them if the
    matrix is not `definite`; the columns and the determinant are then unknown.
    """

    a: SquareToeplitz
    columns: Shaped[Array, "n 2"]
    sign: Scalar
    logabsdet: Scalar
    lu: tuple[Shaped[Array, "n n"], Shaped[Array, " n"]] | None = None
    definite: Bool[Array, ""] | None = None


def factored_toeplitz(a: SquareToeplitz) -> FactoredToeplitz:
    """Find the inverse and the determinant of a `Toeplitz` matrix, in $O(n^2)$ operations.

    Integers, and numbers narrower than float32, are cast to a wider dtype. A step of refinement
    makes the columns as accurate as the condition of the matrix allows.
    """
    a, definite, alike = _by_schur_if_definite(a)
    columns, sign, logabsdet = lax.cond(
        jnp.isfinite(definite[2]),
        lambda: definite,
        lambda: alike(toeplitz_by_elimination(lax.stop_gradient(a.values))),
    )
    return _refined(FactoredToeplitz(a, columns, sign, logabsdet))


def system_of_toeplitz(a: SquareToeplitz, count: int) -> FactoredToeplitz:
    """Factorise for `count` systems: by LU up to `FORMED` rows if the matrix is not definite.

    LU takes 0.43 of the time of elimination and transforms for 512 rows and 64 columns, 0.73 for
    1024 rows, more time for 2048 rows. For a definite matrix of 512 rows and one right-hand side,
    the columns `x` and `z` take a fifth of the time of LU. So the program tests whether the matrix
    is definite, unless it has few rows or `count` is large.
    """
    n = a.shape[0]
    if n > FORMED:
        return factored_toeplitz(a)
    looks = n > max(SMALL, 8 * count)
    a, definite, alike = _by_schur_if_definite(a) if looks else _unknown(a)
    fixed, (columns, sign, logabsdet) = jax.tree.map(lax.stop_gradient, a), definite

    def by_lu() -> tuple[Array, ...]:
        _, factor, permutation = factored_matrix(fixed.to_dense())
        return alike((columns, factor.T, permutation))  # by rows, the layout between branches

    def by_columns() -> tuple[Array, ...]:
        f = _refined(FactoredToeplitz(fixed, *definite))
        return alike((f.columns, jnp.zeros((n, n), a.dtype), jnp.arange(n, dtype=np.int32)))

    if not looks:
        _, factor, permutation = by_lu()
        return FactoredToeplitz(a, columns, sign, logabsdet, (factor, permutation))
    is_definite = jnp.isfinite(logabsdet)
    columns, factor, permutation = lax.cond(is_definite, by_columns, by_lu)
    return FactoredToeplitz(a, columns, sign, logabsdet, (factor, permutation), is_definite)


def _unknown(a: SquareToeplitz) -> tuple[SquareToeplitz, Factors, Function]:
    """Cast the matrix to at least float32; its columns and determinant are unknown.

    **Returns:** the matrix, placeholders for its factors (the logarithm is nan), and a function
    that aligns the results of branches with the matrix.
    """
    a = a.replace(values=a.values.astype(transform_dtype(a.dtype)))
    values = lax.stop_gradient(a.values)
    alike = lambda found: tj.rules.align(found, values)  # the results of branches must vary alike
    nothing = jnp.full((), jnp.nan, jnp.finfo(values.dtype).dtype)
    return a, alike((toeplitz_sides(values), values[0], nothing)), alike


def _by_schur_if_definite(a: SquareToeplitz) -> tuple[SquareToeplitz, Factors, Function]:
    """Return the columns and the determinant; its logarithm is not finite if they are unknown."""
    a, unknown, alike = _unknown(a)
    values = lax.stop_gradient(a.values)
    return (
        a,
        lax.cond(
            is_hermitian_toeplitz(values), lambda: alike(toeplitz_by_schur(values)), lambda: unknown
        ),
        alike,
    )


def _refined(f: FactoredToeplitz) -> FactoredToeplitz:
    """Refine the columns by one step."""
    fixed = f.a.replace(values=lax.stop_gradient(f.a.values))
    missing = toeplitz_sides(fixed.values) - fixed.apply(f.columns)
    return f._replace(columns=f.columns + toeplitz_inverse_product(f.columns, missing))


# -- the inverse -----------------------------------------------------------------------------------


def solve_factored_toeplitz(f: FactoredToeplitz, b: DenseColumns) -> DenseColumns:
    """`T⁻¹ b`, differentiable in `T` and `b` to any order: six transforms, refined once."""
    return _linear_solve(f, b, transposed=False)


def solve_factored_toeplitz_transposed(f: FactoredToeplitz, b: DenseColumns) -> DenseColumns:
    """`T⁻ᵀ b`, without conjugation: the same system with all vectors reversed."""
    return _linear_solve(f, b, transposed=True)


def _linear_solve(f: FactoredToeplitz, b: DenseColumns, *, transposed: bool) -> DenseColumns:
    def matvec(a: SquareToeplitz) -> Callable[[DenseColumns], DenseColumns]:
        return (a.transposed() if transposed else a).apply

    fixed = jax.tree.map(lax.stop_gradient, f)
    # A constant inside `solve` would not vary over the axes of `shard_map`, but its operands do.
    turn = tj.rules.align(half_turn(f.columns.shape[0], f.columns.dtype), f)

    def by_transforms(b: DenseColumns, transposed: bool) -> DenseColumns:
        b = b[::-1] if transposed else b
        x = toeplitz_inverse_product(fixed.columns, b, turn)
        x = x + toeplitz_inverse_product(fixed.columns, b - fixed.a.apply(x), turn)
        return x[::-1] if transposed else x

    def solve(b: DenseColumns, transposed: bool) -> DenseColumns:
        if fixed.lu is None:
            return by_transforms(b, transposed)

        def by_factor(b: DenseColumns) -> DenseColumns:
            turned, permutation = fixed.lu
            return solve_by_factor(Factored(turned.T, turned.T, permutation), b, transposed)

        if fixed.definite is None:
            return by_factor(b)
        return lax.cond(fixed.definite, lambda b: by_transforms(b, transposed), by_factor, b)

    b = tj.rules.align(b if jnp.iscomplexobj(b) else b.astype(f.columns.dtype), f)
    return lax.custom_linear_solve(
        matvec(f.a),
        b,
        lambda _, y: solve(y, transposed),
        lambda _, y: solve(y, not transposed),
    )


# -- the determinant -------------------------------------------------------------------------------


@tj.rules.custom_jvp
def slogdet_factored_toeplitz(f: FactoredToeplitz) -> tuple[Scalar, Scalar]:
    """Return the sign, or phase, of the determinant and the logarithm of its magnitude."""
    return f.sign, f.logabsdet


@slogdet_factored_toeplitz.defjvp
def _(
    primals: tuple[FactoredToeplitz], tangents: tuple[FactoredToeplitz]
) -> tuple[tuple[Scalar, Scalar], tuple[Scalar, Scalar]]:
    sign, logabsdet = slogdet_factored_toeplitz(*primals)
    y_dot = jnp.sum(inverse_sums(*primals) * tangents[0].a.values)
    turned = 1j * jnp.imag(y_dot) * sign if jnp.iscomplexobj(sign) else jnp.zeros_like(sign)
    return (sign, logabsdet), (turned.astype(sign.dtype), jnp.real(y_dot))


def inverse_sums(f: FactoredToeplitz) -> Shaped[Array, " d"]:
    r"""The sums along the diagonals of $T^{-\top}$, in the order of the values of $T$.

    Along a diagonal of $A = T^{-1}$ the entries differ by those of the displacement
    $Z_{-1} A - A Z_1 = x\,(J(z - 2e_0))^\top - z\,(Jx)^\top$. A sum counts each difference once for
    every entry that follows. Diagonals begin in the first column $x$ and the first row $Jw$,
    $w = T^{-1}e_{n-1}$. So the sums are four convolutions. They are nan if the matrix is singular
    to rounding.
    """
    sides = toeplitz_sides(f.a.values)
    sides = jnp.concatenate([sides, sides[::-1, :1]], axis=1)
    x, z, w = solve_factored_toeplitz(f, sides).T
    n = x.shape[0]
    left = jnp.stack([x, -z])
    right = jnp.stack([z.at[0].add(-2), x])[:, ::-1]
    right = jnp.pad(right[:, :-1], ((0, 0), (1, 0)))  # beside the row above
    weights = jnp.arange(n, 0, -1).astype(x.dtype)
    below = convolve(left * weights[None, :], right[:, ::-1])[n - 1 :]
    above = convolve(left.at[:, 0].set(0), (right * weights[None, :])[:, ::-1])[: n - 1]
    lower, upper = weights * x - below, (weights * w[::-1])[:0:-1] - above
    size = jnp.sum(jnp.abs(f.a.values)) * jnp.maximum(jnp.max(jnp.abs(x)), jnp.max(jnp.abs(w)))
    regular = (lax.stop_gradient(size) * jnp.finfo(x.dtype).eps < 1) & jnp.isfinite(f.logabsdet)
    return jnp.where(regular, jnp.concatenate([upper, lower])[::-1], jnp.nan)


def inverse_diagonal(f: FactoredToeplitz) -> Shaped[Array, " n"]:
    r"""The diagonal of $T^{-1}$: neighbours differ by an entry of the displacement."""
    x, z = solve_factored_toeplitz(f, toeplitz_sides(f.a.values)).T
    steps = x * jnp.roll(z[::-1], 1) - z * jnp.roll(x[::-1], 1)
    return x[0] - jnp.cumsum(steps.at[0].set(0))


def convolve(left: Shaped[Array, "k n"], right: Shaped[Array, "k n"]) -> Shaped[Array, " d"]:
    """Return the convolution of the rows of two matrices `(k, n)`, summed over `k`: `(2n - 1,)`."""
    outer = tj.Outer(left.T, right[:, ::-1].T)
    n = left.shape[-1]
    like = tj.Toeplitz(jnp.zeros(2 * n - 1, outer.dtype))
    return tj.tangents.pullback_of_destructure(like)(outer).values
