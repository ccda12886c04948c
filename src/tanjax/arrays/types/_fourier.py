"""Products of matrices that are constant along diagonals, by the discrete Fourier transform.

The product of a `Toeplitz` matrix with a vector is part of a convolution, that of a `Circulant` one
is a cyclic convolution; in the Fourier basis both are products of numbers. Real arrays have real
results, numbers narrower than float32 are transformed in float32, and integers are convolved
directly, because a transform would round them.

Sharp edge: the rounding of every entry is relative to the largest one. An entry that is smaller by
more than the precision of the dtype comes out as noise, where a sum of products would keep it; one
`inf` or `nan` reaches all entries.
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
    """The length of a transform. **Raises:** `ShapeError` for a symbolic one of `jax.export`."""
    if export.is_symbolic_dim(n):
        raise ShapeError(
            f"A Fourier transform needs a length that is a number; got {n}.\n"
            "Hint: export for one size (a batch may be symbolic), or use `.to_dense()`."
        )
    return n


@functools.cache
def fast_length(n: int) -> int:
    """The least number from `n` on whose prime factors are 2, 3 and 5: short to transform."""
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
    """Whether all arrays hold integers: then nothing may be rounded."""
    return not any(jnp.issubdtype(x.dtype, jnp.inexact) for x in arrays)


def convolve(
    a: Shaped[DenseArray, "*#batch _"], b: Shaped[DenseArray, "*#batch _"], length: int
) -> Shaped[Array, "*#batch {length}"]:
    """The cyclic convolution of a length along the last axis, of arrays padded with zeros to it."""
    if 0 in (*a.shape, *b.shape):
        shape = jnp.broadcast_shapes(a.shape[:-1], b.shape[:-1])
        return jnp.zeros((*shape, length), jnp.result_type(a, b))
    return _convolve(a, b, length, lambda spectrum: spectrum)


def convolve_and_add(
    a: Shaped[DenseArray, "*#batch k _"], b: Shaped[DenseArray, "*#batch k _"], length: int
) -> Shaped[Array, "*#batch {length}"]:
    """`convolve`, summed over the axis before the last: with one transform back for the sum."""
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
    spectrum = reduce(forward(a, length, real) * forward(b, length, real))
    return backward(spectrum, length, real).astype(dtype)


def forward(
    x: Shaped[DenseArray, "*batch _"], length: int, real: bool
) -> Shaped[Array, "*batch _"]:
    """The transform along the last axis; of real numbers only the half that tells the rest."""
    wide, length = x.astype(wide_enough(x.dtype)), known_length(length)
    return jnp.fft.rfft(wide, length) if real else jnp.fft.fft(wide, length)


def wide_enough(dtype: DType) -> DType:
    """The dtype in which numbers are transformed: floating, and not narrower than float32."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        return default_dtype()
    return jnp.dtype(jnp.float32) if jnp.finfo(dtype).bits < 32 else jnp.dtype(dtype)


def backward(
    x: Shaped[Array, "*batch _"], length: int, real: bool
) -> Shaped[Array, "*batch {length}"]:
    """The inverse of `forward`."""
    return jnp.fft.irfft(x, length) if real else jnp.fft.ifft(x, length)


def valid_product(
    values: Shaped[DenseArray, "*#batch d"], b: Shaped[DenseArray, "*#batch n"]
) -> Shaped[Array, "*#batch {values.shape[-1]-b.shape[-1]+1}"]:
    """`Σⱼ values[i - j + n - 1] b[j]` for the last axes, `n` the length of `b`: a Toeplitz product.

    **Cost:** two transforms of `b` and the result, of a length near that of `values`.
    """
    n = b.shape[-1]
    rows = values.shape[-1] - n + 1
    if is_exact(values, b) and 0 not in (*values.shape, *b.shape):
        return _exact_product(values, b)
    return convolve(values, b, fast_length(values.shape[-1]))[..., n - 1 : n - 1 + rows]


def _exact_product(
    values: Shaped[DenseArray, "*#batch d"], b: Shaped[DenseArray, "*#batch n"]
) -> Shaped[Array, "*#batch m"]:
    """`valid_product` of integers, in $O(mn)$ operations without the matrix."""
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
    """`function` of the last axis, for a vector or for the columns of a matrix."""
    return function(b) if b.ndim == 1 else function(b.T).T
