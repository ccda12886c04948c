"""Solvers and estimators, as values, for matrices that are only multiplied.

The factors of a million equations do not fit in memory; products with the matrix do. An iterative
solver has many settings: method, tolerances, preconditioner, first guess. Some of them are arrays
that may be traced or depend on parameters. `Algorithm` holds these settings as a pytree. It is an
argument of an operation like any other, and has no derivative.

    tj.solve(a, b, solver=lineax.CG(1e-6, 1e-6), options={"preconditioner": p})
    tj.logdet(a, estimator=tanjax.bridges.matfree.Lanczos(30, 10, key))

A call with `solver` or `estimator` dispatches to a separate operation; a call without them costs no
more. The rule pack implements these operations through the bridges to the libraries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from tanjax import _compat
from tanjax._errors import ConvergenceError, ShapeError, UnitError, message, not_solved
from tanjax._typing import AnyArray, Columns, SquareMatrix
from tanjax.arrays import batch_of, is_structured
from tanjax.quantities import convert, is_quantity, labelled, split_unit
from tanjax.registry import operation
from tanjax.units import Unit, one
from tanjax.units.signatures import not_linear

from . import _checks as checks
from ._factorizations import inv_quad_logdet
from ._operations import SlogdetResult, logdet, slogdet, solve

_ARRAYS = (jax.Array, np.ndarray, np.generic, _compat.Tracer)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Algorithm:
    """A method of computation with its settings; a pytree of the arrays in it.

    **Fields:** `arrays`: the leaves that are arrays; `rest`: the other leaves, and the place of
    each. `Algorithm.of` makes one, and `value` returns the pytree.
    """

    arrays: list[PyTree]
    rest: PyTree

    @classmethod
    def of(cls, value: PyTree) -> Algorithm:
        """Split a pytree. **Raises:** `TypeError` if a leaf is neither an array nor hashable."""
        leaves, tree = jax.tree.flatten(value)
        is_array = [isinstance(x, _ARRAYS) for x in leaves]
        others = tuple(None if a else x for x, a in zip(leaves, is_array, strict=True))
        rest = (tree, tuple(is_array), others)
        try:
            hash(rest)
        except TypeError as error:
            raise TypeError(f"a solver, its options, or an estimator: {error}.") from None
        return cls([x for x, a in zip(leaves, is_array, strict=True) if a], rest)

    @property
    def value(self) -> PyTree:
        """Return the pytree given to `of`."""
        tree, is_array, others = self.rest
        arrays = iter(self.arrays)
        leaves = [next(arrays) if a else x for x, a in zip(others, is_array, strict=True)]
        return jax.tree.unflatten(tree, leaves)

    def tree_flatten(self) -> tuple[list[PyTree], PyTree]:
        return self.arrays, self.rest

    @classmethod
    def tree_unflatten(cls, rest: PyTree, arrays: Iterable[PyTree]) -> Algorithm:
        return cls(list(arrays), rest)


@operation(
    generic=False,
    check=lambda _, a, b, algorithm: checks.one_system("solve", a, b),
    core_ndims=(2, 2, 0),
)
def solve_by(a: SquareMatrix, b: Columns, algorithm: Algorithm) -> Columns:
    r"""The target of `tj.solve(a, b, solver=..., options=..., throw=...)`, on plain numbers.

    **Arguments:** `algorithm`, an `Algorithm` of `(solver, options, throw)`.
    **Raises, derivative:** those of `solve`; the algorithm has no derivative, because the solution
    does not depend on it.
    """
    raise NotImplementedError


@operation(
    generic=False, check=lambda _, a, algorithm: checks.square("logdet", a), core_ndims=(2, 0)
)
def logdet_by(a: SquareMatrix, algorithm: Algorithm) -> Float[AnyArray, ""]:
    r"""The target of `tj.logdet(a, estimator=...)`, on plain numbers.

    **Arguments:** `algorithm`, an `Algorithm` of an estimator. **Derivative:** the estimate of
    $\bar y A^{-\top}$ that the estimator has.
    """
    raise NotImplementedError


# -- in place of a call with `solver` or `estimator` -----------------------------------------------


def _solve(
    a: SquareMatrix,
    b: Columns,
    *,
    solver: object,
    options: dict[str, PyTree] | None = None,
    throw: bool = True,
) -> Columns:
    matrix, of_a = _numbers("a", a)
    vector, of_b = _numbers("b", b)
    plain = of_a is None and of_b is None
    unit = None if plain else (of_b or one) / (of_a or one)
    known = dict(options or {})
    for name, fits in (("preconditioner", one / (of_a or one)), ("y0", unit)):
        if name in known:
            known[name] = _in_unit(name, known[name], fits)
    # Without tracers, this checks the result and raises a readable error. A traced program raises
    # when it runs.
    traced = any(isinstance(v, _compat.Tracer) for v in jax.tree.leaves((matrix, vector, known)))
    x = solve_by(matrix, vector, Algorithm.of((solver, known, bool(throw and traced))))
    if throw and not traced and not isinstance(x, _compat.Tracer) and bool(jnp.isnan(x).any()):
        raise ConvergenceError(not_solved(type(solver).__name__))
    return x if unit is None else labelled(x, unit)


def _numbers(name: str, x: PyTree) -> tuple[PyTree, Unit | None]:
    """Return the numbers of a quantity in its displayed unit, which tolerances refer to."""
    if not is_quantity(x):
        return x, None
    if not x.label.is_linear:
        raise not_linear("solve", name, x.label)
    return x.value, x.unit


def _in_unit(name: str, x: PyTree, unit: Unit | None) -> PyTree:
    """Return the numbers of an option in the unit that it must have; plain numbers already are."""
    if not is_quantity(x):
        return x
    if x.label.dimension is not (unit or one).dimension:
        raise UnitError(
            message(
                f"solve: the unit of the option `{name}` does not fit.",
                f"expected: {unit or one}",
                f"got: {x.unit}",
                hint="a preconditioner is like the inverse of the matrix, `y0` like the solution.",
            )
        )
    return convert(x.stored, x.label, unit or one)


def _logdet(a: SquareMatrix, *, estimator: object) -> Float[AnyArray, ""]:
    matrix, unit = split_unit(a)
    if is_quantity(a) and not unit.is_dimensionless:
        raise UnitError(
            message(
                f"logdet: the matrix is in {unit}.",
                "why: the logarithm of a number with a unit depends on the unit.",
                hint="take the determinant of `a / unit`.",
            )
        )
    if is_quantity(a):
        matrix = a.to_value(one)
    if not (hasattr(estimator, "logdet") and hasattr(estimator, "cotangent")):
        raise TypeError(
            message(
                f"logdet: {estimator!r} is not an estimator.",
                "why: it has no methods `logdet(a)` and `cotangent(a, y_bar)`.",
                hint="`tj.bridges.matfree.Lanczos(order, samples, key)` is one.",
            )
        )
    value = logdet_by(matrix, Algorithm.of(estimator))
    return labelled(value, one) if is_quantity(a) else value


def _slogdet(a: SquareMatrix, *, estimator: object) -> SlogdetResult:
    """Return sign 1, as of a positive definite matrix, and the logarithm."""
    value = _logdet(a, estimator=estimator)
    number = split_unit(value)[0]
    sign = jnp.where(jnp.isnan(number), number, jnp.ones_like(number))
    return SlogdetResult(sign.astype(a.dtype), value)


def _inv_quad_logdet(
    a: SquareMatrix,
    b: Columns,
    *,
    estimator: object,
    solver: object = None,
    options: dict[str, PyTree] | None = None,
    throw: bool = True,
) -> tuple[AnyArray, AnyArray]:
    if is_structured(a) and batch_of(a):
        raise ShapeError(
            "inv_quad_logdet: an estimator takes one matrix, and this is a batch.\n"
            "Hint: map it: `jax.vmap(lambda a, b: tj.linalg.inv_quad_logdet(a, b, estimator=...))`."
        )
    checks.one_system("inv_quad_logdet", a, b)
    if solver is None:
        own = getattr(estimator, "system_solver", None)
        solver = getattr(estimator, "solver", None) if own is None else own()
        options = getattr(estimator, "options", None) if options is None else options
    x = _solve(a, b, solver=solver, options=options, throw=throw)
    conjugate = b.conj() if is_structured(b) else jnp.conj(jnp.asarray(b))
    return (conjugate * x).sum(), _logdet(a, estimator=estimator)


solve.for_keyword("solver", _solve)
logdet.for_keyword("estimator", _logdet)
slogdet.for_keyword("estimator", _slogdet)
inv_quad_logdet.for_keyword("estimator", _inv_quad_logdet)
