r"""The inverse of a Toeplitz matrix from two columns, which replace a factorisation.

$T$ and its inverse have displacement rank 2. With $Z_\varphi$ the cyclic shift downwards that
multiplies the entry that wraps around by $\varphi$,

$$Z_1 T - T Z_{-1} = e_0 p^\top + q\,e_{n-1}^\top,\qquad q_i = t_i + t_{i-n},\ q_0 = t_0,$$

and with $x = T^{-1}e_0$, $z = T^{-1}q$ the inverse is a sum of products of circulant and
skew-circulant matrices, each given by its first column,

$$T^{-1} = Z_{-1}(x) + \tfrac12\left[Z_{-1}(z) Z_1(x) - Z_{-1}(x) Z_1(z)\right],$$

also for $x_0 = 0$, where the formula of Gohberg and Semencul is undefined. A multiple of $x$ added
to $z$ cancels. So after $O(n^2)$ operations on vectors of length $n$ a product with $T^{-1}$ takes
six transforms. The sums along the diagonals of $T^{-1}$, the derivative of `logdet`, take a few
more. No n-by-n matrix is formed, except for systems of up to 1024 rows, which are faster by LU of
the full matrix (`system_of_toeplitz`).

The columns of a Hermitian positive definite matrix come from the recursion of Schur, with that of
Levinson beside it. The running program decides: a number that is not positive shows that the matrix
is not definite. All other matrices take Gaussian elimination with row exchanges in the Fourier
basis, where $T$ becomes a Cauchy-like matrix. Singular leading minors, on which recursions of
Levinson's kind break down, do no harm there. Under `jax.vmap` both run for each matrix.

As in `factored`, the recursions are never differentiated. Functions of the columns state their
derivative in terms of the matrix.

**References:** Kailath, Kung, Morf 1979 (displacement rank); Ammar, Gader 1990 (the formula);
Schur 1917; Gohberg, Kailath, Olshevsky 1995 (pivoting); Aricò, Rodriguez 2010 (in linear memory).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike
from jaxtyping import Bool, Complex, Shaped

import tanjax as tj
from tanjax.typing import Function, Scalar

from ..exports import exported
from ..shapes import DenseColumns
from .factored import Factored, factored_matrix, solve_by_factor

# Up to so many rows a system forms the matrix: always, or if it is not definite.
SMALL, FORMED = 256, 1024

SquareToeplitz: TypeAlias = Shaped[tj.Toeplitz, "n n"]
# The carry of a recursion.
State: TypeAlias = tuple[Array, Array, Array, Array]
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
        lambda: alike(by_elimination(lax.stop_gradient(a.values))),
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
    a = a.replace(values=a.values.astype(wide_enough(a.dtype)))
    values = lax.stop_gradient(a.values)
    alike = lambda found: tj.rules.align(found, values)  # the results of branches must vary alike
    nothing = jnp.full((), jnp.nan, jnp.finfo(values.dtype).dtype)
    return a, alike((unit_and_border(values), values[0], nothing)), alike


def _by_schur_if_definite(a: SquareToeplitz) -> tuple[SquareToeplitz, Factors, Function]:
    """Return the columns and the determinant; its logarithm is not finite if they are unknown."""
    a, unknown, alike = _unknown(a)
    values = lax.stop_gradient(a.values)
    return (
        a,
        lax.cond(_is_hermitian(values), lambda: alike(by_schur(values)), lambda: unknown),
        alike,
    )


def _refined(f: FactoredToeplitz) -> FactoredToeplitz:
    """Refine the columns by one step."""
    fixed = f.a.replace(values=lax.stop_gradient(f.a.values))
    missing = unit_and_border(fixed.values) - fixed.apply(f.columns)
    return f._replace(columns=f.columns + inverse_product(f, missing))


def wide_enough(dtype: DTypeLike) -> np.dtype:
    """Return the dtype of the transforms: floating, and not narrower than float32."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        return jnp.result_type(float)
    return jnp.dtype(jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype)


