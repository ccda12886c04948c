"""Linear algebra: determinants, powers and products of matrices, factors in pairs, solvers."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import UnitError, incompatible, message
from tanjax._typing import Function
from tanjax.quantities import Quantity, convert, is_quantity, labelled, split_unit
from tanjax.units import Unit
from tanjax.units.signatures import describe_unit

from ..signatures import TABLES
from ._handler import common, linear, pure, unit_function, unit_handler


@unit_handler("linalg.det", "scipy.linalg.det")
def det(raw: Function, a: PyTree, *args: PyTree, **kwargs: PyTree) -> Quantity:
    """Return the determinant, in the unit to the power of the number of rows."""
    value, unit = linear("det", "a", a)
    return labelled(raw(value, *args, **kwargs), unit ** np.shape(value)[-1])


@unit_handler("linalg.matrix_power")
def matrix_power(raw: Function, a: PyTree, n: int) -> PyTree:
    """Return the power, in the unit to the power `n`."""
    value, unit = linear("matrix_power", "a", a)
    return labelled(raw(value, n), unit**n)


@unit_handler("linalg.multi_dot")
def multi_dot(raw: Function, arrays: PyTree, **kwargs: PyTree) -> PyTree:
    """Return the product, in the product of the units."""
    values, units = zip(
        *(linear("multi_dot", f"arrays[{i}]", a) for i, a in enumerate(arrays)), strict=True
    )
    return labelled(raw(values, **kwargs), functools.reduce(Unit.__mul__, units))


@unit_handler("linalg.matrix_rank")
def matrix_rank(
    raw: Function, M: PyTree, rtol: PyTree = None, *, tol: PyTree = None, **kwargs: PyTree
) -> PyTree:
    """Compute the rank by a tolerance relative to the largest singular value; JAX's is absolute."""
    value, _ = linear("matrix_rank", "M", M)
    if rtol is None or tol is not None or jnp.ndim(value) < 2:
        return unit_function(raw, TABLES["linalg"]["matrix_rank"])(M, rtol, tol=tol, **kwargs)
    largest = jnp.linalg.norm(value, 2, axis=(-2, -1))
    return raw(value, pure("matrix_rank", "rtol", rtol) * largest, **kwargs)


@unit_handler("scipy.linalg.cho_solve")
def cho_solve(
    raw: Function, c_and_lower: tuple[PyTree, bool], b: PyTree, *args: PyTree, **kwargs: PyTree
) -> Quantity:
    """Solve with a factor whose unit is the square root of the matrix' unit."""
    factor, lower = c_and_lower
    c, u = linear("cho_solve", "c", factor)
    value, v = linear("cho_solve", "b", b)
    return labelled(raw((c, lower), value, *args, **kwargs), v / u**2)


@unit_handler("lax.linalg.symmetric_product")
def symmetric_product(
    raw: Function,
    a_matrix: PyTree,
    c_matrix: PyTree,
    *,
    alpha: PyTree = 1.0,
    beta: PyTree = 0.0,
    **kwargs: PyTree,
) -> Quantity:
    """Return `alpha * a @ a.T + beta * c` in the unit of the first term."""
    a, u = linear("symmetric_product", "a_matrix", a_matrix)
    c, v = linear("symmetric_product", "c_matrix", c_matrix)
    unit = u**2
    if unit.dimension is not v.dimension:
        raise incompatible(
            "symmetric_product", f"a @ a.T: {describe_unit(unit)}", f"c: {describe_unit(v)}"
        )
    return labelled(raw(a, convert(c, v, unit), alpha=alpha, beta=beta, **kwargs), unit)


@unit_handler("scipy.sparse.linalg.cg", "scipy.sparse.linalg.gmres", "scipy.sparse.linalg.bicgstab")
def krylov(
    raw: Function,
    A: PyTree,
    b: PyTree,
    x0: PyTree = None,
    *,
    atol: PyTree = 0.0,
    M: PyTree = None,
    **kwargs: PyTree,
) -> PyTree:
    """Solve `A @ x = b` for one vector; `A` is a matrix, or a function of quantities."""
    name = raw.__name__
    number, v = linear(name, "b", b)
    if callable(A):
        # The unit of a matrix given as a function, from the starting point.
        if not is_quantity(x0):
            raise UnitError(
                message(
                    f"{name}: with a function as `A`, the unit of the solution is not known.",
                    hint="give a starting point with a unit, `x0=0.0 * x_unit * jnp.ones(n)`.",
                )
            )
        u = v / x0.label
        apply = lambda x: common(name, "u", labelled(number, v), A(labelled(x, v / u)))[1][1]
    else:
        apply, u = linear(name, "A", A)
    unit = v / u
    start = None if x0 is None else common(name, "u", labelled(jnp.zeros(()), unit), x0)[1][1]
    tolerance = common(name, "u", labelled(jnp.zeros(()), v), atol)[1][1]
    if M is not None and (callable(M) or not split_unit(M)[1].is_dimensionless):
        raise UnitError(
            message(f"{name}: a preconditioner is a dimensionless matrix here.", hint="scale it.")
        )
    M = None if M is None else pure(name, "M", M)
    x, info = raw(apply, number, start, atol=tolerance, M=M, **kwargs)
    return labelled(x, unit), info
