"""The zero matrix, and the zero natural cotangent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Shaped

from tanjax._typing import (
    AnyArray,
    DenseArray,
    DType,
    LinearTerms,
    Natural,
    Places,
    Samples,
    Scalar,
    Shape,
)

from .._abstract import AbstractArray, default_dtype, static_field
from .._leaves import as_shape
from .._register import register_array_type
from ._fill import Fill


@register_array_type(linear=True, isometric=True, injective=True)
class Zero(AbstractArray):
    """The array of zeros of a shape: no fields, no tangent space.

    **Arguments:** `shape`; `dtype`, by default JAX's default floating dtype.
    """

    fields_are_entries = True  # without fields, each multiple is the array itself

    size_: Shape = static_field()
    kind: DType = static_field()

    def __init__(self, shape: Iterable[int], dtype: DTypeLike | None = None) -> None:
        object.__setattr__(self, "size_", as_shape(shape, "Zero"))
        kind = default_dtype() if dtype is None else jnp.dtype(dtype)
        object.__setattr__(self, "kind", kind)

    @property
    def shape(self) -> Shape:
        return self.size_

    @property
    def dtype(self) -> DType:
        return self.kind

    def astype(self, dtype: DTypeLike) -> Natural:
        return self.replace(kind=jnp.dtype(dtype))

    def __repr__(self) -> str:
        return f"Zero({self.size_}, {self.kind})"

    @property
    def is_hermitian(self) -> bool:
        return True

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls((2, 3))]

    def to_dense(self) -> Shaped[DenseArray, " ..."]:
        return jnp.zeros(self.size_, self.kind)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return self

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return self

    def linear_terms(self) -> LinearTerms:
        return ()

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return jnp.zeros((self.size_[0], *b.shape[1:]), jnp.result_type(self.kind, b))

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return Zero(self.size_[::-1], self.kind)

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return jnp.zeros(min(self.size_), self.kind)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return jnp.zeros(len(rows), self.kind)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.zeros((), self.kind)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        sizes = (
            len(range(*s.indices(n))) for s, n in zip((rows, columns), self.size_, strict=True)
        )
        return Zero(sizes, self.kind)

    def inner_product(self, other: Natural) -> Scalar:
        return jnp.zeros((), self.kind)

    def _repeated(self, batch: Shape) -> Fill:
        """Return a `Fill` with one zero for each array: it has a leaf for the axes of the batch."""
        return Fill(jnp.zeros(batch, self.kind), self.size_)
