"""Conversion of numbers between units, and the units of sums and differences.

There are three kinds of units: *linear* ones (a factor), *affine* points (a factor and a zero: °C),
and *logarithmic* points (a level over a reference: dBm). Between linear units of one dimension a
conversion is one multiplication or one exact division; hot paths get it from `conversion`.
`convert` handles all kinds, with the functions of the namespace that you pass.

Kelvin is both a temperature and a difference of temperatures. Beside a point of a scale it is a
temperature: it converts to °C, compares with it, and can be subtracted from it. A difference is in
Δ°C (`delta_degC`), and never becomes a point.

Sharp edge: decibels are levels. Only `convert` changes a level to the plain ratio of powers that it
stands for (10 dB is 10, not the ratio of amplitudes, 3.16).
"""

from __future__ import annotations

import math
from fractions import Fraction
from types import ModuleType

from tanjax._errors import UnitError, incompatible

from ._dimension import DIMENSIONLESS
from ._factor import ONE, Factor
from ._points import LEVEL, Affine, Logarithmic
from ._unit import Numbers, Unit, one


def conversion(a: Unit, b: Unit) -> tuple[float, float]:
    """Return `(multiplier, divisor)`: a number in `b` is `x * multiplier / divisor` for `x` in `a`.

    At most one of them is not 1. The divisor is used if the factor is one over an integer, so that
    7 m is exactly the float nearest to 0.007 km.

    **Raises:** `UnitError` if the dimensions differ or a unit is affine or logarithmic.
    """
    try:
        return a._conversions[id(b)]
    except KeyError:
        pass  # convert outside of the handler, so that an error shows no KeyError
    pair = a._conversions[id(b)] = _linear(a, b)
    return pair


def _linear(a: Unit, b: Unit) -> tuple[float, float]:
    if not (a.is_linear and b.is_linear):
        if a == b:
            return 1.0, 1.0
        raise _mismatch("linear conversion", a, b, "use `convert`, which knows zero points.")
    if a.dimension is not b.dimension:
        raise _mismatch("conversion", a, b)
    ratio = a.factor / b.factor
    if ratio.is_rational and ratio.radicand.numerator == 1:
        return 1.0, float(ONE / ratio)
    return float(ratio), 1.0


def describe(unit: Unit) -> str:
    """Return a unit with its dimension, for messages."""
    return f"{unit} ({unit.dimension})"


def _mismatch(operation: str, a: Unit, b: Unit, hint: str = "") -> UnitError:
    return incompatible(
        operation,
        f"from: {describe(a)}",
        f"to: {describe(b)}",
        hint or "a number can only change to a unit of the same dimension.",
    )


def is_step(unit: Unit, point: Unit) -> bool:
    """True if a linear unit counts differences of points of a scale: Δ°C, or dB for levels."""
    if unit.dimension is not point.delta.dimension:
        return False
    named = any(symbol.startswith("Δ") for symbol, _ in unit.symbols)
    return named or not isinstance(point.point, Affine)


def convert(value: Numbers, a: Unit, b: Unit, xp: ModuleType) -> Numbers:
    """Convert a number in unit `a` to unit `b`, also between points of scales.

    **Arguments:** `xp`: the namespace whose `exp`, `log`, `log10`, `log2` and `power` fit the
    value (`numpy`, `jax.numpy`).

    **Raises:** `UnitError` if no conversion has a meaning.
    """
    if a == b:
        return value
    if a.is_linear and b.is_linear:
        if a.dimension is b.dimension:
            return _scale(value, conversion(a, b))
        if a.dimension is LEVEL and b.dimension is DIMENSIONLESS:
            return _scale(_ratio(value, a.factor, xp), conversion(one, b))
        if b.dimension is LEVEL and a.dimension is DIMENSIONLESS:
            return _level(_scale(value, conversion(a, one)), b.factor, xp)
        raise _mismatch("conversion", a, b)
    if a.dimension is not b.dimension:
        raise _mismatch("conversion", a, b)
    if isinstance(a.point, Logarithmic) or isinstance(b.point, Logarithmic):
        # Convert levels: along the scale, or through the ratio of powers for a linear unit.
        start, end = a.point, b.point
        if isinstance(start, Logarithmic) and isinstance(end, Logarithmic):
            if start.amplitude is not end.amplitude:
                raise _mismatch("conversion", a, b, "one is a level of powers, one of amplitudes.")
            # The level of an exact ratio in steps of `level`; exact for powers of ten.
            base, step = _base(end.of_ratio)
            number = float(a.factor / b.factor)
            if number <= 0:
                raise UnitError(f"a ratio of {number} has no level.")
            logarithm = {10: math.log10, 2: math.log2, 0: math.log}[base](number)
            shift = logarithm / float(step)
            return _scale(value, conversion(a.delta, b.delta)) + shift
        if isinstance(start, Logarithmic) and b.is_linear:
            return _scale(_ratio(value, start.of_ratio, xp), _pair(a.factor / b.factor))
        if isinstance(end, Logarithmic) and a.is_linear:
            return _level(_scale(value, _pair(a.factor / b.factor)), end.of_ratio, xp)
        raise _mismatch("conversion", a, b)
    if (a.is_linear and is_step(a, b)) or (b.is_linear and is_step(b, a)):
        raise _mismatch(
            "conversion",
            a,
            b,
            f"{a if a.is_linear else b} counts differences, which are no points of a scale: add "
            "one to a point, or say that it is a temperature: `quantity.to('K')`.",
        )
    return _convert_affine(value, a, b)


