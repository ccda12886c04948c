"""Matrices of low rank, as two thin factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

from tanjax._errors import ShapeError, describe
from tanjax._typing import (
    AnyArray,
    DenseArray,
    DType,
    Factor,
    Multiple,
    Natural,
    Places,
    Query,
    Samples,
    Scalar,
    Shape,
)

from .._abstract import AbstractArray, array_field, canonical_field, conj_of_fields, set_fields
from .._register import register_array_type
from ..cotangents._outer import Outer
from ..cotangents._sum import add
from ..maps import _defaults as default


@register_array_type()
class LowRank(AbstractArray):
    r"""`u @ v.T`, with `u` of shape `(m, r)` and `v` of shape `(n, r)`.

    **Maps:** $J^\top Y = (YV, Y^\top U)$. The type is over-parametrised: $(UG, VG^{-\top})$ is the
    same matrix. A cotangent is visible iff $U^\top\bar U = \bar V^\top V$. The matrices of rank $r$
    are not a subspace: natural (co)tangents are `Outer`s and sums of them, never a `LowRank`.
    """

    core_ndim = 2
    units = "u: u, v: v -> u*v"
    conj = conj_of_fields

    u: Shaped[Array, "m r"] = array_field(ndim=2)
    v: Shaped[Array, "n r"] = array_field(ndim=2)

    def __post_init__(self) -> None:
        u, v = canonical_field(self, "u", 2), canonical_field(self, "v", 2)
        if u.shape[1] != v.shape[1]:
            raise ShapeError(
                "LowRank: `u` (m, r) and `v` (n, r) must have the same number of columns.\n"
                f"  got: {describe(u)} and {describe(v)}"
            )

    @property
    def shape(self) -> Shape:
        return (*self.u.shape[:-1], self.v.shape[-2])

    @property
    def dtype(self) -> DType:
        return jnp.result_type(self.u, self.v)

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [
            cls(samples.normal(3, 2), samples.normal(4, 2)),
            cls(samples.complex(2, 1), samples.complex(2, 1)),
        ]

    @property
    def _outer(self) -> Shaped[Outer, "... m n"]:
        """The same matrix as an `Outer`, without a look at the factors."""
        outer: Outer = object.__new__(Outer)
        set_fields(outer, left=self.u, right=self.v)
        return outer

    def to_dense(self) -> Shaped[DenseArray, "... m n"]:
        return self._outer.to_dense()

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        # One `Outer` would hold a product of two tangents, which JAX cannot transpose.
        return add(Outer(structural.u, self.v), Outer(self.u, structural.v))

    def pullback_of_destructure(self, natural: Natural) -> Self:
        found = self._outer.pullback_of_destructure(natural)
        return self.replace(u=found.left, v=found.right)

    def pullback_of_restructure(self, structural: Self) -> Natural:
        """Remove the hidden part `(UH, −VHᵀ)`; return `U Gᵤ⁻¹ V̄ᵀ + (Ū − U Gᵤ⁻¹ UᵀŪ) Gᵥ⁻¹ Vᵀ`."""
        if jnp.iscomplexobj(self.u) or jnp.iscomplexobj(self.v):
            return default.pullback_of_restructure(self, structural)
        u, v, u_bar, v_bar = self.u, self.v, structural.u, structural.v
        gram_u, gram_v = u.T @ u, v.T @ v
        h = _sylvester(gram_u, gram_v, u.T @ u_bar - v_bar.T @ v)
        u_bar, v_bar = u_bar - u @ h, v_bar + v @ h.T
        basis = u @ jnp.linalg.pinv(gram_u, hermitian=True)
        rest = (u_bar - basis @ (u.T @ u_bar)) @ jnp.linalg.pinv(gram_v, hermitian=True)
        return Outer(jnp.concatenate([basis, rest], 1), jnp.concatenate([v_bar, v], 1))

    def scaled(self, factor: Factor) -> Multiple:
        return self.replace(u=self.u * factor)

    def as_query(self) -> Query | None:
        return self._outer.as_query()

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return self._outer.apply(b)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        return self.replace(u=self.v, v=self.u)

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return self._outer.diagonal()

    def off_diagonal(self, offset: int) -> Shaped[DenseArray, "... k"]:
        return self._outer.off_diagonal(offset)

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return self._outer.entries_at(rows, columns)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return self._outer.total()

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        return self.replace(u=self.u[rows], v=self.v[columns])

    def inner_product(self, other: Natural) -> Scalar:
        return self._outer.inner_product(other)


def _sylvester(
    g: Shaped[Array, "r r"], k: Shaped[Array, "r r"], right: Shaped[Array, "r r"]
) -> Shaped[Array, "r r"]:
    """Solve `g h + h k = right` for symmetric positive semidefinite `g`, `k`, in `O(r³)`.

    JAX treats it as a linear solve in `right`, and does not differentiate the eigenvectors.
    """

    def solve(_: Callable[[Array], Array], r: Shaped[Array, "r r"]) -> Shaped[Array, "r r"]:
        (a, p), (b, q) = jnp.linalg.eigh(g), jnp.linalg.eigh(k)
        sums = a[:, None] + b[None, :]
        floor = jnp.max(jnp.abs(sums), initial=0) * jnp.finfo(sums.dtype).eps * 8
        safe = jnp.where(sums > floor, sums, jnp.ones_like(sums))
        core = p.T @ r @ q
        return p @ jnp.where(sums > floor, core / safe, jnp.zeros_like(core)) @ q.T

    return jax.lax.custom_linear_solve(lambda h: g @ h + h @ k, right, solve, symmetric=True)
