"""Powers of units: `power`, `prod`, `einsum`, and how many numbers a function multiplies."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax._errors import UnitError, describe, message
from tanjax._typing import Axis, Function
from tanjax.quantities import Quantity, is_quantity, labelled, rooted, split_unit, unscale
from tanjax.units import Unit, one
from tanjax.units.signatures import not_dimensionless

from ._handler import linear, pure, unit_handler

# How many numbers a function multiplies, if more than two.

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


def _shape(x: PyTree) -> tuple[int, ...]:
    return x.shape if is_quantity(x) else np.shape(x)  # 2 us less than through NumPy


def _size_of(exponent: PyTree) -> float:
    if type(exponent) in (int, float):
        return max(1.0, abs(exponent))
    value = split_unit(exponent)[0]
    known = not isinstance(value, jax.core.Tracer) and np.size(value)
    return max(1.0, float(np.max(np.abs(np.asarray(value))))) if known else 2.0


def _count(shape: tuple[int, ...], axis: Axis) -> int:
    if axis is None:
        return math.prod(shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    return math.prod(shape[a] for a in axes)


def _is_simple(name: str, y: PyTree) -> bool:
    """True if a ratio (`km/m`, degrees) keeps its unit under this power, as in a product."""
    try:
        exponent_of(name, y, one)
    except UnitError:
        return False
    return True


def exponent_of(name: str, x: PyTree, base: Unit) -> Fraction:
    """Return a concrete exponent as an exact fraction. **Raises:** `UnitError` if it is traced."""
    if type(x) is float:
        return _simple_fraction(name, x, base)
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


@unit_handler("numpy.power", "numpy.pow", "numpy.float_power", "lax.integer_pow")
def power(raw: Function, x: PyTree, y: PyTree, /) -> PyTree:
    """Return `x ** y`; the exponent is one known number, unless `x` is dimensionless."""
    name = raw.__name__
    value, unit = linear(name, "base", x)
    if unit.is_dimensionless and (unit is one or not _is_simple(name, y)):
        return labelled(raw(pure(name, "base", x), pure(name, "exponent", y)), one)
    exponent = exponent_of(name, y, unit)
    y = int(exponent) if exponent.denominator == 1 else float(exponent)
    value, label = rooted(x, exponent)
    result = labelled(raw(value, y), label**exponent)
    return result if unit.scale else unscale(result)


@unit_handler("lax.pow")
def lax_power(raw: Function, x: PyTree, y: PyTree, /) -> PyTree:
    """Return `x ** y` of `jax.lax`, which accepts no exponent of another dtype."""
    typed = lambda v, e: raw(v, jnp.asarray(e, v.dtype) if type(e) is float else e)
    return power(functools.wraps(raw)(typed), x, y)


@unit_handler("numpy.prod", "numpy.nanprod")
def prod(raw: Function, a: PyTree, axis: Axis = None, *args: PyTree, **kwargs: PyTree) -> PyTree:
    """Return the product, in the unit to the power of the number of factors."""
    if args:
        kwargs |= zip(("dtype", "out", "keepdims", "initial", "where"), args, strict=False)
    value, unit = linear(raw.__name__, "a", a)
    where = kwargs.get("where")
    if (where is not None or raw.__name__ == "nanprod") and not unit.is_dimensionless:
        raise not_dimensionless(raw.__name__, "a", unit)
    initial, initial_unit = split_unit(kwargs.pop("initial", None))
    if initial is not None:
        kwargs["initial"] = initial
    out = raw(value, axis=axis, **kwargs)
    return labelled(out, unit ** _count(jnp.shape(value), axis) * initial_unit)


@unit_handler("lax.reduce_prod")
def reduce_prod(raw: Function, operand: PyTree, axes: Sequence[int]) -> Quantity:
    """Return the product, in the unit to the power of the number of factors."""
    value, unit = split_unit(operand)
    count = int(np.prod([jnp.shape(value)[a] for a in axes], dtype=int))
    return labelled(raw(value, axes), unit**count)


@unit_handler("numpy.einsum")
def einsum(raw: Function, subscripts: object, /, *operands: PyTree, **kwargs: PyTree) -> PyTree:
    """Return the sum of products, in the product of the units of the operands."""
    if not isinstance(subscripts, str):
        raise UnitError("einsum: with quantities the subscripts come first, as a text.")
    pairs = [linear("einsum", f"operands[{i}]", x) for i, x in enumerate(operands)]
    out = raw(subscripts, *(v for v, _ in pairs), **kwargs)
    return labelled(out, functools.reduce(Unit.__mul__, (u for _, u in pairs)))
