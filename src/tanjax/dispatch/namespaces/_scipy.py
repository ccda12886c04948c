"""Specials of `jax.scipy` and `jax.lax.linalg`: classes, pairs, solvers, densities in space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from tanjax._errors import UnitError, incompatible, message
from tanjax.arrays import Unitful, convert
from tanjax.registry._careful import labelled as quantity
from tanjax.units import Unit, one
from tanjax.units.signatures import describe_unit

from ._by_flags import front
from ._handler import linear, pure, special, split
from ._numpy import common, labelled


@special("scipy.linalg.det")
def det(raw: Any, a: Any, *args: Any, **kwargs: Any) -> Unitful:
    """The unit to the power of the number of rows."""
    value, unit = linear("det", "a", a)
    return quantity(raw(value, *args, **kwargs), unit ** np.shape(value)[-1])


@special("scipy.linalg.cho_solve")
def cho_solve(raw: Any, c_and_lower: Any, b: Any, *args: Any, **kwargs: Any) -> Unitful:
    """The factor has half of the matrix' unit."""
    factor, lower = c_and_lower
    c, u = linear("cho_solve", "c", factor)
    value, v = linear("cho_solve", "b", b)
    return quantity(raw((c, lower), value, *args, **kwargs), v / u**2)


@special("lax.linalg.symmetric_product")
def symmetric_product(
    raw: Any, a_matrix: Any, c_matrix: Any, *, alpha: Any = 1.0, beta: Any = 0.0, **kwargs: Any
) -> Unitful:
    """`alpha * a @ a.T + beta * c` in the unit of the first term."""
    a, u = linear("symmetric_product", "a_matrix", a_matrix)
    c, v = linear("symmetric_product", "c_matrix", c_matrix)
    unit = u**2
    if unit.dimension is not v.dimension:
        raise incompatible(
            "symmetric_product", f"a @ a.T: {describe_unit(unit)}", f"c: {describe_unit(v)}"
        )
    return quantity(raw(a, convert(c, v, unit), alpha=alpha, beta=beta, **kwargs), unit)


@special("scipy.stats.multivariate_normal.pdf", "scipy.stats.multivariate_normal.logpdf")
def multivariate_normal(raw: Any, x: Any, mean: Any, cov: Any, *args: Any, **kw: Any) -> Any:
    """A density per unit of each of the `n` variables; its logarithm needs pure numbers."""
    if raw.__name__ == "logpdf":
        return front(raw, "x: 1, mean: 1, cov: 1 -> 1")(x, mean, cov, *args, **kw)
    unit, (value, center) = common("pdf", "u", x, mean)
    unit = unit or one
    spread, square = linear("pdf", "cov", cov)
    if square.dimension is not (unit**2).dimension:
        raise incompatible(
            "pdf",
            f"x: {describe_unit(unit)}",
            f"cov: {describe_unit(square)}",
            "the covariance has the square of the unit.",
        )
    n = np.shape(value)[-1] if np.ndim(value) else 1
    return quantity(raw(value, center, convert(spread, square, unit**2), *args, **kw), unit**-n)


