"""Transcendental and special functions on numbers in a wide range.

`exp(1000)` is an ordinary number here, and `log` of it is 1000 again. Where float64 will do, a
function is NumPy's. Elsewhere it is put together entry by entry: the exponential splits its
argument into a power of two and a rest; the logarithm adds `exponent * log 2`; functions that are
linear at zero (sin, tanh, log1p, erf, ...) keep arguments that float64 cannot hold.

    >>> exp_of(np.array([1.0, 1000.0])).exponent
    array([   1, 1443])

All rules here are for blocks and spread numbers alike. Sharp edge: a function with no known form
far from 1 (zeta, the incomplete gammas) is unknown for arguments beyond float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..graph._graph import Node
from ..numbers._spread import choose, common, is_spread, plus, times
from ..numbers._wide import (
    Wide,
    as_float,
    complex_of,
    extent,
    in_float64,
    inverse,
    is_number,
    settle,
)
from ._numpy_rules import LOG2, RULES, SPREAD, WORK, is_float, rule, whole_power

# log 2 in two parts, the first with 32 zero bits at its end, so that k * _LOG2_HIGH is exact.
_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_COSTLY = 8.0  # a transcendental function takes about as long as so many products
_FARTHEST = 2.0**52  # larger powers of two are infinite or zero even here
_TINY, _HUGE = 2.0**-1000, 2.0**1000  # between them, float64 is comfortable

# -- where float64 will do ------------------------------------------------------------------------


def _ends(x: Wide) -> tuple[float, float]:
    """Bounds in log2 of the magnitudes, cheaply; (0, 0) if there are none."""
    if is_spread(x):
        return -math.inf, math.inf
    low, high = x.extent or extent(x.array)
    return (math.log2(low) + x.exponent, math.log2(high) + x.exponent) if high else (0.0, 0.0)


def _is_near(x: Wide) -> bool:
    """Whether float64 holds all numbers with room to spare."""
    if type(x.exponent) is int and x.exponent == 0:
        return True
    low, high = _ends(x)
    return low > -1000 and high < 1000


def _piecewise(which: Any, rest: Wide, other: Any) -> Wide:
    """`other()` where a condition holds, else the rest."""
    return choose(which, rest, other()) if np.any(which) else rest


# -- exponential and logarithm --------------------------------------------------------------------


def exp_of(t: Any) -> Wide:
    """`exp(t)` for float64 or complex numbers of any size."""
    t = np.asarray(t)
    if np.all(np.abs(t.real) < 700.0):
        return Wide(np.exp(t))
    real = np.clip(t.real, -_FARTHEST, _FARTHEST)
    k = np.where(np.isfinite(t.real), np.rint(real / LOG2), 0.0)
    rest = np.where(np.isfinite(t.real), (real - k * _LOG2_HIGH) - k * _LOG2_LOW, t.real)
    if t.dtype.kind == "c":
        rest = complex_of(rest, t.imag)
    return Wide(np.exp(rest), k.astype(np.int64))


def exp2_of(t: Any) -> Wide:
    """`2**t` for float64 numbers of any size."""
    t = np.asarray(t)
    if np.all(np.abs(t) < 1000.0):
        return Wide(np.exp2(t))
    near = np.clip(t, -_FARTHEST, _FARTHEST)
    k = np.where(np.isfinite(t), np.rint(near), 0.0)
    return Wide(np.exp2(np.where(np.isfinite(t), near - k, t)), k.astype(np.int64))


def log_of(x: Wide, function: Any = np.log, unit: float = LOG2) -> Any:
    """The logarithm in float64, to full precision also near one."""
    if _is_near(x):
        return function(as_float(x))
    out = function(x.array) + np.where(is_number(x.array), x.exponent, 0) * unit
    t = as_float(x)
    size = np.abs(t)
    return np.where((size > _TINY) & (size < _HUGE), function(t), out)


@rule("exp", work=_COSTLY, spread=True)
def exponential(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    if _ends(x)[1] < 9.0:  # at most 512
        return [Wide(np.exp(as_float(x)))]
    return [exp_of(as_float(x))]


@rule("exp2", work=_COSTLY, spread=True)
def exponential_2(node: Node, xs: list[Wide]) -> list[Wide]:
    t = as_float(xs[0])
    return [exp_of(t * LOG2) if t.dtype.kind == "c" else exp2_of(t)]


@rule("log", work=_COSTLY, spread=True)
def logarithm(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(log_of(xs[0]))]


@rule("log2", work=_COSTLY, spread=True)
def logarithm_2(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(log_of(xs[0], np.log2, 1.0))]


@rule("logistic", work=_COSTLY, spread=True)
def logistic(node: Node, xs: list[Wide]) -> list[Wide]:
    t = np.asarray(as_float(xs[0]))
    low = t.real < -40.0  # exp(t) to the precision of float64
    return [_piecewise(low, Wide(1.0 / (1.0 + np.exp(-t))), lambda: exp_of(np.where(low, t, 0.0)))]


# -- functions that are linear at zero ------------------------------------------------------------


def _register(name: str, function: Any, slope: float = 1.0) -> None:
    """A function that is `slope * x` below 2^-60, to float64's precision."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        x = xs[0]
        if _is_near(x):
            return [function(x)]
        if _ends(x)[1] < -60:
            return [Wide(x.array * slope, x.exponent)]
        tiny = np.abs(as_float(x)) < 2.0**-60
        return [_piecewise(tiny, function(x), lambda: times(x, Wide(np.float64(slope))))]

    RULES[name], WORK[name] = run, _COSTLY
    SPREAD[run] = run


