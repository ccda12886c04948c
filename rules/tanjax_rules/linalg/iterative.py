"""Systems by solvers of lineax, and determinants by estimators: the rules of any matrix.

The natural rule of `solve` does not ask how a system was solved. Its pullback solves one more, with
the transposed matrix, by the same solver: no step of an iteration is kept or differentiated.
"""

from __future__ import annotations

from jaxtyping import Float, PyTree

import tanjax as tj
from tanjax.typing import AnyArray, Columns, Pullback, Scalar, SquareMatrix

from .solve import solve_cotangent


@tj.rules.solve_by.implementation(object)
def solve_by(a: SquareMatrix, b: Columns, algorithm: tj.rules.Algorithm) -> Columns:
    from tanjax.bridges import lineax  # an optional library: imported where it is used

    solver, options, throw = algorithm.value
    return lineax.solve(a, b, solver, options, throw)


@tj.rules.solve_by.natural_rule
def solve_by_rule(
    a: SquareMatrix, b: Columns, algorithm: tj.rules.Algorithm
) -> tuple[Columns, Pullback]:
    x = tj.rules.solve_by.primal(a, b, algorithm)

    def solve_by_pullback(x_bar: Columns) -> tuple[SquareMatrix, Columns, None]:
        from tanjax.bridges import lineax

        solver, options, throw = algorithm.value
        options = lineax.transposed_options(options)
        back = tj.rules.Algorithm.of((solver, options, throw))
        w = tj.rules.solve_by(tj.transpose(a), x_bar.astype(x.dtype), back)
        return solve_cotangent(w, x), w, None

    return x, solve_by_pullback


@tj.rules.logdet_by.implementation(object)
def logdet_by(a: SquareMatrix, algorithm: tj.rules.Algorithm) -> Float[AnyArray, ""]:
    return algorithm.value.logdet(a)


@tj.rules.logdet_by.natural_rule
def logdet_by_rule(a: SquareMatrix, algorithm: tj.rules.Algorithm) -> tuple[Scalar, Pullback]:
    y = tj.rules.logdet_by.primal(a, algorithm)

    def logdet_by_pullback(y_bar: Scalar) -> tuple[PyTree, None]:
        return algorithm.value.cotangent(a, y_bar + 0 * y), None

    return y, logdet_by_pullback
