"""Specials of `jax.numpy`: defaults with a meaning, nested arguments, points and differences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import units
from tanjax._errors import UnitError, incompatible, message
from tanjax.arrays import Unitful, convert
from tanjax.registry._careful import labelled as quantity, meeting, plain_result
from tanjax.registry._front import unit_of
from tanjax.units import Unit, one
from tanjax.units.signatures import Role, bind, describe_unit

from ._by_flags import front
from ._handler import linear, pure, special, split
from .signatures import TABLES

# -- one unit for everything -----------------------------------------------------------------------


def is_quantity(x: Any) -> bool:
    """Whether a node of a tree is a quantity."""
    return type(x) is Unitful


def common(name: str, role: str, *trees: Any) -> tuple[Any, tuple[Any, ...]]:
    """Strip nested operands that must share a unit. **Returns:** unit or `None`, the numbers.

    **Raises:** `UnitError` if they do not.
    """
    parsed = Role.parse(role)
    leaves, treedef = jax.tree.flatten(trees, is_leaf=is_quantity)
    operands = [(parsed, unit_of(x), f"item {i}") for i, x in enumerate(leaves)]
    unit: Any = bind(name, operands).get(parsed.letter)
    if unit is not None:
        unit = meeting([x for x in leaves if type(x) is Unitful], unit)
    numbers = [convert(x.stored, x.label, unit) if type(x) is Unitful else x for x in leaves]
    return unit, treedef.unflatten(numbers)


def labelled(x: Any, unit: Unit | None) -> Any:
    """A quantity, or the number if there is no unit."""
    return plain_result(x) if unit is None else quantity(x, unit)


@special("numpy.array", "numpy.asarray")
def array(raw: Any, object: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A quantity, or a nested list of quantities, as one quantity."""
    unit, (numbers,) = common(raw.__name__, "U", object)
    return labelled(raw(numbers, dtype, *args, **kwargs), unit)


@special("numpy.block")
def block(raw: Any, arrays: Any) -> Any:
    """Nested lists of blocks in one unit."""
    unit, (numbers,) = common("block", "U", arrays)
    return labelled(raw(numbers), unit)


