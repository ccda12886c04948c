"""Unit signatures: the effect of a function on units, in one line.

The units that `trapezoid` accepts do not depend on how it computes. A signature states them once,
like a type: `"y: u, x: v, dx: v -> u*v"`. Every user of units reads the same line: the functions
of `tanjax.numpy`, operations, the interpreter of `tj.lift`, the docs.

    signature = Signature.parse("a: u, b: v -> v/u")
    binding = bind("solve", [(role_a, metre, "a"), (role_b, newton, "b")])

**Roles.** One letter is one unit: operands of one letter are converted to the unit of the first
quantity among them. Upper case: the function also accepts points of an affine scale (degrees
Celsius). `1`: dimensionless. `-`: no quantity. `*`: any unit, each its own. `[u]`: a sequence of
operands. **Results.** Monomials `u*v^1/2`, `1`, `rad`, `-` (plain), `[u]`, `[*]`, tuples of them.
A last word `kept` says that the function computes no numbers, as a maximum, a reshape or an
argsort: its results are numbers of the operands up to the sign, or plain, and cannot overflow.

Sharp edges. A letter whose operands all lack units is plain, and a result made only of plain
letters is plain. The literal Python zero has every unit, except points of a scale.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypeAlias, final

from tanjax._errors import RegistrationError, UnitError, incompatible, message

from ._conversion import is_step
from ._parse import unit as parse_unit
from ._unit import Unit, exact_power as exact_power, one


@final
class AnyUnit:
    """The unit of a number that is the same in every unit: it fits any unit."""

    def __repr__(self) -> str:
        return "any unit"


ANY = AnyUnit()  # of the literal zero, which is a different point on each scale
ENDLESS = AnyUnit()  # of infinities and nan; these are equal on every scale
Found: TypeAlias = Unit | AnyUnit | None  # the unit of a value; `None` if it is plain
Binding: TypeAlias = dict[str, Unit | None]  # the unit of every letter


@dataclasses.dataclass(frozen=True, slots=True)
class Role:
    """The role of one operand: its `letter`, or `1`, `-`, `*`.

    `affine`: affine units pass. `sequence`: the operand is a sequence of operands with this role.
    """

    letter: str
    affine: bool = False
    sequence: bool = False

    @staticmethod
    def parse(text: str) -> Role:
        """Read `u`, `U`, `[u]`, `1`, `-`, `*`."""
        text = text.strip()
        sequence = text.startswith("[") and text.endswith("]")
        letter = text.strip("[]").strip()
        if not (letter in ("1", "-", "*") or (len(letter) == 1 and letter.isalpha())):
            raise RegistrationError(f"unit signature: {text!r} is no role.")
        return Role(letter.lower(), letter.isupper(), sequence)


@dataclasses.dataclass(frozen=True, slots=True)
class Monomial:
    """A result's unit: a product of powers of letters, times a fixed unit."""

    powers: tuple[tuple[str, Fraction], ...] = ()
    fixed: str = ""

    def unit(self, binding: Binding) -> Unit | None:
        """The unit for a binding; `None` (plain) if it is made of plain letters only."""
        powers = self.powers
        if len(powers) == 1 and powers[0][1] == 1:
            return binding.get(powers[0][0])
        if self.fixed or not powers:
            return parse_unit(self.fixed) if self.fixed else one
        out = None
        for letter, power in powers:
            unit = binding.get(letter)
            if unit is not None:
                part = unit if power == 1 else unit.inverse if power == -1 else unit**power
                out = part if out is None else out * part
        return out

    @staticmethod
    def parse(text: str) -> Monomial:
        """Read `u*v`, `v/u`, `u^1/2`, `1/u`, `rad`, `1`."""
        text = text.replace(" ", "")
        if text == "rad":
            return Monomial(fixed="rad")
        powers: dict[str, Fraction] = {}
        i, sign = 0, 1
        while i < len(text):
            if i and text[i] not in "*/" and text[i - 1] not in "*/":
                raise RegistrationError(f"unit signature: cannot read {text!r}.")
            if text[i] in "*/":
                sign = 1 if text[i] == "*" else -1
                i += 1
            elif text[i] == "1":
                i += 1
            else:
                letter, i = text[i], i + 1
                power, i = _exponent(text, i)
                if not letter.isalpha():
                    raise RegistrationError(f"unit signature: cannot read {text!r}.")
                powers[letter.lower()] = powers.get(letter.lower(), Fraction(0)) + sign * power
                sign = 1
        return Monomial(tuple((k, p) for k, p in powers.items() if p))


