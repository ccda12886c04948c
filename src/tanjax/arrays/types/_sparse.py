"""Sparse matrices with a fixed pattern."""

from __future__ import annotations

import operator
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Integer, Shaped

from tanjax._errors import ShapeError, describe, message
from tanjax._typing import (
    AnyArray,
    Arraylike,
    DenseArray,
    DType,
    Matrixlike,
    Natural,
    Places,
    Query,
    Samples,
    Scalar,
    Shape,
)

from .. import _queries as ask
from .._abstract import (
    AbstractArray,
    array_field,
    as_dense_field,
    canonical_field,
    set_fields,
    static_field,
)
from .._pattern import LARGEST, Pattern, flat_places
from .._places import INSIDE, add_at, gather, gather_entries, gather_rows, gather_where
from .._register import register_array_type
from .._show import show


@register_array_type(linear=True, isometric=True, injective=True)
class Sparse(AbstractArray):
    r"""The matrix with `values` at given places, zeros elsewhere.

    **Arguments:** `values`, shape `(p,)`; `indices`, integers of shape `(p, 2)`, row and column of
    every value; `shape`, `(m, n)`. Places come in any order, and values at one place are added up,
    as by `jax.experimental.sparse.BCOO`: a matrix may be assembled from its elements. `values`,
    `indices` and `nnz` have each place once, by rows and then by columns.

    **Maps:** isometric; $J^\top Y$ reads `Y` at the places, $O(pk)$ for an `Outer` of $k$ columns.
    A stored zero has a derivative, a place that is not stored has none.

    The pattern is static: `indices` must be known when JAX traces, and a new one compiles again.
    `replace(values=...)` keeps it. **Cost:** $O(pk)$ for a product with $k$ columns. Systems and
    determinants form the dense matrix, with a `DensifyWarning`.

    **Raises:** `ShapeError` if places are outside of `shape`, traced, or as many as no values.

    >>> Sparse(jnp.array([5.0, 1.0, 2.0]), [[1, 2], [0, 0], [1, 2]], (2, 3)).to_dense().tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 7.0]]
    """

    core_ndim = 2
    units = "values: u -> u"
    fields_are_entries = True

    values: Shaped[Array, " p"] = array_field(ndim=1)
    pattern: Pattern = static_field()

    def __init__(self, values: Arraylike, indices: Arraylike, shape: Shape) -> None:
        set_fields(self, values=values)
        given = canonical_field(self, "values", 1)
        try:
            m, n = (operator.index(k) for k in shape)
        except (TypeError, ValueError):
            raise ShapeError(f"Sparse: `shape` must be two integers, got {shape!r}.") from None
        if min(m, n) < 0 or max(m, n) > LARGEST:
            raise ShapeError(f"Sparse: `shape` must be from 0 to {LARGEST}, got {shape!r}.")
        size = m, n
        rows, columns = _places(indices, given, size)
        flat = flat_places(rows, columns, size)
        if not np.all(flat[1:] > flat[:-1]):
            order = np.argsort(flat, kind="stable").astype(np.int32)
            flat, to = np.unique(flat[order], return_inverse=True)
            given = gather(given, order)
            if len(flat) < len(order):
                given = add_at(given, to.astype(np.int32), len(flat))
        set_fields(self, values=given, pattern=Pattern.of_flat(flat, size))

    @staticmethod
    def of_pattern(values: Shaped[AnyArray, " p"], pattern: Pattern) -> Shaped[Sparse, "m n"]:
        """The matrix with a pattern of another one, `a.pattern`, and values in its order."""
        if values.shape[-1:] != (len(pattern),):
            raise ShapeError(
                f"Sparse: {len(pattern)} places need as many values.\n  got: {describe(values)}"
            )
        new: Sparse = object.__new__(Sparse)
        set_fields(new, values=values, pattern=pattern)
        return new

    @staticmethod
    def from_dense(a: Matrixlike) -> Shaped[Sparse, "m n"]:
        """The entries of a matrix that are not zero, whose values must be known.

        **Raises:** `ShapeError` for a traced array: its zeros are unknown.
        """
        dense = as_dense_field("Sparse.from_dense", a)
        if isinstance(dense, jax.core.Tracer) or dense.ndim != 2:
            raise ShapeError(
                message(
                    "Sparse.from_dense: needs a matrix whose values are known.",
                    f"got: {describe(dense)}",
                    hint="make the pattern outside of transformations: `tj.Sparse(values, "
                    "indices, shape)`, or `pattern.replace(values=dense[rows, columns])`.",
                )
            )
        rows, columns = np.nonzero(np.asarray(dense))
        pattern = Pattern.of(rows, columns, dense.shape)
        return Sparse.of_pattern(gather_entries(dense, pattern.rows, pattern.columns), pattern)

    @staticmethod
    def from_bcoo(a: Shaped[AnyArray, " ..."]) -> Shaped[Sparse, "m n"]:
        """A `jax.experimental.sparse.BCOO` matrix, without batch or dense axes.

        Its places must be known; those that only fill it up, outside of its shape, are left out.
        """
        if a.n_batch or a.n_dense or len(a.shape) != 2:
            raise ShapeError(
                message(
                    "Sparse.from_bcoo: needs a matrix without batch and dense axes.",
                    f"got: shape {a.shape}, n_batch={a.n_batch}, n_dense={a.n_dense}",
                    hint="map over a batch of values of one pattern: `jax.vmap(lambda v: "
                    "tj.Sparse(v, indices, shape))`.",
                )
            )
        indices = _known(a.indices)
        inside = np.flatnonzero((indices < np.asarray(a.shape)).all(axis=1))
        return Sparse(gather(a.data, inside), indices[inside], a.shape)

    def to_bcoo(self) -> Shaped[AnyArray, "... m n"]:
        """The matrix as a `jax.experimental.sparse.BCOO`, a batch with `n_batch` axes."""
        from jax.experimental import sparse

        batch = self.values.shape[:-1]
        indices = jnp.broadcast_to(self.indices, (*batch, *self.indices.shape))
        kept: Any = {"indices_sorted": True, "unique_indices": True}
        return sparse.BCOO((self.values, indices), shape=self.shape, **kept)

    @property
    def shape(self) -> Shape:
        return (*self.values.shape[:-1], *self.pattern.shape)

    @property
    def dtype(self) -> DType:
        return self.values.dtype

    def astype(self, dtype: DTypeLike) -> Natural:
        return self.replace(values=self.values.astype(dtype))  # zero is zero in all of them

    @property
    def nnz(self) -> int:
        """How many places are stored."""
        return len(self.pattern)

    @property
    def indices(self) -> Integer[np.ndarray, "p 2"]:
        """Row and column of every value that is stored."""
        return np.stack([self.pattern.rows, self.pattern.columns], axis=1)

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        places = [[0, 1], [2, 3], [1, 0], [2, 0], [1, 2]]
        return [
            cls(samples.normal(5), places, (3, 4)),
            cls(samples.complex(5), places, (4, 4)),
        ]

    def __repr__(self) -> str:
        places = "" if self.nnz > 8 else f", indices={self.indices.tolist()}"
        return f"Sparse(values={show(self.values)}{places}, shape={self.pattern.shape})"

    def to_dense(self) -> Shaped[DenseArray, "... m n"]:
        p = self.pattern
        dense = jnp.zeros(self.shape, self.values.dtype).at[..., p.rows, p.columns]
        return dense.set(self.values, **INSIDE, unique_indices=True, indices_are_sorted=True)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return structural

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self.replace(values=ask.entries_at(natural, self.pattern.rows, self.pattern.columns))

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self.pullback_of_destructure(natural)

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return structural

    def as_query(self) -> Query | None:
        """`⟨self, D⟩` reads `D` at the places."""
        if self.values.ndim != 1:
            return None
        return "entries_at", (self.pattern.rows, self.pattern.columns), self.values

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        """Rows of `b`, times a value each, added up where they belong."""
        p = self.pattern
        values = self.values if b.ndim == 1 else self.values[:, None]
        return add_at(values * gather_rows(b, p.columns), p.rows, p.shape[0])

    def apply_transposed(self, b: Shaped[DenseArray, " m *k"]) -> Shaped[DenseArray, " n *k"]:
        """`self.mT @ b`, with the values where they are: half the time of sorting them first."""
        p = self.pattern
        values = self.values if b.ndim == 1 else self.values[:, None]
        return add_at(values * gather_rows(b, p.rows), p.columns, p.shape[1])

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        pattern, order = self.pattern.transposed
        return self.replace(values=gather(self.values, order), pattern=pattern)

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return self.off_diagonal(0)

    def off_diagonal(self, offset: int) -> Shaped[DenseArray, "... k"]:
        m, n = self.pattern.shape
        rows = np.arange(max(0, -offset), max(0, -offset, min(m, n - offset)))
        return self.entries_at(rows, rows + offset)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        if rows is self.pattern.rows and columns is self.pattern.columns:
            return self.values
        at, found = self.pattern.find(rows, columns)
        return gather_where(found, self.values, at)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self.values)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        pattern, at = self.pattern.window(rows, columns)
        return self.replace(values=gather(self.values, at), pattern=pattern)

    def inner_product(self, other: Natural) -> Scalar:
        return jnp.sum(self.values * ask.entries_at(other, self.pattern.rows, self.pattern.columns))


