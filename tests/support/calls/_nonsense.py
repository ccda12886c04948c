"""Calls without a meaning: each must raise `UnitError`."""

import numpy as np

from ._call import Q, calls_of
from ._numpy import KM, MASK, MAT, SMAT, M, S

c, a, x = calls_of("numpy"), calls_of("linalg"), calls_of("lax")

PLAIN = np.array([1.0, 2.0, 3.0])
POINT = Q(2.0, "s")

NONSENSE = [
    # different dimensions
    *c(
        "add subtract maximum minimum hypot remainder fmod floor_divide arctan2 divmod",
        M,
        S,
        unit=0,
    ),
    *c("equal less greater_equal isclose allclose array_equal", M, S, unit=0),
    *c("gcd lcm nextafter", Q([4], "m"), Q([6], "s"), unit=0),
    *c("concatenate stack hstack", (M, S), unit=0),
    *c("append union1d isin searchsorted cov polyadd", M, S, unit=0),
    *c("where", MASK, M, S, unit=0),
    *c("select", [MASK], [M], S, unit=0),
    *c("clip", M, POINT, None, unit=0),
    *c("interp", POINT, M, KM, unit=0),
    *c("linspace", Q(1.0, "m"), POINT, unit=0),
    *c("full_like", M, POINT, unit=0),
    *c("pad", M, 1, constant_values=POINT, unit=0),
    *c("insert", M, 1, POINT, unit=0),
    *c("sum", M, initial=POINT, unit=0),
    *c("nan_to_num", M, nan=POINT, unit=0),
    *c("isclose", M, KM, atol=POINT, unit=0),
    *c("block", [[MAT, SMAT]], unit=0),
    *c("array", [Q(1.0, "m"), POINT], unit=0, numpy=False),
    # numbers mixed with a dimension
    *c("add subtract less maximum append", M, PLAIN, unit=0),
    *c("where", MASK, M, PLAIN, unit=0),
    *c("concatenate", (M, PLAIN), unit=0),
    # a dimension where only pure numbers make sense
    *c("exp log sin arcsin log1p tanh exp2 sinc i0 cumprod deg2rad", M, unit=0),
    *c("logaddexp", M, KM, unit=0),
    *c("power", 2.0, M, unit=0),
    *c("power", M, PLAIN, unit=0),
    *c("logspace", Q(1.0, "m"), Q(2.0, "m"), unit=0),
    *c("polyval", M, S, unit=0),
    *c("quantile", M, Q(0.5, "s"), unit=0),
    # quantities where indices, shapes or bits belong
    *c("take", M, Q(1.0, "m"), unit=0, numpy=False),
    *c("repeat", M, Q(2.0, "s"), unit=0),
    *c("bitwise_and left_shift", M, KM, unit=0),
    # a step of 1 of which unit?
    *c("arange", Q(0.0, "m"), Q(3.0, "m"), unit=0, numpy=False),
    # linear algebra, lax, scipy
    *a("slogdet", MAT, unit=0),
    *x("add sub max lt atan2 rem", M, S, unit=0),
    *x("exp log logistic cumlogsumexp", M, unit=0),
    *x("clamp", POINT, M, POINT, unit=0),
    *x("concatenate", (M, S), 0, unit=0),
    *x("bitcast_convert_type", M, np.int64, unit=0),
    *calls_of("scipy.special")("erf gamma logsumexp softmax", M, unit=0),
    *calls_of("scipy.linalg")("expm lu_factor", MAT, unit=0),
    *calls_of("scipy.stats.norm")("logpdf", M, Q(0.0, "m"), Q(1.0, "m"), unit=0),
    *calls_of("scipy.stats.norm")("pdf", M, unit=0),
]
