"""Linear algebra."""

from . import (
    arithmetic as arithmetic,
    band_algebra as band_algebra,
    banded as banded,
    cholesky as cholesky,
    circulant as circulant,
    determinant as determinant,
    iterative as iterative,
    kron as kron,
    matmul as matmul,
    permutation as permutation,
    reductions as reductions,
    solve as solve,
    sparse as sparse,
    toeplitz as toeplitz,
)
