"""Block-diagonal matrices with blocks of any type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from typing import Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree, Shaped

from tanjax._typing import (
    AnyArray,
    DenseArray,
    DType,
    Factor,
    Matrixlike,
    Multiple,
    Natural,
    Places,
    Primal,
    Samples,
    Scalar,
    Shape,
)

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, conj_of_fields
from .._leaves import ARRAY_CLASSES
from .._register import register_array_type
from .._table import fact
from ..cotangents._scaled import Scaled, scaled
from ..maps._destructure import pullback_of_destructure, pushforward_of_destructure
from ..maps._restructure import pullback_of_restructure, pushforward_of_restructure
from ._diagonal import Diagonal
from ._symmetric import Symmetric


@register_array_type()
class BlockDiagonal(AbstractArray):
    """The matrix with `blocks` along its diagonal and zeros elsewhere.

    **Arguments:** `*blocks`, matrices (dense or structured, not necessarily square).

    **Maps:** block by block; linear, isometric, injective if all blocks are.
    """

    core_ndim = 2
    units = "*blocks: u -> u"
    conj = conj_of_fields

    blocks: tuple[Shaped[AnyArray, "_ _"], ...] = array_field(ndim=2)

    def __init__(self, *blocks: Matrixlike) -> None:
        for m in blocks:
            if type(m) not in ARRAY_CLASSES or len(m.shape) != 2:
                blocks = ask.matrices("BlockDiagonal", "block", blocks)
                break
        object.__setattr__(self, "blocks", blocks or ask.matrices("BlockDiagonal", "block", blocks))

    @property
    def is_linear(self) -> bool:
        return all(fact(b, "is_linear") for b in self.blocks)

    @property
    def is_isometric(self) -> bool:
        return all(fact(b, "is_isometric") for b in self.blocks)

    @property
    def is_injective(self) -> bool:
        return all(fact(b, "is_injective") for b in self.blocks)

    @property
    def shape(self) -> Shape:
        shapes = [b.shape for b in self.blocks]
        return (*self.batch_shape, sum(s[-2] for s in shapes), sum(s[-1] for s in shapes))

    @property
    def dtype(self) -> DType:
        return jnp.result_type(*(b.dtype for b in self.blocks))

    def slices(self) -> tuple[tuple[slice, slice], ...]:
        """The rows and columns of every block."""
        rows = list(accumulate((b.shape[-2] for b in self.blocks), initial=0))
        columns = list(accumulate((b.shape[-1] for b in self.blocks), initial=0))
        row_slices = [slice(a, b) for a, b in pairwise(rows)]
        column_slices = [slice(a, b) for a, b in pairwise(columns)]
        return tuple(zip(row_slices, column_slices, strict=True))

    @property
    def is_hermitian(self) -> bool:
        return all(map(ask.is_hermitian, self.blocks))

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        scaled = Scaled(samples.normal(1, 2), samples.normal())
        return [
            cls(samples.normal(2, 1), Symmetric(samples.normal(2, 2))),
            cls(scaled, Diagonal(samples.normal(1))),
            cls(*(samples.normal(*shape) for shape in ((3, 1), (0, 1), (1, 2)))),
        ]

    def to_dense(self) -> Shaped[DenseArray, "... m n"]:
        dense = jnp.zeros(self.shape, self.dtype)
        for block, (rows, columns) in zip(self.blocks, self.slices(), strict=True):
            dense = dense.at[..., rows, columns].set(ask.dense(block))
        return dense

    def _each(
        self,
        function: Callable[[Primal], Callable[[PyTree], PyTree]],
        parts: Iterable[PyTree],
    ) -> Self:
        return self.replace(
            blocks=tuple(function(b)(p) for b, p in zip(self.blocks, parts, strict=True))
        )

    def _split(self, natural: Natural) -> list[Shaped[AnyArray, "_ _"]]:
        return [ask.submatrix(natural, rows, columns) for rows, columns in self.slices()]

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return self._each(pushforward_of_destructure, structural.blocks)

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self._each(pullback_of_destructure, self._split(natural))

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self._each(pushforward_of_restructure, self._split(natural))

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return self._each(pullback_of_restructure, structural.blocks)

    def scaled(self, factor: Factor) -> Multiple:
        return self.replace(blocks=tuple(scaled(b, factor) for b in self.blocks))

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        parts = [
            ask.apply(block, b[columns])
            for block, (_, columns) in zip(self.blocks, self.slices(), strict=True)
        ]
        return jnp.concatenate(parts)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(blocks=tuple(map(ask.transposed, self.blocks)))

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        if all(b.shape[-1] == b.shape[-2] for b in self.blocks):
            return jnp.concatenate([ask.diagonal(b) for b in self.blocks])
        places = np.arange(min(self.shape[-2:]))
        return self.entries_at(places, places)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        found = jnp.zeros((*self.shape[:-2], len(rows)), self.dtype)
        for block, (of_rows, of_columns) in zip(self.blocks, self.slices(), strict=True):
            i, j = rows - of_rows.start, columns - of_columns.start
            inside = (i >= 0) & (j >= 0) & (rows < of_rows.stop) & (columns < of_columns.stop)
            if inside.any():
                entries = ask.entries_at(block, i[inside], j[inside]).astype(found.dtype)
                found = found.at[..., np.flatnonzero(inside)].set(entries)
        return found

    def total(self) -> Shaped[DenseArray, " ..."]:
        return sum(map(ask.total, self.blocks[1:]), ask.total(self.blocks[0]))

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        if (rows, columns) in self.slices():
            return self.blocks[self.slices().index((rows, columns))]
        found = jnp.zeros((rows.stop - rows.start, columns.stop - columns.start), self.dtype)
        for block, of in zip(self.blocks, self.slices(), strict=True):
            i, j = map(_overlap, of, (rows, columns))
            if i and j:
                part = ask.dense(ask.submatrix(block, i[0], j[0])).astype(found.dtype)
                found = found.at[i[1], j[1]].set(part)
        return found

    def inner_product(self, other: Natural) -> Scalar:
        terms = [
            ask.inner_product(b, p) for b, p in zip(self.blocks, self._split(other), strict=True)
        ]
        return sum(terms[1:], terms[0])


def _overlap(a: slice, b: slice) -> tuple[slice, slice] | None:
    """What two ranges have in common, counted from the start of each."""
    start, stop = max(a.start, b.start), min(a.stop, b.stop)
    shifted = lambda of: slice(start - of.start, stop - of.start)
    return (shifted(a), shifted(b)) if start < stop else None
