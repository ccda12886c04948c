"""Sums of natural (co)tangents, lazy if the terms have no common type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

from tanjax._errors import ShapeError, describe
from tanjax._typing import (
    AnyArray,
    Arraylike,
    DenseArray,
    DType,
    LinearTerms,
    Natural,
    Places,
    Samples,
    Scalar,
    Shape,
)

from .. import _queries as ask
from .._abstract import AbstractArray, conj_of_fields, set_fields
from .._leaves import is_inexact
from .._register import register_array_type
from .._table import is_own
from ..maps._destructure import pullback_of_destructure, pushforward_of_destructure
from ..types._diagonal import Diagonal
from ._zero import Zero


@register_array_type()
class Sum(AbstractArray):
    """The sum of its terms, each dense or structured, all of one shape.

    **Arguments:** `*terms`. **Cost:** a query costs as much as that of each term.
    """

    units = "*terms: u -> u"
    conj = conj_of_fields

    terms: tuple[Natural, ...]

    def __init__(self, *terms: Arraylike) -> None:
        parts = tuple(map(ask.array, terms))
        if not parts or any(tuple(p.shape) != tuple(parts[0].shape) for p in parts):
            got = ", ".join(map(describe, parts))
            raise ShapeError(f"Sum: needs at least one term, and all of one shape.\n  got: {got}")
        set_fields(self, terms=parts)

    @property
    def shape(self) -> Shape:
        # A term without leaves, such as an `Identity`, is the same for the whole batch.
        return max((tuple(t.shape) for t in self.terms), key=len)

    @property
    def batch_shape(self) -> Shape:
        """The batch axes of structured terms; if all terms are dense, the axes before a matrix."""
        structured = [t for t in self.terms if is_own(t)]
        if not structured:
            return self.shape[:-2]
        return max((t.batch_shape for t in structured), key=len)

    @property
    def dtype(self) -> DType:
        return jnp.result_type(*(t.dtype for t in self.terms))

    @property
    def is_hermitian(self) -> bool:
        return all(map(ask.is_hermitian, self.terms))

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls(samples.normal(2, 2), Diagonal(samples.normal(2)))]

    def to_dense(self) -> Shaped[DenseArray, " ..."]:
        return _add(ask.dense(t) for t in self.terms)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        pairs = zip(self.terms, structural.terms, strict=True)
        return add(*(pushforward_of_destructure(t)(s) for t, s in pairs))

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self.replace(terms=tuple(pullback_of_destructure(t)(natural) for t in self.terms))

    def linear_terms(self) -> LinearTerms:
        return tuple((None, term) for term in self.terms)

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return _add(ask.apply(t, b) for t in self.terms)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(terms=tuple(map(ask.transposed, self.terms)))

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return _add(map(ask.diagonal, self.terms))

    def off_diagonal(self, offset: int) -> Shaped[DenseArray, "... k"]:
        return _add(ask.off_diagonal(t, offset) for t in self.terms)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return _add(ask.entries_at(t, rows, columns) for t in self.terms)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return _add(map(ask.total, self.terms))

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        return self.replace(terms=tuple(ask.submatrix(t, rows, columns) for t in self.terms))

    def inner_product(self, other: Natural) -> Scalar:
        return _add(ask.inner_product(t, other) for t in self.terms)


def _add(values: Iterable[Array]) -> Array:
    first, *rest = values
    return sum(rest, first)


def add(*terms: Natural) -> Natural:
    """Add natural (co)tangents: leaf by leaf if they have one linear type, else a lazy `Sum`."""
    nonzero = [t for t in terms if not isinstance(t, Zero)]
    if len(nonzero) < 2:
        return nonzero[0] if nonzero else terms[0]
    first = nonzero[0]
    if all(_have_one_space(first, t) for t in nonzero[1:]):
        return jax.tree.map(
            lambda *leaves: sum(leaves[1:], leaves[0]) if is_inexact(leaves[0]) else leaves[0],
            *nonzero,
        )
    return Sum(*nonzero)


def _have_one_space(x: Natural, y: Natural) -> bool:
    """True if two (co)tangents add leaf by leaf: dense, or of one linear type with one pattern."""
    if jax.tree.structure(x) != jax.tree.structure(y):
        return False
    if not is_own(x):
        return True
    pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
    same = (p.shape == q.shape if is_inexact(p) else p is q for p, q in pairs)
    return bool(x.is_linear) and all(same)
