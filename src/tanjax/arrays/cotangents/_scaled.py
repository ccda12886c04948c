"""A matrix times a number, both free: the over-parametrised example."""

from __future__ import annotations

from typing import Self

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

from tanjax._typing import (
    AnyArray,
    DenseArray,
    DType,
    Factor,
    LinearTerms,
    Multiple,
    Natural,
    Places,
    Samples,
    Scalar,
    Shape,
    Structural,
)

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, canonical_field, conj_of_fields, set_fields
from .._densify import densified
from .._leaves import is_inexact
from .._register import register_array_type
from .._table import array_type, is_own
from ..maps import _defaults as default
from ..maps._destructure import pullback_of_destructure, pushforward_of_destructure
from ..types._symmetric import Symmetric
from ._sum import add


@register_array_type()
class Scaled(AbstractArray):
    r"""`factor * matrix`, with both as fields.

    **Fields:** `matrix`, dense or structured; `factor`, a scalar.

    **Maps:** $J^\top Y$ = ($\alpha Y$ pulled back to the matrix, $\langle V, Y\rangle$). The type
    is over-parametrised: a cotangent is visible iff
    $\alpha\bar\alpha = \langle V, \bar V\rangle$. Natural cotangents have the type of the inner
    matrix.
    """

    core_ndim = 2
    units = "matrix: u, factor: v -> u*v"
    conj = conj_of_fields

    matrix: Shaped[AnyArray, "*shape"] = array_field(ndim=2)
    factor: Shaped[Array, ""] = array_field(ndim=0)

    def __post_init__(self) -> None:
        if array_type(self.matrix) is None:
            set_fields(self, matrix=ask.array(self.matrix))
        canonical_field(self, "factor", 0)

    @property
    def shape(self) -> Shape:
        core = self.matrix.shape
        return (*self.batch_shape, *core[max(0, len(core) - 2) :])

    @property
    def dtype(self) -> DType:
        return jnp.result_type(self.matrix.dtype, self.factor)  # a Python number is weak

    def _factor_like(self, dense: Array) -> Array:
        return self.factor.reshape(self.factor.shape + (1,) * (dense.ndim - self.factor.ndim))

    @property
    def is_hermitian(self) -> bool:
        return not jnp.iscomplexobj(self.factor) and ask.is_hermitian(self.matrix)

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [
            cls(samples.normal(2, 3), samples.normal()),
            cls(Symmetric(samples.normal(2, 2)), samples.normal()),
            cls(samples.complex(2, 2), samples.complex()),
        ]

    def to_dense(self) -> Shaped[DenseArray, " ..."]:
        dense = ask.dense(self.matrix)
        return dense * self._factor_like(dense)

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        moved = pushforward_of_destructure(self.matrix)(structural.matrix)
        return add(scaled(moved, self.factor), scaled(self.matrix, structural.factor))

    def pullback_of_destructure(self, natural: Natural) -> Self:
        pull = pullback_of_destructure(self.matrix)
        if jnp.iscomplexobj(self.factor):  # only a real factor commutes with the pullback
            matrix_bar = pull(scaled(natural, self.factor))
        else:
            scale = lambda leaf: leaf * self.factor if is_inexact(leaf) else leaf
            matrix_bar = jax.tree.map(scale, pull(natural))
        return self.replace(matrix=matrix_bar, factor=ask.inner_product(natural, self.matrix))

    def pullback_of_restructure(self, structural: Self) -> Natural:
        """Return `v̄⊥/α + v ⟨v, αv̄ + ᾱv⟩ / (‖v‖² (α² + ‖v‖²))`, of least norm, also for `α = 0`."""
        kind = array_type(self.matrix)
        plain = kind is None or (kind.is_isometric(self.matrix) and kind.is_linear(self.matrix))
        if not plain or any(map(jnp.iscomplexobj, jax.tree.leaves(self))):
            return default.pullback_of_restructure(self, structural)
        # canonical fields: the transpose, J⁺, then has no part that the matrix hides
        v, v_bar = self.matrix, ask.canonical(structural.matrix)
        alpha, alpha_bar = self.factor, structural.factor
        norm2, along = _dot(v, v), _dot(v, v_bar)
        share = along / _nonzero(norm2)  # v̄ = share * v + v̄⊥
        beta = (alpha * along + alpha_bar * norm2) / _nonzero(norm2 * (alpha**2 + norm2))
        inverse = jnp.where(alpha == 0, 0, 1 / _nonzero(alpha))
        combine = lambda c, p: (c - share * p) * inverse + beta * p if is_inexact(p) else p
        return jax.tree.map(combine, v_bar, v)

    def linear_terms(self) -> LinearTerms | None:
        # A complex factor stays inside: the fields that take the pullback may be real.
        return None if jnp.iscomplexobj(self.factor) else ((self.factor, self.matrix),)

    def scaled(self, factor: Factor) -> Multiple:
        return self.replace(factor=self.factor * factor)

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return self.factor * ask.apply(self.matrix, b)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(matrix=ask.transposed(self.matrix))

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return self.factor * ask.diagonal(self.matrix)

    def off_diagonal(self, offset: int) -> Shaped[DenseArray, "... k"]:
        return self.factor * ask.off_diagonal(self.matrix, offset)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return self.factor * ask.entries_at(self.matrix, rows, columns)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return self.factor * ask.total(self.matrix)

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        return self.replace(matrix=ask.submatrix(self.matrix, rows, columns))

    def inner_product(self, other: Natural) -> Scalar:
        return self.factor * ask.inner_product(self.matrix, other)


def _dot(a: Structural, b: Structural) -> Scalar | int:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return sum(jnp.sum(x * y) for x, y in pairs if is_inexact(x))


def _nonzero(x: Scalar | int) -> Scalar:
    return jnp.where(x == 0, jnp.ones_like(x), x)


def scaled(x: Shaped[AnyArray, "*shape"], factor: Factor) -> Shaped[AnyArray, "*shape"]:
    """Return `factor * x` for a scalar: in a type that can express it, else a lazy `Scaled`."""
    if ask.is_dense(x):
        return jnp.asarray(x) * factor
    if not is_own(x):
        hint = "convert it with `tj.destructure` if a dense result is meant"
        return densified(x, "multiply", hint) * factor
    multiple = x.scaled(factor)
    if multiple is not NotImplemented:
        return multiple
    return Scaled(x, jnp.asarray(factor, jnp.result_type(x.dtype, factor)))
