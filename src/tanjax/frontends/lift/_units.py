"""Units through a jaxpr: the units of the results of plain JAX code.

A program on numbers in coherent units is right for quantities. It remains to find the units of its
results, and to raise if it adds metres to seconds. Both follow from the unit signatures of the
primitives, in one walk through the jaxpr (`_control.py`), without computing values.

Sharp edges. Constants in code are plain numbers, so adding `1.0` to metres raises; zero, infinity
and nan have every unit. An `lu` packs a factor without unit and one with a unit. Its unit is that
of the second, and triangular solves with a unit diagonal take the first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax import units
from tanjax._errors import UnitError, message
from tanjax._jaxpr_types import JaxEquation
from tanjax.units import Unit, one
from tanjax.units.signatures import (
    ANY,
    ENDLESS,
    AnyUnit,
    Binding,
    Each,
    Found,
    Many,
    Monomial,
    Plain,
    Several,
    Signature,
    bind,
    exact_power,
    not_dimensionless,
    roots,
)

_SMALL = 64  # larger constants are not checked: that would copy them from a device


# Signatures given by `tj.lift.register`, which take precedence over the laws.
REGISTERED: dict[str, str] = {}


@runtime_checkable
class _Law(Protocol):
    """The law of a primitive: its signature, and True if each operand has a result of its own."""

    @property
    def each(self) -> bool: ...
    def units(self, equation: JaxEquation) -> str: ...


@functools.cache
def _laws() -> Mapping[str, _Law]:
    """Return the laws of primitives; the scale graph takes a third of the import time."""
    from tanjax.scale.laws import LAWS

    return LAWS


class NeedsCoherent(Exception):
    """Two operands differ by a prefix, so the program is right only in coherent units.

    Like `NeedsRoot`, it is raised in the walk through the jaxpr and handled at its entry.
    """


class NeedsRoot(Exception):
    """The power of two in a label has no exact root, so arguments must have other exponents."""

    def __init__(self, root: int) -> None:
        super().__init__(root)
        self.root = root


def require_equal(unit: Unit, target: Unit) -> None:
    """Raise `NeedsCoherent` if two units differ by a factor."""
    if unit != target:
        raise NeedsCoherent


def require_root(unit: Unit, root: int) -> None:
    """Raise `NeedsRoot` if the exponent of a label is not divisible by a root."""
    if unit.scale % root:
        raise NeedsRoot(root)


_UnitRule = Callable[[JaxEquation, list[Found]], list[Found]]
UNIT_RULES: dict[str, _UnitRule] = {}


def unit_rule(*names: str) -> Callable[[_UnitRule], _UnitRule]:
    """Register a rule for primitives: from the equation and operand units to result units."""

    def register(function: _UnitRule) -> _UnitRule:
        for name in names:
            UNIT_RULES[name] = function
        return function

    return register


def literal_unit(value: PyTree) -> Found:
    """Return the unit of a constant: zeros, infinities and nans have every unit, others none.

    The largest number of a dtype stands for infinity, so it has every unit, too.
    """
    if isinstance(value, jax.core.Tracer) or np.size(value) > _SMALL:
        return None
    dtype = value.dtype if hasattr(value, "dtype") else jax.dtypes.result_type(value)
    if not jax.dtypes.issubdtype(dtype, np.number):
        return None
    array = np.asarray(value)
    finite, zero = np.isfinite(array), array == 0
    if jax.dtypes.issubdtype(dtype, np.floating):
        finite &= abs(array) != jax.numpy.finfo(dtype).max
    if np.any(finite & ~zero):
        return None
    return ANY if np.any(zero) else ENDLESS


def results(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    """Return the units of the results of a primitive without jaxprs."""
    name = eqn.primitive.name
    if name in UNIT_RULES:
        return UNIT_RULES[name](eqn, operands)
    known = _laws().get(name)
    text = REGISTERED.get(name) or (known.units(eqn) if known else "")
    if not text:
        if not any(isinstance(u, Unit) for u in operands):
            return [None] * len(eqn.outvars)
        raise UnitError(
            message(
                f"lift: no unit signature for the primitive `{name}`.",
                hint=f'give it one: `tj.lift.register("{name}", "a: u, b: v -> u*v")`.',
            )
        )
    if known and known.each and name not in REGISTERED:
        signature = Signature.parse(text)
        return [apply_signature(name, signature, [u], 1)[0] for u in operands]
    return apply_signature(name, Signature.parse(text), operands, len(eqn.outvars))


def by_name(name: str, eqn: JaxEquation, operands: list[Found]) -> list[Found] | None:
    """Return the units of an equation by the law of another name; `None` if there is none."""
    if name not in _laws():
        return None
    text = _laws()[name].units(eqn)
    return apply_signature(name, Signature.parse(text), operands, len(eqn.outvars))


def apply_signature(
    name: str, signature: Signature, operands: list[Found], count: int
) -> list[Found]:
    """Return the units of `count` results of a positional signature."""
    roles = signature.roles_of(len(operands))
    labels = [label for label, _ in signature.roles]
    labels += [f"operand {i}" for i in range(len(labels), len(roles))]
    triples = list(zip(roles, operands, labels, strict=True))
    binding = bind(name, triples)
    for role, unit, _ in triples:
        target = one if role.letter == "1" else binding.get(role.letter)
        if isinstance(unit, Unit) and isinstance(target, Unit) and role.letter != "*":
            require_equal(unit, target)
    for letter, root in roots(signature.out).items():
        if isinstance(bound := binding.get(letter), Unit):
            require_root(bound, root)
    groups: dict[str, list[Found]] = {}
    for role, unit, _ in triples:
        groups.setdefault(role.letter, []).append(unit)
    free = {
        letter: ANY if ANY in group else ENDLESS
        for letter, group in groups.items()
        if all(type(u) is AnyUnit for u in group)
    }
    return _out_units(signature.out, binding, free, operands, count)[:count]


def _out_units(
    out: PyTree,
    binding: Binding,
    free: dict[str, AnyUnit],
    operands: list[Found],
    count: int,
) -> list[Found]:
    if isinstance(out, Several):
        return [u for item in out.items for u in _out_units(item, binding, free, operands, 1)]
    if isinstance(out, Each):
        return list(operands)
    if isinstance(out, Many):
        return _out_units(out.item, binding, free, operands, 1) * count
    if isinstance(out, Plain):
        return [None] * count
    assert isinstance(out, Monomial)
    kinds = [free[letter] for letter, _ in out.powers if letter in free]
    unit = out.unit(binding)
    if kinds and (unit is None or len(kinds) == len(out.powers)):  # also a multiple of zero
        return [ANY if ANY in kinds else ENDLESS] * count
    if unit is one and not any(isinstance(u, Unit) for u in operands):
        unit = None
    return [unit] * count


# -- primitives whose unit depends on parameters ------------------------------------------------


def _turned(unit: Unit, factor: PyTree, tolerance: float) -> Unit | None:
    """Return the unit of an angle times pi/180 or 180/pi, as in `deg2rad` and `rad2deg`.

    These functions convert a number between degrees and radians: 180 deg gives pi rad, not pi deg.
    """
    if factor is None or np.size(factor) != 1:
        return None
    degree, radian = units.unit("deg"), units.unit("rad")
    for number, a, b in ((math.pi / 180, degree, radian), (180 / math.pi, radian, degree)):
        if abs(complex(np.asarray(factor).item()) / number - 1) <= tolerance:
            if unit == a:
                return b
            raise UnitError(
                message(
                    f"lift: a number in {unit} is multiplied by that of 1 {a} in {b}.",
                    hint="leave it out: a quantity knows its unit, `sin` takes degrees.",
                )
            )
    return None


@unit_rule("mul")
def _(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    for unit, other in zip(operands, reversed(eqn.invars), strict=True):
        if isinstance(unit, Unit) and unit is not one and unit.is_dimensionless:
            dtype = eqn.outvars[0].aval.dtype
            if not jax.dtypes.issubdtype(dtype, np.inexact):
                continue
            rounding = float(jax.numpy.finfo(dtype).eps)
            turned = _turned(unit, getattr(other, "val", None), rounding)
            if turned is not None:
                return [turned]
    return apply_signature("mul", Signature.parse(_laws()["mul"].units(eqn)), operands, 1)


@unit_rule("pow")
def _(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    base, exponent = operands
    if isinstance(exponent, Unit) and not exponent.is_dimensionless:
        raise not_dimensionless("pow", "exponent", exponent)
    if isinstance(exponent, Unit):
        require_equal(exponent, one)
    if not isinstance(base, Unit) or base.is_dimensionless:
        if isinstance(base, Unit):
            require_equal(base, one)
        return [one if isinstance(base, Unit) or isinstance(exponent, Unit) else None]
    value = getattr(eqn.invars[1], "val", None)
    if value is None:
        raise UnitError(f"pow: the exponent of a quantity in {base} must be a known number.")
    try:
        power = exact_power(np.asarray(value)[()])  # as intended: in bfloat16, 0.1 is 0.1001
    except UnitError:
        power = Fraction(float(value)).limit_denominator(1000)
    require_root(base, power.denominator)
    return [base**power]


@unit_rule("convert_element_type")
def _(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    # the truth value of a number tests it for zero, which is the same in every linear unit
    if eqn.params["new_dtype"] == np.bool_:
        return apply_signature("bool", Signature.parse("x: u -> -"), operands, 1)
    integer = np.issubdtype(eqn.params["new_dtype"], np.integer)
    return _plain_if_pure(operands) if integer else operands


@unit_rule("bitcast_convert_type")
def _(eqn: JaxEquation, operands: list[Found]) -> list[Found]:
    plain = _plain_if_pure(operands)
    return apply_signature("bitcast_convert_type", Signature.parse("x: - -> -"), plain, 1)


def _plain_if_pure(operands: list[Found]) -> list[Found]:
    """Make a pure number plain if it becomes an integer, which may be an index."""
    (unit,) = operands
    if not (isinstance(unit, Unit) and unit.is_dimensionless):
        return operands
    require_equal(unit, one)
    return [None]
