"""Transcendental and special functions on numbers in a wide range.

`exp(1000)` is an ordinary number here, and `log` of it is 1000 again. Where float64 suffices, NumPy
computes a function. Elsewhere a function works entry by entry. The exponential splits its argument
into a power of two and a rest. The logarithm adds `exponent * log 2`. Functions that are linear at
zero (sin, tanh, log1p, erf, ...) keep arguments that underflow in float64.

    >>> exp_of(np.array([1.0, 1000.0])).exponent
    array([   1, 1443])

All forms here are for blocks and spread numbers alike. `_function_bounds` has their bounds, and
`_identities` runs them at exponents. The table at the end joins all three by name.

Sharp edge: a function with no known form far from 1 (zeta, the incomplete gammas) is unknown for
arguments beyond float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..graph._graph import Node
from ..numbers._spread import choose, common, is_spread, times
from ..numbers._wide import (
    Numbers,
    Wide,
    as_float,
    complex_of,
    extent,
    in_float64,
    inverse,
    is_number,
    normalised,
)
from . import _function_bounds as bounds, _rows as rows, _vanish as vanish
from ._arithmetic import power_bound, whole_power
from ._by_jax import in_double
from ._forms import dtype_of, is_float
from ._identities import IDENTITIES
from ._identities_powers import number_of
from ._law import Evaluate, Numeric, ToWide, known, law

LOG2 = math.log(2.0)
# log 2 in two parts, the first with 32 zero bits at its end, so that k * _LOG2_HIGH is exact.
_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_COSTLY = 8.0  # a transcendental function takes about as long as so many products
_FARTHEST = 2.0**52  # larger powers of two are infinite or zero even here
_TINY, _HUGE = 2.0**-1000, 2.0**1000  # between them, float64 is comfortable

# -- where float64 will do ------------------------------------------------------------------------


def _ends(x: Wide) -> tuple[float, float]:
    """Return cheap bounds in log2 of the magnitudes; (0, 0) if there are none."""
    if is_spread(x):
        return -math.inf, math.inf
    low, high = x.extent or extent(x.array)
    return (math.log2(low) + x.exponent, math.log2(high) + x.exponent) if high else (0.0, 0.0)


def _is_near(x: Wide) -> bool:
    """True if float64 holds all numbers with room to spare."""
    if type(x.exponent) is int and x.exponent == 0:
        return True
    low, high = _ends(x)
    return low > -1000 and high < 1000


def _piecewise(which: np.ndarray, rest: Wide, other: Callable[[], Wide]) -> Wide:
    """Return `other()` where a condition holds, else the rest."""
    return choose(which, rest, other()) if np.any(which) else rest


# -- exponential and logarithm --------------------------------------------------------------------


def exp_of(t: Numbers) -> Wide:
    """Return `exp(t)` for float64 or complex numbers of any size."""
    t = np.asarray(t)
    if np.all(np.abs(t.real) < 700.0):
        return Wide(np.exp(t))
    real = np.clip(t.real, -_FARTHEST, _FARTHEST)
    k = np.where(np.isfinite(t.real), np.rint(real / LOG2), 0.0)
    rest = np.where(np.isfinite(t.real), (real - k * _LOG2_HIGH) - k * _LOG2_LOW, t.real)
    if t.dtype.kind == "c":
        rest = complex_of(rest, t.imag)
    return Wide(np.exp(rest), k.astype(np.int64))


def exp2_of(t: Numbers) -> Wide:
    """Return `2**t` for float64 numbers of any size."""
    t = np.asarray(t)
    if np.all(np.abs(t) < 1000.0):
        return Wide(np.exp2(t))
    near = np.clip(t, -_FARTHEST, _FARTHEST)
    k = np.where(np.isfinite(t), np.rint(near), 0.0)
    return Wide(np.exp2(np.where(np.isfinite(t), near - k, t)), k.astype(np.int64))


def log_of(x: Wide, function: Numeric = np.log, unit: float = LOG2) -> Numbers:
    """Return the logarithm in float64, to full precision also near one."""
    if _is_near(x):
        return function(as_float(x))
    out = function(x.array) + np.where(is_number(x.array), x.exponent, 0) * unit
    t = as_float(x)
    size = np.abs(t)
    return np.where((size > _TINY) & (size < _HUGE), function(t), out)


def exponential(node: Node, xs: list[Wide]) -> list[Wide]:
    x = xs[0]
    if _ends(x)[1] < 9.0:  # at most 512
        return [Wide(np.exp(as_float(x)))]
    return [exp_of(as_float(x))]


def exponential_2(node: Node, xs: list[Wide]) -> list[Wide]:
    t = as_float(xs[0])
    return [exp_of(t * LOG2) if t.dtype.kind == "c" else exp2_of(t)]


def logarithm(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(log_of(xs[0]))]


def logarithm_2(node: Node, xs: list[Wide]) -> list[Wide]:
    return [Wide(log_of(xs[0], np.log2, 1.0))]


def logistic(node: Node, xs: list[Wide]) -> list[Wide]:
    t = np.asarray(as_float(xs[0]))
    low = t.real < -40.0  # exp(t) to the precision of float64
    return [_piecewise(low, Wide(1.0 / (1.0 + np.exp(-t))), lambda: exp_of(np.where(low, t, 0.0)))]


# -- functions that are linear at zero ------------------------------------------------------------


def _linear(function: Callable[[Wide], Wide], slope: float = 1.0) -> Evaluate:
    """Return the rule of a function that is `slope * x` below 2^-60, to float64's precision."""

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        x = xs[0]
        if _is_near(x):
            return [function(x)]
        if _ends(x)[1] < -60:
            return [Wide(x.array * slope, x.exponent)]
        tiny = np.abs(as_float(x)) < 2.0**-60
        return [_piecewise(tiny, function(x), lambda: times(x, Wide(np.float64(slope))))]

    return run


