"""One factorisation for all equations that need one of the same matrix.

`tj.solve` and `tj.logdet` of one matrix factorise it twice; a loop that solves with the same matrix
in every step factorises it in each. So this pass first counts all uses of a matrix, also those in
bodies. A matrix with several uses is factorised where it is first needed, outside of the loops that
keep it, and passed on.

Sharp edges. Two matrices are the same only if they are one value of the program; equal numbers do
not count. A matrix whose type has a dense factorization is unchanged. XLA merges equal
factorisations of one computation by itself: there the pass saves only time to compile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import jax
from jaxtyping import PyTree

from tanjax import operations as tj
from tanjax._jaxpr_types import JaxVariable
from tanjax._typing import AnyArray, Function, Natural
from tanjax.operations import Factorization

from .._equations import Body, Equation, Variable
from .._interpreter import handles
from . import _factors
from ._keys import Key, is_branch, key_of, runs_often, scopes, values_by_variable, values_outside
from ._pass import Pass, Rewriter

_BY_FACTOR: dict[Function, _factors.ByFactor] = {
    tj.solve: _factors.solve,
    tj.logdet: _factors.logdet,
    tj.slogdet: _factors.slogdet,
    tj.det: _factors.det,
    tj.inv: _factors.inv,
    tj.inv_quad_logdet: _factors.inv_quad_logdet,
    tj.cholesky: _factors.cholesky,
}


class Frame:
    """The run of one program: its factorizations, and the matrices to factorise."""

    def __init__(self, shared: set[Key], given: dict[Key, Factorization]) -> None:
        self.shared, self.factors = shared, dict(given)


class ShareFactorizations(Rewriter):
    """The interpreter of `share_factorizations`."""

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[Body, dict[Key, Factorization]] = {}
        self._counts: dict[Body, Counter[Key]] = {}

    def frame_of(self, program: Body) -> Frame:
        often = {key for key, count in self._uses(program).items() if count > 1}
        return Frame(often, self._given.get(program, {}))

    def _step(self, equation: Equation, env: dict[Variable, PyTree]) -> None:
        before, frame = self._given, self.frame
        given = dict(before)
        for scope in scopes(equation):
            values: dict[JaxVariable, AnyArray] | None = None
            for key in self._uses(scope.program):
                outside = scope.key_outside(key)
                if outside is None or not (outside in frame.shared or outside in frame.factors):
                    continue
                if values is None:
                    values = values_by_variable(equation, env)
                make = lambda key=outside, values=values: values_outside(key, values.__getitem__)
                factor = self._factor(frame, outside, make)
                given[scope.program] = {**given.get(scope.program, {}), key: factor}
        self._given = given
        try:
            super()._step(equation, env)
        finally:
            self._given = before

    def _factor(self, frame: Frame, key: Key, matrix: Callable[[], PyTree]) -> Factorization:
        """Return the factorization of a matrix, made in this frame, which outlives its users."""
        if key not in frame.factors:
            frame.factors[key] = tj.factorize(matrix())
        self.changes += 1
        return frame.factors[key]

    # -- uses ------------------------------------------------------------------------------

    def _uses(self, program: Body) -> Counter[Key]:
        """Count how often a program needs factors of each matrix; a use in a loop counts twice."""
        if program not in self._counts:
            found: Counter[Key] = Counter()
            for equation in program:
                if _can_share(equation):
                    found[key_of(equation.inputs[0])] += 1  # type: ignore[index]
                found.update(self._uses_inside(equation))
            self._counts[program] = found
        return self._counts[program]

    def _uses_inside(self, equation: Equation) -> Counter[Key]:
        if not equation.programs:
            return Counter()
        counts = []
        for scope in scopes(equation):
            inside: Counter[Key] = Counter()
            for key, count in self._uses(scope.program).items():
                outside = scope.key_outside(key)
                if outside is not None:
                    inside[outside] += count
            counts.append(inside)
        if is_branch(equation):  # a need counts only if every branch has it
            common = set.intersection(*map(set, counts)) if counts else set()
            return Counter({key: min(c[key] for c in counts) for key in common})
        total: Counter[Key] = sum(counts, Counter())
        return Counter({k: 2 * n for k, n in total.items()}) if runs_often(equation) else total

    # -- by the factor ---------------------------------------------------------------------

    @handles(*_BY_FACTOR)
    def by_factor(self, equation: Equation, a: Natural, *args: Natural, **kwargs: PyTree) -> PyTree:
        key, frame = key_of(equation.inputs[0]), self.frame
        if key is None or kwargs or not (key in frame.shared or key in frame.factors):
            return self.default(equation, a, *args, **kwargs)
        if not _can_share(equation):
            return self.default(equation, a, *args, **kwargs)
        before = self.changes
        factor = self._factor(frame, key, lambda: a)
        out = _as_before(equation, _BY_FACTOR[equation.target](factor, *args))
        if out is None:
            self.changes = before
            return self.default(equation, a, *args)
        return out

    @handles(tj.factorize)
    def factorize(self, equation: Equation, a: Natural) -> PyTree:
        key, frame = key_of(equation.inputs[0]), self.frame
        if key is None or not (key in frame.shared or key in frame.factors):
            return self.default(equation, a)
        return self._factor(frame, key, lambda: a)


def _can_share(equation: Equation) -> bool:
    """True if an equation needs factors that `tj.factorize` has."""
    target = equation.target
    if equation.kind != "operation" or not equation.inputs or equation.params:
        return False
    if target is not tj.factorize and target not in _BY_FACTOR:
        return False
    matrix = equation.inputs[0]
    factors = _factors.factors_of(matrix.skeleton) if isinstance(matrix, Variable) else None
    if factors is None:
        return False
    if target in (tj.det, tj.cholesky):
        # The derivative of a zero determinant is the adjugate, which no LU factorisation gives.
        return factors.plan.cholesky is not None and factors.unit is None
    return True


def _as_before(equation: Equation, out: PyTree) -> PyTree:
    """Return a result in the types of the equation; `None` if its arrays differ."""
    wanted = equation.out_tree[0].unflatten(equation.out_tree[1])
    shapes = [x.aval for x in jax.tree.leaves(wanted)]
    given = [jax.typeof(x) for x in jax.tree.leaves(out)]
    if [(x.shape, x.dtype) for x in given] != [(x.shape, x.dtype) for x in shapes]:
        return None
    return jax.tree.unflatten(jax.tree.structure(wanted), jax.tree.leaves(out))


share_factorizations = Pass(
    "share_factorizations",
    ShareFactorizations,
    """Factorise every matrix once, for all solves with it and all its determinants.

    `solve`, `logdet`, `slogdet`, `inv` and `inv_quad_logdet` of one matrix share one
    `tj.factorize`. So do `det` and `cholesky` (samples) of a positive definite matrix. If some
    of these are in loops that keep the matrix, it is factorised outside of them, and passed in.

    **Cost:** a second trace. **Derivative:** that of `tj.factorize`: by the matrix.
    """,
)
