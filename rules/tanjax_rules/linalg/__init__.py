"""Linear algebra."""

from . import (
    arithmetic as arithmetic,
    band_algebra as band_algebra,
    banded as banded,
    cholesky as cholesky,
    determinant as determinant,
    kron as kron,
    matmul as matmul,
    reductions as reductions,
    solve as solve,
)
