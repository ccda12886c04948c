"""Functions whose unit depends on values, shapes or text: powers, products, determinants.

A special is an ordinary function `special(raw, *args, **kwargs)` that is called when a quantity
is among the arguments; `raw` is JAX's function. It strips, computes and labels by itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tanjax import units
from tanjax._errors import UnitError, describe, message
from tanjax.arrays import Unitful, convert, rooted
from tanjax.registry._careful import home, labelled as quantity
from tanjax.units import Unit, one
from tanjax.units.signatures import not_dimensionless, not_linear

from .._operations import unit_of_det

SPECIALS: dict[str, Callable[..., Any]] = {}
ALWAYS: set[str] = set()
# How many numbers are multiplied with one another, where there are more than two.
DEGREES: dict[str, Callable[..., float]] = {
    "power": lambda x, y: _size_of(y),
    "pow": lambda x, y: _size_of(y),
    "float_power": lambda x, y: _size_of(y),
    "integer_pow": lambda x, y: _size_of(y),
    "prod": lambda a, axis=None, *_, **__: max(2, _count(_shape(a), axis)),
    "nanprod": lambda a, axis=None, *_, **__: max(2, _count(_shape(a), axis)),
    "reduce_prod": lambda a, axes: max(2, _count(_shape(a), tuple(axes))),
    "det": lambda a, *_, **__: max(2, _shape(a)[-1]),
    "matrix_power": lambda a, n: max(2, abs(n)),
    "multi_dot": lambda arrays, **_: max(2, len(arrays)),
    "einsum": lambda subscripts, *operands, **_: max(2, len(operands)),
    "polyval": lambda p, x, **_: max(2, len(p)),
}


def _shape(x: Any) -> tuple[int, ...]:
    return x.shape if type(x) is Unitful else np.shape(x)  # 2 us less than asking NumPy


def _size_of(exponent: Any) -> float:
    if type(exponent) in (int, float):
        return max(1.0, abs(exponent))
    value = split(exponent)[0]
    known = not isinstance(value, jax.core.Tracer) and np.size(value)
    return max(1.0, float(np.max(np.abs(np.asarray(value))))) if known else 2.0


def special(
    *names: str, always: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a special for functions named as in the tables: `"numpy.prod"`, `"linalg.det"`.

    **Arguments:** `always`: it is called even if no argument is a quantity, because quantities
    come later, as with `vectorize`.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            SPECIALS[name] = function
            if always:
                ALWAYS.add(name)
        return function

    return register


def split(x: Any) -> tuple[Any, Unit]:
    """The number and the unit of a value; plain values have unit 1."""
    return (x.stored, x.label) if type(x) is Unitful else (x, one)


def pure(name: str, label: str, x: Any) -> Any:
    """The number of a dimensionless value. **Raises:** `UnitError`."""
    if type(x) is not Unitful:
        return x
    if not (x.label.is_dimensionless and x.label.is_linear):
        raise not_dimensionless(name, label, x.label)
    return x.plain(name)


def linear(name: str, label: str, x: Any) -> tuple[Any, Unit]:
    """As `split`, refusing points of an affine or logarithmic scale."""
    value, unit = split(x)
    if not unit.is_linear:
        raise not_linear(name, label, unit)
    return value, unit


def _is_simple(name: str, y: Any) -> bool:
    """Whether a ratio (`km/m`, degrees) keeps its unit under this power, as in a product."""
    try:
        exponent_of(name, y, one)
    except UnitError:
        return False
    return True


def exponent_of(name: str, x: Any, base: Unit) -> Fraction:
    """A concrete exponent as an exact fraction. **Raises:** `UnitError` if it is not concrete."""
    x = pure(name, "exponent", x)
    if isinstance(x, Fraction):
        return x
    if isinstance(x, jax.core.Tracer) or np.ndim(x) != 0:
        raise UnitError(
            message(
                f"{name}: the exponent of a quantity in {base} must be one known number.",
                f"exponent: {describe(x)}",
                "why: the unit of the result depends on it.",
                hint="use a Python number, or make the base dimensionless first.",
            )
        )
    return _simple_fraction(name, float(x), base)


@functools.lru_cache(maxsize=256)  # 15 us otherwise, three times an eager operation
def _simple_fraction(name: str, number: float, base: Unit) -> Fraction:
    simple = Fraction(number).limit_denominator(1000)
    if not math.isfinite(number) or float(simple) != number:
        raise UnitError(
            f"{name}: the exponent {number} of a quantity in {base} is not a simple fraction."
        )
    return simple


@special("numpy.power", "numpy.pow", "numpy.float_power", "lax.integer_pow")
def power(raw: Any, x: Any, y: Any, /) -> Any:
    """`x ** y`: the exponent is one known number, unless `x` is dimensionless."""
    name = raw.__name__
    value, unit = linear(name, "base", x)
    if unit.is_dimensionless and (unit is one or not _is_simple(name, y)):
        return quantity(raw(pure(name, "base", x), pure(name, "exponent", y)), one)
    exponent = exponent_of(name, y, unit)
    y = int(exponent) if exponent.denominator == 1 else float(exponent)
    value, label = rooted(value, unit, exponent)
    result = quantity(raw(value, y), label**exponent)
    return result if unit.scale else home(result)


@special("lax.pow")
def lax_power(raw: Any, x: Any, y: Any, /) -> Any:
    """`x ** y` of `jax.lax`, which takes no exponent of another dtype."""
    typed = lambda v, e: raw(v, jnp.asarray(e, v.dtype) if type(e) is float else e)
    return power(functools.wraps(raw)(typed), x, y)


def _count(shape: tuple[int, ...], axis: Any) -> int:
    if axis is None:
        return math.prod(shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    return math.prod(shape[a] for a in axes)


@special("numpy.prod", "numpy.nanprod")
def prod(raw: Any, a: Any, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The unit to the power of the number of factors."""
    if args:
        kwargs |= zip(("dtype", "out", "keepdims", "initial", "where"), args, strict=False)
    value, unit = linear(raw.__name__, "a", a)
    where = kwargs.get("where")
    if (where is not None or raw.__name__ == "nanprod") and not unit.is_dimensionless:
        raise not_dimensionless(raw.__name__, "a", unit)
    initial, initial_unit = split(kwargs.pop("initial", None))
    if initial is not None:
        kwargs["initial"] = initial
    out = raw(value, axis=axis, **kwargs)
    return quantity(out, unit ** _count(jnp.shape(value), axis) * initial_unit)


