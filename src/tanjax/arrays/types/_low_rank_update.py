"""Any matrix plus a low-rank term."""

from __future__ import annotations

from fractions import Fraction
from typing import Self

import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped

from tanjax._errors import ShapeError, describe, incompatible
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
)
from tanjax.units import Unit, one

from .. import _queries as ask
from .._abstract import AbstractArray, array_field, canonical_field, conj_of_fields
from .._register import register_array_type
from .._table import array_type
from ..cotangents._outer import Outer
from ..cotangents._scaled import scaled
from ..cotangents._sum import add
from ..maps._destructure import pullback_of_destructure, pushforward_of_destructure
from ._diagonal import Diagonal


@register_array_type()
class LowRankUpdate(AbstractArray):
    r"""`base + u @ diag(d) @ v.T`: the matrix of Woodbury and of the determinant lemma.

    **Fields:** `base`, dense or any array type, shape `(m, n)`; `u`, shape `(m, r)`; `d`, shape
    `(r,)`, or `None` for ones; `v`, shape `(n, r)`, or `None` for `u` (a symmetric update). Nothing
    is conjugated: a complex `u` alone makes `u @ u.T`. A channel matrix `H` with noise is
    `tj.LowRankUpdate.hermitian(noise, H)`, with `H @ H.conj().T`.

    **Maps:** $J^\top Y$: the base pulls $Y$ back itself; $\bar U = (Y + Y^\top) U D$ (with `v`:
    $Y V D$ and $\bar V = Y^\top U D$); $\bar d = \mathrm{diag}(U^\top Y V)$. Over-parametrised.
    """

    core_ndim = 2

    units = staticmethod(lambda **units: _units_of(**units))
    conj = conj_of_fields

    base: Shaped[AnyArray, "m n"] = array_field(ndim=2)
    u: Shaped[Array, "m r"] = array_field(ndim=2)
    d: Shaped[Array, " r"] | None = array_field(ndim=1, default=None)
    v: Shaped[Array, "n r"] | None = array_field(ndim=2, default=None)

    def __post_init__(self) -> None:
        rows, r = canonical_field(self, "u", 2).shape
        if array_type(self.base) is None:
            canonical_field(self, "base", 2)
        columns, width = (rows, r) if self.v is None else canonical_field(self, "v", 2).shape
        weights = r if self.d is None else canonical_field(self, "d", 1).shape[0]
        if not (self.base.shape == (rows, columns) and r == width == weights):
            raise self._misfit()

    @classmethod
    def hermitian(
        cls,
        base: Shaped[AnyArray, "*batch m m"],
        u: Shaped[AnyArray, "*batch m r"],
        d: Shaped[AnyArray, "*batch r"] | None = None,
    ) -> Self:
        """`base + u @ diag(d) @ u.conj().T`, of real numbers `LowRankUpdate(base, u, d)`.

        **Arguments:** as of `LowRankUpdate`; `base` Hermitian and `d` real make it Hermitian. Its
        type does not know that: `solve`, `inv`, `logdet` and products need not, and `eigh` asks for
        a `tj.Hermitian` of the dense array.
        **Derivative:** that of the formula, by `base`, `u` and `d`.
        """
        u = ask.array(u)
        return cls(base, u, d, u.conj() if jnp.iscomplexobj(u) else None)

    def _misfit(self) -> ShapeError:
        fields = {"base": self.base, "u": self.u, "d": self.d, "v": self.v}
        got = ", ".join(f"{k}: {describe(x)}" for k, x in fields.items())
        return ShapeError(
            "LowRankUpdate: `base` (m, n), `u` (m, r), `d` (r,) and `v` (n, r) do not fit.\n"
            f"  got: {got}"
        )

    @property
    def right(self) -> Shaped[Array, "... n r"]:
        """The factor `v`, which is `u` where there is none."""
        return self.u if self.v is None else self.v

    def weighted(self, rows: Shaped[Array, "... r k"]) -> Shaped[Array, "... r k"]:
        """`D` times a matrix."""
        return rows if self.d is None else self.d[..., :, None] * rows

    def _weigh(self, factor: Array) -> Array:
        return factor if self.d is None else factor * self.d[..., None, :]

    @property
    def shape(self) -> Shape:
        return (*self.batch_shape, *self.base.shape[-2:])

    @property
    def dtype(self) -> DType:
        return jnp.result_type(self.base.dtype, self.u)

    @property
    def is_hermitian(self) -> bool:
        return self.v is None and ask.is_real(self) and ask.is_hermitian(self.base)

    @classmethod
    def examples(cls, samples: Samples) -> list[Self]:
        return [
            cls(Diagonal(samples.normal(3)), samples.normal(3, 1), samples.normal(1)),
            cls(samples.normal(2, 3), samples.normal(2, 1), None, samples.normal(3, 1)),
        ]

    def to_dense(self) -> Shaped[DenseArray, "... m n"]:
        update = self._weigh(self.u) @ jnp.swapaxes(self.right, -1, -2)
        return ask.dense(self.base) + update

    def update(self) -> Shaped[Outer, "... m n"]:
        """The low-rank term alone, as `u * d` and `v`."""
        return Outer(self._weigh(self.u), self.right)

    def linear_terms(self) -> LinearTerms:
        return (None, self.base), (None, self.update())

    def pushforward_of_destructure(self, structural: Self) -> Natural:
        base_dot = pushforward_of_destructure(self.base)(structural.base)
        left = [self._weigh(structural.u), self._weigh(self.u)]
        right = [self.right, structural.right]
        if structural.d is not None:
            left.append(self.u * structural.d[None, :])
            right.append(self.right)
        return add(base_dot, Outer(jnp.concatenate(left, 1), jnp.concatenate(right, 1)))

    def pullback_of_destructure(self, natural: Natural) -> Self:
        right = self.right
        y_right = ask.apply(natural, right)  # Y V, used by ū and d̄
        u_bar = self._weigh(y_right)
        yt_u = self._weigh(ask.apply(ask.transposed(natural), self.u))
        return self.replace(
            base=pullback_of_destructure(self.base)(natural),
            u=u_bar + yt_u if self.v is None else u_bar,
            d=None if self.d is None else jnp.sum(self.u * y_right, axis=0),
            v=None if self.v is None else yt_u,
        )

    def scaled(self, factor: Factor) -> Multiple:
        d = jnp.ones(self.u.shape[1], self.u.dtype) if self.d is None else self.d
        return self.replace(base=scaled(self.base, factor), d=d * factor)

    def apply(self, b: Shaped[DenseArray, " n *k"]) -> Shaped[DenseArray, " m *k"]:
        return ask.apply(self.base, b) + self.update().apply(b)

    def transposed(self) -> Shaped[AnyArray, "... n m"]:
        base = ask.transposed(self.base)
        if self.v is None:
            return self.replace(base=base)
        return self.replace(base=base, u=self.v, v=self.u)

    def diagonal(self) -> Shaped[DenseArray, "... k"]:
        return ask.diagonal(self.base) + self.update().diagonal()

    def entries_at(self, rows: Places, columns: Places) -> Shaped[DenseArray, "... p"]:
        return ask.entries_at(self.base, rows, columns) + self.update().entries_at(rows, columns)

    def total(self) -> Shaped[DenseArray, " ..."]:
        return ask.total(self.base) + self.update().total()

    def submatrix(self, rows: slice, columns: slice) -> Shaped[AnyArray, "... m n"]:
        return add(ask.submatrix(self.base, rows, columns), self.update().submatrix(rows, columns))

    def inner_product(self, other: Natural) -> Scalar:
        return ask.inner_product(self.base, other) + self.update().inner_product(other)


def _units_of(
    base: Unit, u: Unit, d: Unit = one, v: Unit | None = None
) -> tuple[dict[str, Unit], Unit]:
    """Return the unit that `u` needs, so that the update is in the unit of the base, and that."""
    wanted = (base / d) ** Fraction(1, 2) if v is None else base / (d * v)
    if wanted.dimension is not u.dimension:
        raise incompatible(
            "LowRankUpdate",
            f"base: unit {base}",
            f"update: unit {u * d * (u if v is None else v)}",
        )
    return {"u": wanted}, base
