"""Handlers of `jax.numpy`: defaults with units, nested arguments, points and differences."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from tanjax import units
from tanjax._errors import UnitError, message
from tanjax._typing import Axis, Function
from tanjax.arrays import is_inexact
from tanjax.quantities import Quantity, convert, is_quantity, labelled, split_unit
from tanjax.units import one

from ..signatures import TABLES
from ._handler import (
    common,
    linear,
    pure,
    together,
    ungraphed,
    unit_function,
    unit_handler,
    with_unit,
)


@unit_handler("numpy.array", "numpy.asarray")
def array(
    raw: Function, object: PyTree, dtype: DTypeLike | None = None, *args: PyTree, **kwargs: PyTree
) -> PyTree:
    """Return a quantity, or a nested list of quantities, as one quantity."""
    make = lambda numbers: raw(numbers, dtype, *args, **kwargs)
    return together(raw.__name__, "U", make, object)


@unit_handler("numpy.block")
def block(raw: Function, arrays: PyTree) -> PyTree:
    """Join nested lists of blocks in one unit."""
    return together("block", "U", raw, arrays)


@unit_handler("numpy.pad")
def pad(
    raw: Function,
    array: PyTree,
    pad_width: PyTree,
    mode: str | Function = "constant",
    **kwargs: PyTree,
) -> PyTree:
    """Pad with values in the unit of the array; a function as `mode` gets numbers in it."""
    fills = {k: kwargs[k] for k in ("constant_values", "end_values") if k in kwargs}
    # the default fill is zero, which is not neutral on an affine scale
    zero = not fills and mode in ("constant", "linear_ramp")
    role = "u" if zero or mode == "empty" or callable(mode) else "U"
    if hasattr(array, "dtype") and is_inexact(array):  # as JAX casts, without a warning for losses
        is_array = lambda x: hasattr(x, "dtype") and not is_quantity(x)
        held = lambda x: x.astype(array.dtype) if is_array(x) else x
        fills = jax.tree.map(held, fills, is_leaf=is_quantity)
    padded = lambda numbers, fills: raw(numbers, pad_width, mode, **(kwargs | fills))
    return together("pad", role, padded, array, fills)


# -- defaults that only fit pure numbers -----------------------------------------------------------


@unit_handler("numpy.isclose", "numpy.allclose")
def isclose(
    raw: Function,
    a: PyTree,
    b: PyTree,
    rtol: PyTree = None,
    atol: PyTree = None,
    equal_nan: bool = False,
) -> PyTree:
    """Compare with an absolute tolerance in the unit, 0 by default for anything with a dimension.

    For points of a scale only differences have a meaning, so there is no relative tolerance.
    """
    if not (split_unit(a)[1].is_linear and split_unit(b)[1].is_linear):
        if atol is None or (rtol is not None and rtol != 0):
            raise UnitError(
                message(
                    f"{raw.__name__}: a part of a point of a scale means nothing.",
                    hint="give `atol`, a difference such as `0.1 * tj.unit('delta_degC')`, "
                    "and `rtol=0`, or nothing.",
                )
            )
        unit, (a, b) = common(raw.__name__, "U", a, b)
        atol, step = linear(raw.__name__, "atol", atol)
        return raw(a, b, rtol=0.0, atol=convert(atol, step, unit.delta), equal_nan=equal_nan)
    dimensionless = split_unit(a)[1].is_dimensionless and split_unit(b)[1].is_dimensionless
    if rtol is None and atol is None and not (equal_nan or dimensionless):
        return unit_function(_without_tolerance(ungraphed(raw)), "a: u, b: u -> -")(a, b)
    given: dict[str, PyTree] = {"equal_nan": equal_nan} if equal_nan else {}
    if rtol is not None:
        given["rtol"] = rtol
    if atol is not None:
        given["atol"] = atol
    elif not dimensionless:
        given["atol"] = 0.0
    return unit_function(raw, "a: u, b: u, rtol: 1, atol: u -> -")(a, b, **given)


@functools.cache
def _without_tolerance(raw: Function) -> Function:
    """Return `raw` with `atol=0` compiled in: moving a number to the device costs 2 us."""
    return functools.wraps(raw)(jax.jit(lambda a, b: raw(a, b, atol=0.0), inline=True))


@unit_handler("numpy.linspace")
def linspace(
    raw: Function,
    start: PyTree,
    stop: PyTree,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    **kwargs: PyTree,
) -> PyTree:
    """Return points between two; the step between them is a difference."""
    if not retstep:
        return unit_function(raw, "start: U, stop: U -> U")(start, stop, num, endpoint, **kwargs)
    unit, (start, stop) = common("linspace", "U", start, stop)
    points, step = raw(start, stop, num, endpoint, retstep, **kwargs)
    return with_unit(points, unit), with_unit(step, unit and unit.delta)


@unit_handler("numpy.arange")
def arange(
    raw: Function,
    start: PyTree,
    stop: PyTree = None,
    step: PyTree = None,
    *args: PyTree,
    **kw: PyTree,
) -> PyTree:
    """Return a range with a unit. **Raises:** `UnitError` without a step: 1 has no unit."""
    out = unit_function(raw, "start: u, stop: u, step: u -> u")(start, stop, step, *args, **kw)
    if step is None and not out.label.is_dimensionless:
        raise UnitError(
            message(
                f"arange: a step of 1 has no meaning in {out.label}.",
                hint="say the step: `arange(start, stop, step)`, with a unit.",
            )
        )
    return out


@unit_handler("numpy.interp")
def interp(
    raw: Function,
    x: PyTree,
    xp: PyTree,
    fp: PyTree,
    left: PyTree = None,
    right: PyTree = None,
    period: PyTree = None,
) -> PyTree:
    """Interpolate; set both ends if one is given, because compiled JAX takes it for the other."""
    if period is None and (left is None) is not (right is None):
        left, right = (fp[0] if left is None else left), (fp[-1] if right is None else right)
    return unit_function(raw, TABLES["numpy"]["interp"])(x, xp, fp, left, right, period)


@unit_handler("numpy.percentile", "numpy.nanpercentile")
def percentile(raw: Function, a: PyTree, q: PyTree, *args: PyTree, **kwargs: PyTree) -> PyTree:
    """Return percentiles for `q` in percent; quantities are converted to percent."""
    if is_quantity(q):
        pure(raw.__name__, "q", q)
        q = q.to_value(units.unit("percent"))
    return unit_function(raw, TABLES["numpy"]["percentile"])(a, q, *args, **kwargs)


# -- angles ----------------------------------------------------------------------------------------


@unit_handler("numpy.angle")
def angle(raw: Function, z: PyTree, deg: bool = False) -> PyTree:
    """Return the angle in radians, or in degrees."""
    value, _ = linear("angle", "z", z)
    return labelled(raw(value, deg), units.unit("deg" if deg else "rad"))


@unit_handler("numpy.deg2rad", "numpy.radians")
def deg2rad(raw: Function, x: PyTree) -> PyTree:
    """Convert an angle to radians."""
    return _angle_in(raw.__name__, x, "rad")


@unit_handler("numpy.rad2deg", "numpy.degrees")
def rad2deg(raw: Function, x: PyTree) -> PyTree:
    """Convert an angle to degrees."""
    return _angle_in(raw.__name__, x, "deg")


def _angle_in(name: str, x: PyTree, unit: str) -> Quantity:
    return labelled(pure(name, "x", x), one).to(unit)


# -- differences: of points of an affine scale, too ------------------------------------------------


def differences(name: str, role: str, *xs: PyTree) -> tuple[PyTree, list[PyTree]]:
    """Strip operands whose differences alone matter. **Returns:** their unit, and the numbers."""
    first, *rest = xs
    if is_quantity(first) and all(x is None for x in rest):  # 3 us less than flattening trees
        return units.subtract_units(first.label, first.label), [first.stored, *rest]
    unit, numbers = common(name, role, *xs)
    return (None if unit is None else units.subtract_units(unit, unit)), list(numbers)


@unit_handler("numpy.ptp")
def ptp(raw: Function, a: PyTree, *args: PyTree, **kwargs: PyTree) -> PyTree:
    """Return the greatest difference."""
    unit, (value,) = differences("ptp", "U", a)
    return with_unit(raw(value, *args, **kwargs), unit)


def _spread(
    power: int, raw: Function, a: PyTree, *args: PyTree, mean: PyTree = None, **kwargs: PyTree
) -> PyTree:
    unit, (value, mean) = differences(raw.__name__, "U", a, mean)
    if mean is not None:
        kwargs["mean"] = mean
    return with_unit(raw(value, *args, **kwargs), None if unit is None else unit**power)


unit_handler("numpy.std", "numpy.nanstd")(functools.partial(_spread, 1))
unit_handler("numpy.var", "numpy.nanvar")(functools.partial(_spread, 2))


@unit_handler("numpy.diff")
def diff(
    raw: Function,
    a: PyTree,
    n: int = 1,
    axis: int = -1,
    prepend: PyTree = None,
    append: PyTree = None,
) -> PyTree:
    """Return differences of neighbours."""
    if n == 0:
        return a
    unit, (value, prepend, append) = differences("diff", "U", a, prepend, append)
    return with_unit(raw(value, n, axis, prepend, append), unit)


@unit_handler("numpy.ediff1d")
def ediff1d(raw: Function, ary: PyTree, to_end: PyTree = None, to_begin: PyTree = None) -> PyTree:
    """Return differences of neighbours; `to_end` and `to_begin` are differences themselves."""
    unit, (value,) = differences("ediff1d", "U", ary)
    inner = unit_function(raw, "ary: u, to_end: u, to_begin: u -> u")
    return inner(with_unit(value, unit), to_end, to_begin)


@unit_handler("numpy.gradient")
def gradient(
    raw: Function, f: Function, *spacing: PyTree, axis: Axis = None, edge_order: int | None = None
) -> PyTree:
    """Return one result per axis, each per unit of the spacing of its axis."""
    unit, (value,) = differences("gradient", "U", f)
    steps = [differences("gradient", "U", h) for h in spacing]
    out = raw(value, *(h for _, (h,) in steps), axis=axis, edge_order=edge_order)
    single = not isinstance(out, list | tuple)
    results = [out] if single else list(out)
    per = [u or one for u, _ in steps] or [one]
    per = per * len(results) if len(per) == 1 else per
    top = unit or one
    done = [
        labelled(r, top / u if u is not one else top) for r, u in zip(results, per, strict=True)
    ]
    return done[0] if single else type(out)(done)


# -- texts -----------------------------------------------------------------------------------------


@unit_handler("numpy.array_repr", "numpy.array_str")
def array_text(raw: Function, a: PyTree, *args: PyTree, **kwargs: PyTree) -> str:
    """Return the text of a quantity, with its unit."""
    if raw.__name__ == "array_repr":
        return f'Quantity({raw(jnp.asarray(a.stored), *args, **kwargs)}, "{a.label}")'
    return f"{raw(jnp.asarray(a.stored), *args, **kwargs)} {a.label}".rstrip()
