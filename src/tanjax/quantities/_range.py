"""The magnitudes of numbers in the range of their dtype.

A float32 holds 2^-126 to 2^128. Physics exceeds this range: a star has 2e30 kg, and the product of
two overflows. tanjax moves numbers by powers of two, which is exact. Two integers, the *bits* of an
array, bound its magnitudes: `2^low <= |x| < 2^high` for every finite entry except zero.

    >>> measure(np.float32([0.0, 3.0, 1e30]))
    (1, 100)

Sharp edges. The bits of tracers, arrays of integers and structured arrays are `None`. XLA flushes
the subnormal numbers of float32 to zero on CPUs, so they count as lost.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._dtype_range import range_of
from tanjax._typing import Primal

Bits = tuple[float, float]
NOTHING: Bits = (math.inf, -math.inf)  # the bits of zeros
_SMALL = 32  # up to here Python's loop (1 us) is faster than a compiled reduction (15 us)


# 0: no bits, 1: a float, 2: a complex number, 3: an array, 4: a whole number of any size.
_LOOK: dict[type, int] = {float: 1, int: 4, bool: 0, complex: 2}


def measure(x: PyTree) -> Bits | None:
    """Return the bits of a value, or None. **Cost:** 1 us for a few numbers, one pass over many."""
    kind = type(x)
    look = _LOOK.get(kind)
    if look is None:
        is_array = issubclass(kind, jax.Array | np.ndarray | np.generic)
        look = _LOOK[kind] = 3 if is_array and not issubclass(kind, jax.core.Tracer) else 0
    if look == 0:
        return None
    if look == 1:
        digits = math.frexp(x)[1]
        return (digits - 1, digits) if 0.0 < abs(x) < math.inf else NOTHING
    if look == 2:
        return _of_numbers((x.real, x.imag))
    if look == 4:
        digits = x.bit_length()
        return (digits - 1, digits) if digits else NOTHING
    return None if range_of(x.dtype) is None else _of_array(x)


def measure_pure(x: PyTree) -> Bits | None:
    """Return the bits as `measure`; for integers, those of their values as float64."""
    if type(x) is float or type(x) is int or not hasattr(x, "dtype"):
        return measure(x)
    counts = getattr(x.dtype, "kind", None) in ("i", "u")
    known = isinstance(x, np.ndarray | np.generic | jax.Array | int)
    if counts and known and not isinstance(x, jax.core.Tracer):
        if not getattr(x, "is_fully_addressable", True):
            return None
        with jax.ensure_compile_time_eval():
            x = np.asarray(x, np.float64)
    return measure(x)


def _of_array(x: PyTree) -> Bits | None:
    if math.prod(x.shape) > _SMALL:
        from tanjax.scale.numbers import measure as measure_many

        if isinstance(x, jax.Array) and not x.is_fully_addressable:
            return None
        with jax.ensure_compile_time_eval():  # works for arrays that a traced function closes over
            found = measure_many(x)
        if found.is_zero:
            return NOTHING
        half = x.dtype.kind == "c"  # `measure_many` gives the magnitude of the larger part
        return math.floor(found.low), math.floor(found.high) + 1 + half
    try:
        numbers = np.asarray(x).ravel().tolist()
    except RuntimeError:  # other machines hold parts of the array
        return None
    if x.dtype.kind == "c":
        numbers = [part for z in numbers for part in (z.real, z.imag)]
    return _of_numbers(numbers)


def _of_numbers(numbers: PyTree) -> Bits:
    sizes = [size for size in map(abs, numbers) if 0.0 < size < math.inf]
    if not sizes:
        return NOTHING
    frexp = math.frexp
    return frexp(min(sizes))[1] - 1, frexp(max(sizes))[1]


def shift(x: PyTree, exponent: int) -> PyTree:
    """Return `x · 2^exponent`, exact if both are normal, even if 2^exponent itself is not."""
    if exponent == 0:
        return x
    if type(x) is float or type(x) is int:
        try:
            return math.ldexp(x, exponent)
        except OverflowError:
            return math.inf if x > 0 else -math.inf
    span = range_of(x.dtype) if hasattr(x, "dtype") else range_of(np.dtype(np.float32))
    if span is None or type(x) is complex:
        return x * 2.0**exponent
    for step in _steps(exponent, -span.lowest):
        x = _times(x, step)
    return x


def _times(x: PyTree, factor: float) -> Primal:
    """Multiply by a real number; complex numbers part by part, so that inf stays inf."""
    if not isinstance(x, jax.Array | np.ndarray | np.generic):
        return x * factor  # a structured array
    if isinstance(x, np.ndarray | np.generic):
        return x * x.real.dtype.type(factor)
    if jnp.iscomplexobj(x):
        return jax.lax.complex(x.real * factor, x.imag * factor)
    return x * factor


@functools.cache
def _steps(exponent: int, most: int) -> tuple[float, ...]:
    """Return powers of two that a dtype holds, with the product `2^exponent`."""
    sign, left = (1, exponent) if exponent > 0 else (-1, -exponent)
    parts = []
    while left:
        parts.append(math.ldexp(1.0, sign * min(left, most)))
        left -= min(left, most)
    return tuple(parts)
