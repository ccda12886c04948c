"""Calls of `jax.numpy`, except shapes and indices."""

import numpy as np

from ._call import Q, calls_of

c, own = calls_of("numpy"), calls_of("numpy", numpy=False)

M = Q([1.5, -2.0, 3.25], "m")
N = Q([2.5, 1.0, -3.0], "m")
KM = Q([0.0015, -0.5, 2.0], "km")
CM = Q([30.0, 150.0, 75.0], "cm")
S = Q([2.0, 0.5, 4.0], "s")
MS = Q([250.0, 500.0, 125.0], "ms")
ONE = Q([0.25, -0.5, 0.75], "1")
RATIO = Q([25.0, -50.0, 75.0], "cm m^-1")
DEG = Q([30.0, 45.0, 60.0], "deg")
BIG = Q([1.25, 2.5, 1.75], "1")
S_TWO = Q([2.0, 0.5], "s")
MAT = Q([[4.0, 1.0], [0.5, 3.0]], "m")
KMAT = Q([[0.002, 0.001], [0.003, 0.004]], "km")
SMAT = Q([[2.0, 1.0], [0.5, 3.0]], "s")
COMPLEX = Q([1.0 + 2.0j, -0.5j, 2.0], "m")
WITH_NAN = Q([1.5, np.nan, 3.25], "m")
INFINITE = Q([np.inf, 1.0, -np.inf], "m")
INTS = Q([12, 18, 30], "m")
FILL = Q(0.009, "km")
MASK = np.array([True, False, True])

ELEMENTWISE = [
    # sums and differences
    *c("add subtract maximum minimum fmax fmin hypot nextafter", M, KM, unit="m"),
    *c("fmod mod remainder", M, CM, unit="m"),
    *c("gcd lcm", INTS, Q([8, 12, 45], "m"), unit="m"),
    *c("copysign", M, S, unit="m"),
    # the unit stays
    *c("abs absolute fabs negative conj conjugate spacing positive", M, unit="m"),
    *c("real imag", COMPLEX, unit="m"),
    *c("ldexp", M, np.array([1, 2, 3]), unit="m"),
    *c("frexp", M, unit=("m", None)),
    *c("ceil floor rint trunc round around", M, unit="m"),
    *c("round", M, 1, unit="m"),
    *c("modf", M, unit=("m", "m")),
    # products and powers
    *c("multiply", KM, S, unit="m s"),
    *c("multiply", KM, 2.0, unit="m"),
    *c("divide true_divide", KM, MS, unit="m s^-1"),
    *c("divide", 2.0, MS, unit="s^-1"),
    *c("floor_divide", M, CM, unit="1"),
    *c("divmod", M, CM, unit=("1", "m")),
    *c("reciprocal", KM, unit="m^-1"),
    *c("square", KM, unit="m^2"),
    *c("sqrt", CM, unit="m^1/2"),
    *c("cbrt", CM, unit="m^1/3"),
    *c("power pow", KM, 3, unit="m^3"),
    *c("power float_power", CM, 0.5, unit="m^1/2"),
    *c("float_power", CM, 2.0, unit="m^2"),
    # angles
    *c("sin cos tan sinc", DEG, unit="1"),
    *c("arcsin arccos arctan asin acos atan", RATIO, unit="rad"),
    *c("arctan2 atan2", M, KM, unit="rad"),
    *c("angle", COMPLEX, unit="rad"),
    *c("deg2rad radians", DEG, unit="rad", value=np.deg2rad([30.0, 45.0, 60.0])),
    *c("rad2deg degrees", Q([0.5, 1.0], "rad"), unit="rad", value=np.array([0.5, 1.0])),
    *c("unwrap", Q([10.0, 350.0, 20.0], "deg"), unit="rad"),
    *c("unwrap", M, period=Q(100.0, "cm"), unit="m"),
    # exponentials, logarithms, hyperbolic functions
    *c("exp exp2 expm1 i0 sinh cosh tanh arcsinh asinh arctanh atanh log1p", RATIO, unit="1"),
    *c("log log2 log10 arccosh acosh", BIG, unit="1"),
    *c("logaddexp logaddexp2", RATIO, ONE, unit="1"),
    *c("heaviside", M, 0.5, unit="1"),
    # tests
    *c("sign signbit isfinite isinf isnan iscomplex isreal isneginf isposinf", M, unit=None),
    *c("iscomplexobj isrealobj", COMPLEX, unit=None),
    *c("isscalar", Q(2.0, "m"), unit=None),
    *c("equal not_equal less less_equal greater greater_equal", M, KM, unit=None),
    *c("isclose allclose", M, Q([0.0015, -0.002, 0.004], "km"), unit=None),
    *c("isclose", M, KM, atol=Q(30.0, "cm"), unit=None),
    *c("array_equal array_equiv", M, KM, unit=None),
    *c("array_equal array_equiv", M, Q([0.0015, -0.002, 0.00325], "km"), unit=None),
    *c("logical_not", M, unit=None),
    *c("logical_and logical_or logical_xor", M, S, unit=None),
    # replacing values
    *c("clip", M, Q(-50.0, "cm"), Q(0.002, "km"), unit="m"),
    *c("nan_to_num", WITH_NAN, nan=Q(20.0, "cm"), unit="m"),
    *c("nan_to_num", INFINITE, posinf=Q(20.0, "cm"), neginf=Q(30.0, "cm"), unit="m"),
    *c("astype", M, np.float32, unit="m", numpy=False),
]