def _of_float64(function: Numeric) -> Callable[[Wide], Wide]:
    return lambda x: Wide(function(as_float(x)))


def _scipy(name: str) -> Numeric:
    """Return a function of SciPy that its first use imports, so that `import tanjax` does not."""

    def call(*arrays: Numbers) -> Numbers:
        import scipy.special

        return getattr(scipy.special, name)(*arrays)

    return call


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


def _hyperbolic(function: Numeric, even: bool) -> Callable[[Numbers], Wide]:
    def run(t: Numbers) -> Wide:
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


# -- the others -----------------------------------------------------------------------------------


def cosh(node: Node, xs: list[Wide]) -> list[Wide]:
    return [_cosh(as_float(xs[0]))]


def cos(node: Node, xs: list[Wide]) -> list[Wide]:
    t = as_float(xs[0])
    return [_cosh(complex_of(-t.imag, t.real)) if t.dtype.kind == "c" else Wide(np.cos(t))]


def acosh(node: Node, xs: list[Wide]) -> list[Wide]:
    x, t = xs[0], as_float(xs[0])
    near = np.arccosh(t)
    if _is_near(x):
        return [Wide(near)]
    return [Wide(np.where(np.abs(t) > 1e300, log_of(x) + LOG2, near))]


def atan2(node: Node, xs: list[Wide]) -> list[Wide]:
    y, x = xs
    if not is_spread(y) and not is_spread(x) and y.exponent == x.exponent:
        return [Wide(np.arctan2(y.array, x.array))]
    (a, b), _ = common(xs)
    small = is_number(y.array) & (np.abs(a) < 2.0**-60 * np.abs(b)) & (b > 0)
    return [_piecewise(small, Wide(np.arctan2(a, b)), lambda: times(y, inverse(x)))]


def erfc(node: Node, xs: list[Wide]) -> list[Wide]:
    t = np.asarray(as_float(xs[0]))

    def tail() -> Wide:
        u = np.clip(t, 0.0, 1e30)
        high = u.astype(np.float32).astype(np.float64)  # whose square is exact
        power = exp_of(-high * high)
        rest = np.exp((high - u) * (high + u)) if u.max() < 1e4 else 1.0
        return normalised(Wide(power.array * rest * _scipy("erfcx")(u), power.exponent))

    return [_piecewise(t > 20.0, Wide(_scipy("erfc")(t)), tail)]


def power(node: Node, xs: list[Wide]) -> list[Wide]:
    """Return `x**y`: by products for one whole exponent, else by the logarithm beyond float64."""
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


def _power_by_logarithm(x: Wide, t: Numbers) -> Wide:
    if x.array.dtype.kind == "c" or t.dtype.kind == "c":
        return exp_of(np.where(t == 0, 0.0, t * log_of(x)))
    size = exp2_of(
        np.where(t == 0, 0.0, t * log_of(Wide(np.abs(x.array), x.exponent), np.log2, 1.0))
    )
    return Wide(size.array * np.power(np.where(x.array < 0, -1.0, 1.0), t), size.exponent)


def _plain(function: Numeric, far: ToWide | None = None, tiny: bool = False) -> Evaluate:
    """Return the rule of a function that is evaluated at its true value.

    **Arguments:** `far`: the function of one operand that is out of float64's range; `tiny`: the
    function is as good as constant at zero.
    """

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        if all(map(_is_near, xs)):
            return [Wide(function(*[np.asarray(as_float(x)) for x in xs]))]
        if far is None:
            return [Wide(function(*[np.asarray(in_float64(x, tiny)) for x in xs]))]
        size = np.abs(as_float(xs[0]))
        outside = is_number(xs[0].array) & ((size < _TINY) | (size > _HUGE))
        return [_piecewise(outside, Wide(function(as_float(xs[0]))), lambda: far(xs[0], size > 1))]

    return run


def _far_from_one(order: Numbers, x: Numbers, limit: float) -> np.ndarray:
    return (np.abs(x) > limit) | (np.abs(x) < 1 / limit) | (np.abs(order) > 1e3)


