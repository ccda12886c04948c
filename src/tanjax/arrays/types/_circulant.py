"""Circulant matrices: each row is the row above, shifted cyclically by one."""

from __future__ import annotations

from typing import Self

import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

from tanjax._typing import AnyArray, DenseArray, DType, Natural, Places, Samples, Scalar, Shape

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, canonical_field
from .._places import gather
from .._register import register_array_type
from .._table import is_own
from ..cotangents._fill import Fill
from ..cotangents._outer import Outer
from ._fourier import (
    convolve,
    convolve_and_add,
    is_exact,
    known_length,
    over_columns,
    valid_product,
    wide_enough,
)
from ._toeplitz import Toeplitz, diagonal_sums


@register_array_type(linear=True, injective=True)
class Circulant(AbstractArray):
    r"""The square matrix with entries $a_{ij} = column_{(i - j) \bmod n}$.

    **Fields:** `column`, the first column, shape `(n,)`. Its Fourier transform, `eigenvalues()`,
    is the spectrum. So products, systems and determinants take $O(n \log n)$ operations. Sums,
    products and inverses of circulant matrices are circulant.

    **Maps:** $J^\top Y$ sums along the cyclic diagonals, $J^+$ takes means,
    $J^{+\top}\bar c$ = `Circulant(c̄ / n)`.

    >>> Circulant(jnp.array([1.0, 2.0, 3.0])).to_dense().tolist()
    [[1.0, 3.0, 2.0], [2.0, 1.0, 3.0], [3.0, 2.0, 1.0]]
    """

    core_ndim = 2
    units = "column: u -> u"
    fields_are_entries = True

    column: Shaped[Array, " n"] = array_field(ndim=1)

    def __post_init__(self) -> None:
        canonical_field(self, "column", 1)

    @property
    def shape(self) -> Shape:
        return (*self.column.shape, self.column.shape[-1])

    @property
    def dtype(self) -> DType:
        return self.column.dtype

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [cls(samples.normal(4)), cls(samples.complex(3)), cls(samples.normal(3))]

    def eigenvalues(self) -> Shaped[Array, "... n"]:
        r"""Return the complex spectrum, shape `(n,)`, in the order of the Fourier transform.

        Eigenvector `k` has the entries `exp(2πi jk/n)`. **Cost:** $O(n \log n)$.
        """
        n = known_length(self.column.shape[-1])
        return jnp.fft.fft(self.column.astype(wide_enough(self.dtype)), max(n, 1))[..., :n]

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        i = jnp.arange(self.column.shape[-1])
        return self.column[..., (i[:, None] - i[None, :]) % max(i.size, 1)]

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return structural

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self.replace(column=self._sums(natural))

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self.replace(column=self._sums(natural) / max(self.column.shape[-1], 1))

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return self.replace(column=structural.column / max(structural.column.shape[-1], 1))

    def _sums(self, natural: Natural) -> Shaped[DenseArray, "... n"]:
        """Return the sums along the cyclic diagonals of an array of this shape."""
        n = self.column.shape[-1]
        if isinstance(natural, Circulant):
            return natural.column * n
        if isinstance(natural, Fill):
            return jnp.broadcast_to(natural.value[..., None] * n, (*natural.value.shape, n))
        query, places, values = ask.as_query(natural)
        if query == "diagonal":
            return jnp.zeros(n, natural.dtype).at[:1].set(jnp.sum(values))
        if query == "entries_at":
            at = (places[0] - places[1]) % max(n, 1)
            return jnp.zeros(n, natural.dtype).at[at].add(values)
        if isinstance(natural, Outer):
            left, right = (jnp.swapaxes(x, -1, -2) for x in (natural.left, natural.right))
            return convolve_and_add(left, _turned(right), n)
        if isinstance(natural, Toeplitz):
            return _folded(natural.values * jnp.asarray(natural.counts, natural.dtype), n)
        return _folded(diagonal_sums(ask.dense(natural)), n)

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        n = self.column.shape[-1]
        if is_exact(self.column, b) and b.size:
            values = jnp.concatenate([self.column[1:], self.column])
            return over_columns(lambda rows: valid_product(values, rows), b)
        return over_columns(lambda rows: convolve(self.column, rows, n), b)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(column=_turned(self.column))

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return jnp.broadcast_to(self.column[:1], self.column.shape)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return gather(self.column, (rows - columns) % max(self.column.shape[-1], 1))

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self.column) * self.column.shape[-1]

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        return self.to_toeplitz().submatrix(rows, columns)

    def to_toeplitz(self) -> Shaped[Toeplitz, "... n n"]:
        """Return the same matrix as a `Toeplitz`."""
        return Toeplitz(jnp.concatenate([self.column[1:], self.column]))

    def inner_product(self, other: Natural) -> Scalar:
        if is_own(other) and not isinstance(other, Circulant | Toeplitz | Outer):
            return ask.pairing(self, other)
        return jnp.sum(self.column * self._sums(other))


def _turned(x: Shaped[DenseArray, "... n"]) -> Shaped[DenseArray, "... n"]:
    """Reverse the last axis cyclically, with the first number in place: `x[-k % n]`."""
    return jnp.roll(x[..., ::-1], 1, axis=-1)


def _folded(sums: Shaped[DenseArray, "... d"], n: int) -> Shaped[DenseArray, "... n"]:
    """Return sums along cyclic diagonals, from those along the diagonals of an n-by-n matrix."""
    if n == 0:
        return sums
    padding = [(0, 0)] * (sums.ndim - 1) + [(1, 0)]
    return sums[..., n - 1 :] + jnp.pad(sums[..., : n - 1], padding)
