"""Calls of `jax.lax`."""

import jax
import numpy as np

from ._call import Q, also, calls_of
from ._numpy import (
    BIG,
    CM,
    DEG,
    ELEMENTWISE,
    FILL,
    KM,
    KMAT,
    MASK,
    MS,
    RATIO,
    REDUCTIONS,
    SMAT,
    M,
    S,
)
from ._shapes import SHAPES

c = calls_of("lax")

SCALAR = Q(0.002, "km")
IMAGE = Q(np.arange(9.0).reshape(1, 1, 3, 3), "km")
IMAGES = (IMAGE, Q(np.ones((1, 1, 2, 2)), "ms"), (1, 1))
NCHW = ("NCHW", "OIHW", "NCHW")
BATCHES = [Q(np.ones((1, 2, 2)), u) for u in ("km", "ms")]
WHERE = np.array([[1]])
PUT = M, WHERE, Q([0.002], "km")
SCATTER = jax.lax.ScatterDimensionNumbers((), (0,), (0,))
GATHER = jax.lax.GatherDimensionNumbers((), (0,), (0,))
NUMBERS = (((1,), (0,)), ((), ()))
ADDED = KM, Q(0.0, "m"), jax.lax.add
LINE = [Q(0.001, "km"), Q(2.0, "m s^-1")]

# Functions that NumPy has by the same name.
ALSO = """
    nextafter abs conj ceil floor real imag reciprocal square sqrt cbrt sin cos tan exp exp2
    expm1 sinh cosh tanh asinh acosh atanh log log2 log1p asin acos atan atan2 sign cumsum cumprod
    sort top_k reshape full full_like stack unstack"""

LAX = [
    *also("lax", ALSO, [*ELEMENTWISE, *REDUCTIONS, *SHAPES]),
    *c("add sub max min rem complex", M, KM, unit="m"),
    *c("neg round", M, unit="m"),
    *c("reduce_precision", M, 8, 10, unit="m"),
    *c("clamp", Q(-50.0, "cm"), M, SCALAR, unit="m"),
    *c("convert_element_type", M, np.float32, unit="m"),
    *c("mul dot", KM, MS, unit="m s"),
    *c("div", KM, MS, unit="m s^-1"),
    *c("rsqrt", CM, unit="m^-1/2"),
    *c("integer_pow", KM, 3, unit="m^3"),
    *c("pow", CM, 2.0, unit="m^2"),
    *c("erf logistic erf_inv erfc bessel_i0e bessel_i1e", RATIO, unit="1"),
    *c("digamma lgamma", BIG, unit="1"),
    *c("igamma igammac igamma_grad_a", BIG, DEG, unit="1"),
    *c("betainc", BIG, BIG, DEG, unit="1"),
    *c("polygamma", np.ones(3), BIG, unit="1"),
    *c("zeta", Q([2.0, 3.0, 4.0], "1"), BIG, unit="1"),
    *c("one_minus_square", RATIO, unit="1"),
    *c("ragged_dot", KMAT, Q(np.ones((1, 2, 2)), "ms"), np.array([2], np.int32), unit="m s"),
    *c("index_take", KM, (np.array([0, 2]),), (0,), unit="m"),
    *c("approx_max_k approx_min_k", KM, 1, unit=("m", None)),
    *c("conv_with_general_padding", *IMAGES, ((0, 0), (0, 0)), None, None, unit="m s"),
    *c("conv_transpose", *IMAGES, "VALID", dimension_numbers=NCHW, unit="m s"),
    *c("rng_uniform", Q(2.0, "m"), SCALAR, (2,), unit="m"),
    *c("eq ne lt le gt ge", M, KM, unit=None),
    *c("is_finite", M, unit=None),
    *c("broadcast tile", KM, (2,), unit="m"),
    *c("broadcast_in_dim", KM, (2, 3), (1,), unit="m"),
    *c("broadcast_to_rank", KM, rank=2, unit="m"),
    *c("rev expand_dims reduce_sum reduce_max reduce_min", KM, (0,), unit="m"),
    *c("transpose", KMAT, (1, 0), unit="m"),
    *c("collapse", KMAT, 0, unit="m"),
    *c("squeeze", Q([2.0], "km"), (0,), unit="m"),
    *c("concatenate", (M, KM), 0, unit="m"),
    *c("split", KM, (1, 2), unit=["m", "m"]),
    *c("pad", M, SCALAR, ((1, 1, 0),), unit="m"),
    *c("slice", KM, (1,), (3,), unit="m"),
    *c("slice_in_dim", KM, 1, 3, unit="m"),
    *c("index_in_dim dynamic_index_in_dim", KM, 1, unit="m"),
    *c("dynamic_slice", KM, (1,), (2,), unit="m"),
    *c("dynamic_slice_in_dim", KM, 1, 2, unit="m"),
    *c("dynamic_update_slice", M, Q([0.002], "km"), (1,), unit="m"),
    *c("dynamic_update_slice_in_dim", M, Q([0.002], "km"), 1, 0, unit="m"),
    *c("dynamic_update_index_in_dim", M, SCALAR, 1, 0, unit="m"),
    *c("gather", KM, WHERE, GATHER, (1,), unit="m"),
    *c("gather", M, WHERE + 8, GATHER, (1,), mode="fill", fill_value=FILL, unit="m"),
    *c("scatter scatter_add scatter_sub scatter_max scatter_min", *PUT, SCATTER, unit="m"),
    *c("scatter_min", M, WHERE, Q([-0.005], "km"), SCATTER, unit="m"),
    *c("scatter_mul", KM, WHERE, Q([50.0], "cm m^-1"), SCATTER, unit="m"),
    *c("select select_n", MASK, M, KM, unit="m"),
    *c("reduce_prod", CM, (0,), unit="m^3"),
    *c("reduce", *ADDED, (0,), unit="m", value=np.float64(1501.5)),
    *c("reduce_window", *ADDED, (2,), (1,), "valid", unit="m", value=np.array([-498.5, 1500.0])),
    *c("argmax argmin", KM, 0, np.int32, unit=None),
    *c("cummax cummin stop_gradient optimization_barrier", KM, unit="m"),
    *c("cumlogsumexp", RATIO, unit="1"),
    *c("sort", (M, S), unit=("m", "s")),
    *c("sort_key_val", M, S, unit=["m", "s"]),
    *c("dot_general", KMAT, SMAT, NUMBERS, unit="m s"),
    *c("batch_matmul", *BATCHES, unit="m s"),
    *c("conv conv_general_dilated", *IMAGES, "VALID", unit="m s"),
    *c("conv_general_dilated_patches", IMAGE, (2, 2), (1, 1), "VALID", unit="m"),
    *c("fft", Q(np.ones(3) + 0j, "km"), "FFT", (3,), unit="m"),
    *c("polynomial", Q([0.25, 0.5], "s"), LINE, unit="m", value=np.array([1.5, 2.0])),
    *c("dtype", M, unit=None, value=np.dtype("float64")),
]
