r"""Systems of positive definite tridiagonal matrices, by $A = L D L^\top$ without row exchanges.

The pivots are $d_{i+1} = a_{i+1,i+1} - l_i a_{i,i+1}$ with the multipliers $l_i = a_{i+1,i}/d_i$.
Each of the three recursions keeps one row. If a pivot is not positive, all results are nan.

**References:** Golub and Van Loan 2013, section 4.3.6.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Shaped

import tanjax as tj

from ..exports import exported

Matrix: TypeAlias = Shaped[tj.SymTridiagonal, "n n"]


@exported
class DefiniteFactor(NamedTuple):
    """The multipliers of each row, and its pivot."""

    multipliers: Shaped[Array, " n"]
    pivots: Shaped[Array, " n"]


def definite_factor(a: Matrix) -> DefiniteFactor:
    """Factorise in `O(n)`. The factor is a constant to JAX."""
    diag, off = map(lax.stop_gradient, (a.diag, a.off))

    def step(pivot: Array, row: tuple[Array, Array]) -> tuple[Array, DefiniteFactor]:
        diag, off = row
        multiplier = off / pivot
        pivot = diag - multiplier * off
        return pivot, DefiniteFactor(multiplier, pivot)

    before = jnp.pad(off, (1, 0))[: diag.shape[0]]
    multipliers, pivots = lax.scan(step, jnp.ones_like(jnp.sum(diag[:0])), (diag, before))[1]
    return DefiniteFactor(multipliers, jnp.where(jnp.all(pivots > 0), pivots, jnp.nan))


def solve_definite(a: Matrix, f: DefiniteFactor, b: Shaped[Array, "n k"]) -> Shaped[Array, "n k"]:
    """`A⁻¹ b`, differentiable in `a` and `b` to any order; derivatives use the same factor."""
    b = tj.rules.align(b, a.diag)
    return lax.custom_linear_solve(a.apply, b, lambda _, y: _substitute(f, y), symmetric=True)


def _substitute(f: DefiniteFactor, b: Shaped[Array, "n k"]) -> Shaped[Array, "n k"]:
    def eliminate(last: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        multiplier, x = row
        x = x - multiplier * last
        return x, x

    zero = jnp.zeros_like(b[:1].sum(0))
    y = lax.scan(eliminate, zero, (f.multipliers, b))[1] / f.pivots[:, None]
    behind = jnp.pad(f.multipliers[1:], (0, 1))[: b.shape[0]]
    return lax.scan(eliminate, zero, (behind, y), reverse=True)[1]
