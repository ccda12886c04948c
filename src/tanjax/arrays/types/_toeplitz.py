"""Matrices that are constant along each diagonal."""

from __future__ import annotations

from typing import Self

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Shaped

from tanjax._errors import ShapeError, describe
from tanjax._typing import (
    AnyArray,
    Arraylike,
    DenseArray,
    DType,
    Natural,
    Places,
    Samples,
    Scalar,
    Shape,
)

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, canonical_field, set_fields, static_field
from .._leaves import as_shape, numpy_for
from .._places import gather
from .._register import register_array_type
from .._show import show
from .._table import is_own
from ..cotangents._fill import Fill
from ..cotangents._outer import Outer
from ._fourier import convolve_and_add, fast_length, valid_product


@register_array_type(linear=True, injective=True)
class Toeplitz(AbstractArray):
    r"""The matrix with entries $a_{ij} = values_{i - j + n - 1}$: constant along each diagonal.

    **Arguments:** `values`, shape `(m + n - 1,)`: the diagonals from the upper right corner to the
    lower left one. They are the first row backwards, then the rest of the first column. `shape`,
    `(m, n)`, by default square. An empty matrix has no values.

    **Maps:** with $c_d$ the number of entries of diagonal $d$, $J^\top Y$ sums along diagonals,
    $J^+$ takes means, $J^{+\top}\bar v$ = `Toeplitz(v̄ / c)`. **Cost:** a product with $k$ columns
    takes $O((m + n)\log(m + n)\,k)$ operations without the matrix. So does $J^\top$ of an `Outer`.

    **Raises:** `ShapeError` if the number of values is not that of the diagonals.

    >>> Toeplitz(jnp.array([3.0, 2.0, 1.0, 5.0]), (2, 3)).to_dense().tolist()
    [[1.0, 2.0, 3.0], [5.0, 1.0, 2.0]]
    """

    core_ndim = 2
    units = "values: u -> u"
    fields_are_entries = True

    values: Shaped[Array, " d"] = array_field(ndim=1)
    size_: tuple[int, int] = static_field()

    def __init__(self, values: Arraylike, shape: Shape | None = None) -> None:
        set_fields(self, values=values)
        values = canonical_field(self, "values", 1)
        count = values.shape[-1]
        if shape is None and count and count % 2 == 0:
            raise ShapeError(
                "Toeplitz: a square matrix has an odd number of diagonals.\n"
                f"  got: {describe(values)}\n"
                "Hint: say `shape=(m, n)`; it takes m + n - 1 values."
            )
        size = ((count + 1) // 2,) * 2 if shape is None else as_shape(shape, "Toeplitz")
        if len(size) != 2 or count != (sum(size) - 1 if min(size) else 0):
            raise ShapeError(
                f"Toeplitz: `values` do not fit the shape {size}.\n  got: {describe(values)}\n"
                "Hint: there is one value per diagonal, m + n - 1, and none for an empty matrix."
            )
        set_fields(self, size_=size)

    @staticmethod
    def from_column(column: Arraylike, row: Arraylike | None = None) -> Shaped[Toeplitz, "m n"]:
        """Return the matrix with a first column and a first row, like `scipy.linalg.toeplitz`.

        **Arguments:** `column`, shape `(m,)`; `row`, shape `(n,)`, by default the conjugate of
        `column` (a Hermitian matrix). The first number of `row` is ignored.
        """
        column = ask.array(column)
        row = column.conj() if row is None else ask.array(row)
        if len(column.shape) != 1 or len(row.shape) != 1:
            raise ShapeError(
                "Toeplitz.from_column: the column and the row must be vectors.\n"
                f"  got: {describe(column)} and {describe(row)}"
            )
        shape = (column.shape[0], row.shape[0])
        values = jnp.concatenate([row[:0:-1], column]) if 0 not in shape else column[:0]
        return Toeplitz(values, shape)

    @property
    def shape(self) -> Shape:
        return (*self.values.shape[:-1], *self.size_)

    @property
    def dtype(self) -> DType:
        return self.values.dtype

    @property
    def counts(self) -> Shaped[AnyArray, " d"]:
        """The number of entries of every diagonal."""
        m, n = self.size_
        xp = numpy_for(self.values.shape[-1])
        d = xp.arange(self.values.shape[-1]) - (n - 1)
        return xp.minimum(m, n + d) - xp.maximum(d, 0)

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [
            cls(samples.normal(5)),
            cls(samples.complex(4), (2, 3)),
            cls(samples.normal(4), (3, 2)),
        ]

    def to_dense(self) -> Shaped[DenseArray, "... m n"]:
        m, n = self.size_
        if 0 in self.size_:
            return jnp.zeros(self.shape, self.dtype)
        return self.values[..., jnp.arange(m)[:, None] - jnp.arange(n)[None, :] + n - 1]

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return structural

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self.replace(values=self._sums(natural))

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self.replace(values=self._means(self._sums(natural)))

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return structural.replace(values=self._means(structural.values))

    def _means(self, sums: Shaped[AnyArray, "... d"]) -> Shaped[DenseArray, "... d"]:
        return sums / jnp.asarray(self.counts, sums.dtype)

    def _sums(self, natural: Natural) -> Shaped[DenseArray, "... d"]:
        """Return the sums along the diagonals of an array of this shape."""
        if isinstance(natural, Toeplitz | Fill):
            values = natural.values if isinstance(natural, Toeplitz) else natural.value[..., None]
            return values * jnp.asarray(self.counts, values.dtype)
        query, places, values = ask.as_query(natural)
        zeros = jnp.zeros(self.values.shape[-1], natural.dtype)
        if query == "diagonal":
            return zeros.at[self.size_[1] - 1 : self.size_[1]].set(jnp.sum(values))
        if query == "entries_at":
            return zeros.at[places[0] - places[1] + self.size_[1] - 1].add(values)
        if isinstance(natural, Outer):
            return diagonal_sums_of_outer(natural)
        return diagonal_sums(ask.dense(natural))

    def __repr__(self) -> str:
        shape = "" if self.size_[0] == self.size_[1] else f", shape={self.size_}"
        return f"Toeplitz(values={show(self.values)}{shape})"

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        if 0 in self.size_:
            return jnp.zeros((self.size_[0], *b.shape[1:]), jnp.result_type(self.values, b))
        if b.ndim == 1:
            return valid_product(self.values, b)
        return _columns_of(valid_product(self.values, b.T))

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(values=self.values[..., ::-1], size_=self.size_[::-1])

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        n = self.size_[1]
        return jnp.broadcast_to(self.values[n - 1 : n], (min(self.size_),))

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return gather(self.values, rows - columns + self.size_[1] - 1)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self.values * jnp.asarray(self.counts, self.dtype))

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        parts = (range(*s.indices(k)) for s, k in zip((rows, columns), self.size_, strict=True))
        i, j = parts
        size = (len(i), len(j))
        start = i.start - j.start + self.size_[1] - size[1]
        values = self.values[start : start + sum(size) - 1] if 0 not in size else self.values[:0]
        return self.replace(values=values, size_=size)

    def inner_product(self, other: Natural) -> Scalar:
        if is_own(other) and not isinstance(other, Toeplitz | Outer):
            return ask.pairing(self, other)
        return jnp.sum(self.values * self._sums(other))


