"""The cost of an equation: operations and bytes moved, as XLA counts them before fusion.

XLA does not count inside LAPACK calls; for factorisations the counts are those of Golub and Van
Loan 2013. XLA counts the body of a loop once; this module multiplies bodies of known length. A cost
with unknown parts has `exact=False`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax import _compat, _jaxprs, _marks
from tanjax._errors import NoRuleError
from tanjax._jaxpr_types import Aval, JaxEquation, OpenJaxpr, Readable
from tanjax._typing import Function
from tanjax.arrays import densify
from tanjax.jaxprs import CALLS, LOOPS, Kind, kind_of, nested_jaxprs, opened, trips as runs_of

from .._equations import Equation


class Cost(NamedTuple):
    """Operations, and bytes read and written; lower bounds if `exact=False`."""

    flops: float = 0.0
    bytes: float = 0.0
    exact: bool = True

    def __add__(self, other: Any) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes, self.exact and other.exact)

    def times(self, count: float) -> Cost:
        """Return the cost of `count` runs."""
        return Cost(self.flops * count, self.bytes * count, self.exact)


# For a matrix of m rows and n columns (n of both if square), with all results.
_FORMULAS: dict[str, Callable[[float, float], float]] = {
    "cholesky": lambda m, n: n**3 / 3,
    "lu": lambda m, n: m * n**2 - n**3 / 3,
    "eigh": lambda m, n: 9 * n**3,
    "eig": lambda m, n: 25 * n**3,
    "svd": lambda m, n: 4 * m**2 * n + 8 * m * n**2 + 9 * n**3,
    "geqrf": lambda m, n: 2 * m * n**2 - 2 * n**3 / 3,
    "qr": lambda m, n: 4 * m * n**2 - 4 * n**3 / 3,
    "householder_product": lambda m, n: 2 * m * n**2 - 2 * n**3 / 3,
    "schur": lambda m, n: 25 * n**3,
    "hessenberg": lambda m, n: 10 * n**3 / 3,
    "tridiagonal": lambda m, n: 4 * n**3 / 3,
}


def cost_of_function(function: Callable[..., PyTree], *likes: PyTree) -> tuple[Cost, PyTree] | None:
    """Return the cost of a function and its result as avals; `None` if it would densify."""
    try:
        with _marks.scope(on=False), densify("error"):
            closed, out = jax.make_jaxpr(function, return_shape=True)(*likes)
    except NoRuleError:
        return None
    return cost_of_jaxpr(closed), out


def cost_of_jaxpr(closed: Any) -> Cost:
    """Return the cost of a jaxpr, with loops multiplied by their trips."""
    jaxpr = opened(closed)[0]
    if any(kind_of(eqn) in (*LOOPS, Kind.BRANCH) for eqn in _walk(jaxpr)):
        return sum(map(cost_of_equation, jaxpr.eqns), Cost())
    try:
        found = _as_xla_says(_jaxprs.Closed(jaxpr) if closed is jaxpr else closed)
    except Exception:  # effects, references, no lowering here: count its equations one by one
        if len(jaxpr.eqns) <= 1:
            return Cost(exact=False)
        return sum(map(cost_of_equation, jaxpr.eqns), Cost())
    return found + sum((_missed(eqn) for eqn in _walk(jaxpr)), Cost())


def cost_of_equation(eqn: JaxEquation) -> Cost:
    """Return the cost of one equation of JAX."""
    kind, inner = kind_of(eqn), nested_jaxprs(eqn)
    if kind is Kind.SCAN:
        return cost_of_jaxpr(inner[0]).times(runs_of(eqn))
    if kind is Kind.WHILE:
        return sum(map(cost_of_jaxpr, inner), Cost())._replace(exact=False)
    if kind is Kind.BRANCH:
        return max(map(cost_of_jaxpr, inner))
    if kind in CALLS and inner:
        return cost_of_jaxpr(inner[0])
    avals = tuple(v.val if _jaxprs.is_literal(v) else v.aval for v in eqn.invars)
    key = (eqn.primitive, str(eqn.params), tuple(map(str, avals)))
    if key not in _LEAVES:
        if len(_LEAVES) >= _MOST:
            _LEAVES.clear()
        _LEAVES[key] = _leaf(eqn)
    return _LEAVES[key] + _missed(eqn)


_LEAVES: dict[Hashable, Cost] = {}
_MOST = 4096


def trips(equation: Equation) -> int | None:
    """Return how often an equation runs its body; `None` if that depends on data."""
    eqns = [equation.eqn]
    if equation.kind != "primitive":
        eqns = list(nested_jaxprs(equation.eqn)[0].eqns)
    if Kind.WHILE in map(kind_of, eqns):
        return None
    return int(np.prod(list(map(runs_of, eqns))))


def _leaf(eqn: JaxEquation) -> Cost:
    try:
        run = lambda *args: _compat.bind_again(eqn, list(args))
        return _lowered(run, [v.aval for v in eqn.invars])
    except Exception:  # an equation that cannot be lowered alone
        return Cost(exact=False)


def _as_xla_says(closed: Readable) -> Cost:
    consts = list(closed.consts)
    run = lambda *args: _jaxprs.evaluate(closed.jaxpr, consts, *args)
    return _lowered(run, [v.aval for v in closed.jaxpr.invars])


def _lowered(run: Function, avals: Sequence[Aval]) -> Cost:
    shown = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    with _marks.scope(on=False):
        found = jax.jit(run).lower(*shown).cost_analysis() or {}
    found = found[0] if isinstance(found, list) else found
    return Cost(max(found.get("flops", 0.0), 0.0), max(found.get("bytes accessed", 0.0), 0.0))


def _missed(eqn: JaxEquation) -> Cost:
    """Return the cost of a call of LAPACK, which XLA does not count."""
    name = eqn.primitive.name
    if name not in _FORMULAS and name != "triangular_solve":
        return Cost()
    *batch, m, n = eqn.invars[0].aval.shape
    count = float(np.prod(batch)) if batch else 1.0
    if name == "triangular_solve":
        told = float(np.prod(eqn.invars[1].aval.shape)) * n
    else:
        told = count * _FORMULAS[name](max(m, n), min(m, n))
    complex_ = np.issubdtype(eqn.invars[0].aval.dtype, np.complexfloating)
    key = (eqn.primitive, str(eqn.params), tuple(str(v.aval) for v in eqn.invars), "alone")
    if key not in _LEAVES:
        _LEAVES[key] = _leaf(eqn)
    return Cost(max(0.0, told * (4 if complex_ else 1) - _LEAVES[key].flops))


def _walk(jaxpr: OpenJaxpr) -> Iterator[JaxEquation]:
    """Yield the equations that run, also those of inner jaxprs."""
    for eqn in jaxpr.eqns:
        yield eqn
        inner = [one for _, one in _jaxprs.inner_jaxprs(eqn)]
        if kind_of(eqn) in (*CALLS, Kind.SOLVE):  # the other programs serve derivatives
            inner = list(nested_jaxprs(eqn))
        for one in inner:
            yield from _walk(opened(one)[0])
