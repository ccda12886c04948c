"""Tridiagonal matrices, and what they share with symmetric ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Shaped

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
from .._abstract import AbstractArray, array_field, canonical_field, set_fields
from .._places import band_places, gather_where
from .._register import register_array_type


@register_array_type(linear=True, isometric=True, injective=True)
class Tridiagonal(AbstractArray):
    r"""The matrix with `lower`, `diag` and `upper` on its three middle diagonals, zeros elsewhere.

    **Arguments:** `lower`, shape `(n - 1,)`, entry `i` at row `i + 1` and column `i`; `diag`, shape
    `(n,)`; `upper`, shape `(n - 1,)`, entry `i` at row `i` and column `i + 1`. One dtype, to which
    all are promoted; one unit.

    **Maps:** isometric; $J^\top Y$ reads three diagonals. **Raises:** `ShapeError` if the lengths
    do not fit.

    >>> Tridiagonal([1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0]).to_dense().tolist()
    [[3.0, 6.0, 0.0], [1.0, 4.0, 7.0], [0.0, 2.0, 5.0]]
    """

    core_ndim = 2
    units = "lower: u, diag: u, upper: u -> u"
    fields_are_entries = True

    lower: Shaped[Array, " m"] = array_field(ndim=1)
    diag: Shaped[Array, " n"] = array_field(ndim=1)
    upper: Shaped[Array, " m"] = array_field(ndim=1)

    def __post_init__(self) -> None:
        check_lengths(self, "lower", "upper")

    @property
    def shape(self) -> Shape:
        shape = self.diag.shape
        return shape + shape[-1:]

    @property
    def dtype(self) -> DType:
        return self.diag.dtype

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [
            cls(samples.normal(3), samples.normal(4), samples.normal(3)),
            cls(samples.complex(1), samples.complex(2), samples.complex(1)),
        ]

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        return three_diagonals(self.lower, self.diag, self.upper)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return structural

    def pullback_of_destructure(self, natural: Natural) -> Self:
        lower, diag, upper = (ask.off_diagonal(natural, k) for k in (-1, 0, 1))
        return self.replace(lower=lower, diag=diag, upper=upper)

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self.pullback_of_destructure(natural)

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return structural

    def as_query(self) -> Query | None:
        return band_query(self, (-1, 0, 1))

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return three_products(self.lower, self.diag, self.upper, b)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(lower=self.upper, upper=self.lower)

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return self.diag

    def off_diagonal(self, offset: int) -> Shaped[DenseArray, "... k"]:
        fields = {-1: self.lower, 0: self.diag, 1: self.upper}
        return fields[offset] if offset in fields else no_entries(self.diag, offset)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return entries_of_three(self.lower, self.diag, self.upper, rows, columns)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self.diag) + jnp.sum(self.lower) + jnp.sum(self.upper)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        if rows != columns:
            return band_block(self, (-1, 0, 1), rows, columns)
        diag, off = principal(self, rows)
        return Tridiagonal(self.lower[off], self.diag[diag], self.upper[off])

    def inner_product(self, other: Natural) -> Scalar:
        fields = ((-1, self.lower), (0, self.diag), (1, self.upper))
        return sum(jnp.sum(mine * ask.off_diagonal(other, k)) for k, mine in fields)


def band_query(x: AbstractArray, offsets: Iterable[int]) -> Query | None:
    """`⟨x, D⟩` reads `D` at the places of the band."""
    if x.ndim != 2:
        return None
    places = band_places(x.shape, *offsets)
    return "entries_at", places, jnp.concatenate([x.off_diagonal(k) for k in offsets])


def check_lengths(x: AbstractArray, *names: str) -> None:
    """Fields of one dtype, `diag` with `n` entries and the others with `n - 1`, or `ShapeError`."""
    fields = {name: canonical_field(x, name, 1) for name in ("diag", *names)}
    diag, expected = fields["diag"], max(fields["diag"].shape[0] - 1, 0)
    for name in names:
        if fields[name].shape[0] != expected:
            raise ShapeError(
                f"{type(x).__name__}: `{name}` must have one entry less than `diag`, {expected}.\n"
                f"  got: {describe(fields[name])} and {describe(diag)}"
            )
    if any(value.dtype != diag.dtype for value in fields.values()):
        dtype = jnp.result_type(*fields.values())
        set_fields(x, **{name: value.astype(dtype) for name, value in fields.items()})


def three_diagonals(
    lower: Shaped[Array, "... m"], diag: Shaped[Array, "... n"], upper: Shaped[Array, "... m"]
) -> Shaped[Array, "... n n"]:
    """The dense matrix, or a batch of them."""
    i = jnp.arange(diag.shape[-1])
    dense = jnp.zeros((*diag.shape, diag.shape[-1]), diag.dtype).at[..., i, i].set(diag)
    i = i[1:]
    return dense.at[..., i, i - 1].set(lower).at[..., i - 1, i].set(upper)


def entries_of_three(
    lower: Shaped[Array, "... m"],
    diag: Shaped[Array, "... n"],
    upper: Shaped[Array, "... m"],
    rows: Places,
    columns: Places,
) -> Shaped[DenseArray, "... p"]:
    """The entries at places, from three diagonals that lie behind each other."""
    offsets, m = columns - rows, lower.shape[-1]
    starts = np.select([offsets == 0, offsets == 1], [m, m + diag.shape[-1]], 0)
    at = starts + np.minimum(rows, columns)
    return gather_where(abs(offsets) <= 1, jnp.concatenate([lower, diag, upper], -1), at)


def three_products(
    lower: Shaped[Array, " m"],
    diag: Shaped[Array, " n"],
    upper: Shaped[Array, " m"],
    b: Shaped[DenseArray, " n *k"],
) -> Shaped[DenseArray, " n *k"]:
    """The product with a vector or a matrix: three shifted multiples, in one pass."""
    if b.ndim == 2:
        lower, diag, upper = lower[:, None], diag[:, None], upper[:, None]
    rest = [(0, 0)] * (b.ndim - 1)
    below = jnp.pad(lower * b[:-1], [(min(1, b.shape[0]), 0), *rest])
    return diag * b + below + jnp.pad(upper * b[1:], [(0, min(1, b.shape[0])), *rest])


def no_entries(diag: Shaped[Array, "... n"], offset: int) -> Shaped[Array, "... k"]:
    """The zeros on a diagonal outside of the band."""
    return jnp.zeros_like(diag[..., abs(offset) :])


def principal(x: AbstractArray, rows: slice) -> tuple[slice, slice]:
    """The entries of the diagonal, and of its neighbours, in a principal sub-matrix."""
    start, stop, _ = rows.indices(x.shape[-1])
    return slice(start, stop), slice(start, max(stop - 1, start))


def band_block(
    x: AbstractArray, offsets: Iterable[int], rows: slice, columns: slice
) -> Shaped[Array, "m n"]:
    """Any other sub-matrix, dense: every entry is looked up on its diagonal."""
    (r, r_end, _), (c, c_end, _) = (part.indices(x.shape[-1]) for part in (rows, columns))
    i, j = jnp.arange(r, r_end)[:, None], jnp.arange(c, c_end)
    block = jnp.zeros((max(r_end - r, 0), max(c_end - c, 0)), x.dtype)
    for offset in offsets:
        entries = x.off_diagonal(offset)
        if entries.shape[0]:
            found = entries[jnp.clip(jnp.minimum(i, j), 0, entries.shape[0] - 1)]
            block = jnp.where(j - i == offset, found, block)
    return block
