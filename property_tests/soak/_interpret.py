"""An interpreter of jaxprs on wide numbers, which shares no code with the planner.

The planner must not judge itself. So this interpreter implements JAX's primitives again, but only
those in random programs. It runs structure (loops, branches, calls) unchanged.

    closed = jax.make_jaxpr(f)(*float64_arguments)
    evaluate(closed, arguments, Sample(eps, seed), dtype)

Sharp edges. Unknown primitives and loops that do not end raise `Unusable`. The hunt then does not
judge the program, and counts it as unusable.
"""

from __future__ import annotations

import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax._compat import scan_counts
from tanjax._jaxpr_types import Aval, JaxEquation, JaxVariable, OpenJaxpr, Readable
from tanjax._jaxprs import is_literal

from ._primitives import MEANINGS, Unusable
from ._wide import Sample, Wide, constant

_MANY = 2000  # turns of a loop


def evaluate(
    closed: Readable, arguments: list[PyTree], sample: Sample, dtype: DTypeLike
) -> list[PyTree]:
    """Return the results of a closed jaxpr on NumPy arrays: floats are `longdouble`.

    **Raises:** `Unusable` for a primitive that has no rule here.
    """
    with np.errstate(all="ignore"):
        return _Run(sample, dtype).closed(closed, arguments)


def wide(x: PyTree) -> PyTree:
    """Return floating-point numbers as `longdouble`, others unchanged."""
    x = np.asarray(x)
    return x.astype(Wide) if x.dtype.kind not in "biu" else x


class _Run:
    def __init__(self, sample: Sample, dtype: DTypeLike) -> None:
        self.sample = sample
        self.dtype = dtype

    def _constant(self, x: PyTree) -> PyTree:
        x = np.asarray(x)
        return x if x.dtype.kind in "biu" else constant(self.sample, x, self.dtype)

    def closed(self, closed: Readable, arguments: PyTree) -> list[PyTree]:
        return self.jaxpr(closed.jaxpr, [self._constant(c) for c in closed.consts], arguments)

    def jaxpr(self, jaxpr: OpenJaxpr, consts: PyTree, arguments: PyTree) -> list[PyTree]:
        known: dict[JaxVariable, PyTree] = dict(zip(jaxpr.constvars, consts, strict=True))
        known.update(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: JaxVariable) -> PyTree:
            return self._constant(atom.val) if is_literal(atom) else known[atom]

        for eqn in jaxpr.eqns:
            values = [read(atom) for atom in eqn.invars]
            known.update(zip(eqn.outvars, self.equation(eqn, values), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, eqn: JaxEquation, values: list[PyTree]) -> list[PyTree]:
        name, params = eqn.primitive.name, eqn.params
        if name in ("scan", "while", "cond"):
            return getattr(self, name + "_")(params, values)
        for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            if key in params:
                inner = params[key]
                if hasattr(inner, "consts"):
                    return self.closed(inner, values)
                return self.jaxpr(inner, [], values)
        if name not in MEANINGS:
            raise Unusable(f"the reference has no rule for {name}")
        return MEANINGS[name](self.sample, eqn, *values)

    def scan_(self, params: PyTree, values: list[PyTree]) -> list[PyTree]:
        count, n = scan_counts(params)
        consts, carry, xs = values[:count], values[count : count + n], values[count + n :]
        order = range(params["length"])
        rows: list[list[PyTree]] = [[] for _ in params["jaxpr"].jaxpr.outvars[n:]]
        for i in reversed(order) if params["reverse"] else order:
            out = self.closed(params["jaxpr"], [*consts, *carry, *(x[i] for x in xs)])
            carry = out[:n]
            for row, y in zip(rows, out[n:], strict=True):
                row.append(y)
        if params["reverse"]:
            rows = [row[::-1] for row in rows]
        avals = params["jaxpr"].out_avals[n:]
        return [*carry, *(_stacked(row, a) for row, a in zip(rows, avals, strict=True))]

    def while_(self, params: PyTree, values: list[PyTree]) -> list[PyTree]:
        first, second = params["cond_nconsts"], params["body_nconsts"]
        of_cond, of_body = values[:first], values[first : first + second]
        carry = values[first + second :]
        for _ in range(_MANY):
            if not np.all(self.closed(params["cond_jaxpr"], [*of_cond, *carry])[0]):
                return list(carry)
            carry = self.closed(params["body_jaxpr"], [*of_body, *carry])
        raise Unusable("a loop does not end")

    def cond_(self, params: PyTree, values: list[PyTree]) -> list[PyTree]:
        branches = params["branches"]
        index = int(np.clip(int(values[0]), 0, len(branches) - 1))
        return self.closed(branches[index], values[1:])


def _stacked(row: list[PyTree], aval: Aval) -> PyTree:
    if row:
        return np.stack(row)
    kind = aval.dtype if aval.dtype.kind in "biu" else Wide
    return np.zeros((0, *aval.shape), kind)