@special("numpy.pad")
def pad(raw: Any, array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """What is filled in has the unit of the array; a function as `mode` sees numbers in it."""
    fills = {k: kwargs[k] for k in ("constant_values", "end_values") if k in kwargs}
    # zero is filled in unless something else is said, and is no neutral point of a scale
    zero = not fills and mode in ("constant", "linear_ramp")
    role = "u" if zero or mode == "empty" or callable(mode) else "U"
    unit, (numbers, fills) = common("pad", role, array, fills)
    return labelled(raw(numbers, pad_width, mode, **(kwargs | fills)), unit)


# -- defaults that only fit pure numbers -----------------------------------------------------------


@special("numpy.isclose", "numpy.allclose")
def isclose(
    raw: Any, a: Any, b: Any, rtol: Any = None, atol: Any = None, equal_nan: bool = False
) -> Any:
    """The absolute tolerance has the unit; left out, it is 0 for anything with a dimension.

    Of points of a scale only differences mean something, so there is no relative tolerance.
    """
    if not (split(a)[1].is_linear and split(b)[1].is_linear):
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
    dimensionless = split(a)[1].is_dimensionless and split(b)[1].is_dimensionless
    if rtol is None and atol is None and not (equal_nan or dimensionless):
        return front(_without_tolerance(raw), "a: u, b: u -> -")(a, b)
    given: dict[str, Any] = {"equal_nan": equal_nan} if equal_nan else {}
    if rtol is not None:
        given["rtol"] = rtol
    if atol is not None:
        given["atol"] = atol
    elif not dimensionless:
        given["atol"] = 0.0
    return front(raw, "a: u, b: u, rtol: 1, atol: u -> -")(a, b, **given)


@functools.cache
def _without_tolerance(raw: Callable[..., Any]) -> Callable[..., Any]:
    """`raw` with `atol=0`: compiled in, because taking a number to the device costs 2 us."""
    return functools.wraps(raw)(jax.jit(lambda a, b: raw(a, b, atol=0.0), inline=True))


@special("numpy.linspace")
def linspace(
    raw: Any,
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    **kwargs: Any,
) -> Any:
    """Points between two; the step between them is a difference."""
    if not retstep:
        return front(raw, "start: U, stop: U -> U")(start, stop, num, endpoint, **kwargs)
    unit, (start, stop) = common("linspace", "U", start, stop)
    points, step = raw(start, stop, num, endpoint, retstep, **kwargs)
    return labelled(points, unit), labelled(step, unit and unit.delta)


@special("numpy.arange")
def arange(raw: Any, start: Any, stop: Any = None, step: Any = None, *args: Any, **kw: Any) -> Any:
    """The step has the unit. **Raises:** `UnitError` if it is left out: 1 of which unit?"""
    out = front(raw, "start: u, stop: u, step: u -> u")(start, stop, step, *args, **kw)
    if step is None and not out.label.is_dimensionless:
        raise UnitError(
            message(
                f"arange: a step of 1 has no meaning in {out.label}.",
                hint="say the step: `arange(start, stop, step)`, with a unit.",
            )
        )
    return out


@special("numpy.interp")
def interp(
    raw: Any, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """Both ends are said if one is: compiled for one of them, JAX takes it for the other."""
    if period is None and (left is None) is not (right is None):
        left, right = (fp[0] if left is None else left), (fp[-1] if right is None else right)
    return front(raw, TABLES["numpy"]["interp"])(x, xp, fp, left, right, period)


@special("numpy.percentile", "numpy.nanpercentile")
def percentile(raw: Any, a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """A plain `q` is in percent, and so is what a quantity is converted to."""
    if type(q) is Unitful:
        pure(raw.__name__, "q", q)
        q = q.to_value(units.unit("percent"))
    return front(raw, TABLES["numpy"]["percentile"])(a, q, *args, **kwargs)


@special("linalg.matrix_rank")
def matrix_rank(raw: Any, M: Any, rtol: Any = None, *, tol: Any = None, **kwargs: Any) -> Any:
    """A relative tolerance is one of the largest singular value; JAX takes it for absolute."""
    value, _ = linear("matrix_rank", "M", M)
    if rtol is None or tol is not None or jnp.ndim(value) < 2:
        return front(raw, TABLES["linalg"]["matrix_rank"])(M, rtol, tol=tol, **kwargs)
    largest = jnp.linalg.norm(value, 2, axis=(-2, -1))
    return raw(value, pure("matrix_rank", "rtol", rtol) * largest, **kwargs)


# -- angles ----------------------------------------------------------------------------------------


@special("numpy.angle")
def angle(raw: Any, z: Any, deg: bool = False) -> Any:
    """In radians, or in degrees."""
    value, _ = linear("angle", "z", z)
    return quantity(raw(value, deg), units.unit("deg" if deg else "rad"))


@special("numpy.deg2rad", "numpy.radians")
def deg2rad(raw: Any, x: Any) -> Any:
    """An angle in radians, whatever it was in."""
    return _angle_in(raw.__name__, x, "rad")


@special("numpy.rad2deg", "numpy.degrees")
def rad2deg(raw: Any, x: Any) -> Any:
    """An angle in degrees, whatever it was in."""
    return _angle_in(raw.__name__, x, "deg")


def _angle_in(name: str, x: Any, unit: str) -> Unitful:
    return quantity(pure(name, "x", x), one).to(unit)


# -- differences: of points of an affine scale, too ------------------------------------------------


def differences(name: str, role: str, *xs: Any) -> tuple[Any, list[Any]]:
    """Strip operands of which only differences matter. **Returns:** the differences' unit."""
    first, *rest = xs
    if type(first) is Unitful and all(x is None for x in rest):  # 3 us less than flattening trees
        return units.subtract_units(first.label, first.label), [first.stored, *rest]
    unit, numbers = common(name, role, *xs)
    return (None if unit is None else units.subtract_units(unit, unit)), list(numbers)


@special("numpy.ptp")
def ptp(raw: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    """The greatest difference."""
    unit, (value,) = differences("ptp", "U", a)
    return labelled(raw(value, *args, **kwargs), unit)


def _spread(power: int, raw: Any, a: Any, *args: Any, mean: Any = None, **kwargs: Any) -> Any:
    unit, (value, mean) = differences(raw.__name__, "U", a, mean)
    if mean is not None:
        kwargs["mean"] = mean
    return labelled(raw(value, *args, **kwargs), None if unit is None else unit**power)


special("numpy.std", "numpy.nanstd")(functools.partial(_spread, 1))
special("numpy.var", "numpy.nanvar")(functools.partial(_spread, 2))


@special("numpy.diff")
def diff(
    raw: Any, a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None
) -> Any:
    """Differences of neighbours."""
    if n == 0:
        return a
    unit, (value, prepend, append) = differences("diff", "U", a, prepend, append)
    return labelled(raw(value, n, axis, prepend, append), unit)


@special("numpy.ediff1d")
def ediff1d(raw: Any, ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of neighbours; `to_end` and `to_begin` are differences themselves."""
    unit, (value,) = differences("ediff1d", "U", ary)
    inner = front(raw, "ary: u, to_end: u, to_begin: u -> u")
    return inner(labelled(value, unit), to_end, to_begin)


@special("numpy.gradient")
def gradient(raw: Any, f: Any, *spacing: Any, axis: Any = None, edge_order: Any = None) -> Any:
    """One result per axis, each per unit of the spacing of its axis."""
    unit, (value,) = differences("gradient", "U", f)
    steps = [differences("gradient", "U", h) for h in spacing]
    out = raw(value, *(h for _, (h,) in steps), axis=axis, edge_order=edge_order)
    single = not isinstance(out, list | tuple)
    results = [out] if single else list(out)
    per = [u or one for u, _ in steps] or [one]
    per = per * len(results) if len(per) == 1 else per
    top = unit or one
    done = [
        quantity(r, top / u if u is not one else top) for r, u in zip(results, per, strict=True)
    ]
    return done[0] if single else type(out)(done)


# -- histograms ------------------------------------------------------------------------------------


@special("numpy.histogram2d")
def histogram2d(
    raw: Any,
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    weights: Any = None,
    density: Any = None,
) -> Any:
    """Edges in the units of `x` and `y`; counts plain, in the weights' unit, or per area."""
    (xs, u), (ys, v) = split(x), split(y)
    if np.ndim(bins) if type(bins) is not list else len(bins) != 2:
        bins = [bins, bins]  # the same edges for both
    counts, (ex, ey) = _histogram(
        "histogram2d",
        lambda b, r, w: _two_edges(raw(xs, ys, b, r, w, density)),
        (u, v),
        bins,
        range,
        weights,
        density,
    )
    return counts, ex, ey


def _two_edges(result: Any) -> Any:
    return result[0], result[1:]


@special("numpy.histogramdd")
def histogramdd(
    raw: Any,
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    weights: Any = None,
    density: Any = None,
) -> Any:
    """As `histogram2d`; the columns of one sample are in one unit."""
    if type(sample) in (list, tuple):  # one array, with its unit, per axis
        columns, found = zip(*map(split, sample), strict=True)
        value = jnp.stack([jnp.ravel(c) for c in columns], -1)
    else:
        value, unit = split(sample)
        found = (unit,) * np.shape(value)[1]
    return _histogram(
        "histogramdd",
        lambda b, r, w: raw(value, b, r, w, density),
        found,
        bins,
        range,
        weights,
        density,
    )


def _histogram(
    name: str,
    compute: Callable[..., Any],
    per_axis: tuple[Unit, ...],
    bins: Any,
    range: Any,
    weights: Any,
    density: Any,
) -> Any:
    """Strip edges and ranges axis by axis, compute, and label counts and edges."""
    if isinstance(bins, list | tuple):
        bins = [_in_unit(name, b, u) for b, u in zip(bins, per_axis, strict=True)]
    if range is not None:
        range = [
            r if r is None else tuple(_in_unit(name, end, u) for end in r)
            for r, u in zip(range, per_axis, strict=True)
        ]
    plain_weights = weights.stored if type(weights) is Unitful else weights
    counts, edges = compute(bins, range, plain_weights)
    if density:
        volume = functools.reduce(Unit.__mul__, (u.delta for u in per_axis))
        counts = quantity(counts, volume.inverse)
    elif type(weights) is Unitful:
        counts = quantity(counts, weights.label)
    return counts, [quantity(e, u) for e, u in zip(edges, per_axis, strict=True)]


def _in_unit(name: str, edges: Any, unit: Unit) -> Any:
    """Edges as numbers in a unit; a number of bins stays what it is."""
    if type(edges) is not Unitful and np.ndim(edges) == 0 and isinstance(edges, int):
        return edges
    operands = [(Role.parse("U"), unit, "sample"), (Role.parse("U"), unit_of(edges), "edges")]
    bind(name, operands)
    return convert(edges.stored, edges.label, unit) if type(edges) is Unitful else edges


# -- random numbers --------------------------------------------------------------------------------


@special("random.multivariate_normal")
def multivariate_normal(raw: Any, key: Any, mean: Any, cov: Any, *args: Any, **kw: Any) -> Any:
    """The covariance is in the square of the unit of the mean."""
    (value, unit), (square, given) = split(mean), linear("multivariate_normal", "cov", cov)
    if unit is one and not np.any(value):
        unit = given ** Fraction(1, 2)
    if given.dimension is not unit.delta.dimension**2:
        facts = f"mean: {describe_unit(unit)}", f"cov: {describe_unit(given)}"
        raise incompatible("multivariate_normal", *facts, "a covariance is in `mean**2`.")
    square = convert(square, given, unit.delta**2)
    return labelled(raw(key, value, square, *args, **kw), unit)


# -- texts -----------------------------------------------------------------------------------------


@special("numpy.array_repr", "numpy.array_str")
def array_text(raw: Any, a: Any, *args: Any, **kwargs: Any) -> str:
    """The text of a quantity, with its unit."""
    if raw.__name__ == "array_repr":
        return f'Unitful({raw(jnp.asarray(a.stored), *args, **kwargs)}, "{a.label}")'
    return f"{raw(jnp.asarray(a.stored), *args, **kwargs)} {a.label}".rstrip()
