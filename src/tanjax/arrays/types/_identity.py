"""The identity matrix."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from .. import _queries as ask
from .._abstract import AbstractArray, conj_of_fields, default_dtype, set_fields, static_field
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
    kind: Any = static_field()

    def __init__(self, n: int, dtype: Any = None) -> None:
        set_fields(self, n=int(n), kind=default_dtype() if dtype is None else jnp.dtype(dtype))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n, self.n)

    @property
    def dtype(self) -> Any:
        return self.kind

    def astype(self, dtype: Any) -> Any:
        return self.replace(kind=jnp.dtype(dtype))

    def __repr__(self) -> str:
        return f"Identity({self.n}, {self.kind})"

    @classmethod
    def examples(cls, samples: Any) -> list[Any]:
        return [cls(3)]

    def to_dense(self) -> Array:
        return jnp.eye(self.n, dtype=self.kind)

    def pushforward_of_destructure(self, structural: Any) -> Any:
        return Zero(self.shape, self.kind)

    def pullback_of_destructure(self, natural: Any) -> Any:
        return self

    def pushforward_of_restructure(self, natural: Any) -> Any:
        return self

    def pullback_of_restructure(self, structural: Any) -> Any:
        return Zero(self.shape, self.kind)

    def apply(self, b: Any) -> Any:
        return b

    def transposed(self) -> Any:
        return self

    def diagonal(self) -> Any:
        return jnp.ones(self.n, self.kind)

    def total(self) -> Any:
        return jnp.full((), self.n, self.kind)

    def scaled(self, factor: Any) -> Any:
        return Diagonal(factor * self.diagonal())

    def block(self, rows: slice, columns: slice) -> Any:
        return ask.block(Diagonal(self.diagonal()), rows, columns)

    def pair(self, other: Any) -> Any:
        return jnp.sum(ask.diagonal(other))
