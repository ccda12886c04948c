"""Products with powers of two that XLA cannot undo, and numbers taken apart into `m · 2^e`.

A conversion between exponents is `x · 2^n`; a law of a function takes a number apart first, so that
neither part can leave the range: `x = m · 2^e` with `m` near 1 and an integer `e` of any size.

    m, e = split(x)
    times_power(m, e)  # x again

Sharp edges. A factor that is no normal number of the dtype is applied in several steps; a barrier
keeps XLA from joining them. `split` returns zeros, subnormal numbers, infinities and NaN whole,
with `e = 0`.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from tanjax._dtype_range import normal_range
from tanjax._typing import DType

Number: TypeAlias = Array | np.ndarray  # of the program, or known
Split: TypeAlias = tuple[Array, Array]  # `m` and `e` of `m · 2^e`


def convert(x: Array, shift: int) -> Array:
    """Return `x · 2^shift`, rounded once, and only if the result leaves the range of the dtype.

    The largest steps come last: a number that is subnormal before one of those is 0 after it.
    """
    dtype = x.dtype
    smallest, largest = normal_range(dtype)
    step = int(min(-smallest, largest))
    most = int(largest - smallest) + jnp.finfo(dtype).nmant + 4  # makes any number 0 or inf
    shift = max(-most, min(most, shift))
    whole, rest = divmod(abs(shift), step)
    for part in [rest] * (rest > 0) + [step] * whole:
        x = lax.mul(x, _filled(np.ldexp(1.0, part if shift > 0 else -part), x, dtype))
    return x


def _filled(number: float, like: Array, dtype: DType) -> Array:
    return lax.full_like(like, hidden(np.asarray(number, dtype)))


def hidden(number: np.ndarray) -> Array:
    """Return a number that the compiler does not know to be a constant.

    XLA would join it with others: `(x·2^-62)·(y·2^-62)` became `(x·y)·2^-124` up to JAX 0.10, whose
    reduction kernels join numbers again behind a barrier: `sum(x·2^-65·2^-63)` was 0. An entry of a
    row is an argument to these kernels. Arrays are computed as before.
    """
    row = np.stack([number, np.zeros_like(number)])
    return lax.index_in_dim(lax.optimization_barrier(row), 0, keepdims=False)


def wider(x: Array) -> Array:
    """Cast numbers of 16 bits to float32, in which laws are computed and rounded once."""
    return x.astype(jnp.float32) if x.dtype.itemsize == 2 else x


def power_of_two(n: Array, dtype: DType) -> Array:
    """Return `2^n` for integers in a floating dtype, exact; beyond its normal numbers 0 or inf."""
    bias, digits, integer = _layout(dtype)
    field = jnp.clip(n, -bias, bias + 1).astype(integer) + np.asarray(bias, integer)
    return lax.bitcast_convert_type(field << np.asarray(digits, integer), dtype)


def times_power(x: Array, n: Array) -> Array:
    """Return `x · 2^n` for an array of integers, in two steps, because `2^n` alone may not fit.

    If the product does not fit, the root of `2^n` may not either; zeros and infinities stay.
    """
    half = n // 2
    product = x * power_of_two(half, x.dtype) * power_of_two(n - half, x.dtype)
    return jnp.where((x == 0) | jnp.isinf(x), x, product)


def split(x: Array) -> Split:
    """Return `m`, `e` with `x = m · 2^e` exactly, `√½ <= |m| < √2` and `e` of int32."""
    bias, digits, integer = _layout(x.dtype)
    bits = lax.bitcast_convert_type(x, integer)
    field = (bits >> np.asarray(digits, integer)) & np.asarray(2 * bias + 1, integer)
    mask = np.asarray((2 * bias + 1) << digits, integer)
    one = lax.bitcast_convert_type((bits & ~mask) | np.asarray(bias << digits, integer), x.dtype)
    large = jnp.abs(one) >= np.asarray(math.sqrt(2), x.dtype)
    normal = (field > 0) & (field < 2 * bias + 1)
    m = jnp.where(large, one * np.asarray(0.5, x.dtype), one)
    e = (field - np.asarray(bias, integer)).astype(np.int32) + large.astype(np.int32)
    return jnp.where(normal, m, x), jnp.where(normal, e, np.int32(0))


def _layout(dtype: DType) -> tuple[int, int, DType]:
    """Return the bias of exponents, the bits of the significand, and the dtype's integer type."""
    info = jnp.finfo(dtype)
    return info.maxexp - 1, info.nmant, np.dtype(f"int{info.bits}")


def product_error(x: Number, y: Number, product: Number) -> Array:
    """Return the rounding error of a product (Dekker 1971)."""
    (a, b), (c, d) = _halves(x), _halves(y)
    return ((a * c - product) + a * d + b * c) + b * d


def _halves(x: Number) -> tuple[Array, Number]:
    """Return a number as the sum of two of half its length, whose products are exact."""
    integer = np.dtype(f"uint{x.dtype.itemsize * 8}")
    short = (jnp.finfo(x.dtype).nmant + 2) // 2
    mask = np.asarray(np.iinfo(integer).max << short & np.iinfo(integer).max, integer)
    upper = lax.bitcast_convert_type(lax.bitcast_convert_type(x, integer) & mask, x.dtype)
    return upper, x - upper
