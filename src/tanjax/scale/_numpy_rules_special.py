"""Transcendental and special functions on numbers in a wide range.

`exp(1000)` is an ordinary number here, and `log` of it is 1000 again. The exponential splits its
argument into a power of two and a rest; the logarithm adds `exponent * log 2`; functions that are
linear at zero (sin, tanh, log1p, erf, ...) keep arguments that float64 cannot hold; everything else
is evaluated at its true value, where arguments beyond float64 saturate.

    >>> exp_of(np.float64(1000.0)).exponent
    1442

Sharp edge: within one array, `exp` keeps entries to 2^-1022 of the largest, others become zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ._graph import Node
from ._numpy_rules import LOG2, RULES, WORK, Rule, is_float, rule, whole_power
from ._wide import Wide, align, as_float, extent, scaled

# log 2 in two parts, the first with 32 zero bits at its end, so that k * _LOG2_HIGH is exact.
_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_COSTLY = 8.0  # a transcendental function takes about as long as so many products

# -- exponential and logarithm --------------------------------------------------------------------


def _largest(t: Any) -> float:
    """The largest finite number, 0 if there is none."""
    finite = t[np.isfinite(t)] if t.ndim else t
    if finite.size == 0 or not np.isfinite(top := finite.max()):
        return 0.0
    return float(top)


def exp_of(t: Any) -> Wide:
    """`exp(t)` for float64 or complex numbers of any size."""
    t = np.asarray(t)
    top = _largest(t.real)
    if -200.0 < top < 700.0:
        return Wide(np.exp(t))
    if abs(top) > 2.0**60:  # not even the whole part of the exponent is known any more
        return Wide(np.where(t < top, 0.0, np.where(t == top, 1.0, t)), int(top / LOG2))
    k = math.floor(top / LOG2)
    return Wide(np.exp((t - k * _LOG2_HIGH) - k * _LOG2_LOW), k)


def exp2_of(t: Any) -> Wide:
    """`2**t` for float64 numbers of any size."""
    t = np.asarray(t)
    top = _largest(t.real)
    k = 0 if -200.0 < top < 700.0 else math.floor(top)
    return Wide(np.exp2(t - k), k)


def log_of(x: Wide) -> Any:
    """The natural logarithm in float64."""
    out = np.log(x.array)
    return out if x.exponent == 0 else out + x.exponent * LOG2


@rule("exp", work=_COSTLY)
def exponential(node: Node, xs: list[Wide]) -> list[Wide]:
    return [exp_of(as_float(xs[0]))]


@rule("exp2", work=_COSTLY)
def exponential_2(node: Node, xs: list[Wide]) -> list[Wide]:
    t = as_float(xs[0])
    return [exp_of(t * LOG2) if t.dtype.kind == "c" else exp2_of(t)]


@rule("log", work=_COSTLY)
def logarithm(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(log_of(xs[0]))]


@rule("log2", work=_COSTLY)
def logarithm_2(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(np.log2(xs[0].array) + xs[0].exponent)]


@rule("logistic", work=_COSTLY)
def logistic(node: Node, xs: list[Wide]) -> list[Wide]:
    t = np.asarray(as_float(xs[0]))
    if t.dtype.kind == "f" and _largest(t) < -200.0 and np.all(t < 0):
        return [exp_of(t)]
    return [Wide(1.0 / (1.0 + np.exp(-t)))]


# -- functions that are linear at zero ------------------------------------------------------------


def _below(x: Wide, power: int) -> bool:
    """Whether every entry is less than 2^power, cheaply if the exponent is 0."""
    if x.exponent > power:
        return False
    high = (x.extent or extent(x.array))[1]
    return high > 0.0 and math.log2(high) + x.exponent < power


def _linear_at_zero(function: Any, slope: float = 1.0) -> Rule:
    """A rule for an odd function: below 2^-60, its value is `slope * x` to float64's precision."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        x = xs[0]
        if x.exponent < 0 and _below(x, -60):
            return [Wide(x.array * slope, x.exponent)]
        return [function(x)]

    return run


def _register(name: str, function: Any, slope: float = 1.0) -> None:
    RULES[name], WORK[name] = _linear_at_zero(function, slope), _COSTLY


for _name in ("sin", "tan", "tanh", "asin", "atan", "atanh"):
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
    if _largest(t.real) < 700.0:
        return Wide(np.expm1(t))
    big = exp_of(t)
    return Wide(big.array - scaled(np.ones_like(big.array), -big.exponent), big.exponent)


def _log1p(x: Wide) -> Wide:
    t = as_float(x)
    if x.exponent <= 0:
        return Wide(np.log1p(t))
    return Wide(np.where(np.abs(t) > 1e300, log_of(x), np.log1p(t)))