def _scale(value: Numbers, pair: tuple[float, float]) -> Numbers:
    multiplier, divisor = pair
    if multiplier != 1.0:
        return value * multiplier
    return value / divisor if divisor != 1.0 else value


def _convert_affine(value: Numbers, a: Unit, b: Unit) -> Numbers:
    """Solve `value · a + zero of a = result · b + zero of b`, with rational coefficients."""
    zero = [Fraction(0) if u.point is None else u.point.offset for u in (a, b)]  # type: ignore[union-attr]
    shift = (zero[0] - zero[1]) / b.factor.fraction
    scaled = _scale(value, conversion(a.delta, b.delta))
    return scaled + float(shift) if shift else scaled


def _pair(ratio: Factor) -> tuple[float, float]:
    if ratio.is_rational and ratio.radicand.numerator == 1:
        return 1.0, float(ONE / ratio)
    return float(ratio), 1.0


def _base(level: Factor) -> tuple[int, Fraction]:
    """Return base and step of a level: a ratio is `base ** (step * level)`. Base 0 stands for e."""
    for name, base in (("ln10", 10), ("ln2", 2)):
        step = level * Factor(2, 1, ((name, Fraction(-1)),))
        if step.is_rational:
            return base, step.fraction
    step = level * Factor(2)
    return 0, step.fraction if step.is_rational else Fraction(float(step))


def _ratio(value: Numbers, level: Factor, xp: ModuleType) -> Numbers:
    """The ratio of powers of a level."""
    base, step = _base(level)
    exponent = _scale(value, _pair(Factor(step)))
    return xp.power(float(base), exponent) if base else xp.exp(exponent)


def _level(value: Numbers, level: Factor, xp: ModuleType) -> Numbers:
    """The level of a ratio of powers."""
    base, step = _base(level)
    logarithm = {10: "log10", 2: "log2", 0: "log"}[base]
    return _scale(getattr(xp, logarithm)(value), _pair(Factor(1 / step)))


def add_units(a: Unit, b: Unit) -> Unit:
    """Return the unit of `x + y` for `x` in `a` and `y` in `b`: that of the point, else `a`.

    A point plus a difference is a point. The caller converts the difference to the point's `delta`.

    **Raises:** `UnitError` if the dimensions differ, or for the sum of two points.
    """
    if a.is_linear and b.is_linear:
        if a.dimension is not b.dimension:
            raise _sum_error("addition", a, b)
        return a
    if a.is_linear or b.is_linear:
        point, difference = (b, a) if a.is_linear else (a, b)
        if not is_step(difference, point):
            raise _sum_error("addition", a, b, _no_step(difference, point))
        return point
    raise _sum_error("addition", a, b, _two_points(b))


def _no_step(unit: Unit, point: Unit) -> str:
    if unit.dimension is not point.dimension or not isinstance(point.point, Affine):
        return ""
    return (
        f"beside a point of a scale {unit} is a temperature, too, and two temperatures have no "
        f"sum; if it is a difference, say so: `quantity.to('{point.delta}')`."
    )


def _two_points(b: Unit) -> str:
    if isinstance(b.point, Affine):
        return f"two points of a scale have no sum; a difference is in {b.delta} (delta_degC)."
    return f"two levels have no sum; add a gain in {b.delta}, or convert to a linear unit first."


def subtract_units(a: Unit, b: Unit) -> Unit:
    """Return the unit of `x - y` for `x` in `a` and `y` in `b`.

    The difference of two points is in `a.delta`. A point minus a difference is a point. Kelvin
    counts as a point: 20 °C - 293.15 K is 0 Δ°C, and 293.15 K - 20 °C is 0 K.

    **Raises:** `UnitError` if the dimensions differ, or for a difference minus a point.
    """
    if a.is_linear and b.is_linear:
        if a.dimension is not b.dimension:
            raise _sum_error("subtraction", a, b)
        return a
    if b.is_linear and is_step(b, a):
        return a
    if a.is_linear and is_step(a, b):
        raise _sum_error("subtraction", a, b, f"{b} is a point of a scale, {a} is a difference.")
    kinds = {type(u.point) for u in (a, b) if not u.is_linear}
    levels = Logarithmic in kinds and (a.is_linear or b.is_linear)  # dB or ratio of powers?
    if a.dimension is not b.dimension or len(kinds) > 1 or levels:
        raise _sum_error("subtraction", a, b)
    return a.delta


def _sum_error(operation: str, a: Unit, b: Unit, hint: str = "") -> UnitError:
    return incompatible(operation, f"left: {describe(a)}", f"right: {describe(b)}", hint)
