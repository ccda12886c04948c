"""`jax.numpy.linalg`."""

from ._notation import each

TABLE = {
    # products
    **each("cross matmul outer tensordot vecdot", "x1: u, x2: v -> u*v"),
    "multi_dot": "special",
    "matrix_power": "special",
    # inverses and solutions
    **each("inv pinv", "a: u -> 1/u"),
    "tensorinv": "a: u -> 1/u",
    **each("solve tensorsolve", "a: u, b: v -> v/u"),
    "lstsq": "a: u, b: v -> (v/u, v^2, -, u)",
    # factors
    "cholesky": "a: u -> u^1/2",
    "qr": "special",
    "svd": "special",
    "svdvals": "x: u -> u",
    **each("eig eigh", "a: u -> (u, 1)"),
    **each("eigvals eigvalsh", "a: u -> u"),
    # numbers
    "det": "special",
    "slogdet": "a: 1 -> (-, 1)",
    "cond": "x: u -> 1",
    "matrix_rank": "M: u, tol: u -> -",
    "trace": "x: u -> u",
    **each("norm vector_norm", "special"),
    "matrix_norm": "x: u -> u",
    # shapes
    **each("diagonal matrix_transpose", "x: U -> U kept"),
}
