"""Hand-specialised JAX on plain arrays: the yardstick of the benchmark.

Parameters are tuples of plain arrays. Where a comment says nothing, `jax.grad` of these few lines
is as fast as anything that we could write.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import lax


def with_pullback(forward, backward):
    """A function of `(parameters, b, w)` with a hand-written gradient for the parameters."""
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
    """The symmetric part of `left @ right.T` as one product of twice the width."""
    return jnp.concatenate([left, right], 1) @ jnp.concatenate([right, left], 1).T


def _symmetric_matmul(p, b, w):
    return jnp.sum(w * (p[0] @ b)), (b, w)


symmetric_matmul = with_pullback(
    _symmetric_matmul, lambda saved, y: (symmetric_of_outer(y / 2 * saved[1], saved[0]),)
)


def _symmetric_solve(p, b, w):
    factor = lax.linalg.cholesky(p[0], symmetrize_input=False)
    x = jsl.cho_solve((factor, True), b)
    return jnp.sum(w * x), (factor, x, w)


def _symmetric_solve_pullback(saved, y_bar):
    factor, x, w = saved
    return (symmetric_of_outer(jsl.cho_solve((factor, True), -y_bar / 2 * w), x),)


symmetric_solve = with_pullback(_symmetric_solve, _symmetric_solve_pullback)


def _symmetric_logdet(p, b, w):
    factor = lax.linalg.cholesky(p[0], symmetrize_input=False)
    return 2 * jnp.sum(jnp.log(jnp.diagonal(factor))), factor


def _symmetric_logdet_pullback(factor, y_bar):
    eye = y_bar * jnp.eye(factor.shape[0], dtype=factor.dtype)
    inverse = jsl.cho_solve((factor, True), eye)
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


# -- Kronecker, two factors ------------


def kronecker_matmul(p, b, w):
    a, c = p
    x = b.reshape(a.shape[1], -1)
    x = (a @ x).reshape(a.shape[0], c.shape[1], -1)
    return jnp.sum(w.reshape(x.shape[0], c.shape[0], -1) * jnp.einsum("ij,ajk->aik", c, x))


def kronecker_solve(p, b, w):
    a, c = p
    x = jnp.linalg.solve(a, b.reshape(a.shape[1], -1)).reshape(a.shape[0], c.shape[1], -1)
    x = jnp.moveaxis(x, 1, 0)
    y = jnp.linalg.solve(c, x.reshape(c.shape[1], -1)).reshape(x.shape)
    return jnp.sum(w.reshape(a.shape[0], c.shape[0], -1) * jnp.moveaxis(y, 0, 1))


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


def lowrankupdate_solve(p, b, w):
    small, z = capacitance(p)
    y = b / p[0][:, None]
    return jnp.sum(w * (y - z @ jnp.linalg.solve(small, p[1].T @ y)))


def lowrankupdate_logdet(p, b, w):
    small, _ = capacitance(p)
    log = lambda x: jnp.sum(jnp.log(jnp.abs(x)))
    return log(p[0]) + log(p[2]) + jnp.linalg.slogdet(small).logabsdet