for _name in ("tan", "tanh", "asin", "atan", "atanh"):
    _numpy = getattr(np, {"asin": "arcsin", "atan": "arctan", "atanh": "arctanh"}.get(_name, _name))
    _register(_name, lambda x, f=_numpy: Wide(f(as_float(x))))


def _scipy(name: str) -> Any:
    """A function of SciPy, imported at its first use: `import tanjax` stays free of SciPy."""

    def call(*arrays: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*arrays)

    return call


_register("erf", lambda x: Wide(_scipy("erf")(as_float(x))), 2 / math.sqrt(math.pi))
_register("erf_inv", lambda x: Wide(_scipy("erfinv")(as_float(x))), math.sqrt(math.pi) / 2)


def _expm1(x: Wide) -> Wide:
    t = np.asarray(as_float(x))
    return _piecewise(t.real > 700.0, Wide(np.expm1(t)), lambda: exp_of(t))


def _log1p(x: Wide) -> Wide:
    t = as_float(x)
    if t.dtype.kind == "c":  # NumPy's is inexact where the result is small
        real = np.log1p(t.real * (2.0 + t.real) + t.imag * t.imag) / 2
        near = complex_of(real, np.arctan2(t.imag, 1.0 + t.real))
        near = np.where(np.abs(t) > 0.5, np.log(1.0 + t), near)
    else:
        near = np.log1p(t)
    if _is_near(x) and _ends(x)[1] < 900:
        return Wide(near)
    return Wide(np.where(np.abs(t) > 1e300, log_of(x), near))


def _asinh(x: Wide) -> Wide:
    t = as_float(x)
    near = np.arcsinh(t)
    if _is_near(x):
        return Wide(near)
    side = np.where(t.real < 0, -1.0, 1.0)
    large = side * (log_of(Wide(side * x.array, x.exponent)) + LOG2)
    return Wide(np.where(np.abs(t) > 1e300, large, near))


def _hyperbolic(function: Any, even: bool) -> Any:
    def run(t: Any) -> Wide:
        t = np.asarray(t)
        far = np.abs(t.real) >= 700.0

        def grown() -> Wide:
            side = np.where(t.real < 0, -1.0, 1.0)
            big = exp_of(side * t)
            return Wide(big.array * (0.5 if even else 0.5 * side), big.exponent)

        return _piecewise(far, Wide(function(t)), grown)

    return run


_sinh, _cosh = _hyperbolic(np.sinh, even=False), _hyperbolic(np.cosh, even=True)


def _sin(x: Wide) -> Wide:
    t = as_float(x)
    if t.dtype.kind != "c":
        return Wide(np.sin(t))
    turned = _sinh(complex_of(-t.imag, t.real))  # sin z = -i sinh(iz)
    return Wide(complex_of(turned.array.imag, -turned.array.real), turned.exponent)


_register("sin", _sin)
_register("expm1", _expm1)
_register("log1p", _log1p)
_register("asinh", _asinh)
_register("sinh", lambda x: _sinh(as_float(x)))


# -- the others -----------------------------------------------------------------------------------


@rule("cosh", work=_COSTLY, spread=True)
def cosh(node: Node, xs: list[Wide]) -> list[Wide]:
    return [_cosh(as_float(xs[0]))]


@rule("cos", work=_COSTLY, spread=True)
def cos(node: Node, xs: list[Wide]) -> list[Wide]:
    t = as_float(xs[0])
    return [_cosh(complex_of(-t.imag, t.real)) if t.dtype.kind == "c" else Wide(np.cos(t))]


@rule("acosh", work=_COSTLY, spread=True)
def acosh(node: Node, xs: list[Wide]) -> list[Wide]:
    x, t = xs[0], as_float(xs[0])
    near = np.arccosh(t)
    if _is_near(x):
        return [Wide(near)]
    return [Wide(np.where(np.abs(t) > 1e300, log_of(x) + LOG2, near))]


