"""Kronecker products of any number of factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Shaped

from tanjax._typing import (
    AnyArray,
    DenseArray,
    DType,
    Factor,
    Matrix,
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
from .._leaves import ARRAY_CLASSES
from .._register import register_array_type
from .._table import array_type, is_own
from ..cotangents._outer import Outer
from ..cotangents._scaled import Scaled, scaled
from ..cotangents._sum import Sum, add
from ..maps import _defaults as default
from ..maps._destructure import pullback_of_destructure, pushforward_of_destructure
from ._diagonal import Diagonal
from ._symmetric import Symmetric


@register_array_type()
class Kronecker(AbstractArray):
    r"""`factors[0] ⊗ factors[1] ⊗ …`, never formed.

    **Arguments:** `*factors`, matrices (dense or structured); the first is the slowest index.

    **Maps:** the cotangent of one factor is the natural cotangent contracted with all others; for
    an `Outer` of width $k$ this costs $k$ products with the factors. The type is over-parametrised,
    and not a linear subspace: natural tangents are sums of one Kronecker term per factor.

    **References:** Van Loan 2000, "The ubiquitous Kronecker product".
    """

    core_ndim = 2
    units = "product"
    conj = conj_of_fields

    factors: tuple[Shaped[AnyArray, "_ _"], ...] = array_field(ndim=2)

    def __init__(self, *factors: Matrixlike) -> None:
        for m in factors:
            if type(m) not in ARRAY_CLASSES or len(m.shape) != 2:
                factors = ask.matrices("Kronecker", "factor", factors)
                break
        object.__setattr__(self, "factors", factors or ask.matrices("Kronecker", "factor", factors))

    @property
    def shape(self) -> Shape:
        shapes = [f.shape for f in self.factors]
        return (
            *self.batch_shape,
            math.prod(s[-2] for s in shapes),
            math.prod(s[-1] for s in shapes),
        )

    @property
    def dtype(self) -> DType:
        return jnp.result_type(*(f.dtype for f in self.factors))

    @property
    def _rows(self) -> list[int]:
        return [f.shape[-2] for f in self.factors]

    @property
    def _columns(self) -> list[int]:
        return [f.shape[-1] for f in self.factors]

    @property
    def is_hermitian(self) -> bool:
        return all(map(ask.is_hermitian, self.factors))

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [
            cls(samples.normal(2, 2), samples.normal(2, 1)),
            cls(Symmetric(samples.normal(2, 2)), Diagonal(samples.normal(2))),
            cls(samples.complex(1, 2), samples.complex(2, 1)),
        ]

    def to_dense(self) -> Shaped[DenseArray, "... m n"]:
        dense = ask.dense(self.factors[0])
        for factor in map(ask.dense, self.factors[1:]):
            product = dense[..., :, None, :, None] * factor[..., None, :, None, :]
            rows, columns = dense.shape[-2] * factor.shape[-2], dense.shape[-1] * factor.shape[-1]
            dense = product.reshape(*product.shape[:-4], rows, columns)
        return dense

    def _with(self, i: int, factor: Natural) -> Self:
        return self.replace(factors=(*self.factors[:i], factor, *self.factors[i + 1 :]))

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        pairs = zip(self.factors, structural.factors, strict=True)
        moved = [pushforward_of_destructure(f)(s) for f, s in pairs]
        return add(*(self._with(i, m) for i, m in enumerate(moved)))

    def pullback_of_destructure(self, natural: Natural) -> Self:
        bars = contract(self, natural)
        return self.replace(
            factors=tuple(
                pullback_of_destructure(f)(b) for f, b in zip(self.factors, bars, strict=True)
            )
        )

    def pullback_of_restructure(self, structural: Self) -> Natural:
        """For two real dense factors return a closed form; otherwise solve.

        The form is `(Ā/‖B‖² − sA/(‖A‖²‖B‖²)) ⊗ B + A ⊗ B̄/‖A‖²`.
        """
        if len(self.factors) != 2 or any(
            array_type(f) or jnp.iscomplexobj(f) for f in self.factors
        ):
            return default.pullback_of_restructure(self, structural)
        (a, b), (a_bar, b_bar) = self.factors, structural.factors
        norm_a, norm_b = jnp.sum(a * a), jnp.sum(b * b)
        over_a, over_b = _reciprocal(norm_a), _reciprocal(norm_b)
        hidden = (jnp.sum(a * a_bar) - jnp.sum(b * b_bar)) * _reciprocal(norm_a + norm_b)
        a_bar, b_bar = a_bar - hidden * a, b_bar + hidden * b
        shared = jnp.sum(a * a_bar) * over_a * over_b
        return Sum(self._with(0, a_bar * over_b - shared * a), self._with(1, b_bar * over_a))

    def scaled(self, factor: Factor) -> Multiple:
        return self._with(0, scaled(self.factors[0], factor))

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return self.along_axes(ask.apply, b)

    def along_axes(
        self, function: Callable[[Matrix, Array], Array], b: Shaped[DenseArray, " n *k"]
    ) -> Shaped[DenseArray, " m *k"]:
        """Apply `function(factor, matrix)` to the axis of `b` that belongs to each factor.

        `function` gets that axis as rows, and all others as columns.
        """
        tail = b.shape[1:]
        x = b.reshape(*self._columns, math.prod(tail))
        for axis in self.cheapest_order():
            x = _along(self.factors[axis], x, axis, function)
        return x.reshape(math.prod(self._rows), *tail)

    def cheapest_order(self, right: bool = False) -> list[int]:
        """Return the order of factors with the fewest multiplications, for `b @ self` if `right`.

        Take two neighbours with `m` by `n` and `p` by `q` entries. The first factor first costs
        `mnq + mpq`, the second first `pqn + pmn`, each times the same sizes. Division by `mnpq`
        shows that `1/n - 1/m` sorts them. Among equal factors, the first (the last if `right`)
        comes last: its result has the memory layout of the product, which saves a transpose.
        """

        def growth(i: int) -> float:
            m, n = self.factors[i].shape[-2:]
            return 0.0 if m == n else 1 / max(n, 1) - 1 / max(m, 1)

        places = range(len(self.factors))
        if right:
            return sorted(places, key=lambda i: -growth(i))
        return sorted(reversed(places), key=growth)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(factors=tuple(map(ask.transposed, self.factors)))

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        if self._rows != self._columns:
            return jnp.diagonal(self.to_dense())
        diag = ask.diagonal(self.factors[0])
        for factor in self.factors[1:]:
            diag = jnp.outer(diag, ask.diagonal(factor)).reshape(-1)
        return diag

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        places = (np.unravel_index(x, n) for x, n in ((rows, self._rows), (columns, self._columns)))
        parts = zip(self.factors, *places, strict=True)
        return _product(ask.entries_at(f, i, j) for f, i, j in parts)

    def total(self) -> Shaped[DenseArray, " ..."]:
        out = ask.total(self.factors[0])
        for factor in self.factors[1:]:
            out = out * ask.total(factor)
        return out

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        i = jnp.unravel_index(jnp.arange(math.prod(self._rows))[rows], self._rows)
        j = jnp.unravel_index(jnp.arange(math.prod(self._columns))[columns], self._columns)
        entries = zip(self.factors, i, j, strict=True)
        return _product(ask.dense(f)[p][:, q] for f, p, q in entries)

    def inner_product(self, other: Natural) -> Scalar:
        if isinstance(other, Kronecker) and (other._rows, other._columns) == (
            self._rows,
            self._columns,
        ):
            return _product(
                ask.inner_product(f, g) for f, g in zip(self.factors, other.factors, strict=True)
            )
        if is_own(other) and not isinstance(other, Outer):
            return ask.pairing(self, other)
        # A contraction with all factors except the first leaves one small pairing.
        return ask.inner_product(self.factors[0], contract(self, other, only=0)[0])


def _reciprocal(x: Array) -> Array:
    """Return `1 / x`, and 0 at 0: a zero factor spans no directions."""
    return jnp.where(x == 0, jnp.zeros_like(x), 1 / jnp.where(x == 0, jnp.ones_like(x), x))


def _product(values: Iterable[Array]) -> Array:
    out, *rest = values
    for value in rest:
        out = out * value
    return out


def _along(
    factor: Matrix,
    x: Shaped[Array, " ..."],
    axis: int,
    function: Callable[[Matrix, Array], Array] = ask.apply,
) -> Shaped[Array, " ..."]:
    """Multiply one axis of a tensor by a matrix."""
    moved = jnp.moveaxis(x, axis, 0)
    out = function(factor, _as_matrix(moved))
    return jnp.moveaxis(out.reshape(out.shape[0], *moved.shape[1:]), 0, axis)


def _as_matrix(tensor: Shaped[Array, "m ..."]) -> Shaped[Array, "m _"]:
    """Merge all axes except the first, without `-1`, which fails for empty arrays."""
    return tensor.reshape(tensor.shape[0], math.prod(tensor.shape[1:]))


def contract(x: Kronecker, natural: Matrix, only: int | None = None) -> list[Natural]:
    """Contract a natural cotangent with all factors except one, for every factor (or for one)."""
    wanted = range(len(x.factors)) if only is None else [only]
    if isinstance(natural, Kronecker) and (natural._rows, natural._columns) == (
        x._rows,
        x._columns,
    ):
        pairs = (
            {
                i: ask.inner_product(y, f)
                for i, (y, f) in enumerate(zip(natural.factors, x.factors, strict=True))
            }
            if len(x.factors) > 1
            else {}
        )
        found = []
        for i in wanted:
            others = [p for j, p in pairs.items() if j != i]
            factor = natural.factors[i]
            found.append(scaled(factor, _product(others)) if others else factor)
        return found
    if isinstance(natural, Scaled):
        return [scaled(b, natural.factor) for b in contract(x, natural.matrix, only)]
    if isinstance(natural, Sum):
        parts = [contract(x, term, only) for term in natural.terms]
        return [add(*same) for same in zip(*parts, strict=True)]
    if isinstance(natural, Outer):
        return [_contract_outer(x, natural, i) for i in wanted]
    query, places, values = ask.as_query(natural)
    if query == "diagonal" and x._rows == x._columns:
        return [_contract_diagonal(x, values, i) for i in wanted]
    if query == "entries_at":
        return [_contract_entries(x, places, values, i) for i in wanted]
    return [_contract_dense(x, ask.dense(natural), i) for i in wanted]


def _contract_outer(x: Kronecker, natural: Outer, i: int) -> Shaped[Array, "_ _"]:
    width = natural.left.shape[1]
    right = natural.right.reshape(*x._columns, width)
    for axis, factor in enumerate(x.factors):
        if axis != i:
            right = _along(factor, right, axis)
    left = jnp.moveaxis(natural.left.reshape(*x._rows, width), i, 0)
    return _as_matrix(left) @ _as_matrix(jnp.moveaxis(right, i, 0)).T


def _contract_diagonal(x: Kronecker, diag: Shaped[Array, " n"], i: int) -> Diagonal:
    rest = jnp.moveaxis(diag.reshape(x._rows), i, 0)
    for j in reversed([j for j in range(len(x.factors)) if j != i]):
        rest = rest @ ask.diagonal(x.factors[j])
    return Diagonal(rest)


def _contract_entries(
    x: Kronecker, places: tuple[DenseArray | np.ndarray, ...], values: Shaped[Array, " p"], i: int
) -> Shaped[Array, "_ _"]:
    rows, columns = map(np.unravel_index, places, (x._rows, x._columns))
    at = list(zip(rows, columns, strict=True))
    for j, factor in enumerate(x.factors):
        if j != i:
            values = values * ask.entries_at(factor, *at[j])
    return jnp.zeros(x.factors[i].shape, values.dtype).at[at[i]].add(values)


def _contract_dense(x: Kronecker, dense: Shaped[Array, "m n"], i: int) -> Shaped[Array, "_ _"]:
    count = len(x.factors)
    tensor = dense.reshape(*x._rows, *x._columns)
    operands: list[Array | list[int]] = [tensor, list(range(2 * count))]
    for j, factor in enumerate(x.factors):
        if j != i:
            operands += [ask.dense(factor), [j, count + j]]
    return jnp.einsum(*operands, [i, count + i])
