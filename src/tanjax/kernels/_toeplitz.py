r"""The inverse of a Toeplitz matrix from two columns, which replace a factorisation.

$T$ and its inverse have displacement rank 2. With $Z_\varphi$ the cyclic shift downwards that
multiplies the entry that wraps around by $\varphi$,

$$Z_1 T - T Z_{-1} = e_0 p^\top + q\,e_{n-1}^\top,\qquad q_i = t_i + t_{i-n},\ q_0 = t_0,$$

and with $x = T^{-1}e_0$, $z = T^{-1}q$ the inverse is a sum of products of circulant and
skew-circulant matrices, each given by its first column,

$$T^{-1} = Z_{-1}(x) + \tfrac12\left[Z_{-1}(z) Z_1(x) - Z_{-1}(x) Z_1(z)\right],$$

also for $x_0 = 0$, where the formula of Gohberg and Semencul is undefined. A multiple of $x$ added
to $z$ cancels. So after $O(n^2)$ operations on vectors of length $n$ a product with $T^{-1}$ takes
six transforms. No n-by-n matrix is formed.

The columns of a Hermitian positive definite matrix come from the recursion of Schur, with that of
Levinson beside it. All other matrices take Gaussian elimination with row exchanges in the Fourier
basis, where $T$ becomes a Cauchy-like matrix. Singular leading minors, on which recursions of
Levinson's kind break down, do no harm there.

A square matrix is given by its `2n - 1` diagonals, in the order of `tj.Toeplitz.values`.

**References:** Kailath, Kung, Morf 1979 (displacement rank); Ammar, Gader 1990 (the formula);
Schur 1917; Gohberg, Kailath, Olshevsky 1995 (pivoting); Aricò, Rodriguez 2010 (in linear memory).
"""

from __future__ import annotations

from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike
from jaxtyping import Bool, Complex, Shaped

from tanjax import _compat
from tanjax._typing import Scalar

from ._parity import parity

# The carry of a recursion.
State: TypeAlias = tuple[Array, Array, Array, Array]
# The columns `x` and `z`, the sign and the logarithm of the determinant.
Factors: TypeAlias = tuple[Shaped[Array, "n 2"], Scalar, Scalar]


def transform_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype of the transforms: floating, and not narrower than float32."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        return jnp.result_type(float)
    return jnp.dtype(jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype)


def toeplitz_sides(values: Shaped[Array, " d"]) -> Shaped[Array, "n 2"]:
    """Return the right-hand sides `e₀` and `q`, `(n, 2)`; their solutions are `x` and `z`."""
    n = (values.shape[-1] + 1) // 2
    border = values[n - 1 :].at[1:].add(values[: n - 1])
    return jnp.stack([jnp.zeros_like(border).at[0].set(1), border], axis=1)


def toeplitz_inverse_product(
    columns: Shaped[Array, "n 2"],
    b: Shaped[Array, " n *k"],
    turn: Complex[Array, " n"] | None = None,
) -> Shaped[Array, " n *k"]:
    """Return `T⁻¹ b` for a vector or a matrix `b`, by six transforms of each column.

    `columns`: `x` and `z`. `turn`: `half_turn(n, columns.dtype)`, if it is known already.
    """
    n = columns.shape[0]
    turn = half_turn(n, columns.dtype) if turn is None else turn
    dtype = b.dtype if jnp.iscomplexobj(b) else columns.dtype
    rows, columns = (b if b.ndim == 1 else b.T).astype(dtype), columns.T.astype(dtype)
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
    return _compat.constant(np.asarray(turn, _complex_of(dtype)))


def _complex_of(dtype: DTypeLike) -> np.dtype:
    """Return the complex dtype of the same precision."""
    return jnp.dtype(jnp.complex128 if jnp.finfo(dtype).bits == 64 else jnp.complex64)


# -- the recursion for definite matrices -----------------------------------------------------------


def toeplitz_by_schur(values: Shaped[Array, " d"]) -> Factors:
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
    start = _compat.align((after, column, first, first))
    (_, v, a, b), errors = lax.scan(step, start, None, length=n - 1)
    log = jnp.log(jnp.real(column[0])) + jnp.sum(jnp.log(errors))
    return jnp.stack([a / v[0], first - shift(b)], axis=1), jnp.ones((), a.dtype), log


def is_hermitian_toeplitz(values: Shaped[Array, " d"]) -> Bool[Array, ""]:
    """True if the matrix with these diagonals equals its conjugate transpose."""
    return jnp.all(values == jnp.conj(values[::-1]))


# -- elimination for all others --------------------------------------------------------------------


def toeplitz_by_elimination(values: Shaped[Array, " d"]) -> Factors:
    r"""Columns, sign and logarithm of the determinant of any Toeplitz matrix.

    In the basis where $Z_1$ and $Z_{-1}$ are diagonal, with entries $\lambda_i$ and $\mu_j$, the
    matrix is $C_{ij} = g_i b_j / (\lambda_i - \mu_j)$ with two columns $g$ and two rows $b$. All
    its Schur complements have the same form. The elimination includes an identity below the matrix,
    whose rows become $-C^{-1} g$.
    """
    n = (values.shape[-1] + 1) // 2
    columns = toeplitz_sides(values)
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
    sign = jnp.prod(phases) * quarter_turns * parity(order).astype(phases.dtype)
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

    start = _compat.align((g, b, jnp.zeros_like(g), jnp.ones(n, bool)))
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
    real = lambda v: _compat.constant(np.asarray(v, dtype))
    phase = lambda v: _compat.constant(np.asarray(v, _complex_of(dtype)))
    return real(upper), real(upper[::-1]), real(lower), phase(row_phase), phase(column_phase)
