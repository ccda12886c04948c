"""Calls of `jax.numpy.linalg`, `jax.numpy.fft`, `jax.scipy.linalg` and `jax.lax.linalg`."""

import numpy as np

from ._call import Q, also, calls_of
from ._numpy import KM, KMAT, MAT, MS, SMAT, M, S

c, f = calls_of("linalg"), calls_of("fft")
s, x = calls_of("scipy.linalg"), calls_of("lax.linalg")

SPD = Q([[400.0, 100.0], [100.0, 300.0]], "cm^2")
SYM = Q([[0.004, 0.001], [0.001, 0.003]], "km")
RHS = Q([[1.0, 2.0], [3.0, 5.0]], "ms")
LOWER = Q([[0.002, 0.0], [0.001, 0.003]], "km")
PURE = Q([[40.0, 10.0], [5.0, 30.0]], "cm m^-1")
TENSOR = Q(np.eye(4).reshape(2, 2, 2, 2) * 0.002, "km")
TALL = Q([[0.001, 0.001], [0.001, 0.002], [0.001, 0.004]], "km")
SIGNAL = Q([0.001, -0.002, 0.004, 0.003], "km")
SPECTRUM = Q([1.0 + 0j, 0.5 - 2.0j, 3.0 + 0j], "m")

LINALG = [
    *c("cross outer", M, S, unit="m s"),
    *c("vecdot", KM, MS, unit="m s"),
    *c("matmul tensordot", KMAT, SMAT, unit="m s"),
    *c("multi_dot", [KMAT, SMAT, MAT], unit="m^2 s"),
    *c("matrix_power", KMAT, 3, unit="m^3"),
    *c("matrix_power", KMAT, -1, unit="m^-1"),
    *c("inv pinv", KMAT, unit="m^-1"),
    *c("tensorinv", TENSOR, unit="m^-1"),
    *c("solve", KMAT, RHS, unit="s m^-1"),
    *c("tensorsolve", TENSOR, RHS, unit="s m^-1"),
    *c("lstsq", TALL, S, unit=("s m^-1", "s^2", None, "m")),
    *c("cholesky", SPD, unit="m"),
    *c("qr", KMAT, unit=("1", "m")),
    *c("qr", KMAT, mode="r", unit="m"),
    *c("svd", KMAT, unit=("1", "m", "1")),
    *c("svd", KMAT, compute_uv=False, unit="m"),
    *c("svdvals eigvals trace matrix_norm diagonal matrix_transpose", KMAT, unit="m"),
    *c("eig", KMAT, unit=("m", "1")),
    *c("eigh", SYM, unit=("m", "1")),
    *c("eigvalsh", SYM, unit="m"),
    *c("det", KMAT, unit="m^2"),
    *c("slogdet", PURE, unit=(None, "1")),
    *c("cond", KMAT, unit="1"),
    *c("matrix_rank", KMAT, unit=None),
    *c("matrix_rank", KMAT, tol=Q(450.0, "cm"), unit=None),
    *c("norm vector_norm", KM, unit="m"),
    *c("norm", KMAT, ord=1, unit="m"),
    *c("norm", KM, ord=0, unit=None),
]

FFT = [
    *f("fft ifft rfft ihfft fftshift ifftshift", SIGNAL, unit="m"),
    *f("fft2 ifft2 fftn ifftn rfft2 rfftn irfft2 irfftn", KMAT, unit="m"),
    *f("irfft hfft", SPECTRUM, unit="m"),
    *f("fftfreq rfftfreq", 5, Q(20.0, "ms"), unit="s^-1"),
]

SCIPY = [
    *also("scipy.linalg", "inv solve cholesky svd eigh det", LINALG),
    *s("solve_triangular", LOWER, RHS, lower=True, unit="s m^-1"),
    *s("solve_sylvester", SYM, MAT, RHS, unit="s m^-1"),
    *s("cho_factor", SPD, unit=("m", None)),
    *s("cho_solve", (SYM, True), RHS, unit="s m^-2"),
    *s("lu", KMAT, unit=(None, "1", "m")),
    *s("lu", KMAT, permute_l=True, unit=("1", "m")),
    *s("qr polar", KMAT, unit=("1", "m")),
    *s("eigh", SYM, eigvals_only=True, unit="m"),
    *s("eigh_tridiagonal", M, Q([0.001, 0.002], "km"), eigvals_only=True, unit="m"),
    *s("hessenberg", KMAT, unit="m"),
    *s("schur", KMAT, unit=("m", "1")),
    *s("expm", PURE, unit="1"),
    *s("sqrtm", SPD, unit="m"),
    *s("toeplitz hankel", M, KM, unit="m"),
    *s("block_diag", MAT, KMAT, unit="m"),
    *s("circulant fiedler", KM, unit="m"),
    *s("companion", KM, unit="1"),
    *s("convolution_matrix", KM, 4, unit="m"),
    *s("leslie", KM, Q([1.0, 2.0], "m"), unit="m"),
    *s("expm_frechet", PURE, MAT, unit=("1", "m")),
]

LAX = [
    *x("cholesky", SPD, unit="m"),
    *x("svd", KMAT, unit=("1", "m", "1")),
    *x("eigh", SYM, unit=("1", "m")),
    *x("qr", KMAT, unit=("1", "m")),
    *x("triangular_solve", LOWER, RHS, left_side=True, lower=True, unit="s m^-1"),
    *x("symmetric_product", KMAT, SPD, alpha=2.0, beta=0.5, unit="m^2"),
]
