"""Pointwise functions of one tensor.

The tables sort JAX's functions by torch's treatment of integers and complex numbers. Functions
whose values at edges (NaN, signed zeros, ties) differ in JAX follow. At a kink the derivative of
the code here is torch's.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy import special

from tanjax_torch._typing import Number
from tanjax_torch.arguments._promotion import category, floating, needs
from tanjax_torch.table._registry import implements

from ._special import digamma, erfcx, i0
from ._tools import aten, operations, prims, register, size

Unary = Callable[[jax.Array], jax.Array]


def _floating(kinds: tuple[int, ...]) -> Callable[[str, Unary], Unary]:
    """Integers become floats first."""

    def make(name: str, function: Unary) -> Unary:
        def entry(self: jax.Array) -> jax.Array:
            needs(name, kinds, self)
            return function(floating(self))

        return entry

    return make


# With complex numbers.
ANALYTIC: dict[str, Unary] = {
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": jnp.arctanh,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "reciprocal": jnp.reciprocal,
    "rsqrt": jax.lax.rsqrt,
    "sigmoid": jax.nn.sigmoid,
    "sin": jnp.sin,
    "sinc": lambda x: jnp.sinc(jnp.where(jnp.isinf(x), jnp.nan, x)),  # JAX 0.12: 0 at infinity
    "sinh": jnp.sinh,
    "sqrt": jnp.sqrt,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
}

REAL: dict[str, Unary] = {
    "deg2rad": jnp.deg2rad,
    "digamma": digamma,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "i0": i0,
    "lgamma": special.gammaln,
    "rad2deg": jnp.rad2deg,
    "special_entr": special.entr,
    "special_erfcx": erfcx,
    "special_i0e": special.i0e,
    "special_i1": special.i1,
    "special_i1e": special.i1e,
    "special_log_ndtr": special.log_ndtr,
    "special_modified_bessel_i0": i0,
    "special_modified_bessel_i1": special.i1,
    "special_ndtri": special.ndtri,
    "bessel_i0": i0,
    "bessel_i0e": special.i0e,
    "bessel_i1": special.i1,
    "bessel_i1e": special.i1e,
    "erf_inv": special.erfinv,
    "erfcx": erfcx,
    "ndtri": special.ndtri,
    "cbrt": jnp.cbrt,
}

register(ANALYTIC, _floating((0, 1, 2, 3)))
register(REAL, _floating((0, 1, 2)))


# Rounding: integers stay as they are.
def _rounding(name: str, function: Unary) -> Unary:
    def entry(self: jax.Array) -> jax.Array:
        needs(name, (1, 2), self)
        return self if category(self.dtype) < 2 else function(self)

    return entry


register({"ceil": jnp.ceil, "floor": jnp.floor, "trunc": jnp.trunc}, _rounding)


@implements(*operations("round"))
def round_(self: jax.Array, *, decimals: int | None = None) -> jax.Array:
    """Round to the nearest, halves to even; with `decimals`, round `10**decimals * self`."""
    needs("round", (1, 2) if decimals is None else (2,), self)
    if not decimals:
        return jnp.round(self) if category(self.dtype) == 2 else self
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return jnp.round(self * scale) / scale
    return jnp.round(self / scale) * scale


# Signs.
@implements(*operations("abs"))
def abs_(self: jax.Array) -> jax.Array:
    needs("abs", (1, 2, 3), self)
    return size(self)


@implements(*operations("neg"))
def neg(self: jax.Array) -> jax.Array:
    needs("neg", (1, 2, 3), self)
    return jnp.negative(self)


@implements(*operations("sign"))
def sign(self: jax.Array) -> jax.Array:
    """The sign; 0 for NaN, as in torch."""
    needs("sign", (0, 1, 2), self)
    if category(self.dtype) < 2:
        return self if self.dtype == jnp.bool_ else jnp.sign(self)
    return (self > 0).astype(self.dtype) - (self < 0).astype(self.dtype)


@implements(*operations("signbit"))
def signbit(self: jax.Array) -> jax.Array:
    needs("signbit", (0, 1, 2), self)
    if self.dtype == jnp.bool_:
        return jnp.zeros_like(self)
    return jnp.signbit(self) if category(self.dtype) == 2 else self < 0


@implements(aten.angle)
def angle(self: jax.Array) -> jax.Array:
    """The argument; of a real number π or 0, and 0 of -0."""
    if category(self.dtype) == 3:
        return jnp.angle(self)
    self = floating(self)
    turned = jnp.where(self < 0, jnp.asarray(jnp.pi, self.dtype), jnp.zeros((), self.dtype))
    return jnp.where(jnp.isnan(self), self, turned)


@implements(aten._conj_physical, aten.conj_physical, prims.conj_physical)
def conj_physical(self: jax.Array) -> jax.Array:
    return jnp.conj(self) if category(self.dtype) == 3 else self


# Predicates.
@implements(aten.isnan)
def isnan(self: jax.Array) -> jax.Array:
    return self != self


@implements(aten.isinf)
def isinf(self: jax.Array) -> jax.Array:
    return jnp.isinf(self) if category(self.dtype) > 1 else jnp.zeros(self.shape, jnp.bool_)


@implements(prims.isfinite)
def isfinite(self: jax.Array) -> jax.Array:
    return jnp.isfinite(self) if category(self.dtype) > 1 else jnp.ones(self.shape, jnp.bool_)


@implements(aten.logical_not)
def logical_not(self: jax.Array) -> jax.Array:
    return self == jnp.zeros((), self.dtype)


@implements(*operations("bitwise_not"))
def bitwise_not(self: jax.Array) -> jax.Array:
    needs("bitwise_not", (0, 1), self)
    return jnp.bitwise_not(self)


# Functions with numbers beside them.


@implements(aten.frexp, prims.frexp)
def frexp(self: jax.Array) -> tuple[jax.Array, jax.Array]:
    needs("frexp", (2,), self)
    mantissa, exponent = jnp.frexp(self)
    return mantissa, exponent.astype(jnp.int32)


@implements(aten.frac)
def frac(self: jax.Array) -> jax.Array:
    needs("frac", (2,), self)
    return self - jnp.trunc(self)


@implements(aten.nan_to_num)
def nan_to_num(
    self: jax.Array,
    nan: Number | None = None,
    posinf: Number | None = None,
    neginf: Number | None = None,
) -> jax.Array:
    if category(self.dtype) < 2:
        return self
    if category(self.dtype) == 3:
        parts = [nan_to_num(x, nan, posinf, neginf) for x in (self.real, self.imag)]
        return jax.lax.complex(*parts)
    most = jnp.finfo(self.dtype)
    values = (
        0.0 if nan is None else nan,
        most.max if posinf is None else posinf,
        most.min if neginf is None else neginf,
    )
    for_nan, for_max, for_min = (jnp.asarray(v, self.dtype) for v in values)
    self = jnp.where(jnp.isnan(self), for_nan, self)
    self = jnp.where(self == jnp.inf, for_max, self)
    return jnp.where(self == -jnp.inf, for_min, self)
