"""Hand-specialised JAX, continued: blocks, Toeplitz matrices, functions of spectra."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from hand import symmetric_logdet, symmetric_solve, with_pullback

# -- equal blocks: one batched operation; XLA's derivative of a batched product is the best --------


def _stacked(p, b):
    m = p[0].shape[0]
    return jnp.stack(p), b.reshape(-1, m, b.shape[-1])


def blockdiagonal_matmul(p, b, w):
    blocks, parts = _stacked(p, b)
    return jnp.sum(w * (blocks @ parts).reshape(b.shape))


def _blockdiagonal_solve(p, b, w):
    blocks, parts = _stacked(p, b)
    factors = jax.vmap(jsl.lu_factor)(blocks)
    x = jax.vmap(jsl.lu_solve)(factors, parts)
    return jnp.sum(w * x.reshape(b.shape)), (factors, x, w)


def _blockdiagonal_solve_pullback(saved, y_bar):
    factors, x, w = saved
    solve = jax.vmap(lambda f, z: jsl.lu_solve(f, z, trans=1))
    left = solve(factors, -y_bar * w.reshape(x.shape))
    return tuple(left @ x.swapaxes(1, 2))


blockdiagonal_solve = with_pullback(_blockdiagonal_solve, _blockdiagonal_solve_pullback)


def blockdiagonal_logdet(p, b, w):
    return jnp.sum(jnp.linalg.slogdet(jnp.stack(p)).logabsdet)


# -- a fixed pattern: gather, multiply, add up ------


@lru_cache
def places(n):
    """Return rows and columns of about `8 n` places of an n-by-n matrix, in order."""
    flat = np.unique(np.random.default_rng(1).integers(0, n * n, 8 * n))
    return flat // n, flat % n


def sparse_matmul(p, b, w):
    rows, columns = places(b.shape[0])
    terms = p[0][:, None] * b[columns]
    return jnp.sum(w * jnp.zeros_like(b).at[rows].add(terms, indices_are_sorted=True))


# -- many small definite matrices: the rules of one, mapped ------


def batch_solve(p, b, w):
    return jnp.sum(jax.vmap(symmetric_solve)(p, b, w))


def batch_logdet(p, b, w):
    return jnp.sum(jax.vmap(symmetric_logdet)(p, b, w))


# -- Toeplitz: products by a circulant of twice the size; systems by LU, factored once ------


def toeplitz_matmul(p, b, w):
    n = b.shape[0]
    spectrum = jnp.fft.rfft(jnp.roll(jnp.append(p[0], jnp.zeros(1, b.dtype)), 1 - n))
    padded = jnp.fft.rfft(b.T, 2 * n)
    return jnp.sum(w.T * jnp.fft.irfft(spectrum * padded, 2 * n)[:, :n])


def _toeplitz_solve(p, b, w):
    n = b.shape[0]
    a = p[0][jnp.arange(n)[:, None] - jnp.arange(n) + n - 1]
    factor = jsl.lu_factor(a)
    x = jsl.lu_solve(factor, b)
    return jnp.sum(w * x), (factor, x, w)


def _toeplitz_solve_pullback(saved, y_bar):
    factor, x, w = saved
    left, n = jsl.lu_solve(factor, -y_bar * w, trans=1), x.shape[0]
    # The sums along the diagonals of `left @ x.T` are correlations of its columns.
    spectra = jnp.fft.rfft(left.T, 2 * n) * jnp.conj(jnp.fft.rfft(x.T, 2 * n))
    return (jnp.roll(jnp.fft.irfft(jnp.sum(spectra, 0), 2 * n), n - 1)[: 2 * n - 1],)


toeplitz_solve = with_pullback(_toeplitz_solve, _toeplitz_solve_pullback)

# -- spectra; JAX differentiates its own eigh and svd as one would by hand ------


def symmetric_eigh(p, b, w):
    values, v = jnp.linalg.eigh(p[0])  # takes the symmetric part: so is the gradient
    return jnp.sum(w * ((v * jnp.exp(-values)) @ (v.T @ b)))


def dense_svd(p, b, w):
    u, s, vh = jnp.linalg.svd(p[0], full_matrices=False)
    return jnp.sum(w * ((u * jnp.log1p(s)) @ (vh @ b)))


def _symmetric_sqrtm(p, b, w):
    values, v = jnp.linalg.eigh(p[0], symmetrize_input=False)
    roots = jnp.sqrt(values)
    root = (v * roots) @ v.T
    return jnp.sum(jnp.sin(root)), (roots, v, root)


def _symmetric_sqrtm_pullback(saved, y_bar):
    roots, v, root = saved
    inner = v.T @ (y_bar * jnp.cos(root)) @ v
    return (v @ (inner / (roots[:, None] + roots)) @ v.T,)


symmetric_sqrtm = with_pullback(_symmetric_sqrtm, _symmetric_sqrtm_pullback)


def _symmetric_funm_multiply(p, b, w):
    values, v = jnp.linalg.eigh(p[0], symmetrize_input=False)
    roots = jnp.sqrt(values)
    return jnp.sum(w * ((v * roots) @ (v.T @ b))), (roots, v, b, w)


def _symmetric_funm_multiply_pullback(saved, y_bar):
    roots, v, b, w = saved
    inner = (v.T @ (y_bar / 2 * w)) @ (v.T @ b).T  # half of the symmetric part
    return (v @ ((inner + inner.T) / (roots[:, None] + roots)) @ v.T,)


symmetric_funm_multiply = with_pullback(_symmetric_funm_multiply, _symmetric_funm_multiply_pullback)
