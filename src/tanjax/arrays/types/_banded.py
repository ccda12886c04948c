"""Banded matrices, in the storage of LAPACK and SciPy."""

from __future__ import annotations

from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Shaped

from tanjax._errors import ShapeError, describe
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
from .._abstract import AbstractArray, array_field, canonical_field, set_fields, static_field
from .._free_forms import FreeForm, at
from .._leaves import numpy_for
from .._places import gather_where
from .._register import register_array_type
from ..cotangents._outer import Outer
from ._tridiagonal import band_block, band_query, no_entries


@register_array_type(linear=True, isometric=True, injective=True)
class Banded(AbstractArray):
    r"""A square matrix with `lower` diagonals below the main one and `upper` above it.

    Samplers and Newton's method want its free numbers, not its stored ones, which hold corners
    outside of the matrix, too: `tj.tangents.free_coordinates`.

    **Arguments:** `bands`, shape `(lower + upper + 1, n)`: the diagonals from the uppermost to the
    lowest, every entry in its column, $a_{ij}$ at `bands[upper + i - j, j]`, as in
    `scipy.linalg.solve_banded`. The corners of `bands` are outside of the matrix: the constructor
    overwrites them with zeros.

    **Maps:** isometric; $J^\top Y$ reads the diagonals of the band. **Raises:** `ShapeError` if
    `bands` has not one row for every diagonal.

    >>> Banded([[0.0, 5.0, 6.0], [1.0, 2.0, 3.0]], lower=0, upper=1).to_dense().tolist()
    [[1.0, 5.0, 0.0], [0.0, 2.0, 6.0], [0.0, 0.0, 3.0]]
    """

    core_ndim = 2
    units = "bands: u -> u"
    fields_are_entries = True

    bands: Shaped[Array, "width n"] = array_field(ndim=2)
    lower: int = static_field()
    upper: int = static_field()

    def __post_init__(self) -> None:
        set_fields(self, lower=int(self.lower), upper=int(self.upper))
        bands, count = canonical_field(self, "bands", 2), self.lower + self.upper + 1
        if self.lower < 0 or self.upper < 0 or bands.shape[0] != count:
            raise ShapeError(
                f"Banded: {self.lower} diagonals below and {self.upper} above the main one need "
                f"`bands` of shape ({count}, n).\n  got: {describe(bands)}"
            )
        set_fields(self, bands=self._without_corners(bands))

    def _without_corners(self, bands: Shaped[Array, "... width n"]) -> Shaped[Array, "... width n"]:
        n = bands.shape[-1]
        return jnp.where(self._in_matrix(n), bands, jnp.zeros((), bands.dtype))

    def _in_matrix(self, n: int) -> Bool[AnyArray, "width n"]:
        rows = np.arange(-self.upper, self.lower + 1)[:, None] + numpy_for(n).arange(n)
        return (rows >= 0) & (rows < n)

    def free_form(self, positive: bool) -> FreeForm | None:
        bands = self.bands
        places = np.nonzero(self._in_matrix(bands.shape[-1]))
        return None if positive else at(places, bands.shape, bands.dtype).of_field(self, "bands")

    @property
    def offsets(self) -> range:
        """The diagonals of the band, from the lowest (negative) to the uppermost."""
        return range(-self.lower, self.upper + 1)

    @property
    def shape(self) -> Shape:
        shape = self.bands.shape
        return (*shape[:-2], shape[-1], shape[-1])

    @property
    def dtype(self) -> DType:
        return self.bands.dtype

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls(samples.normal(4, 5), 1, 2), cls(samples.complex(2, 3), 1, 0)]

    def canonical(self) -> Self:
        return self.replace(bands=self._without_corners(self.bands))

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        n = self.bands.shape[-1]
        i = jnp.arange(n)
        dense = jnp.zeros(self.shape, self.bands.dtype)
        for k in self.offsets:
            row = i[max(0, -k) : max(n - max(0, k), 0)]
            dense = dense.at[..., row, row + k].set(self.off_diagonal(k))
        return dense

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return structural.canonical()

    def pullback_of_destructure(self, natural: Natural) -> Self:
        if isinstance(natural, Banded) and (natural.lower, natural.upper) == (
            self.lower,
            self.upper,
        ):
            return self.replace(bands=natural.canonical().bands)
        if isinstance(natural, Outer):
            return self.replace(bands=self._bands_of_outer(natural))
        n = self.bands.shape[-1]
        rows = []
        for k in reversed(self.offsets):
            missing = (max(0, min(k, n)), max(0, min(-k, n)))
            rows.append(jnp.pad(ask.off_diagonal(natural, k), missing))
        return self.replace(bands=jnp.stack(rows))

    def _bands_of_outer(self, outer: Shaped[Outer, "... n n"]) -> Shaped[Array, "... width n"]:
        """By rows, with the shifted `right` factors that `apply` has: they are made once."""
        n, leading = self.bands.shape[-1], [(0, 0)] * (outer.right.ndim - 2)
        padded = jnp.pad(outer.right, [*leading, (self.lower, self.upper), (0, 0)])
        bands = []
        for k in reversed(self.offsets):
            part = padded[..., self.lower + k : self.lower + k + n, :]
            entries = jnp.sum(outer.left * part, axis=-1)[..., max(0, -k) : max(n - max(0, k), 0)]
            bands.append(jnp.pad(entries, [*leading, (max(0, min(k, n)), max(0, min(-k, n)))]))
        return jnp.stack(bands, axis=-2)

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self.pullback_of_destructure(natural)

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return structural.canonical()

    def as_query(self) -> Query | None:
        return band_query(self, self.offsets)

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        """One shifted multiple of `b` per diagonal, in one pass."""
        n, rest = self.bands.shape[-1], [(0, 0)] * (b.ndim - 1)
        padded = jnp.pad(b, [(self.lower, self.upper), *rest])
        products: list[Array] = []
        for k in self.offsets:
            entries = jnp.pad(self.off_diagonal(k), (max(0, min(-k, n)), max(0, min(k, n))))
            part = padded[self.lower + k : self.lower + k + n]
            products.append((entries if b.ndim == 1 else entries[:, None]) * part)
        return sum(products[1:], products[0])

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        n, rows = self.bands.shape[-1], []
        for k in self.offsets:  # which become the diagonals -k, from the uppermost on
            missing = (max(0, min(-k, n)), max(0, min(k, n)))
            leading = [(0, 0)] * (self.bands.ndim - 2)
            rows.append(jnp.pad(self.off_diagonal(k), [*leading, missing]))
        return self.replace(bands=jnp.stack(rows, -2), lower=self.upper, upper=self.lower)

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return self.bands[..., self.upper, :]

    def off_diagonal(self, offset: int) -> Shaped[DenseArray, "... k"]:
        if offset not in self.offsets:
            return no_entries(self.diagonal(), offset)
        n = self.bands.shape[-1]
        inside = slice(max(0, offset), max(n - max(0, -offset), 0))
        return self.bands[..., self.upper - offset, inside]

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        width, n = self.bands.shape[-2:]
        row = self.upper + rows - columns
        flat = self.bands.reshape(*self.bands.shape[:-2], width * n)
        return gather_where((row >= 0) & (row < width), flat, row * n + columns)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self._without_corners(self.bands))

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        if rows != columns:
            return band_block(self, self.offsets, rows, columns)
        return Banded(self.bands[:, rows], self.lower, self.upper)

    def inner_product(self, other: Natural) -> Scalar:
        return sum(jnp.sum(self.off_diagonal(k) * ask.off_diagonal(other, k)) for k in self.offsets)
