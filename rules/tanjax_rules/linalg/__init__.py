"""Linear algebra."""

from . import (
    arithmetic as arithmetic,
    cholesky as cholesky,
    circulant as circulant,
    determinant as determinant,
    kron as kron,
    matmul as matmul,
    permutation as permutation,
    reductions as reductions,
    solve as solve,
    toeplitz as toeplitz,
)
