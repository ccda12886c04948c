"""Block-diagonal matrices with blocks of any type."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
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
    Factor,
    Function,
    Matrixlike,
    Multiple,
    Natural,
    Places,
    Samples,
    Scalar,
    Shape,
)

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, conj_of_fields
from .._leaves import ARRAY_CLASSES, numpy_for
from .._register import register_array_type
from .._stack import Parts, Stack, each, summed
from .._table import fact
from ..cotangents._outer import Outer
from ..cotangents._scaled import Scaled, scaled
from ..maps._destructure import pullback_of_destructure, pushforward_of_destructure
from ..maps._restructure import pullback_of_restructure, pushforward_of_restructure
from ._diagonal import Diagonal
from ._symmetric import Symmetric


@register_array_type()
class BlockDiagonal(AbstractArray):
    """The matrix with `blocks` along its diagonal and zeros elsewhere.

    **Arguments:** `*blocks`, matrices (dense or structured, not necessarily square). For many
    blocks of one type and shape, `tj.BlockDiagonal.from_stack(array)` is faster.

    **Maps:** block by block; linear, isometric, injective if all blocks are.

    The field `blocks` is a tuple of matrices, or a sequence that stores them as one batch.
    """

    core_ndim = 2
    units = "*blocks: u -> u"
    conj = conj_of_fields

    blocks: tuple[Shaped[AnyArray, "_ _"], ...] | Stack = array_field(ndim=2)

    def __init__(self, *blocks: Matrixlike) -> None:
        for m in blocks:
            if type(m) not in ARRAY_CLASSES or len(m.shape) != 2:
                blocks = ask.matrices("BlockDiagonal", "block", blocks)
                break
        object.__setattr__(self, "blocks", blocks or ask.matrices("BlockDiagonal", "block", blocks))

    @classmethod
    def from_stack(cls, blocks: Shaped[AnyArray, "... blocks m n"]) -> Self:
        """Return the matrix with the matrices of one batch as blocks, stored as one array.

        **Arguments:** `blocks`: a dense `(blocks, m, n)`, or a batch of a structured type, such as
        `tj.Symmetric(x, definite=True)` with `x` of shape `(blocks, m, m)`. Axes before make a
        batch of block diagonal matrices.
        **Cost:** products, systems, determinants, inverses, factorisations, spectra and functions
        are one call for all blocks; a gradient has the leaves of one batch.
        **Raises:** `ShapeError` for a single matrix, and for a batch of none.
        """
        stack = ask.array(blocks)
        if getattr(stack, "has_unit", False):  # its unit stays outside
            return type(stack)(cls.from_stack(stack.stored), stack.label)
        if len(stack.shape) < 3 or stack.shape[-3] == 0:
            raise ShapeError(
                "BlockDiagonal.from_stack: `blocks` must be a batch of at least one matrix.\n"
                f"  got: {describe(stack)}\n"
                "Hint: blocks that are arrays of their own are arguments of `tj.BlockDiagonal`."
            )
        new = object.__new__(cls)
        object.__setattr__(new, "blocks", Stack(stack))
        return new

    def _kinds(self) -> Sequence[Shaped[AnyArray, "... _ _"]]:
        """Return the blocks, or the array of a stack in a tuple: enough to test their type."""
        return (self.blocks.array,) if isinstance(self.blocks, Stack) else self.blocks

    @property
    def is_linear(self) -> bool:
        return all(fact(b, "is_linear") for b in self._kinds())

    @property
    def is_isometric(self) -> bool:
        return all(fact(b, "is_isometric") for b in self._kinds())

    @property
    def is_injective(self) -> bool:
        return all(fact(b, "is_injective") for b in self._kinds())

    @property
    def block_shapes(self) -> list[Shape]:
        """The shape of every block."""
        if isinstance(self.blocks, Stack):
            return [self.blocks.shape[-2:]] * len(self.blocks)
        return [b.shape[-2:] for b in self.blocks]

    @property
    def has_square_blocks(self) -> bool:
        """True if every block is square: then the matrix's diagonal is that of its blocks."""
        return all(b.shape[-2] == b.shape[-1] for b in self._kinds())

    @property
    def shape(self) -> Shape:
        if isinstance(self.blocks, Stack):
            *batch, count, m, n = self.blocks.array.shape
            return (*batch, count * m, count * n)
        shapes = self.block_shapes
        return (*self.batch_shape, sum(s[-2] for s in shapes), sum(s[-1] for s in shapes))

    @property
    def dtype(self) -> DType:
        return jnp.result_type(*(b.dtype for b in self._kinds()))

    def slices(self) -> tuple[tuple[slice, slice], ...]:
        """Return the rows and columns of every block."""
        rows = list(accumulate((m for m, _ in self.block_shapes), initial=0))
        columns = list(accumulate((n for _, n in self.block_shapes), initial=0))
        row_slices = [slice(a, b) for a, b in pairwise(rows)]
        column_slices = [slice(a, b) for a, b in pairwise(columns)]
        return tuple(zip(row_slices, column_slices, strict=True))

    def each(self, function: Function, *parts: Parts) -> Shaped[AnyArray, "_ _"]:
        """Return the block diagonal matrix of `function(block, part, ...)`.

        A stack takes one call.

        **Arguments:** `parts`: one part per block, in a sequence, or in an array with a leading
        axis, such as `rows_of(x)`.
        """
        return self.replace(blocks=each(function, self.blocks, *parts))

    def rows_of(self, x: Shaped[DenseArray, " m *k"]) -> Parts:
        """Return the rows of `x` that belong to each block."""
        if isinstance(self.blocks, Stack):
            return x.reshape(self.blocks.length, self.blocks.shape[-2], *x.shape[1:])
        return [x[rows] for rows, _ in self.slices()]

    def columns_of(self, x: Shaped[DenseArray, " n *k"]) -> Parts:
        """Return the rows of `x` that belong to the columns of each block."""
        if isinstance(self.blocks, Stack):
            return x.reshape(self.blocks.length, self.blocks.shape[-1], *x.shape[1:])
        return [x[columns] for _, columns in self.slices()]

    def parts_of(self, natural: Natural) -> Parts:
        """Return the part of a matrix of this shape that each block covers."""
        if isinstance(self.blocks, Stack):
            # A stack of blocks covers a batch of parts, if the type of `natural` has one.
            count, (m, n) = self.blocks.length, self.blocks.shape
            if isinstance(natural, BlockDiagonal) and natural.block_shapes == self.block_shapes:
                return natural.blocks
            if isinstance(natural, Outer):
                return Stack(
                    natural.replace(
                        left=self.rows_of(natural.left), right=self.columns_of(natural.right)
                    )
                )
            if isinstance(natural, Diagonal) and self.has_square_blocks:
                return Stack(Diagonal(natural.diag.reshape(count, m)))
            if ask.is_dense(natural):
                i = numpy_for(count).arange(count)
                return natural.reshape(count, m, count, n)[i, :, i]
            return [ask.dense(ask.submatrix(natural, *place)) for place in self.slices()]
        return [ask.submatrix(natural, rows, columns) for rows, columns in self.slices()]

    @property
    def is_hermitian(self) -> bool:
        return all(map(ask.is_hermitian, self._kinds()))

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        scaled = Scaled(samples.normal(1, 2), samples.normal())
        return [
            cls(samples.normal(2, 1), Symmetric(samples.normal(2, 2))),
            cls(scaled, Diagonal(samples.normal(1))),
            cls(*(samples.normal(*shape) for shape in ((3, 1), (0, 1), (1, 2)))),
            cls.from_stack(samples.normal(2, 2, 1)),
            cls.from_stack(Symmetric(samples.normal(2, 2, 2))),
        ]

    def to_dense(self) -> Shaped[DenseArray, "... m n"]:
        if isinstance(self.blocks, Stack):
            count, (m, n) = self.blocks.length, self.blocks.shape
            i, blocks = numpy_for(count).arange(count), ask.dense(self.blocks.array)
            dense = jnp.zeros((count, m, count, n), self.dtype).at[i, :, i].set(blocks)
            return dense.reshape(self.shape)
        dense = jnp.zeros(self.shape, self.dtype)
        for block, (rows, columns) in zip(self.blocks, self.slices(), strict=True):
            dense = dense.at[..., rows, columns].set(ask.dense(block))
        return dense

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return self.each(lambda b, s: pushforward_of_destructure(b)(s), structural.blocks)

    def pullback_of_destructure(self, natural: Natural) -> Self:
        return self.each(lambda b, p: pullback_of_destructure(b)(p), self.parts_of(natural))

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        return self.each(lambda b, p: pushforward_of_restructure(b)(p), self.parts_of(natural))

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return self.each(lambda b, s: pullback_of_restructure(b)(s), structural.blocks)

    def scaled(self, factor: Factor) -> Multiple:
        return self.each(lambda b: scaled(b, factor))

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return _concatenated(each(ask.apply, self.blocks, self.columns_of(b)))

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.each(ask.transposed)

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        if self.has_square_blocks:
            return _concatenated(each(ask.diagonal, self.blocks))
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
        return summed(each(ask.total, self.blocks))

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
        return summed(each(ask.inner_product, self.blocks, self.parts_of(other)))


def _concatenated(parts: Sequence[Array] | Stack) -> Shaped[Array, " m *k"]:
    """Concatenate the rows of all parts."""
    if isinstance(parts, Stack):
        rows = parts.array
        return rows.reshape(rows.shape[0] * rows.shape[1], *rows.shape[2:])
    return jnp.concatenate(parts)


def _overlap(a: slice, b: slice) -> tuple[slice, slice] | None:
    """Return the intersection of two ranges, relative to the start of each; None if it is empty."""
    start, stop = max(a.start, b.start), min(a.stop, b.stop)
    shifted = lambda of: slice(start - of.start, stop - of.start)
    return (shifted(a), shifted(b)) if start < stop else None
