"""Factorisations whose two factors share an array, read apart.

`lu` packs `L`, whose entries are at most 1, and `U`, which is as large as the matrix, into one
array. For a matrix of 1e50, no exponent holds both. But each reader needs only one: a triangular
solve with a unit diagonal reads the part below the diagonal, another solve the rest, and a
determinant the diagonal. So the graph gives the equation two more results, `lower` at exponent 0
and `upper` at that of the matrix. Both are the packed array of the matrix as it is stored; their
readers never read the other triangle.

    factors = Factors(packed=..., lower=..., upper=...)
    factors.part_for(equation)  # which of them an equation reads in place of the packed array

Sharp edge: any other reader gets the packed array at exponent 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tanjax import _compat
from tanjax._jaxpr_types import JaxEquation, JaxVariable, Steps
from tanjax.jaxprs import Kind, given, kind_of, nested_jaxprs, opened

from ..graph._graph import Value

NAME = "tanjax_lu"  # of nodes whose equation is `lu`
_OF_UPPER = ("diagonal", "triu")  # JAX's own functions that read nothing below the diagonal


class Factors(NamedTuple):
    """The values of a packed factorisation."""

    packed: Value
    lower: Value
    upper: Value

    def part_for(self, equation: JaxEquation) -> Value | None:
        """Return the part that an equation reads instead of the packed array; None for all."""
        if equation.primitive.name == "triangular_solve":
            if equation.params["unit_diagonal"]:
                return self.lower if equation.params["lower"] else None
            return None if equation.params["lower"] else self.upper
        if equation.params.get("name") in _OF_UPPER and _compat.jax_function_of(equation):
            return self.upper
        return None


def called(equation: JaxEquation) -> tuple[Steps, Sequence[JaxVariable]] | None:
    """Return the jaxpr that a call runs, and the operands that are its arguments.

    Callers follow calls as long as they pass a factorisation on; `solve` does so twice.
    """
    if kind_of(equation) not in (Kind.JIT, Kind.SOLVE):
        return None
    return nested_jaxprs(equation)[0], given(equation, equation.invars)[0]


def hands_out(equation: JaxEquation) -> bool:
    """True if a call returns a packed factorisation: `lu_factor`, `solve` in a gradient."""
    call = called(equation)
    if call is None:
        return False
    jaxpr, _ = opened(call[0])
    results = {v for v in jaxpr.outvars if not hasattr(v, "val")}
    return any(
        inner.outvars[0] in results
        if inner.primitive.name == "lu"
        else not results.isdisjoint(inner.outvars) and hands_out(inner)
        for inner in jaxpr.eqns
    )
