"""Triangular matrices, with zeros stored in the other triangle."""

from __future__ import annotations

from typing import Self

import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

from tanjax._typing import (
    AnyArray,
    DenseArray,
    DType,
    Factor,
    Matrixlike,
    Multiple,
    Natural,
    Samples,
    Shape,
)

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, set_fields, static_field
from .._free_forms import FreeForm, triangle
from .._register import register_array_type
from ._diagonal import Diagonal
from ._full_storage import square


@register_array_type(isometric=True, injective=True)
class Triangular(AbstractArray):
    r"""A lower or upper triangular matrix, optionally with ones on its diagonal.

    The stored numbers include the zeros. For samplers and Newton's method,
    `tj.tangents.free_coordinates` gives the free ones.

    **Arguments:** `data`, shape `(n, n)`; the constructor masks it; `lower`; `unit_diagonal`.

    **Maps:** isometric masks. With a unit diagonal the type is affine, not linear: its natural
    tangent is a `Triangular` without the unit flag, with a **zero** diagonal.
    """

    core_ndim = 2
    units = "data: u -> u"
    fields_are_entries = True

    data: Shaped[Array, "n n"] = array_field(ndim=2)
    lower: bool = static_field(default=True)
    unit_diagonal: bool = static_field(default=False)

    def __init__(self, data: Matrixlike, lower: bool = True, unit_diagonal: bool = False) -> None:
        set_fields(self, lower=bool(lower), unit_diagonal=bool(unit_diagonal))
        set_fields(self, data=self._mask(square("Triangular", data)))

    def _mask(self, dense: Shaped[Array, "... n n"]) -> Shaped[Array, "... n n"]:
        offset = int(self.unit_diagonal)
        return jnp.tril(dense, -offset) if self.lower else jnp.triu(dense, offset)

    @property
    def is_linear(self) -> bool:
        return not self.unit_diagonal

    @property
    def shape(self) -> Shape:
        return tuple(self.data.shape)

    @property
    def dtype(self) -> DType:
        return self.data.dtype

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [
            cls(samples.normal(3, 3)),
            cls(samples.complex(2, 2), lower=False, unit_diagonal=False),
            cls(samples.normal(3, 3), lower=False, unit_diagonal=True),
        ]

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        if not self.unit_diagonal:
            return self._mask(self.data)
        return self._mask(self.data) + jnp.eye(self.data.shape[-1], dtype=self.data.dtype)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return structural.replace(data=self._mask(structural.data), unit_diagonal=False)

    def pullback_of_destructure(self, natural: Natural) -> Self:
        if isinstance(natural, Diagonal) and not self.unit_diagonal:
            # Scatter n entries into zeros; two n-by-n masks take 1.5 times as long at n = 2048.
            i = jnp.arange(natural.diag.shape[-1])
            zeros = jnp.zeros(natural.shape, natural.dtype)
            return self.replace(data=zeros.at[..., i, i].add(natural.diag))
        return self.replace(data=self._mask(ask.dense(natural)))

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self.replace(data=self._mask(ask.dense(natural)))

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return structural.replace(data=self._mask(structural.data), unit_diagonal=False)

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        # The stored zeros are exact (the constructor masks), so the product needs no mask.
        return self.data @ b + b if self.unit_diagonal else self.data @ b

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(data=jnp.swapaxes(self.data, -1, -2), lower=not self.lower)

    def scaled(self, factor: Factor) -> Multiple:
        if self.unit_diagonal:
            return Triangular(factor * self.to_dense(), self.lower)
        return self.replace(data=self.data * factor)

    def canonical(self) -> Self:
        return self.replace(data=self._mask(self.data))

    def free_form(self, positive: bool) -> FreeForm | None:
        form = triangle(self.data, self.lower, int(self.unit_diagonal), positive)
        return form.of_field(self, "data")

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        diag = jnp.diagonal(self.data, axis1=-2, axis2=-1)
        return jnp.ones_like(diag) if self.unit_diagonal else diag

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self.to_dense())