def _as_far_as_jax(name: str, is_far: Numeric = _far_from_one) -> Evaluate:
    """Return the rule of a SciPy function, for operands where JAX's own is right in its dtype.

    JAX's sums of powers leave the range far away: in float32 `zeta(2, 1e20)` is 0, and others are
    NaN. `igammac(1e-30, x)` is 1 minus a number near 1.
    """
    plain = _plain(_scipy(name))

    def run(node: Node, xs: list[Wide]) -> list[Wide]:
        order, x = (as_float(operand) for operand in xs)
        limit = 1e100 if dtype_of(node).itemsize == 8 else 1e10
        if np.any(is_far(order, x, limit) & np.isfinite(x) & (x != 0) & (order != 0)):
            raise NotImplementedError(f"{name} of numbers that JAX's own is not made for")
        return plain(node, xs)

    return run


def _digamma_far(x: Wide, large: np.ndarray) -> Wide:
    return choose(large, inverse(Wide(-x.array, x.exponent)), Wide(log_of(x)))


def _lgamma_far(x: Wide, large: np.ndarray) -> Wide:
    """Return `-log|x|` near zero, else Stirling's `x (log x - 1)`, or inf at negative numbers."""
    logs = log_of(Wide(np.abs(x.array), x.exponent))
    grown = times(x, Wide(np.where(x.array > 0, logs - 1.0, -np.inf)))
    return choose(large, Wide(-logs), grown)


# -- the table ------------------------------------------------------------------------------------

_TABLE: dict[str, Evaluate] = {
    "exp": exponential,
    "exp2": exponential_2,
    "log": logarithm,
    "log2": logarithm_2,
    "logistic": logistic,
    "expm1": _linear(_expm1),
    "log1p": _linear(_log1p),
    "sin": _linear(_sin),
    "cos": cos,
    "tan": _linear(_of_float64(np.tan)),
    "asin": _linear(_of_float64(np.arcsin)),
    "acos": _plain(np.arccos, tiny=True),
    "atan": _linear(_of_float64(np.arctan)),
    "sinh": _linear(lambda x: _sinh(as_float(x))),
    "cosh": cosh,
    "tanh": _linear(_of_float64(np.tanh)),
    "asinh": _linear(_asinh),
    "acosh": acosh,
    "atanh": _linear(_of_float64(np.arctanh)),
    "erf": _linear(_of_float64(_scipy("erf")), 2 / math.sqrt(math.pi)),
    "erf_inv": _linear(_of_float64(_scipy("erfinv")), math.sqrt(math.pi) / 2),
    "erfc": erfc,
    "lgamma": _plain(_scipy("gammaln"), _lgamma_far),
    "digamma": _plain(_scipy("digamma"), _digamma_far),
    "bessel_i0e": _plain(_scipy("i0e"), tiny=True),
    "bessel_i1e": _plain(_scipy("i1e")),
    "polygamma": _as_far_as_jax("polygamma"),
    "zeta": _as_far_as_jax("zeta"),
    "igamma": _plain(_scipy("gammainc")),
    "igammac": _as_far_as_jax("gammaincc", lambda a, x, limit: np.abs(a) < 1 / limit),
    "regularized_incomplete_beta": _plain(_scipy("betainc")),
    "igamma_grad_a": in_double,
}
_VANISH = {
    "exp": vanish.EXPONENTIAL,
    "exp2": vanish.EXPONENTIAL,
    "expm1": vanish.EXPONENTIAL_LESS_ONE,
    "log": vanish.LOGARITHM,
    "log2": vanish.LOGARITHM,
    "log1p": vanish.LOGARITHM_OF_ONE_AND,
    "logistic": vanish.BOUNDED_TAIL,
    "erfc": vanish.TAIL,
    "cos": vanish.COSINE,
    "tanh": vanish.BOUNDED,
    **dict.fromkeys(("sin", "atan", "asinh", "erf"), vanish.GENTLE),
    **dict.fromkeys(("tan", "asin", "sinh"), vanish.STEEP),
}
_SHARED = {"log2": "log", "digamma": "lgamma"}
_COMPLEX = {"exp", "exp2", "log", "log2"}  # the others grow like exp there, or have branches

for _name, _evaluate in _TABLE.items():
    _bound = getattr(bounds, _SHARED.get(_name, _name), None)
    law(
        _name,
        "*x: 1 -> 1",
        evaluate=_evaluate,
        spread=True,
        work=_COSTLY,
        bound=_bound and known(_bound),
        real_only=_name not in _COMPLEX,
        replay=IDENTITIES.get(_name),
        vanish=_VANISH.get(_name, vanish.ANYTHING),
    )


def _is_negative(node: Node, position: int) -> bool:
    """True if the operand is the base of a known negative power, which divides by it."""
    power = number_of(node.uses[1].value)
    return position == 0 and power is not None and power.real < 0


law("atan2", "a: u, b: u -> rad", rows=rows.angle, evaluate=atan2, spread=True, work=_COSTLY,
    bound=known(bounds.atan2), replay=IDENTITIES["atan2"], vanish=vanish.ANYTHING)  # fmt: skip
law("pow", "", rows=rows.general_power, evaluate=power, spread=True,
    work=2 * _COSTLY, bound=known(power_bound), real_only=True,
    replay=IDENTITIES["pow"], vanish=vanish.POWER, inverts=_is_negative)  # fmt: skip
