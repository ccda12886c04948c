"""The Cholesky factor in the memory of its matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import lax
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import DenseArray, Function

if TYPE_CHECKING:
    from tanjax.testing import Case


@tj.inplace(mutates="a")
def factor_cholesky(a: Shaped[jax.Ref, "n n"]) -> None:
    r"""Overwrite a Hermitian positive definite matrix by $L$, where $L L^H$ is the matrix.

    The lower triangle of `a`, of shape `(n, n)`, is read; the upper one is cleared. Unblocked,
    column by column (left-looking).

    **Cost:** $O(n^3)$. In reverse mode the rule needs at most 4 times the memory of `a`; the
    derived one would store `a` once for each column. **Derivative:** `factor_cholesky_rule`.
    **References:** Golub and Van Loan, Matrix Computations, section 4.2.

    >>> a = tj.new_ref(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> factor_cholesky(a)
    >>> a[...].tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    rows = jnp.arange(a.shape[0])

    def column(k: DenseArray, _: None) -> None:
        done = jnp.where(rows < k, a[k, :], 0)  # the factor's part of row k
        rest = a[:, k] - a[...] @ jnp.conj(done)
        pivot = jnp.sqrt(jnp.real(rest[k])).astype(a.dtype)
        below = jnp.where(rows > k, rest / pivot, 0)
        a[:, k] = jnp.where(rows == k, pivot, below)

    lax.fori_loop(0, a.shape[0], column, None)


@factor_cholesky.natural_rule(convention="chainrules")
def factor_cholesky_rule(a: Shaped[DenseArray, "n n"]) -> tuple[tj.refs.Transition, Function]:
    r"""$\bar A = \tfrac12 L^{-H}(\Phi + \Phi^H)L^{-1}$, folded into the lower triangle.

    $\Phi$ is the lower triangle of $L^H \bar L$ with half its diagonal. An entry below the diagonal
    stands for two of the matrix. The convention is that of the literature (cotangents paired
    with conjugation).
    """
    after = factor_cholesky.primal(a)
    lower = after.state[0]

    def factor_cholesky_pullback(
        l_bar: Shaped[DenseArray, "n n"], out_bar: None
    ) -> Shaped[DenseArray, "n n"]:
        phi = jnp.tril(jnp.conj(lower.T) @ jnp.tril(l_bar))
        phi = phi - jnp.diag(jnp.diagonal(phi)) / 2
        both = phi + jnp.conj(phi.T)
        half = jsl.solve_triangular(lower, both, lower=True, trans="C")
        a_bar = jnp.conj(jsl.solve_triangular(lower, jnp.conj(half.T), lower=True, trans="C").T)
        return jnp.tril(a_bar) - jnp.diag(jnp.diagonal(a_bar)) / 2

    return after, factor_cholesky_pullback


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Real and complex; the upper triangle holds numbers that are never read."""
    from tanjax.testing import Case, Samples

    s = Samples(31)
    for a, noise in (
        (s.definite(3), s.normal(3, 3)),
        (s.definite(2, complex=True), s.complex(2, 2)),
    ):
        yield Case(factor_cholesky.transition, a + jnp.triu(noise, 1))