def _exponent(text: str, i: int) -> tuple[Fraction, int]:
    """Return the exponent at `^` (an integer, a fraction, or 1 without `^`) and its end."""
    if i >= len(text) or text[i] != "^":
        return Fraction(1), i
    j = i + 1
    while j < len(text) and (
        text[j].isdigit() or text[j] == "-" or (text[j] == "/" and text[j + 1 : j + 2].isdigit())
    ):
        j += 1
    return Fraction(text[i + 1 : j]), j


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """A result that never has a unit: an index, a count, a truth value."""


@dataclasses.dataclass(frozen=True, slots=True)
class Each:
    """A list of results, each with the unit of the operand in its place."""


@dataclasses.dataclass(frozen=True, slots=True)
class Many:
    """A list of results of one kind."""

    item: Out


@dataclasses.dataclass(frozen=True, slots=True)
class Several:
    """A tuple of results, each of its own kind."""

    items: tuple[Out, ...]


Out: TypeAlias = Monomial | Plain | Each | Many | Several


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """A parsed unit signature."""

    text: str
    roles: tuple[tuple[str, Role], ...]
    variadic: tuple[str, Role] | None
    out: Out
    is_kept: bool = False  # True if the function computes no numbers

    @staticmethod
    @functools.cache
    def parse(text: str) -> Signature:
        """Read `"a: u, b: v -> v/u"`. **Raises:** `RegistrationError` if it cannot be read."""
        left, arrow, right = text.partition("->")
        if not arrow:
            raise RegistrationError(f"unit signature {text!r} has no `->`.")
        roles, variadic = [], None
        for part in filter(None, (p.strip() for p in left.split(","))):
            name, colon, role = part.partition(":")
            if not colon:
                raise RegistrationError(f"unit signature {text!r}: {part!r} is not `name: role`.")
            if name.startswith("*"):
                variadic = (name[1:].strip(), Role.parse(role))
            else:
                roles.append((name.strip(), Role.parse(role)))
        results = right.strip()
        out = _parse_out(results.removesuffix(" kept"))
        return Signature(text, tuple(roles), variadic, out, results.endswith(" kept"))

    def roles_of(self, count: int) -> list[Role]:
        """The role of each of `count` operands."""
        roles = [role for _, role in self.roles]
        return roles + [self.variadic[1]] * (count - len(roles)) if self.variadic else roles

    def results_of(self, count: int) -> Sequence[Out]:
        """The kind of each of `count` results: an `Each`, a `Plain` or a `Monomial`."""
        if isinstance(self.out, Several):
            return self.out.items[:count]
        return [self.out.item if isinstance(self.out, Many) else self.out] * count

    def role(self, name: str) -> Role | None:
        """The role of a parameter."""
        return dict(self.roles).get(name)


def _parse_out(text: str) -> Out:
    if text == "-":
        return Plain()
    if text in ("*", "[*]"):
        return Each()
    if text.startswith("[") and text.endswith("]"):
        return Many(_parse_out(text[1:-1]))
    if text.startswith("(") and text.endswith(")"):
        return Several(tuple(_parse_out(part) for part in _split(text[1:-1])))
    return Monomial.parse(text)


