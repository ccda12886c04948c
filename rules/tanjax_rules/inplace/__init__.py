"""In-place functions: classical algorithms as they stand in the books, written to their arguments.

Each is an example of a way to differentiate: `cholesky`, `triangular`, `axpy` and `fourier` have a
rule of the author, `sweeps` calls NumPy and cannot do without one; `givens`, `ring` and `random`
are differentiated as they are. `optimisers` write to parameters and moments.
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
