"""Systems by solvers of lineax, and determinants by estimators: the rules of any matrix.

The natural rule of `solve` does not depend on the solver. Its pullback solves one more system, with
the transposed matrix, by the same solver. No step of an iteration is kept or differentiated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Float, PyTree

import tanjax as tj
from tanjax.typing import AnyArray, Columns, Pullback, Scalar, SquareMatrix

from .solve import solve_cotangent

if TYPE_CHECKING:
    from tanjax.testing import Case


@tj.rules.solve_by.implementation(object)
def solve_by(a: SquareMatrix, b: Columns, algorithm: tj.rules.Algorithm) -> Columns:
    from tanjax.bridges import lineax  # an optional library: imported where it is used

    solver, options, throw = algorithm.value
    return lineax.solve(a, b, solver, options, throw)


@tj.rules.solve_by.natural_rule
def solve_by_rule(
    a: SquareMatrix, b: Columns, algorithm: tj.rules.Algorithm
) -> tuple[Columns, Pullback]:
    x = tj.rules.solve_by(a, b, algorithm)  # with its rule: iterations are never differentiated

    def solve_by_pullback(x_bar: Columns) -> tuple[SquareMatrix, Columns, None]:
        from tanjax.bridges import lineax

        solver, options, throw = algorithm.value
        options = lineax.transposed_options(options)
        back = tj.rules.Algorithm.of((solver, options, throw))
        w = tj.rules.solve_by(tj.linalg.transpose(a), x_bar.astype(x.dtype), back)
        return solve_cotangent(w, x), w, None

    return x, solve_by_pullback


@tj.rules.logdet_by.implementation(object)
def logdet_by(a: SquareMatrix, algorithm: tj.rules.Algorithm) -> Float[AnyArray, ""]:
    return algorithm.value.logdet(a)


@tj.rules.logdet_by.natural_rule
def logdet_by_rule(a: SquareMatrix, algorithm: tj.rules.Algorithm) -> tuple[Scalar, Pullback]:
    y = tj.rules.logdet_by(a, algorithm)

    def logdet_by_pullback(y_bar: Scalar) -> tuple[PyTree, None]:
        return algorithm.value.cotangent(a, y_bar + 0 * jax.lax.stop_gradient(y)), None

    return y, logdet_by_pullback


# -- cases ---------------------------------------------------------------------------------------


@jax.tree_util.register_static
class Exact:
    """An estimator without randomness: cases need the same answer every time."""

    def logdet(self, a: SquareMatrix) -> Scalar:
        """Return the value."""
        return tj.logdet(tj.destructure(a))

    def cotangent(self, a: SquareMatrix, y_bar: Scalar) -> SquareMatrix:
        """Return the natural cotangent."""
        return jnp.linalg.inv(tj.destructure(a)).T * y_bar


def cases() -> Iterator[Case]:
    """The rules, with a solver and an estimator that are exact in every precision."""
    import lineax

    from tanjax.testing import Case, Samples

    s = Samples(19)
    a = tj.tangents.Sum(tj.Kronecker(s.regular(2), s.regular(2)), tj.Diagonal(s.positive(4)))
    algorithm = tj.rules.Algorithm.of((lineax.LU(), {}, True))
    by_lu = lambda a, b, _: jnp.linalg.solve(a, b)
    yield Case(tj.rules.solve_by, a, s.normal(4, 2), algorithm).declare(reference=by_lu)
    factors = s.regular(2, complex=True), s.regular(2, complex=True)
    turned = tj.tangents.Sum(tj.Kronecker(*factors), tj.Diagonal(s.complex(4)))
    yield Case(tj.rules.solve_by, turned, s.complex(4), algorithm).declare(reference=by_lu)
    value = lambda a, _: jnp.linalg.slogdet(a).logabsdet
    exact = tj.rules.Algorithm.of(Exact())
    for matrix in (a, turned):
        yield Case(tj.rules.logdet_by, matrix, exact).declare(reference=value)