def _asinh(x: Wide) -> Wide:
    t = as_float(x)
    if x.exponent <= 0 or t.dtype.kind == "c":
        return Wide(np.arcsinh(t))
    large = np.sign(t) * (log_of(Wide(np.abs(x.array), x.exponent)) + LOG2)
    return Wide(np.where(np.abs(t) > 1e300, large, np.arcsinh(t)))


def _hyperbolic(function: Any, even: bool) -> Any:
    def run(x: Wide) -> Wide:
        t = np.asarray(as_float(x))
        if t.dtype.kind == "c" or max(_largest(t), _largest(-t)) < 700.0:
            return Wide(function(t))
        big = exp_of(np.abs(t))
        side = 0.5 if even else np.copysign(0.5, t)
        near = scaled(function(np.clip(t, -700.0, 700.0)), -big.exponent)
        return Wide(np.where(np.abs(t) < 700.0, near, big.array * side), big.exponent)

    return run


_register("expm1", _expm1)
_register("log1p", _log1p)
_register("asinh", _asinh)
_register("sinh", _hyperbolic(np.sinh, even=False))


# -- the others -----------------------------------------------------------------------------------


@rule("cosh", work=_COSTLY)
def cosh(node: Node, xs: list[Wide]) -> list[Wide]:
    return [_hyperbolic(np.cosh, even=True)(xs[0])]


@rule("acosh", work=_COSTLY)
def acosh(node: Node, xs: list[Wide]) -> list[Wide]:
    x, t = xs[0], as_float(xs[0])
    if x.exponent <= 0 or t.dtype.kind == "c":
        return [Wide(np.arccosh(t))]
    return [Wide(np.where(t > 1e300, log_of(x) + LOG2, np.arccosh(t)))]


@rule("atan2", work=_COSTLY)
def atan2(node: Node, xs: list[Wide]) -> list[Wide]:
    y, x = xs
    if x.exponent > y.exponent and np.all(x.array > 0) and _below(_quotient(xs), -60):
        return [_quotient(xs)]
    arrays, _ = align(xs, saturate=True)
    return [Wide(np.arctan2(*arrays))]


def _quotient(xs: list[Wide]) -> Wide:
    return Wide(xs[0].array / xs[1].array, xs[0].exponent - xs[1].exponent)


@rule("erfc", work=_COSTLY)
def erfc(node: Node, xs: list[Wide]) -> list[Wide]:
    t = np.asarray(as_float(xs[0]))
    if not (t.size and np.all(t > 20.0)):
        return [Wide(_scipy("erfc")(t))]
    t = np.minimum(t, 1e150)
    small = exp_of(-t * t)
    return [Wide(small.array * _scipy("erfcx")(t), small.exponent)]


@rule("pow", work=2 * _COSTLY)
def power(node: Node, xs: list[Wide]) -> list[Wide]:
    """`x**y`: by products for one whole exponent, else by the logarithm where float64 ends."""
    x, y = xs
    if not is_float(x):
        return [Wide(np.power(x.array, y.array))]
    t = np.asarray(as_float(y))
    if t.size == 1 and t.dtype.kind in "fiu" and (n := t.item()) == n // 1 and abs(n) < 2**20:
        return [whole_power(x, int(n))]
    a = np.asarray(x.array)
    direct = np.power(a, t) if x.exponent == 0 else None
    if a.dtype.kind == "c" or t.dtype.kind == "c":
        return [Wide(np.power(as_float(x), t))]
    lost = True
    if direct is not None:
        lost = bool(np.any((a != 0) & np.isfinite(a) & ((direct == 0) | np.isinf(direct))))
    if not lost:
        return [Wide(direct)]
    size = exp2_of(np.where(t == 0, 0.0, t * (np.log2(np.abs(a)) + x.exponent)))
    return [Wide(size.array * np.power(np.where(a < 0, -1.0, 1.0), t), size.exponent)]


def _plain(name: str, function: Any) -> None:
    """A function evaluated at its true value."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        return [Wide(function(*[np.asarray(as_float(x)) for x in xs]))]

    RULES[name], WORK[name] = run, _COSTLY


_plain("cos", np.cos)
_plain("acos", np.arccos)
_plain("one_minus_square", lambda t: (1.0 - t) * (1.0 + t))
for _name, _function in {
    "lgamma": "gammaln",
    "digamma": "digamma",
    "polygamma": "polygamma",
    "zeta": "zeta",
    "igamma": "gammainc",
    "igammac": "gammaincc",
    "regularized_incomplete_beta": "betainc",
    "bessel_i0e": "i0e",
    "bessel_i1e": "i1e",
}.items():
    _plain(_name, _scipy(_function))
