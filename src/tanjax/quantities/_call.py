"""A function of plain arrays, opened to quantities by its unit signature.

The value of a function of quantities is the value of the plain function on numbers in fitting
units. A call has four steps. It resolves the units by the signature, converts the numbers whose
units differ, calls the raw function, and labels the results. Only the conversions add to a program.

    root = UnitFunction("sqrt", jnp.sqrt, "x: u -> u^1/2")
    root(4.0 * tj.units.metre ** 2)

Resolving takes 4 us, as long as JAX takes to add three numbers. It depends only on which arguments
are quantities and in which units. So a `UnitFunction` keeps the other three steps as one function
per pattern of arguments: 1.3 us from the second call. A conversion is one more dispatch (5 us). If
all arguments are arrays, the second call compiles the conversions and the function as one program.
It takes the factors as arguments and so serves every prefix.

Sharp edges. Plain arguments go straight to the raw function. Before each call the function checks
that its numbers stay in range (`_headroom.py`). Numbers near the ends move to a common label, and
the function runs through the scale graph if it may overflow.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from tanjax import _marks
from tanjax._compat import Tracer
from tanjax._errors import UnitError, message
from tanjax._marks import ACTIVE, Cache, capturing
from tanjax._typing import Function
from tanjax.arrays import densify_mode, held, holds_array, is_structured
from tanjax.units import Unit, conversion, one
from tanjax.units.signatures import (
    ANY,
    Binding,
    Each,
    Many,
    Monomial,
    Operand,
    Out,
    Role,
    Several,
    Signature,
    bind,
    divisible,
    roots,
)

from ._common_labels import fitted
from ._constructors import floating
from ._contexts import innermost_lift
from ._conversion import ORDINARY, convert
from ._exponents import labelled, like, plain_result, unscale
from ._headroom import NEEDS_VALUES, Need, needed, needs_graph, through_graph
from ._losses import checked
from ._operands import (
    NO_ROLE,
    SEQUENCES,
    Place,
    Slot,
    flat,
    narrowest,
    operands_of,
    pattern,
    put,
    take,
)
from ._quantity import Quantity, is_quantity, split_unit, stored_of, unitful
from ._range import shift

_MOST_CALLS = 1024  # the key of a sequence holds its length, so the number of keys has no bound
_UNKNOWN: tuple[None, None] = (None, None)
_concrete: dict[type, bool] = {}

Call = Callable[[Sequence[PyTree], dict[str, PyTree]], PyTree]


class UnitFunction:
    """A raw function and its unit signature, callable on plain arrays and quantities.

    **Arguments:** `structured`: called instead of `raw` if an argument is a structured array;
    `names`: of the positional parameters, where inspection does not find them; `on_scale`: called
    with points of an affine scale; `near_limits`: called with two numbers near the ends of the
    range, returns `NotImplemented` for others.
    """

    def __init__(
        self,
        name: str,
        raw: Function,
        signature: str,
        structured: Function | None = None,
        names: tuple[str, ...] | None = None,
        on_scale: Function | None = None,
        near_limits: Function | None = None,
    ) -> None:
        functools.update_wrapper(self, raw, updated=())
        self.name = self.__name__ = name
        self.raw = raw
        self.signature = Signature.parse(signature)
        self.structured = structured or raw
        self.roles = dict(self.signature.roles)
        self.names = _parameter_names(raw, self.signature) if names is None else names
        self.on_scale, self.near_limits = on_scale, near_limits
        self.spread = not isinstance(getattr(np, name, None), np.ufunc)
        self._calls: dict[Hashable, tuple[Need | None, Call]] = {}
        self._programs: dict[Hashable, Function] = {}
        self.marks: Cache = {}  # of captured calls

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if ACTIVE[0] and capturing() and any(map(is_structured, flat((*args, *kwargs.values())))):
            return marked(self.name, self, self.unkept, self._shown(args), kwargs, self.marks)
        # 1.3 us instead of 4.5 us from the second call with these units on. Safe because only calls
        # that resolved are kept, and the key holds everything that the resolution reads.
        key: Hashable = pattern(args)
        if kwargs:
            key = key, tuple(kwargs), pattern(kwargs.values())
        need, call = self._calls.get(key, _UNKNOWN)
        if call is None:
            return self._first_call(key, args, kwargs)
        if need is None or need.is_met(args, kwargs):
            return call(args, kwargs)
        return self._first_call(None, args, kwargs)

    def unkept(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Run a call without keeping its pattern or marking it as an equation."""
        return self._first_call(None, args, kwargs)

    def _first_call(
        self, key: Hashable, args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> PyTree:
        """Run a call of a new pattern, and keep its steps if it has a key."""
        given = (*args, *kwargs.values())
        if any(map(holds_array, given)):
            return self(*map(held, args), **{k: held(v) for k, v in kwargs.items()})
        values = list(flat(given))
        if not any(map(is_quantity, values)):
            has_structure = any(map(is_structured, values))
            return (self.structured if has_structure else self.raw)(*args, **kwargs)
        operands, places = operands_of(self.name, self._with_roles(args, kwargs))
        binding = self._resolve(operands)
        if binding is None:
            return self._on_points(args, kwargs)
        targets = _targets(operands, binding)
        own = take(args, kwargs, places)
        need = needed(self.signature.is_kept, self.spread, operands, places, own, targets)
        raw = self.structured if any(is_structured(stored_of(v)) for v in values) else self.raw
        if need and not (need.is_met(args, kwargs) or need.is_seen(args, kwargs)):
            return self._near_limits(raw, args, kwargs, operands, places, binding)
        call = self._steps(raw, operands, places, targets, binding)
        result = call(args, kwargs)
        if key is not None:
            if len(self._calls) >= _MOST_CALLS:
                self._calls.clear()
            self._calls[key] = need, call
        return result

    # -- resolve ---------------------------------------------------------------------------------

    def _with_roles(
        self, args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> Iterator[tuple[Slot, str, Role, PyTree]]:
        """Yield slot, name, role and value of each argument."""
        fixed, variadic = len(self.names), self.signature.variadic
        for i, value in enumerate(args):
            if i < fixed:
                yield i, self.names[i], self.roles.get(self.names[i], NO_ROLE), value
            elif variadic:
                yield i, f"{variadic[0]}[{i - fixed}]", variadic[1], value
            else:
                yield i, f"argument {i}", NO_ROLE, value
        for name, value in kwargs.items():
            yield name, name, self.roles.get(name, NO_ROLE), value

    def _resolve(self, operands: list[Operand]) -> Binding | None:
        """Return the unit of each letter; `None` if another function takes these units."""
        try:
            binding = bind(self.name, operands)
        except UnitError:
            has_points = any(isinstance(u, Unit) and not u.is_linear for _, u, _ in operands)
            if innermost_lift() is None and not (self.on_scale and has_points):
                raise
            return None
        needed_roots = roots(self.signature.out)
        return divisible(binding, needed_roots) if needed_roots else binding

    def _on_points(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> PyTree:
        """Call with points of a scale, or with numbers whose units a lift tracks."""
        labels = [v.label for v in flat((*args, *kwargs.values())) if is_quantity(v)]
        if self.on_scale and not all(label.is_linear for label in labels):
            return self.on_scale(self.raw, *args, **kwargs)
        lift: Any = innermost_lift()
        return self.raw(*(lift(a) if is_quantity(a) else a for a in args), **kwargs)

    # -- convert, call, label --------------------------------------------------------------------

    def _steps(
        self,
        raw: Function,
        operands: list[Operand],
        places: list[Place],
        targets: list[Unit | None],
        binding: Binding,
    ) -> Call:
        """Return the function that converts, calls and labels for calls of one pattern."""
        label = labeller(self.signature.out, binding, operands)
        moves: list[tuple[Slot, int | None, Any, Unit]] = [
            (*place, unit, to)
            for (_, unit, _), place, to in zip(operands, places, targets, strict=True)
            if to is not None and _differ(unit, to)
        ]
        held = [p for (_, unit, _), p in zip(operands, places, strict=True) if unit is not None]
        nested = {slot for slot, index in held if index is not None}
        if not moves and not nested and all(type(slot) is int for slot, _ in held):
            return lambda args, kwargs: label(raw(*[stored_of(a) for a in args], **kwargs))
        named = sorted({slot for slot, _ in held if type(slot) is str})
        nested -= set(named)
        fused: Function | None = None
        calls = 0

        def call(args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> PyTree:
            nonlocal fused, calls
            calls += 1
            if calls == 2 and moves and not kwargs:
                fused = _fused(raw, moves, self._programs)
            values: Any = [stored_of(a) for a in args]
            for slot in nested:
                values[slot] = [stored_of(v) for v in values[slot]]
            if fused is not None and all(map(_is_numeric, values)):
                try:
                    return label(fused(*values))
                except NEEDS_VALUES:  # it needs concrete values and cannot be compiled
                    fused = None
            if named:
                kwargs = {**kwargs, **{name: _stripped(kwargs[name]) for name in named}}
            for slot, index, own, to in moves:
                holder: Any = values if type(slot) is int else kwargs
                holder, slot = (holder, slot) if index is None else (holder[slot], index)
                if own is None:  # a pure number beside quantities at an exponent
                    number, own = split_unit(floating(holder[slot], narrowest((args, kwargs))))
                    holder[slot] = convert(number, own, to)
                else:
                    holder[slot] = convert(holder[slot], own, to)
            return label(raw(*values, **kwargs))

        return call

    def _near_limits(
        self,
        raw: Function,
        args: Sequence[PyTree],
        kwargs: dict[str, PyTree],
        operands: list[Operand],
        places: list[Place],
        binding: Binding,
    ) -> PyTree:
        """Run a call on numbers near the ends of the range.

        Operands move to a common label that suits them all. The function runs through the scale
        graph if it may overflow.
        """
        if self.near_limits is not None and not kwargs and len(args) == 2:
            result = self.near_limits(self.raw, *args)
            if result is not NotImplemented:
                return result
        given = take(args, kwargs, places)
        binding, inner = fitted(given, operands, binding, roots(self.signature.out))
        for i, exponent in inner.items():
            given[i] = unitful(given[i].stored, given[i].label.scaled(-exponent))
        args, kwargs = put(args, kwargs, places, given)
        numbers: list[PyTree] = []
        origins: list[Any] = []
        for value, (_, unit, _), to in zip(
            given, operands, _targets(operands, binding), strict=True
        ):
            is_moved = to is not None and _differ(unit, to)
            own = one if unit is None else unit
            origins.append((stored_of(value), own, to) if is_moved else None)
            numbers.append(_number(value, to, (args, kwargs)))
        plain_args, plain_kwargs = put(args, kwargs, places, numbers)
        call = _shifted(raw, {places[i]: exponent for i, exponent in inner.items()})
        plain = (*plain_args, *plain_kwargs.values())
        if inner or (not self.signature.is_kept and needs_graph(plain, 2.0, self.spread)):
            call = through_graph(call)

        def on_numbers(*numbers: PyTree) -> PyTree:
            new_args, new_kwargs = put(plain_args, plain_kwargs, places, numbers)
            return call(*new_args, **new_kwargs)

        result = checked(self.name, on_numbers, numbers, origins, (args, kwargs))
        result = labeller(self.signature.out, binding, operands, is_graphed=True)(result)
        had_exponent = any(isinstance(unit, Unit) and unit.scale for _, unit, _ in operands)
        return result if had_exponent else unscale(result)

    # -- capture ---------------------------------------------------------------------------------

    def _shown(self, args: Sequence[PyTree]) -> list[PyTree]:
        """Mark NumPy arrays without a unit as static: shapes and places are read while tracing."""
        without = [self.roles.get(name, NO_ROLE).letter == "-" for name in self.names[: len(args)]]
        without += [False] * (len(args) - len(without))
        return [
            _marks.Static(a) if fixed and type(a) is np.ndarray else a
            for a, fixed in zip(args, without, strict=True)
        ]

    def __repr__(self) -> str:
        return f"<tanjax function {self.name}: {self.signature.text}>"


def _targets(operands: list[Operand], binding: Binding) -> list[Unit | None]:
    """Return the unit that each operand needs; `None` if it stays as it is."""
    units = {**binding, "1": one, "*": None}
    return [None if unit is ANY else units.get(role.letter) for role, unit, _ in operands]


def _differ(unit: Any, to: Unit) -> bool:
    """True if numbers must change: `N` is `kg m / s2`. Pure numbers change to an exponent."""
    if not isinstance(unit, Unit):
        return bool(to.scale)
    linear = unit.is_linear and to.is_linear
    return unit is not to and not (linear and conversion(unit, to) == (1.0, 1.0))


def _number(value: PyTree, to: Unit | None, given: PyTree) -> PyTree:
    """Return the number of an operand in a unit; pure numbers change only to an exponent."""
    if type(value) is Quantity:
        return value.stored if to is None else convert(value.stored, value.label, to)
    if to is None or not to.scale:
        return value
    return convert(*split_unit(floating(value, narrowest(given))), to)


def _stripped(value: PyTree) -> PyTree:
    """Return the numbers of a quantity, or of a sequence with quantities."""
    return [stored_of(v) for v in value] if type(value) in SEQUENCES else stored_of(value)


def _shifted(call: Function, exponents: dict[Place, int]) -> Function:
    """Return `call` with numbers multiplied by a power of two first, inside of the graph."""
    if not exponents:
        return call

    @functools.wraps(call)
    def on_stored(*args: PyTree, **kwargs: PyTree) -> PyTree:
        numbers = map(shift, take(args, kwargs, exponents), exponents.values())
        new_args, new_kwargs = put(args, kwargs, exponents, numbers)
        return call(*new_args, **new_kwargs)

    return on_stored


def _fused(
    raw: Function,
    moves: list[tuple[Slot, int | None, Any, Unit]],
    programs: dict[Hashable, Function],
) -> Function | None:
    """Compile conversions and function as one program; `None` for affine or extreme factors."""
    places, factors = [], []
    for slot, index, a, b in moves:
        if not (isinstance(a, Unit) and a.is_linear and b.is_linear):
            return None
        multiplier, divisor = conversion(a, b)
        factor = multiplier if divisor == 1.0 else divisor
        if not ORDINARY[0] <= factor <= ORDINARY[1]:
            return None
        places.append((slot, index, divisor != 1.0))
        factors.append(factor)
    key = tuple(places)
    if key not in programs:

        def convert_and_call(factors: PyTree, *values: PyTree) -> PyTree:
            given: Any = list(values)
            for (slot, index, divides), factor in zip(key, factors, strict=True):
                holder: Any = given if index is None else given[slot]
                place = slot if index is None else index
                holder[place] = holder[place] / factor if divides else holder[place] * factor
            return raw(*given)

        convert_and_call.__name__ = getattr(raw, "__name__", "function")
        programs[key] = jax.jit(convert_and_call, inline=True)
    return functools.partial(programs[key], tuple(factors))


def _is_numeric(x: PyTree) -> bool:
    """True if a value is a concrete array, or a list of them; by the class: 0.05 us."""
    if type(x) is list:
        return all(map(_is_numeric, x))
    try:
        return _concrete[type(x)]
    except KeyError:
        known = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
        return _concrete.setdefault(type(x), known)


def labeller(
    out: Out, binding: Binding, operands: list[Operand], is_graphed: bool = False
) -> Function:
    """Return a function of the raw result that labels it, by the right side of the signature.

    **Arguments:** `is_graphed`: True if a result may be a quantity in a power of two.
    """
    again = functools.partial(labeller, binding=binding, operands=operands, is_graphed=is_graphed)
    if isinstance(out, Many):
        item = again(out.item)
        return lambda result: like(result, map(item, result))
    if isinstance(out, Several):
        items = list(map(again, out.items))
        return lambda result: like(
            result, [item(r) for item, r in zip(items, result, strict=False)]
        )
    if isinstance(out, Each):
        return functools.partial(_label_each, [u for role, u, _ in operands if role.letter == "*"])
    unit = out.unit(binding) if isinstance(out, Monomial) else None
    if unit is None:
        return plain_result if is_graphed else lambda result: result
    if is_graphed or unit.scale:
        return lambda result: labelled(result, unit)
    return lambda result: unitful(result, unit)


def _label_each(units: list[PyTree], result: PyTree) -> PyTree:
    """Label every result with the unit of the operand in its place."""
    is_single = not isinstance(result, list | tuple)
    pairs = zip([result] if is_single else result, units, strict=True)
    done = [labelled(r, u) if isinstance(u, Unit) else plain_result(r) for r, u in pairs]
    return done[0] if is_single else like(result, done)


def _parameter_names(raw: Function, signature: Signature) -> tuple[str, ...]:
    """Return the names of positional parameters; those of the signature if JAX does not say."""
    known = tuple(name for name, _ in signature.roles)
    try:
        parameters = inspect.signature(raw).parameters.values()
    except (TypeError, ValueError):
        return known
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(p.name for p in parameters if p.kind in positional)
    return names if names or signature.variadic else known


def refused(name: str, reason: str) -> UnitError:
    """Return the error of a function that has no meaning on quantities."""
    return UnitError(
        message(
            f"{name}: takes no quantities.",
            f"why: {reason}",
            hint="strip the units with `.to_value(...)` and put them back on the result.",
        )
    )


# -- captured calls ------------------------------------------------------------------------------


def captured(name: str, function: Function, kind: _marks.Kind = "operation") -> Function:
    """Return a function of quantities whose captured calls are equations."""
    marks: Cache = {}

    @functools.wraps(function, updated=())
    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if ACTIVE[0] and capturing():
            return marked(name, call, function, args, kwargs, marks, kind)
        return function(*args, **kwargs)

    return call


def marked(
    name: str,
    target: Function,
    run: Function,
    args: Sequence[PyTree],
    kwargs: dict[str, PyTree],
    marks: Cache,
    kind: _marks.Kind = "operation",
) -> PyTree:
    """Run a call as one equation of the program under capture, with the units around it.

    Numbers stay parameters: a zero fits every unit, and an exponent decides one. Capture traces
    through a call that is given functions, or a slice between traced places. A call on known
    numbers alone runs at once.
    """
    leaves = jax.tree.leaves((args, kwargs), is_leaf=is_quantity)
    seen = any(map(is_quantity, leaves)) and not any(map(_is_unseen, leaves))
    if not (seen and is_traced(leaves)):
        args = [a.value if type(a) is _marks.Static else a for a in args]
        return run(*args, **kwargs)
    mode = densify_mode()
    return _marks.marked(kind, name, target, run, args, kwargs, marks, mode, _marks.is_operand)


def is_traced(tree: PyTree) -> bool:
    """True if the tree holds a tracer.

    Known values are computed with checks of their range; an equation would hide them.
    """
    return any(isinstance(x, Tracer) for x in jax.tree.leaves(tree))


def _is_unseen(x: PyTree) -> bool:
    """True if an argument may hold tracers that no equation would show."""
    if type(x) is slice:
        return any(isinstance(v, Tracer) for v in (x.start, x.stop, x.step))
    return callable(x) and not isinstance(x, type)
