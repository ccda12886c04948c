"""Calls of the rest of `jax.scipy`."""

import numpy as np

from ._call import Q, calls_of
from ._numpy import BIG, CM, KM, KMAT, MS, RATIO, M

special, signal = calls_of("scipy.special"), calls_of("scipy.signal")

POSITIVE = Q([0.25, 0.5, 0.75], "1")
PERCENT = Q([25.0, 50.0, 75.0], "cm m^-1")
COUNTS = Q([100.0, 200.0, 300.0], "cm m^-1")
LONG = Q(np.sin(np.arange(16.0)), "km")
WAVE = Q(np.cos(np.arange(16.0)), "ms")
PLACE = {"loc": Q(50.0, "cm"), "scale": Q(0.002, "km")}
POINTS, CENTRES = Q([[1.0, 2.0], [0.5, 3.0], [4.0, 1.0]], "m"), Q([[1.0, 2.0], [3.0, 0.0]], "km")
NORMAL = Q([0.001, 0.002], "km"), Q(np.eye(2) * 2e4, "cm^2")
SYSTEM = Q([[4.0, 1.0], [1.0, 3.0]], "cm"), Q([1.0, 2.0], "ms")
HUNDRED, TWO = Q(100.0, "cm m^-1"), Q(200.0, "cm m^-1")


def others(names, *args, **kwargs):
    """Calls of functions of several modules: `others("fft.dct fft.idct", x, unit="m")`."""
    for name in names.split():
        module, _, function = name.rpartition(".")
        yield from calls_of(f"scipy.{module}")(function, *args, **kwargs)


SPECIAL = [
    *special("erf erfc expit ndtr log_ndtr i0 i0e i1 i1e dawsn entr softmax", RATIO, unit="1"),
    *special("gamma gammaln digamma logit erfinv ndtri log_softmax", PERCENT, unit="1"),
    *special("beta betaln gammainc gammaincc", POSITIVE, PERCENT, unit="1"),
    *special("betainc", POSITIVE, PERCENT, POSITIVE, unit="1"),
    *special("rel_entr kl_div", CM, Q([0.001, 0.002, 0.003], "km"), unit="m"),
    *special("xlogy xlog1py", KM, BIG, unit="m"),
    *special("logsumexp", RATIO, unit="1"),
    *special("zeta", Q([2.0, 3.0], "1"), Q([150.0, 250.0], "cm m^-1"), unit="1"),
    *special("sici fresnel", BIG, unit=("1", "1")),
]

SIGNAL = [
    *signal("convolve correlate fftconvolve", KM, MS, unit="m s"),
    *signal("convolve2d correlate2d", KMAT, Q([[1.0, 2.0]], "ms"), unit="m s"),
    *signal("detrend", KM, unit="m"),
    *signal("welch", LONG, Q(0.5, "ms^-1"), nperseg=8, unit=("s^-1", "m^2 s")),
    *signal("welch", LONG, Q(0.5, "ms^-1"), nperseg=8, scaling="spectrum", unit=("s^-1", "m^2")),
    *signal("csd", LONG, WAVE, Q(0.5, "ms^-1"), nperseg=8, unit=("s^-1", "m s^2")),
    *signal("stft", LONG, Q(0.5, "ms^-1"), nperseg=8, unit=("s^-1", "s", "m")),
    *others("fft.dct fft.idct fft.dctn fft.idctn", KM, unit="m"),
]


def stats(names, *args, **kwargs):
    return others(" ".join(f"stats.{name}" for name in names.split()), *args, **kwargs)


STATS = [
    *stats("norm.pdf cauchy.pdf expon.pdf uniform.pdf laplace.pdf", M, **PLACE, unit="m^-1"),
    *stats("norm.cdf norm.sf norm.logcdf norm.logsf expon.cdf uniform.cdf", M, **PLACE, unit="1"),
    *stats("norm.logpdf", RATIO, POSITIVE, PERCENT, unit="1"),
    *stats("norm.ppf norm.isf logistic.ppf", PERCENT, **PLACE, unit="m"),
    *stats("gamma.pdf", M, PERCENT, **PLACE, unit="m^-1"),
    *stats("t.pdf", M, COUNTS, **PLACE, unit="m^-1"),
    *stats("poisson.pmf", COUNTS, POSITIVE, HUNDRED, unit="1"),
    *stats("vonmises.pdf", Q([30.0, 60.0], "deg"), TWO, unit="1"),
    *stats("multivariate_normal.pdf", POINTS, *NORMAL, unit="m^-2"),
    *stats("mode", KM, unit=("m", None)),
    *stats("rankdata", KM, unit=None),
    *stats("sem", KM, unit="m"),
]

REST = [
    *others("integrate.trapezoid", KM, MS, unit="m s"),
    *others("integrate.trapezoid", KM, dx=Q(20.0, "ms"), unit="m s"),
    *others("ndimage.map_coordinates", KMAT, [RATIO, POSITIVE], 1, cval=Q(20.0, "cm"), unit="m"),
    *others("cluster.vq.vq", POINTS, CENTRES, unit=(None, "m")),
    *calls_of("scipy.sparse.linalg")("cg gmres bicgstab", *SYSTEM, unit=("s m^-1", None)),
]
