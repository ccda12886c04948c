"""Polynomials: if the variable has a dimension, every coefficient has its own unit.

An array has one unit, so the coefficients of `h(t) = g/2 t^2 + v t + h` are a *list* of
quantities, highest power first, as NumPy orders them: `[-4.9 m/s2, 3 m/s, 2 m]`. `polyfit` of
metres over seconds returns such a list; `polyval`, `polyder`, `polyint` and `roots` take it.
With a dimensionless variable all coefficients share a unit, and are an array as in NumPy.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jaxtyping import PyTree

from tanjax._errors import UnitError, incompatible
from tanjax._typing import Function
from tanjax.quantities import Quantity, convert, is_quantity, labelled, split_unit
from tanjax.units import Unit, one
from tanjax.units.signatures import describe_unit

from ._handler import is_near_limits, linear, unit_function, unit_handler


def _coefficients(name: str, p: PyTree) -> tuple[list[PyTree], list[Unit]]:
    """Return the number and the unit of every coefficient."""
    if not isinstance(p, list | tuple):
        value, unit = linear(name, "p", p)
        return list(jnp.asarray(value)), [unit] * len(value)
    pairs = [linear(name, f"p[{i}]", c) for i, c in enumerate(p)]
    return [value for value, _ in pairs], [unit for _, unit in pairs]


def _converted(name: str, values: list[PyTree], given: list[Unit], wanted: list[Unit]) -> PyTree:
    """Return coefficients as an array of numbers in the wanted units. **Raises:** `UnitError`."""
    _check(name, given, wanted)
    triples = zip(values, given, wanted, strict=True)
    return jnp.stack([convert(jnp.asarray(v), a, b) for v, a, b in triples])


def _check(name: str, given: list[Unit], wanted: list[Unit]) -> None:
    """**Raises:** `UnitError` if a coefficient has the wrong dimension."""
    for i, (a, b) in enumerate(zip(given, wanted, strict=True)):
        if a.dimension is not b.dimension:
            raise incompatible(
                name,
                f"p[{i}]: {describe_unit(a)}",
                f"expected: {describe_unit(b)}",
                "give the coefficients as a list of quantities, highest power first.",
            )


def _powers(top: Unit, variable: Unit, n: int) -> list[Unit]:
    """Return the units of `n` coefficients, highest power first; the constant term is in `top`."""
    return [top / variable**k for k in range(n - 1, -1, -1)]


@unit_handler("numpy.polyval")
def polyval(raw: Function, p: PyTree, x: PyTree, **kwargs: PyTree) -> Quantity:
    """Return the value, in the unit of the constant coefficient."""
    values, given = _coefficients("polyval", p)
    number, variable = linear("polyval", "x", x)
    wanted = _powers(given[-1], variable, len(values))
    if is_near_limits(raw):  # a coefficient may overflow in the unit that it needs
        _check("polyval", given, wanted)
        first, *rest = map(labelled, values, given)
        return functools.reduce(lambda total, c: total * x + c, rest, first)
    return labelled(raw(_converted("polyval", values, given, wanted), number, **kwargs), given[-1])


@unit_handler("lax.polynomial")
def polynomial(raw: Function, x: PyTree, coeffs: PyTree, **kwargs: PyTree) -> Quantity:
    """As `polyval`, with the constant coefficient first."""
    values, given = _coefficients("polynomial", list(coeffs))
    number, variable = linear("polynomial", "x", x)
    wanted = _powers(given[0], variable, len(values))[::-1]
    numbers = _converted("polynomial", values, given, wanted)
    return labelled(raw(number, list(numbers), **kwargs), given[0])


@unit_handler("numpy.polyfit")
def polyfit(
    raw: Function,
    x: PyTree,
    y: PyTree,
    deg: int,
    rcond: PyTree = None,
    full: bool = False,
    w: PyTree = None,
    cov: PyTree = False,
) -> PyTree:
    """Return an array if `x` is dimensionless, else a list of quantities; any unit for weights.

    The covariance of a list of coefficients is a list of rows: each entry has its own unit.
    """
    number, variable = linear("polyfit", "x", x)
    if variable.is_dimensionless:
        inner = unit_function(raw, f"x: 1, y: u, w: v -> {_fit_results(full, cov)}")
        return inner(x, y, deg, rcond, full, w, cov)
    values, unit = linear("polyfit", "y", y)
    weights, weight = split_unit(w)
    powers = _powers(unit, variable, deg + 1)
    out = raw(number, values, deg, rcond, full, weights, cov)
    fitted, *more = out if full or cov else (out,)
    coefficients = [labelled(c, u) for c, u in zip(fitted, powers, strict=True)]
    if full:
        residuals, *rest = more
        return coefficients, labelled(residuals, unit**2 * weight**2), *rest
    if not cov:
        return coefficients
    rows = zip(more[0], powers, strict=True)
    return coefficients, [
        [labelled(c, u * v) for c, v in zip(row, powers, strict=True)] for row, u in rows
    ]


def _fit_results(full: bool, cov: PyTree) -> str:
    if full:
        return "(u, u^2*v^2, -, -, -)"
    return "(u, u^2)" if cov else "u"


@unit_handler("numpy.polyder")
def polyder(raw: Function, p: PyTree, m: int = 1) -> PyTree:
    """Differentiate; coefficients keep their units, and belong to lower powers."""
    if is_quantity(p):
        return unit_function(raw, "p: u -> u")(p, m)
    values, given = _coefficients("polyder", p)
    out = raw(jnp.stack([jnp.asarray(v) for v in values]), m)
    return [labelled(c, u) for c, u in zip(out, given[: len(out)], strict=True)]


@unit_handler("numpy.polyint")
def polyint(raw: Function, p: PyTree, m: int = 1, k: PyTree = None) -> PyTree:
    """Integrate; the variable of a list is in the ratio of two neighbouring units."""
    if is_quantity(p) or not isinstance(p, list | tuple):
        return unit_function(raw, "p: u, k: u -> u")(p, m, k)
    values, given = _coefficients("polyint", p)
    variable = _variable("polyint", given)
    new = [given[-1] * variable**i for i in range(1, m + 1)]
    constants = None
    if k is not None:
        listed = list(k) if isinstance(k, list | tuple) else [k] * m
        # the first constant is integrated most often, so it has the highest power
        constants = _converted("polyint", *_coefficients("polyint", listed), new[:m])
    out = raw(jnp.stack([jnp.asarray(v) for v in values]), m, constants)
    return [labelled(c, u) for c, u in zip(out, given + new, strict=True)]


@unit_handler("numpy.roots")
def roots(raw: Function, p: PyTree, **kwargs: PyTree) -> Quantity:
    """Return roots in the unit of the variable: 1 for an array, a ratio of units for a list."""
    values, given = _coefficients("roots", p)
    variable = _variable("roots", given)
    wanted = [given[0] * variable**i for i in range(len(given))]
    return labelled(raw(_converted("roots", values, given, wanted), **kwargs), variable)


def _variable(name: str, given: list[Unit]) -> Unit:
    """Return the unit of the variable, from the first two coefficients. **Raises:** `UnitError`."""
    if len(given) < 2:
        raise UnitError(f"{name}: one coefficient does not say what the variable's unit is.")
    unit = given[1] / given[0]
    return one if unit.is_dimensionless and given[0] is given[1] else unit
