"""Diagonal matrices."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import _queries as ask
from .._abstract import AbstractArray, canonical_field
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

    diag: Array

    def __post_init__(self) -> None:
        canonical_field(self, "diag", 1)

    @property
    def shape(self) -> tuple[int, ...]:
        shape = self.diag.shape
        return shape + shape[-1:]

    @property
    def dtype(self) -> Any:
        return self.diag.dtype

    @classmethod
    def examples(cls, samples: Any) -> list[Any]:
        return [cls(samples.normal(3)), cls(samples.complex(2))]

    def to_dense(self) -> Array:
        eye = jnp.eye(self.diag.shape[-1], dtype=bool)
        return jnp.where(eye, self.diag[..., None], jnp.zeros((), self.diag.dtype))

    def pushforward_of_destructure(self, structural: Any) -> Any:
        return structural

    def pullback_of_destructure(self, natural: Any) -> Any:
        return self.replace(diag=ask.diagonal(natural))

    def pushforward_of_restructure(self, natural: Any) -> Any:
        return self.replace(diag=ask.diagonal(natural))

    def pullback_of_restructure(self, structural: Any) -> Any:
        return structural

    def as_query(self) -> tuple[str, tuple[Any, ...], Any] | None:
        return ("diagonal", (), self.diag) if self.diag.ndim == 1 else None

    def apply(self, b: Any) -> Any:
        return self.diag * b if b.ndim == 1 else self.diag[:, None] * b

    def transposed(self) -> Any:
        return self

    def diagonal(self) -> Any:
        return self.diag

    def off_diagonal(self, offset: int) -> Any:
        return self.diag if offset == 0 else jnp.zeros_like(self.diag[..., abs(offset) :])

    def total(self) -> Any:
        return jnp.sum(self.diag)

    def block(self, rows: slice, columns: slice) -> Any:
        if rows == columns:
            return Diagonal(self.diag[rows])
        i, j = (np.arange(self.diag.shape[0])[part] for part in (rows, columns))
        zero = jnp.zeros((), self.diag.dtype)
        return jnp.where(i[:, None] == j, self.diag[rows][:, None], zero)

    def pair(self, other: Any) -> Any:
        return jnp.sum(self.diag * ask.diagonal(other))
