"""Kronecker sums of any number of square matrices."""

from __future__ import annotations

import math
from typing import Self

import jax.numpy as jnp
from jaxtyping import Shaped

from tanjax._errors import ShapeError, describe
from tanjax._typing import (
    AnyArray,
    DenseArray,
    DType,
    Factor,
    LinearTerms,
    Matrixlike,
    Multiple,
    Natural,
    Places,
    Samples,
    Scalar,
    Shape,
)

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, conj_of_fields, set_fields
from .._register import register_array_type
from .._table import fact
from ..cotangents._scaled import scaled
from ..cotangents._sum import Sum
from ..maps._destructure import pullback_of_destructure, pushforward_of_destructure
from ._diagonal import Diagonal
from ._identity import Identity
from ._kronecker import Kronecker, contract


@register_array_type()
class KroneckerSum(AbstractArray):
    r"""`factors[0] ⊗ I ⊗ … + I ⊗ factors[1] ⊗ … + …`, never formed: the Laplacian of a grid.

    **Arguments:** `*factors`, square matrices (dense or structured); the first is the slowest
    index.

    **Maps:** the cotangent of one factor is the natural cotangent contracted with the identities of
    all others (a partial trace). The type is over-parametrised: any factor can hold a multiple of
    the identity.

    **References:** Horn and Johnson 1991, section 4.4.
    """

    core_ndim = 2
    units = "*factors: u -> u"
    conj = conj_of_fields

    factors: tuple[Shaped[AnyArray, "_ _"], ...] = array_field(ndim=2)

    def __init__(self, *factors: Matrixlike) -> None:
        parts = ask.matrices("KroneckerSum", "factor", factors)
        if any(f.shape[0] != f.shape[1] for f in parts):
            got = ", ".join(map(describe, parts))
            raise ShapeError(f"KroneckerSum: each factor is a square matrix.\n  got: {got}")
        set_fields(self, factors=parts)

    @property
    def shape(self) -> Shape:
        n = math.prod(f.shape[-1] for f in self.factors)
        return (*self.batch_shape, n, n)

    @property
    def dtype(self) -> DType:
        return jnp.result_type(*(f.dtype for f in self.factors))

    @property
    def is_hermitian(self) -> bool:
        return all(map(ask.is_hermitian, self.factors))

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls(samples.complex(2, 2), Diagonal(samples.complex(2)))]

    @property
    def is_linear(self) -> bool:
        return all(fact(f, "is_linear") for f in self.factors)

    def terms(self) -> tuple[Shaped[Kronecker, "... n n"], ...]:
        """Return the terms of the sum: Kronecker products of one factor and identities."""
        eyes = [Identity(f.shape[-1], self.dtype) for f in self.factors]
        return tuple(Kronecker(*eyes[:i], f, *eyes[i + 1 :]) for i, f in enumerate(self.factors))

    def linear_terms(self) -> LinearTerms:
        return tuple((None, term) for term in self.terms())

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        return Sum(*self.terms()).to_dense()

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        pairs = zip(self.factors, structural.factors, strict=True)
        return KroneckerSum(*(pushforward_of_destructure(f)(s) for f, s in pairs))

    def pullback_of_destructure(self, natural: Natural) -> Self:
        bars = (contract(t, natural, only=i)[0] for i, t in enumerate(self.terms()))
        pairs = zip(self.factors, bars, strict=True)
        return self.replace(factors=tuple(pullback_of_destructure(f)(bar) for f, bar in pairs))

    def scaled(self, factor: Factor) -> Multiple:
        return self.replace(factors=tuple(scaled(f, factor) for f in self.factors))

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return Sum(*self.terms()).apply(b)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(factors=tuple(map(ask.transposed, self.factors)))

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return Sum(*self.terms()).diagonal()

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return Sum(*self.terms()).entries_at(rows, columns)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return Sum(*self.terms()).total()

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        return Sum(*self.terms()).submatrix(rows, columns)

    def inner_product(self, other: Natural) -> Scalar:
        return Sum(*self.terms()).inner_product(other)
