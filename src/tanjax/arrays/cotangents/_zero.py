"""The zero matrix, and the zero natural cotangent."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from .._abstract import AbstractArray, default_dtype, set_fields, static_field
from .._register import register_array_type


@register_array_type(linear=True, isometric=True, injective=True)
class Zero(AbstractArray):
    """The array of zeros of a shape: no fields, no tangent space.

    **Arguments:** `shape`; `dtype`, by default JAX's default floating dtype.
    """

    fields_are_entries = True  # none, and each multiple is itself

    size_: tuple[int, ...] = static_field()
    kind: Any = static_field()

    def __init__(self, shape: Any, dtype: Any = None) -> None:
        kind = default_dtype() if dtype is None else jnp.dtype(dtype)
        set_fields(self, size_=tuple(shape), kind=kind)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.size_

    @property
    def dtype(self) -> Any:
        return self.kind

    def astype(self, dtype: Any) -> Any:
        return self.replace(kind=jnp.dtype(dtype))

    def __repr__(self) -> str:
        return f"Zero({self.size_}, {self.kind})"

    @classmethod
    def examples(cls, samples: Any) -> list[Any]:
        return [cls((2, 3))]

    def to_dense(self) -> Array:
        return jnp.zeros(self.size_, self.kind)

    def pushforward_of_destructure(self, structural: Any) -> Any:
        return self

    def pullback_of_destructure(self, natural: Any) -> Any:
        return self

    def pushforward_of_restructure(self, natural: Any) -> Any:
        return self

    def pullback_of_restructure(self, structural: Any) -> Any:
        return self

    def linear_terms(self) -> tuple[tuple[Any, Any], ...]:
        return ()

    def apply(self, b: Any) -> Any:
        return jnp.zeros((self.size_[0], *b.shape[1:]), jnp.result_type(self.kind, b))

    def transposed(self) -> Any:
        return Zero(self.size_[::-1], self.kind)

    def diagonal(self) -> Any:
        return jnp.zeros(min(self.size_), self.kind)

    def total(self) -> Any:
        return jnp.zeros((), self.kind)

    def block(self, rows: slice, columns: slice) -> Any:
        sizes = (
            len(range(*s.indices(n))) for s, n in zip((rows, columns), self.size_, strict=True)
        )
        return Zero(sizes, self.kind)

    def pair(self, other: Any) -> Any:
        return jnp.zeros((), self.kind)