def unit_and_border(values: Shaped[Array, " d"]) -> Shaped[Array, "n 2"]:
    """Return the right-hand sides `e₀` and `q`, `(n, 2)`; their solutions are `x` and `z`."""
    n = (values.shape[-1] + 1) // 2
    border = values[n - 1 :].at[1:].add(values[: n - 1])
    return jnp.stack([jnp.zeros_like(border).at[0].set(1), border], axis=1)


# -- the inverse -----------------------------------------------------------------------------------


def inverse_product(
    f: FactoredToeplitz, b: DenseColumns, turn: Complex[Array, " n"] | None = None
) -> DenseColumns:
    """Return `T⁻¹ b` for a vector or a matrix `b`, by six transforms of each column."""
    n = f.columns.shape[0]
    turn = half_turn(n, f.columns.dtype) if turn is None else turn
    dtype = b.dtype if jnp.iscomplexobj(b) else f.columns.dtype
    rows, columns = (b if b.ndim == 1 else b.T).astype(dtype), f.columns.T.astype(dtype)
    if jnp.iscomplexobj(rows):
        by_x, by_z = (jnp.fft.ifft(_times(jnp.fft.fft(rows), v)) for v in jnp.fft.fft(columns))
    else:
        spectra = jnp.fft.rfft(columns)
        by_x, by_z = (jnp.fft.irfft(_times(jnp.fft.rfft(rows), v), n) for v in spectra)
    skew = lambda v: jnp.fft.fft(_times(v.astype(turn.dtype), turn))
    x, z = skew(columns)
    out = jnp.fft.ifft(_times(skew(2 * rows - by_z), x) + _times(skew(by_x), z))
    out = _times(out, jnp.conj(turn)) / 2
    out = (out if jnp.iscomplexobj(rows) else out.real).astype(dtype)
    return out if b.ndim == 1 else out.T


def _times(rows: Shaped[Array, "*k n"], v: Shaped[Array, " n"]) -> Shaped[Array, "*k n"]:
    """Multiply a vector, or each row of a matrix, by a vector."""
    return rows * (v if rows.ndim == 1 else v[None, :])


def half_turn(n: int, dtype: DTypeLike) -> Complex[Array, " n"]:
    """Return `exp(-iπ k/n)`, which turns a skew-circulant matrix into a circulant matrix."""
    turn = np.exp(-1j * np.pi * np.arange(n) / max(n, 1))
    return tj.rules.constant(turn, complex_of(dtype))


def complex_of(dtype: DTypeLike) -> np.dtype:
    """Return the complex dtype of the same precision."""
    return jnp.dtype(jnp.complex128 if jnp.finfo(dtype).bits == 64 else jnp.complex64)


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
        x = inverse_product(fixed, b, turn)
        x = x + inverse_product(fixed, b - fixed.a.apply(x), turn)
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
    sides = unit_and_border(f.a.values)
    sides = jnp.concatenate([sides, sides[::-1, :1]], axis=1)
    x, z, w = solve_factored_toeplitz(f, sides).T
    n = x.shape[0]
    left = jnp.stack([x, -z])
    right = jnp.stack([z.at[0].add(-2), x])[:, ::-1]
    right = jnp.pad(right[:, :-1], ((0, 0), (1, 0)))  # beside the row above
    weights = jnp.arange(n, 0, -1).astype(x.dtype)
    below = convolve(_times(left, weights), right[:, ::-1])[n - 1 :]
    above = convolve(left.at[:, 0].set(0), _times(right, weights)[:, ::-1])[: n - 1]
    lower, upper = weights * x - below, (weights * w[::-1])[:0:-1] - above
    size = jnp.sum(jnp.abs(f.a.values)) * jnp.maximum(jnp.max(jnp.abs(x)), jnp.max(jnp.abs(w)))
    regular = (lax.stop_gradient(size) * jnp.finfo(x.dtype).eps < 1) & jnp.isfinite(f.logabsdet)
    return jnp.where(regular, jnp.concatenate([upper, lower])[::-1], jnp.nan)