def _split(text: str) -> Iterable[str]:
    """Split a tuple at the commas outside of inner brackets."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


def roots(out: Out) -> dict[str, int]:
    """Map each letter with a root in a result to a multiple of the denominators of its powers.

    A label with a power of two has this root only if the multiple divides its exponent.
    """
    if isinstance(out, Several):
        found: dict[str, int] = {}
        for item in out.items:
            for letter, root in roots(item).items():
                found[letter] = math.lcm(root, found.get(letter, 1))
        return found
    if isinstance(out, Many):
        return roots(out.item)
    powers = out.powers if isinstance(out, Monomial) else ()
    return {letter: power.denominator for letter, power in powers if power.denominator > 1}


def divisible(binding: Binding, needed: dict[str, int]) -> Binding:
    """Return a binding whose labels have the needed roots: see `Unit.divisible`."""
    changed = {
        letter: unit.divisible(root)
        for letter, root in needed.items()
        if isinstance(unit := binding.get(letter), Unit)
    }
    return {**binding, **changed}


Operand = tuple[Role, Found, str]  # the last is the name of the operand


def bind(name: str, operands: Sequence[Operand]) -> Binding:
    """Return the unit of every letter, `None` if all of its operands are plain.

    **Raises:** `UnitError` with the function, the operands and their units.
    """
    binding: Binding = {}
    plain: str | None = None
    zeros: list[tuple[str, str]] = []
    for role, unit, label in operands:
        letter = role.letter
        if unit is None:
            if letter not in binding:
                binding[letter] = None
            if letter not in ("1", "-", "*"):
                plain = (plain or "") + letter
            continue
        if type(unit) is AnyUnit or letter == "*":
            if unit is ANY:
                zeros.append((letter, label))
            continue
        bound = binding.get(letter)
        if unit is bound:
            continue
        if letter == "-":
            raise unexpected(name, label, unit)
        if letter == "1":
            if not (unit.is_dimensionless and unit.is_linear):
                raise not_dimensionless(name, label, unit)
        elif bound is None:
            if not (unit.is_linear or role.affine):
                raise not_linear(name, label, unit)
            binding[letter] = unit
        elif not _converts(unit, bound, role):
            raise _mismatch(name, operands, letter)
    for letter, label in zeros:
        bound = binding.get(letter)
        if bound is not None and not bound.is_linear:
            raise zero_of(name, label, bound)
    if plain:
        for letter in plain:
            bound = binding[letter]
            if bound is not None:
                if not (bound.is_dimensionless and bound.is_linear):
                    raise _mismatch(name, operands, letter)
                binding[letter] = one
    return binding


def _converts(unit: Unit, bound: Unit, role: Role) -> bool:
    """True if numbers in `unit` can stand for numbers of a letter whose unit is `bound`."""
    if bound.dimension is not unit.dimension or bound.is_linear is unit.is_linear:
        return bound.dimension is unit.dimension
    point, other = (bound, unit) if unit.is_linear else (unit, bound)
    return role.affine and not is_step(other, point)


def _mismatch(name: str, operands: Sequence[Operand], letter: str) -> UnitError:
    """The error for unequal operands of one letter: the first, and the first that differs."""
    group = [
        (u, label, role)
        for role, u, label in operands
        if role.letter == letter and type(u) is not AnyUnit
    ]
    first = next((u, label) for u, label, _ in group if u is not None)
    other = next(
        (u, label) for u, label, role in group if u is None or not _converts(u, first[0], role)
    )
    plain = other[0] is None
    return incompatible(
        name,
        f"{first[1]}: {describe_unit(first[0])}",
        f"{other[1]}: {describe_unit(other[0])}",
        f"give the plain number a unit, `x * tj.unit({str(first[0])!r})`, or strip the other "
        f"with `.to_value({str(first[0])!r})`."
        if plain
        else "",
    )


def describe_unit(unit: Unit | None) -> str:
    """Return a unit and its dimension as text for messages."""
    return "a plain number" if unit is None else f"unit {unit} ({unit.dimension})"


def not_dimensionless(name: str, label: str, unit: Unit) -> UnitError:
    """The error for an operand with a dimension where a pure number is needed."""
    return UnitError(
        message(
            f"{name}: `{label}` must be dimensionless.",
            f"{label}: {describe_unit(unit)}",
            hint="divide by a reference quantity first.",
        )
    )


def not_linear(name: str, label: str, unit: Unit) -> UnitError:
    """The error for a point of an affine or logarithmic scale where a multiple is needed."""
    return UnitError(
        message(
            f"{name}: `{label}` is a point on the scale of {unit}, not a multiple of a unit.",
            hint=f"convert it first, with `.to(...)`; its differences are in {unit.delta}.",
        )
    )


def zero_of(name: str, label: str, unit: Unit) -> UnitError:
    """The error for a literal zero beside points of a scale."""
    return UnitError(
        message(
            f"{name}: `{label}` is 0 without a unit, beside points of the scale of {unit}.",
            "why: zero is another place on every scale: 0 °C is 273.15 K.",
            hint=f"say which is meant: `0.0 * tj.unit({str(unit)!r})`.",
        )
    )


def unexpected(name: str, label: str, unit: Unit) -> UnitError:
    """The error for a quantity where a function takes none."""
    return UnitError(
        message(
            f"{name}: `{label}` cannot be a quantity.",
            f"{label}: {describe_unit(unit)}",
            hint="strip it with `.to_value(...)`.",
        )
    )
