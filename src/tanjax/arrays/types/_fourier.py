"""Products of matrices that are constant along diagonals, by the discrete Fourier transform.

The product of a `Toeplitz` matrix and a vector is part of a convolution. For a `Circulant` it is a
cyclic convolution. In the Fourier basis both are products of numbers. Real arrays have real
results. Dtypes narrower than float32 are transformed in float32. Integers are convolved directly,
because a transform would round them.

Sharp edge: the rounding error of every entry is relative to the largest entry. An entry smaller by
more than the precision of the dtype becomes noise; a sum of products would keep it. One `inf` or
`nan` spreads to all entries.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, export
from jaxtyping import Shaped

from tanjax._errors import ShapeError
from tanjax._typing import AnyArray, DenseArray, DType

from .._abstract import default_dtype


def known_length(n: int) -> int:
    """Return the length of a transform. **Raises:** `ShapeError` for a symbolic one."""
    if export.is_symbolic_dim(n):
        raise ShapeError(
            f"A Fourier transform needs a length that is a number; got {n}.\n"
            "Hint: export for one size (a batch may be symbolic), or use `.to_dense()`."
        )
    return n


@functools.cache
def fast_length(n: int) -> int:
    """Return the least number from `n` on with the prime factors 2, 3 and 5: a fast length."""
    best = 1 << max(known_length(n) - 1, 0).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            quotient = -(-n // three)
            best = min(best, three << max(quotient - 1, 0).bit_length())
            three *= 3
        five *= 5
    return best


def is_exact(*arrays: Shaped[AnyArray, " ..."]) -> bool:
    """True if all arrays hold integers: then a product must not round."""
    return not any(jnp.issubdtype(x.dtype, jnp.inexact) for x in arrays)


def convolve(
    a: Shaped[DenseArray, "*#batch _"], b: Shaped[DenseArray, "*#batch _"], length: int
) -> Shaped[Array, "*#batch {length}"]:
    """Return the cyclic convolution along the last axis of arrays, zero-padded to a length."""
    if 0 in (*a.shape, *b.shape):
        shape = jnp.broadcast_shapes(a.shape[:-1], b.shape[:-1])
        return jnp.zeros((*shape, length), jnp.result_type(a, b))
    return _convolve(a, b, length, lambda spectrum: spectrum)


def convolve_and_add(
    a: Shaped[DenseArray, "*#batch k _"], b: Shaped[DenseArray, "*#batch k _"], length: int
) -> Shaped[Array, "*#batch {length}"]:
    """Sum `convolve` over the second last axis, with one inverse transform for the sum."""
    if 0 in (*a.shape, *b.shape):
        return jnp.sum(convolve(a, b, length), axis=-2)
    return _convolve(a, b, length, lambda spectrum: jnp.sum(spectrum, axis=-2))


def _convolve(
    a: Shaped[DenseArray, "*#batch _"],
    b: Shaped[DenseArray, "*#batch _"],
    length: int,
    reduce: Callable[[Array], Array],
) -> Shaped[Array, "... {length}"]:
    dtype = jnp.result_type(a, b)
    real = not jnp.issubdtype(dtype, jnp.complexfloating)
    a, b = forward(a, length, real), forward(b, length, real)
    ndim = max(a.ndim, b.ndim)
    a, b = (x.reshape((1,) * (ndim - x.ndim) + x.shape) for x in (a, b))
    spectrum = reduce(a * b)
    return backward(spectrum, length, real).astype(dtype)


def forward(
    x: Shaped[DenseArray, "*batch _"], length: int, real: bool
) -> Shaped[Array, "*batch _"]:
    """Transform the last axis; for real numbers return the half that determines the rest."""
    wide, length = x.astype(wide_enough(x.dtype)), known_length(length)
    return jnp.fft.rfft(wide, length) if real else jnp.fft.fft(wide, length)


def wide_enough(dtype: DType) -> DType:
    """Return the dtype for a transform: floating or complex, and not narrower than float32."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        return default_dtype()
    return jnp.dtype(jnp.float32) if jnp.finfo(dtype).bits < 32 else jnp.dtype(dtype)


def backward(
    x: Shaped[Array, "*batch _"], length: int, real: bool
) -> Shaped[Array, "*batch {length}"]:
    """Return the inverse of `forward`."""
    return jnp.fft.irfft(x, length) if real else jnp.fft.ifft(x, length)


def valid_product(
    values: Shaped[DenseArray, "*#batch d"], b: Shaped[DenseArray, "*#batch n"]
) -> Shaped[Array, "*#batch {values.shape[-1]-b.shape[-1]+1}"]:
    """Return the Toeplitz product `Σⱼ values[i - j + n - 1] b[j]` along the last axes.

    `n` is the length of `b`. **Cost:** transforms of `values`, `b` and the result, of a length near
    that of `values`.
    """
    n = b.shape[-1]
    rows = values.shape[-1] - n + 1
    if is_exact(values, b) and 0 not in (*values.shape, *b.shape):
        return _exact_product(values, b)
    return convolve(values, b, fast_length(values.shape[-1]))[..., n - 1 : n - 1 + rows]


def _exact_product(
    values: Shaped[DenseArray, "*#batch d"], b: Shaped[DenseArray, "*#batch n"]
) -> Shaped[Array, "*#batch m"]:
    """Return `valid_product` of integers, in $O(mn)$ operations without the matrix."""
    dtype = jnp.result_type(values, b)
    shape = jnp.broadcast_shapes(values.shape[:-1], b.shape[:-1])
    left, right = (
        jnp.broadcast_to(x, (*shape, x.shape[-1])).reshape(-1, x.shape[-1]).astype(dtype)
        for x in (values, b)
    )
    n, rows = b.shape[-1], values.shape[-1] - b.shape[-1] + 1

    def add(j: Shaped[DenseArray, ""], total: Shaped[Array, "r m"]) -> Shaped[Array, "r m"]:
        part = jax.lax.dynamic_slice_in_dim(left, n - 1 - j, rows, axis=1)
        return total + part * jax.lax.dynamic_slice_in_dim(right, j, 1, axis=1)

    total = jax.lax.fori_loop(0, n, add, jnp.zeros((left.shape[0], rows), dtype))
    return total.reshape(*shape, rows)


def over_columns(
    function: Callable[[Array], Array], b: Shaped[DenseArray, " n *k"]
) -> Shaped[Array, " m *k"]:
    """Apply a `function` of the last axis to a vector, or to the columns of a matrix."""
    return function(b) if b.ndim == 1 else function(b.T).T
