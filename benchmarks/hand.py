"""Hand-specialised JAX on plain arrays: the yardstick of the benchmark.

Parameters are tuples of plain arrays. Without a comment to the contrary, `jax.grad` of these few
lines is as fast as the best code that we could write.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import lax


def with_pullback(forward, backward):
    """Return a function of `(parameters, b, w)` with a hand-written gradient for the parameters."""
    f = jax.custom_vjp(lambda p, b, w: forward(p, b, w)[0])
    f.defvjp(
        lambda p, b, w: forward(p, b, w),
        lambda saved, y_bar: (backward(saved, y_bar), None, None),
    )
    return f


# -- diagonal ------------


def diagonal_matmul(p, b, w):
    return jnp.sum(w * (p[0][:, None] * b))


def diagonal_solve(p, b, w):
    return jnp.sum(w * (b / p[0][:, None]))


def diagonal_logdet(p, b, w):
    return jnp.sum(jnp.log(jnp.abs(p[0])))


# -- symmetric: Cholesky, since the matrix is known to be positive definite here ------------


def symmetric_of_outer(left, right):
    """Return `left @ right.T` plus its transpose; few columns as one product of twice the width."""
    n, k = left.shape
    if k == 1:
        return left * right.T + right * left.T
    if k <= (32 if n <= 512 else 64):
        return jnp.concatenate([left, right], 1) @ jnp.concatenate([right, left], 1).T
    product = left @ right.T
    return product + product.T


@jax.jit
def mirror(x):
    """Return the symmetric matrix of an upper triangle."""
    return jnp.where(jnp.triu(jnp.ones(x.shape, bool)), x, x.T)


def _symmetric_matmul(p, b, w):
    return jnp.sum(w * (p[0] @ b)), (b, w)


symmetric_matmul = with_pullback(
    _symmetric_matmul, lambda saved, y: (symmetric_of_outer(y / 2 * saved[1], saved[0]),)
)


def cholesky(a):
    """Return the factor; LAPACK stores by columns, so it reads the memory as the transpose."""
    return lax.linalg.cholesky(a.T, symmetrize_input=False)


def cho_solve(factor, b):
    """Solve from the right, for the same reason: `b` by rows is its transpose by columns."""
    divide = partial(lax.linalg.triangular_solve, factor, left_side=False, lower=True)
    return divide(divide(b.T, transpose_a=True)).T


def _symmetric_solve(p, b, w):
    factor = cholesky(p[0])
    x = cho_solve(factor, b)
    return jnp.sum(w * x), (factor, x, w)


def _symmetric_solve_pullback(saved, y_bar):
    factor, x, w = saved
    return (symmetric_of_outer(cho_solve(factor, -y_bar / 2 * w), x),)


symmetric_solve = with_pullback(_symmetric_solve, _symmetric_solve_pullback)


def _symmetric_logdet(p, b, w):
    factor = cholesky(p[0])
    return 2 * jnp.sum(jnp.log(jnp.diagonal(factor))), factor


def _symmetric_logdet_pullback(factor, y_bar):
    inverse = cho_solve(factor, y_bar * jnp.eye(factor.shape[0], dtype=factor.dtype))
    return ((inverse + inverse.T) / 2,)


symmetric_logdet = with_pullback(_symmetric_logdet, _symmetric_logdet_pullback)

# -- triangular: the stored zeros are exact, so only the gradient is masked ------------


def _triangular_matmul(p, b, w):
    return jnp.sum(w * (p[0] @ b)), (b, w)


triangular_matmul = with_pullback(
    _triangular_matmul, lambda saved, y: (jnp.tril((y * saved[1]) @ saved[0].T),)
)


def _triangular_solve(p, b, w):
    x = jsl.solve_triangular(p[0], b, lower=True)
    return jnp.sum(w * x), (p[0], x, w)


def _triangular_solve_pullback(saved, y_bar):
    factor, x, w = saved
    u = jsl.solve_triangular(factor, -y_bar * w, lower=True, trans=1)
    return (jnp.tril(u @ x.T),)


triangular_solve = with_pullback(_triangular_solve, _triangular_solve_pullback)


def triangular_logdet(p, b, w):
    return jnp.sum(jnp.log(jnp.abs(jnp.diagonal(p[0]))))


# -- Kronecker, two factors: the first last, so that the result lies in memory by rows ------------


def kronecker_apply(p, b):
    a, c = p
    x = c @ b.reshape(a.shape[1], c.shape[1], -1)
    return (a @ x.reshape(a.shape[1], -1)).reshape(a.shape[0] * c.shape[0], -1)


def kronecker_matmul(p, b, w):
    return jnp.sum(w * kronecker_apply(p, b))


def kronecker_sin_matmul(p, b, w):
    return jnp.sum(w * jnp.sin(kronecker_apply(p, b)))


def _kronecker_solve(p, b, w):
    a, c = p
    n, m, k = len(a), len(c), b.shape[1]
    first, last = jsl.lu_factor(a), jsl.lu_factor(c)
    y = jsl.lu_solve(last, jnp.moveaxis(b.reshape(n, m, k), 1, 0).reshape(m, n * k))
    x = jsl.lu_solve(first, jnp.moveaxis(y.reshape(m, n, k), 0, 1).reshape(n, m * k))
    return jnp.sum(w * x.reshape(n * m, k)), (first, last, y, x, w)


def _kronecker_solve_pullback(saved, y_bar):
    first, last, y, x, w = saved
    n, m, k = len(x), len(y), w.shape[1]
    left = jsl.lu_solve(first, -y_bar * w.reshape(n, m * k), trans=1)
    right = jsl.lu_solve(last, jnp.moveaxis(left.reshape(n, m, k), 1, 0).reshape(m, n * k), trans=1)
    return left @ x.T, right @ y.T


kronecker_solve = with_pullback(_kronecker_solve, _kronecker_solve_pullback)


def kronecker_logdet(p, b, w):
    a, c = p
    of = lambda m: jnp.linalg.slogdet(m).logabsdet
    return c.shape[0] * of(a) + a.shape[0] * of(c)


# -- diagonal plus u diag(d) uᵀ: Woodbury and the determinant lemma ------------


def lowrankupdate_matmul(p, b, w):
    base, u, d = p
    return jnp.sum(w * (base[:, None] * b + u @ (d[:, None] * (u.T @ b))))


def capacitance(p):
    base, u, d = p
    z = u / base[:, None]
    return jnp.diag(1 / d) + u.T @ z, z


def _lowrankupdate_solve(p, b, w):
    base, u, d = p
    over = 1 / base[:, None]
    z = u * over
    inner, zb = u.T @ z, z.T @ b
    factor = jsl.lu_factor(jnp.eye(len(d)) + d[:, None] * inner)
    t = jsl.lu_solve(factor, d[:, None] * zb)
    x = b * over - z @ t
    return jnp.sum(w * x), (over, z, inner, zb, factor, t, d, x, w)


def _lowrankupdate_solve_pullback(saved, y_bar):
    """The second solve with the same factor; `t` is `D Uᵀ x`, and `s` is `D Uᵀ` of the other."""
    over, z, inner, zb, factor, t, d, x, w = saved
    x_bar = y_bar * w
    zx = z.T @ x_bar
    s = jsl.lu_solve(factor, d[:, None] * zx)
    v = z @ s - x_bar * over
    d_bar = -jnp.sum((zx - inner @ s) * (zb - inner @ t), 1)
    return jnp.sum(v * x, 1), v @ t.T - x @ s.T, d_bar


lowrankupdate_solve = with_pullback(_lowrankupdate_solve, _lowrankupdate_solve_pullback)


def lowrankupdate_logdet(p, b, w):
    small, _ = capacitance(p)
    log = lambda x: jnp.sum(jnp.log(jnp.abs(x)))
    return log(p[0]) + log(p[2]) + jnp.linalg.slogdet(small).logabsdet


# -- circulant: the spectrum of the first column ------------


def circulant_matmul(p, b, w):
    n = len(p[0])
    return jnp.sum(w * jnp.fft.irfft(jnp.fft.rfft(p[0]) * jnp.fft.rfft(b.T), n).T)


def circulant_solve(p, b, w):
    n = len(p[0])
    return jnp.sum(w * jnp.fft.irfft(jnp.fft.rfft(b.T) / jnp.fft.rfft(p[0]), n).T)


def circulant_logdet(p, b, w):
    return jnp.sum(jnp.log(jnp.abs(jnp.fft.fft(p[0]))))


# -- tridiagonal, and two diagonals on each side ------------
#
# JAX differentiates the products. Elimination exchanges rows as LAPACK does, with one factor for a
# system, its transpose and the band of the inverse. `lax.linalg.tridiagonal_solve` is slower by a
# factor of ten and more for 64 right-hand sides.


def tridiagonal_matmul(p, b, w):
    lower, diag, upper = (x[:, None] for x in p)
    below, above = (
        jnp.pad(lower * b[:-1], ((1, 0), (0, 0))),
        jnp.pad(upper * b[1:], ((0, 1), (0, 0))),
    )
    return jnp.sum(w * (diag * b + below + above))


def banded_matmul(p, b, w):
    n, padded = b.shape[0], jnp.pad(b, ((2, 2), (0, 0)))
    by_rows = rows_of_bands(p)
    return jnp.sum(w * sum(by_rows[:, j, None] * padded[j : j + n] for j in range(5)))


def rows_of_three(p):
    return jnp.stack([jnp.pad(p[0], (1, 0)), p[1], jnp.pad(p[2], (0, 1))], 1)


def three_of_rows(rows):
    return rows[1:, 0], rows[:, 1], rows[:-1, 2]


def rows_of_bands(p):
    padded, n = jnp.pad(p[0], ((0, 0), (2, 2))), p[0].shape[1]
    return jnp.stack([padded[4 - j, j : j + n] for j in range(5)], 1)


def bands_of_rows(rows):
    padded, n = jnp.pad(rows, ((2, 2), (0, 0))), rows.shape[0]
    return (jnp.stack([padded[4 - j : 4 - j + n, j] for j in range(4, -1, -1)]),)


def exchange(swap, p, q):
    return jnp.where(swap, q, p), jnp.where(swap, p, q)


def eliminate(rows, k):
    """Return the pivot rows, the multipliers, and the exchanged rows."""
    padded = jnp.pad(rows, ((0, k), (0, 0)))

    def step(rest, entering):
        p, *others = (*rest, entering)
        swaps = []
        for i, q in enumerate(others):
            swaps.append(jnp.abs(q[0]) > jnp.abs(p[0]))
            p, others[i] = exchange(swaps[-1], p, q)
        m = [q[0] / p[0] for q in others]
        rest = tuple(jnp.append((q - f * p)[1:], 0) for f, q in zip(m, others, strict=True))
        return rest, (p, jnp.stack(m), jnp.stack(swaps))

    first = tuple(jnp.pad(padded[i, k - i :], (0, k - i)) for i in range(k))
    return lax.scan(step, first, padded[k:])[1]


def forward_and_back(factor, b):
    pivots, m, swaps = factor
    k = m.shape[1]
    padded = jnp.pad(b, ((0, k), (0, 0)))

    def step(rest, x):
        m, swaps, entering = x
        p, *others = (*rest, entering)
        for i, q in enumerate(others):
            p, others[i] = exchange(swaps[i], p, q)
        return tuple(q - m[i] * p for i, q in enumerate(others)), p

    y = lax.scan(step, tuple(padded[:k]), (m, swaps, padded[k:]))[1]

    def back(later, x):
        p, y = x
        y = (y - sum(p[j + 1] * z for j, z in enumerate(later))) / p[0]
        return (y, *later[:-1]), y

    return lax.scan(back, (jnp.zeros_like(b[0]),) * (2 * k), (pivots, y), reverse=True)[1]


def transposed_forward_and_back(factor, b):
    pivots, m, swaps = factor
    k, zero = m.shape[1], jnp.zeros_like(b[0])

    def step(pending, x):
        p, c = x
        z = (c - pending[0]) / p[0]
        return tuple(q + p[j + 1] * z for j, q in enumerate((*pending[1:], zero))), z

    z = lax.scan(step, (zero,) * (2 * k), (pivots, b))[1]

    def gather(rest, x):
        m, swaps, p = x
        rest = list(rest)
        p = p - sum(m[i] * q for i, q in enumerate(rest))
        for i in reversed(range(k)):
            p, rest[i] = exchange(swaps[i], p, rest[i])
        return (p, *rest[:-1]), rest[-1]

    first, others = lax.scan(gather, (zero,) * k, (m, swaps, z), reverse=True)
    return jnp.concatenate([jnp.stack(first), others])[: len(b)]


def band_of_inverse(factor):
    pivots, m, swaps = factor
    k = m.shape[1]

    def step(rest, x):
        p, m, swaps = x
        beside = -sum(m[i] * z for i, z in enumerate(rest))
        q = jnp.append((1 - p[1:] @ beside) / p[0], beside)
        others = [jnp.append(-(p[1:] @ z) / p[0], z) for z in rest]
        for i in reversed(range(k)):
            q, others[i] = exchange(swaps[i], q, others[i])
        return tuple(z[:-1] for z in (q, *others[:-1])), others[-1]

    zero = jnp.zeros_like(pivots[0, 1:])
    first, rows = lax.scan(step, (zero,) * k, (pivots, m, swaps), reverse=True)
    top = [jnp.pad(z, (k - i, 0))[: 2 * k + 1] for i, z in enumerate(first)]
    return jnp.concatenate([jnp.stack(top), rows])[: len(pivots)]


def of_band(k, to_rows, from_rows):
    """Return solve and logarithm of the determinant, for the parameters of one type."""

    def solve(p, b, w):
        factor = eliminate(to_rows(p), k)
        x = forward_and_back(factor, b)
        return jnp.sum(w * x), (factor, x, w)

    def solve_pullback(saved, y_bar):
        factor, x, w = saved
        u, n = transposed_forward_and_back(factor, -y_bar * w), x.shape[0]
        padded = jnp.pad(x, ((k, k), (0, 0)))
        return from_rows(
            jnp.stack([jnp.sum(u * padded[j : j + n], 1) for j in range(2 * k + 1)], 1)
        )

    def logdet(p, b, w):
        factor = eliminate(to_rows(p), k)
        return jnp.sum(jnp.log(jnp.abs(factor[0][:, 0]))), factor

    def logdet_pullback(factor, y_bar):
        return from_rows(y_bar * band_of_inverse(factor))

    return with_pullback(solve, solve_pullback), with_pullback(logdet, logdet_pullback)


tridiagonal_solve, tridiagonal_logdet = of_band(1, rows_of_three, three_of_rows)
banded_solve, banded_logdet = of_band(2, rows_of_bands, bands_of_rows)
