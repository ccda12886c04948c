"""Outer products in factored form: the natural cotangent of most rules."""

from __future__ import annotations

from typing import Self

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Shaped

from tanjax._errors import ShapeError, describe
from tanjax._typing import (
    AnyArray,
    DenseArray,
    DType,
    Factor,
    Multiple,
    Natural,
    Places,
    Query,
    Samples,
    Scalar,
    Shape,
)

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, conj_of_fields, set_fields
from .._places import products_at
from .._register import register_array_type


@register_array_type()
class Outer(AbstractArray):
    r"""`left @ right.T`, stored as two thin factors.

    **Arguments:** `left`, shape `(m, k)`, and `right`, shape `(n, k)`; a vector is one column.
    **Cost:** a diagonal costs $O(nk)$, a product with $c$ columns $O((m+n)kc)$.
    """

    core_ndim = 2
    units = "left: u, right: v -> u*v"
    conj = conj_of_fields

    left: Shaped[Array, "m k"] = array_field(ndim=2)
    right: Shaped[Array, "n k"] = array_field(ndim=2)

    def __init__(self, left: Shaped[ArrayLike, " m *k"], right: Shaped[ArrayLike, " n *k"]) -> None:
        left, right = (jnp.asarray(x) for x in (left, right))
        left, right = (x[:, None] if x.ndim == 1 else x for x in (left, right))
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
            raise ShapeError(
                "Outer: `left` (m, k) and `right` (n, k) must have the same number of columns.\n"
                f"  got: {describe(left)} and {describe(right)}"
            )
        set_fields(self, left=left, right=right)

    @property
    def shape(self) -> Shape:
        return (*self.left.shape[:-1], self.right.shape[-2])

    @property
    def dtype(self) -> DType:
        return jnp.result_type(self.left, self.right)

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        # `entries_at` of thin products goes column by column, with a loop from nine columns on.
        return [cls(samples.normal(m, k), samples.normal(2, k)) for m, k in ((3, 1), (2, 11))]

    def to_dense(self) -> Shaped[DenseArray, "... m n"]:
        return self.left @ jnp.swapaxes(self.right, -1, -2)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        left = jnp.concatenate([structural.left, self.left], -1)
        return Outer(left, jnp.concatenate([self.right, structural.right], -1))

    def pullback_of_destructure(self, natural: Natural) -> Self:
        left_bar = ask.apply(natural, self.right)
        return self.replace(left=left_bar, right=ask.apply(ask.transposed(natural), self.left))

    def as_query(self) -> Query | None:
        """Return the query `apply`: `⟨l rᵀ, D⟩ = ⟨l, D r⟩`."""
        if self.left.ndim != 2:
            return None
        if self.left.shape[1] == 1:
            return "apply", (self.right[:, 0],), self.left[:, 0]
        return "apply", (self.right,), self.left

    def scaled(self, factor: Factor) -> Multiple:
        return self.replace(left=self.left * factor)

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return self.left @ (self.right.T @ b)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(left=self.right, right=self.left)

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return self.off_diagonal(0)

    def off_diagonal(self, offset: int) -> Shaped[DenseArray, "... k"]:
        left = self.left[..., max(0, -offset) :, :]
        right = self.right[..., max(0, offset) :, :]
        n = min(left.shape[-2], right.shape[-2])
        return jnp.sum(left[..., :n, :] * right[..., :n, :], axis=-1)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return products_at(self.left, self.right, rows, columns)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(jnp.sum(self.left, axis=-2) * jnp.sum(self.right, axis=-2))

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        return self.replace(left=self.left[rows], right=self.right[columns])

    def inner_product(self, other: Natural) -> Scalar:
        return jnp.sum(self.left * ask.apply(other, self.right))
