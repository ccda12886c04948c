"""Arrays of one repeated number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Shaped

from tanjax._typing import (
    AnyArray,
    DenseArray,
    DType,
    Factor,
    Natural,
    Places,
    Query,
    Samples,
    Scalar,
    Shape,
)

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, canonical_field, static_field
from .._leaves import ARRAY_CLASSES, as_shape
from .._register import register_array_type


@register_array_type(linear=True, injective=True)
class Fill(AbstractArray):
    r"""The array of a shape with all entries equal to `value`.

    **Arguments:** `value`, a scalar; `shape`, with $N$ entries.

    **Maps:** injective, with weight $N$: $J^\top Y = \sum Y$, $J^{+\top}\bar v$ = `Fill(v̄ / N)`.
    The natural cotangent of an empty array is empty.
    """

    units = "value: u -> u"
    fields_are_entries = True

    value: Shaped[Array, ""] = array_field(ndim=0)
    size_: Shape = static_field()

    def __init__(self, value: Factor, shape: int | Sequence[int]) -> None:
        size = (shape,) if isinstance(shape, (int, np.integer)) else shape
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "size_", as_shape(size, "Fill"))
        if type(value) not in ARRAY_CLASSES or value.shape:
            canonical_field(self, "value", 0)

    @property
    def shape(self) -> Shape:
        return (*self.value.shape, *self.size_)

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def _weight(self) -> int:
        return max(math.prod(self.size_), 1)

    @property
    def core_ndim(self) -> int:
        return len(self.size_)

    @property
    def is_hermitian(self) -> bool:
        return ask.is_real(self)

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls(samples.normal(), (2, 3)), cls(samples.complex(), (2, 2))]

    def to_dense(self) -> Shaped[DenseArray, " ..."]:
        value = self.value.reshape(self.value.shape + (1,) * len(self.size_))
        return jnp.broadcast_to(value, self.shape)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return structural

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self.replace(value=ask.total(natural))

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self.replace(value=ask.total(natural) / self._weight)

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return self.replace(value=structural.value / self._weight)

    def as_query(self) -> Query | None:
        return ("total", (), self.value) if self.value.ndim == 0 else None

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        row = self.value * jnp.sum(b, axis=0)
        return jnp.broadcast_to(row, (self.size_[0], *b.shape[1:]))

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(size_=self.size_[::-1])

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return jnp.broadcast_to(self.value, (min(self.size_),))

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return jnp.broadcast_to(self.value[..., None], (*self.value.shape, len(rows)))

    def total(self) -> Shaped[DenseArray, " ..."]:
        return self.value * math.prod(self.size_)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        sizes = (
            len(range(*s.indices(n))) for s, n in zip((rows, columns), self.size_, strict=True)
        )
        return self.replace(size_=tuple(sizes))

    def inner_product(self, other: Natural) -> Scalar:
        return self.value * ask.total(other)
