"""A function of plain arrays, opened to quantities by its unit signature.

The value of a function of quantities is the value of the plain function on numbers in fitting
units. The unit signature says which units fit and how to label the result. A `UnitFunction`
resolves the units, converts where prefixes differ, calls the raw function and labels the results.
It adds only these conversions to a program.

    root = UnitFunction("sqrt", jnp.sqrt, Signature.parse("x: u -> u^1/2"))
    root(4.0 * tj.units.metre ** 2)

Sharp edges. Plain arguments go straight to the raw function. The resolution of a call is cached per
pattern of arguments (`_cached_call.py`); most of this module runs once for each.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from jaxtyping import PyTree

from tanjax._errors import UnitError, message
from tanjax._marks import ACTIVE, Cache, capturing
from tanjax._typing import Function
from tanjax.arrays import held, holds_array, is_structured
from tanjax.units import Unit, one
from tanjax.units.signatures import (
    ANY,
    Binding,
    Found,
    Monomial,
    Operand,
    Plain,
    Role,
    Signature,
    bind,
    divisible,
    roots,
    unexpected,
)

from ._cached_call import CachedCall, Move, cached_call, pattern
from ._conversion import convert
from ._headroom import CHOOSING, Need, Slot, Spot, distance, needed, needs_graph
from ._labels import labeller
from ._losses import checked_call, narrowest
from ._making import floating
from ._marking import marked_function
from ._meeting import fitted
from ._overflow import shifted, through_graph, unscale, without_exponents
from ._quantity import Unitful, split_unit
from ._surroundings import innermost_lift

_SEQUENCES = (list, tuple)
_NO_ROLE = Role("-")
_UNKNOWN: tuple[None, None] = (None, None)
_MOST_CALLS = 1024  # the key of a sequence holds its length, so the number of keys has no bound
Structured = Function


class UnitFunction:
    """A raw function and its unit signature, callable on plain arrays and quantities.

    **Arguments:** `structured`: called instead of `raw` if an argument is a structured array;
    `names`: of the positional parameters, where inspection does not find them.
    """

    def __init__(
        self,
        name: str,
        raw: Function,
        signature: str,
        structured: Function | None = None,
        names: tuple[str, ...] | None = None,
    ) -> None:
        functools.update_wrapper(self, raw, updated=())
        self.name = self.__name__ = name
        self.raw = raw
        self.signature = Signature.parse(signature)
        self.structured = structured or raw
        self.by_name = dict(self.signature.roles)
        self.names = names or _parameter_names(raw, self.signature)
        self.by_position = tuple(self.by_name.get(n, _NO_ROLE) for n in self.names)
        self.on_scale: Function | None = None  # handles points of an affine scale
        self.near_limits: Function | None = (
            None  # what to do with numbers near the ends of the range
        )
        self.spread = not isinstance(getattr(np, name, None), np.ufunc)
        self._label = labeller(self.signature.out)
        self._roots = roots(self.signature.out)
        self._calls: dict[Hashable, tuple[CachedCall, Need | None]] = {}
        self._programs: dict[Hashable, Function] = {}
        self.marks: Cache = {}  # of captured calls

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if ACTIVE[0] and capturing() and (_kind(args) or _kind(kwargs.values())):
            return marked_function(self, args, kwargs)
        # 1.3 us instead of 4.5 us from the second call with these units on. Safe because only calls
        # that resolved are cached, and the key holds everything that the resolution reads.
        key: Hashable = pattern(args)
        if kwargs and key is not None:
            named = pattern(kwargs.values())
            key = None if named is None else (key, tuple(kwargs), named)
        cached, need = self._calls.get(key, _UNKNOWN)
        if cached is not None:
            if need is None or need.is_met(args, kwargs):
                return cached(args, kwargs)
            return self._resolve(None, args, kwargs)
        return self._resolve(key, args, kwargs)

    def unkept(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Run a call without caching it or marking it as an equation."""
        return self._resolve(None, args, kwargs)

    def _resolve(self, key: Hashable, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> PyTree:
        """Resolve the units of a call, run it, and cache it for the next time."""
        if any(map(holds_array, (*args, *kwargs.values()))):
            return self(*map(held, args), **{k: held(v) for k, v in kwargs.items()})
        kind = _kind(args) or (_kind(kwargs.values()) if kwargs else 0)
        if not kind:
            return self.raw(*args, **kwargs)
        if kind == 1 and not (_has_quantity(args) or _has_quantity(kwargs.values())):
            return self.structured(*args, **kwargs)
        operands, where = self._operands(args, kwargs)
        try:
            binding = bind(self.name, operands)
        except UnitError:
            points = (isinstance(u, Unit) and not u.is_linear for _, u, _ in operands)
            if self.on_scale and any(points):
                return self.on_scale(self.raw, *args, **kwargs)
            lift = innermost_lift()
            if lift is None:
                raise
            return self.raw(*(lift(a) if type(a) is Unitful else a for a in args), **kwargs)
        if self._roots:
            binding = divisible(binding, self._roots)
        stretch = _stretch(_moves(operands, where, binding))
        need = needed(self.name, self.spread, operands, where, (args, kwargs), stretch)
        if need and not (need.is_met(args, kwargs) or need.is_seen(args, kwargs)):
            return self._resolve_near_limits(args, kwargs, operands, where, binding)
        values, named = self._stripped(args, kwargs, operands, where, binding)
        call = self.structured if _kind(values) or (named and _kind(named.values())) else self.raw
        result = self._label(call(*values, **named), binding, operands)
        if key is not None:
            self._remember(key, args, kwargs, operands, where, binding, need)
        return result

    def _remember(
        self,
        key: Hashable,
        args: Sequence[PyTree],
        kwargs: dict[str, PyTree],
        operands: list[Operand],
        where: Sequence[Spot],
        binding: Binding,
        need: Need | None,
    ) -> None:
        """Cache the resolution of a call."""
        moves = _moves(operands, where, binding)
        out: PyTree = self.signature.out
        label: Function | Unit | None = lambda result: self._label(result, binding, operands)
        if isinstance(out, Plain):
            label = None
        elif isinstance(out, Monomial):
            label = out.unit(binding)
        if len(self._calls) >= _MOST_CALLS:
            self._calls.clear()
        call = cached_call(self.raw, args, kwargs, moves, label, self._programs)
        self._calls[key] = call, need

    def _resolve_near_limits(
        self,
        args: Sequence[PyTree],
        kwargs: dict[str, PyTree],
        operands: PyTree,
        where: Sequence[Spot],
        binding: Binding,
    ) -> PyTree:
        """Run a call on numbers near the ends of the range: see `_overflow`."""
        if self.near_limits is not None and not kwargs and len(args) == 2:
            result = self.near_limits(self.raw, *args)
            if result is not NotImplemented:
                return result
        binding, inner = fitted(args, kwargs, operands, where, binding, self._roots)
        args, kwargs = without_exponents(args, kwargs, inner)
        values, named = self._stripped(args, kwargs, operands, where, binding)
        call = self.structured if _kind(values) or (named and _kind(named.values())) else self.raw
        if inner or (self.name not in CHOOSING and needs_graph(values, 2.0, self.spread)):
            call = through_graph(shifted(call, inner))
        moved = _moves(operands, where, binding)
        if moved:
            result = checked_call(self.name, call, (args, kwargs), (values, named), moved)
        else:
            result = call(*values, **named)
        done = self._label(result, binding, operands)
        had_none = not any(isinstance(u, Unit) and u.scale for _, u, _ in operands)
        return unscale(done) if had_none else done

    def _operands(
        self, args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> tuple[list[Operand], list[Spot]]:
        """Return every operand with its role, unit and name, and its place."""
        operands: list[Operand] = []
        where: list[Spot] = []
        roles, names = self.by_position, self.names
        fixed = len(roles)
        for i, value in enumerate(args):
            if i < fixed:
                role, name = roles[i], names[i]
            elif self.signature.variadic:
                label, role = self.signature.variadic
                name = f"{label}[{i - fixed}]"
            else:
                role, name = _NO_ROLE, f"argument {i}"
            _add_operand(self.name, operands, where, role, name, value, i)
        for name, value in kwargs.items():
            role = self.by_name.get(name, _NO_ROLE)
            _add_operand(self.name, operands, where, role, name, value, name)
        return operands, where

    def _stripped(
        self,
        args: Sequence[PyTree],
        kwargs: dict[str, PyTree],
        operands: PyTree,
        where: Sequence[Spot],
        binding: Binding,
    ) -> tuple[PyTree, PyTree]:
        """Return the arguments as plain numbers in the resolved units."""
        new_args, new_kwargs = list(args), kwargs
        for (role, unit, _), place in zip(operands, where, strict=True):
            slot, index = place if type(place) is tuple else (place, None)
            if type(slot) is not int and new_kwargs is kwargs:
                new_kwargs = dict(kwargs)
            holder: Any = new_args if type(slot) is int else new_kwargs
            value = holder[slot] if index is None else holder[slot][index]
            target: Any = one if role.letter == "1" else binding.get(role.letter)
            if unit is ANY:
                continue
            if type(value) is Unitful:
                plain, label = value.stored, value.label
            elif target is not None and target.scale and role.letter != "*":  # a pure number
                plain, label = split_unit(floating(value, narrowest((args, kwargs))))
            else:
                continue
            if label is not target and role.letter != "*":
                plain = convert(plain, label, target)
            if index is None:
                holder[slot] = plain
            else:
                given = args[slot] if type(slot) is int else kwargs[slot]
                if holder[slot] is given:
                    holder[slot] = list(given)
                holder[slot][index] = plain
        return new_args, new_kwargs

    def __repr__(self) -> str:
        return f"<tanjax function {self.name}: {self.signature.text}>"


def _moves(operands: list[Operand], where: Sequence[Spot], binding: Binding) -> list[Move]:
    """Return the operands to convert: their places, old and new units."""
    moves: list[Move] = []
    for (role, unit, _), place in zip(operands, where, strict=True):
        target: Any = one if role.letter == "1" else binding.get(role.letter)
        if unit is None and isinstance(target, Unit) and target.scale:
            unit = one  # a pure number meets quantities at an exponent
        if isinstance(unit, Unit) and unit is not target and role.letter != "*":
            slot, index = place if type(place) is tuple else (place, None)
            moves.append((slot, index, unit, target))
    return moves


def _stretch(moves: list[Move]) -> float:
    """Return by how many binary digits numbers change in the conversions."""
    return max((distance(a, b) for _, _, a, b in moves), default=0.0)


def _kind(values: PyTree) -> int:
    """Return 1 if a value, or an item of a sequence, is structured or a quantity; else 0."""
    for value in values:
        if is_structured(value):
            return 1
        if type(value) in _SEQUENCES:
            for item in value:
                if is_structured(item):
                    return 1
    return 0


def _has_quantity(values: PyTree) -> bool:
    for value in values:
        if type(value) is Unitful:
            return True
        if type(value) in _SEQUENCES and any(type(item) is Unitful for item in value):
            return True
    return False


def _add_operand(
    function: str,
    operands: list[Operand],
    where: list[Spot],
    role: Role,
    name: str,
    value: PyTree,
    slot: Slot,
) -> None:
    """Append an operand, or every item of a sequence of operands."""
    kind = type(value)
    if kind is Unitful:
        if role is _NO_ROLE:
            raise unexpected(function, name, value.label)
        operands.append((role, value.label, name))
        where.append(slot)
    elif role is _NO_ROLE or value is None or kind is str:  # `left="extrapolate"`
        if kind in _SEQUENCES and _has_quantity(value):
            raise unexpected(function, name, next(v.label for v in value if type(v) is Unitful))
    elif kind in _SEQUENCES and (role.sequence or _has_quantity(value)):
        for j, item in enumerate(value):
            if type(item) is Unitful:
                operands.append((role, item.label, f"{name}[{j}]"))
                where.append((slot, j))
            elif item is not None:
                operands.append((role, unit_of(item), f"{name}[{j}]"))
                where.append((slot, j))
    else:
        operands.append((role, unit_of(value), name))
        where.append(slot)


def unit_of(value: PyTree) -> Found:
    """Return the unit of a value: `ANY` for a literal zero, `None` for plain values."""
    kind = type(value)
    if kind is Unitful:
        return value.label
    if (kind is int or kind is float) and value == 0:
        return ANY
    return None


def _parameter_names(raw: Function, signature: Signature) -> tuple[str, ...]:
    """Return the names of positional parameters; those of the signature if JAX does not say."""
    try:
        parameters = inspect.signature(raw).parameters.values()
    except (TypeError, ValueError):
        return tuple(name for name, _ in signature.roles)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(p.name for p in parameters if p.kind in positional)
    if not names and not signature.variadic:
        return tuple(name for name, _ in signature.roles)
    return names


def refused(name: str, reason: str) -> UnitError:
    """Return the error of a function that has no meaning on quantities."""
    return UnitError(
        message(
            f"{name}: takes no quantities.",
            f"why: {reason}",
            hint="strip the units with `.to_value(...)` and put them back on the result.",
        )
    )
