"""Calls of `jax.numpy` that make, reshape, join and index arrays, or take functions."""

import numpy as np

from ._call import Q, calls_of
from ._numpy import CM, FILL, KM, KMAT, MASK, MAT, M, S

c, own = calls_of("numpy"), calls_of("numpy", numpy=False)

INDEX, FAR = np.array([2, 0]), np.array([0, 7])
TWO = Q([0.001, 0.002], "km")
CUBE = Q(np.arange(8.0).reshape(2, 2, 2), "km")

SHAPES = [
    # making arrays
    *c("zeros_like empty_like copy", KM, unit="m"),
    *c("ones_like", M, unit="m"),
    *c("full_like", M, Q(0.002, "km"), unit="m"),
    *own("full", (2,), Q(0.002, "km"), unit="m"),
    *own("array asarray", KM, unit="m"),
    *own("array", [Q(1.0, "m"), Q(0.002, "km")], unit="m"),
    *own("arange", Q(0.0, "m"), Q(0.003, "km"), Q(50.0, "cm"), unit="m"),
    *c("linspace geomspace", Q(50.0, "cm"), Q(0.003, "km"), 4, unit="m"),
    *c("linspace", Q(50.0, "cm"), Q(3.0, "m"), 4, retstep=True, unit=("m", "m")),
    *c("logspace", Q(25.0, "cm m^-1"), 2.0, 3, unit="1"),
    *c("logspace", 0.5, Q(200.0, "cm m^-1"), 3, base=Q(300.0, "cm m^-1"), unit="1"),
    *c("meshgrid", M, S, unit=["m", "s"]),
    # shape
    *c("reshape", KMAT, (4,), unit="m"),
    *c("ravel squeeze transpose matrix_transpose fliplr flipud rot90 tril triu", KMAT, unit="m"),
    *c("flip", KM, unit="m"),
    *c("resize", KM, (4,), unit="m"),
    *c("repeat tile roll", KM, 2, unit="m"),
    *c("swapaxes moveaxis rollaxis", KMAT, 0, 1, unit="m"),
    *c("expand_dims", KM, 0, unit="m"),
    *c("permute_dims", KMAT, (1, 0), unit="m"),
    *c("broadcast_to", KM, (2, 3), unit="m"),
    *c("broadcast_arrays", M, Q(2.0, "s"), unit=["m", "s"]),
    *c("atleast_1d atleast_2d atleast_3d", Q(2.0, "km"), unit="m"),
    *c("atleast_1d", Q(2.0, "km"), S, unit=["m", "s"]),
    *c("shape ndim size", KM, unit=None),
    # joining and splitting
    *c("concatenate concat stack column_stack dstack hstack vstack", (M, KM), unit="m"),
    *c("concatenate", [KM, CM, M], unit="m"),
    *c("append", M, KM, unit="m"),
    *c("block", [[MAT, KMAT], [KMAT, MAT]], unit="m"),
    *c("split array_split", KM, 3, unit=["m", "m", "m"]),
    *c("hsplit vsplit", KMAT, 2, unit=["m", "m"]),
    *c("dsplit", CUBE, 2, unit=["m", "m"]),
    *c("unstack", KMAT, unit=("m", "m")),
    # zeros are filled in
    *c("diag diagflat", KM, unit="m"),
    *c("trim_zeros", Q([0.0, 1.0, 2.0, 0.0], "km"), unit="m"),
    *c("pad", M, 1, unit="m"),
    *c("pad", M, (1, 2), constant_values=(Q(20.0, "cm"), Q(0.001, "km")), unit="m"),
    *c("pad", KM, 1, mode="edge", unit="m"),
    # indexing
    *c("diagonal", KMAT, unit="m"),
    *c("take", KM, INDEX, unit="m"),
    *c("take_along_axis", KM, INDEX, 0, unit="m"),
    *own("take", M, FAR, mode="fill", fill_value=FILL, unit="m"),
    *own("take_along_axis", M, FAR, 0, mode="fill", fill_value=FILL, unit="m"),
    *own("compress extract", MASK, M, size=3, fill_value=FILL, unit="m"),
    *c("compress extract", MASK, KM, unit="m"),
    *c("delete", KM, 1, unit="m"),
    *c("insert", M, 1, Q(0.002, "km"), unit="m"),
    *own("put", M, INDEX, TWO, inplace=False, unit="m"),
    *own("put_along_axis", M, INDEX, TWO, 0, inplace=False, unit="m"),
    *own("place", M, MASK, TWO, inplace=False, unit="m"),
    *own("fill_diagonal", MAT, Q(0.002, "km"), inplace=False, unit="m"),
    *c("where", MASK, M, KM, unit="m"),
    *c("where", MASK, M, 0, unit="m"),
    *c("select", [MASK, ~MASK], [M, KM], unit="m"),
    *c("select", [MASK], [M], Q(0.001, "km"), unit="m"),
    *c("choose", np.array([0, 1, 0]), [M, KM], unit="m"),
    *c("diag_indices_from tril_indices_from triu_indices_from", KMAT, unit=(None, None)),
    # functions of functions
    *c("apply_along_axis", lambda v: v * v, 0, KMAT, unit="m^2"),
    *c("apply_over_axes", lambda a, axis: a.sum(axis), KMAT, (0, 1), unit="m"),
    *c("piecewise", M, [MASK], [lambda v: v * v, Q(200.0, "cm^2")], unit="m^2"),
    *own("iterable", KM, unit=None),
    *c("result_type", KM, unit=None, value=np.dtype("float64")),
]
