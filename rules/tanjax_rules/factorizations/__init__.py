"""Factorizations and the operations that use them."""

from . import (
    eigh as eigh,
    factorize as factorize,
    least_squares as least_squares,
    norms as norms,
    parts as parts,
    shifted as shifted,
    svd as svd,
    triangular as triangular,
    tridiagonal as tridiagonal,
    updates as updates,
)