def inverse_diagonal(f: FactoredToeplitz) -> Shaped[Array, " n"]:
    r"""The diagonal of $T^{-1}$: neighbours differ by an entry of the displacement."""
    x, z = solve_factored_toeplitz(f, unit_and_border(f.a.values)).T
    steps = x * jnp.roll(z[::-1], 1) - z * jnp.roll(x[::-1], 1)
    return x[0] - jnp.cumsum(steps.at[0].set(0))


def convolve(left: Shaped[Array, "k n"], right: Shaped[Array, "k n"]) -> Shaped[Array, " d"]:
    """Return the convolution of the rows of two matrices `(k, n)`, summed over `k`: `(2n - 1,)`."""
    outer = tj.Outer(left.T, right[:, ::-1].T)
    n = left.shape[-1]
    like = tj.Toeplitz(jnp.zeros(2 * n - 1, outer.dtype))
    return tj.pullback_of_destructure(like)(outer).values


# -- the recursion for definite matrices -----------------------------------------------------------


def by_schur(values: Shaped[Array, " d"]) -> Factors:
    """Columns, sign and logarithm of the determinant of a Hermitian positive definite matrix.

    Schur's recursion gives the reflection coefficients without inner products, Levinson's gives the
    polynomials: $O(n^2)$ operations, four vectors. The logarithm is not finite if the matrix with
    this first column is not definite.
    """
    n = (values.shape[-1] + 1) // 2
    column = values[n - 1 :]
    shift = lambda v: jnp.concatenate([jnp.zeros_like(v[:1]), v[:-1]])

    def step(state: State, _: None) -> tuple[State, Scalar]:
        u, v, a, b = state
        k = -u[0] / v[0]
        u, v = u + k * v, v + jnp.conj(k) * u
        b = shift(b)
        a, b = a + k * b, b + jnp.conj(k) * a
        u = jnp.concatenate([u[1:], jnp.zeros_like(u[:1])])
        return (u, v, a, b), jnp.real(v[0])

    first = jnp.zeros_like(column).at[0].set(1)
    after = jnp.concatenate([column[1:], jnp.zeros_like(column[:1])])
    start = tj.rules.align((after, column, first, first))
    (_, v, a, b), errors = lax.scan(step, start, None, length=n - 1)
    log = jnp.log(jnp.real(column[0])) + jnp.sum(jnp.log(errors))
    return jnp.stack([a / v[0], first - shift(b)], axis=1), jnp.ones((), a.dtype), log


def _is_hermitian(values: Shaped[Array, " d"]) -> Bool[Array, ""]:
    return jnp.all(values == jnp.conj(values[::-1]))


# -- elimination for all others --------------------------------------------------------------------


def by_elimination(values: Shaped[Array, " d"]) -> Factors:
    r"""Columns, sign and logarithm of the determinant of any Toeplitz matrix.

    In the basis where $Z_1$ and $Z_{-1}$ are diagonal, with entries $\lambda_i$ and $\mu_j$, the
    matrix is $C_{ij} = g_i b_j / (\lambda_i - \mu_j)$ with two columns $g$ and two rows $b$. All
    its Schur complements have the same form. The elimination includes an identity below the matrix,
    whose rows become $-C^{-1} g$.
    """
    n = (values.shape[-1] + 1) // 2
    columns = unit_and_border(values)
    row = (values[n - 1 :].at[1:].add(-values[: n - 1]))[::-1]  # `p`
    turn = half_turn(n, values.dtype)
    g = (jnp.fft.fft(columns.T) * n**-0.5).T
    rows = jnp.stack([row, columns[::-1, 0]]).astype(turn.dtype)
    b = jnp.fft.ifft(_times(rows, jnp.conj(turn))) * n**0.5
    solution, pivots, order = _eliminate(g, b)
    columns = _times(jnp.fft.ifft(solution.T) * n**0.5, jnp.conj(turn)).T
    size = jnp.abs(pivots)
    phases = jnp.where(size == 0, 0, pivots / jnp.where(size == 0, 1, size).astype(g.dtype))
    quarter_turns = (1, -1j, -1, 1j)[(n - 1) % 4]  # the determinant of all `turn`
    sign = jnp.prod(phases) * quarter_turns * tj.Permutation(order).sign().astype(phases.dtype)
    if not jnp.iscomplexobj(values):
        columns, sign = columns.real, jnp.sign(sign.real)
    return columns, sign.astype(values.dtype), jnp.sum(jnp.log(size))


