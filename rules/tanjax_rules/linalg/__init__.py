"""Linear algebra."""

from . import (
    arithmetic as arithmetic,
    cholesky as cholesky,
    determinant as determinant,
    kron as kron,
    matmul as matmul,
    reductions as reductions,
    solve as solve,
)
