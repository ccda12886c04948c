"""Any matrix plus a low-rank term."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import jax.numpy as jnp
from jax import Array

from tanjax._errors import ShapeError, describe, incompatible

from .. import _queries as ask
from .._abstract import AbstractArray, canonical_field, conj_of_fields
from .._register import register_array_type
from .._table import array_type
from ..cotangents._outer import Outer
from ..cotangents._scaled import scaled
from ..cotangents._sum import plus
from ..maps._destructure import pullback_of_destructure, pushforward_of_destructure
from ..quantities._unitful import convert, split_unit, unitful
from ._diagonal import Diagonal


@register_array_type()
class LowRankUpdate(AbstractArray):
    r"""`base + u @ diag(d) @ v.T`: the matrix of Woodbury and of the determinant lemma.

    **Fields:** `base`, dense or any array type, shape `(m, n)`; `u`, shape `(m, r)`; `d`, shape
    `(r,)`, or `None` for ones; `v`, shape `(n, r)`, or `None` for `u` (a symmetric update).

    **Maps:** $J^\top Y$: the base pulls $Y$ back itself; $\bar U = (Y + Y^\top) U D$ (with `v`:
    $Y V D$ and $\bar V = Y^\top U D$); $\bar d = \mathrm{diag}(U^\top Y V)$. Over-parametrised.
    """

    core_ndim = 2

    units = staticmethod(lambda *args, **kwargs: _with_units(*args, **kwargs))
    conj = conj_of_fields

    base: Any
    u: Array
    d: Array | None = None
    v: Array | None = None

    def __post_init__(self) -> None:
        rows, r = canonical_field(self, "u", 2).shape
        if array_type(self.base) is None:
            canonical_field(self, "base", 2)
        columns, width = (rows, r) if self.v is None else canonical_field(self, "v", 2).shape
        weights = r if self.d is None else canonical_field(self, "d", 1).shape[0]
        if not (self.base.shape == (rows, columns) and r == width == weights):
            raise self._misfit()

    def _misfit(self) -> ShapeError:
        fields = {"base": self.base, "u": self.u, "d": self.d, "v": self.v}
        got = ", ".join(f"{k}: {describe(x)}" for k, x in fields.items())
        return ShapeError(
            "LowRankUpdate: `base` (m, n), `u` (m, r), `d` (r,) and `v` (n, r) do not fit.\n"
            f"  got: {got}"
        )

    @property
    def _right(self) -> Any:
        return self.u if self.v is None else self.v

    def _weigh(self, factor: Any, d: Any) -> Any:
        return factor if d is None else factor * d

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.base.shape)

    @property
    def dtype(self) -> Any:
        return jnp.result_type(self.base.dtype, self.u)

    @classmethod
    def examples(cls, samples: Any) -> list[Any]:
        return [
            cls(Diagonal(samples.normal(3)), samples.normal(3, 1), samples.normal(1)),
            cls(samples.normal(2, 3), samples.normal(2, 1), None, samples.normal(3, 1)),
        ]

    def to_dense(self) -> Array:
        d = None if self.d is None else self.d[..., None, :]
        return ask.dense(self.base) + self._weigh(self.u, d) @ jnp.swapaxes(self._right, -1, -2)

    def update(self) -> Outer:
        """The low-rank term alone, as `u * d` and `v`."""
        return Outer(self._weigh(self.u, self.d), self._right)

    def pushforward_of_destructure(self, structural: Any) -> Any:
        base_dot = pushforward_of_destructure(self.base)(structural.base)
        v_dot = structural.u if self.v is None else structural.v
        left = [self._weigh(structural.u, self.d), self._weigh(self.u, self.d)]
        right = [self._right, v_dot]
        if self.d is not None:
            left.append(self.u * structural.d)
            right.append(self._right)
        return plus(base_dot, Outer(jnp.concatenate(left, 1), jnp.concatenate(right, 1)))

    def pullback_of_destructure(self, natural: Any) -> Any:
        right = self._right
        y_right = ask.apply(natural, right)  # Y V, used by ū and d̄
        u_bar = self._weigh(y_right, self.d)
        yt_u = self._weigh(ask.apply(ask.transposed(natural), self.u), self.d)
        return self.replace(
            base=pullback_of_destructure(self.base)(natural),
            u=u_bar + yt_u if self.v is None else u_bar,
            d=None if self.d is None else jnp.sum(self.u * y_right, axis=0),
            v=None if self.v is None else yt_u,
        )

    def scaled(self, factor: Any) -> Any:
        d = jnp.ones(self.u.shape[1], self.u.dtype) if self.d is None else self.d
        return self.replace(base=scaled(self.base, factor), d=d * factor)

    def apply(self, b: Any) -> Any:
        return ask.apply(self.base, b) + self.update().apply(b)

    def transposed(self) -> Any:
        base = ask.transposed(self.base)
        if self.v is None:
            return self.replace(base=base)
        return self.replace(base=base, u=self.v, v=self.u)

    def diagonal(self) -> Any:
        return ask.diagonal(self.base) + self.update().diagonal()

    def total(self) -> Any:
        return ask.total(self.base) + self.update().total()

    def block(self, rows: slice, columns: slice) -> Any:
        return plus(ask.block(self.base, rows, columns), self.update().block(rows, columns))

    def pair(self, other: Any) -> Any:
        return ask.pair(self.base, other) + self.update().pair(other)


def _with_units(base: Any, u: Any, d: Any = None, v: Any = None) -> Any:
    """The update in the unit of the base: `u`, `d` and `v` must multiply to it."""
    (base, unit), (u, unit_u), (d, unit_d), (v, unit_v) = map(split_unit, (base, u, d, v))
    wanted = (unit / unit_d) ** Fraction(1, 2) if v is None else unit / (unit_d * unit_v)
    if wanted.dimension is not unit_u.dimension:
        raise incompatible(
            "LowRankUpdate",
            f"base: unit {unit}",
            f"update: unit {unit_u * unit_d * (unit_u if v is None else unit_v)}",
        )
    return unitful(LowRankUpdate(base, convert(u, unit_u, wanted), d, v), unit)