@rule("atan2", work=_COSTLY, spread=True)
def atan2(node: Node, xs: list[Wide]) -> list[Wide]:
    y, x = xs
    if not is_spread(y) and not is_spread(x) and y.exponent == x.exponent:
        return [Wide(np.arctan2(y.array, x.array))]
    (a, b), _ = common(xs)
    small = is_number(y.array) & (np.abs(a) < 2.0**-60 * np.abs(b)) & (b > 0)
    return [_piecewise(small, Wide(np.arctan2(a, b)), lambda: times(y, inverse(x)))]


@rule("erfc", work=_COSTLY, spread=True)
def erfc(node: Node, xs: list[Wide]) -> list[Wide]:
    t = np.asarray(as_float(xs[0]))

    def tail() -> Wide:
        u = np.clip(t, 0.0, 1e30)
        high = u.astype(np.float32).astype(np.float64)  # whose square is exact
        power = exp_of(-high * high)
        rest = np.exp((high - u) * (high + u)) if u.max() < 1e4 else 1.0
        return settle(Wide(power.array * rest * _scipy("erfcx")(u), power.exponent))

    return [_piecewise(t > 20.0, Wide(_scipy("erfc")(t)), tail)]


@rule("pow", work=2 * _COSTLY, spread=True)
def power(node: Node, xs: list[Wide]) -> list[Wide]:
    """`x**y`: by products for one whole exponent, else by the logarithm where float64 ends."""
    x, y = xs
    if not is_float(x):
        return [Wide(np.power(x.array, y.array))]
    t = np.asarray(as_float(y))
    if t.size == 1 and t.dtype.kind in "fiu" and (n := t.item()) == n // 1 and abs(n) < 2**20:
        return [whole_power(x, int(n))]
    a = np.asarray(as_float(x))
    direct = np.power(a, t)
    sizes = np.abs(a), np.abs(direct)
    lost = is_number(a) & ~np.isnan(direct) & ~np.isinf(t)
    lost &= np.logical_or.reduce([(s < _TINY) | (s > _HUGE) for s in np.broadcast_arrays(*sizes)])
    if not np.any(lost):
        return [Wide(direct)]
    return [choose(lost, Wide(direct), _power_by_logarithm(x, t))]


def _power_by_logarithm(x: Wide, t: Any) -> Wide:
    if x.array.dtype.kind == "c" or t.dtype.kind == "c":
        return exp_of(np.where(t == 0, 0.0, t * log_of(x)))
    size = exp2_of(
        np.where(t == 0, 0.0, t * log_of(Wide(np.abs(x.array), x.exponent), np.log2, 1.0))
    )
    return Wide(size.array * np.power(np.where(x.array < 0, -1.0, 1.0), t), size.exponent)


@rule("one_minus_square", spread=True)
def one_minus_square(node: Node, xs: list[Wide]) -> list[Wide]:
    one, x = Wide(np.float64(1.0), 0, (1.0, 1.0)), xs[0]
    return [times(plus(one, Wide(-x.array, x.exponent, x.extent)), plus(one, x))]


def _plain(name: str, function: Any, far: Any = None, tiny: bool = False) -> None:
    """A function evaluated at its true value.

    **Arguments:** `far`: what it is, for one operand, where that is out of float64's range; `tiny`:
    it is as good as constant at zero.
    """

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        if all(map(_is_near, xs)):
            return [Wide(function(*[np.asarray(as_float(x)) for x in xs]))]
        if far is None:
            return [Wide(function(*[np.asarray(in_float64(x, tiny)) for x in xs]))]
        size = np.abs(as_float(xs[0]))
        outside = is_number(xs[0].array) & ((size < _TINY) | (size > _HUGE))
        return [_piecewise(outside, Wide(function(as_float(xs[0]))), lambda: far(xs[0], size > 1))]

    RULES[name], WORK[name] = run, _COSTLY
    SPREAD[run] = run


def _digamma_far(x: Wide, large: Any) -> Wide:
    return choose(large, inverse(Wide(-x.array, x.exponent)), Wide(log_of(x)))


def _lgamma_far(x: Wide, large: Any) -> Wide:
    """`-log|x|` near zero; Stirling's `x (log x - 1)` far away, infinite at negative numbers."""
    logs = log_of(Wide(np.abs(x.array), x.exponent))
    grown = times(x, Wide(np.where(x.array > 0, logs - 1.0, -np.inf)))
    return choose(large, Wide(-logs), grown)


_plain("acos", np.arccos, tiny=True)
_plain("bessel_i0e", _scipy("i0e"), tiny=True)
_plain("lgamma", _scipy("gammaln"), _lgamma_far)
_plain("digamma", _scipy("digamma"), _digamma_far)
for _name, _function in {
    "polygamma": "polygamma",
    "zeta": "zeta",
    "igamma": "gammainc",
    "igammac": "gammaincc",
    "regularized_incomplete_beta": "betainc",
    "bessel_i1e": "i1e",
}.items():
    _plain(_name, _scipy(_function))
