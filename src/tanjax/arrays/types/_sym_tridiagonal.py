"""Symmetric tridiagonal matrices."""

from __future__ import annotations

from typing import Self

import jax.numpy as jnp
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
from .._abstract import AbstractArray, array_field
from .._register import register_array_type
from ._tridiagonal import (
    band_block,
    band_query,
    check_lengths,
    entries_of_three,
    no_entries,
    principal,
    three_diagonals,
    three_products,
)


@register_array_type(linear=True, injective=True)
class SymTridiagonal(AbstractArray):
    r"""The symmetric matrix with `diag` on its diagonal and `off` on both neighbours of it.

    **Arguments:** `diag`, shape `(n,)`; `off`, shape `(n - 1,)`. One dtype, to which both are
    promoted; one unit. A complex matrix is symmetric, not Hermitian.

    **Maps:** every entry of `off` is at two places: $J^\top Y$ is their sum, and the natural
    cotangent has half of it at each. **Raises:** `ShapeError` if the lengths do not fit.

    >>> SymTridiagonal([1.0, 2.0], [3.0]).to_dense().tolist()
    [[1.0, 3.0], [3.0, 2.0]]
    """

    core_ndim = 2
    units = "diag: u, off: u -> u"
    fields_are_entries = True

    diag: Shaped[Array, " n"] = array_field(ndim=1)
    off: Shaped[Array, " m"] = array_field(ndim=1)

    def __post_init__(self) -> None:
        check_lengths(self, "off")

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
        return [
            cls(samples.normal(4), samples.normal(3)),
            cls(samples.complex(2), samples.complex(1)),
        ]

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        return three_diagonals(self.off, self.diag, self.off)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return structural

    def pullback_of_destructure(self, natural: Natural) -> Self:
        off = ask.off_diagonal(natural, 1) + ask.off_diagonal(natural, -1)
        return self.replace(diag=ask.off_diagonal(natural, 0), off=off)

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        moved = self.pullback_of_destructure(natural)
        return moved.replace(off=moved.off / 2)

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return structural.replace(off=structural.off / 2)

    def as_query(self) -> Query | None:
        return band_query(self, (-1, 0, 1))

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return three_products(self.off, self.diag, self.off, b)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return self.diag

    def off_diagonal(self, offset: int) -> Shaped[DenseArray, "... k"]:
        if offset == 0:
            return self.diag
        return self.off if abs(offset) == 1 else no_entries(self.diag, offset)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return entries_of_three(self.off, self.diag, self.off, rows, columns)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self.diag) + 2 * jnp.sum(self.off)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        if rows != columns:
            return band_block(self, (-1, 0, 1), rows, columns)
        diag, off = principal(self, rows)
        return SymTridiagonal(self.diag[diag], self.off[off])

    def inner_product(self, other: Natural) -> Scalar:
        beside = ask.off_diagonal(other, -1) + ask.off_diagonal(other, 1)
        return jnp.sum(self.diag * ask.off_diagonal(other, 0)) + jnp.sum(self.off * beside)
