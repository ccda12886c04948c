"""Axes with a unit.

A plot of metres against hours is a plot of plain numbers with a label written by hand. Matplotlib
has a registry of converters for values with units; `enable()` adds a converter for quantities. The
first quantity plotted on an axis gives the axis its unit and its label. Later ones are converted to
that unit, and a quantity of another dimension raises `UnitError`.

    with tanjax.bridges.matplotlib.enabled():
        axes.plot(t, x)

Sharp edges. Matplotlib never calls a converter for plain numbers: on an axis in km they are
kilometres. If an axis has a unit and gets another dimension by a method other than `plot`,
Matplotlib raises `ConversionError` with our `UnitError` as its cause. `axis.set_units(...)` after
plotting moves lines; other artists keep their numbers. Some methods pass their data to NumPy before
the registry: `enable` wraps these methods of `Axes` (hist, boxplot, violinplot, errorbar, and plot
for lists of quantities).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import PyTree

from tanjax import units
from tanjax._errors import UnitError, message
from tanjax._typing import Function
from tanjax.arrays import destructure, is_structured
from tanjax.quantities import Quantity, is_quantity
from tanjax.units import Unit

from ._missing import missing

try:
    from matplotlib import axes, units as registry
    from matplotlib.axis import Axis
except ImportError as error:
    raise missing("matplotlib") from error


class QuantityConverter(registry.ConversionInterface):
    """The converter of quantities for Matplotlib: their unit, their numbers, the axis label."""

    @staticmethod
    def default_units(x: PyTree, axis: Axis) -> Unit | None:
        """Return the unit for an axis. **Raises:** `UnitError` if it has another dimension.

        Matplotlib calls this for every artist before it converts values. So the error is raised
        here: Matplotlib would wrap an error of `convert` in its own.
        """
        first = _first_quantity(x)
        if first is None:
            return None
        # The angle of polar axes is in radians, for data in any unit.
        wanted = units.unit("rad") if _is_angle(axis) else getattr(axis, "units", None)
        if wanted is not None and _unit(wanted).dimension is not first.unit.dimension:
            raise _wrong_dimension(first.unit, _unit(wanted), axis)
        return first.unit if wanted is None else _unit(wanted)

    @staticmethod
    def convert(value: PyTree, unit: Unit | str | None, axis: Axis) -> PyTree:
        """Return the numbers of quantities, or of lists of them, in the unit of the axis."""
        return _numbers(value, None if unit is None else _unit(unit), axis)

    @staticmethod
    def axisinfo(unit: Unit | str | None, axis: Axis) -> registry.AxisInfo | None:
        """Return the label: the unit, in Unicode. A label set by hand stays."""
        if unit is None or _unit(unit).is_one or _is_angle(axis):
            return None
        return registry.AxisInfo(label=format(_unit(unit), "P"))


def _is_angle(axis: Axis) -> bool:
    return getattr(axis, "axis_name", None) == "theta"


def _unit(unit: Unit | str) -> Unit:
    return unit if type(unit) is Unit else units.unit(unit)


def _first_quantity(x: PyTree) -> Quantity | None:
    """Return the first quantity in nested lists and object arrays."""
    if is_quantity(x):
        return x
    if isinstance(x, np.ndarray):
        x = x.ravel() if x.dtype == object else ()
    if isinstance(x, list | tuple | np.ndarray):
        return next((q for q in map(_first_quantity, x) if q is not None), None)
    return None


def _numbers(value: PyTree, unit: Unit | None, axis: Axis | None) -> PyTree:
    if is_quantity(value):
        if unit is not None and value.unit.dimension is not unit.dimension:
            raise _wrong_dimension(value.unit, unit, axis)
        dense = destructure(value.stored) if is_structured(value.stored) else value.stored
        stored = np.asarray(dense)
        if unit is not None:
            stored = Quantity(stored, value.label).to_value(unit)
        numbers = np.asarray(stored)
        # Matplotlib has no narrow dtypes (bfloat16). Return a number, not an array of rank 0.
        return (numbers if np.iscomplexobj(numbers) else numbers.astype(np.float64))[()]
    if isinstance(value, np.ndarray) and value.dtype == object:
        flat = [_numbers(v, unit, axis) for v in value.ravel()]
        return np.array(flat, dtype=float).reshape(value.shape)
    if isinstance(value, list | tuple):
        return np.array([_numbers(v, unit, axis) for v in value])
    return value


def _wrong_dimension(unit: Unit, of_axis: Unit, axis: Axis | None) -> UnitError:
    name = getattr(axis, "axis_name", "?")
    return UnitError(
        message(
            f"plot: a quantity in {unit} on an axis in {of_axis}.",
            f"axis: {name}, in {of_axis} ({of_axis.dimension})",
            f"quantity: in {unit} ({unit.dimension})",
            hint="use another axis (`ax.twinx()`), or plot the numbers, `q.to_value(...)`.",
        )
    )


Method = Function


def _wrap_distribution(method: Method, upright: str) -> Method:
    """Wrap `hist` and similar methods: all data on one axis, `upright` unless horizontal."""
    across = {"xaxis": "yaxis", "yaxis": "xaxis"}[upright]

    @functools.wraps(method)
    def wrapped(self: axes.Axes, x: PyTree, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if _first_quantity(x) is not None:
            vertical = kwargs.get("orientation", "vertical") == "vertical"
            axis = getattr(self, upright if vertical else across)
            axis.update_units(x)
            several = isinstance(x, list | tuple) and any(map(np.ndim, x))
            x = (
                [_numbers(v, axis.units, axis) for v in x]
                if several
                else _numbers(x, axis.units, axis)
            )
        return method(self, x, *args, **kwargs)

    return wrapped


def _wrap_errorbar(method: Method) -> Method:
    """Wrap `errorbar`: values in the units of the axes, errors in those of their differences."""

    @functools.wraps(method)
    def wrapped(
        self: axes.Axes,
        x: PyTree,
        y: PyTree,
        yerr: PyTree = None,
        xerr: PyTree = None,
        *args: PyTree,
        **kwargs: PyTree,
    ) -> PyTree:
        for axis, values in ((self.xaxis, x), (self.yaxis, y)):
            if _first_quantity(values) is not None:
                axis.update_units(values)
        x, xerr = _with_error(x, xerr, self.xaxis)
        y, yerr = _with_error(y, yerr, self.yaxis)
        return method(self, x, y, yerr, xerr, *args, **kwargs)

    return wrapped


def _with_error(values: PyTree, error: PyTree, axis: Axis) -> tuple[PyTree, PyTree]:
    if axis.units is None or type(axis.get_converter()) is not QuantityConverter:
        return values, error
    unit = _unit(axis.units)
    return _numbers(values, unit, axis), _numbers(error, unit.delta, axis)


def _wrap_plot(method: Method) -> Method:
    """Wrap `plot`: a list of quantities becomes one quantity, in the unit of the first."""

    @functools.wraps(method)
    def wrapped(self: axes.Axes, *args: PyTree, **kwargs: PyTree) -> PyTree:
        return method(self, *map(_joined, args), **kwargs)

    return wrapped


def _joined(x: PyTree) -> PyTree:
    if is_quantity(x) and is_structured(x.stored):
        return x.to_dense()
    first = _first_quantity(x) if isinstance(x, list | tuple) else None
    return x if first is None else Quantity(_numbers(x, first.unit, None), first.unit)


_kept: dict[str, Method] = {}


def enable() -> None:
    """Let Matplotlib plot quantities, until `disable()`. A second call has no further effect."""
    if _kept:
        return
    wrappers: dict[str, Callable[[Method], Method]] = {
        "hist": lambda method: _wrap_distribution(method, "xaxis"),
        "boxplot": lambda method: _wrap_distribution(method, "yaxis"),
        "violinplot": lambda method: _wrap_distribution(method, "yaxis"),
        "errorbar": _wrap_errorbar,
        "plot": _wrap_plot,
    }
    for name, wrap in wrappers.items():
        _kept[name] = getattr(axes.Axes, name)
        setattr(axes.Axes, name, wrap(_kept[name]))
    registry.registry[Quantity] = QuantityConverter()


def disable() -> None:
    """Undo `enable`. Axes drawn in the meantime keep their units."""
    if _kept:
        del registry.registry[Quantity]
    while _kept:
        setattr(axes.Axes, *_kept.popitem())


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    """Enable quantities in Matplotlib within a `with` block; no change if they were enabled."""
    before = bool(_kept)
    enable()
    try:
        yield
    finally:
        if not before:
            disable()