class UnitfulInterpolator:
    """`RegularGridInterpolator` whose axes and values have units."""

    def __init__(
        self,
        raw: Any,
        points: Any,
        values: Any,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: Any = np.nan,
    ) -> None:
        pairs = [linear("RegularGridInterpolator", f"points[{i}]", p) for i, p in enumerate(points)]
        self.axes = [unit for _, unit in pairs]
        fill = fill_value if isinstance(fill_value, Unitful) or fill_value is None else None
        self.unit, (numbers, fill) = common("RegularGridInterpolator", "U", values, fill)
        self.inner = raw(
            tuple(jnp.asarray(v) for v, _ in pairs),
            jnp.asarray(numbers),
            method,
            bounds_error,
            fill_value if fill is None and fill_value is not None else fill,
        )

    def __call__(self, xi: Any, method: Any = None) -> Any:
        """Values at points: one quantity per axis in a tuple, or an array if they share a unit."""
        if isinstance(xi, tuple | list):
            parts = [self._coordinate(i, x) for i, x in enumerate(xi)]
            return labelled(self.inner(tuple(parts), method), self.unit)
        shared = xi.label if type(xi) is Unitful else one
        columns = [
            self._coordinate(i, labelled(split(xi)[0][..., i], shared))
            for i in range(len(self.axes))
        ]
        return labelled(self.inner(jnp.stack(columns, -1), method), self.unit)

    def _coordinate(self, i: int, x: Any) -> Any:
        value, unit = linear("RegularGridInterpolator", f"xi[{i}]", x)
        if unit.dimension is not self.axes[i].dimension:
            raise incompatible(
                "RegularGridInterpolator",
                f"points[{i}]: {describe_unit(self.axes[i])}",
                f"xi[{i}]: {describe_unit(unit)}",
            )
        return convert(value, unit, self.axes[i])


@special("scipy.interpolate.RegularGridInterpolator")
def regular_grid_interpolator(raw: Any, *args: Any, **kwargs: Any) -> UnitfulInterpolator:
    """An interpolator of quantities."""
    return UnitfulInterpolator(raw, *args, **kwargs)


@special("scipy.optimize.minimize")
def minimize(raw: Any, fun: Any, x0: Any, args: Any = (), **kwargs: Any) -> Any:
    """The function gets a quantity and may return one; so are `x`, `fun`, `jac` and `hess_inv`."""
    value, unit = linear("minimize", "x0", x0)
    units_seen: list[Unit] = []

    def numbers(x: Any) -> Any:
        out, loss_unit = linear("minimize", "fun(x)", fun(quantity(x, unit), *args))
        units_seen[:] = [loss_unit]
        return out

    found = raw(numbers, value, **kwargs)
    loss = units_seen[0]
    inverse = found.hess_inv
    return found._replace(
        x=quantity(found.x, unit),
        fun=quantity(found.fun, loss),
        jac=quantity(found.jac, loss / unit),
        hess_inv=None if inverse is None else quantity(inverse, unit**2 / loss),
    )


@special("scipy.sparse.linalg.cg", "scipy.sparse.linalg.gmres", "scipy.sparse.linalg.bicgstab")
def krylov(
    raw: Callable[..., Any],
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    atol: Any = 0.0,
    M: Any = None,
    **kwargs: Any,
) -> Any:
    """`A @ x = b` for one vector; `A` a matrix, or a function of quantities."""
    name = raw.__name__
    number, v = linear(name, "b", b)
    if callable(A):
        u = _unit_of_function(name, A, x0, v)
        apply = lambda x: common(name, "u", quantity(number, v), A(quantity(x, v / u)))[1][1]
    else:
        apply, u = linear(name, "A", A)
    unit = v / u
    start = None if x0 is None else common(name, "u", quantity(jnp.zeros(()), unit), x0)[1][1]
    tolerance = common(name, "u", quantity(jnp.zeros(()), v), atol)[1][1]
    if M is not None and (callable(M) or not split(M)[1].is_dimensionless):
        raise UnitError(
            message(f"{name}: a preconditioner is a dimensionless matrix here.", hint="scale it.")
        )
    M = None if M is None else pure(name, "M", M)
    x, info = raw(apply, number, start, atol=tolerance, M=M, **kwargs)
    return quantity(x, unit), info


def _unit_of_function(name: str, A: Any, x0: Any, b: Unit) -> Unit:
    """The unit of a matrix given as a function, from the starting point."""
    if type(x0) is not Unitful:
        raise UnitError(
            message(
                f"{name}: with a function as `A`, the unit of the solution is not known.",
                hint="give a starting point with a unit, `x0=0.0 * x_unit * jnp.ones(n)`.",
            )
        )
    return b / x0.label
