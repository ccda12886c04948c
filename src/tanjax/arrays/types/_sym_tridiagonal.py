"""Symmetric tridiagonal matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import PyTree, Shaped

from tanjax._errors import RegistrationError
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
from .._abstract import AbstractArray, array_field, set_fields, static_field
from .._free_forms import FreeForm, of_real_parts, real_parts
from .._register import register_array_type
from .._show import show
from ._tridiagonal import (
    band_block,
    band_query,
    check_lengths,
    entries_of_three,
    no_entries,
    principal,
    three_diagonals,
    three_products,
)


@register_array_type(linear=True, injective=True)
class SymTridiagonal(AbstractArray):
    r"""The symmetric matrix with `diag` on its diagonal and `off` on both neighbours of it.

    **Arguments:** `diag`, shape `(n,)`; `off`, shape `(n - 1,)`. One dtype, to which both are
    promoted; one unit. A complex matrix is symmetric, not Hermitian. `definite=True` promises that
    the matrix is positive definite: systems with it need no row exchanges. If the promise is
    broken, a result is nan, or that without the promise. Tangents do not inherit the promise.

    **Maps:** every entry of `off` is at two places: $J^\top Y$ is their sum, and the natural
    cotangent has half of it at each. **Raises:** `ShapeError` if the lengths do not fit.

    >>> SymTridiagonal([1.0, 2.0], [3.0]).to_dense().tolist()
    [[1.0, 3.0], [3.0, 2.0]]
    """

    core_ndim = 2
    units = "diag: u, off: u -> u"
    fields_are_entries = True

    diag: Shaped[Array, " n"] = array_field(ndim=1)
    off: Shaped[Array, " m"] = array_field(ndim=1)
    definite: bool = static_field(default=False)

    def __post_init__(self) -> None:
        check_lengths(self, "off")
        set_fields(self, definite=bool(self.definite))
        if self.definite and jnp.iscomplexobj(self.diag):
            raise RegistrationError(
                "SymTridiagonal: a complex symmetric matrix is not definite.\n"
                "Hint: use `tj.Tridiagonal`, or `tj.Hermitian(data, definite=True)`."
            )

    @property
    def shape(self) -> Shape:
        shape = self.diag.shape
        return shape + shape[-1:]

    @property
    def dtype(self) -> DType:
        return self.diag.dtype

    @property
    def is_hermitian(self) -> bool:
        return ask.is_real(self)

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [
            cls(samples.normal(4), samples.normal(3)),
            cls(samples.complex(2), samples.complex(1)),
            cls(3 + samples.positive(3), samples.normal(2) / 2, definite=True),
        ]

    def __repr__(self) -> str:
        flag = ", definite=True" if self.definite else ""
        return f"SymTridiagonal(diag={show(self.diag)}, off={show(self.off)}{flag})"

    def to_dense(self) -> Shaped[DenseArray, "... n n"]:
        return three_diagonals(self.off, self.diag, self.off)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        return ask.without_promise(structural)

    def pullback_of_destructure(self, natural: Natural) -> Self:
        off = ask.off_diagonal(natural, 1) + ask.off_diagonal(natural, -1)
        return self.replace(diag=ask.off_diagonal(natural, 0), off=off)

    def pushforward_of_restructure(self, natural: Natural) -> Self:
        moved = self.pullback_of_destructure(natural)
        return moved.replace(off=moved.off / 2)

    def pullback_of_restructure(self, structural: Self) -> Natural:
        return ask.without_promise(structural).replace(off=structural.off / 2)

    def as_query(self) -> Query | None:
        return band_query(self, (-1, 0, 1))

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return three_products(self.off, self.diag, self.off, b)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return self.diag

    def off_diagonal(self, offset: int) -> Shaped[DenseArray, "... k"]:
        if offset == 0:
            return self.diag
        return self.off if abs(offset) == 1 else no_entries(self.diag, offset)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return entries_of_three(self.off, self.diag, self.off, rows, columns)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return jnp.sum(self.diag) + 2 * jnp.sum(self.off)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        if rows != columns:
            return band_block(self, (-1, 0, 1), rows, columns)
        diag, off = principal(self, rows)
        return SymTridiagonal(self.diag[diag], self.off[off])

    def inner_product(self, other: Natural) -> Scalar:
        beside = ask.off_diagonal(other, -1) + ask.off_diagonal(other, 1)
        return jnp.sum(self.diag * ask.off_diagonal(other, 0)) + jnp.sum(self.off * beside)

    def free_form(self, positive: bool) -> FreeForm | None:
        if positive or self.definite:
            return _cholesky_form(self)
        count = 2 if jnp.iscomplexobj(self.diag) else 1

        def write(parts: Sequence[Array]) -> SymTridiagonal:
            return self.replace(diag=of_real_parts(parts[:count]), off=of_real_parts(parts[count:]))

        return FreeForm(lambda x: [*real_parts(x.diag), *real_parts(x.off)], write)


def _cholesky_form(a: SymTridiagonal) -> FreeForm | None:
    r"""The form of a positive definite matrix $L L^\top$: $\log L_{ii}$, and $L_{i+1,i}$.

    The Jacobian of $d_i = L_{ii}^2 + L_{i,i-1}^2$ and $e_i = L_{ii} L_{i+1,i}$ is triangular, with
    $2 L_{ii}^2$ and $L_{ii}$ on its diagonal.
    """
    if jnp.iscomplexobj(a.diag):
        return None
    n, batch = a.diag.shape[-1], a.diag.shape[:-1]

    def read(x: SymTridiagonal) -> list[Array]:
        def step(before: Array, row: PyTree) -> PyTree:
            diag, off = row
            root = jnp.sqrt(diag - before**2)
            return off / root, (root, off / root)

        rows = (jnp.moveaxis(y, -1, 0) for y in (x.diag, _padded(x.off, n)))
        first = jnp.zeros_like(jnp.sum(x.diag, axis=-1))
        roots, beside = (jnp.moveaxis(y, 0, -1) for y in lax.scan(step, first, tuple(rows))[1])
        return [jnp.log(roots), beside[..., : max(n - 1, 0)]]

    def write(parts: Sequence[Array]) -> SymTridiagonal:
        roots, beside = jnp.exp(parts[0]), parts[1]
        below = _padded(beside[..., ::-1], n)[..., ::-1]
        return a.replace(diag=roots**2 + below**2, off=roots[..., : max(n - 1, 0)] * beside)

    weights = np.full(n, 3.0) - (np.arange(n) == n - 1)
    return FreeForm(read, write, weights, n * math.log(2) * math.prod(batch))


def _padded(x: Shaped[AnyArray, "... m"], n: int) -> Shaped[Array, "... n"]:
    """Return the numbers with zeros behind them."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n - x.shape[-1])])
