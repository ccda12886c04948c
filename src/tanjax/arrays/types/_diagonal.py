"""Diagonal matrices."""

from __future__ import annotations

from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Shaped

from tanjax._typing import (
    AnyArray,
    DenseArray,
    DType,
    Natural,
    Places,
    Query,
    Samples,
    Scalar,
    Shape,
)

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, canonical_field
from .._free_forms import FreeForm, entries
from .._places import gather_where
from .._register import register_array_type


@register_array_type(linear=True, isometric=True, injective=True)
class Diagonal(AbstractArray):
    r"""The matrix with `diag` on its diagonal and zeros elsewhere.

    **Fields:** `diag`, shape `(n,)`. **Maps:** isometric; $J^\top Y = \mathrm{diag}(Y)$.

    >>> Diagonal(jnp.array([1.0, 2.0])).to_dense().tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """

    core_ndim = 2
    units = "diag: u -> u"
    fields_are_entries = True

    diag: Shaped[Array, " n"] = array_field(ndim=1)

    def __post_init__(self) -> None:
        canonical_field(self, "diag", 1)

    @property
    def shape(self) -> Shape:
        shape = self.diag.shape
        return shape + shape[-1:]

    @property
    def dtype(self) -> DType:
        return self.diag.dtype

    @property
    def is_hermitian(self) -> bool:
        return ask.is_real(self)

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls(samples.normal(3)), cls(samples.complex(2))]

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        eye = jnp.eye(self.diag.shape[-1], dtype=bool)
        return jnp.where(eye, self.diag[..., None], jnp.zeros((), self.diag.dtype))

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return structural

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self.replace(diag=ask.diagonal(natural))

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self.replace(diag=ask.diagonal(natural))

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return structural

    def free_form(self, positive: bool) -> FreeForm | None:
        is_complex = jnp.iscomplexobj(self.diag)
        return None if positive and is_complex else entries(positive).of_field(self, "diag")

    def as_query(self) -> Query | None:
        return ("diagonal", (), self.diag) if self.diag.ndim == 1 else None

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return self.diag * b if b.ndim == 1 else self.diag[:, None] * b

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return self.diag

    def off_diagonal(self, offset: int) -> Shaped[DenseArray, "... k"]:
        return self.diag if offset == 0 else jnp.zeros_like(self.diag[..., abs(offset) :])

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return gather_where(rows == columns, self.diag, rows)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self.diag)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        if rows == columns:
            return Diagonal(self.diag[rows])
        i, j = (np.arange(self.diag.shape[0])[part] for part in (rows, columns))
        zero = jnp.zeros((), self.diag.dtype)
        return jnp.where(i[:, None] == j, self.diag[rows][:, None], zero)

    def inner_product(self, other: Natural) -> Scalar:
        return jnp.sum(self.diag * ask.diagonal(other))
