"""In-place functions: classical algorithms as in the literature, writing to their arguments.

Each shows a way to differentiate. `cholesky`, `triangular`, `axpy` and `fourier` have an author's
rule, and `sweeps` calls NumPy and needs one. `givens`, `ring` and `random` are differentiated by
AD. `optimisers` write to parameters and moments.
"""

from . import (
    axpy as axpy,
    cholesky as cholesky,
    fourier as fourier,
    givens as givens,
    optimisers as optimisers,
    random as random,
    ring as ring,
    sweeps as sweeps,
    triangular as triangular,
)
