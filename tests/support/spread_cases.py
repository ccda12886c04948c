"""Calls on numbers too far apart for one exponent, and the same in decimals of 60 digits.

Python's `decimal` has any range, and NumPy's functions work on arrays of such objects, so that
nothing of the library is used to say what is right. The functions on decimals are called in the
context `CONTEXT`.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
from jax import lax

from tanjax import _compat
from tanjax.scale.numbers._wide import Wide, normalised

CONTEXT = decimal.Context(prec=60, Emax=10**9, Emin=-(10**9))
POWERS = np.array([[-2500, -600, 0, 40], [900, 3, 5000, -1100], [0, 2, 1, -70]])
FRACTIONS = np.array([[0.7, 0.9, 0.6, -0.8], [0.55, -0.51, 0.75, 0.95], [-0.5, 0.5, 0.99, 0.75]])
X = Wide(FRACTIONS, POWERS)
Y = Wide(FRACTIONS[::-1], POWERS[:, ::-1] + np.array([[7], [-3], [1]]))
P = Wide(np.abs(FRACTIONS), POWERS)
Q = Wide(np.abs(FRACTIONS[::-1]), POWERS[:, ::-1] // 2)
T = Wide(np.array([-1e5, -800.0, -50.0, -1e-3, 0.0, 1e-9, 2.0, 30.0, 650.0, 711.0, 1e4, 1e5]))
SMALL = normalised(Wide(np.array([1e-300, 0.3, -0.9, 1e-5]), np.array([-3000, 0, 0, -40])))
PLACES = np.array([[0, 3], [2, 1], [1, 7]])


def decimals(x):
    """A `Wide` as an array of decimals; infinities and NaN as themselves."""
    array = np.asarray(x.array)
    out = np.empty(array.shape, object)
    powers = np.broadcast_to(x.exponent, array.shape)
    for i in np.ndindex(array.shape):
        out[i] = Decimal(float(array[i])) * Decimal(2) ** int(powers[i])
    return out


def each(f):
    return np.frompyfunc(f, 1, 1)


exp, log, sqrt = (each(lambda d, n=n: getattr(d, n)(CONTEXT)) for n in ("exp", "ln", "sqrt"))
LN2 = Decimal(2).ln(CONTEXT)


def number(d, f):
    """A function by way of Python's floats, where they are good enough."""
    return Decimal(f(float(d)))


def tanh(d):
    if abs(d) < Decimal("1e-18"):
        return d
    e = (2 * max(min(d, Decimal(99)), Decimal(-99))).exp()
    return (e - 1) / (e + 1)


def odd(f, slope=Decimal(1)):
    """A function that is linear at zero, by floats elsewhere."""
    return each(lambda d: d * slope if abs(d) < Decimal("1e-18") else number(d, f))


def rounding(f):
    return each(lambda d: d.to_integral_value(f) if abs(d) < 10**30 else d)


def window_sum(a):
    return np.stack([a[:, i] + a[:, i + 1] for i in range(a.shape[1] - 1)], 1)


def scattered(a, u, combine):
    out = a.copy()
    for k, i in enumerate([0, 2, 2]):
        out[i] = combine(out[i], u[k])
    return out


def convolved(a, b):
    return np.array([[sum(r[i + j] * b[j] for j in range(2)) for i in range(3)] for r in a])


def conv(a, b):
    return lax.conv_general_dilated(a[:, None], b[None, None], (1,), "VALID")[:, 0]


def remainders(x, y):
    """With the sign of the dividend, as in C; in fractions, as it needs every digit."""
    out = np.empty(x.array.shape, object)
    for i in np.ndindex(out.shape):
        a, b = (Fraction(float(z.array[i])) * Fraction(2) ** int(z.exponent[i]) for z in (x, y))
        rest = a - b * math.trunc(a / b)
        out[i] = Decimal(rest.numerator) / Decimal(rest.denominator)
    return out


