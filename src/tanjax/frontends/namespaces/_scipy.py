"""Distributions, interpolation and optimisation, of `jax.scipy` and `jax.random`."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import incompatible
from tanjax._typing import DenseArray, Function
from tanjax.quantities import convert, is_quantity, labelled, split_unit
from tanjax.units import Unit, one
from tanjax.units.signatures import describe_unit

from ._handler import common, linear, unit_function, unit_handler, with_unit


@unit_handler("random.multivariate_normal")
def draw_multivariate_normal(
    raw: Function, key: DenseArray, mean: PyTree, cov: PyTree, *args: PyTree, **kw: PyTree
) -> PyTree:
    """Draw a sample; the covariance is in the square of the unit of the mean."""
    (value, unit), (square, given) = split_unit(mean), linear("multivariate_normal", "cov", cov)
    if unit is one and not np.any(value):
        unit = given ** Fraction(1, 2)
    if given.dimension is not unit.delta.dimension**2:
        facts = f"mean: {describe_unit(unit)}", f"cov: {describe_unit(given)}"
        raise incompatible("multivariate_normal", *facts, "a covariance is in `mean**2`.")
    square = convert(square, given, unit.delta**2)
    return with_unit(raw(key, value, square, *args, **kw), unit)


@unit_handler("scipy.stats.multivariate_normal.pdf", "scipy.stats.multivariate_normal.logpdf")
def multivariate_normal(
    raw: Function, x: PyTree, mean: PyTree, cov: PyTree, *args: PyTree, **kw: PyTree
) -> PyTree:
    """Return a density per unit of each of the `n` variables; its logarithm needs pure numbers."""
    if raw.__name__ == "logpdf":
        return unit_function(raw, "x: 1, mean: 1, cov: 1 -> 1")(x, mean, cov, *args, **kw)
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
    return labelled(raw(value, center, convert(spread, square, unit**2), *args, **kw), unit**-n)


class QuantityInterpolator:
    """`RegularGridInterpolator` whose axes and values have units."""

    def __init__(
        self,
        raw: Function,
        points: PyTree,
        values: PyTree,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: PyTree = np.nan,
    ) -> None:
        pairs = [linear("RegularGridInterpolator", f"points[{i}]", p) for i, p in enumerate(points)]
        self.axes = [unit for _, unit in pairs]
        fill = fill_value if is_quantity(fill_value) or fill_value is None else None
        self.unit, (numbers, fill) = common("RegularGridInterpolator", "U", values, fill)
        self.inner = raw(
            tuple(jnp.asarray(v) for v, _ in pairs),
            jnp.asarray(numbers),
            method,
            bounds_error,
            fill_value if fill is None and fill_value is not None else fill,
        )

    def __call__(self, xi: PyTree, method: str | None = None) -> PyTree:
        """Return values at points: a tuple of one quantity per axis, or an array in one unit."""
        if isinstance(xi, tuple | list):
            parts = [self._coordinate(i, x) for i, x in enumerate(xi)]
            return with_unit(self.inner(tuple(parts), method), self.unit)
        shared = xi.label if is_quantity(xi) else one
        columns = [
            self._coordinate(i, with_unit(split_unit(xi)[0][..., i], shared))
            for i in range(len(self.axes))
        ]
        return with_unit(self.inner(jnp.stack(columns, -1), method), self.unit)

    def _coordinate(self, i: int, x: PyTree) -> PyTree:
        value, unit = linear("RegularGridInterpolator", f"xi[{i}]", x)
        if unit.dimension is not self.axes[i].dimension:
            raise incompatible(
                "RegularGridInterpolator",
                f"points[{i}]: {describe_unit(self.axes[i])}",
                f"xi[{i}]: {describe_unit(unit)}",
            )
        return convert(value, unit, self.axes[i])


@unit_handler("scipy.interpolate.RegularGridInterpolator")
def regular_grid_interpolator(
    raw: Function, *args: PyTree, **kwargs: PyTree
) -> QuantityInterpolator:
    """Return an interpolator of quantities."""
    return QuantityInterpolator(raw, *args, **kwargs)


@unit_handler("scipy.optimize.minimize")
def minimize(
    raw: Function, fun: Function, x0: PyTree, args: Sequence[PyTree] = (), **kwargs: PyTree
) -> PyTree:
    """Minimise a function of a quantity; `x`, `fun`, `jac` and `hess_inv` are quantities, too."""
    value, unit = linear("minimize", "x0", x0)
    units_seen: list[Unit] = []

    def numbers(x: PyTree) -> PyTree:
        out, loss_unit = linear("minimize", "fun(x)", fun(labelled(x, unit), *args))
        units_seen[:] = [loss_unit]
        return out

    found = raw(numbers, value, **kwargs)
    loss = units_seen[0]
    inverse = found.hess_inv
    return found._replace(
        x=labelled(found.x, unit),
        fun=labelled(found.fun, loss),
        jac=labelled(found.jac, loss / unit),
        hess_inv=None if inverse is None else labelled(inverse, unit**2 / loss),
    )