@jax.custom_jvp
def _columns_of(rows: Shaped[DenseArray, "k m"]) -> Shaped[DenseArray, "m k"]:
    """Return `rows.T`, with the rows padded by a cache line.

    The transform gives rows with a length near a power of two. Without the padding, the entries of
    a column share one place of the cache. The product then takes a tenth longer (64 columns, CPU).
    """
    apart = lax.optimization_barrier(jnp.pad(rows, ((0, 0), (0, 16))))
    return apart.T[: rows.shape[1]]


@_columns_of.defjvp
def _(primals: tuple[DenseArray], tangents: tuple[DenseArray]) -> tuple[DenseArray, DenseArray]:
    return _columns_of(*primals), tangents[0].T


def diagonal_sums(dense: Shaped[DenseArray, "... m n"]) -> Shaped[DenseArray, "... d"]:
    """Return the sums along the diagonals of a matrix `(m, n)`, from the upper right corner on.

    Reversed columns make them anti-diagonals. Padded rows, reshaped to rows shorter by one, align
    each anti-diagonal in one column.
    """
    *batch, m, n = dense.shape
    if 0 in (m, n):
        return jnp.zeros((*batch, 0), dense.dtype)
    padding = [(0, 0)] * (len(batch) + 1) + [(0, m)]
    rows = jnp.pad(dense[..., ::-1], padding).reshape(*batch, m * (m + n))
    rows = jnp.pad(rows, [*padding[:-2], (0, n - 1)])
    return jnp.sum(rows.reshape(*batch, m + 1, m + n - 1), axis=-2)


def diagonal_sums_of_outer(outer: Shaped[Outer, "... m n"]) -> Shaped[DenseArray, "... d"]:
    """Return `diagonal_sums(left @ right.T)`, by a convolution of each pair of columns."""
    left, right = (jnp.swapaxes(x, -1, -2) for x in (outer.left, outer.right[..., ::-1, :]))
    m, n = left.shape[-1], right.shape[-1]
    if 0 in (m, n):
        return jnp.zeros((*left.shape[:-2], 0), outer.dtype)
    return convolve_and_add(left, right, fast_length(m + n - 1))[..., : m + n - 1]
