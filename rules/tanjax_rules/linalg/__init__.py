"""Linear algebra."""

from . import (
    arithmetic as arithmetic,
    band_algebra as band_algebra,
    banded as banded,
    block_systems as block_systems,
    blocks as blocks,
    cholesky as cholesky,
    circulant as circulant,
    determinant as determinant,
    entrywise as entrywise,
    full_storage as full_storage,
    iterative as iterative,
    kron as kron,
    low_rank as low_rank,
    matmul as matmul,
    multiples as multiples,
    permutation as permutation,
    reductions as reductions,
    solve as solve,
    sparse as sparse,
    toeplitz as toeplitz,
)
