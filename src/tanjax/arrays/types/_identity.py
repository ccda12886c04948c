"""The identity matrix."""

from __future__ import annotations

from typing import Self

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Shaped

from tanjax._errors import ShapeError
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
from .._abstract import AbstractArray, conj_of_fields, default_dtype, static_field
from .._leaves import as_size
from .._register import register_array_type
from ..cotangents._zero import Zero
from ._diagonal import Diagonal


@register_array_type(isometric=True, injective=True)
class Identity(AbstractArray):
    """The identity: no fields, no tangent space; its natural (co)tangents are `Zero`.

    **Arguments:** `n`; `dtype`, by default JAX's default floating dtype.
    """

    core_ndim = 2
    conj = conj_of_fields

    n: int = static_field()
    kind: DType = static_field()

    def __init__(self, n: int, dtype: DTypeLike | None = None) -> None:
        try:
            object.__setattr__(self, "n", as_size(n))
        except TypeError:
            raise ShapeError(f"Identity: `n` must be an integer, got {n!r}.") from None
        except ValueError:
            raise ShapeError(f"Identity: `n` must not be negative, got {n}.") from None
        kind = default_dtype() if dtype is None else jnp.dtype(dtype)
        object.__setattr__(self, "kind", kind)

    @property
    def shape(self) -> Shape:
        return (self.n, self.n)

    @property
    def dtype(self) -> DType:
        return self.kind

    def astype(self, dtype: DTypeLike) -> Natural:
        return self.replace(kind=jnp.dtype(dtype))

    def __repr__(self) -> str:
        return f"Identity({self.n}, {self.kind})"

    @property
    def is_hermitian(self) -> bool:
        return True

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls(3)]

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        return jnp.eye(self.n, dtype=self.kind)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return Zero(self.shape, self.kind)

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return Zero(self.shape, self.kind)

    def as_query(self) -> Query:
        return "diagonal", (), self.diagonal()

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return b

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return jnp.ones(self.n, self.kind)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return jnp.asarray(rows == columns).astype(self.kind)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.full((), self.n, self.kind)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        return ask.submatrix(Diagonal(self.diagonal()), rows, columns)

    def inner_product(self, other: Natural) -> Scalar:
        return jnp.sum(ask.diagonal(other))

    def _repeated(self, batch: Shape) -> Diagonal:
        """Return a diagonal of ones: it has a leaf for the axes of the batch."""
        return Diagonal(jnp.ones((*batch, self.n), self.kind))
