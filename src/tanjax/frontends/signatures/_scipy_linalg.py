"""`jax.scipy.linalg`."""

from ._notation import each

_PACKED = "refuse: the packed result holds entries of different units; use `{}`"

TABLE = {
    # solutions and inverses
    "inv": "a: u -> 1/u",
    "solve": "a: u, b: v -> v/u",
    "solve_triangular": "special",
    "solve_sylvester": "A: u, B: u, C: v -> v/u",
    "cho_solve": "special",
    "lu_solve": _PACKED.format("solve"),
    # factors
    "cholesky": "a: u -> u^1/2",
    "cho_factor": "a: u -> (u^1/2, -)",
    "lu_factor": _PACKED.format("lu"),
    **each("lu qr svd eigh hessenberg", "special"),
    "qr_multiply": "a: u, c: v -> (v, u, -)",
    "polar": "a: u -> (1, u)",
    "eigh_tridiagonal": "d: u, e: u, select_range: u, tol: u -> u",
    "schur": "a: u -> (u, 1)",
    "rsf2csf": "T: u, Z: 1 -> (u, 1)",
    # functions of matrices
    "det": "special",
    "expm": "A: 1 -> 1",
    "expm_frechet": "special",
    "sqrtm": "A: u -> u^1/2",
    "funm": "A: 1 -> 1",
    # matrices made of vectors
    **each("toeplitz hankel", "c: u, r: u -> u"),
    "block_diag": "*arrs: u -> u",
    "circulant": "c: u -> u",
    "convolution_matrix": "a: u -> u",
    "fiedler": "a: u -> u",
    **each("companion fiedler_companion", "a: u -> 1"),
    "leslie": "f: u, s: u -> u",
    # constant matrices
    **each("dft hadamard helmert hilbert invhilbert invpascal pascal", "plain"),
}
