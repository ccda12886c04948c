"""Numbers of any magnitude as text.

A number times a power of two may exceed every float; `1e400 m` is still a length. Its text has the
fewest digits that distinguish the number from its neighbours in its dtype, as for Python's floats.

    >>> number_text(np.float32(1.0), 1329, "")
    '1.171829e+400'
"""

from __future__ import annotations

import decimal
import math

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax._dtype_range import range_of
from tanjax.arrays import array_type, show

_DIGITS = decimal.Context(prec=50, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def number_text(stored: PyTree, scale: int, spec: str) -> str:
    """`stored · 2^scale` with a format, element by element where there are several."""
    has_no_numbers = isinstance(stored, jax.core.Tracer | jax.ShapeDtypeStruct)
    if has_no_numbers or array_type(stored) is not None:
        return f"2^{scale} {show(stored)}" if scale else show(stored)
    array = np.asarray(stored)
    if array.ndim == 0:
        if scale:
            return _scaled(array, scale, spec)
        return format(array.item(), spec) if spec else str(stored)
    if scale:
        return np.array2string(
            array, formatter={"all": lambda v: _scaled(v, scale, spec)}, separator=", "
        )
    if not spec:
        return np.array2string(array, separator=", ")
    return np.array2string(array, formatter={"all": lambda v: format(v, spec)}, separator=", ")


def _scaled(v: PyTree, scale: int, spec: str) -> str:
    """Format one number times a power of two."""
    if np.iscomplexobj(v):
        imaginary = _scaled(v.imag, scale, spec)
        sign = "" if imaginary.startswith("-") else "+"
        return f"({_scaled(v.real, scale, spec)}{sign}{imaginary}j)"
    number = float(v)
    if number == 0 or not math.isfinite(number):
        return format(number, spec)
    exact = _DIGITS.multiply(decimal.Decimal(number), _DIGITS.power(decimal.Decimal(2), scale))
    if spec:
        return format(exact, spec)
    span = range_of(v.dtype)
    digits = span.digits if span else 53
    return _tidy(next(t for t in _candidates(exact) if _same(t, exact, digits)))


def _candidates(exact: decimal.Decimal) -> PyTree:
    for places in range(18):
        yield f"{exact:.{places}e}"
    yield str(exact)


def _same(text: str, exact: decimal.Decimal, digits: int) -> bool:
    """True if a text differs from a number by at most half of its last binary digit."""
    error = abs(_DIGITS.subtract(decimal.Decimal(text), exact))
    step = decimal.Decimal(2) ** -(digits + 1)
    return error <= _DIGITS.multiply(abs(exact), step)


def _tidy(text: str) -> str:
    """Format like Python's floats: `1e+45` stays, `1.5e+3` is `1500.0`."""
    mantissa, _, exponent = text.partition("e")
    if -5 < int(exponent) < 8:
        return repr(float(text))
    return f"{mantissa}e{int(exponent):+03d}"
