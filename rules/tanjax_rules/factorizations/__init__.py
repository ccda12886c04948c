"""Factorizations and what follows from them."""

from . import (
    eigh as eigh,
    factorize as factorize,
    least_squares as least_squares,
    norms as norms,
    svd as svd,
    triangular as triangular,
)
