"""Checks of the argument shapes and types of factorizations."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import arrays
from tanjax._errors import ShapeError, message
from tanjax._typing import Factor, Natural
from tanjax.arrays import is_real, is_structured, shape as shape_of

from ._checks import described, one_system, square

MODES = ("reduced", "complete", "r")
_TRANSPOSITIONS = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}


def hermitian(name: str, a: Natural) -> None:
    """Raise unless a matrix is square and Hermitian by its type; dense ones pass."""
    square(name, a)
    if not _is_hermitian(a):
        why = "of dense arrays the Hermitian part is taken, which here is another matrix."
        raise not_hermitian(name, a, why)


def of_hermitian(name: str, a: PyTree, func: PyTree) -> None:
    """Raise unless a matrix is square and Hermitian by its type, and `func` is a function."""
    hermitian(name, a)
    if not callable(func):
        raise TypeError(f"{name}: `func` must be a function of eigenvalues, got {func!r}.")


def product_of_hermitian(name: str, a: PyTree, b: PyTree, func: PyTree) -> None:
    """Raise unless `a` and `func` pass `of_hermitian` and `b` has columns of the size of `a`."""
    of_hermitian(name, a, func)
    one_system(name, a, b)


def not_hermitian(name: str, a: Natural, why: str) -> ShapeError:
    """Return the error for a type that is not Hermitian, as the operation needs."""
    hint = "wrap it, or its factors, in `tj.Symmetric` or `tj.Hermitian`."
    if isinstance(a, arrays.LowRankUpdate) and a.v is None and not is_real(a):
        hint = (
            "a complex `u` alone makes `u @ u.T`: `tj.LowRankUpdate.hermitian(base, u)` conjugates "
            "it, and `tj.Hermitian` of its dense array says so."
        )
    return ShapeError(
        message(
            f"{name}: {described(a)} is not Hermitian by its type.",
            f"why: {why}",
            hint=hint,
        )
    )


def _is_hermitian(a: Natural) -> bool:
    """True if a type is Hermitian; a dense array, also inside of it, counts as Hermitian."""
    if isinstance(a, arrays.BlockDiagonal):
        blocks = a.blocks if isinstance(a.blocks, tuple) else (a.blocks.array,)
        return a.has_square_blocks and all(map(_is_hermitian, blocks))
    if isinstance(a, arrays.Scaled):
        return not jnp.iscomplexobj(a.factor) and _is_hermitian(a.matrix)
    if isinstance(a, arrays.LowRankUpdate):
        return a.v is None and is_real(a) and _is_hermitian(a.base)
    return not is_structured(a) or arrays.is_hermitian(a)


def matrix(name: str, a: Natural, *_: PyTree) -> None:
    """Raise `ShapeError` unless an array is a matrix."""
    if len(shape_of(a)) != 2:
        raise ShapeError(f"{name}: needs a matrix, got {described(a)}.")


def not_empty(name: str, a: Natural, *_: PyTree) -> None:
    """Raise `ShapeError` unless an array is a matrix with entries."""
    matrix(name, a)
    if 0 in shape_of(a):
        raise ShapeError(f"{name}: an empty matrix has none, got {described(a)}.")


def square_or_dense(name: str, a: Natural) -> None:
    """Raise `ShapeError` unless a matrix is dense, or structured and square."""
    (square if is_structured(a) else matrix)(name, a)


def least_squares(name: str, a: Natural, b: Natural, *_: PyTree) -> None:
    """Raise `ShapeError` unless `a` is a matrix and `b` has as many rows."""
    matrix(name, a)
    if len(shape_of(b)) not in (1, 2) or shape_of(b)[0] != shape_of(a)[0]:
        given, rows = list(shape_of(b)), list(shape_of(a))
        raise ShapeError(f"{name}: the right-hand side {given} does not fit a matrix {rows}.")


def known_mode(mode: str) -> None:
    """Raise `ShapeError` unless `mode` is a mode of `qr`."""
    if mode not in MODES:
        raise ShapeError(f"qr: `mode` is one of {', '.join(map(repr, MODES))}, got {mode!r}.")


def transposition(trans: Factor | str) -> int:
    """Return `trans` of `solve_triangular` as a number."""
    if trans not in _TRANSPOSITIONS:
        raise ShapeError(f"solve_triangular: `trans` is 0, 1, 2, 'N', 'T' or 'C', got {trans!r}.")
    return _TRANSPOSITIONS[trans]


def count_rank(s: Natural, shape: tuple[int, ...], rtol: Factor | None) -> Natural:
    """Return how many singular values exceed `rtol` times the largest, for a matrix of a shape."""
    limit = max(shape) * float(jnp.finfo(s.dtype).eps) if rtol is None else rtol
    largest = jnp.max(jnp.abs(s), axis=-1, keepdims=True, initial=0)
    return jnp.sum(jnp.abs(s) > limit * largest, axis=-1)