def _eliminate(
    g: Complex[Array, "n 2"], b: Complex[Array, "2 n"]
) -> tuple[Complex[Array, "n 2"], Complex[Array, " n"], Shaped[Array, " n"]]:
    """`C⁻¹ g` for the Cauchy-like matrix of `g` `(n, 2)` and `b` `(2, n)`, pivots, and their rows.

    The reciprocals of the differences of nodes are products of phases and a real kernel of the
    difference of their indices. A subtraction of nodes would cancel.
    """
    n = g.shape[0]
    upper, turned, lower, row_phase, column_phase = _kernels(n, jnp.finfo(g.dtype).dtype)
    numbers = jnp.arange(n)

    def step(state: State, k: Scalar) -> tuple[State, tuple[Scalar, Scalar]]:
        g, b, below, active = state
        part = lambda table, i: lax.dynamic_slice_in_dim(table, n - 1 - i, n).astype(g.dtype)
        b_k, phase = b[:, k], column_phase[k]
        column = jnp.where(active, (g @ b_k) * part(upper, k) * row_phase * phase, 0)
        p = jnp.argmax(jnp.abs(column))
        pivot, g_p = column[p], g[p]
        inverse = 1 / jnp.where(pivot == 0, 1, pivot)
        row = (g_p @ b) * part(turned, p) * column_phase * (row_phase[p] * inverse)
        eliminated = (below @ b_k) * part(lower, k) * column_phase * phase * -2j
        eliminated = jnp.where(numbers == k, 1, eliminated) * inverse
        active = active & (numbers != p)
        g = g - jnp.where(active, column * inverse, 0)[:, None] * g_p[None, :]
        below = below - eliminated[:, None] * g_p[None, :]
        b = b - b_k[:, None] * jnp.where(numbers > k, row, 0)[None, :]
        return (g, b, below, active), (pivot, p)

    start = tj.rules.align((g, b, jnp.zeros_like(g), jnp.ones(n, bool)))
    (_, _, below, _), (pivots, order) = lax.scan(step, start, numbers)
    return -below, pivots, order


def _kernels(n: int, dtype: DTypeLike) -> tuple[Array, ...]:
    r"""$1/(\lambda_i - \mu_k)$ and $1/(\mu_i - \mu_k)$, $i < k$, in factors.

    The first is `upper[i - k] row_phase[i] column_phase[k]`, for a fixed `i` with `turned`; the
    second is `-2i lower[i - k] column_phase[i] column_phase[k]`.
    """
    difference = np.arange(1 - n, n)
    upper = 1 / np.sin(np.pi * (2 * difference - 1) / (2 * n))
    below = np.where(difference < 0, difference, n / 2)
    lower = np.where(difference < 0, 1 / np.sin(np.pi * below / n), 0.0)
    row_phase = np.exp(1j * np.pi * np.arange(n) / n)
    column_phase = 0.5j * np.exp(1j * np.pi * (2 * np.arange(n) + 1) / (2 * n))
    real = lambda v: tj.rules.constant(v, dtype)
    phase = lambda v: tj.rules.constant(v, complex_of(dtype))
    return real(upper), real(upper[::-1]), real(lower), phase(row_phase), phase(column_phase)
