"""A triangular system, solved in the memory of its right-hand side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Shaped

import tanjax as tj
from tanjax.typing import DenseArray, Function

if TYPE_CHECKING:
    from tanjax.testing import Case


def substitute(b: Any, lower: Any, *, transposed: bool) -> None:
    """Substitute forward, or backward with the transpose, in the memory of `b`."""
    n = lower.shape[0]
    matrix = lower.T if transposed else lower
    known = jnp.arange(n)

    def row(i: DenseArray, _: None) -> None:
        k = n - 1 - i if transposed else i
        before = known > k if transposed else known < k
        b[k] = (b[k] - jnp.where(before, matrix[k], 0) @ b[...]) / matrix[k, k]

    lax.fori_loop(0, n, row, None)


@tj.inplace(mutates="b")
def solve_lower(b: Shaped[jax.Ref, "n ..."], lower: Shaped[DenseArray, "n n"]) -> None:
    """Overwrite `b`, `(n,)` or `(n, k)`, by the solution of `lower @ x = b`.

    Only the lower triangle of `lower` is read. **Cost:** n² k. **Derivative:** `solve_lower_rule`.
    **References:** Giles 2008, An extended collection of matrix derivative results, section 2.3.1.

    >>> b = tj.new_ref(jnp.array([2.0, 5.0]))
    >>> solve_lower(b, jnp.array([[2.0, 0.0], [1.0, 4.0]]))
    >>> b[...].tolist()
    [1.0, 1.0]
    """
    substitute(b, lower, transposed=False)


@solve_lower.inplace_rule
def solve_lower_rule(
    b: Shaped[DenseArray, "n ..."], lower: Shaped[DenseArray, "n n"]
) -> tuple[tj.refs.Transition, Function]:
    r"""Turn the cotangent of $x$ into that of $b$, in its memory: $\bar b = L^{-\top} \bar x$.

    The cotangent of the matrix is the lower triangle of $-\bar b x^\top$.
    """
    after = solve_lower.primal(b, lower)
    x = after.state[0]

    def solve_lower_pullback(
        b_bar: Shaped[jax.Ref, "n ..."], out_bar: None
    ) -> Shaped[DenseArray, "n n"]:
        substitute(b_bar, lower, transposed=True)
        columns = b_bar[...].reshape(len(lower), -1)
        return -jnp.tril(columns @ x.reshape(len(lower), -1).T)

    return after, solve_lower_pullback


# -- cases ---------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """A vector and columns, real and complex."""
    from tanjax.testing import Case, Samples

    s = Samples(32)
    yield Case(solve_lower.transition, s.normal(3), s.regular(3))
    yield Case(solve_lower.transition, s.complex(2, 2), s.regular(2, complex=True))