def rounded(d):
    """To 20 bits of mantissa after the first."""
    e = int((abs(d).ln() / LN2).to_integral_value(ROUND_DOWN)) - 20
    return (d / Decimal(2) ** e).to_integral_value(decimal.ROUND_HALF_EVEN) * Decimal(2) ** e


def expm1(d):
    return d + d * d / 2 if abs(d) < Decimal("1e-8") else d.exp() - 1


def sinh(d):
    return d + d**3 / 6 if abs(d) < Decimal("1e-8") else (d.exp() - (-d).exp()) / 2


def log1p(d):
    return d - d * d / 2 if abs(d) < Decimal("1e-30") else (1 + d).ln()


def asinh(d):
    return d if abs(d) < Decimal("1e-18") else (d + (d * d + 1).sqrt()).ln()


def atan2(y, x):
    q = y / x
    if abs(q) < Decimal("1e-18"):
        return q
    return Decimal(math.atan(float(q)) if abs(q) < 10**300 else math.copysign(math.pi / 2, q))


def erfc_of(d):
    if d < 10:
        return Decimal(math.erfc(float(d)))
    series, term = Decimal(1), Decimal(1)
    for k in range(1, 25):
        term *= -(2 * k - 1) / (2 * d * d)
        series += term
    return (-d * d).exp() / (d * Decimal("3.14159265358979323846264338328").sqrt()) * series


def erfinv(x):
    import scipy.special

    return float(scipy.special.erfinv(x))


def scipy_of(name, *last, first=None):
    import scipy.special

    before = () if first is None else (first,)
    f = getattr(scipy.special, name)
    return lambda d: Decimal(float(f(*before, *([] if d is None else [float(d)]), *last)))


def digamma(x):
    import scipy.special

    return float(scipy.special.digamma(x))


def horner(x):
    c = np.full(4, Decimal(1))
    for i in range(5):
        c = c * x[i % 3] + 1
    return c


def doubled(c):
    while c < 10**9:
        c = c * c * 2
    return c


def pooled_gradient(x, y):
    out = np.full(x.shape, Decimal(0))
    for i, j in np.ndindex(y.shape):
        out[i, j + (x[i, j + 1] > x[i, j])] += y[i, j]
    return out


ROUND_UP, ROUND_DOWN = decimal.ROUND_CEILING, decimal.ROUND_FLOOR
INDEX = jnp.array([0, 2, 2])
pool = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 1), "VALID")
trough = lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 2), (1, 1), "VALID")
by_two = lambda f, s: lambda x: lax.reduce_window(x, s, f, (1, 2), (1, 1), "VALID")
KERNEL = Wide(np.array([0.75, 0.5]), np.array([-800, 900]))

