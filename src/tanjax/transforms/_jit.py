"""Compilation: one trace for every prefix.

To `jax.jit` metres and kilometres are different programs, because units are static. `tj.jit` keeps
the units of the first call. It converts later arguments of the same dimensions to these units at
the boundary, as a loop does with its carry. The results have the units of the first call.

Sharp edges. The first call decides whether a result is in metres or kilometres: print `.to(...)`.
Inside, `x.value` is in the unit of the first call; `x.to_value("m")` is in metres.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.stages import Lowered, Traced
from jax.tree_util import PyTreeDef
from jaxtyping import PyTree

from tanjax._compat import trace_context
from tanjax._dtype_range import range_of
from tanjax._errors import UnitError, message
from tanjax._marks import ACTIVE, capturing
from tanjax._typing import Function, Primal
from tanjax.quantities import (
    Quantity,
    bits_in,
    convert,
    is_quantity,
    measure,
    note_unit_dependence,
    unitful,
    watching,
)
from tanjax.units import conversion

from ._arguments import NOBODY, Args, Direct, Jitted, Kwargs, Last, Leaf, Options
from ._nested import Layout, Units, emptied, filled, labelled, take_apart
from ._packing import MANY, Packed, pack, unpack, without_powers
from ._planning import CHECKS, PlannedFunction

if TYPE_CHECKING:
    from tanjax.scale import Plan

_BOXES = frozenset((dict, list, tuple))
_NOTHING: tuple[Any, Any, Any] = (None, None, None)

Values: TypeAlias = Sequence[Primal]  # of quantities
Key: TypeAlias = tuple[Hashable, ...]  # of arguments whose units can be converted to one another
# The keys of a dict in order, the number of quantities otherwise, the layout of nested dicts.
Names: TypeAlias = Any
# A `PlannedFunction`; without `scale`, the result of `jax.jit`.
Program: TypeAlias = Any


class _Never:
    """A stand-in for a planned function: no call matches its last call."""

    last = Last()


_NEVER = _Never()
_NO_QUANTITIES: tuple[Args, Values, Direct] = (NOBODY,), (), _NEVER
_ABSENT: PyTree = object()


class _OtherUnits(Exception):
    """Raised by a trace for units that convert to the units of an earlier trace."""


# The largest ratio of two units of one program, by default that of km and µm. Beyond it, squares
# and products of numbers of order one would overflow or underflow without an error.
_FAR = {jnp.dtype(jnp.float16): 1.0, jnp.dtype(jnp.float64): 1e30, jnp.dtype(jnp.complex128): 1e30}
_FAR_OTHERWISE = 1.01e9


def _convert_to_anchor(x: Quantity, unit: Any, target: Any) -> Quantity:
    """Convert a quantity to the unit of a first call.

    **Raises:** `UnitError` if it may overflow or underflow there.
    """
    multiplier, divisor = conversion(unit, target)
    far = _FAR.get(x.dtype, _FAR_OTHERWISE)
    if not 1 / far <= multiplier / divisor <= far:
        raise UnitError("compile for the units given: their ratio is too large for the dtype.")
    span = range_of(x.dtype)
    for bits in map(measure, jax.tree.leaves(x.stored) if span else ()):
        if bits and not span.holds(*bits_in(bits, unit, target)):  # type: ignore[union-attr]
            raise UnitError("compile for the units given: the numbers do not fit in the others.")
    return unitful(convert(x.stored, unit, target), target)


def _pattern(args: Args, kwargs: Kwargs) -> tuple[Key, list[Leaf], PyTreeDef, Units]:
    """Return a key of arguments with convertible units, the leaves, their tree, their units."""
    leaves, treedef = jax.tree.flatten((args, kwargs), is_leaf=is_quantity)
    units = [x.label if type(x) is Quantity else None for x in leaves]
    kinds = tuple(u and (u.dimension if u.is_linear else u) for u in units)
    return (treedef, kinds), leaves, treedef, units


class Compiled:
    """A function compiled by `tj.jit`: callable, with `lower`, `trace` and `eval_shape` of JAX."""

    def __init__(self, fun: Function, options: Options, scale: bool, check: str) -> None:
        functools.update_wrapper(self, fun)
        self.captured: Function | None = None  # makes a call one equation under `tj.capture`
        self._fun = fun
        self._scale, self._check = scale, check
        self._jit: Jitted = jax.jit(fun, **options)
        self._aot: Program = PlannedFunction(fun, options) if scale else self._jit
        self._packs = not options
        self._compiled: Program = self._planned(self._checking(fun), options)
        self._direct: Direct = self._compiled if scale else _NEVER
        self._same = _NO_QUANTITIES  # the last quantities, their values, and the program called
        self._one_scale = True  # True if every call so far was in the units of a first call
        self._flat: dict[type | str | None, tuple[Names, Units, Program]] = {}
        self._known: dict[Key, Program] = {}
        self._anchors: dict[Key, list[Units]] = {}
        self._fixed: set[Key] = set()  # patterns whose results depend on the units

    def __call__(self, first: PyTree = _ABSENT, /, *others: PyTree, **kwargs: PyTree) -> PyTree:
        args: Args = () if first is _ABSENT else (first, *others)
        if ACTIVE[0] and self.captured and capturing():
            return self.captured(*args, **kwargs)
        # The very arguments of the last call: 0.5 us more than `jax.jit`. Safe because
        # `PlannedFunction._remember` keeps only immutable arguments.
        last = self._direct.last
        known = last.args or ()
        is_like = known and first is known[0] and len(args) == len(known) and not kwargs
        if is_like and all(map(is_, args, known)) and last.context == trace_context():
            out = last.program(*args)
            return unpack(out) if type(out) is Packed else out
        if self._fixed:
            note_unit_dependence()  # to a trace that calls this one
        if self._packs and not kwargs and args:
            out = self._of_quantities(args)
            if out is not _NOTHING:
                return unpack(out)
        if self._one_scale:
            # JAX finds the program by the units themselves: 0.3 us instead of 0.4 us per argument.
            # Only a trace in other units raises.
            try:
                out = self._compiled(*args, **kwargs)
                return unpack(out) if type(out) is Packed else out
            except _OtherUnits:
                self._one_scale = False
        args, kwargs = self._anchored(args, kwargs)
        return unpack(self._compiled(*args, **kwargs))

    def _of_quantities(self, args: Args) -> PyTree:
        """Run a call whose arguments are many quantities; `_NOTHING` if there is anything else.

        A function of plain arrays gets their values: 0.04 us per argument. JAX takes three times as
        long to flatten a quantity. Safe because the layout and the units are compared.
        """
        same, values, program = self._same
        last = program.last
        is_known = args[0] is same[0] and len(args) == len(same) and last.args is values
        # 100 are compared in 1.5 us.
        if is_known and all(map(is_, args, same)) and last.context == trace_context():
            return last.program(*values)
        box = type(args[0]) if len(args) == 1 else None
        items = args if box not in _BOXES else args[0].values() if box is dict else args[0]
        given = None
        try:
            if len(items) >= MANY:
                given = [q._quantity_unit for q in items]
        except AttributeError:  # an argument is no quantity
            given = None
        if given is None:
            nested = box is dict and any([type(x) is dict for x in items])
            return self._nested(args) if nested else _NOTHING
        names, units, program = self._flat.get(box) or _NOTHING
        layout = [*args[0]] if box is dict else len(given)
        if layout != names or given != units:
            args, _ = self._anchored(args, {})
            program, items = self._remember(box, layout, args)
        given = [q.stored for q in items]
        out = program(*given)
        if box is None and self._scale:
            self._note_same(args, given, program)
        return out

    def _note_same(self, args: Args, values: list[Primal], program: Direct) -> None:
        """Keep the quantities of a call if the planned function has kept their values."""
        last = program.last.args
        if last is not None and last is not self._same[1] and all(map(is_, last, values)):
            self._same = args, last, program

    def _nested(self, args: Args) -> PyTree:
        """Run a call with quantities and arrays in nested dicts; `_NOTHING` if there is more.

        0.15 us per quantity. JAX takes 0.5 us to flatten a quantity, here and again in the call.
        """
        layout: Layout = []
        units: Units = []
        values: list[Primal] = []
        if not take_apart(args[0], layout, units, values) or len(values) < MANY:
            return _NOTHING
        known, anchor, program = self._flat.get("nested") or _NOTHING
        if layout != known or units != anchor:
            if not any(units):
                return _NOTHING
            args, _ = self._anchored(args, {})
            layout, units, values = [], [], []
            take_apart(args[0], layout, units, values)
            program = self._remember_nested(args, layout, units)
        return program(*values)

    def _remember_nested(self, args: Args, layout: Layout, units: Units) -> Program:
        """Make a function of the values alone, in the order in which `take_apart` finds them."""
        key = ("nested", tuple(layout), tuple(units))
        if key not in self._known:
            pattern, shape, me = _pattern(args, {})[0], emptied(args[0]), weakref.proxy(self)

            def on_values(*values: Primal) -> PyTree:
                given = filled(shape, iter([labelled(*x) for x in zip(values, units, strict=True)]))
                return pack(me._watched(pattern, me._fun, given))

            on_values.__name__ = getattr(self._fun, "__name__", "fun")
            self._known[key] = self._planned(on_values, {}, flat=True)
        self._flat["nested"] = layout, units, self._known[key]
        return self._known[key]

    def _planned(self, fun: Function, options: Options, flat: bool = False) -> Program:
        if not self._scale:
            return jax.jit(fun, **options)
        return PlannedFunction(fun, options, flat=flat, written=self._fun, check=self._check)

    def _checking(self, fun: Function) -> Function:
        """Return the function to trace, which refuses units that convert to known units.

        Programs hold this object weakly, so they are freed with it and not at a later collection.
        """
        me = weakref.proxy(self)

        @functools.wraps(fun)
        def checked(*args: PyTree, **kwargs: PyTree) -> PyTree:
            key, _, _, units = _pattern(args, kwargs)
            if any(units) and units not in me._anchors.setdefault(key, [units]):
                if key not in me._fixed:
                    raise _OtherUnits
                me._anchors[key].append(units)
            out = me._watched(key, fun, *args, **kwargs)
            return pack(out) if me._packs else out

        return checked

    def _watched(self, key: Key, fun: Function, /, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Trace; if a result depends on the units, remember not to convert these arguments."""
        with watching() as found:
            if self._scale:
                args, kwargs = without_powers((args, kwargs))
            out = fun(*args, **kwargs)
            out = without_powers(out) if self._scale else out
        if found:
            self._fixed.add(key)
            self._direct, self._same = _NEVER, _NO_QUANTITIES
        return out

    def _remember(self, box: type | None, names: Names, args: Args) -> tuple[Program, Values]:
        """Return a function of the values alone, for quantities in these units; and the quantities.

        **Arguments:** `box`: the type of the only argument, `None` if there are several; `names`:
        the keys of a dict in their order, otherwise the number of quantities.
        """
        inner = args if box is None else args[0]
        items = [inner[name] for name in names] if box is dict else inner
        units = [q.label for q in items]
        key = (box, tuple(names) if box is dict else names, tuple(units))
        if key not in self._known:
            order = sorted(names) if box is dict else ()  # JAX sorts the keys of dicts
            pattern, me = _pattern(args, {})[0], weakref.proxy(self)

            def on_values(*values: Primal) -> PyTree:
                quantities = map(unitful, values, units)
                if box is None:
                    given: Iterable[PyTree] = quantities
                elif box is not dict:
                    given = (box(quantities),)
                else:
                    by_name = dict(zip(names, quantities, strict=True))
                    given = ({name: by_name[name] for name in order},)
                return pack(me._watched(pattern, me._fun, *given))

            on_values.__name__ = getattr(self._fun, "__name__", "fun")
            self._known[key] = self._planned(on_values, {}, flat=True)
        self._flat[box] = names, units, self._known[key]
        return self._known[key], items

    def _anchored(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Convert the arguments to the units of the first call with these dimensions."""
        key, leaves, treedef, units = _pattern(args, kwargs)
        if not any(units):
            return args, kwargs
        anchors = self._anchors.setdefault(key, [])
        for anchor in anchors:
            if key in self._fixed and units != anchor:
                continue
            try:
                done = [
                    x if unit is target else _convert_to_anchor(x, unit, target)
                    for x, unit, target in zip(leaves, units, anchor, strict=True)
                ]
            except UnitError:  # the dtype would overflow or underflow: compile for these units
                continue
            return jax.tree.unflatten(treedef, done)
        anchors.append(units)
        return args, kwargs

    def lower(self, /, *args: PyTree, **kwargs: PyTree) -> Lowered:
        """`jax.jit(fun).lower`: ahead-of-time compilation, for exactly these units.

        Numbers lower the program that is planned for them; `jax.ShapeDtypeStruct` lowers plain
        JAX's program.
        """
        return self._aot.lower(*args, **kwargs)

    def trace(self, /, *args: PyTree, **kwargs: PyTree) -> Traced:
        """`jax.jit(fun).trace`."""
        return self._jit.trace(*args, **kwargs)

    @property
    def plans(self) -> list[Plan]:
        """The plans made so far, oldest first: `identity`, `conversions`, `notes` and more."""
        planned = (self._compiled, self._aot, *self._known.values())
        return [plan for p in planned if type(p) is PlannedFunction for plan in p.plans]

    def eval_shape(self, /, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """`jax.jit(fun).eval_shape`."""
        return self._jit.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forget compiled programs and the units of first calls."""
        self._jit.clear_cache()
        self._aot.clear_cache()
        self._compiled.clear_cache()
        self._one_scale = True
        self._direct, self._same = self._compiled if self._scale else _NEVER, _NO_QUANTITIES
        self._flat.clear()
        self._known.clear()
        self._anchors.clear()
        self._fixed.clear()

    def __get__(self, instance: object, owner: type | None = None) -> Function:
        return self if instance is None else functools.partial(self, instance)

    def __copy__(self) -> Compiled:
        """Return the function itself, as for any function: all callers share its plans."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Compiled:
        return self

    def __repr__(self) -> str:
        return f"<tanjax compiled {getattr(self._fun, '__qualname__', self._fun)}>"


def jit(
    fun: Function | None = None, /, *, scale: bool = True, check: str = "late",
    passes: Sequence[Callable[[Function], Function]] = (), **options: PyTree,
) -> Any:  # fmt: skip
    """`jax.jit` with units, and with exponents where numbers leave the range of their dtype.

    **Arguments:** `fun` and the options of `jax.jit` (`static_argnums`, `donate_argnums`,
    `in_shardings`, …). Also a decorator with options. `scale`: plan exponents; with `False` numbers
    over- and underflow as with `jax.jit`. `check`: the checks for which a call waits. `"late"`: all
    except those of results that a loop hands back, which may be wrong for 9 calls before the
    warning; `"now"`: all; `"off"`: none, arguments are only compared with earlier ones. `passes`:
    functions that rewrite the program first, in this order: `tj.programs.passes`, or any function
    of a function, for example a `tj.programs.Interpreter`.

    **Returns:** a compiled function.

    **Exponents:** the first call with arguments of some shapes traces the program, and runs it on
    its numbers in a wide range. If plain JAX loses nothing, the program is JAX's, bit by bit.
    Otherwise values get powers of two, so that SI numbers work in float32, bfloat16 and float16.
    Values that the plan does not touch keep their bits, the others are within rounding. Results
    without a unit return to exponent 0. Quantities keep a round exponent (`q.scale`) if they would
    overflow or underflow without it; inside, no label has an exponent. A later call uses a plan if
    its arguments are in windows: bounds prove the plan there, or a flag in the program tells
    whether a number inside left its window. In any other call NumPy runs the program first, a
    *look*. `.plans` shows which (`grade`). See `tj.scale_graph`. Gradients are planned if they are
    inside, `tj.jit(tj.grad(f))`.

    **Warns:** `ScaleWarning` in each of these cases:

    - The results lose entries because no common exponent holds all of them.
    - Numbers cannot be measured: in a callback, an unknown primitive, a long loop.
    - A constant was lost.
    - Results that were handed back left their windows.
    - 16 calls in a row were looks (warns once).
    - The function is called under a trace of JAX, where it is plain JAX (warns once).
    - A label has a power of two (warns once in a process).

    **Units:** the first call with arguments of some dimensions decides in which units the program
    works; later arguments are converted to them. tanjax compiles again for the units given if they
    are further apart than km and µm (in float64: 10³⁰, in float16: at all), or if the numbers would
    overflow or underflow in the others. So it does for affine scales, and for functions that round
    (half a kilometre and 500 metres round differently).

    **Several processes:** arrays that live on several hosts are measured as a whole. All processes
    make the same plan, or none makes a plan and all warn. Larger arrays are bounded, not run.

    **Cost:** a later call with the same arrays compares them with the last ones, 0.3 us more than
    `jax.jit`. Other arrays are compared with their windows: 3 us for one, 0.5 us each for several,
    and a wait for arrays that are still being computed. A call waits for its flag. A state that a
    loop hands back is checked two calls later, without a wait. A look runs the program in NumPy,
    15 us for each equation.

    >>> import tanjax as tj
    >>> newton = tj.jit(lambda m, r: 6.674e-11 * m * m / r**2)
    >>> newton(jnp.float32(2e30), jnp.float32(1e15))
    Array(2.6696003e+20, dtype=float32)
    """
    if fun is None:
        return lambda f: jit(f, scale=scale, check=check, passes=passes, **options)
    if check not in CHECKS:
        raise ValueError(
            message(f"tj.jit: no check {check!r}.", hint=f"check is one of {', '.join(CHECKS)}.")
        )
    return Compiled(functools.reduce(lambda f, p: p(f), passes, fun), options, scale, check)
