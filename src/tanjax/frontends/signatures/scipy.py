"""`jax.scipy`, one table per public submodule."""

from ._notation import each
from ._scipy_linalg import TABLE as LINALG
from ._scipy_stats import TABLES as STATS

SPECIAL = {
    # pure numbers in, pure numbers out
    **each("boxcox boxcox1p", "x: 1, lmbda: 1 -> 1"),
    "bessel_jn": "z: 1 -> 1",
    **each("beta betaln", "a: 1, b: 1 -> 1"),
    "betainc": "a: 1, b: 1, x: 1 -> 1",
    **each("dawsn digamma entr erf erfc erfcx erfinv exp1 expi expit", "x: 1 -> 1"),
    **each("gamma gammaln gammasgn loggamma logit i0 i0e i1 i1e", "x: 1 -> 1"),
    **each("log_ndtr ndtr log_softmax softmax spence", "x: 1 -> 1"),
    "erfcinv": "y: 1 -> 1",
    "ndtri": "p: 1 -> 1",
    "wofz": "z: 1 -> 1",
    **each("fresnel sici", "x: 1 -> (1, 1)"),
    **each("gammainc gammaincc", "a: 1, x: 1 -> 1"),
    "hyp1f1": "a: 1, b: 1, x: 1 -> 1",
    "hyp2f1": "a: 1, b: 1, c: 1, x: 1 -> 1",
    "expn": "n: -, x: 1 -> 1",
    "polygamma": "n: -, x: 1 -> 1",
    "zeta": "x: 1, q: 1 -> 1",
    "owens_t": "h: 1, a: 1 -> 1",
    "poch": "z: 1, m: 1 -> 1",
    "comb": "N: 1, k: 1 -> 1",
    "factorial": "n: 1 -> 1",
    "multigammaln": "a: 1, d: - -> 1",
    "sph_harm_y": "n: -, m: -, theta: 1, phi: 1 -> 1",
    "bernoulli": "plain",
    # a logarithm of a ratio, times the argument
    **each("rel_entr kl_div", "p: u, q: u -> u"),
    **each("xlogy xlog1py", "x: u, y: 1 -> u"),
    "logsumexp": "special",
}

SIGNAL = {
    **each("convolve correlate fftconvolve", "in1: u, in2: v -> u*v"),
    **each("convolve2d correlate2d", "in1: u, in2: v -> u*v"),
    "detrend": "data: u -> u",
    **each("csd welch", "special"),
    "stft": "x: u, fs: v -> (v, 1/v, u)",
    "istft": "Zxx: u, fs: v -> (1/v, u)",
}

TABLES: dict[str, dict[str, str]] = {
    # packages that contain only modules
    **{name: {} for name in ("cluster", "sparse", "spatial")},
    "cluster.vq": {"vq": "obs: u, code_book: u -> (-, u)"},
    "fft": each("dct dctn idct idctn", "x: u -> u"),
    "integrate": {"trapezoid": "y: u, x: v, dx: v -> u*v"},
    "interpolate": {"RegularGridInterpolator": "special"},
    "linalg": LINALG,
    "ndimage": {"map_coordinates": "input: u, coordinates: [1], cval: u -> u"},
    "optimize": {"minimize": "special", "OptimizeResults": "plain"},
    "signal": SIGNAL,
    "sparse.linalg": each("bicgstab cg gmres", "special"),
    "spatial.transform": each("Rotation Slerp", "plain"),
    "special": SPECIAL,
    **STATS,
}