def _known(indices: Arraylike) -> Integer[np.ndarray, "p 2"]:
    """The places as numbers."""
    if isinstance(indices, jax.core.Tracer):
        raise ShapeError(
            message(
                "Sparse: the places are part of the type, and JAX traces them here.",
                f"got: {describe(indices)}",
                hint="make the matrix once outside of `jax.jit`, `jax.vmap` and the like, and "
                "give it other values inside: `a.replace(values=...)`.",
            )
        )
    return np.asarray(indices)


def _places(
    indices: Arraylike, values: Shaped[Array, " p"], shape: tuple[int, int]
) -> tuple[Places, Places]:
    """Rows and columns, checked."""
    known = _known(indices)
    if not known.size:
        known = known.reshape(len(known), 2).astype(np.int32) if known.ndim == 2 else _NONE
    if known.ndim != 2 or known.shape[1] != 2 or known.dtype.kind not in "iu":
        raise ShapeError(
            "Sparse: `indices` must be integers of shape (p, 2), the row and the column of every "
            f"value.\n  got: {describe(known)}"
        )
    if len(known) != values.shape[0]:
        raise ShapeError(
            f"Sparse: every value has one place.\n  got: {describe(values)} values and "
            f"{describe(known)} indices"
        )
    wrong = np.flatnonzero(((known < 0) | (known >= np.asarray(shape))).any(axis=1))
    if wrong.size:
        raise ShapeError(
            f"Sparse: {wrong.size} places are outside of the shape {shape}.\n"
            f"  the first: {known[wrong[:4]].tolist()}"
        )
    return known[:, 0], known[:, 1]


_NONE = np.zeros((0, 2), np.int32)