special("linalg.det")(unit_of_det)


@special("linalg.matrix_power")
def matrix_power(raw: Any, a: Any, n: int) -> Any:
    """The unit to the power `n`."""
    value, unit = linear("matrix_power", "a", a)
    return quantity(raw(value, n), unit**n)


@special("linalg.multi_dot")
def multi_dot(raw: Any, arrays: Any, **kwargs: Any) -> Any:
    """The product of the units."""
    values, units = zip(
        *(linear("multi_dot", f"arrays[{i}]", a) for i, a in enumerate(arrays)), strict=True
    )
    return quantity(raw(values, **kwargs), functools.reduce(Unit.__mul__, units))


@special("numpy.einsum")
def einsum(raw: Any, subscripts: Any, /, *operands: Any, **kwargs: Any) -> Any:
    """The product of the units of the operands."""
    if not isinstance(subscripts, str):
        raise UnitError("einsum: with quantities the subscripts come first, as a text.")
    pairs = [linear("einsum", f"operands[{i}]", x) for i, x in enumerate(operands)]
    out = raw(subscripts, *(v for v, _ in pairs), **kwargs)
    return quantity(out, functools.reduce(Unit.__mul__, (u for _, u in pairs)))


def on_scale(raw: Any, x: Any, y: Any, /) -> Any:
    """`x + y` and `x - y` where one is a point of an affine or logarithmic scale.

    Point - point is a difference, point ± difference a point; everything else is nonsense.
    """
    (a, ua), (b, ub) = split(x), split(y)
    combine = units.add_units if raw.__name__ == "add" else units.subtract_units
    unit = combine(ua, ub)
    left = right = ua
    if ub.is_linear and units.is_step(ub, ua):
        right = ua.delta
    elif ua.is_linear and units.is_step(ua, ub):
        left, right = ub.delta, ub
    return quantity(raw(convert(a, ua, left), convert(b, ub, right)), unit)
