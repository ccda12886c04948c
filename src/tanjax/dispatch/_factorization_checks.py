"""What factorizations ask of the shapes and types of their arguments."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax import arrays
from tanjax._errors import ShapeError, message
from tanjax._typing import Factor, Natural
from tanjax.arrays import is_structured, shape as shape_of

from ._checks import _name, square

MODES = ("reduced", "complete", "r")
_TRANSPOSITIONS = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}


def hermitian(name: str, a: Natural) -> None:
    """A square matrix, Hermitian as far as its type says; of a dense one that part is taken."""
    square(name, a)
    if not _may_be_hermitian(a, dense=True):
        raise ShapeError(
            message(
                f"{name}: {_name(a)} is not Hermitian by its type.",
                "why: of dense arrays the Hermitian part is taken, which here is another matrix.",
                hint="wrap it, or its factors, in `tj.Symmetric` or `tj.Hermitian`.",
            )
        )


def _may_be_hermitian(a: Natural, *, dense: bool) -> bool:
    """Whether a type can hold the whole Hermitian matrix that it stands for; `dense`: allowed."""
    if not is_structured(a):
        return dense
    if isinstance(a, arrays.Kronecker):
        return all(_may_be_hermitian(f, dense=False) for f in a.factors)
    if isinstance(a, arrays.BlockDiagonal):
        return all(b.shape[0] == b.shape[1] and _may_be_hermitian(b, dense=dense) for b in a.blocks)
    if isinstance(a, arrays.Scaled):
        return not jnp.iscomplexobj(a.factor) and _may_be_hermitian(a.matrix, dense=dense)
    if isinstance(a, arrays.LowRankUpdate):
        return a.v is None and _may_be_hermitian(a.base, dense=dense)
    is_complex = jnp.issubdtype(a.dtype, jnp.complexfloating)
    if isinstance(a, arrays.Symmetric | arrays.LowRankUpdate | arrays.Fill):
        return not is_complex
    return not isinstance(a, arrays.Triangular | arrays.LowRank | arrays.Outer)


def matrix(name: str, a: Natural, *_: PyTree) -> None:
    """A matrix."""
    if len(shape_of(a)) != 2:
        raise ShapeError(f"{name}: needs a matrix, got {_name(a)}.")


def least_squares(name: str, a: Natural, b: Natural, *_: PyTree) -> None:
    """A matrix and right-hand sides with as many rows."""
    matrix(name, a)
    if len(shape_of(b)) not in (1, 2) or shape_of(b)[0] != shape_of(a)[0]:
        given, rows = list(shape_of(b)), list(shape_of(a))
        raise ShapeError(f"{name}: the right-hand side {given} does not fit a matrix {rows}.")


def known_mode(mode: str) -> None:
    """A mode of `qr`."""
    if mode not in MODES:
        raise ShapeError(f"qr: `mode` is one of {', '.join(map(repr, MODES))}, got {mode!r}.")


def transposition(trans: Factor | str) -> int:
    """`trans` of `solve_triangular` as a number."""
    if trans not in _TRANSPOSITIONS:
        raise ShapeError(f"solve_triangular: `trans` is 0, 1, 2, 'N', 'T' or 'C', got {trans!r}.")
    return _TRANSPOSITIONS[trans]


def count_rank(s: Natural, shape: tuple[int, ...], rtol: Factor | None) -> Natural:
    """How many singular values exceed `rtol` times the largest, of a matrix of a shape."""
    limit = max(shape) * float(jnp.finfo(s.dtype).eps) if rtol is None else rtol
    largest = jnp.max(jnp.abs(s), axis=-1, keepdims=True, initial=0)
    return jnp.sum(jnp.abs(s) > limit * largest, axis=-1)