# operation on JAX's arrays, the same on decimals (None: it is the same function), operands
CASES = {
    "add": (lambda x, y: x + y, None, X, Y),
    "sub": (lambda x, y: x - y, None, X, Y),
    "mul div": (
        lambda x, y: (x * y, x / y, x * 3.0, lax.square(x)),
        lambda x, y: (x * y, x / y, x * 3, x * x),
        X,
        Y,
    ),
    "sign": (lambda x: (-x, abs(x), jnp.sign(x)), lambda x: (-x, abs(x), np.sign(FRACTIONS)), X),
    "powers": (
        lambda x: [lax.integer_pow(x, n) for n in (2, 12, 101, -1, -7)],
        lambda x: [x**n for n in (2, 12, 101, -1, -7)],
        X,
    ),
    "polynomial": (
        lambda x: jnp.polyval(jnp.array([2.0, -3.0, 0.5]), x),
        lambda x: (2 * x - 3) * x + Decimal("0.5"),
        X,
    ),
    "roots": (
        lambda x: (jnp.sqrt(x), lax.rsqrt(x), lax.cbrt(x)),
        lambda x: (sqrt(x), 1 / sqrt(x), each(lambda d: (d.ln() / 3).exp())(x)),
        P,
    ),
    "pow": (
        lambda x: (x**2.5, x**-0.3, x**0.0),
        lambda x: (sqrt(x) * x * x, exp(log(x) * Decimal("-0.3")), x**0),
        P,
    ),
    "pow of many": (
        lambda x: lax.pow(x, jnp.array([[3.0, 0.25, -2.0, 1000.0]] * 3)),
        lambda x: exp(log(x) * np.array([3, Decimal("0.25"), -2, 1000])),
        P,
    ),
    "order": (
        lambda x, y: (jnp.maximum(x, y), jnp.minimum(x, y), lax.clamp(-abs(y), x, abs(y))),
        lambda x, y: (
            np.maximum(x, y),
            np.minimum(x, y),
            np.minimum(np.maximum(x, -abs(y)), abs(y)),
        ),
        X,
        Y,
    ),
    "rem": (lambda x, y: lax.rem(x, y), lambda x, y: remainders(X, Y), X, Y),
    "comparison": (
        lambda x, y: (x < y, x <= y, x > y, x >= y, x == x * 1.0, x != y, jnp.isfinite(x)),
        lambda x, y: (x < y, x <= y, x > y, x >= y, x == x, x != y, x == x),
        X,
        Y,
    ),
    "total order": (
        lambda x, y: (lax.lt_to_p.bind(x, y), lax.le_to_p.bind(x, x), lax.eq_to_p.bind(x, y)),
        lambda x, y: (x < y, x <= x, x == y),
        X,
        Y,
    ),
    "selection": (
        lambda x, y: (
            jnp.where(x > y, x, y),
            lax.select_n(jnp.array([[0, 1, 2, 1]] * 3, "i4"), x, y, x * y),
        ),
        lambda x, y: (np.maximum(x, y), np.choose([[0, 1, 2, 1]] * 3, [x, y, x * y])),
        X,
        Y,
    ),
    "rounding": (
        lambda x: (jnp.floor(x), jnp.ceil(x), jnp.round(x)),
        lambda x: (
            rounding(ROUND_DOWN)(x),
            rounding(ROUND_UP)(x),
            rounding(decimal.ROUND_HALF_EVEN)(x),
        ),
        X,
    ),
    "conversion": (
        lambda x: (
            x.astype("i4"),
            x.astype(bool),
            x.astype("f4"),
            x.astype("c16").real,
            jnp.imag(lax.complex(x, x)),
        ),
        lambda x: (
            each(
                lambda d: max(
                    min(
                        int(d)
                        if abs(d) < 10**30
                        else int(d.copy_sign(d).scaleb(0).to_integral_value()),
                        2**31 - 1,
                    ),
                    -(2**31),
                )
            )(x),
            x != 0,
            x,
            x,
            x,
        ),
        X,
    ),
    "precision": (lambda x: lax.reduce_precision(x, 11, 20), lambda x: each(rounded)(x), X),
    "exp": (
        lambda x: (
            jnp.exp(x),
            jnp.exp2(x),
            jnp.expm1(x),
            1 / (1 + jnp.exp(x)),
            jnp.tanh(1 + jnp.exp(x)),
        ),
        lambda x: (exp(x), exp(x * LN2), each(expm1)(x), 1 / (1 + exp(x)), each(tanh)(1 + exp(x))),
        T,
    ),
    "logistic": (lax.logistic, lambda x: 1 / (1 + exp(-x)), T),
    "hyperbolic": (
        lambda x: (jnp.sinh(x), jnp.cosh(x), jnp.log(jnp.cosh(x) + 1)),
        lambda x: (each(sinh)(x), (exp(x) + exp(-x)) / 2, log((exp(x) + exp(-x)) / 2 + 1)),
        T,
    ),
    "log": (
        lambda x: (jnp.log(x), jnp.log2(x), jnp.log1p(x), jnp.asinh(x)),
        lambda x: (log(x), log(x) / LN2, each(log1p)(x), each(asinh)(x)),
        P,
    ),
    "acosh": (
        lambda x: jnp.acosh(1 + x),
        lambda x: log(1 + x + sqrt(2 * x + x * x)),
        Wide(np.ones(3), np.array([0, 700, 3000])),
    ),
    "odd": (
        lambda x: (
            jnp.sin(x),
            jnp.tan(x),
            jnp.atan(x),
            jnp.asin(x),
            jnp.atanh(x),
            special.erf(x),
            lax.erf_inv(x),
        ),
        lambda x: (
            *(odd(getattr(math, n))(x) for n in ("sin", "tan", "atan", "asin", "atanh")),
            odd(math.erf, Decimal(2 / math.sqrt(math.pi)))(x),
            odd(erfinv, Decimal(math.sqrt(math.pi) / 2))(x),
        ),
        SMALL,
    ),
    "tanh": (jnp.tanh, each(tanh), X),
    "even": (
        lambda x: (jnp.cos(x), jnp.acos(x)),
        lambda x: (each(lambda d: number(d, math.cos))(x), each(lambda d: number(d, math.acos))(x)),
        SMALL,
    ),
    "atan2": (lambda y, x: jnp.atan2(y, x), lambda y, x: np.frompyfunc(atan2, 2, 1)(y, x), X, P),
    "erfc": (special.erfc, each(erfc_of), Wide(np.array([-3.0, 0.5, 5.0, 25.7, 30.0, 400.0]))),
    "gamma": (
        lambda x: (special.gammaln(x), special.digamma(x)),
        lambda x: (
            np.array([-log(x)[0], number(x[1], math.lgamma), x[2] * (x[2].ln() - 1)]),
            np.array([-1 / x[0], number(x[1], digamma), x[2].ln()]),
        ),
        Wide(np.array([0.5, 0.625, 0.5]), np.array([-3000, 3, 4000])),
    ),
    "shapes": (
        lambda x, y: (
            x.T,
            x.reshape(2, 6),
            x[::-1],
            x[:, 1:],
            jnp.squeeze(x[:1]),
            x[None],
            jnp.concatenate([x, y], 1),
            jnp.stack([x, y]),
            jnp.tile(x, (2, 1)),
            jnp.broadcast_to(x, (2, 3, 4)),
            *jnp.split(x, 2, 1),
            lax.stop_gradient(x),
            jnp.pad(x, ((1, 0), (0, 2)), constant_values=3.0),
            *jnp.unstack(x),
            *lax.split(x, (1, 2), 0),
        ),
        lambda x, y: (
            x.T,
            x.reshape(2, 6),
            x[::-1],
            x[:, 1:],
            x[0],
            x[None],
            np.concatenate([x, y], 1),
            np.stack([x, y]),
            np.tile(x, (2, 1)),
            np.broadcast_to(x, (2, 3, 4)),
            *np.split(x, 2, 1),
            x,
            np.pad(x, ((1, 0), (0, 2)), constant_values=Decimal(3)),
            *x,
            x[:1],
            x[1:],
        ),
        X,
        Y,
    ),
    "tile": (
        lambda x: lax.tile(x, (2, 1)) if hasattr(lax, "tile") else jnp.tile(x, (2, 1)),
        lambda x: np.tile(x, (2, 1)),
        X,
    ),
    "slices": (
        lambda x, y: (
            lax.dynamic_slice(x, (1, 2), (2, 2)),
            lax.dynamic_update_slice(x, y[:2, :2], (1, 2)),
            x[INDEX, INDEX + 1],
            jnp.take_along_axis(x, PLACES[:, :1], 1),
            x.at[jnp.array([0, 7])].get(mode="fill", fill_value=5.0),
        ),
        lambda x, y: (
            x[1:, 2:],
            np.block([[x[:1]], [x[1:, :2], y[:2, :2]]]),
            x[[0, 2, 2], [1, 3, 3]],
            x[[[0], [1], [2]], PLACES[:, :1]],
            np.stack([x[0], np.full(4, Decimal(5))]),
        ),
        X,
        Y,
    ),
    "sorting": (
        lambda x: (
            jnp.sort(x, 1),
            jnp.argsort(x.ravel()),
            *lax.top_k(x, 2),
            jnp.argmax(x, 1),
            jnp.argmin(x, 0),
            jnp.max(x, 0),
            jnp.min(x),
            lax.cummax(x, 1),
            lax.cummin(x, 0),
            pool(x),
            trough(x),
        ),
        lambda x: (
            np.sort(x, 1),
            np.argsort(x.ravel()),
            -np.sort(-x, 1)[:, :2],
            np.argsort(-x, 1)[:, :2],
            x.argmax(1),
            x.argmin(0),
            x.max(0),
            x.min(),
            np.maximum.accumulate(x, 1),
            np.minimum.accumulate(x, 0),
            np.maximum(x[:, 1:], x[:, :-1]),
            np.minimum(x[:, 1:], x[:, :-1]),
        ),
        X,
    ),
    "sums": (
        lambda x: (
            jnp.sum(x),
            jnp.sum(x, 1),
            jnp.sum(x, 0),
            jnp.cumsum(x, 1),
            lax.cumsum(x, 0, reverse=True),
            jnp.mean(x, 1),
            jnp.trace(x),
        ),
        lambda x: (
            x.sum(),
            x.sum(1),
            x.sum(0),
            x.cumsum(1),
            x[::-1].cumsum(0)[::-1],
            x.mean(1),
            np.trace(x),
        ),
        P,
    ),
    "products": (
        lambda x: (jnp.prod(x), jnp.prod(x, 1), jnp.cumprod(x, 1), lax.cumprod(x, 0, reverse=True)),
        lambda x: (x.prod(), x.prod(1), x.cumprod(1), x[::-1].cumprod(0)[::-1]),
        X,
    ),
    "windows": (
        lambda x: (
            by_two(lax.add, 0.0)(x),
            by_two(lax.add, 2.0)(x),
            by_two(lax.mul, 1.0)(x),
            lax.reduce(x, 3.0, lax.mul, (1,)),
            lax.reduce(x, 0.5, lax.max, (0,)),
            by_two(lax.max, 2.0)(x),
            lax.reduce(x, 1.0, lax.add, (1,)),
        ),
        lambda x: (
            window_sum(x),
            window_sum(x) + 2,
            x[:, 1:] * x[:, :-1],
            3 * x.prod(1),
            np.maximum(x.max(0), Decimal("0.5")),
            np.maximum(np.maximum(x[:, 1:], x[:, :-1]), 2),
            x.sum(1) + 1,
        ),
        P,
    ),
    "pooled gradient": (
        lambda x, y: jax.vjp(pool, x)[1](y[:, 1:])[0],
        lambda x, y: pooled_gradient(x, y[:, 1:]),
        X,
        P,
    ),
    "pooled tangent": (
        lambda x, y: jax.jvp(pool, (x,), (y,))[1],
        lambda x, y: np.where(x[:, 1:] > x[:, :-1], y[:, 1:], y[:, :-1]),
        X,
        Y,
    ),
    "scatters": (
        lambda x, y: (
            x.at[INDEX].add(y),
            x.at[INDEX].subtract(-y),
            x.at[INDEX].mul(y),
            x.at[INDEX].min(y),
            x.at[INDEX].max(y),
            x.at[jnp.array([1, 9, 0])].set(y),
        ),
        lambda x, y: (
            scattered(x, y, np.add),
            scattered(x, y, np.add),
            scattered(x, y, np.multiply),
            scattered(x, y, np.minimum),
            scattered(x, y, np.maximum),
            np.stack([y[2], y[0], x[2]]),
        ),
        P,
        Q,
    ),
    "contractions": (
        lambda x, y: (
            x @ y.T,
            x[0] @ y[1],
            jnp.einsum("ij,ij->i", x, y),
            jnp.outer(x[1], y[0]),
            jnp.einsum("ij,kj->kji", x, y),
            x.T @ jnp.ones(3),
            jnp.sum(x @ y.T) - jnp.sum(x),
        ),
        lambda x, y: (
            x @ y.T,
            x[0] @ y[1],
            (x * y).sum(1),
            np.outer(x[1], y[0]),
            np.einsum("ij,kj->kji", x, y),
            x.sum(0),
            (x @ y.T).sum() - x.sum(),
        ),
        P,
        Q,
    ),
    "convolution": (conv, convolved, P, KERNEL),
    "loops": (
        lambda x: (
            lax.scan(lambda c, r: (c * r, c + r), jnp.ones(4), x),
            lax.fori_loop(0, 5, lambda i, c: c * x[i % 3] + 1, jnp.ones(4)),
            jax.vmap(lambda a: lax.while_loop(lambda c: c < 1e9, lambda c: c * c * 2, a))(
                1 + x.ravel()
            ),
        ),
        lambda x: (
            x[0] * x[1] * x[2],
            np.stack([1 + x[0], x[0] + x[1], x[0] * x[1] + x[2]]),
            horner(x),
            each(doubled)(1 + x.ravel()),
        ),
        P,
    ),
    "within float64": (
        lambda x: (
            special.i0e(x),
            special.i1e(x),
            special.zeta(2 + x, 2.0),
            special.gammainc(2.0, x),
            special.gammaincc(2.0, x),
            special.polygamma(1, x),
            special.betainc(2.0, 3.0, x),
        ),
        lambda x: (
            each(scipy_of("i0e"))(x),
            each(scipy_of("i1e"))(x),
            each(lambda d: scipy_of("zeta", 2.0)(2 + d))(x),
            each(scipy_of("gammainc", first=2.0))(x),
            each(scipy_of("gammaincc", first=2.0))(x),
            each(scipy_of("polygamma", first=1))(x),
            each(lambda d: scipy_of("betainc", 2.0, 3.0, float(d))(None))(x),
        ),
        Wide(np.array([0.5, 0.6, 0.75]), np.array([-300, -1, 0])),
    ),
    "log of sum": (
        lambda x: lax.cumlogsumexp(x, 0),
        lambda x: log(exp(x).cumsum()),
        Wide(np.array([1.0, 700.0, 720.0])),
    ),
    "bits": (
        lambda x: (lax.bitcast_convert_type(x, jnp.int64), lax.nextafter(x, jnp.full_like(x, 9.0))),
        lambda x: (
            x.astype(float).view(np.int64),
            np.vectorize(Decimal, otypes=[object])(np.nextafter(x.astype(float), 9.0)),
        ),
        Wide(np.array([0.5, -0.75, 0.6]), np.array([900, 0, -900])),
    ),
    "frexp": (
        lambda x: (
            *jnp.frexp(x),
            jnp.ldexp(x, jnp.array([[3, -2000, 900, 0]] * 3)),
            jnp.ldexp(x, 5) / x,
        ),
        lambda x: (
            FRACTIONS.astype(object),
            POWERS,
            x * np.array([Decimal(2) ** n for n in (3, -2000, 900, 0)]),
            np.full(x.shape, 32),
        ),
        X,
    ),
    "symmetric outer": (_compat.symmetric_outer, lambda x, y: x @ y.T + y @ x.T, P, Q),
    "batched symmetric outer": (
        lambda x, y: _compat.symmetric_outer(x[None], y[None])[0],
        lambda x, y: x @ y.T + y @ x.T,
        P,
        Q,
    ),
    "reflections": (
        lambda x: lax.linalg.householder_product(x, jnp.array([0.5])),
        lambda x: np.array([[Decimal("0.5")], [x[1, 0] / -2]]),
        Wide(np.array([[0.5], [0.75]]), np.array([[3000], [-2]])),
    ),
}