REDUCTIONS = [
    *c("sum nansum cumsum nancumsum max min amax amin nanmax nanmin cumulative_sum", KM, unit="m"),
    *c("mean nanmean median nanmedian std nanstd ptp average", KM, unit="m"),
    *c("sum nansum max amax nanmax", M, initial=Q(0.5, "km"), unit="m"),
    *c("min amin nanmin", M, initial=Q(-0.5, "km"), unit="m"),
    *c("mean", M, where=MASK, unit="m"),
    *c("average", M, weights=S, unit="m"),
    *c("average", M, weights=S, returned=True, unit=("m", "s")),
    *c("var nanvar", KM, unit="m^2"),
    *c("trace", KMAT, unit="m"),
    *c("argmax argmin nanargmax nanargmin all any count_nonzero", M, unit=None),
    *c("nonzero argwhere flatnonzero", M, unit=None),
    *c("minmax", KM, unit=("m", "m")),
    *c("prod", Q([1.5, 2.0, 2.5], "cm"), unit="m^3"),
    *c("nanprod cumprod nancumprod cumulative_prod", RATIO, unit="1"),
    *c("prod", KMAT, axis=0, unit="m^2"),
    *c("bincount", np.array([0, 1, 1]), CM, unit="m"),
    *c("quantile nanquantile", KM, 0.3, unit="m"),
    *c("quantile nanquantile", KM, Q(30.0, "cm m^-1"), unit="m"),
    *c("percentile nanpercentile", KM, 30.0, unit="m"),
    *c("quantile nanquantile", KM, 0.3, weights=S, method="inverted_cdf", unit="m"),
    *c("percentile nanpercentile", KM, 30.0, weights=S, method="inverted_cdf", unit="m"),
    *c("cov", Q([[1.0, 2.0, 4.0], [0.5, 3.0, 1.0]], "km"), unit="m^2"),
    *c("cov", M, KM, unit="m^2"),
    *c("corrcoef", Q([[1.0, 2.0, 4.0], [0.5, 3.0, 1.0]], "km"), unit="1"),
    *c("histogram", M, 3, unit=(None, "m")),
    *c("histogram", M, Q([-0.005, 0.0, 0.005], "km"), weights=S, unit=("s", "m")),
    *c("histogram", M, 3, density=True, unit=("m^-1", "m")),
    *c("histogram_bin_edges", KM, 3, unit="m"),
    *c("histogram2d", M, S, 2, unit=(None, "m", "s")),
    *c("histogram2d", M, S, [2, Q([0.0, 2e3, 5e3], "ms")], unit=(None, "m", "s")),
    *c("histogramdd", MAT, 2, unit=(None, ["m", "m"])),
    # products of arrays
    *c("dot inner vdot vecdot outer kron convolve correlate cross", M, MS, unit="m s"),
    *c("dot matmul tensordot", KMAT, SMAT, unit="m s"),
    *c("tensordot", KMAT, SMAT, axes=1, unit="m s"),
    *c("matvec", KMAT, Q([1.0, 2.0], "s"), unit="m s"),
    *c("vecmat", Q([1.0, 2.0], "s"), KMAT, unit="m s"),
    *c("einsum", "ij,jk->ik", KMAT, SMAT, unit="m s"),
    # differences and integrals
    *c("diff ediff1d", KM, unit="m"),
    *c("diff", M, prepend=Q(0.002, "km"), append=Q(30.0, "cm"), unit="m"),
    *c("ediff1d", M, Q(0.002, "km"), Q(30.0, "cm"), unit="m"),
    *c("trapezoid", KM, S, unit="m s"),
    *c("trapezoid", KM, dx=Q(20.0, "ms"), unit="m s"),
    *c("gradient", KM, unit="m"),
    *c("gradient", KM, MS, unit="m s^-1"),
    *c("gradient", KMAT, Q(20.0, "ms"), Q(2.0, "kg"), unit=["m s^-1", "m kg^-1"]),
    *c("interp", Q([0.001, 0.002], "km"), Q([0.0, 150.0, 300.0], "cm"), S, unit="s"),
    *c("interp", M, Q([0.0, 0.001, 0.003], "km"), S, left=Q(20.0, "ms"), unit="s"),
    *c("interp", M, M, S, right=Q(20.0, "ms"), period=Q(0.002, "km"), unit="s"),
    *c("interp", Q([9.0], "m"), Q([0.0, 1.0], "m"), S_TWO, right=Q(20.0, "ms"), unit="s"),
    # polynomials
    *c("poly", BIG, unit="1"),
    *c("polyadd polysub", M, KM, unit="m"),
    *c("polymul", M, S, unit="m s"),
    *c("polydiv", M, Q([2.0, 1.0], "s"), unit=("m s^-1", "m")),
    *c("polyder polyint", KM, unit="m"),
    *c("polyval", KM, RATIO, unit="m"),
    *c("polyfit", BIG, KM, 1, unit="m"),
    *c("roots", Q([1.0, -3.0, 2.0], "km"), unit="1"),
    *c("vander", RATIO, unit="1"),
    # order
    *c("sort", KM, unit="m"),
    *c("sort_complex", COMPLEX, unit="m"),
    *c("partition", KM, 1, unit="m"),
    *c("argsort", KM, unit=None),
    *c("argpartition", KM, 1, unit=None),
    *c("lexsort", (M, S), unit=None),
    *c("top_k", KM, 2, unit=("m", None), numpy=False),
    *c("searchsorted", Q([0.0, 100.0, 300.0], "cm"), M, unit=None),
    *c("digitize", M, Q([0.0, 100.0, 300.0], "cm"), unit=None),
    # sets
    *c("unique unique_values", KM, unit="m"),
    *c("unique", KM, return_counts=True, unit=("m", None)),
    *c("unique_all", KM, unit=("m", None, None, None)),
    *c("unique_counts unique_inverse", KM, unit=("m", None)),
    *c("union1d setdiff1d setxor1d intersect1d", M, KM, unit="m"),
    *c("isin", M, KM, unit=None),
    *own("unique unique_values", M, size=4, fill_value=FILL, unit="m"),
    *own("unique_all", M, size=4, fill_value=FILL, unit=("m", None, None, None)),
    *own("unique_counts unique_inverse", M, size=4, fill_value=FILL, unit=("m", None)),
    *own("union1d setdiff1d setxor1d intersect1d", M, KM, size=7, fill_value=FILL, unit="m"),
]

# Every coefficient with its own unit.
FALL = [Q(3.0, "m s^-2"), Q(0.002, "km s^-1"), Q(50.0, "cm")]
SPEEDS = ["m s^-2", "m s^-1", "m"]
ZEROS = [Q(1.0, "m s^-2"), Q(-0.003, "km s^-1"), Q(200.0, "cm")]
POLYNOMIALS = [
    *own("polyval", FALL, MS, unit="m", value=np.polyval([3.0, 2.0, 0.5], MS.si)),
    *own("polyfit", MS, CM, 2, unit=SPEEDS, value=np.polyfit(MS.si, CM.si, 2)),
    *own("roots", ZEROS, unit="s", value=np.array([2.0, 1.0])),
    *own("polyder", FALL, unit=SPEEDS[:2], value=np.array([6.0, 2.0])),
    *own("polyint", FALL[:2], unit=SPEEDS, value=np.array([1.5, 2.0, 0.0])),
]
