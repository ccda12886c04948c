"""Singular vectors, and the two linear maps of their derivative.

A tall matrix is the general case; a wide one is treated as its conjugate transpose. Its left factor
`l` then has the longer columns, and more of them for full matrices. Its right factor `r` is square,
except for a matrix of low rank, whose cotangent consists of thin factors.

Work that needs its own matrices only where values are equal, zero or unused is a branch of a
condition. For other values, rules keep vectors, and form one matrix in the bases of the factors.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

import tanjax as tj
from tanjax.typing import Factor, Function, Natural

from . import gauge
from .gauge import adjoint


class Factors:
    """The factors of a matrix seen as tall, and the two linear maps of its derivative."""

    def __init__(self, a: Natural, full_matrices: bool, invariant: bool) -> None:
        u, self.s, vh = tj.linalg.svd(a, full_matrices)
        self.wide, self.k = a.shape[-2] < a.shape[-1], self.s.shape[-1]
        left, self.r = self.tall(u, adjoint(vh))
        self.invariant = invariant
        self.group = gauge.groups(self.s)
        self.zero = self.s <= gauge.tolerance(self.s)
        self.apart = self.zero[..., -1:] & (self.group == self.group[..., -1:])
        self.special = gauge.any_shared(self.group) | jnp.any(self.zero)
        rows, columns = self.tall(a.shape[-2], a.shape[-1])
        self.higher, self.broader = rows != self.k, columns != self.k
        l1, l2 = left[..., : self.k], left[..., self.k :]
        if not invariant:
            l1 = gauge.turned(l1, self.group)
            self.r = gauge.turned(self.r, self.group, self.apart)  # `l` and `r` of zero apart
        self.l1, self.l2 = l1, l2
        u, v = self.tall(jnp.concatenate([l1, l2], axis=-1), self.r)
        self.result = tj.linalg.SVDResult(u, self.s, adjoint(v))

    def tall(self, left: Any, right: Any) -> tuple[Any, Any]:
        """Exchange left and right of a wide matrix."""
        return (right, left) if self.wide else (left, right)

    def as_stored(self, left: Natural, r_bar: Natural) -> Natural:
        """Return the cotangent of the given matrix, from the left factor beside `r`."""
        if not self.broader:
            a_bar = left @ adjoint(self.r)
            return adjoint(a_bar) if self.wide else a_bar
        outside = self._outside(self.r, r_bar)
        pairs = jnp.concatenate([left, self.l1], -1), jnp.concatenate([self.r, outside], -1)
        u, v = self.tall(*pairs)
        return tj.Outer(u, jnp.conj(v))

    def inverses(self, fill: Factor, s_bar: Natural | None = None) -> tuple[Natural, ...]:
        """Return `1/(s_j - s_i)`, `1/(s_j + s_i)` and `1/s_j`, with `fill` for zero divisors."""
        fill = jnp.asarray(fill, self.s.dtype)
        both = self.zero[..., None, :] & self.zero[..., :, None]
        sums = self.s[..., None, :] + self.s[..., :, None]
        plus = jnp.where(both, fill, 1 / jnp.where(both, 1, sums))
        if not jnp.iscomplexobj(self.r):  # here the skew part has no diagonal
            plus = jnp.where(jnp.eye(self.k, dtype=bool), jnp.zeros((), plus.dtype), plus)
        one = jnp.where(self.zero, fill, 1 / jnp.where(self.zero, 1, self.s))
        same = gauge.same_value(self.group)
        tied = same if s_bar is None else gauge.ties(self.s, same, s_bar)
        minus = gauge.over_differences(self.s, tied, fill)
        return tuple(x.astype(self.r.dtype) for x in (minus, plus, one[..., None, :]))

    def of_values_alone(self, s_bar: Natural) -> Natural:
        """Return the left factor of the cotangent beside `r`, if only values are used."""
        distinct = lambda: self.l1 * s_bar[..., None, :].astype(self.l1.dtype)
        turn = lambda: gauge.turned_diagonal(s_bar, self.group, self.l1.dtype, self.apart)
        left = gauge.if_any(gauge.any_shared(self.group), lambda: self.l1 @ turn(), distinct)
        return gauge.without_ties(left, self.s, s_bar)

    def of_distinct(
        self, towards: tuple[Natural, Natural], s_bar: Natural, tied_by: Natural | None = None
    ) -> Natural:
        r"""Return the part in the span of both thin factors, in their bases; 0 at equal values.

        `towards`: $L^H \bar L$ and $R^H \bar R$. `tied_by`: cotangents that may tell values apart.
        """
        common, opposite = self._rotations(towards)
        minus, plus, _ = self.inverses(0.0, tied_by)
        return minus * common + plus * opposite + gauge.embedded(s_bar, self.r)

    def _rotations(self, towards: tuple[Natural, Natural]) -> tuple[Natural, Natural]:
        """Return the common rotation of both bases, and the opposite one."""
        x, y = towards
        common, opposite = gauge.skew(x + y), gauge.skew(x - y)
        if jnp.iscomplexobj(x):  # in JAX, too, the phase moves `U` alone
            phase = -gauge.skew(y) if self.wide else gauge.skew(x)
            opposite = jnp.where(jnp.eye(self.k, dtype=bool), 2 * phase, opposite)
        return common, opposite

    def of_equal(self, towards: tuple[Natural, Natural], s_bar: Natural, scale: Natural) -> Natural:
        """Return the same, with nan where the loss depends on the choice of vectors."""
        common, opposite = self._rotations(towards)
        same, off_diagonal = gauge.same_value(self.group), ~jnp.eye(self.k, dtype=bool)
        zeros = self.zero[..., None, :] & self.zero[..., :, None]
        inner = self.of_distinct(towards, s_bar, s_bar)
        bad = gauge.depends_on_basis(same & off_diagonal, common, scale)
        bad = bad | gauge.depends_on_basis(zeros & off_diagonal, opposite, scale)
        bad = bad | gauge.too_much_is_missing(self.s, same, s_bar, scale, inner)
        return gauge.spoiled(inner, bad | self._tells_zeros(s_bar))

    def _tells_zeros(self, s_bar: Natural) -> Natural:
        """True for zero values of a matrix that is not square if the loss uses them."""
        if not self.higher:
            return jnp.zeros((), bool)
        largest = jnp.max(jnp.abs(s_bar), axis=-1, keepdims=True, initial=0)
        noise = 64 * self.k * float(jnp.finfo(s_bar.dtype).eps)
        return (self.zero & (jnp.abs(s_bar) > noise * largest))[..., None, :]

    def outer_cotangent(self, l_bar: Natural) -> Natural:
        """Return the part outside the span of the left thin factor."""
        if not self.higher:
            return tj.rules.align(jnp.zeros((), l_bar.dtype), l_bar)
        bar1, bar2 = l_bar[..., : self.k], l_bar[..., self.k :]
        if not self.l2.shape[-1]:
            return self._outside(self.l1, bar1)
        over = self.inverses(0.0)[2]
        rest = adjoint(self.l2) @ bar1 - adjoint(bar2) @ self.l1
        rest = self._checked(rest, gauge.columns(bar1) + self._size(bar2)) * over
        if not self.invariant:
            rotation, scale = gauge.skew(adjoint(self.l2) @ bar2), gauge.columns(bar2)
            off_diagonal = ~jnp.eye(self.l2.shape[-1], dtype=bool)
            bad = gauge.depends_on_basis(off_diagonal, rotation, scale)
            rest = gauge.spoiled(rest, jnp.any(bad, axis=(-2, -1), keepdims=True))
        return self.l2 @ rest

    def _outside(self, basis: Natural, bar: Natural) -> Natural:
        """Return the part of the cotangent of vectors outside their span, divided by the values."""
        rest = gauge.outside(basis, bar)
        return self._checked(rest, gauge.columns(bar)) * self.inverses(0.0)[2]

    def _size(self, x: Natural) -> Natural:
        return jnp.sqrt(jnp.sum(jnp.real(x * jnp.conj(x)), axis=(-2, -1)))[..., None]

    def _checked(self, rest: Natural, scale: Natural) -> Natural:
        """Require that entries of zero values vanish, as their vectors are not unique; else nan."""
        if self.invariant:
            return rest
        bad = self.zero[..., None, :] & gauge.is_seen(rest, scale[..., None, :])
        return gauge.spoiled(rest, bad)

    def tangents(
        self, moved: Natural, inner: Natural, towards: Function
    ) -> tuple[Natural, Natural]:
        r"""Return tangents of the left and the right factor.

        **Arguments:** `moved`: $\dot A R$; `inner`: $L^H \dot A R$; `towards`: $\dot A^H$ times.
        """
        fill = 0.0 if self.invariant else jnp.nan
        minus, plus, one = self.inverses(fill)
        common = minus * (inner + adjoint(inner)) / 2
        opposite = plus * gauge.skew(inner)
        phase = opposite * jnp.eye(self.k, dtype=opposite.dtype)  # in JAX, too, it moves `U` alone
        phase = -phase if self.wide else phase
        r_dot, l_dot = self.r @ (common - opposite + phase), self.l1 @ (common + opposite + phase)
        if self.broader:
            r_dot = r_dot + (towards(self.l1) - self.r @ adjoint(inner)) * one
        if not self.higher:
            return l_dot, r_dot
        if not self.l2.shape[-1]:
            return l_dot + (moved - self.l1 @ inner) * one, r_dot
        rest = (adjoint(self.l2) @ moved) * one
        l2_dot = -self.l1 @ adjoint(rest)
        if not self.invariant and self.l2.shape[-1] > 1:
            l2_dot = l2_dot * jnp.nan  # their basis is not that of a nearby matrix
        return jnp.concatenate([l_dot + self.l2 @ rest, l2_dot], axis=-1), r_dot
