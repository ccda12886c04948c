"""Calls without a meaning: each must raise `UnitError`."""

import numpy as np

from ._call import Q, calls_of
from ._numpy import KM, MASK, MAT, SMAT, M, S

c, x = calls_of("numpy", unit=0), calls_of("lax", unit=0)

PLAIN = np.array([1.0, 2.0, 3.0])
POINT = Q(2.0, "s")

NONSENSE = [
    # different dimensions
    *c("add subtract maximum minimum hypot remainder fmod floor_divide arctan2 divmod", M, S),
    *c("equal less greater_equal isclose allclose array_equal", M, S),
    *c("gcd lcm nextafter", Q([4], "m"), Q([6], "s")),
    *c("concatenate stack hstack", (M, S)),
    *c("append union1d isin searchsorted cov polyadd", M, S),
    *c("where", MASK, M, S),
    *c("select", [MASK], [M], S),
    *c("clip", M, POINT, None),
    *c("interp", POINT, M, KM),
    *c("linspace", Q(1.0, "m"), POINT),
    *c("full_like", M, POINT),
    *c("pad", M, 1, constant_values=POINT),
    *c("insert", M, 1, POINT),
    *c("sum", M, initial=POINT),
    *c("nan_to_num", M, nan=POINT),
    *c("isclose", M, KM, atol=POINT),
    *c("block", [[MAT, SMAT]]),
    *c("array", [Q(1.0, "m"), POINT], unit=0, numpy=False),
    # numbers mixed with a dimension
    *c("add subtract less maximum append", M, PLAIN),
    *c("where", MASK, M, PLAIN),
    *c("concatenate", (M, PLAIN)),
    # a dimension where only pure numbers make sense
    *c("exp log sin arcsin log1p tanh exp2 sinc i0 cumprod deg2rad", M),
    *c("logaddexp", M, KM),
    *c("power", 2.0, M),
    *c("power", M, PLAIN),
    *c("logspace", Q(1.0, "m"), Q(2.0, "m")),
    *c("polyval", M, S),
    *c("quantile", M, Q(0.5, "s")),
    # quantities where indices, shapes or bits belong
    *c("take", M, Q(1.0, "m"), unit=0, numpy=False),
    *c("repeat", M, Q(2.0, "s")),
    *c("bitwise_and left_shift", M, KM),
    # the default step of 1 has no unit
    *c("arange", Q(0.0, "m"), Q(3.0, "m"), unit=0, numpy=False),
    # linear algebra, lax, scipy
    *calls_of("linalg", unit=0)("slogdet", MAT),
    *x("add sub max lt atan2 rem", M, S),
    *x("exp log logistic cumlogsumexp", M),
    *x("clamp", POINT, M, POINT),
    *x("concatenate", (M, S), 0),
    *x("bitcast_convert_type", M, np.int64),
    *calls_of("scipy.special", unit=0)("erf gamma logsumexp softmax", M),
    *calls_of("scipy.linalg", unit=0)("expm lu_factor", MAT),
    *calls_of("scipy.stats.norm", unit=0)("logpdf", M, Q(0.0, "m"), Q(1.0, "m")),
    *calls_of("scipy.stats.norm", unit=0)("pdf", M),
]
