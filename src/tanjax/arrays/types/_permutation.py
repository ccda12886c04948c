"""Permutation matrices."""

from __future__ import annotations

from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike
from jaxtyping import Integer, Shaped

from tanjax._errors import ShapeError, describe
from tanjax._typing import (
    AnyArray,
    Arraylike,
    DenseArray,
    DType,
    Factor,
    Multiple,
    Natural,
    Places,
    Samples,
    Scalar,
    Shape,
)
from tanjax.kernels import parity

from .. import _queries as ask
from .._abstract import (
    AbstractArray,
    array_field,
    as_dense_field,
    conj_of_fields,
    default_dtype,
    set_fields,
    static_field,
)
from .._leaves import is_inexact
from .._places import gather
from .._register import register_array_type
from .._show import show
from .._table import is_own
from ..cotangents._zero import Zero
from ..maps._tangents import zero_tangent


@register_array_type(isometric=True, injective=True)
class Permutation(AbstractArray):
    """The matrix with a one at `(i, indices[i])` for every row: `P @ x` is `x[indices]`.

    **Arguments:** `indices`, integers `0 … n - 1` in any order, shape `(n,)`; `dtype` of the
    matrix, by default JAX's default floating dtype. `Permutation(jnp.argsort(x)) @ x` is sorted.

    No tangent space: natural (co)tangents are `Zero`, and JAX carries `float0` for `indices`.
    A product moves rows or columns, the inverse is the transpose, and the determinant is the
    parity, `sign()`. **Raises:** `ShapeError` if `indices` are not a permutation. While JAX traces
    them their values are unknown: products then gather by them unchecked.

    >>> (Permutation(jnp.array([2, 0, 1])) @ jnp.array([5.0, 6.0, 7.0])).tolist()
    [7.0, 5.0, 6.0]
    """

    core_ndim = 2
    constructor_takes_batches = True  # it looks at values, which no map shows
    conj = conj_of_fields

    indices: Integer[Array, " n"] = array_field(ndim=1)
    kind: DType = static_field()

    def __init__(self, indices: Arraylike, dtype: DTypeLike | None = None) -> None:
        indices = as_dense_field("Permutation", indices)
        if not indices.size:
            indices = indices.astype(jnp.int32)  # an empty list has no integers
        _check(indices)
        kind = default_dtype() if dtype is None else jnp.dtype(dtype)
        set_fields(self, indices=indices, kind=kind)

    @property
    def shape(self) -> Shape:
        return (*self.indices.shape, self.indices.shape[-1])

    @property
    def dtype(self) -> DType:
        return self.kind

    def astype(self, dtype: DTypeLike) -> Natural:
        return self.replace(kind=jnp.dtype(dtype))

    def __repr__(self) -> str:
        return f"Permutation({show(self.indices)}, {self.kind})"

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls([2, 0, 3, 1])]

    def inverse_indices(self) -> Integer[Array, "... n"]:
        """The indices of the inverse, which is the transpose: `indices[inverse_indices]` counts."""
        count = jnp.arange(self.indices.shape[-1], dtype=self.indices.dtype)
        inverse = lambda indices: jnp.zeros_like(indices).at[indices].set(count)
        return jnp.vectorize(inverse, signature="(n)->(n)")(self.indices)

    def sign(self) -> Shaped[Array, " ..."]:
        """Return the parity, 1 or -1, in the dtype of the matrix: its determinant."""
        return parity(self.indices).astype(self.kind)

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        columns = jnp.arange(self.indices.shape[-1], dtype=self.indices.dtype)
        indices = self.indices[..., None]
        return (indices == lax.expand_dims(columns, range(indices.ndim - 1))).astype(self.kind)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return Zero(self.shape, self.kind)

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return zero_tangent(self)

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return zero_tangent(self)

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return Zero(self.shape, self.kind)

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return b[self.indices]

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(indices=self.inverse_indices())

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        places = jnp.arange(self.indices.shape[0], dtype=self.indices.dtype)
        return (self.indices == places).astype(self.kind)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return (gather(self.indices, rows) == columns.astype(self.indices.dtype)).astype(self.kind)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.full((), self.indices.shape[0], self.kind)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        chosen = self.indices[rows]
        places = jnp.arange(self.indices.shape[0], dtype=chosen.dtype)[columns]
        return (chosen[:, None] == places).astype(self.kind)

    def scaled(self, factor: Factor) -> Multiple:
        return NotImplemented

    def inner_product(self, other: Natural) -> Scalar:
        """One entry per row of a dense array."""
        if type(other) is Permutation:
            return jnp.sum(self.indices == other.indices).astype(self.dtype)
        if is_own(other):
            return ask.pairing(self, other)
        return jnp.sum(jnp.take_along_axis(ask.dense(other), self.indices[:, None], axis=1))


def _check(indices: Shaped[Array, " ..."]) -> None:
    """Raise `ShapeError` unless the indices are a permutation, as far as one can see."""
    if indices.ndim == 0 or is_inexact(indices) or indices.dtype == bool:
        raise ShapeError(
            f"Permutation: `indices` must be a vector of integers.\n  got: {describe(indices)}"
        )
    if isinstance(indices, jax.core.Tracer):
        return
    n = indices.shape[-1]
    rows = np.asarray(indices).reshape(-1, n) if n else np.zeros((0, 0), int)
    wrong = np.flatnonzero(np.any(np.sort(rows) != np.arange(n), axis=-1))
    if wrong.size:
        found = rows[wrong[0]]
        once = np.bincount(found[(found >= 0) & (found < n)], minlength=n)
        raise ShapeError(
            f"Permutation: `indices` must hold every number from 0 to {n - 1} once.\n"
            f"  missing: {np.flatnonzero(once == 0)[:8].tolist()}"
        )
